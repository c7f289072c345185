"""Cores of matrix alignment: the recurrence, the traceback, and the storage of its bits.

With H the best score of prefixes of i query and j reference symbols, I and D those that end
in a gap that consumes the query or the reference::

    H(i, j)   = max(H(i-1, j-1) + S(query i, ref j), D(i, j), I(i, j))    [local: and 0]
    I(i+1, j) = max(H(i, j) - o - e, I(i, j) - e)
    D(i, j+1) = max(H(i, j) - o - e, D(i, j) - e)

A gap of length n costs ``o + n e``, at the borders too. Each cell keeps four bits (its
*origin*): the source of H, and whether the gaps in the following cells, I(i+1, j) and D(i, j+1),
extend a gap or open one. The traceback reads the bits of the cell from which a gap comes, and so
takes linear time. The layout of the bits is a type; numba chooses :func:`origin_at` by it.

References
----------
Gotoh (1982), doi:10.1016/0022-2836(82)90398-9. Blazewicz et al. (2011), BMC Bioinformatics
12:181, equations 1 to 14 (four bits a cell), with the errors of its backtrace corrected.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from mapper.align.matrix.cells import (
    INLINED,
    OneCell,
    ShortCell,
    exceeds,
    higher,
    highest,
    is_cells,
    plus,
    sum_or,
)
from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.jit.accelerate import core, disjoint_core
from mapper.jit.simd import SCANNED, falling_maximum

# --- origins of cells ---


class ByteOrigins(NamedTuple):
    """The bits of all cells, a byte each, row by row."""

    cells: np.ndarray  # uint8
    n_columns: int


class BandOrigins(NamedTuple):
    """The bits of the cells of a band, a byte each, by antidiagonals (``affine/banded.py``)."""

    cells: np.ndarray  # uint8
    highest: int  # diagonal j - i
    n_rows: int  # of each antidiagonal


@core
def first_row(t, highest):
    """Return the first row i of antidiagonal ``t = i + j`` in a band up to diagonal `highest`."""
    return max(np.int64(1), (t - highest + 1) >> 1)


@core
def _band_origin(origins, i, j):
    t = i + j
    at = (t - 2) * origins.n_rows + i - first_row(t, origins.highest)
    return np.int64(origins.cells[at])


class StripOrigins(NamedTuple):
    """The bits of the cells of one pair, in the order in which a group of lanes writes them.

    At a step all lanes write word 0, then all lanes word 1, and so on: consecutive addresses.
    """

    words: np.ndarray  # uint32
    start: int  # first word of the pair
    n_steps: int
    above: int  # rows above the query's first
    lanes: int
    halves: int
    rows: int


@core
def _strip_origin(origins, i, j):
    rows = np.uint32(origins.rows)
    row = np.uint32(i - 1 + origins.above)
    line = np.uint32(row // rows)  # of all halves of all strips
    x = np.uint32(row - line * rows)
    # Lanes and halves are powers of two: one division is enough.
    two = np.uint32(origins.halves - 1)
    lines = np.uint32(origins.lanes * origins.halves)
    strip = np.uint32(line // lines)
    line = np.uint32(line & (lines - np.uint32(1)))
    a_word = np.uint32(8) >> two
    x_word = np.uint32(x >> (np.uint32(3) - two))
    words_a_step = np.uint32((rows + a_word - np.uint32(1)) >> (np.uint32(3) - two))
    step = np.uint64(strip) * np.uint64(origins.n_steps) + np.uint64(j - 1) + np.uint64(line)
    at = step * np.uint64(words_a_step) + np.uint64(x_word)
    at = np.uint64(origins.start) + at * np.uint64(origins.lanes) + np.uint64(line >> two)
    shift = np.uint32(16) * np.uint32(line & two)
    shift += np.uint32(4) * np.uint32(a_word - np.uint32(1) - (x & (a_word - np.uint32(1))))
    return np.int64((np.uint64(origins.words[at]) >> np.uint64(shift)) & np.uint64(15))


class QueryPairOrigins(NamedTuple):
    """The bits of the cells of one pair of a query pair (``cuda_query_pairs.py``).

    A word holds four rows of both; at a step all lanes write word 0, then all word 1, and so on.
    """

    words: np.ndarray  # uint32
    start: int  # first word of the pair
    n_steps: int
    first_units: int  # words of a lane at a step in the first strip
    units: int  # in other strips
    above: int  # rows above the query's first
    lanes: int
    half: int


@core
def _query_pair_origin(origins, i, j):
    row = np.uint32(i - 1 + origins.above)
    lanes = np.uint32(origins.lanes)
    units, units_before = np.uint32(origins.first_units), np.uint32(0)
    first = np.uint32(np.uint32(4) * units * lanes)
    if row >= first:
        row = np.uint32(row - first)
        units_before, units = units, np.uint32(origins.units)
        strip = np.uint32(row // np.uint32(np.uint32(4) * units * lanes))
        row = np.uint32(row - strip * np.uint32(np.uint32(4) * units * lanes))
        units_before = np.uint32(units_before + strip * units)
    lane = np.uint32(row // np.uint32(np.uint32(4) * units))
    x = np.uint32(row - lane * np.uint32(np.uint32(4) * units))
    at = np.uint64(units_before) * np.uint64(origins.n_steps)
    at += np.uint64(np.uint32(j - 1) + lane) * np.uint64(units) + np.uint64(x >> np.uint32(2))
    at = np.uint64(origins.start) + at * np.uint64(lanes) + np.uint64(lane)
    shift = np.uint32(16) * np.uint32(origins.half)
    shift += np.uint32(4) * np.uint32(np.uint32(3) - (x & np.uint32(3)))
    return np.int64((np.uint64(origins.words[at]) >> np.uint64(shift)) & np.uint64(15))


@core
def _byte_origin(origins, i, j):
    return np.int64(origins.cells[(i - 1) * origins.n_columns + j - 1])


def origin_at(origins, i, j):
    """Return the bits of cell (i, j), both counted from 1."""
    if isinstance(origins, ByteOrigins):
        return _byte_origin(origins, i, j)
    if isinstance(origins, BandOrigins):
        return _band_origin(origins, i, j)
    if isinstance(origins, QueryPairOrigins):
        return _query_pair_origin(origins, i, j)
    return _strip_origin(origins, i, j)


@overload(origin_at, jit_options=INLINED)
def _origin_at(origins, i, j):
    if is_cells(origins, ByteOrigins):
        return lambda origins, i, j: _byte_origin(origins, i, j)
    if is_cells(origins, BandOrigins):
        return lambda origins, i, j: _band_origin(origins, i, j)
    if is_cells(origins, QueryPairOrigins):
        return lambda origins, i, j: _query_pair_origin(origins, i, j)
    return lambda origins, i, j: _strip_origin(origins, i, j)


# --- recurrence ---

GLOBAL, SEMIGLOBAL, LOCAL = range(3)
"""Spans: both sequences whole; free ends of both, with at least one symbol of each aligned; the
best parts of both, or nothing."""

NEVER = np.int32(-(2**30))
"""Score of impossible cells, with room for subtraction."""

SHORT_NEVER = np.int16(-(2**14))
"""The same in int16."""

# Bits of a cell's origin.
NOT_DIAGONAL, NOT_DELETION, INSERTION_GOES_ON, DELETION_GOES_ON = 8, 4, 2, 1


class Gaps(NamedTuple):
    """A gap of n symbols costs ``gap_open + n * gap_extend``."""

    gap_open: int
    gap_extend: int


@core
def one_cell(gaps, mode):
    """Return the costs of int32 cells; the floor is 0 for local spans, else unreachable."""
    extend = np.int32(-gaps.gap_extend)
    opening = np.int32(-(gaps.gap_open + gaps.gap_extend))
    return OneCell(opening, extend, np.int32(0) if mode == LOCAL else NEVER, extend)


@core
def short_cell(gaps, mode):
    """Return the costs of int16 cells."""
    extend = np.int16(-gaps.gap_extend)
    opening = np.int16(-(gaps.gap_open + gaps.gap_extend))
    return ShortCell(opening, extend, np.int16(0) if mode == LOCAL else SHORT_NEVER, extend)


def cell_of(gaps, mode, numbers):
    """Return the costs of cells of the type of an array, int32 or int16."""
    return one_cell(gaps, mode) if numbers.dtype == np.int32 else short_cell(gaps, mode)


@overload(cell_of, jit_options=INLINED)
def _cell_of_type(gaps, mode, numbers):
    if numbers.dtype == types.int16:
        return lambda gaps, mode, numbers: short_cell(gaps, mode)
    return lambda gaps, mode, numbers: one_cell(gaps, mode)


@core
def next_cell(matched, insertion, deletion, floored, cells):
    """Compute one cell, or two: from H(i-1, j-1) + S, I(i, j) and D(i, j).

    Parameters
    ----------
    floored
        True if the floor applies; False if no score can reach it.

    Returns
    -------
    H(i, j), I(i+1, j), D(i, j+1), bits
        Ties: the diagonal before a deletion, a deletion before an insertion, and opening a gap
        before extending one. Insertions are never below ``cells.floor``, so no score is. With
        the floor of local alignment, an alignment begins where H equals it, whatever the
        bits; and gaps below it lead to no score above it.
    """
    score = highest(matched, deletion, insertion, cells)
    bits = exceeds(score, matched, cells)
    bits = np.uint32(np.uint32(2) * bits) + exceeds(score, deletion, cells)
    opened = plus(score, cells.opening, cells)
    if floored:
        lengthened = plus(insertion, cells.extend, cells)
        insertion_below = highest(lengthened, opened, cells.floor, cells)
    else:
        insertion_below = sum_or(insertion, cells.extend_each, opened, cells)
    deletion_behind = sum_or(deletion, cells.extend_each, opened, cells)
    bits = np.uint32(2) * np.uint32(bits) + exceeds(insertion_below, opened, cells)
    bits = np.uint32(2) * np.uint32(bits) + exceeds(deletion_behind, opened, cells)
    return score, insertion_below, deletion_behind, np.uint32(bits)


@core
def border(length, gaps, mode):
    """Return H of the first row or column at `length` symbols."""
    if mode == GLOBAL and length > 0:
        return -np.int64(gaps.gap_open + length * gaps.gap_extend)
    return np.int64(0)


@core
def is_better(score, i, j, best, best_i, best_j):
    """Return True if an alignment that ends at (i, j) is preferred.

    Ties: the lowest column, then the lowest row.
    """
    if score != best:
        return score > best
    return j < best_j or (j == best_j and i < best_i)


_NO_BOUND = np.int64(-(2**62))
"""A score below all others."""

BLOCK = SCANNED
"""Columns of a row that are computed at a time. No score beyond the end is above all scores of the
row, as a symbol there costs as much as a gap; and no cell depends on a later column."""


class FillSpace(NamedTuple):
    """Workspace of :func:`fill_matrix`, int32 or int16; rows have :func:`row_items` items."""

    scores: np.ndarray  # H of the row above
    row_scores: np.ndarray  # H of the row
    insertions: np.ndarray  # I
    deletions: np.ndarray  # D of the row
    profile: np.ndarray  # S of a letter and the reference; a row for each letter, or one
    is_filled: np.ndarray  # bool: the row of a letter is that of this reference


@core
def row_items(ref_len):
    """Return how many items a row of the workspace has."""
    return (ref_len + BLOCK - 1) // BLOCK * BLOCK + 1


@core
def _row_of_letter(letter, ref, scores, space, cells):
    """Return which row of the profile has the scores of a letter with all of the reference."""
    row = np.int64(letter) if len(space.profile) > 1 else np.int64(0)
    if not space.is_filled[row]:
        of_letter, substitutions = scores[letter], space.profile[row]
        for j in range(len(ref)):
            substitutions[j] = of_letter[ref[j]]
        for j in range(len(ref), row_items(len(ref)) - 1):
            substitutions[j] = cells.opening
        space.is_filled[row] = len(space.profile) > 1
    return row


@disjoint_core
def _open_deletions(at, n_blocks, substitutions, above, insertions, deletions, cells):
    """Write the score of opening a deletion behind each column, other than after another one."""
    one = np.uint64(1)  # unsigned, as an index that may be negative would be checked for that
    for _ in range(n_blocks):
        for lane in range(BLOCK):
            j = at + np.uint64(lane)
            other = sum_or(above[j], substitutions[j], insertions[j + one], cells)
            deletions[j + one] = plus(other, cells.opening, cells)
        at += np.uint64(BLOCK)


@disjoint_core
def _score_row(at, n_blocks, substitutions, above, insertions, deletions, row, origins, cells):
    """Compute the cells of a row from column `at` on, given its deletions; return the best."""
    one = np.uint64(1)
    best = cells.floor
    for _ in range(n_blocks):
        for lane in range(BLOCK):
            j = at + np.uint64(lane)
            matched = plus(above[j], substitutions[j], cells)
            score, below, _, bits = next_cell(
                matched, insertions[j + one], deletions[j], True, cells
            )
            row[j + one] = score
            insertions[j + one] = below
            if origins is not None:
                origins[j] = bits
            best = higher(best, score, cells)
        at += np.uint64(BLOCK)
    return best


@core
def _first_with(score, row, start):
    """Return the first column, from `start` on, that has a score, which one has."""
    at = np.uint64(start + 1)
    is_here = False
    while not is_here:
        for lane in range(BLOCK):
            is_here |= row[at + np.uint64(lane)] == score
        at += np.uint64(BLOCK)
    j = np.int64(at) - BLOCK
    while row[j] != score:
        j += 1
    return j - 1


@core
def fill_matrix(query, ref, scores, gaps, mode, space, origins, width, least, potential,
                total):  # fmt: skip
    """Compute the cells of a band, row by row, a row by blocks of columns.

    Opening a deletion after another one is never better than extending it. So D(i, j+1) is the
    maximum of D(i, j) - e and of the other sources of H(i, j), less o + e, and the deletions of a
    row, the only cells that depend on a neighbour in it, are computed before its scores.

    Parameters
    ----------
    query, ref
        Codes, uint8: rows and columns of `scores`.
    space
        Its type must hold all scores (``scoring.py``).
    origins
        uint8, at least ``len(query) * len(ref) + BLOCK`` bytes for the bits of all cells; None to
        write none, which compiles another version.
    width
        The band reaches so many diagonals beyond those of the matrix' two corners; it is whole with
        the length of the longer sequence.
    least, potential, total
        Filling ends early, with the score NEVER, once further rows can reach no score above
        `least`: a row brings at most the potential of its letter, all rows bring `total`.

    Returns
    -------
    score, query_end, ref_end
        Of the best alignment in the band. Ties: the cell with the lowest ref_end, then query_end.
    """
    n, m = len(query), len(ref)
    cells = cell_of(gaps, mode, space.scores)
    above, row, insertions, deletions = (
        space.scores, space.row_scores, space.insertions, space.deletions
    )  # fmt: skip
    n_blocks = (m + BLOCK - 1) // BLOCK
    lowest, highest = min(0, m - n) - width, max(0, m - n) + width  # diagonals, column - row
    # Next to the band: with room for the cost of a gap, which is subtracted from it.
    outside = cells.floor if mode == LOCAL else cells.floor - cells.opening
    space.is_filled[:] = False
    for j in range(row_items(m)):
        above[j] = border(min(j, m), gaps, mode)
        insertions[j] = higher(plus(above[j], cells.opening, cells), cells.floor, cells)
    best = np.int64(NEVER)
    best_i = np.int64(0)
    best_j = np.int64(0)
    best_start = np.int64(-1)  # where to look for best_j in the row above; -1: it is known
    if mode == LOCAL or (mode == SEMIGLOBAL and min(n, m) == 0):
        best = np.int64(0)
    start, end = np.int64(0), n_blocks * BLOCK
    if n > 0:
        end = min(n_blocks, highest // BLOCK + 1) * BLOCK
    left = total
    for i in range(n):
        start = max(np.int64(0), i + lowest) // BLOCK * BLOCK
        if i + highest >= end and end < m:
            for j in range(end + 1, end + BLOCK + 1):
                above[j] = outside
                insertions[j] = outside
            end += BLOCK
        row[start] = border(i + 1, gaps, mode) if start == 0 else outside
        substitutions = space.profile[_row_of_letter(query[i], ref, scores, space, cells)]
        blocks = (end - start) // BLOCK
        _open_deletions(
            np.uint64(start), blocks, substitutions, above, insertions, deletions, cells
        )
        deletions[start] = higher(plus(row[start], cells.opening, cells), cells.floor, cells)
        falling_maximum(deletions, start + 1, blocks * BLOCK, deletions[start], -cells.extend)
        if origins is not None:
            best_of_row = _score_row(
                np.uint64(start), blocks, substitutions, above, insertions, deletions, row,
                origins[i * m :], cells,
            )  # fmt: skip
        else:
            best_of_row = _score_row(
                np.uint64(start), blocks, substitutions, above, insertions, deletions, row, None,
                cells,
            )  # fmt: skip
        if mode == LOCAL and m > 0:
            if best_of_row > best:
                best, best_i, best_start = np.int64(best_of_row), np.int64(i), start
            else:
                # Scores mostly rise from row to row: looked for is the column of the last rise.
                if best_start >= 0:
                    best_j, best_start = _first_with(best, above, best_start), np.int64(-1)
                if best_of_row == best:
                    j = _first_with(best, row, start)
                    if is_better(best, i, j, best, best_i, best_j):
                        best_i, best_j = np.int64(i), np.int64(j)
        if mode == SEMIGLOBAL and end >= m > 0 and row[m] > best:
            best, best_i, best_j = np.int64(row[m]), np.int64(i), np.int64(m - 1)
        left -= potential[query[i]]
        if max(best, max(np.int64(best_of_row), np.int64(row[start])) + left) <= least:
            return np.int64(NEVER), np.int64(0), np.int64(0)
        above, row = row, above
    if best_start >= 0:
        best_j = _first_with(best, above, best_start)
    if mode == GLOBAL:
        return np.int64(above[m]), np.int64(n), np.int64(m)
    if mode == SEMIGLOBAL and n > 0:
        for j in range(start, min(end, m)):
            if is_better(above[j + 1], n - 1, j, best, best_i, best_j):
                best, best_i, best_j = np.int64(above[j + 1]), np.int64(n - 1), np.int64(j)
    if best == 0 and (mode == LOCAL or min(n, m) == 0):
        return best, np.int64(0), np.int64(0)
    return best, best_i + 1, best_j + 1


# --- bands ---


@core
def write_potentials(scores, out):
    """Write the best score of each letter of a query with any other, or 0 if that is negative."""
    for a in range(len(scores)):
        out[a] = 0
        for b in range(len(scores)):
            out[a] = max(out[a], scores[a, b])


class Bound(NamedTuple):
    """What an alignment scores at most: ``total``; if it leaves a band, ``most - fall * width``."""

    total: int
    most: int
    fall: int  # at least 0


@core
def bound_of(query, ref, gaps, mode, potential):
    """Return the bound of the alignments of two sequences.

    An alignment with a cell of the diagonal j - i = d > 0 aligns at most ``m - d`` letters, one
    with d < 0 at most ``n + d``. So if it leaves a band that reaches w diagonals beyond the
    corners, w + 1 letters of the shorter sequence at least are not aligned: the rows that bring
    least. A global one also pays for gaps of both kinds, there and back.
    """
    n, m = len(query), len(ref)
    total, lowest, n_without = np.int64(0), np.int64(0), np.int64(0)
    for i in range(n):
        here = np.int64(potential[query[i]])
        total += here
        if here == 0:
            n_without += 1
        elif lowest == 0 or here < lowest:
            lowest = here
    most = total - lowest * (1 + n - min(n, m) - n_without)
    fall = lowest
    if mode == GLOBAL:
        most -= 2 * gaps.gap_open + gaps.gap_extend * (2 + max(n, m) - min(n, m))
        fall += 2 * gaps.gap_extend
    return Bound(total, most, fall)


@core
def _widest(n, m):
    """Return the greatest width of a band of clearly fewer cells than all; may be negative."""
    return (3 * m // 5 - (max(n, m) - min(n, m)) - 1 - BLOCK) >> 1


@core
def fill_best(query, ref, scores, gaps, mode, space, origins, potential, is_tried):
    """Compute the best alignment, as :func:`fill_matrix` of the whole matrix does.

    Parameters
    ----------
    is_tried
        False to compute the whole matrix at once.

    Returns
    -------
    score, query_end, ref_end, helped
        True if a band sufficed or none was tried.

    Notes
    -----
    Similar sequences need a part of the matrix only. A narrow band is filled first. If its best
    score is not above the bound of all alignments that leave the band, a wider band is filled, for
    which it is. So the band holds all best alignments, ties included.
    """
    n, m = len(query), len(ref)
    whole, widest = max(n, m), _widest(n, m)
    width = (m >> 4) + 13  # to begin with: enough for some differences in a hundred letters
    bound = Bound(np.int64(0), np.int64(0), np.int64(0))
    if is_tried and width <= widest:
        bound = bound_of(query, ref, gaps, mode, potential)
    else:
        width = whole
    helped = True
    while True:
        least = reached = _NO_BOUND
        if width < whole:
            least, reached = bound.most - bound.fall * width, bound.most - bound.fall * widest
        found = fill_matrix(
            query, ref, scores, gaps, mode, space, origins, width, reached, potential, bound.total
        )
        if found[0] > least:
            return found[0], found[1], found[2], helped
        width, helped = whole, found[0] > reached
        if helped:
            width = (bound.most - found[0]) // bound.fall + 1


@core
def trace_matrix(query, ref, scores, gaps, origins, mode, score, i, j, ops):
    """Trace the path back from cell (i, j) and write its operations, last first.

    `score` is that of the cell; a local alignment begins where the remaining score is 0.

    Returns
    -------
    n_ops, query_start, ref_start
    """
    n_ops = np.int64(0)
    code, length = np.int64(EQUAL), np.int64(0)  # of the operation being extended
    while i > 0 and j > 0 and not (mode == LOCAL and score == 0):
        bits = origin_at(origins, i, j)
        if bits & NOT_DIAGONAL == 0:
            i -= 1
            j -= 1
            a, b = query[i], ref[j]
            here = np.int64(EQUAL if a == b else X)
            if here != code:
                n_ops = append_op(ops, n_ops, code, length)
                code, length = here, np.int64(0)
            length += 1
            if mode == LOCAL:
                score -= scores[a, b]
            continue
        n_ops = append_op(ops, n_ops, code, length)
        is_insertion = bits & NOT_DELETION != 0
        goes_on = INSERTION_GOES_ON if is_insertion else DELETION_GOES_ON
        length = np.int64(0)
        going = True
        while going:
            length += 1
            if is_insertion:
                i -= 1
            else:
                j -= 1
            going = i > 0 and j > 0 and origin_at(origins, i, j) & goes_on != 0
        n_ops = append_op(ops, n_ops, I if is_insertion else D, length)
        score += gaps.gap_open + length * gaps.gap_extend
        length = np.int64(0)
    n_ops = append_op(ops, n_ops, code, length)
    if mode == GLOBAL:
        n_ops = append_op(ops, n_ops, I, i)
        n_ops = append_op(ops, n_ops, D, j)
        return n_ops, np.int64(0), np.int64(0)
    return n_ops, i, j
