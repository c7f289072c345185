"""Memory of a device and page-locked memory of the host: copies, allocation, streams, workspaces.

An allocation on a device synchronises all of its streams, and locking pages of the host takes
longer than filling them: both are kept from batch to batch.
"""

from __future__ import annotations

import logging
import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import Any
from weakref import finalize

import numpy as np

from mapper.cuda.api import (
    DRIVER,
    SIMULATED,
    cuda,
    cuda_driver,
    driver_functions,
    is_driver_error,
    is_out_of_memory,
    problem_of,
    refused,
    sleeping_event,
)
from mapper.cuda.arguments import DeviceArray, address_of
from mapper.cuda.driver_calls import (
    COPY_IN,
    COPY_OUT,
    FUNCTIONS,
    WAIT,
    queue_copy,
    wait_for_stream,
)
from mapper.cuda.slabs import Slabs
from mapper.errors import DeviceMemoryError
from mapper.jit.accelerate import driver
from mapper.parallel.buffers import RECYCLER, Recycler

log = logging.getLogger(__name__)

# --- streams ---


def priority_stream(below: int = 0) -> Any:
    """Return a stream of a high priority on the current device.

    Blocks of its kernels are the next to run when a block of a kernel of less priority ends. The
    stream exists as long as the process: keep it for reuse.

    Parameters
    ----------
    below
        Levels below the highest priority, as far as that is still above the lowest.
    """
    if SIMULATED:
        return cuda.stream()
    # numba-cuda wraps the driver's functions by name; its own streams have the lowest priority.
    lowest, highest = cuda_driver.driver.cuCtxGetStreamPriorityRange()
    priority = max(highest, min(highest + below, lowest - 1))
    return cuda.external_stream(int(cuda_driver.driver.cuStreamCreateWithPriority(0, priority)))


def wait_for(stream: Any, other: Any, event: Any) -> None:
    """Make later work of a stream wait for all work that is queued on another.

    `event` is an event of the current device (``cuda.event()``) and can be reused.
    """
    event.record(other)
    event.wait(stream)


# --- copies ---

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

    queue_in = copy_in_at

    def queue_out(host: np.ndarray, array: Any, stream: Any) -> None:
        """Queue the copy of a device array's first items to a page-locked host array."""
        copy_out(host, array, len(host), stream)

else:
    # numba takes longer to slice a device array than the driver takes to queue the copy.
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

    def queue_in(array: Any, at: int, host: np.ndarray, stream: Any) -> None:
        """Queue the copy of a page-locked host array to a device array, from its item `at` on."""
        if len(host):
            to = address_of(array) + at * host.itemsize
            _queue(COPY_IN, to, host.ctypes.data, host.nbytes, stream)

    def queue_out(host: np.ndarray, array: Any, stream: Any) -> None:
        """Queue the copy of a device array's first items to a page-locked host array."""
        if len(host):
            _queue(COPY_OUT, host.ctypes.data, address_of(array), host.nbytes, stream)

    def _queue(kind: int, to: int, source: int, n_bytes: int, stream: Any) -> None:
        handle = int(cuda_driver._stream_handle(stream))
        error = queue_copy(driver_functions(), kind, to, source, n_bytes, handle)
        if error:
            raise refused(FUNCTIONS[kind], error)


# --- memory of a device ---


@contextmanager
def device_memory(what: str, *, locking: bool = True) -> Iterator[None]:
    """Allow one thread to allocate, and turn out-of-memory errors into DeviceMemoryError.

    Parameters
    ----------
    what
        The object that needs the memory: the subject of the message.
    locking
        False allows several threads at a time, for what numba-cuda takes no part in.

    Raises
    ------
    DeviceMemoryError
        If the device, or the host for page-locked memory, has too little.
    """
    if SIMULATED:
        yield
        return
    try:
        with DRIVER if locking else nullcontext():
            yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise DeviceMemoryError(
            f"{what} does not fit into the device's memory; {free_bytes() / 1e9:.2f} GB are free"
        ) from error


def free_bytes() -> int:
    """Return the free memory of the current device."""
    # The simulator returns infinity.
    return int(min(cuda.current_context().get_memory_info().free, sys.maxsize))


def free_share(held: int = 0) -> int:
    """Return the memory of the current device that this process may still take.

    Parameters
    ----------
    held
        Bytes that it holds already.
    """
    return max(0, min(free_bytes(), total_bytes() - held))


class _Share:
    """Processes that share each device, this one included."""

    n_processes = 1


@contextmanager
def shared_by(n_processes: int) -> Iterator[None]:
    """Let this process plan, within the block, with its part of each device's memory."""
    before = _Share.n_processes
    _Share.n_processes = n_processes
    try:
        yield
    finally:
        _Share.n_processes = before


def n_sharing() -> int:
    """Return how many processes share each device, this one included."""
    return _Share.n_processes


def total_bytes() -> int:
    """Return the memory of the current device, or this process's part of it."""
    whole = sys.maxsize if SIMULATED else _total_bytes_of(cuda.current_context().device.id)
    return whole // _Share.n_processes


@cache
def _total_bytes_of(ordinal: int) -> int:
    """Ask the driver once: the value is needed for every kernel of a batch."""
    return int(cuda.current_context().get_memory_info().total)


def multiprocessors() -> int:
    """Return the number of multiprocessors of the current device."""
    return 1 if SIMULATED else int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def whole_words(n_bytes: int) -> int:
    """Round up to 8 bytes, so that the array can be viewed as any item type."""
    return (n_bytes + 7) & ~7


def with_room(n_bytes: int) -> int:
    """Return the size to allocate: an eighth more, so that batches of similar size fit."""
    return whole_words(max(256, n_bytes + (n_bytes >> 3)))


# --- page-locked memory ---


_LEAST_OWN_PAGES = 1 << 20
"""Bytes of page-locked memory from which it is not the driver's own; see :func:`pinned_bytes`."""

_PAGE = 4096

_FOR_ALL_DEVICES = 1  # CU_MEMHOSTREGISTER_PORTABLE


@driver
def _touch(memory):
    """Write to each page, so that the system provides it, without the GIL."""
    for at in range(0, len(memory), _PAGE):
        memory[at] = 0


def _own_pages(n_bytes: int) -> np.ndarray:
    # Not shared memory, Python's default: few systems give large pages to that.
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # of a system without large pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


class _LockedPages:
    """Pages of the system's memory that the current device's driver has locked.

    Parameters
    ----------
    allocate
        Returns memory (uint8), or raises OSError.
    """

    def __init__(self, n_bytes: int, allocate: Callable[[int], np.ndarray]) -> None:
        try:
            memory = allocate(n_bytes)
        except OSError as error:
            raise DeviceMemoryError(f"{n_bytes / 1e6:.1f} MB of the host: {error}") from error
        _touch(memory)
        self.__array_interface__ = memory.__array_interface__
        address = memory.ctypes.data
        cuda_driver.driver.cuMemHostRegister(address, n_bytes, _FOR_ALL_DEVICES)
        context = cuda.current_context().handle
        # At the end of the process the driver is gone, and the system frees all.
        finalize(self, _unlock, address, context, memory).atexit = False


def _unlock(address: int, context: Any, memory: np.ndarray) -> None:
    """Have the driver unlock pages before they go with `memory`, in whichever thread that is."""
    cuda_driver.driver.cuCtxPushCurrent(context)
    try:
        cuda_driver.driver.cuMemHostUnregister(address)
    finally:
        cuda_driver.driver.cuCtxPopCurrent()


def pinned_bytes(n_bytes: int, allocate: Callable[[int], np.ndarray] = _own_pages) -> np.ndarray:
    """Allocate page-locked memory, uint8.

    In the driver's own function threads wait for each other, 6 ms for each 16 MB, most of which go
    into clearing pages. So pages of larger memory are provided here, and the driver only locks
    them.

    Parameters
    ----------
    allocate
        Returns the memory, if it is large (uint8), or raises OSError.
    """
    what = f"a pinned buffer of {n_bytes / 1e6:.1f} MB"
    if not SIMULATED and n_bytes >= _LEAST_OWN_PAGES:
        try:
            with device_memory(what, locking=False):
                return np.asarray(_LockedPages(n_bytes, allocate))
        except Exception as error:
            if not is_driver_error(error):
                raise
            log.debug("%s; the driver's own memory takes its place", problem_of(error))
    with device_memory(what):
        return cuda.pinned_array(n_bytes, np.uint8)


class _Results:
    """Where the memory of results comes from."""

    allocate: Callable[[int], np.ndarray] = staticmethod(_own_pages)


def keep_results_in(allocate: Callable[[int], np.ndarray]) -> None:
    """Let large page-locked arrays for results be of other memory, as that which is shared.

    `allocate` returns so many bytes (uint8), or raises OSError.
    """
    _Results.allocate = staticmethod(allocate)


def _result_bytes(n_bytes: int) -> np.ndarray:
    return pinned_bytes(n_bytes, _Results.allocate)


def result_memory() -> Recycler:
    """Return a recycler of page-locked memory for results; streams of a device share one.

    Locking pages is slow (measured: 94 ms for 248 MB). With one recycler there are as many buffers
    as batches under way, whichever streams they went through.
    """
    return Recycler(_result_bytes, freeing=DRIVER)


MOST_PAGE_LOCKED = 1 << 32
"""Bytes of the largest page-locked array that :func:`page_locked` returns."""

_MOST_UNUSED = 1 << 32


_FOR_RESULTS = Recycler(_result_bytes, _MOST_UNUSED, DRIVER)
_FOR_READS = Recycler(pinned_bytes, _MOST_UNUSED, DRIVER)


def page_locked(
    n: int, dtype: np.dtype, kind: str | None = None, *, for_results: bool = True
) -> np.ndarray:
    """Return a page-locked host array of `n` items, of any content, for the caller to keep.

    A device copies to it without the host's help. Its memory is used again when neither
    the array nor any view of it is left: locking new memory takes longer than filling it. Very
    large arrays and small ones are ordinary memory, and so is all memory if locking fails.

    Parameters
    ----------
    kind
        See :meth:`mapper.parallel.buffers.Recycler.empty`.
    for_results
        False for what a device fetches.
    """
    n_bytes = n * dtype.itemsize
    if n_bytes <= MOST_PAGE_LOCKED:
        try:
            recycler = _FOR_RESULTS if for_results else _FOR_READS
            return recycler.empty(n_bytes, kind).view(dtype)
        except DeviceMemoryError as error:
            log.debug("%s; results go to ordinary memory", error)
    return RECYCLER.empty(n_bytes).view(dtype)


def free_page_locked() -> None:
    """Free the memory of :func:`page_locked` that is not in use; see :meth:`Recycler.clear`."""
    _FOR_RESULTS.clear()
    _FOR_READS.clear()


# --- workspaces ---


class Workspace:
    """A stream of a device with its named arrays, which are kept from batch to batch and grow.

    The contents of an array are undefined when it is taken. One thread uses a workspace, with the
    device current (``with device_context(ordinal)``) with which it was made.

    Parameters
    ----------
    results
        Memory for :meth:`download_results`; None for a recycler of its own.
    sleeps
        A thread that waits for the stream sleeps, which frees its core; waking takes some 50
        microseconds. Otherwise it spins.
    stream
        None for a new one.
    slab_bytes
        Bytes of the slabs that device arrays are pieces of (:mod:`mapper.cuda.slabs`); 0 for arrays
        of their own.
    """

    def __init__(
        self, results: Recycler | None = None, *, sleeps: bool = False, stream: Any = None,
        slab_bytes: int = 0,
    ) -> None:  # fmt: skip
        self.stream = cuda.stream() if stream is None else stream
        self._done = sleeping_event() if sleeps else None
        self.most_needed: dict[str, int] = {}
        """Items of pools (:mod:`mapper.cuda.worklist`) that some batch found too small."""
        self.kept: dict[str, Any] = {}
        """Objects made of the arrays here, kept from batch to batch as the arrays are."""
        self._device: dict[str, Any] = {}
        self._slabs = Slabs(_device_bytes, slab_bytes)
        self._views: dict[str, Any] = {}  # the last view of each
        self._pinned: dict[str, np.ndarray] = {}
        self._results = result_memory() if results is None else results

    def device(self, name: str, n: int, dtype: Any) -> Any:
        """Return a device array of `n` items; if it grows, its contents are lost.

        Then views of it must not be used in work that is queued later: other arrays may have its
        memory.
        """
        held = self._device.get(name)
        dtype = np.dtype(dtype)
        n_bytes = n * dtype.itemsize
        if held is None or held.nbytes < n_bytes:
            held = None  # it is to be free before the next is allocated
            self._views.pop(name, None)
            self._drop(name)
            wanted = with_room(n_bytes)
            in_slab = self._slabs.holds(wanted)
            held = self._slabs.take(wanted) if in_slab else _device_bytes(wanted)
            self._device[name] = held
        view = self._views.get(name)
        if view is None or len(view) != n or view.dtype != dtype:
            view = self._views[name] = first_items(held, n, dtype)
        return view

    def _drop(self, name: str) -> None:
        """Give up a device array, if there is one of that name."""
        held = self._device.pop(name, None)
        if held is None:
            return
        if self._slabs.holds(held.nbytes):
            self._slabs.give_back(held)
        else:
            self.synchronize()  # queued kernels may use it, and freeing does not wait
            with DRIVER:
                del held

    def pinned(self, name: str, n: int, dtype: Any) -> np.ndarray:
        """Return a page-locked host array of `n` items, whose copies overlap with kernels."""
        held = self._pinned.get(name)
        n_bytes = n * np.dtype(dtype).itemsize
        if held is None or held.nbytes < n_bytes:
            if held is not None:
                self.synchronize()  # a queued copy may use it
            held = self._pinned[name] = pinned_bytes(with_room(n_bytes))
        return held[: whole_words(n_bytes)].view(dtype)[:n]

    def upload(self, name: str, column: np.ndarray) -> Any:
        """Copy a 1-D host array to the device through a pinned one; return the device array.

        The copy is queued on the stream: use a name again only after :meth:`synchronize`.
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
        queue_in(array, 0, staged, self.stream)
        return array

    def download(self, name: str, array: Any) -> np.ndarray:
        """Queue the copy of a 1-D device array into the pinned array `name`, and return that.

        It is filled after :meth:`synchronize`, and overwritten by the next download to the same
        name: copy data that must outlive the batch.
        """
        host = self.pinned(f"{name} down", len(array), array.dtype)
        queue_out(host, array, self.stream)
        return host

    def download_results(self, name: str, arrays: Sequence[Any]) -> list[np.ndarray]:
        """Queue copies of 1-D device arrays into pinned memory for the caller to keep.

        They are filled after :meth:`synchronize`. All lie in one buffer, which results of the same
        name use again when no view of it is left: copying results to new memory, which the
        system has to clear first, costs more than the transfer.
        """
        starts = np.cumsum([0, *(_aligned(array.nbytes) for array in arrays)]).tolist()
        buffer = self._results.empty(starts[-1], name)
        results = []
        for array, start in zip(arrays, starts, strict=False):
            host = buffer[start : start + whole_words(array.nbytes)].view(array.dtype)[: len(array)]
            queue_out(host, array, self.stream)
            results.append(host)
        return results

    def synchronize(self) -> None:
        """Wait for all work queued on the stream."""
        if self._done is None:
            self.stream.synchronize()
        else:
            handles = int(self._done.handle), int(cuda_driver._stream_handle(self.stream))
            error = wait_for_stream(driver_functions(), *handles)
            if error:
                raise refused(FUNCTIONS[WAIT], error)

    def release(self) -> None:
        """Free all arrays, so that a batch can be tried again in smaller pieces."""
        self.synchronize()
        with DRIVER:
            self.kept.clear()
            self._views.clear()
            self._device.clear()
            self._slabs.clear()
            self.most_needed.clear()
            self._pinned.clear()
        self._results.clear()


def _device_bytes(n_bytes: int) -> Any:
    """Allocate an array of bytes (uint8) on the current device."""
    with device_memory(f"a buffer of {n_bytes / 1e6:.1f} MB"):
        return first_items(cuda.device_array(n_bytes, np.uint8), n_bytes, np.dtype(np.uint8))


def _aligned(n_bytes: int) -> int:
    """Round up to 256 bytes, the alignment of the fastest copies."""
    return (n_bytes + 255) & ~255


def first_items(held: Any, n: int, dtype: np.dtype) -> Any:
    """Return the first `n` items of a device array of bytes, as items of a type."""
    if SIMULATED:
        return held[: whole_words(n * dtype.itemsize)].view(dtype)[:n]
    return DeviceArray(held, held.device_ctypes_pointer.value, (n,), dtype)
