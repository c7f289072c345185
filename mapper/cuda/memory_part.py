"""Memory of a device: how much there is, and allocating of it.

Beside it the number of its multiprocessors, by which work and memory are shared out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from mapper.cuda.api import DRIVER, SIMULATED, cuda, is_out_of_memory
from mapper.errors import DeviceMemoryError


@contextmanager
def device_memory(what: str) -> Iterator[None]:
    """Allocate inside this: one thread at a time, out-of-memory errors as DeviceMemoryError.

    Parameters
    ----------
    what
        Needs the memory: the subject of the message.

    Raises
    ------
    DeviceMemoryError
        If the device, or the host for page-locked memory, has not so much.
    """
    if SIMULATED:
        yield
        return
    try:
        with DRIVER:
            yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise DeviceMemoryError(
            f"{what} does not fit into the device's memory; {free_bytes() / 1e9:.2f} GB are free"
        ) from error


def free_bytes() -> int:
    """Return the free memory of the current device."""
    # The simulator says infinity.
    return int(min(cuda.current_context().get_memory_info().free, sys.maxsize))


def total_bytes() -> int:
    """Return the memory of the current device."""
    return sys.maxsize if SIMULATED else _total_bytes_of(cuda.current_context().device.id)


@cache
def _total_bytes_of(ordinal: int) -> int:
    """Ask the driver once: work space is shared out for each of a batch's kernels anew."""
    return int(cuda.current_context().get_memory_info().total)


def multiprocessors() -> int:
    """Return the number of multiprocessors of the current device."""
    return 1 if SIMULATED else int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def whole_words(n_bytes: int) -> int:
    """Round up to 8 bytes, the widest item, so that a view of any type divides it."""
    return (n_bytes + 7) & ~7


def with_room(n_bytes: int) -> int:
    """Return the size to allocate: an eighth more, so that batches of like size all fit."""
    return whole_words(max(256, n_bytes + (n_bytes >> 3)))
