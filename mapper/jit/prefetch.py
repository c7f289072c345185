"""Asking for memory before it is needed, for compiled loops that know where they will read.

A read's place in a genome is in no cache: the first access to it waits for memory, as long as
the rest of a record takes. Asked for some records ahead, it is there in time. It changes no
result; where the JIT is off, it does nothing.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload


def prefetch(array, item):
    """Ask for the cache line of an item of a C-contiguous array, counted flat, for reading."""


@intrinsic
def _prefetch(typingctx, array, item):
    def codegen(context, builder, signature, args):
        made = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.bitcast(builder.gep(made.data, [args[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind)
        # To be read (0), kept in all caches (3), data (1).
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(array, types.int64), codegen


@overload(prefetch, inline="always")
def _prefetch_compiled(array, item):
    return lambda array, item: _prefetch(array, item)
