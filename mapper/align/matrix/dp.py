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
from numba.extending import overload

from mapper.align.matrix.cells import INLINED, OneCell, exceeds, highest, is_cells, plus, sum_or
from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.jit.accelerate import core

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


class FillSpace(NamedTuple):
    """Workspace of :func:`fill_matrix`: int32, ``len(ref) + 1`` items each."""

    scores: np.ndarray  # H of the row above
    row_scores: np.ndarray  # H of the row
    insertions: np.ndarray  # I
    deletions: np.ndarray  # D of the row
    substitutions: np.ndarray  # S of the row


@core
def begin_row(of_letter, ref, deletion, space, cells):
    """Compute the deletions of a row before its scores, which then depend on no neighbour.

    Opening a deletion after another one is never better than extending it, so D(i, j+1) is the
    maximum of D(i, j) - e and of the other sources of H(i, j), less o + e.
    """
    for j in range(len(ref)):
        substitution = of_letter[ref[j]]
        space.substitutions[j] = substitution
        space.deletions[j] = deletion
        other = sum_or(space.scores[j], substitution, space.insertions[j + 1], cells)
        opened = plus(other, cells.opening, cells)
        deletion = sum_or(deletion, cells.extend_each, opened, cells)


@core
def fill_matrix(query, ref, scores, gaps, mode, space, origins):
    """Compute all cells, row by row.

    Parameters
    ----------
    query, ref
        Codes, uint8: rows and columns of `scores`.
    origins
        uint8, at least ``len(query) * len(ref)`` bytes for the bits of all cells; None to
        write none, which compiles another version.

    Returns
    -------
    score, query_end, ref_end
        Ties: the cell with the lowest ref_end, then query_end.
    """
    n, m = len(query), len(ref)
    cells = one_cell(gaps, mode)
    above, row = space.scores, space.row_scores
    for j in range(m + 1):
        above[j] = border(j, gaps, mode)
        space.insertions[j] = max(above[j] + cells.opening, cells.floor)
    best = np.int64(NEVER)
    best_i = np.int64(0)
    best_j = np.int64(0)
    if mode == LOCAL or (mode == SEMIGLOBAL and min(n, m) == 0):
        best = np.int64(0)
    for i in range(n):
        row[0] = border(i + 1, gaps, mode)
        deletion = max(np.int32(row[0] + cells.opening), cells.floor)
        begin_row(scores[query[i]], ref, deletion, space, cells)
        highest = np.int32(NEVER)
        if origins is not None:
            own = origins[i * m : (i + 1) * m]
        for j in range(m):
            matched = plus(above[j], space.substitutions[j], cells)
            score, below, _, bits = next_cell(
                matched, space.insertions[j + 1], space.deletions[j], True, cells
            )
            row[j + 1] = score
            space.insertions[j + 1] = below
            if origins is not None:
                own[j] = bits
            highest = max(highest, score)
        if mode == LOCAL and highest >= best:
            j = 0
            while row[j + 1] != highest:
                j += 1
            if is_better(highest, i, j, best, best_i, best_j):
                best, best_i, best_j = np.int64(highest), np.int64(i), np.int64(j)
        if mode == SEMIGLOBAL and m > 0 and row[m] > best:
            best, best_i, best_j = np.int64(row[m]), np.int64(i), np.int64(m - 1)
        for j in range(m + 1):
            above[j] = row[j]
    if mode == GLOBAL:
        return np.int64(above[m]), np.int64(n), np.int64(m)
    if mode == SEMIGLOBAL and n > 0:
        for j in range(m):
            if is_better(above[j + 1], n - 1, j, best, best_i, best_j):
                best, best_i, best_j = np.int64(above[j + 1]), np.int64(n - 1), np.int64(j)
    if best == 0 and (mode == LOCAL or min(n, m) == 0):
        return best, np.int64(0), np.int64(0)
    return best, best_i + 1, best_j + 1


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
