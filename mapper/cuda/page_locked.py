"""Page-locked memory of the host, which a device copies by itself, used again and again.

Locking pages takes longer than filling them.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence

import numpy as np

from mapper.cuda.api import DRIVER, SIMULATED, cuda, driver
from mapper.cuda.memory_part import device_memory, with_room
from mapper.errors import DeviceMemoryError
from mapper.parallel.buffers import RECYCLER, Recycler

log = logging.getLogger(__name__)


def pinned_bytes(n_bytes: int) -> np.ndarray:
    """Allocate page-locked memory, uint8."""
    with device_memory(f"a pinned buffer of {n_bytes / 1e6:.1f} MB"):
        return cuda.pinned_array(n_bytes, np.uint8)


class Slabs:
    """Page-locked memory that results are downloaded to, used again when nobody refers to them.

    Shared by the lanes of a device, so that there are as many slabs as there are batches under
    way, wherever they were made. Locking pages takes long (measured: 94 ms for 248 MB).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slabs: dict[str, list[np.ndarray]] = {}

    def take(self, name: str, n_bytes: int) -> np.ndarray:
        """Return `n_bytes` or more, uint8, to which nobody refers.

        Parameters
        ----------
        name
            Of the kind of results; those of a kind are of like size.
        """
        with self._lock:
            slabs = self._slabs.setdefault(name, [])
            for i in range(len(slabs)):
                # Two references: the list's, and the argument's.
                if sys.getrefcount(slabs[i]) <= 2:
                    if slabs[i].nbytes >= n_bytes:
                        return slabs[i]
                    with DRIVER:
                        del slabs[i]  # too small, as it may be for all that follow
                    break
        slab = pinned_bytes(with_room(n_bytes))
        with self._lock:
            slabs.append(slab)
        return slab

    def clear(self) -> None:
        """Give back what nobody refers to, and the rest when nobody does."""
        with self._lock, DRIVER:
            self._slabs.clear()


def is_page_locked(arrays: Sequence[np.ndarray]) -> bool:
    """Say whether all arrays lie in page-locked memory, in one piece each.

    A device copies those by itself. The driver knows, whoever has locked them; it is asked for
    both ends of each. In the simulator none does.
    """
    if SIMULATED:
        return False
    kind = driver.binding.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    host = int(driver.binding.CUmemorytype.CU_MEMORYTYPE_HOST)
    for array in arrays:
        if not array.flags.c_contiguous:
            return False
        first = array.ctypes.data
        for address in (first, first + max(array.nbytes - 1, 0)):
            error, found = driver.binding.cuPointerGetAttribute(kind, address)
            if int(error) != 0 or int(found) != host:
                return False
    return True


MOST_PAGE_LOCKED = 1 << 32
"""Bytes of the largest array that is page-locked for a caller to keep."""

_MOST_UNUSED = 1 << 32


_PAGE_LOCKED = Recycler(pinned_bytes, _MOST_UNUSED)


def page_locked(n: int, dtype: np.dtype) -> np.ndarray:
    """Return a host array of `n` items, of any content, that is the caller's to keep.

    Copies from a device go there without the host's help. Its memory is used again when neither
    it nor any view of it is left: locking new memory takes longer than filling it. Very
    large arrays, and small ones, are ordinary ones, and so are those that cannot be locked.
    """
    n_bytes = n * dtype.itemsize
    if n_bytes <= MOST_PAGE_LOCKED:
        try:
            return _PAGE_LOCKED.empty(n_bytes).view(dtype)
        except DeviceMemoryError as error:
            log.debug("%s; results go to ordinary memory", error)
    return RECYCLER.empty(n_bytes).view(dtype)
