"""Edit distance by bit vectors: a band of the matrix, column by column, and the traceback.

Row i and column j count the symbols of query and reference consumed, D(i, j) is their distance.
Neighbouring cells differ by at most 1, so a column is stored as words with one bit a row. The band
moves down by one row a column: a bit is a diagonal, bit b the diagonal ``j - i = highest - b``.
With `width` bits every cell is correct that can be on a path of ``width - 1`` edits: each diagonal
between such a cell and either end costs an edit. Other cells of the band are not too low.

Rows above the first one, where the band starts, hold ``D(i, j) = j - i``: whatever symbols they
compare, no cell below changes, and a path that reaches row 0 follows it.

The path is that of ``wavefront.trace_edit``, which comes from the end and leaves a run of matches
as soon as an edit leads to the current offset, preferring a mismatch, then a deletion. Two bits a
cell record that choice.

References
----------
Myers (1999), A fast bit-vector algorithm for approximate string matching, J. ACM 46:395. Hyyrö
(2003), A bit-vector algorithm for computing Levenshtein and Damerau edit distances, Nordic J.
Computing 10:29: the moving band.
"""

from __future__ import annotations

import numpy as np

from mapper.align.matches import window
from mapper.cigar import EQUAL, D, I, X
from mapper.jit.accelerate import core

COLUMNS = 32
"""Columns whose symbols are loaded together."""


@core
def highest_diagonal(goal, width):
    """Return the diagonal of bit 0, for paths that end on diagonal `goal` within the band."""
    return np.int32(np.int32(width + goal - np.int32(1)) >> np.int32(1))


@core
def first_column(highest, zero):
    """Return the vertical differences of column 0: the word of +1, and the word of -1.

    Bit b is for rows b and b + 1 of the band. `zero` is a word, of the type of all words.
    """
    word = type(zero)
    plus = word(word(~zero) << word(highest))
    return plus, word(~plus)


@core
def next_column(equal, plus, minus):
    """Return the next column of the band.

    Parameters
    ----------
    equal
        Word of the rows whose query symbol equals the symbol of the column.
    plus, minus
        Vertical differences of the previous column.

    Returns
    -------
    level, right, up, plus, minus
        Words: cells equal to the previous one on their diagonal; cells that are one more than their
        left neighbour; of the level cells those that are one more than the cell above; and the
        vertical differences.
    """
    word = type(plus)
    # Without the highest bit there is no carry out of the word.
    summand = word(plus & word(word(~word(0)) >> word(1)))
    total = word(word(equal & summand) + summand)
    level = word(word(total ^ summand) | equal | minus)
    right = word(minus | word(~word(level | plus)))
    left = word(level & plus)
    slid = word(level >> word(1))
    up = word(level & word(left << word(1)))
    return level, right, up, word(left | word(~word(slid | right))), word(slid & right)


@core
def moves_of(level, right, up):
    """Return two words with the traceback of each cell.

    The first bit alone means a mismatch, the second alone an insertion, both a deletion, and none a
    match.
    """
    word = type(level)
    return word(word(~level) | right), word(level & word(right | up))


@core
def _apart(word):
    """Return the low bits of 16 symbols in the lower half, the high bits in the upper half."""
    step = np.uint32(np.uint32(word ^ np.uint32(word >> np.uint32(1))) & np.uint32(0x22222222))
    word = np.uint32(word ^ step ^ np.uint32(step << np.uint32(1)))
    step = np.uint32(np.uint32(word ^ np.uint32(word >> np.uint32(2))) & np.uint32(0x0C0C0C0C))
    word = np.uint32(word ^ step ^ np.uint32(step << np.uint32(2)))
    step = np.uint32(np.uint32(word ^ np.uint32(word >> np.uint32(4))) & np.uint32(0x00F000F0))
    word = np.uint32(word ^ step ^ np.uint32(step << np.uint32(4)))
    step = np.uint32(np.uint32(word ^ np.uint32(word >> np.uint32(8))) & np.uint32(0x0000FF00))
    return np.uint32(word ^ step ^ np.uint32(step << np.uint32(8)))


@core
def planes(words, at, symbol):
    """Return the low and the high bits (uint32) of 32 symbols.

    Parameters
    ----------
    words, at
        A packed sequence of 2 bits a symbol, and where it starts, as in `Strings`.
    symbol
        The first of them (int32); symbols before the sequence are undefined.
    """
    from_symbol = np.uint32(at + np.uint32(max(symbol, np.int32(0))))
    shift = np.int32(1)
    near = _apart(window(words, from_symbol, shift))
    far = _apart(window(words, np.uint32(from_symbol + np.uint32(16)), shift))
    before = np.uint32(min(max(np.int32(-symbol), np.int32(0)), np.int32(31)))
    low = np.uint32(np.uint32(near & np.uint32(0xFFFF)) | np.uint32(far << np.uint32(16)))
    high = np.uint32(np.uint32(near >> np.uint32(16)) | np.uint32(far & np.uint32(0xFFFF0000)))
    return np.uint32(low << before), np.uint32(high << before)


@core
def _equal_32(low, next_low, high, next_high, r, ref_low, ref_high):
    """Return the mask of 32 symbols, from symbol r of two planes on, that equal a reference one."""
    shift = np.uint64(32)
    own_low = np.uint32(((np.uint64(next_low) << shift) | np.uint64(low)) >> r)
    own_high = np.uint32(((np.uint64(next_high) << shift) | np.uint64(high)) >> r)
    return np.uint32(~np.uint32(np.uint32(own_low ^ ref_low) | np.uint32(own_high ^ ref_high)))


@core
def _all_bits(plane, r):
    """Return bit r of a word, 32 times."""
    return np.uint32(np.int32(plane << np.uint32(np.uint32(31) - r)) >> np.int32(31))


@core
def search_columns(strings, last, width, moves, first, stride, keep):
    """Search the end of a global alignment within `last` edits, fewer than `width`.

    Parameters
    ----------
    strings
        Both sequences, 2 bits a symbol.
    moves
        Words of `width` bits (uint32 or uint64). If `keep`, those of :func:`moves_of` for column j,
        from 0 on, go to item ``first + 2 * j * stride`` and `stride` items later.

    Returns
    -------
    The distance, or -1 if it is above `last`.
    """
    word = type(moves[first])
    goal = np.int32(strings.ref_len - strings.query_len)
    score = np.int32(abs(goal))
    if score > last:
        return np.int32(-1)
    highest = highest_diagonal(goal, width)
    goal_bit = word(np.int32(highest - goal))
    plus, minus = first_column(highest, word(0))
    v, j = np.int32(-highest), np.int32(0)
    low, high = planes(strings.query, strings.query_at, v)
    low_1, high_1 = planes(strings.query, strings.query_at, np.int32(v + COLUMNS))
    at = np.uint64(first)
    while j < strings.ref_len:
        v = np.int32(v + np.int32(COLUMNS))
        low_2, high_2 = planes(strings.query, strings.query_at, np.int32(v + COLUMNS))
        ref_low, ref_high = planes(strings.ref, strings.ref_at, j)
        n = np.uint32(min(np.int32(strings.ref_len - j), np.int32(COLUMNS)))
        r = np.uint32(0)
        while r < n:
            symbol_low, symbol_high = _all_bits(ref_low, r), _all_bits(ref_high, r)
            equal = np.uint64(_equal_32(low, low_1, high, high_1, r, symbol_low, symbol_high))
            farther = _equal_32(low_1, low_2, high_1, high_2, r, symbol_low, symbol_high)
            equal = word(equal | (np.uint64(farther) << np.uint64(32)))
            level, right, up, plus, minus = next_column(equal, plus, minus)
            if keep:
                moves[at], moves[at + np.uint64(stride)] = moves_of(level, right, up)
                at += np.uint64(2 * stride)
            score = np.int32(score + np.int32(word(~word(level >> goal_bit)) & word(1)))
            r = np.uint32(r + np.uint32(1))
        # Values on the diagonal of the end do not fall.
        if score > last:
            return np.int32(-1)
        low, high, low_1, high_1 = low_1, high_1, low_2, high_2
        j = np.int32(j + np.int32(COLUMNS))
    return score


@core
def _note(ops, n_ops, code, n, now):
    """Write a run of an operation if another operation follows; return both counts."""
    if n > 0 and code != now:
        ops[np.uint64(n_ops)] = np.uint32(np.uint32(n << np.int32(4)) | np.uint32(code))
        return np.int32(n_ops + np.int32(1)), np.int32(1)
    return n_ops, np.int32(n + np.int32(1))


@core
def _back(enters, gaps, bit, code, n, ops, n_ops):
    """Trace back over a column; return the bit, the pending operation, and both counts."""
    word = type(enters)
    one = word(1)
    while (word(word(~enters) & gaps) >> word(bit)) & one:
        n_ops, n = _note(ops, n_ops, code, n, np.int32(I))
        code, bit = np.int32(I), np.int32(bit - np.int32(1))
    now = np.int32(EQUAL)
    if (enters >> word(bit)) & one:
        now = np.int32(X)
        if (gaps >> word(bit)) & one:
            now = np.int32(D)
    n_ops, n = _note(ops, n_ops, code, n, now)
    if now == D:
        bit = np.int32(bit + np.int32(1))
    return bit, now, n, n_ops


@core
def _column(moves, first, stride, j):
    """Return the moves of column j; of column 0 for a negative j."""
    at = np.uint64(first) + np.uint64(2 * stride) * np.uint64(max(j, np.int32(0)))
    return moves[at], moves[at + np.uint64(stride)]


@core
def _four_before(moves, first, stride, j):
    """Return the moves of the columns j - 1 to j - 4."""
    enters_0, gaps_0 = _column(moves, first, stride, np.int32(j - np.int32(1)))
    enters_1, gaps_1 = _column(moves, first, stride, np.int32(j - np.int32(2)))
    enters_2, gaps_2 = _column(moves, first, stride, np.int32(j - np.int32(3)))
    enters_3, gaps_3 = _column(moves, first, stride, np.int32(j - np.int32(4)))
    return enters_0, gaps_0, enters_1, gaps_1, enters_2, gaps_2, enters_3, gaps_3


@core
def trace_columns(strings, width, moves, first, stride, ops):
    """Write the operations of the path that :func:`search_columns` found, last one first.

    Returns
    -------
    Number of operations.
    """
    goal = np.int32(strings.ref_len - strings.query_len)
    highest = highest_diagonal(goal, width)
    bit = np.int32(highest - goal)
    code, n, n_ops = np.int32(EQUAL), np.int32(0), np.int32(0)
    j = np.int32(strings.ref_len)
    # The addresses of columns do not depend on the path: the next four are loaded while the current
    # four are traced.
    four = _four_before(moves, first, stride, j)
    while j > 0:
        here = four
        four = _four_before(moves, first, stride, np.int32(j - np.int32(4)))
        bit, code, n, n_ops = _back(here[0], here[1], bit, code, n, ops, n_ops)
        if j > 1:
            bit, code, n, n_ops = _back(here[2], here[3], bit, code, n, ops, n_ops)
        if j > 2:
            bit, code, n, n_ops = _back(here[4], here[5], bit, code, n, ops, n_ops)
        if j > 3:
            bit, code, n, n_ops = _back(here[6], here[7], bit, code, n, ops, n_ops)
        j = np.int32(j - np.int32(4))
    row = np.int32(bit - highest)
    while row > 0:
        n_ops, n = _note(ops, n_ops, code, n, np.int32(I))
        code, row = np.int32(I), np.int32(row - np.int32(1))
    n_ops, _ = _note(ops, n_ops, code, n, np.int32(-1))
    return n_ops
