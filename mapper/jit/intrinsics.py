"""Population count, zero counts and bit order of 64-bit words, for compiled cores.

The Python bodies are the meaning (and serve where the JIT is off); compiled code uses
one machine instruction each, or two, on the CPU and in CUDA kernels alike: both targets take
the overloads below, whose LLVM intrinsics their compilers know.
"""

from __future__ import annotations

import numpy as np
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


def trailing_zeros_32(word):
    """Index of the lowest set bit of a uint32; 32 for 0."""
    word = int(word)
    return (word & -word).bit_length() - 1 if word else 32


def leading_zeros(word):
    """63 minus the index of the highest set bit of a uint64; 64 for 0."""
    return 64 - int(word).bit_length()


def reversed_bits(word):
    """Bit i of a uint64 moved to bit 63 - i, as uint64."""
    return np.uint64(int(f"{int(word):064b}"[::-1], 2))


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
def _cttz_32(typingctx, word):
    def codegen(context, builder, signature, args):
        # As CUDA counts trailing zeros, but without a choice for the word 0.
        below = builder.and_(builder.sub(args[0], args[0].type(1)), builder.not_(args[0]))
        return builder.ctpop(below)

    return types.int32(types.uint32), codegen


@intrinsic
def _ctlz(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def _bitreverse(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.bitreverse(args[0])

    return types.uint64(types.uint64), codegen


@overload(popcount, inline="always")
def _popcount_compiled(word):
    return lambda word: _ctpop(word)


@overload(trailing_zeros, inline="always")
def _trailing_zeros_compiled(word):
    return lambda word: _cttz(word)


@overload(trailing_zeros_32, inline="always")
def _trailing_zeros_32_compiled(word):
    return lambda word: _cttz_32(word)


@overload(leading_zeros, inline="always")
def _leading_zeros_compiled(word):
    return lambda word: _ctlz(word)


@overload(reversed_bits, inline="always")
def _reversed_bits_compiled(word):
    return lambda word: _bitreverse(word)
