"""Operations on runs of 64 bytes, as vectors of LLVM: what all users of such runs share.

LLVM makes them of whatever instructions the processor has. They are for loops that the compiler
does not make good vector code of by itself: where neighbouring bytes meet, where a loop ends at
the first byte of some kind, and where what is left after whole vectors is done byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

RUN = 64
"""Bytes."""

BYTE, WORD = ir.IntType(8), ir.IntType(64)
BYTES = ir.VectorType(BYTE, RUN)

Emit = Callable[..., Any]


def constant(vector: Any, value: int) -> Any:
    """Return a vector with the same value everywhere."""
    return ir.Constant(vector, [value] * vector.count)


def load(builder: Any, place: Any, vector: Any) -> Any:
    """Return the vector at an address of bytes, which need not be a multiple of anything."""
    return builder.load(builder.bitcast(place, vector.as_pointer()), align=1)


def store(builder: Any, place: Any, value: Any) -> None:
    """Write a vector to an address of bytes."""
    builder.store(value, builder.bitcast(place, value.type.as_pointer()), align=1)


def any_bits(builder: Any, run: Any) -> Any:
    """Return the bits that are set in any byte of a run, as int64."""
    name, kind = f"llvm.vector.reduce.or.v{RUN}i8", ir.FunctionType(BYTE, [BYTES])
    function = builder.module.declare_intrinsic(name, (), kind)
    return builder.zext(builder.call(function, [run]), WORD)


def before_first(builder: Any, are_found: Any) -> Any:
    """Return how many items of a vector of bits come before the first that is set, as int64."""
    return builder.cttz(builder.bitcast(are_found, WORD), ir.Constant(ir.IntType(1), 0))


def address(context: Any, builder: Any, array_type: Any, array: Any, item: Any) -> Any:
    made = context.make_array(array_type)(context, builder, array)
    return builder.gep(made.data, [item])


def check_bytes(*array_types: Any) -> None:
    """Refuse to compile for anything but bytes that lie next to each other."""
    for array_type in array_types:
        if array_type.dtype != types.uint8 or array_type.layout != "C":
            raise TypingError(f"a run of bytes in {array_type}")


def reading(emit: Emit) -> Any:
    """Return what compiled code calls as ``f(source, at)``.

    ``emit(builder, source)`` writes its instructions and returns an int64; `source` is the
    address of an item of a C-contiguous array of uint8.
    """

    def function(typingctx, source, at):
        check_bytes(source)

        def codegen(context, builder, signature, args):
            return emit(builder, address(context, builder, signature.args[0], *args))

        return types.int64(source, types.int64), codegen

    return intrinsic(function)


def moving(emit: Emit) -> Any:
    """Return what compiled code calls as ``f(source, at, target, to)``; see :func:`reading`.

    ``emit(builder, source, target)`` has two such addresses.
    """

    def function(typingctx, source, at, target, to):
        check_bytes(source, target)

        def codegen(context, builder, signature, args):
            places = [
                address(context, builder, signature.args[i], args[i], args[i + 1]) for i in (0, 2)
            ]
            return emit(builder, *places)

        return types.int64(source, types.int64, target, types.int64), codegen

    return intrinsic(function)
