"""Leased buffers: large arrays whose memory is used again.

The operating system clears every page it hands out, and takes the pages of a large array back when
the array is freed. For the columns of batches, which live for milliseconds, clearing took longer
than filling them (measured: 16 % of all time from FASTQ.gz to BAM, parsing and encoding 13 %).
Page-locked memory, too, takes longer to allocate than to fill.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

LEAST_BYTES = 1 << 18
"""Smaller arrays are left to malloc, which keeps their memory itself."""


class _Lease:
    """Owns memory while any array or view of it exists; then returns it to a free list."""

    def __init__(self, memory: np.ndarray, free: list[np.ndarray]) -> None:
        self.__array_interface__: dict[str, Any] = memory.__array_interface__
        self._memory = memory
        self._free = free

    def __del__(self) -> None:
        self._free.append(self._memory)  # atomic: any thread may be here at any time


def _bytes(n_bytes: int) -> np.ndarray:
    return np.empty(n_bytes, np.uint8)


class Recycler:
    """Leases uint8 arrays, from the memory of freed ones where possible.

    Memory is kept by kind or by size (in steps of an eighth to a quarter), so as much is kept as
    the arrays of that kind or size took at their peak.

    Parameters
    ----------
    allocate
        Returns a new uint8 array of a number of bytes.
    most_unused
        Bytes that may be unused when more memory is allocated; beyond, they are freed first.
    freeing
        Held while memory is freed here. (Leases that outlive :meth:`clear` are freed by whichever
        thread drops the last view.)
    """

    def __init__(
        self,
        allocate: Callable[[int], np.ndarray] = _bytes,
        most_unused: int | None = None,
        freeing: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._allocate, self._most_unused = allocate, most_unused
        self._freeing = nullcontext() if freeing is None else freeing
        self._free: dict[Hashable, list[np.ndarray]] = {}
        self._lock = threading.Lock()

    def empty(self, n_bytes: int, kind: str | None = None) -> np.ndarray:
        """Return an array of `n_bytes` bytes, uint8, of any content.

        Parameters
        ----------
        kind
            Name of arrays of similar size, of which each is made with an eighth more bytes and
            reused for any number up to that; None to reuse memory of the same size class.
        """
        if kind is None and n_bytes < LEAST_BYTES:
            return np.empty(n_bytes, np.uint8)
        if kind is None:
            step = 1 << (n_bytes.bit_length() - 3)
            size = -(-n_bytes // step) * step
        else:
            size = (max(256, n_bytes + (n_bytes >> 3)) + 7) & ~7
        with self._lock:
            free = self._free.setdefault(size if kind is None else kind, [])
            memory = free.pop() if free else None
        if memory is not None and len(memory) < n_bytes:
            with self._freeing:
                memory = None  # as may be the rest of this kind: one is replaced at a time
        if memory is None:
            if self._most_unused is not None and self._unused() > self._most_unused:
                self.clear()
            memory = self._allocate(size)
        return np.asarray(_Lease(memory, free))[:n_bytes]

    def _unused(self) -> int:
        with self._lock:
            return sum(len(memory) for free in self._free.values() for memory in free)

    def clear(self) -> None:
        """Free all unused memory now, and the rest when its arrays are gone."""
        with self._lock:
            free, self._free = self._free, {}
        with self._freeing:
            free.clear()


RECYCLER = Recycler()
"""The recycler of ordinary memory of the process."""


class _Span:
    """Keeps arrays, for one that covers the memory of them all."""

    def __init__(self, arrays: Sequence[np.ndarray], low: int, high: int) -> None:
        self._arrays = arrays
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "shape": (high - low,), "typestr": "|u1", "data": (low, False),
        }  # fmt: skip


def spanning(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return one array over the memory of several, and where in it each of them begins.

    So compiled code takes any number of arrays, and none of their bytes is copied. What lies
    between them must not be touched: it may be anything, or no memory at all.

    Parameters
    ----------
    arrays
        uint8, contiguous; they live as long as the array returned.

    Returns
    -------
    uint8, and int64 (n_arrays,).
    """
    addresses = np.array([array.__array_interface__["data"][0] for array in arrays], np.int64)
    sizes = np.array([array.nbytes for array in arrays], np.int64)
    if not sizes.any():
        return np.empty(0, np.uint8), np.zeros(len(arrays), np.int64)
    low = int(addresses[sizes > 0].min())
    high = int((addresses + sizes)[sizes > 0].max())
    return np.asarray(_Span(arrays, low, high)), addresses - low
