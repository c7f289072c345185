"""The CUDA driver's functions for compiled code, which calls them by their addresses.

Through numba-cuda a call takes five to ten microseconds of Python, and gives the GIL up for the one
or two in which the driver queues a launch or a copy: where other threads want the GIL, the caller
waits for it far longer than it had freed it. The functions here that only queue work keep the GIL.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mapper.jit.accelerate import brief, driver

LAUNCH, COPY_IN, COPY_OUT, QUERY, RECORD, WAIT, ATTRIBUTE = range(7)
"""Functions of the driver by their numbers."""

FUNCTIONS = (
    "cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamQuery",
    "cuEventRecord", "cuEventSynchronize", "cuPointerGetAttribute",
)  # fmt: skip
"""Their names."""


def addresses_in(library: Any) -> np.ndarray:
    """Return the addresses of the functions (int64) in a library that ctypes has loaded."""
    found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in FUNCTIONS]
    return np.array(found, np.int64)


# --- for compiled code: the address of a function, then its arguments; the driver's error ---

_WORD, _NUMBER = ir.IntType(64), ir.IntType(32)


def _call(builder: Any, address: Any, kinds: list[Any], arguments: list[Any]) -> Any:
    """Call a C function by its address; integers are truncated to its parameter types."""
    function = ir.FunctionType(_NUMBER, kinds).as_pointer()
    given = [
        argument if kind is _WORD else builder.trunc(argument, kind)
        for argument, kind in zip(arguments, kinds, strict=True)
    ]
    return builder.call(builder.inttoptr(address, function), given)


@intrinsic
def call_launch(typingctx, address, function, n_blocks, block, shared_bytes, table, stream):
    """Launch a grid of one dimension, without further options."""
    numbers = [_NUMBER] * 7
    kinds = [_WORD, *numbers, _WORD, _WORD, _WORD]

    def codegen(context, builder, signature, args):
        address, function, n_blocks, block, shared_bytes, table, stream = args
        one, none = _WORD(1), _WORD(0)
        given = [function, n_blocks, one, one, block, one, one, shared_bytes, stream, table, none]
        return _call(builder, address, kinds, given)

    return types.int32(*[types.int64] * 7), codegen


@intrinsic
def call_copy(typingctx, address, to, source, n_bytes, stream):
    """Queue a copy."""

    def codegen(context, builder, signature, args):
        return _call(builder, args[0], [_WORD] * 4, list(args[1:]))

    return types.int32(*[types.int64] * 5), codegen


@intrinsic
def call_with_one(typingctx, address, handle):
    """Call a function of a stream or an event."""

    def codegen(context, builder, signature, args):
        return _call(builder, args[0], [_WORD], [args[1]])

    return types.int32(types.int64, types.int64), codegen


@intrinsic
def call_with_two(typingctx, address, event, stream):
    """Call a function of an event and a stream."""

    def codegen(context, builder, signature, args):
        return _call(builder, args[0], [_WORD] * 2, list(args[1:]))

    return types.int32(*[types.int64] * 3), codegen


@intrinsic
def ask_pointer(typingctx, address, found, attribute, pointer):
    """Ask for an attribute of memory."""

    def codegen(context, builder, signature, args):
        return _call(builder, args[0], [_WORD, _NUMBER, _WORD], list(args[1:]))

    return types.int32(*[types.int64] * 4), codegen


# --- for Python: the driver's addresses, then the arguments; the driver's error, 0 for none ---


@brief
def queue_launch(functions, function, n_blocks, block, shared_bytes, table, stream):
    """Queue a launch; `table` is the address of the addresses of its arguments."""
    return call_launch(functions[LAUNCH], function, n_blocks, block, shared_bytes, table, stream)


@brief
def queue_copy(functions, kind, to, source, n_bytes, stream):
    """Queue a copy of page-locked memory, COPY_IN or COPY_OUT: of other memory it would wait."""
    return call_copy(functions[kind], to, source, n_bytes, stream)


@driver
def wait_for_stream(functions, event, stream):
    """Wait, without the GIL, until all that is queued on a stream is done, by an event for that."""
    error = call_with_two(functions[RECORD], event, stream)
    if error == 0:
        error = call_with_one(functions[WAIT], event)
    return error
