"""Arithmetic of matrix cells, one or two in a register, for one text of the recurrence.

With costs of type ``OneCell`` a core computes in int32; with ``ShortCell`` in int16, of which a
vector register of the CPU holds twice as many; with ``ByteCell`` in int8, on differences of scores;
with ``TwoCells`` two cells at a
time, each in one half of a uint32. On a device each function of two cells is one instruction
(:mod:`mapper.align.matrix.cuda_cells`). Numba selects the functions by the type of the costs; the
Python bodies define them, and the simulator runs these.

Halves hold *biased* scores, from 0 to 32767, so that differences of halves need no borrow;
the caller ensures that the scores fit (:func:`mapper.align.matrix.scoring.bias_of`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from mapper.jit.accelerate import core


class OneCell(NamedTuple):
    """Costs of gaps as summands, for one cell in an int32."""

    opening: np.int32  # of the first symbol: -(gap_open + gap_extend)
    extend: np.int32  # of each further one: -gap_extend
    floor: np.int32  # of scores
    extend_each: np.int32  # as ``extend``


class ShortCell(NamedTuple):
    """Costs for one cell in an int16, as ``OneCell``."""

    opening: np.int16
    extend: np.int16
    floor: np.int16
    extend_each: np.int16


class ByteCell(NamedTuple):
    """Costs for one cell in an int8, where sums wrap around; there is no floor."""

    opening: np.int8
    extend: np.int8
    floor: np.int8  # none
    extend_each: np.int8


class TwoCells(NamedTuple):
    """Costs for two cells in the halves of a uint32.

    If no half of the sum is negative, words are added as numbers of 32 bits, which takes a
    common instruction; a negative half of a summand then borrows from the other half.
    ``extend_each`` is the extension for separate sums of the halves.
    """

    opening: np.uint32
    extend: np.uint32
    floor: np.uint32  # of both halves
    extend_each: np.uint32


def half_of(word, half):
    """Return one half of a word as a signed number (Python only)."""
    return ((int(word) >> (16 * int(half)) & 0xFFFF) ^ 0x8000) - 0x8000


def joined_halves(low, high):
    """Return a word of two numbers (Python only)."""
    return np.uint32((int(low) & 0xFFFF) | (int(high) & 0xFFFF) << 16)


def words_of_scores(low, high):
    """Return the word of two numbers of either sign for :func:`plus` (Python only)."""
    return np.uint32((int(low) + (int(high) << 16)) & 0xFFFFFFFF)


def byte_of(number):
    """Return the low byte of a number as a signed number (Python only)."""
    return np.int8(((int(number) & 0xFF) ^ 0x80) - 0x80)


def plus(a, b, cells):
    """Return ``a + b``; no half of the sum may be negative."""
    if isinstance(cells, OneCell):
        return np.int32(a + b)
    if isinstance(cells, ShortCell):
        return np.int16(a + b)
    if isinstance(cells, ByteCell):
        return byte_of(int(a) + int(b))
    return np.uint32((int(a) + int(b)) & 0xFFFFFFFF)


def minus(a, b, cells):
    """Return ``a - b``, of bytes."""
    return byte_of(int(a) - int(b))


def sum_or(a, b, least, cells):
    """Return ``max(a + b, least)`` of each half."""
    if isinstance(cells, OneCell):
        return np.int32(max(a + b, least))
    if isinstance(cells, ShortCell):
        return np.int16(max(a + b, least))
    if isinstance(cells, ByteCell):
        return max(byte_of(int(a) + int(b)), least)
    return joined_halves(
        *(max(half_of(a, half) + half_of(b, half), half_of(least, half)) for half in (0, 1))
    )


def higher(a, b, cells):
    """Return ``max(a, b)``."""
    if isinstance(cells, OneCell):
        return np.int32(max(a, b))
    if isinstance(cells, ShortCell):
        return np.int16(max(a, b))
    if isinstance(cells, ByteCell):
        return max(a, b)
    return joined_halves(*(max(half_of(a, half), half_of(b, half)) for half in (0, 1)))


def highest(a, b, c, cells):
    """Return ``max(a, b, c)``."""
    return higher(higher(a, b, cells), c, cells)


def exceeds(a, b, cells):
    """Return 1 if a is greater than b, else 0; a must not be less than b."""
    if isinstance(cells, (OneCell, ShortCell, ByteCell)):
        return np.uint32(a != b)
    return joined_halves(*(half_of(a, half) != half_of(b, half) for half in (0, 1)))


def is_cells(cells, kind):
    """Return True if a numba type is that of the NamedTuple `kind`."""
    return getattr(cells, "instance_class", None) is kind


INLINED = {"forceinline": True, "_nrt": False}
"""Options of functions that are selected by type. (Numba's own inlining, ``inline="always"``,
loses arguments when numba-cuda compiles the caller: seen with 0.30.4.)"""


@core
def _plus(a, b):
    return np.int32(a + b)


@core
def _plus_of_shorts(a, b):
    return np.int16(a + b)


@core
def _plus_of_words(a, b):
    return np.uint32(np.uint32(a) + np.uint32(b))


@core
def _plus_of_bytes(a, b):
    return np.int8(a + b)


@core
def _minus_of_bytes(a, b):
    return np.int8(a - b)


@core
def _sum_or_of_shorts(a, b, least):
    return max(np.int16(a + b), np.int16(least))


@core
def _higher_of_shorts(a, b):
    return max(np.int16(a), np.int16(b))


@core
def _highest_of_shorts(a, b, c):
    return max(max(np.int16(a), np.int16(b)), np.int16(c))


@core
def _sum_or_of_bytes(a, b, least):
    return max(np.int8(a + b), np.int8(least))


@core
def _higher_of_bytes(a, b):
    return max(np.int8(a), np.int8(b))


@core
def _highest_of_bytes(a, b, c):
    return max(max(np.int8(a), np.int8(b)), np.int8(c))


@core
def _sum_or(a, b, least):
    return max(np.int32(a + b), np.int32(least))


@core
def _higher(a, b):
    return max(np.int32(a), np.int32(b))


@core
def _highest(a, b, c):
    return max(max(np.int32(a), np.int32(b)), np.int32(c))


@core
def _exceeds(a, b):
    return np.uint32(a != b)


@overload(plus, jit_options=INLINED)
def _plus_of_any(a, b, cells):
    if is_cells(cells, OneCell):
        return lambda a, b, cells: _plus(a, b)
    if is_cells(cells, ShortCell):
        return lambda a, b, cells: _plus_of_shorts(a, b)
    if is_cells(cells, ByteCell):
        return lambda a, b, cells: _plus_of_bytes(a, b)
    return lambda a, b, cells: _plus_of_words(a, b)


@overload(minus, jit_options=INLINED)
def _minus_of_one(a, b, cells):
    if is_cells(cells, ByteCell):
        return lambda a, b, cells: _minus_of_bytes(a, b)


@overload(sum_or, jit_options=INLINED)
def _sum_or_of_one(a, b, least, cells):
    if is_cells(cells, OneCell):
        return lambda a, b, least, cells: _sum_or(a, b, least)
    if is_cells(cells, ShortCell):
        return lambda a, b, least, cells: _sum_or_of_shorts(a, b, least)
    if is_cells(cells, ByteCell):
        return lambda a, b, least, cells: _sum_or_of_bytes(a, b, least)


@overload(higher, jit_options=INLINED)
def _higher_of_one(a, b, cells):
    if is_cells(cells, OneCell):
        return lambda a, b, cells: _higher(a, b)
    if is_cells(cells, ShortCell):
        return lambda a, b, cells: _higher_of_shorts(a, b)
    if is_cells(cells, ByteCell):
        return lambda a, b, cells: _higher_of_bytes(a, b)


@overload(highest, jit_options=INLINED)
def _highest_of_one(a, b, c, cells):
    if is_cells(cells, OneCell):
        return lambda a, b, c, cells: _highest(a, b, c)
    if is_cells(cells, ShortCell):
        return lambda a, b, c, cells: _highest_of_shorts(a, b, c)
    if is_cells(cells, ByteCell):
        return lambda a, b, c, cells: _highest_of_bytes(a, b, c)


@overload(exceeds, jit_options=INLINED)
def _exceeds_of_one(a, b, cells):
    if is_cells(cells, OneCell):
        return lambda a, b, cells: _exceeds(a, b)
    if is_cells(cells, ShortCell):
        return lambda a, b, cells: _exceeds(a, b)
    if is_cells(cells, ByteCell):
        return lambda a, b, cells: _exceeds(a, b)
