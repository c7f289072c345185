"""CPU driver of gap-affine alignment by a band of the matrix, for pairs with high penalties.

The cells of wavefronts grow with the square of the penalty, and each follows its matches by
itself; the cells of a band of the matrix grow with penalty times length, but 32 are computed at
a time (``dp_band.py``). Where the penalty is not low for the length the band is faster.

No heuristic: an alignment that leaves a band of 2 n diagonals around both ends opens two gaps and
lengthens them by 2 n symbols. A band whose best alignment costs less than that has all of the best
ones, and another is followed by a wider.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.affine.banded import BLOCK, BandSpace, fill_band
from mapper.align.matrix.dp import GLOBAL, Gaps, trace_matrix
from mapper.align.matrix.origins import BandOrigins
from mapper.jit.accelerate import core, driver

WIDEST_GUESS = 8 * BLOCK
"""Rows of a band up to which a guess from the first wavefronts says how wide a band is. Beyond, a
band of NARROW rows tells first what some alignment costs."""

NARROW = 2 * BLOCK


class DpSpace(NamedTuple):
    """Work space that grows."""

    band: BandSpace
    origins: np.ndarray  # uint8
    ops: np.ndarray  # uint32: operations, last one first


@driver
def new_dp_space(n_symbols, n_cells, n_ops):
    """Allocate work space for sequences and rows of a band of so many items together."""
    symbols = np.empty((2, n_symbols), np.uint8)
    numbers = np.empty((4, n_symbols), np.int8)
    band = BandSpace(symbols[0], symbols[1], numbers[0], numbers[1], numbers[2], numbers[3])
    return DpSpace(band, np.empty(n_cells, np.uint8), np.empty(n_ops, np.uint32))


@core
def _write_symbols(letters, n, m, n_rows, band):
    """Write the symbols where a band of so many rows looks for them."""
    for i in range(n):
        band.query[i + 1] = letters.query[i]
    last = m + n_rows - 1
    for j in range(m):
        band.ref[last - j] = letters.ref[j]


@driver
def rows_for(penalty, penalties):
    """Rows of a band that no alignment of this penalty leaves."""
    least = (penalty - 2 * penalties.gap_open) // (2 * penalties.gap_extend) + 1
    return max(np.int64(1), (least + BLOCK - 1) // BLOCK) * BLOCK


@driver
def _rows_around(goal):
    """Rows of a band that holds both ends and the diagonals beside them."""
    return (abs(goal) // 2 + 2 + BLOCK - 1) // BLOCK * BLOCK


@driver
def dp_align(pair, letters, penalties, guess, bound, max_cells, want_path, space):
    """Align a pair from end to end.

    Parameters
    ----------
    letters
        Of the pair; fenced or not.
    guess
        What the penalty may be; without effect on the result.
    bound
        Penalties above it are of no interest.
    max_cells
        Bytes that origins may take.

    Returns
    -------
    penalty, n_ops, space
        n_ops is -1 where there is none: the penalty is too high, or there is no memory for a path.
        The work space, which may have been replaced, has the operations, last one first.
    """
    n, m = pair.query_len, pair.ref_len
    goal = m - n
    least_rows = _rows_around(goal)
    n_rows = max(least_rows, rows_for(min(guess + guess // 8, bound), penalties))
    with_path = want_path != 0
    if n_rows > max(np.int64(WIDEST_GUESS), least_rows):
        n_rows = max(least_rows, np.int64(NARROW))
        with_path = False
    # Where a band finds much more it may be too narrow for anything good.
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
        penalty = fill_band(
            space.band, n, m, highest, n_rows, penalties, space.origins, np.int64(with_path)
        )
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
