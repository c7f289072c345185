"""Two 16-bit numbers in a 32-bit register: the instructions of the matrix kernels.

Each function of :mod:`mapper.align.matrix.cells` on ``TwoCells`` is one instruction on compute
capability 9.0 (``HALVES_CAPABILITY``) and above (``VIADDMNMX``, ``VIMNMX3``, ``PRMT``). Numba has
no functions for them: they are written in PTX here.

Functions are selected by the type of the costs, as in :mod:`mapper.cuda.warp`. The Python bodies
here define the functions that only kernels need; the simulator runs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from mapper.align.matrix.cells import (
    INLINED,
    OneCell,
    TwoCells,
    exceeds,
    half_of,
    higher,
    highest,
    is_cells,
    joined_halves,
    sum_or,
)
from mapper.cuda.api import SIMULATED, intrinsic
from mapper.jit.accelerate import core

HALVES_CAPABILITY = (9, 0)
"""Lowest compute capability with these instructions."""


def _instruction(text: str, n_operands: int) -> Any:
    """Return a function of uint32 operands with this PTX; None in the simulator."""
    if SIMULATED:
        return None

    def codegen(context, builder, signature, operands):
        word = ir.IntType(32)
        function = ir.FunctionType(word, [word] * n_operands)
        return builder.call(ir.InlineAsm(function, text, "=r" + ",r" * n_operands), operands)

    signature = types.uint32(*[types.uint32] * n_operands)
    if n_operands == 2:
        return intrinsic(lambda typing_context, a, b: (signature, codegen))
    return intrinsic(lambda typing_context, a, b, c: (signature, codegen))


_add_max = _instruction(
    "{ .reg .b32 sum; add.s16x2 sum, $1, $2; max.s16x2 $0, sum, $3; }", n_operands=3
)
_max = _instruction("max.s16x2 $0, $1, $2;", n_operands=2)
_min_unsigned = _instruction("min.u16x2 $0, $1, $2;", n_operands=2)
_permute = _instruction("prmt.b32 $0, $1, $2, $3;", n_operands=3)


@core
def _half(word, number):
    return np.int32(np.int16(np.uint64(word) >> np.uint64(16 * number)))


@core
def _exceeds(a, b):
    # No half of b exceeds that of a, and none is negative: one subtraction serves both halves.
    return _min_unsigned(np.uint32(a - b), np.uint32(0x10001))


@core
def _two_row_scores(low, high, row):
    # Four rows in 32 bits; nibble 8 + x of a selector repeats the sign of byte x.
    shift = np.uint64(8 * (row & 4))
    selector = np.uint32(0xC480 + 0x1111 * (row & 3))
    return _permute(np.uint32(low >> shift), np.uint32(high >> shift), selector)


def number_of(word, half, cells):
    """Return the signed number in a half of a word; `half` is 0 for one cell."""
    return np.int32(word) if isinstance(cells, OneCell) else np.int32(half_of(word, half))


def word_of(low, high, cells):
    """Return the word of two numbers; for one cell, the first."""
    return np.int32(low) if isinstance(cells, OneCell) else joined_halves(low, high)


def handed_on(before, own, cells):
    """Return the inputs of a lane: the last number of the previous lane, then its own first."""
    if isinstance(cells, OneCell):
        return before
    return joined_halves(half_of(before, 1), half_of(own, 0))


def with_first(word, number, cells):
    """Return a word with its first number replaced."""
    if isinstance(cells, OneCell):
        return np.int32(number)
    return joined_halves(number, half_of(word, 1))


def row_scores(low, high, row, cells):
    """Return the scores of a row from the words of a query profile for both halves' letters.

    Two cells: signed bytes of 8 rows in a word; one cell: int16 of 4 rows.
    """
    if isinstance(cells, OneCell):
        return np.int32(((int(low) >> 16 * row & 0xFFFF) ^ 0x8000) - 0x8000)
    a, b = (((int(word) >> 8 * row & 0xFF) ^ 0x80) - 0x80 for word in (low, high))
    return joined_halves(a, b)


@overload(sum_or, jit_options=INLINED)
def _sum_or_of_two(a, b, least, cells):
    if is_cells(cells, TwoCells):
        return lambda a, b, least, cells: _add_max(np.uint32(a), np.uint32(b), np.uint32(least))


@overload(higher, jit_options=INLINED)
def _higher_of_two(a, b, cells):
    if is_cells(cells, TwoCells):
        return lambda a, b, cells: _max(np.uint32(a), np.uint32(b))


@overload(highest, jit_options=INLINED)
def _highest_of_two(a, b, c, cells):
    if is_cells(cells, TwoCells):  # one instruction of three operands
        return lambda a, b, c, cells: _max(_max(np.uint32(a), np.uint32(b)), np.uint32(c))


@overload(exceeds, jit_options=INLINED)
def _exceeds_of_two(a, b, cells):
    if is_cells(cells, TwoCells):
        return lambda a, b, cells: _exceeds(a, b)


@overload(number_of, jit_options=INLINED)
def _number_of(word, half, cells):
    if is_cells(cells, OneCell):
        return lambda word, half, cells: np.int32(word)
    return lambda word, half, cells: _half(word, half)


@overload(word_of, jit_options=INLINED)
def _word_of(low, high, cells):
    if is_cells(cells, OneCell):
        return lambda low, high, cells: np.int32(low)
    return lambda low, high, cells: _permute(np.uint32(low), np.uint32(high), np.uint32(0x5410))


@overload(handed_on, jit_options=INLINED)
def _handed_on(before, own, cells):
    if is_cells(cells, OneCell):
        return lambda before, own, cells: np.int32(before)
    return lambda before, own, cells: _permute(np.uint32(before), np.uint32(own), np.uint32(0x5432))


@overload(with_first, jit_options=INLINED)
def _with_first(word, number, cells):
    if is_cells(cells, OneCell):
        return lambda word, number, cells: np.int32(number)
    return lambda word, number, cells: _permute(
        np.uint32(word), np.uint32(number), np.uint32(0x3254)
    )


@overload(row_scores, jit_options=INLINED)
def _row_scores(low, high, row, cells):
    if is_cells(cells, OneCell):
        return lambda low, high, row, cells: _half(low, row)
    return lambda low, high, row, cells: _two_row_scores(low, high, row)
