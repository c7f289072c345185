"""Core and loop: a band of the matrix by antidiagonals, in differences of eight bits.

The cells of an antidiagonal do not depend on each other, and scores of neighbours differ by
little: with differences instead of scores a cell takes a byte, and a vector register 32 cells.
The cell is that of ``dp_matrix.py``, whose arithmetic does not mind from where scores count; here
they count from H(i-1, j-1). A cell hands on, as seen from its own score, what its neighbours look
back to: H on both sides, and the gaps that go on or begin behind it.

A band holds, of every antidiagonal ``t = i + j``, the same number of rows i, from
:func:`first_row` on, and so 2 `n_rows` diagonals, `highest` the highest. What is computed for rows
and columns outside the matrix leads to none inside. What would come from beyond the band
never wins.

Of equal ways into a cell that which farthest-reaching wavefronts keep is taken, so that paths are
theirs (``affine_origins.py``): where symbols differ the mismatch, before a deletion, before an
insertion; where they are equal a gap that ends there, as the match is found to go before it.

References
----------
Suzuki and Kasahara (2018), doi:10.1186/s12859-018-2014-8: differences that are bounded by the
penalties alone, whatever the lengths. Li (2018), doi:10.1093/bioinformatics/bty191, section 2.2.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.matrix.cells import ByteCell, higher, minus, plus
from mapper.align.matrix.dp import next_cell
from mapper.align.matrix.origins import first_row
from mapper.jit.accelerate import core, disjoint_driver

BLOCK = 32
"""Rows that are computed at a time; a band has a multiple of it."""

_NOT_DIAGONAL_BIT = np.uint32(3)


class BandSpace(NamedTuple):
    """Work space.

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
    """Whether all differences fit eight bits."""
    opening = penalties.gap_open + penalties.gap_extend
    return opening + penalties.gap_extend + max(opening, penalties.mismatch) < 128


@core
def difference_cell(equal, mismatch, above, insertion, left, deletion, cells):
    """Compute one cell from what the one above and the one on the left hand on.

    Parameters
    ----------
    equal
        Whether the symbols match.
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
    """Write what the first row and what is beyond the band hand on."""
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
def fill_band(space, query_len, ref_len, highest, n_rows, penalties, origins, keep):
    """Compute all cells of a band.

    Parameters
    ----------
    space
        With the symbols in it.
    highest, n_rows
        The band; it holds diagonal 0 and that of the end, and those beside them.
    origins
        uint8, for ``(query_len + ref_len - 1) * n_rows`` bytes if `keep`.

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
            if keep:
                for lane in range(BLOCK):
                    r, c = row + np.uint64(lane), column + np.uint64(lane)
                    left[r], above[c], insertions[c], deletions[r], bits = difference_cell(
                        query[r] == ref[c], mismatch, above[c], insertions[c], left[r],
                        deletions[r], cells,
                    )  # fmt: skip
                    origins[cell + np.uint64(lane)] = bits
            else:
                for lane in range(BLOCK):
                    r, c = row + np.uint64(lane), column + np.uint64(lane)
                    left[r], above[c], insertions[c], deletions[r], _ = difference_cell(
                        query[r] == ref[c], mismatch, above[c], insertions[c], left[r],
                        deletions[r], cells,
                    )  # fmt: skip
            row += block
            column += block
            cell += block
        if on_goal:
            penalty -= above[zero - t + i]
    return penalty
