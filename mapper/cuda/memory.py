"""What a stream needs for a batch, on the device and page-locked, kept from batch to batch.

An allocation makes a whole device wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mapper.cuda.api import DRIVER, SIMULATED, cuda, sleeping_event
from mapper.cuda.arguments import DeviceArray
from mapper.cuda.copies import copy_in, copy_out
from mapper.cuda.memory_part import device_memory, whole_words, with_room
from mapper.cuda.page_locked import Slabs, pinned_bytes


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
