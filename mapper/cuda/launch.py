"""Launches and copies on a stream that are recorded first, then issued together by compiled code.

Through numba-cuda each launch or copy takes ten microseconds of Python and more, twice that if
other threads keep all cores busy: more than the driver needs, and for some hundred of them as
long as the device's work. Here compiled code calls the driver's functions by their addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from mapper.cuda import api
from mapper.cuda.api import (
    SHARED_BYTES,
    SIMULATED,
    Kernel,
    cuda,
    cuda_driver,
    driver_functions,
    launch_loaded,
    refused,
)
from mapper.cuda.arguments import as_words, describe, table_of
from mapper.cuda.driver_calls import (
    ATTRIBUTE,
    COPY_IN,
    COPY_OUT,
    FUNCTIONS,
    LAUNCH,
    QUERY,
    RECORD,
    WAIT,
    ask_pointer,
    call_copy,
    call_launch,
    call_with_one,
    call_with_two,
)
from mapper.cuda.memory import Workspace, copy_in_at, copy_out, queue_in
from mapper.jit.accelerate import driver


class BoundKernel:
    """A kernel with its arguments, for launches that differ in integers only.

    Arguments are described to the driver once (:mod:`mapper.cuda.arguments`); integers at the
    top level can be replaced at each launch.

    Parameters
    ----------
    args
        As for :meth:`Kernel.launch`, of the current device; arrays must stay allocated.
    """

    def __init__(self, kernel: Kernel, stream: Any, *args: Any, shared_bytes: int = 0) -> None:
        self._kernel, self._stream, self._shared_bytes = kernel, stream, shared_bytes
        self._args = list(args)
        if SIMULATED:
            return
        kinds: list[Any] = []
        words: list[int] = []
        self._place_of: dict[int, int] = {}
        for place, arg in enumerate(args):
            if isinstance(arg, Integral):
                self._place_of[place] = len(words)
            describe(arg, kinds, words)
        self._function = kernel.function_for(kinds, args)
        if shared_bytes > SHARED_BYTES:
            cuda_driver.driver.cuKernelSetAttribute(
                cuda_driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                shared_bytes,
                cuda_driver.binding.CUkernel(self._function.handle),
                cuda.current_context().device.id,
            )
        self._words = as_words(words)
        self._table = table_of(self._words)
        self._stream_handle = int(cuda_driver._stream_handle(stream))

    def launch(self, n_blocks: int, numbers: Mapping[int, int]) -> None:
        """Launch `n_blocks` blocks; `numbers` permanently replace arguments, by their position."""
        if SIMULATED:
            for place, number in numbers.items():
                self._args[place] = number
            self._kernel.launch_blocks(
                n_blocks, self._stream, *self._args, shared_bytes=self._shared_bytes
            )
            return
        self._replace(numbers)
        launch_loaded(
            self._function, n_blocks, self._kernel.block, self._stream_handle,
            self._shared_bytes, self._table,
        )  # fmt: skip

    def noted(self, n_blocks: int, numbers: Mapping[int, int]) -> tuple[int, ...]:
        """Return a launch for later: function, blocks, threads, shared bytes, table of arguments.

        There is one table: launch before the next replacement of numbers.

        Raises
        ------
        TypeError
            For a kernel whose blocks wait for each other: it is launched alone.
        """
        if self._function.is_cooperative:
            raise TypeError("kernels whose blocks wait for each other are launched alone")
        self._replace(numbers)
        table = ctypes.addressof(self._table)
        return self._function.handle, n_blocks, self._kernel.block, self._shared_bytes, table

    def _replace(self, numbers: Mapping[int, int]) -> None:
        for place, number in numbers.items():
            self._words[self._place_of[place]] = number


_COLUMNS = 6

_MOST = 32
"""Most recorded calls; at this number they are issued."""

_NOT_READY = 600  # of CUresult
_MEMORY_TYPE, _OF_HOST = 2, 1  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_HOST


class Calls:
    """Recorded calls for one stream, used by one thread, in the device context of its creation.

    Their arguments must not change until the calls are issued, and must exist until they are
    done. In the simulator calls are issued at once.

    Parameters
    ----------
    done
        The event for :meth:`wait`; None if that is not called.
    """

    def __init__(self, stream: Any, done: Any = None) -> None:
        self.stream = stream
        self._done = done
        self._rows = np.zeros((_MOST, _COLUMNS), np.int64)
        self._n = 0
        self._launched: list[BoundKernel] = []
        if not SIMULATED:
            self._functions = driver_functions()
            self._handle = int(api.cuda_driver._stream_handle(stream))

    def launch(self, bound: BoundKernel, n_blocks: int, numbers: Mapping[int, int]) -> None:
        """Record a launch, as of :meth:`BoundKernel.launch`."""
        if SIMULATED:
            bound.launch(n_blocks, numbers)
            return
        if any(bound is other for other in self._launched):
            self.make()  # its arguments have one table
        row = bound.noted(n_blocks, numbers)
        self._launched.append(bound)
        self._note(LAUNCH, *row)

    def copy_in(self, array: Any, at: int, host: np.ndarray) -> None:
        """Record the copy of a 1-D host array to a device array of its type, from item `at` on.

        The host array must exist until the copy is done; a copy of page-locked memory does not
        block.
        """
        if len(host) == 0:
            return
        if SIMULATED:
            copy_in_at(array, at, host, self.stream)
        else:
            to = array.address + at * host.itemsize
            self._note(COPY_IN, to, host.ctypes.data, host.nbytes, 0, 0)

    def copy_out(self, host: np.ndarray, array: Any) -> None:
        """Record the copy of a device array's first items to a 1-D host array of its type."""
        if len(host) == 0:
            return
        if SIMULATED:
            copy_out(host, array, len(host), self.stream)
        else:
            self._note(COPY_OUT, host.ctypes.data, array.address, host.nbytes, 0, 0)

    def _note(self, *row: int) -> None:
        if self._n == _MOST:
            self.make()
        self._rows[self._n] = row
        self._n += 1

    def forget(self) -> None:
        """Drop the recorded calls, after an error."""
        self._n = 0
        self._launched.clear()

    def make(self) -> None:
        """Issue all recorded calls.

        Raises
        ------
        DeviceError
            If the driver refuses one; the calls after it are dropped.
        """
        if self._n == 0:
            return
        n, self._n = self._n, 0
        self._launched.clear()
        made, error = make_calls(self._rows, n, self._functions, self._handle)
        if error:
            raise refused(FUNCTIONS[self._rows[made, 0]], error)

    def wait(self) -> None:
        """Issue all recorded calls, and wait until all work on the stream is done.

        A thread that does both by Python waits for the GIL after each call of the driver, where
        sixteen threads do for a millisecond and more.

        Raises
        ------
        DeviceError
            If the driver refuses one, or work on the stream has failed.
        """
        if SIMULATED:
            return
        n, self._n = self._n, 0
        self._launched.clear()
        made, error = make_calls_and_wait(
            self._rows, n, self._functions, self._handle, int(self._done.handle)
        )
        if error:
            kind = self._rows[made, 0] if made < n else (RECORD, WAIT)[made - n]
            raise refused(FUNCTIONS[kind], error)

    def is_done(self) -> bool:
        """Return True if all work on the stream is done.

        Raises
        ------
        DeviceError
            If any work on the stream has failed.
        """
        if SIMULATED:
            return True
        error = ask_stream(self._functions, self._handle)
        if error not in (0, _NOT_READY):
            raise refused(FUNCTIONS[QUERY], error)
        return error == 0


@driver
def _find_page_locked(functions, spans, least, word, found):
    for i in range(len(spans)):
        first, n_bytes = spans[i]
        found[i] = n_bytes >= least
        for address in (first, first + max(n_bytes - 1, 0)):
            if found[i]:
                error = ask_pointer(functions[ATTRIBUTE], word.ctypes.data, _MEMORY_TYPE, address)
                found[i] = error == 0 and word[0] == _OF_HOST


def find_page_locked(spans: np.ndarray, least: int, found: np.ndarray) -> None:
    """Find which pieces of memory are page-locked: a device copies them without the host's help.

    The driver is asked about both ends of each, so it does not matter who locked them.

    Parameters
    ----------
    spans
        int64 (n, 2): address and bytes of each.
    least
        Bytes of the smallest that are looked at; smaller ones count as ordinary.
    found
        To be written, bool. All False in the simulator.
    """
    if SIMULATED:
        found[:] = False
    else:
        _find_page_locked(driver_functions(), spans, least, np.zeros(1, np.uint32), found)


def is_page_locked(arrays: Sequence[np.ndarray]) -> bool:
    """Return True if all arrays are contiguous and page-locked, see :func:`find_page_locked`."""
    spans = np.array([(array.ctypes.data, array.nbytes) for array in arrays], np.int64)
    found = np.zeros(len(spans), np.bool_)
    find_page_locked(spans.reshape(-1, 2), 0, found)
    return bool(found.all()) and all(array.flags.c_contiguous for array in arrays)


def upload_in_place(space: Workspace, name: str, columns: Sequence[np.ndarray]) -> Any:
    """Do as :meth:`Workspace.upload_joined`, but let the device fetch what is page-locked itself.

    The columns must neither change nor be given back until the workspace synchronizes.
    """
    if not is_page_locked(columns):
        return space.upload_joined(name, columns)
    array = space.device(name, sum(len(column) for column in columns), columns[0].dtype)
    at = 0
    for column in columns:
        queue_in(array, at, column, space.stream)
        at += len(column)
    return array


@driver
def make_calls(rows, n, functions, stream):
    """Issue the calls of rows, in order, until the driver refuses one.

    Parameters
    ----------
    rows
        int64 (at least n, 6): kind of call, then the tuple of :meth:`BoundKernel.noted`, or the
        target and source address and the number of bytes.
    functions
        int64: addresses of the driver's functions, in the order of kinds.

    Returns
    -------
    made, error
        Number of calls issued, and the driver's error of the next; n and 0 without an error.
    """
    for i in range(n):
        kind = rows[i, 0]
        address = functions[kind]
        if kind == LAUNCH:
            error = call_launch(
                address, rows[i, 1], rows[i, 2], rows[i, 3], rows[i, 4], rows[i, 5], stream
            )
        else:
            error = call_copy(address, rows[i, 1], rows[i, 2], rows[i, 3], stream)
        if error != 0:
            return i, error
    return n, np.int32(0)


@driver
def make_calls_and_wait(rows, n, functions, stream, event):
    """Issue calls as :func:`make_calls`, and wait until all work on the stream is done.

    Returns
    -------
    made, error
        As there; `made` is n if the event could not be recorded, n + 1 if waiting failed.
    """
    made, error = make_calls(rows, n, functions, stream)
    if error == 0:
        error = call_with_two(functions[RECORD], event, stream)
    if error == 0:
        made, error = n + 1, call_with_one(functions[WAIT], event)
    return made, error


@driver
def ask_stream(functions, stream):
    """Return the driver's status of a stream: 0 if all work is done."""
    return call_with_one(functions[QUERY], stream)
