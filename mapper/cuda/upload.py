"""Upload of large arrays to a device by several threads, through page-locked memory.

The arrays of an index are memory-mapped files. The driver alone copies such pages with one thread
to page-locked memory of its own, a piece at a time, and waits for each: a tenth of the bus's rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mapper.cuda.api import DRIVER, SIMULATED, cuda, device_context
from mapper.cuda.arguments import DeviceArray
from mapper.cuda.memory import (
    copy_in,
    device_memory,
    free_bytes,
    pinned_bytes,
    whole_words,
)
from mapper.errors import DeviceMemoryError, option
from mapper.parallel.map import map_in_threads

PIECE_BYTES = 8 << 20
"""Bytes that a thread copies at a time, at most, through page-locked memory of that size."""

LEAST_PIECE_BYTES = 1 << 20

PIECES_PER_THREAD = 16
"""A small index has smaller pieces: locking 48 MB took twice as long as copying an index of 250."""

THREADS = 6
"""Few threads reach the bandwidth of the host's memory, and each has pages to lock."""

Batch = TypeVar("Batch", bound=NamedTuple)


def bytes_on_device(batch: NamedTuple) -> int:
    """Return the bytes of the arrays of what :func:`upload` returned."""
    return sum(column.nbytes for column in batch if hasattr(column, "nbytes"))


def upload(batch: Batch, what: str) -> Batch:
    """Copy the arrays of a NamedTuple to the current device; other fields are kept.

    Kernels take the result in place of the original. The copy is complete on return.

    Raises
    ------
    DeviceMemoryError
        If the arrays are larger than the free memory; `what` names them in the message.
    """
    needed = sum(column.nbytes for column in batch if isinstance(column, np.ndarray))
    if needed > free_bytes():
        raise DeviceMemoryError(
            f"{what} takes {needed / 1e9:.2f} GB of device memory, and {free_bytes() / 1e9:.2f} GB "
            f"are free; use a larger device, or {option('device', 'cpu')}"
        )
    columns = [
        np.ascontiguousarray(column) if isinstance(column, np.ndarray) else column
        for column in batch
    ]
    with device_memory(what):
        there = [
            cuda.device_array(column.shape, column.dtype)
            if isinstance(column, np.ndarray)
            else column
            for column in columns
        ]
    _copy(
        [
            _Pieces(host.reshape(-1).view(np.uint8), _bytes_of(array))
            for host, array in zip(columns, there, strict=True)
            if isinstance(host, np.ndarray) and host.nbytes
        ]
    )
    cuda.synchronize()
    return type(batch)(*there)


class _Pieces(NamedTuple):
    host: np.ndarray  # uint8
    there: Any  # its copy on the device


def _copy(arrays: Sequence[_Pieces]) -> None:
    """Copy arrays of bytes; each thread takes the next piece when it is idle."""
    n_bytes = sum(len(array.host) for array in arrays)
    piece = n_bytes // (THREADS * PIECES_PER_THREAD)
    piece = whole_words(min(PIECE_BYTES, max(LEAST_PIECE_BYTES, piece)))
    pieces = [(array, start) for array in arrays for start in range(0, len(array.host), piece)]
    if not pieces:
        return
    # Small arrays have one thread and one small buffer: to lock pages takes longer than to copy.
    room = min(max(len(array.host) for array in arrays), piece)
    n_threads = min(THREADS, -(-n_bytes // PIECE_BYTES))
    ordinal = 0 if SIMULATED else cuda.current_context().device.id
    turn = count()

    def work(_: int) -> None:
        with device_context(ordinal):
            stream, staged = cuda.stream(), pinned_bytes(room)
            while (i := next(turn)) < len(pieces):
                (host, there), start = pieces[i]
                n = min(piece, len(host) - start)
                np.copyto(staged[:n], host[start : start + n])
                copy_in(there[start : start + n], staged, n, stream)
                stream.synchronize()
            with DRIVER:
                del stream, staged

    map_in_threads(work, range(n_threads), n_threads)


def _bytes_of(array: Any) -> Any:
    """Return a view of a numba device array as bytes."""
    if SIMULATED:
        return array.reshape(array.size).view(np.uint8)
    n_bytes = array.size * array.dtype.itemsize
    address = array.device_ctypes_pointer.value
    return DeviceArray(array, address, (n_bytes,), np.dtype(np.uint8))
