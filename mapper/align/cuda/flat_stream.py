"""Writing memory that the writer will not read again, past the caches.

What is staged for a device is written once, and read by the device. An ordinary store loads the
line from memory first, and later writes it back; of all that staging moves that is a quarter. Lines
of 64 bytes that are stored whole, and marked so, go straight to memory.

The Python bodies are the meaning, for where the JIT is off.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

LINE = 64
"""Bytes; addresses that are stored to must be multiples of it."""


def stream_line(source, source_byte, target, target_byte):
    """Copy LINE bytes of one array (uint8 or uint64, at any byte) to a line of another."""
    to = target.view(np.uint8)
    to[target_byte : target_byte + LINE] = source.view(np.uint8)[source_byte : source_byte + LINE]


def streams_done():
    """Have all lines that were stored seen before what is written next."""


def is_streamable(array: np.ndarray) -> bool:
    """Say whether all rows of an array begin at a line."""
    return array.ctypes.data % LINE == 0 and all(
        stride % LINE == 0 for stride in array.strides[:-1]
    )


def past_caches(builder, stored):
    """Mark a store instruction: its line goes straight to memory."""
    one = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
    stored.set_metadata("nontemporal", one)


@intrinsic
def _stream(typingctx, source, source_byte, target, target_byte):
    def codegen(context, builder, signature, args):
        line = ir.VectorType(ir.IntType(32), LINE // 4)

        def address(i):
            array = context.make_array(signature.args[i])(context, builder, args[i])
            start = builder.bitcast(array.data, cgutils.voidptr_t)
            return builder.bitcast(builder.gep(start, [args[i + 1]]), line.as_pointer())

        stored = builder.store(builder.load(address(0), align=1), address(2), align=LINE)
        past_caches(builder, stored)
        return context.get_dummy_value()

    return types.none(source, types.int64, target, types.int64), codegen


@intrinsic
def _fence(typingctx):
    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), codegen


@overload(stream_line, inline="always")
def _stream_line_compiled(source, source_byte, target, target_byte):
    return lambda source, source_byte, target, target_byte: _stream(
        source, source_byte, target, target_byte
    )


@overload(streams_done, inline="always")
def _streams_done_compiled():
    return lambda: _fence()
