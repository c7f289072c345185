"""Core: alignment with two-piece gap costs by a band of the matrix, in differences of scores.

A gap of n symbols costs ``min(o1 + n e1, o2 + n e2)``. With H the best score of prefixes of i query
and j reference symbols, I1 and I2 those that end in a gap that consumes the query, and D1 and D2 in
one that consumes the reference::

    H(i, j)    = max(H(i-1, j-1) + S, D1(i, j), D2(i, j), I1(i, j), I2(i, j))
    Ip(i+1, j) = max(H(i, j) - op, Ip(i, j)) - ep
    Dp(i, j+1) = max(H(i, j) - op, Dp(i, j)) - ep         for both pieces p

S is the score of two symbols: a match, a mismatch, or two of which one is ambiguous.

**Differences.** Scores of neighbouring cells differ by little, whatever the lengths. A cell is
computed relative to H(i-1, j-1) and passes differences on, which fit eight bits for usual scores:
a vector register holds 32 or 64 cells. The cells of an antidiagonal ``t = i + j`` are independent.

**Band.** Of every antidiagonal a band holds the same number of rows i, from :func:`first_row` on,
hence 2 `n_rows` diagonals ``j - i``, of which `highest` is the highest. They are computed in blocks
of rows; a block may reach beyond the matrix, and leads to no cell inside. Differences from outside
the band are chosen so that no gap from there is ever the best way.

**Width.** An alignment of all of both sequences that leaves a band has a gap for each way out and
back, hence a highest possible score. A band whose best alignment scores more holds all optimal
ones (:func:`rows_for`).

**Free ends.** Symbols at the starts that may stay unaligned at no cost change the scores of row 0
and of the first column alone. Scores along the last row and column, where an alignment may end,
are summed up from differences (:func:`free_ends_score`).

**Ties.** The traceback goes from the end of the band's sequences to their start. Of equal ways into
a cell it takes the diagonal before D1, D2, I1, I2, in this order, and opens a gap rather than
lengthening it, so that gaps lie as far left as they can. With `gaps_first` all preferences are
reversed: a band of reversed sequences has its gaps as far left in the sequences as they are read.

References
----------
Suzuki and Kasahara (2018), doi:10.1186/s12859-018-2014-8: differences bounded by the scores alone.
Li (2018), doi:10.1093/bioinformatics/bty191, section 2.2: the same with two-piece gaps.
Gotoh (1990), doi:10.1007/BF02458577: piecewise linear gap costs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.dna import AMBIGUOUS
from mapper.errors import UsageError
from mapper.jit.accelerate import core, disjoint_core
from mapper.jit.lanes import lanes_meet
from mapper.params import TwoPieceScoring

BLOCK = 32
"""Rows computed at a time; a band has a multiple of it."""

# Origin of a cell: the source of H in the lowest three bits, then a bit for each gap into the next
# cell, set if it lengthens a gap.
_DIAGONAL, _D1, _D2, _I1, _I2 = range(5)
_SOURCE = 7
_LENGTHENED = 4
"""The bit of gap state p is ``_LENGTHENED << p``."""

# --- workspace ---


class BandSpace(NamedTuple):
    """Symbols and differences of a band; the latter are int8, or int16 for high scores.

    By row: i from 1 on. By column, the highest first: j in item ``ref_len + n_rows - j``.
    """

    query: np.ndarray  # uint8, by row
    ref: np.ndarray  # uint8, by column; no code that is also in `query` means a match of N
    left: np.ndarray  # by row: H(i, j) - H(i-1, j) of the last column
    deletions1: np.ndarray  # by row: D1(i, j+1) - H(i, j)
    deletions2: np.ndarray
    above: np.ndarray  # by column: H(i, j) - H(i, j-1) of the last row
    insertions1: np.ndarray  # by column: I1(i+1, j) - H(i, j)
    insertions2: np.ndarray


class BandShape(NamedTuple):
    """A band of a matrix of ``query_len`` rows and ``ref_len`` columns."""

    query_len: int
    ref_len: int
    highest: int  # diagonal j - i
    n_rows: int  # of each antidiagonal, a multiple of BLOCK


def difference_type(scoring: TwoPieceScoring) -> type[np.signedinteger]:
    """Return the narrowest type that holds all differences.

    Raises
    ------
    UsageError
        If 16 bits do not, or if the first piece is the flatter one.
    """
    a, b, o1, e1, o2, e2, _ = scoring
    if e2 > e1:
        raise UsageError(
            f"gap extensions {e1} and {e2}: the second piece of a gap's cost is the flatter one"
        )
    # A gap that goes on behind another gap, or from outside the band, below a match.
    step = max(b, min(o1 + e1, o2 + e2))
    widest = a + step + max(o1 + 2 * e1, o2 + 2 * e2)
    for kind in (np.int8, np.int16):
        if widest <= np.iinfo(kind).max:
            return kind
    raise UsageError(f"scores {tuple(scoring)}: they exceed what alignment with 16 bits can hold")


def new_band_space(n_symbols: int, scoring: TwoPieceScoring) -> BandSpace:
    """Allocate workspace with `n_symbols` items by row and by column (:func:`band_symbols`)."""
    kind = difference_type(scoring)
    symbols = (np.empty(n_symbols, np.uint8) for _ in range(2))
    return BandSpace(*symbols, *(np.empty(n_symbols, kind) for _ in range(6)))


@core
def band_symbols(shape):
    """Return how many items by row and by column a band needs."""
    return max(shape.query_len, shape.ref_len) + 2 * shape.n_rows + 1


@core
def band_around(query_len, ref_len, n_rows):
    """Return the shape of a band with the diagonals of both corners in its middle."""
    return BandShape(query_len, ref_len, (ref_len - query_len + 2 * n_rows - 1) >> 1, n_rows)


@core
def whole_matrix(query_len, ref_len):
    """Return the shape of a band that holds all cells; antidiagonals begin at row 1."""
    n_rows = (query_len + BLOCK - 1) // BLOCK * BLOCK
    return BandShape(query_len, ref_len, query_len + ref_len, n_rows)


@core
def first_row(t, highest):
    """Return the first row of antidiagonal t in a band."""
    return max(np.int64(1), (t - highest + 1) >> 1)


# --- recurrence ---


def narrow(value, like):
    """Return a number as one of the type of another."""
    return type(like)(value)


@overload(narrow, jit_options={"forceinline": True, "_nrt": False})
def _narrow_compiled(value, like):
    if like == types.int8:
        return lambda value, like: np.int8(value)
    return lambda value, like: np.int16(value)


class Costs(NamedTuple):
    """Summands, of the type of the differences."""

    match: int
    mismatch: int
    ambiguous: int  # of two symbols of which one is ambiguous
    opening1: int  # of the first symbol of a gap
    opening2: int
    extend1: int  # of each further one
    extend2: int
    tie: int  # 1 if the later of equal ways is taken, else 0


@core
def costs_of(scoring, gaps_first, like):
    """Return the summands as numbers of the type of `like`."""
    return Costs(
        narrow(scoring.match, like), narrow(-scoring.mismatch, like),
        narrow(-ambiguous_cost(scoring), like),
        narrow(-scoring.gap_open1 - scoring.gap_extend1, like),
        narrow(-scoring.gap_open2 - scoring.gap_extend2, like),
        narrow(-scoring.gap_extend1, like), narrow(-scoring.gap_extend2, like),
        narrow(1 if gaps_first else 0, like),
    )  # fmt: skip


@core
def ambiguous_cost(scoring):
    """Return the cost of a symbol beside an ambiguous one."""
    return min(scoring.ambiguous, scoring.mismatch)


@core
def gap_cost(length, scoring):
    """Return the cost of a gap; 0 for none."""
    if length == 0:
        return np.int64(0)
    return np.int64(
        min(
            scoring.gap_open1 + length * scoring.gap_extend1,
            scoring.gap_open2 + length * scoring.gap_extend2,
        )
    )


@core
def _gap_beyond(gap, score, opening, extend, tie):
    """Return a gap into the next cell, relative to `score`, and True if it is a longer one."""
    lengthened = narrow(gap + extend - score, opening)
    return max(lengthened, opening), narrow(lengthened + tie, opening) > opening


@core
def two_piece_cell(matched, above, insertion1, insertion2, left, deletion1, deletion2, costs):
    """Compute one cell from the differences passed on by the cells above and on the left.

    Parameters
    ----------
    matched
        Score of the two symbols.
    above, insertion1, insertion2
        H(i-1, j) - H(i-1, j-1), and I1(i, j) and I2(i, j) less H(i-1, j).
    left, deletion1, deletion2
        H(i, j-1) - H(i-1, j-1), and D1(i, j) and D2(i, j) less H(i, j-1).

    Returns
    -------
    left, deletion1, deletion2, above, insertion1, insertion2, origin
        For the next cells.
    """
    tie = costs.tie
    d1, d2 = narrow(deletion1 + left, left), narrow(deletion2 + left, left)
    i1, i2 = narrow(insertion1 + above, left), narrow(insertion2 + above, left)
    score = matched
    source = np.uint8(_DIAGONAL)
    source = np.uint8(_D1) if narrow(d1 + tie, left) > score else source
    score = max(score, d1)
    source = np.uint8(_D2) if narrow(d2 + tie, left) > score else source
    score = max(score, d2)
    source = np.uint8(_I1) if narrow(i1 + tie, left) > score else source
    score = max(score, i1)
    source = np.uint8(_I2) if narrow(i2 + tie, left) > score else source
    score = max(score, i2)
    d1, d1_longer = _gap_beyond(d1, score, costs.opening1, costs.extend1, tie)
    d2, d2_longer = _gap_beyond(d2, score, costs.opening2, costs.extend2, tie)
    i1, i1_longer = _gap_beyond(i1, score, costs.opening1, costs.extend1, tie)
    i2, i2_longer = _gap_beyond(i2, score, costs.opening2, costs.extend2, tie)
    origin = source
    origin |= np.uint8(_LENGTHENED << _D1) if d1_longer else np.uint8(0)
    origin |= np.uint8(_LENGTHENED << _D2) if d2_longer else np.uint8(0)
    origin |= np.uint8(_LENGTHENED << _I1) if i1_longer else np.uint8(0)
    origin |= np.uint8(_LENGTHENED << _I2) if i2_longer else np.uint8(0)
    return narrow(score - above, left), d1, d2, narrow(score - left, left), i1, i2, origin


@disjoint_core
def _fill_blocks(query, ref, left, deletions1, deletions2, above, insertions1, insertions2, cells,
                 n_blocks, row, column, cell, costs, lanes):  # fmt: skip
    """Compute blocks of an antidiagonal; `cells` is None if no origins are wanted.

    Indices are uint64, as one that may be negative would be checked for that.
    """
    for _ in range(n_blocks):
        for lane in range(lanes.lane, BLOCK, lanes.n_lanes):
            r, c = row + np.uint64(lane), column + np.uint64(lane)
            matched = costs.ambiguous if (query[r] | ref[c]) >= AMBIGUOUS else costs.mismatch
            matched = costs.match if query[r] == ref[c] else matched
            down, d1, d2, right, i1, i2, origin = two_piece_cell(
                matched, above[c], insertions1[c], insertions2[c], left[r], deletions1[r],
                deletions2[r], costs,
            )  # fmt: skip
            left[r], deletions1[r], deletions2[r] = down, d1, d2
            above[c], insertions1[c], insertions2[c] = right, i1, i2
            if cells is not None:
                cells[cell + np.uint64(lane)] = origin
        row += np.uint64(BLOCK)
        column += np.uint64(BLOCK)
        cell += np.uint64(BLOCK)


@core
def _set_all(numbers, n, value, lanes):
    for i in range(lanes.lane, n, lanes.n_lanes):
        numbers[i] = value


@core
def edge_cost(length, n_free, scoring):
    """Return the cost of `length` symbols before the alignment, `n_free` of which cost nothing."""
    return gap_cost(max(length - n_free, np.int64(0)), scoring)


@core
def begin_band(space, shape, n_free, scoring, costs, lanes):
    """Write the differences of row 0, and those from outside the band.

    The first `n_free` symbols of the reference may stay unaligned.
    """
    zero = narrow(0, costs.match)
    # A gap from outside the band must not even go on: one that opens at the cell costs less.
    never1 = narrow(costs.mismatch + costs.opening1, costs.match)
    never2 = narrow(costs.mismatch + costs.opening2, costs.match)
    n_rows = shape.query_len + shape.n_rows + 1
    n_columns = shape.ref_len + 2 * shape.n_rows + 1
    _set_all(space.left, n_rows, zero, lanes)
    _set_all(space.deletions1, n_rows, never1, lanes)
    _set_all(space.deletions2, n_rows, never2, lanes)
    _set_all(space.above, n_columns, zero, lanes)
    _set_all(space.insertions1, n_columns, never1, lanes)
    _set_all(space.insertions2, n_columns, never2, lanes)
    lanes_meet(lanes)
    column = shape.ref_len + shape.n_rows
    before = edge_cost(np.int64(lanes.lane), n_free, scoring)
    for j in range(1 + lanes.lane, min(shape.highest, shape.ref_len) + 1, lanes.n_lanes):
        cost = edge_cost(np.int64(j), n_free, scoring)
        space.above[column - j] = narrow(before - cost, costs.match)
        space.insertions1[column - j] = costs.opening1
        space.insertions2[column - j] = costs.opening2
        before = cost
        if lanes.n_lanes > 1:
            before = edge_cost(np.int64(j - 1 + lanes.n_lanes), n_free, scoring)
    lanes_meet(lanes)


@core
def rows_inside(shape, t):
    """Return the first and last row of antidiagonal t that are in the band and the matrix."""
    first = first_row(t, shape.highest)
    return max(first, t - shape.ref_len), min(min(first + shape.n_rows, t) - 1, shape.query_len)


@core
def fill_antidiagonal(space, shape, t, n_free, scoring, costs, cells, at, lanes):
    """Compute antidiagonal t >= 2, after those before; its origins lie from ``cells[at]`` on.

    The first `n_free` symbols of the query may stay unaligned. Lanes share the rows, and have met
    before and after.
    """
    first = first_row(t, shape.highest)
    lo, hi = rows_inside(shape, t)
    i = t - 1
    if i < first + shape.n_rows and lanes.lane == 0:  # the first column
        before, cost = edge_cost(i - 1, n_free, scoring), edge_cost(i, n_free, scoring)
        space.left[i] = narrow(before - cost, costs.match)
        space.deletions1[i], space.deletions2[i] = costs.opening1, costs.opening2
    lanes_meet(lanes)
    skipped = (lo - first) // BLOCK * BLOCK
    n_blocks = (hi - first - skipped) // BLOCK + 1
    row = first + skipped
    _fill_blocks(
        space.query, space.ref, space.left, space.deletions1, space.deletions2, space.above,
        space.insertions1, space.insertions2, cells, n_blocks, np.uint64(row),
        np.uint64(shape.ref_len + shape.n_rows - t + row), np.uint64(at + skipped), costs, lanes,
    )  # fmt: skip
    lanes_meet(lanes)


@core
def global_score(space, shape, scoring, costs, cells, lanes):
    """Compute the whole band; return the best score from corner to corner.

    `cells` (uint8, ``(query_len + ref_len - 1) * n_rows`` items, or None) receives the origins.
    Both lengths are at least 1. Lanes share the rows, and have met before and after.
    """
    none = np.int64(0)
    begin_band(space, shape, none, scoring, costs, lanes)
    goal = shape.ref_len - shape.query_len
    score = -gap_cost(abs(goal), scoring)
    at = np.int64(0)
    for t in range(2, shape.query_len + shape.ref_len + 1):
        i = (t - goal) >> 1
        on_goal = t > abs(goal) and (t - goal) & 1 == 0
        if on_goal:
            score += space.above[shape.ref_len + shape.n_rows - t + i]
        fill_antidiagonal(space, shape, t, none, scoring, costs, cells, at, lanes)
        if on_goal:
            score += space.left[i]
        at += shape.n_rows
    return score


@core
def free_ends_score(space, shape, ends, scoring, costs, cells, lanes):
    """Compute the whole band; return the best score of an alignment that leaves only `ends` out.

    Parameters
    ----------
    ends
        Symbols that may stay unaligned at the query's begin and end and at the reference's
        (``align.edit.wavefront.Ends``), none more than there are.
    cells
        As for :func:`global_score`.

    Returns
    -------
    score, i, j
        Numbers of symbols before the alignment's end; of equal ones those of the lowest diagonal.
    """
    n, m = np.int64(shape.query_len), np.int64(shape.ref_len)
    begin_band(space, shape, ends.ref_begin, scoring, costs, lanes)
    goal = m - n
    score = -edge_cost(max(goal, 0), ends.ref_begin, scoring)
    score -= edge_cost(max(-goal, 0), ends.query_begin, scoring)
    # Sums of differences along the last row and column, from where they enter the band.
    unset = np.int64(-(2**62))
    row_sum, best_of_row, best_j = np.int64(0), unset, m
    column_sum, best_of_column, best_i = np.int64(0), unset, n
    at = np.int64(0)
    for t in range(2, n + m + 1):
        i = (t - goal) >> 1
        on_goal = t > abs(goal) and (t - goal) & 1 == 0
        if on_goal:
            score += space.above[m + shape.n_rows - t + i]
        fill_antidiagonal(space, shape, t, ends.query_begin, scoring, costs, cells, at, lanes)
        if on_goal:
            score += space.left[i]
        at += shape.n_rows
        lo, hi = rows_inside(shape, t)
        if hi == n:
            j = t - n
            row_sum += space.above[m + shape.n_rows - j]
            if m - j <= ends.ref_end and row_sum > best_of_row:
                best_of_row, best_j = row_sum, j
        if lo == t - m:
            column_sum += space.left[lo]
            if n - lo <= ends.query_end and column_sum >= best_of_column:
                best_of_column, best_i = column_sum, lo
    # Both sums end at the corner, whose score is known.
    best, i, j = score - row_sum + best_of_row, n, best_j
    in_column = score - column_sum + best_of_column
    if in_column > best:
        best, i, j = in_column, best_i, m
    # Nothing beside anything: the first cell of the last row, and the last column's.
    inserted = -edge_cost(n, ends.query_begin, scoring)
    if m <= ends.ref_end and inserted >= best:
        best, i, j = inserted, n, np.int64(0)
    deleted = -edge_cost(m, ends.ref_begin, scoring)
    if n <= ends.query_end and deleted > best:
        best, i, j = deleted, np.int64(0), m
    return best, i, j


# --- width ---


@core
def _best_outside(n, m, margin, scoring):
    """Return the highest score of a global alignment that leaves a band.

    `margin` diagonals beyond those of both corners belong to the band, on both sides.
    """
    insertions = margin + 1 + max(n - m, np.int64(0))
    deletions = margin + 1 + max(m - n, np.int64(0))
    matched = min(n - insertions, m - deletions)
    if matched < 0:
        return np.int64(-(2**62))  # the matrix has no such diagonal
    return scoring.match * matched - gap_cost(insertions, scoring) - gap_cost(deletions, scoring)


@core
def rows_for(n, m, score, scoring):
    """Return the rows of a band that holds all alignments of `score`, and better ones."""
    n_rows = least_rows(n, m)
    while _best_outside(n, m, _margin(n, m, n_rows), scoring) >= score:
        n_rows += BLOCK
    return n_rows


@core
def least_rows(n, m):
    """Return the rows of a band that holds both corners and their neighbouring diagonals."""
    return ((abs(m - n) >> 1) + 2 + BLOCK - 1) // BLOCK * BLOCK


@core
def _margin(n, m, n_rows):
    """Return how many diagonals beyond those of the corners a band has on both sides."""
    highest = (m - n + 2 * n_rows - 1) >> 1
    lowest = highest - 2 * n_rows + 1
    zero = np.int64(0)
    return min(highest - max(zero, m - n), min(zero, m - n) - lowest)


# --- traceback ---


@core
def trace_to_edge(space, shape, cells, at, i, j, swapped, ops, n_ops):
    """Trace a path back from cell (i, j) to row 0 or the first column; append its operations.

    Parameters
    ----------
    cells, at
        Origins of the band lie from ``cells[at]`` on.
    swapped
        True if the band's query is the reference of the alignment.

    Returns
    -------
    n_ops, i, j
        The new number of operations, the last first, with room for two more, or -1 if `ops` is
        full; and the cell that was reached.
    """
    most = len(ops) - 1
    column = shape.ref_len + shape.n_rows
    state = np.int64(_DIAGONAL)
    length = np.int64(0)
    code = np.int64(EQUAL)
    insertion, deletion = (np.int64(D), np.int64(I)) if swapped else (np.int64(I), np.int64(D))
    while i > 0 and j > 0:
        t = i + j
        origin = np.int64(cells[at + (t - 2) * shape.n_rows + i - first_row(t, shape.highest)])
        if state != _DIAGONAL and origin & (_LENGTHENED << state) == 0:
            state = np.int64(_DIAGONAL)
        if state == _DIAGONAL:
            state = origin & _SOURCE
        if state == _DIAGONAL:
            here = np.int64(EQUAL if space.query[i] == space.ref[column - j] else X)
            i -= 1
            j -= 1
        elif state >= _I1:
            here = insertion
            i -= 1
        else:
            here = deletion
            j -= 1
        if here != code:
            if n_ops >= most:
                return np.int64(-1), i, j
            n_ops = append_op(ops, n_ops, code, length)
            code, length = here, np.int64(0)
        length += 1
    if n_ops + 2 >= most:
        return np.int64(-1), i, j
    return np.int64(append_op(ops, n_ops, code, length)), i, j


@core
def trace_band(space, shape, cells, at, i, j, swapped, ops, n_ops):
    """Trace a path back from cell (i, j) to the corner, and append its operations, last first.

    Parameters are those of :func:`trace_to_edge`. Returns the new number of operations; -1 if `ops`
    is full.
    """
    n_ops, i, j = trace_to_edge(space, shape, cells, at, i, j, swapped, ops, n_ops)
    if n_ops < 0:
        return np.int64(-1)
    n_ops = append_op(ops, n_ops, D if swapped else I, i)
    return np.int64(append_op(ops, n_ops, I if swapped else D, j))
