"""SIMD vectors of 64 bytes, and unaligned loads, stores and copies, for compiled code.

LLVM compiles the vectors to the instructions of the processor. They are for loops that the
compiler does not vectorise well: loops that combine neighbouring bytes, that end at the first
byte of some kind, or that process the bytes after the last whole vector one by one.

Numbers are loaded and stored as a whole. Byte by byte, every access costs some instructions,
because an index may be negative, and the compiler does not see that four bytes are one number. Each
compiled function has a plain one, which defines it and runs where the JIT is off.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

from mapper.jit.bounds import check_items

VECTOR = 64
"""Bytes of a vector."""

BYTE, WORD = ir.IntType(8), ir.IntType(64)
BYTES = ir.VectorType(BYTE, VECTOR)

Emit = Callable[..., Any]


def constant(vector: Any, value: int) -> Any:
    """Return a vector with the same value everywhere."""
    return ir.Constant(vector, [value] * vector.count)


def everywhere(builder: Any, number: Any, vector: Any) -> Any:
    """Return a vector with a number in each item."""
    nothing = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, nothing, lanes)


def load(builder: Any, place: Any, vector: Any) -> Any:
    """Return the vector at an address of bytes, of any alignment."""
    return builder.load(builder.bitcast(place, vector.as_pointer()), align=1)


def store(builder: Any, place: Any, value: Any) -> None:
    """Write a vector to an address of bytes."""
    builder.store(value, builder.bitcast(place, value.type.as_pointer()), align=1)


def any_bits(builder: Any, run: Any) -> Any:
    """Return the bits that are set in any byte of a run, as int64."""
    name, kind = f"llvm.vector.reduce.or.v{VECTOR}i8", ir.FunctionType(BYTE, [BYTES])
    function = builder.module.declare_intrinsic(name, (), kind)
    return builder.zext(builder.call(function, [run]), WORD)


def before_first(builder: Any, are_found: Any) -> Any:
    """Return the number of items of a vector of bits before the first set one, as int64."""
    return builder.cttz(builder.bitcast(are_found, WORD), ir.Constant(ir.IntType(1), 0))


def address(context: Any, builder: Any, array_type: Any, array: Any, item: Any, n: Any) -> Any:
    """Return the address of the first of `n` items of an array, which are accessed."""
    check_items(context, builder, array_type, array, item, n)
    made = context.make_array(array_type)(context, builder, array)
    return builder.gep(made.data, [item])


def check_bytes(*array_types: Any) -> None:
    """Raise TypingError unless arrays are contiguous and of bytes."""
    for array_type in array_types:
        if array_type.dtype != types.uint8 or array_type.layout != "C":
            raise TypingError(f"a run of bytes in {array_type}")


def reading(emit: Emit) -> Any:
    """Return an intrinsic that compiled code calls as ``f(source, at)``.

    ``emit(builder, source)`` writes its instructions and returns an int64; `source` is the
    address of item `at` of a C-contiguous array of uint8, from which it reads VECTOR bytes.
    """

    def function(typingctx, source, at):
        check_bytes(source)

        def codegen(context, builder, signature, args):
            return emit(builder, address(context, builder, signature.args[0], *args, VECTOR))

        return types.int64(source, types.int64), codegen

    return intrinsic(function)


def moving(emit: Emit, read: int = VECTOR, written: int = VECTOR) -> Any:
    """Return an intrinsic that compiled code calls as ``f(source, at, target, to)``.

    ``emit(builder, source, target)`` gets two addresses, from which it accesses so many bytes; see
    :func:`reading`.
    """

    def function(typingctx, source, at, target, to):
        check_bytes(source, target)

        def codegen(context, builder, signature, args):
            places = [
                address(context, builder, signature.args[i], args[i], args[i + 1], n)
                for i, n in ((0, read), (2, written))
            ]
            return emit(builder, *places)

        return types.int64(source, types.int64, target, types.int64), codegen

    return intrinsic(function)


def put16(out, at, value):
    """Write the lowest 16 bits of a number at `at` >= 0, little-endian."""
    for i in range(2):
        out[at + i] = (value >> (8 * i)) & 0xFF


def put32(out, at, value):
    """Write the lowest 32 bits of a number at `at` >= 0, little-endian."""
    for i in range(4):
        out[at + i] = (value >> (8 * i)) & 0xFF


def get16(data, at):
    """Return the unsigned 16-bit number at `at` >= 0, little-endian."""
    return np.int64(data[at]) | np.int64(data[at + 1]) << 8


def get32(data, at):
    """Return the signed 32-bit number at `at` >= 0, little-endian."""
    value = np.int64(0)
    for i in range(4):
        value |= np.int64(data[at + i]) << (8 * i)
    return value - ((value >> 31) << 32)


def copy(source, start, target, at, n):
    """Copy ``source[start:start + n]`` to item `at` of another array; all three are >= 0."""
    target[at : at + n] = source[start : start + n]


def copy_from_address(address, target, at, n):
    """Copy `n` bytes at an address, of memory that the caller keeps, to `at` in an array."""
    ctypes.memmove(target.ctypes.data + int(at), int(address), int(n))


def bytes_with(data, at, mask):
    """Return a uint64 whose bit i is set where ``data[at + i]`` has a bit of `mask`."""
    word = 0
    for i in range(VECTOR):
        word |= int((int(data[at + i]) & int(mask)) != 0) << i
    return np.uint64(word)


SCANNED = 32
"""Items that :func:`falling_maximum` takes a multiple of."""


def falling_maximum(values, start, n, before, fall):
    """Compute the maximum of each item and those before it, which fall by `fall` an item.

    Parameters
    ----------
    values
        int16 or int32; `n` items from `start` on are replaced, `n` a multiple of SCANNED.
    before
        The value before the first item. `fall` is at most 1/64 of the greatest number of the type,
        and no value is below half of its lowest.
    """
    for i in range(start, start + n):
        before = max(before - fall, values[i])
        values[i] = before


def _lowest_first(builder: Any, number: Any) -> Any:
    """Convert a number between native and little-endian byte order."""
    return builder.bswap(number) if sys.byteorder == "big" else number


def _putting(bits: int) -> Any:
    kind = ir.IntType(bits)

    @intrinsic
    def put(typingctx, out, at, value):
        check_bytes(out)

        def codegen(context, builder, signature, args):
            place = address(context, builder, signature.args[0], *args[:2], bits // 8)
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
            place = address(context, builder, signature.args[0], *args, bits // 8)
            number = builder.load(builder.bitcast(place, kind.as_pointer()), align=1)
            extended = builder.sext if is_signed else builder.zext
            return extended(_lowest_first(builder, number), WORD)

        return types.int64(data, types.int64), codegen

    return get


@intrinsic
def _copy(typingctx, source, start, target, at, n):
    check_bytes(source, target)

    def codegen(context, builder, signature, args):
        a, b = (
            address(context, builder, signature.args[i], args[i], args[i + 1], args[4])
            for i in (0, 2)
        )
        cgutils.raw_memcpy(builder, b, a, args[4], 1)
        return context.get_dummy_value()

    integers = types.int64, types.int64
    return types.none(source, types.int64, target, *integers), codegen


@intrinsic
def _copy_from_address(typingctx, source, target, at, n):
    check_bytes(target)

    def codegen(context, builder, signature, args):
        b = address(context, builder, signature.args[1], args[1], args[2], args[3])
        a = builder.inttoptr(args[0], BYTE.as_pointer())
        cgutils.raw_memcpy(builder, b, a, args[3], 1)
        return context.get_dummy_value()

    return types.none(types.int64, target, types.int64, types.int64), codegen


@intrinsic
def _bytes_with(typingctx, data, at, mask):
    check_bytes(data)

    def codegen(context, builder, signature, args):
        place = address(context, builder, signature.args[0], *args[:2], VECTOR)
        vector = load(builder, place, BYTES)
        mask = everywhere(builder, builder.trunc(args[2], BYTE), BYTES)
        is_set = builder.icmp_unsigned("!=", builder.and_(vector, mask), constant(BYTES, 0))
        return builder.bitcast(is_set, WORD)

    return types.uint64(data, types.int64, types.int64), codegen


@intrinsic
def _falling_maximum_of_block(typingctx, values, at, before, fall):
    """Process a vector of 32 bytes; return the last value."""
    if values.dtype not in (types.int16, types.int32) or values.layout != "C":
        raise TypingError(f"a falling maximum of {values}")
    kind = ir.IntType(values.dtype.bitwidth)
    n = 256 // kind.width
    vector = ir.VectorType(kind, n)
    lanes = ir.VectorType(ir.IntType(32), n)

    def codegen(context, builder, signature, args):
        def greater(a, b):
            return builder.select(builder.icmp_signed(">", a, b), a, b)

        place = address(context, builder, signature.args[0], *args[:2], n)
        place = builder.bitcast(place, BYTE.as_pointer())
        found = load(builder, place, vector)
        low = constant(vector, -(1 << (kind.width - 2)))
        falls = each = everywhere(builder, args[3], vector)
        distance = 1
        while distance < n:
            moves = [n] * distance + list(range(n - distance))
            moved = builder.shuffle_vector(found, low, ir.Constant(lanes, moves))
            found = greater(found, builder.sub(moved, falls))
            falls = builder.add(falls, falls)
            distance *= 2
        # From block to block only one number is passed on, by two instructions.
        last = builder.extract_element(found, ir.Constant(ir.IntType(32), n - 1))
        passed = builder.sub(args[2], builder.mul(args[3], ir.Constant(kind, n)))
        steps = builder.mul(each, ir.Constant(vector, list(range(1, n + 1))))
        found = greater(found, builder.sub(everywhere(builder, args[2], vector), steps))
        store(builder, place, found)
        return greater(last, passed)

    return values.dtype(values, types.int64, values.dtype, values.dtype), codegen


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


@overload(copy_from_address, inline="always")
def _copy_from_address_compiled(address, target, at, n):
    return lambda address, target, at, n: _copy_from_address(address, target, at, n)


@overload(bytes_with, inline="always")
def _bytes_with_compiled(data, at, mask):
    return lambda data, at, mask: _bytes_with(data, at, mask)


@overload(falling_maximum, inline="always")
def _falling_maximum_compiled(values, start, n, before, fall):
    lanes = 256 // values.dtype.bitwidth
    number = np.int16 if values.dtype == types.int16 else np.int32

    def falling(values, start, n, before, fall):
        before, fall = number(before), number(fall)
        for at in range(start, start + n, lanes):
            before = _falling_maximum_of_block(values, at, before, fall)

    return falling
