"""Core: where the wavefronts of one alignment are kept, and how a cell of them is read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.extend.penalties import Penalties
from mapper.jit.accelerate import core

NULL = -(2**20)
"""Offset of a cell that does not exist; leaves room to add to it, and to multiply it by a doubled
match of up to 1000, in 32 bits."""


class Wavefronts(NamedTuple):
    """Work space of one alignment: every wavefront, for the backtrace.

    The wavefront of penalty s is ``lo[s]:hi[s]`` (inclusive bounds, in diagonals; empty where
    lo > hi). Wavefronts lie one behind the other: diagonal k is item ``start[s] + k``.
    """

    match: np.ndarray  # int32 (n_cells,)
    insertion: np.ndarray  # int32, same shape
    deletion: np.ndarray  # int32, same shape
    lo: np.ndarray  # int32 (n_penalties,)
    hi: np.ndarray  # int32 (n_penalties,)
    start: np.ndarray  # int32 (n_penalties,)


class WavefrontSizes(NamedTuple):
    """Items of the parts of :class:`Wavefronts`."""

    cells: int
    penalties: int


def wavefront_sizes(
    max_read_len: int, max_gap: int, penalties: Penalties, end_bonus: int
) -> WavefrontSizes:
    """Return the work space that any read up to `max_read_len` fits.

    A cell of penalty s on diagonal k lives only while ``2 (v a + bonus) + k a - s > 0``
    with v at most the read's length and k at most `max_gap`.
    """
    rows = (2 * max_read_len + max_gap) * penalties.match + 2 * end_bonus + 2
    return WavefrontSizes(rows * (2 * max_gap + 1), rows)


def new_wavefronts(
    max_read_len: int, max_gap: int, penalties: Penalties, end_bonus: int
) -> Wavefronts:
    """Allocate work space that any read up to `max_read_len` fits."""
    sizes = wavefront_sizes(max_read_len, max_gap, penalties, end_bonus)
    cells = (np.empty(sizes.cells, np.int32) for _ in range(3))
    bounds = (np.empty(sizes.penalties, np.int32) for _ in range(3))
    return Wavefronts(*cells, *bounds)


@core
def row_of(wavefronts, s):
    """Bounds and start of the wavefront of penalty s; empty for a negative s."""
    if s < 0:
        return np.int32(1), np.int32(0), np.int32(0)
    row = np.uint32(s)
    return wavefronts.lo[row], wavefronts.hi[row], wavefronts.start[row]


@core
def cell(cells, row, k):
    """Offset on diagonal k of a wavefront (:func:`row_of`), or NULL."""
    lo, hi, start = row
    if k < lo or k > hi:
        return np.int32(NULL)
    return cells[np.uint32(start + k)]


@core
def end_row(wavefronts, s, lo, hi, start):
    """Store the bounds and the start of the wavefront of penalty s."""
    row = np.uint32(s)
    wavefronts.lo[row] = lo
    wavefronts.hi[row] = hi
    wavefronts.start[row] = start


@core
def beside(k_lo, k_hi, row):
    """Widen bounds to the diagonals that gaps lead to from a wavefront."""
    return min(k_lo, np.int32(row[0] - 1)), max(k_hi, np.int32(row[1] + 1))
