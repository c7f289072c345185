"""What a stream needs for a batch, on the device and page-locked, kept from batch to batch.

An allocation makes a whole device wait.

Copies between arrays of the host and of a device, queued on a stream.

Memory of a device: how much there is, and allocating of it.

Beside it the number of its multiprocessors, by which work and memory are shared out.

Page-locked memory of the host, which a device copies by itself, used again and again.

Locking pages takes longer than filling them.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from mapper.cuda.api import DRIVER, SIMULATED, cuda, cuda_driver, is_out_of_memory, sleeping_event
from mapper.cuda.arguments import DeviceArray
from mapper.errors import DeviceMemoryError
from mapper.parallel.buffers import RECYCLER, Recycler

if SIMULATED:

    def copy_in(array: Any, host: np.ndarray, n: int, stream: Any) -> None:
        """Queue the copy of the first n items of a host array to a device array's first."""
        array[:n].copy_to_device(host[:n])

    def copy_in_at(array: Any, at: int, host: np.ndarray, stream: Any) -> None:
        """Queue the copy of a host array to a device array, from its item `at` on."""
        if len(host):
            array[at : at + len(host)].copy_to_device(host)

    def copy_out(host: np.ndarray, array: Any, n: int, stream: Any) -> None:
        """Queue the copy of the first n items of a device array to a host array's first."""
        array[:n].copy_to_host(host[:n])

else:
    # A slice of a device array takes numba longer than the driver takes to queue the copy.
    def copy_in(array: Any, host: np.ndarray, n: int, stream: Any) -> None:
        """Queue the copy of the first n items of a host array to a device array's first."""
        cuda_driver.host_to_device(array, host, n * host.itemsize, stream=stream)

    def copy_in_at(array: Any, at: int, host: np.ndarray, stream: Any) -> None:
        """Queue the copy of a host array to a device array, from its item `at` on."""
        if len(host):
            cuda_driver.driver.cuMemcpyHtoDAsync(
                cuda_driver.device_pointer(array) + at * host.itemsize,
                cuda_driver.host_pointer(host, readonly=True), host.nbytes,
                cuda_driver._stream_handle(stream),
            )  # fmt: skip

    def copy_out(host: np.ndarray, array: Any, n: int, stream: Any) -> None:
        """Queue the copy of the first n items of a device array to a host array's first."""
        cuda_driver.device_to_host(host, array, n * host.itemsize, stream=stream)


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
    kind = cuda_driver.binding.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    host = int(cuda_driver.binding.CUmemorytype.CU_MEMORYTYPE_HOST)
    for array in arrays:
        if not array.flags.c_contiguous:
            return False
        first = array.ctypes.data
        for address in (first, first + max(array.nbytes - 1, 0)):
            error, found = cuda_driver.binding.cuPointerGetAttribute(kind, address)
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


class Workspace:
    """Arrays of one stream on one device, kept from batch to batch and grown when needed.

    Allocation synchronises a device, so what a batch needs is taken from here by name and
    handed out again to the next batch. Contents are undefined. To be used by one thread, in
    whose current context (``with cuda.gpus[ordinal]``) it was made.

    Parameters
    ----------
    slabs
        Where results go; None for slabs of its own.
    sleeps
        The thread that waits for the stream sleeps meanwhile: others have use for its core. To
        be woken takes it some 50 microseconds; else it spins.
    stream
        None for a new one.
    """

    def __init__(
        self, slabs: Slabs | None = None, *, sleeps: bool = False, stream: Any = None
    ) -> None:
        self.stream = cuda.stream() if stream is None else stream
        self._done = sleeping_event() if sleeps else None
        self.most_needed: dict[str, int] = {}
        """Items of pools (``device/work.py``), where some batch needed more than at first."""
        self.kept: dict[str, Any] = {}
        """What is made of the arrays here, and kept from batch to batch, as they are."""
        self._device: dict[str, Any] = {}
        self._views: dict[str, Any] = {}  # last handed out of each
        self._pinned: dict[str, np.ndarray] = {}
        self._slabs = Slabs() if slabs is None else slabs

    def device(self, name: str, n: int, dtype: Any) -> Any:
        """Return a device array of `n` items; what `name` held before is lost if it grew."""
        held = self._device.get(name)
        dtype = np.dtype(dtype)
        n_bytes = n * dtype.itemsize
        if held is None or held.nbytes < n_bytes:
            if held is not None:
                self.synchronize()  # kernels in the queue may use it; freeing does not wait
            with device_memory(f"a buffer of {n_bytes / 1e6:.1f} MB"):
                self._device.pop(name, None)
                self._views.pop(name, None)
                held = None  # free it before its successor is allocated
                held = cuda.device_array(with_room(n_bytes), np.uint8)
            self._device[name] = held
        view = self._views.get(name)
        if view is None or len(view) != n or view.dtype != dtype:
            view = self._views[name] = _first_items(held, n, dtype)
        return view

    def pinned(self, name: str, n: int, dtype: Any) -> np.ndarray:
        """Return a page-locked host array of `n` items, which copies overlap with kernels."""
        held = self._pinned.get(name)
        n_bytes = n * np.dtype(dtype).itemsize
        if held is None or held.nbytes < n_bytes:
            if held is not None:
                self.synchronize()  # a copy in the queue may use it
            held = self._pinned[name] = pinned_bytes(with_room(n_bytes))
        return held[: whole_words(n_bytes)].view(dtype)[:n]

    def upload(self, name: str, column: np.ndarray) -> Any:
        """Copy a 1-D host array to the device by way of a pinned one; return the device array.

        The copy is queued on the stream. A pinned array is refilled only after
        :meth:`synchronize`, or by a name that no queued copy uses.
        """
        return self.upload_joined(name, [column])

    def upload_joined(self, name: str, columns: Sequence[np.ndarray]) -> Any:
        """Copy 1-D host arrays of one type to one device array, as :meth:`upload` does."""
        n = sum(len(column) for column in columns)
        staged = self.pinned(name, n, columns[0].dtype)
        at = 0
        for column in columns:
            staged[at : at + len(column)] = column
            at += len(column)
        array = self.device(name, n, staged.dtype)
        if n:
            copy_in(array, staged, n, self.stream)
        return array

    def download(self, name: str, array: Any) -> np.ndarray:
        """Queue the copy of a 1-D device array into the pinned array `name`, and return that.

        It is filled only after :meth:`synchronize`, and refilled by the next download to the
        same name: copy what must outlive the batch.
        """
        host = self.pinned(f"{name} down", len(array), array.dtype)
        if len(array):
            copy_out(host, array, len(array), self.stream)
        return host

    def download_results(self, name: str, arrays: Sequence[Any]) -> list[np.ndarray]:
        """Queue copies of 1-D device arrays into pinned memory that is the caller's to keep.

        They are filled only after :meth:`synchronize`. All lie in one slab, whose memory is
        used again, by results of the same name, when no view of it is left: copying results
        out of one buffer, into memory that the system has to clear first, costs more than the
        transfer.
        """
        starts = np.cumsum([0, *(_aligned(array.nbytes) for array in arrays)]).tolist()
        slab = self._slabs.take(name, starts[-1])
        results = []
        for array, start in zip(arrays, starts, strict=False):
            host = slab[start : start + whole_words(array.nbytes)].view(array.dtype)[: len(array)]
            if len(array):
                copy_out(host, array, len(array), self.stream)
            results.append(host)
        return results

    def synchronize(self) -> None:
        """Wait for all that was queued on the stream."""
        if self._done is None:
            self.stream.synchronize()
        else:
            self._done.record(self.stream)
            self._done.synchronize()

    def release(self) -> None:
        """Free all arrays; for a batch to be tried again in smaller pieces."""
        self.synchronize()
        with DRIVER:
            self.kept.clear()
            self._views.clear()
            self._device.clear()
            self.most_needed.clear()
            self._pinned.clear()
        self._slabs.clear()


def _aligned(n_bytes: int) -> int:
    """Round up to what copies like best: 256 bytes."""
    return (n_bytes + 255) & ~255


def _first_items(held: Any, n: int, dtype: np.dtype) -> Any:
    """Return the first items of a device array of bytes."""
    if SIMULATED:
        return held[: whole_words(n * dtype.itemsize)].view(dtype)[:n]
    return DeviceArray(held, held.device_ctypes_pointer.value, (n,), dtype)
