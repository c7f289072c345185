"""Gap-affine alignment by a band of the matrix, in differences of eight bits, on the CPU.

The cells of wavefronts grow with the square of the penalty, and each follows its matches by itself;
the cells of a band of the matrix grow with penalty times length, but 32 are computed at a time.
Where the penalty is high for the length the band is faster.

**Cells.** The cells of an antidiagonal are independent, and scores of neighbours differ by little:
with differences in place of scores a cell takes a byte, and a vector register holds 32 cells. The
cell is that of ``matrix/dp.py``, whose arithmetic is independent of the origin of scores; here they
count from H(i-1, j-1). A cell passes on, relative to its own score, the values that its neighbours
look back to: H on both sides, and the gaps that continue or begin after it.

**Band.** Of every antidiagonal ``t = i + j`` a band holds the same number of rows i, from
:func:`first_row` on, and so 2 `n_rows` diagonals, `highest` the highest. Rows and columns outside
the matrix are computed, too, and lead to no cell inside. Values from outside the band never win.

**Exactness.** An alignment that leaves a band of 2 n diagonals around both ends opens two gaps and
extends them by 2 n symbols. A band whose best alignment costs less contains all optimal ones;
otherwise a wider band follows.

**Ties.** Of equal ways into a cell the same is taken as by farthest-reaching wavefronts, so that
paths are identical (:func:`mapper.align.affine.wavefront.affine_cell`): where symbols differ the
mismatch, before a deletion, before an insertion; where they are equal a gap that ends there, as the
match is found to go before it.

References
----------
Suzuki and Kasahara (2018), doi:10.1186/s12859-018-2014-8: differences that are bounded by the
penalties alone, whatever the lengths. Li (2018), doi:10.1093/bioinformatics/bty191, section 2.2.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.matrix.cells import ByteCell, higher, minus, plus
from mapper.align.matrix.dp import GLOBAL, BandOrigins, Gaps, first_row, next_cell, trace_matrix
from mapper.jit.accelerate import core, disjoint_driver, driver

BLOCK = 32
"""Rows computed at a time; a band has a multiple of it."""

_NOT_DIAGONAL_BIT = np.uint32(3)


class BandSpace(NamedTuple):
    """Workspace.

    By row, i from 1 on: n + `n_rows` + 1 items. By column, the highest first, j in item
    m + `n_rows` - j: m + 2 `n_rows` items.
    """

    query: np.ndarray  # uint8, codes of symbols
    ref: np.ndarray  # uint8, by column
    left: np.ndarray  # int8, by row: H(i, j) - H(i-1, j) of the column before
    deletions: np.ndarray  # int8, by row: D(i, j) - H(i, j-1)
    above: np.ndarray  # int8, by column: H(i, j) - H(i, j-1) of the row before
    insertions: np.ndarray  # int8, by column: I(i, j) - H(i-1, j)


@core
def fits_bytes(penalties):
    """Return True if all differences fit eight bits."""
    opening = penalties.gap_open + penalties.gap_extend
    return opening + penalties.gap_extend + max(opening, penalties.mismatch) < 128


@core
def difference_cell(equal, mismatch, above, insertion, left, deletion, cells):
    """Compute one cell from the values passed on by the cells above and on the left.

    Parameters
    ----------
    equal
        True if the symbols match.
    above, insertion
        H(i-1, j) - H(i-1, j-1), and I(i, j) - H(i-1, j).
    left, deletion
        H(i, j-1) - H(i-1, j-1), and D(i, j) - H(i, j-1).

    Returns
    -------
    H(i, j) - H(i-1, j), H(i, j) - H(i, j-1), I(i+1, j) - H(i, j), D(i, j+1) - H(i, j), bits
    """
    matched = cells.floor if equal else mismatch
    insertion = plus(insertion, above, cells)
    deletion = plus(deletion, left, cells)
    score, below, behind, bits = next_cell(matched, insertion, deletion, False, cells)
    ends_gap = np.uint32(equal) & np.uint32(higher(insertion, deletion, cells) == score)
    bits = np.uint32(bits) | np.uint32(ends_gap << _NOT_DIAGONAL_BIT)
    return (
        minus(score, above, cells), minus(score, left, cells), minus(below, score, cells),
        minus(behind, score, cells), bits,
    )  # fmt: skip


@core
def _begin(space, n_rows, highest, query_len, ref_len, mismatch, cells):
    """Write the values passed on by the first row and from outside the band."""
    never = np.int8(cells.opening + mismatch)
    for i in range(query_len + n_rows + 1):
        space.left[i] = 0
        space.deletions[i] = never
    for at in range(ref_len + 2 * n_rows):
        space.above[at] = 0
        space.insertions[at] = never
    zero = ref_len + n_rows
    for j in range(1, min(highest, ref_len) + 1):
        space.above[zero - j] = cells.opening if j == 1 else cells.extend
        space.insertions[zero - j] = cells.opening


@disjoint_driver
def fill_band(space, query_len, ref_len, highest, n_rows, penalties, origins):
    """Compute all cells of a band.

    Parameters
    ----------
    space
        With the symbols in it.
    highest, n_rows
        The band; it holds diagonal 0 and that of the end, and their neighbours.
    origins
        uint8, ``(query_len + ref_len - 1) * n_rows`` items for the traceback; or None.

    Returns
    -------
    Penalty of the best global alignment within the band.
    """
    extend = np.int8(-penalties.gap_extend)
    opening = np.int8(-penalties.gap_open - penalties.gap_extend)
    cells = ByteCell(opening, extend, np.int8(0), extend)
    mismatch = np.int8(-penalties.mismatch)
    _begin(space, n_rows, highest, query_len, ref_len, mismatch, cells)
    query, ref, left, deletions = space.query, space.ref, space.left, space.deletions
    above, insertions = space.above, space.insertions
    goal = ref_len - query_len
    penalty = np.int64(0)
    if goal != 0:
        penalty = penalties.gap_open + penalties.gap_extend * abs(goal)
    zero = ref_len + n_rows
    # Unsigned, as an index that may be negative would be checked for that.
    cell = np.uint64(0)
    block = np.uint64(BLOCK)
    for t in range(2, query_len + ref_len + 1):
        first = first_row(t, highest)
        if t - 1 < first + n_rows:  # the first column
            left[t - 1] = opening if t == 2 else extend
            deletions[t - 1] = opening
        i = (t - goal) >> 1
        on_goal = t > abs(goal) and (t - goal) & 1 == 0
        if on_goal:
            penalty -= left[i]
        row = np.uint64(first)
        column = np.uint64(zero - t + first)
        for _ in range(n_rows // BLOCK):
            for lane in range(BLOCK):
                r, c = row + np.uint64(lane), column + np.uint64(lane)
                left[r], above[c], insertions[c], deletions[r], bits = difference_cell(
                    query[r] == ref[c], mismatch, above[c], insertions[c], left[r], deletions[r],
                    cells,
                )  # fmt: skip
                if origins is not None:
                    origins[cell + np.uint64(lane)] = bits
            row += block
            column += block
            cell += block
        if on_goal:
            penalty -= above[zero - t + i]
    return penalty


WIDEST_GUESS = 8 * BLOCK
"""Most rows of a band whose width is set by the estimate from the first wavefronts. Beyond, a band
of NARROW rows first finds the penalty of some alignment."""

NARROW = 2 * BLOCK


class DpSpace(NamedTuple):
    """Workspace that grows."""

    band: BandSpace
    origins: np.ndarray  # uint8
    ops: np.ndarray  # uint32: operations, last one first


@driver
def new_dp_space(n_symbols, n_cells, n_ops):
    """Allocate workspace for sequences and rows of a band of so many items together."""
    symbols = np.empty((2, n_symbols), np.uint8)
    numbers = np.empty((4, n_symbols), np.int8)
    band = BandSpace(symbols[0], symbols[1], numbers[0], numbers[1], numbers[2], numbers[3])
    return DpSpace(band, np.empty(n_cells, np.uint8), np.empty(n_ops, np.uint32))


@core
def _write_symbols(letters, n, m, n_rows, band):
    """Copy the symbols to where a band of `n_rows` rows reads them."""
    for i in range(n):
        band.query[i + 1] = letters.query[i]
    last = m + n_rows - 1
    for j in range(m):
        band.ref[last - j] = letters.ref[j]


@driver
def rows_for(penalty, penalties):
    """Return the rows of a band that no alignment of this penalty leaves."""
    least = (penalty - 2 * penalties.gap_open) // (2 * penalties.gap_extend) + 1
    return max(np.int64(1), (least + BLOCK - 1) // BLOCK) * BLOCK


@driver
def _rows_around(goal):
    """Return the rows of a band that holds both ends and their neighbouring diagonals."""
    return (abs(goal) // 2 + 2 + BLOCK - 1) // BLOCK * BLOCK


@driver
def dp_align(pair, letters, penalties, guess, bound, max_cells, want_path, space):
    """Align a pair from end to end.

    Parameters
    ----------
    letters
        Of the pair; fenced or not.
    guess
        Estimate of the penalty; without effect on the result.
    bound
        Penalties above it are of no interest.
    max_cells
        Bytes that origins may take.

    Returns
    -------
    penalty, n_ops, space
        n_ops is -1 without a path: the penalty is too high, or there is no memory for it. The
        workspace, which may have been replaced, has the operations, the last first.
    """
    n, m = pair.query_len, pair.ref_len
    goal = m - n
    least_rows = _rows_around(goal)
    n_rows = max(least_rows, rows_for(min(guess + guess // 8, bound), penalties))
    with_path = want_path != 0
    if n_rows > max(np.int64(WIDEST_GUESS), least_rows):
        n_rows = max(least_rows, np.int64(NARROW))
        with_path = False
    # A band whose best alignment costs much more is probably too narrow for a good one.
    likely = guess + guess // 4
    while True:
        n_symbols = n + m + 2 * n_rows + 1
        if n_symbols > len(space.band.query):
            space = new_dp_space(2 * n_symbols, len(space.origins), len(space.ops))
        _write_symbols(letters, n, m, n_rows, space.band)
        n_cells = (n + m - 1) * n_rows
        with_path = with_path and n_cells <= max_cells
        if with_path and n_cells > len(space.origins):
            space = DpSpace(space.band, np.empty(n_cells + n_cells // 4, np.uint8), space.ops)
        highest = (goal + 2 * n_rows - 1) >> 1
        if with_path:
            penalty = fill_band(space.band, n, m, highest, n_rows, penalties, space.origins)
        else:
            penalty = fill_band(space.band, n, m, highest, n_rows, penalties, None)
        needed = max(least_rows, rows_for(min(penalty, bound), penalties))
        if needed > n_rows:
            with_path = want_path != 0
            if penalty > likely and needed > 4 * n_rows:
                needed = 4 * n_rows
                with_path = False
            likely = penalty + penalty // 8
            n_rows = needed
            continue
        if penalty > bound:
            return penalty, np.int64(-1), space
        if with_path:
            break
        if want_path == 0 or (n + m - 1) * needed > max_cells:
            return penalty, np.int64(-1), space
        with_path = True
        n_rows = needed
    if n + m + 2 > len(space.ops):
        space = DpSpace(space.band, space.origins, np.empty(2 * (n + m + 2), np.uint32))
    n_ops, _, _ = trace_matrix(
        letters.query, letters.ref, np.zeros((1, 1), np.int32), Gaps(np.int64(0), np.int64(0)),
        BandOrigins(space.origins, highest, n_rows), np.int64(GLOBAL), np.int64(0), n, m, space.ops,
    )  # fmt: skip
    return penalty, n_ops, space
