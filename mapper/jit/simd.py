"""Numbers and strings of bytes moved as a whole by compiled code, not byte by byte.

An index of an array may be negative, counted from its end, so every single byte that is written
costs some instructions, and the compiler does not see that four of them are one number. Beside
each compiled function stands the plain one: it is the meaning, and what runs where the JIT is off.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from mapper.jit.vectors import WORD, address, check_bytes


def put16(out, at, value):
    """Write the lowest 16 bits of a number at `at`, not negative, lowest byte first."""
    for i in range(2):
        out[at + i] = (value >> (8 * i)) & 0xFF


def put32(out, at, value):
    """Write the lowest 32 bits of a number at `at`, not negative, lowest byte first."""
    for i in range(4):
        out[at + i] = (value >> (8 * i)) & 0xFF


def get16(data, at):
    """Return the unsigned 16-bit number at `at`, not negative, lowest byte first."""
    return np.int64(data[at]) | np.int64(data[at + 1]) << 8


def get32(data, at):
    """Return the signed 32-bit number at `at`, not negative, lowest byte first."""
    value = np.int64(0)
    for i in range(4):
        value |= np.int64(data[at + i]) << (8 * i)
    return value - ((value >> 31) << 32)


def copy(source, start, target, at, n):
    """Copy ``source[start:start + n]`` to another array, at `at`; none of the three is negative."""
    target[at : at + n] = source[start : start + n]


def _lowest_first(builder: Any, number: Any) -> Any:
    """Turn a number as the machine has it into one with its lowest byte first, or back."""
    return builder.bswap(number) if sys.byteorder == "big" else number


def _putting(bits: int) -> Any:
    kind = ir.IntType(bits)

    @intrinsic
    def put(typingctx, out, at, value):
        check_bytes(out)

        def codegen(context, builder, signature, args):
            place = address(context, builder, signature.args[0], args[0], args[1])
            number = _lowest_first(builder, builder.trunc(args[2], kind))
            builder.store(number, builder.bitcast(place, kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.none(out, types.int64, types.int64), codegen

    return put


def _getting(bits: int, is_signed: bool) -> Any:
    kind = ir.IntType(bits)

    @intrinsic
    def get(typingctx, data, at):
        check_bytes(data)

        def codegen(context, builder, signature, args):
            place = address(context, builder, signature.args[0], args[0], args[1])
            number = builder.load(builder.bitcast(place, kind.as_pointer()), align=1)
            extended = builder.sext if is_signed else builder.zext
            return extended(_lowest_first(builder, number), WORD)

        return types.int64(data, types.int64), codegen

    return get


@intrinsic
def _copy(typingctx, source, start, target, at, n):
    check_bytes(source, target)

    def codegen(context, builder, signature, args):
        a, b = (address(context, builder, signature.args[i], args[i], args[i + 1]) for i in (0, 2))
        cgutils.raw_memcpy(builder, b, a, args[4], 1)
        return context.get_dummy_value()

    integers = types.int64, types.int64
    return types.none(source, types.int64, target, *integers), codegen


_put16, _put32 = _putting(16), _putting(32)
_get16, _get32 = _getting(16, False), _getting(32, True)


@overload(put16, inline="always")
def _put16_compiled(out, at, value):
    return lambda out, at, value: _put16(out, at, value)


@overload(put32, inline="always")
def _put32_compiled(out, at, value):
    return lambda out, at, value: _put32(out, at, value)


@overload(get16, inline="always")
def _get16_compiled(data, at):
    return lambda data, at: _get16(data, at)


@overload(get32, inline="always")
def _get32_compiled(data, at):
    return lambda data, at: _get32(data, at)


@overload(copy, inline="always")
def _copy_compiled(source, start, target, at, n):
    return lambda source, start, target, at, n: _copy(source, start, target, at, n)
