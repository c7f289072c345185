"""Large arrays whose memory is used again.

The system clears each page that it gives, and takes the pages of a large array back when that
is freed. For the columns of batches, which live for milliseconds, clearing took longer than
filling them (measured: 16 % of all time from FASTQ.gz to BAM, parsing and encoding 13 %).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

LEAST_BYTES = 1 << 18
"""Smaller arrays are left to the allocator, which keeps their memory itself."""


class _Lease:
    """Owns memory as long as any array or view of it lives; then gives it back."""

    def __init__(self, memory: np.ndarray, free: list[np.ndarray]) -> None:
        self.__array_interface__: dict[str, Any] = memory.__array_interface__
        self._memory = memory
        self._free = free

    def __del__(self) -> None:
        self._free.append(self._memory)  # one step, so any thread may be here at any time


def _bytes(n_bytes: int) -> np.ndarray:
    return np.empty(n_bytes, np.uint8)


class Recycler:
    """Makes uint8 arrays, where it can from the memory of those that are gone.

    Memory is kept by size, in steps of an eighth to a quarter, so what is kept is what the
    arrays of that size took when there were most of them.

    Parameters
    ----------
    allocate
        Makes a new uint8 array of so many bytes.
    most_unused
        Bytes that may lie unused when more memory is asked for; beyond, they are freed first.
    """

    def __init__(
        self, allocate: Callable[[int], np.ndarray] = _bytes, most_unused: int | None = None
    ) -> None:
        self._allocate, self._most_unused = allocate, most_unused
        self._free: dict[int, list[np.ndarray]] = {}
        self._lock = threading.Lock()

    def empty(self, n_bytes: int) -> np.ndarray:
        """Return an array of `n_bytes` bytes, uint8, of any content."""
        if n_bytes < LEAST_BYTES:
            return np.empty(n_bytes, np.uint8)
        step = 1 << (n_bytes.bit_length() - 3)
        size = -(-n_bytes // step) * step
        with self._lock:
            free = self._free.setdefault(size, [])
            memory = free.pop() if free else None
        if memory is None:
            if self._most_unused is not None and self._unused() > self._most_unused:
                self.clear()
            memory = self._allocate(size)
        return np.asarray(_Lease(memory, free))[:n_bytes]

    def _unused(self) -> int:
        with self._lock:
            return sum(size * len(free) for size, free in self._free.items())

    def clear(self) -> None:
        """Give all memory back that no array uses now."""
        with self._lock:
            for free in self._free.values():
                free.clear()


RECYCLER = Recycler()
"""The process's."""
