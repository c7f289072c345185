"""Population count and zero counts of 64-bit words, for compiled cores.

The Python bodies are the meaning (and serve where the JIT is off); compiled code uses
one machine instruction each. A device supplies its own overloads of the same names.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload


def popcount(word):
    """Number of set bits of a uint64, as int64."""
    return int(word).bit_count()


def trailing_zeros(word):
    """Index of the lowest set bit of a uint64; 64 for 0."""
    word = int(word)
    return (word & -word).bit_length() - 1 if word else 64


def leading_zeros(word):
    """63 minus the index of the highest set bit of a uint64; 64 for 0."""
    return 64 - int(word).bit_length()


@intrinsic
def _ctpop(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@intrinsic
def _cttz(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def _ctlz(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@overload(popcount, inline="always")
def _popcount_compiled(word):
    return lambda word: _ctpop(word)


@overload(trailing_zeros, inline="always")
def _trailing_zeros_compiled(word):
    return lambda word: _cttz(word)


@overload(leading_zeros, inline="always")
def _leading_zeros_compiled(word):
    return lambda word: _ctlz(word)
