"""Large arrays to a device: by several threads, through page-locked memory.

The arrays of an index are maps of files. Left to the driver, one thread copies such pages to
page-locked memory of its own, a piece at a time, waiting for each; so an index came to a device
at a tenth of the bus's rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mapper.cuda.api import DRIVER, SIMULATED, cuda
from mapper.cuda.arguments import DeviceArray
from mapper.cuda.memory import copy_in, device_memory, free_bytes
from mapper.errors import DeviceMemoryError
from mapper.parallel.map import map_in_threads

PIECE_BYTES = 8 << 20
"""Copied at a time by each thread, through page-locked memory of that size."""

THREADS = 6
"""What a host's memory gives is reached with few; locking pages takes time for each."""

Batch = TypeVar("Batch", bound=NamedTuple)


def upload(batch: Batch, what: str) -> Batch:
    """Copy the arrays of a NamedTuple to the current device; other fields stay.

    Kernels take the result as they take the original. The copy is complete on return.

    Raises
    ------
    DeviceMemoryError
        If the arrays are larger than the free memory; `what` names them in the message.
    """
    needed = sum(column.nbytes for column in batch if isinstance(column, np.ndarray))
    if needed > free_bytes():
        raise DeviceMemoryError(
            f"{what} takes {needed / 1e9:.2f} GB of device memory, and {free_bytes() / 1e9:.2f} GB "
            "are free; use a larger device, or --device cpu"
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


class _Room(NamedTuple):
    """What a thread copies with."""

    stream: Any
    staged: np.ndarray  # uint8, page-locked


def _copy(arrays: Sequence[_Pieces]) -> None:
    """Copy arrays of bytes; the threads take the next piece in turn."""
    pieces = [
        (array, start) for array in arrays for start in range(0, len(array.host), PIECE_BYTES)
    ]
    with device_memory("page-locked buffers"):
        rooms = [
            _Room(cuda.stream(), cuda.pinned_array(PIECE_BYTES, np.uint8))
            for _ in range(min(THREADS, len(pieces)))
        ]
    ordinal = 0 if SIMULATED else cuda.current_context().device.id
    turn = count()

    def work(room: _Room) -> None:
        with cuda.gpus[ordinal]:
            while (i := next(turn)) < len(pieces):
                (host, there), start = pieces[i]
                n = min(PIECE_BYTES, len(host) - start)
                np.copyto(room.staged[:n], host[start : start + n])
                copy_in(there[start : start + n], room.staged, n, room.stream)
                room.stream.synchronize()

    map_in_threads(work, rooms, len(rooms))
    with DRIVER:
        rooms.clear()


def _bytes_of(array: Any) -> Any:
    """Return a device array of numba's as one of bytes, over the same memory."""
    if SIMULATED:
        return array.reshape(array.size).view(np.uint8)
    n_bytes = array.size * array.dtype.itemsize
    address = array.device_ctypes_pointer.value
    return DeviceArray(array, address, (n_bytes,), np.dtype(np.uint8))
