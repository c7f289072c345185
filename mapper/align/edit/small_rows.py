"""Core: edit-distance wavefronts of small distances, every row in a square of cells.

Wavefront s of a global alignment has the diagonals -s to s and lies behind those before it:
diagonal k in cell ``s * s + s + k``. Nothing is looked up, cut or padded, and a cell takes two
bytes, so that one thread of a device holds all rows of a short pair in fast memory. The cells
are those of ``wavefront_edit`` (where that leaves some out, no path leads through them), and
its core traces the path.
"""

from __future__ import annotations

import numpy as np

from mapper.align.edit.strip import slide
from mapper.align.edit.wavefront import Rows, next_offset
from mapper.jit.accelerate import core

MAX_SMALL_LENGTH = 2**15 - 2
"""Longest reference whose offsets fit."""

_NULL = -(2**15)


def small_layout(bound: int, cells: np.ndarray) -> Rows:
    """Return `cells` (int16) as rows up to wavefront `bound`, for ``trace_edit``."""
    s = np.arange(bound + 1, dtype=np.int64)
    return Rows(cells, s * s, -s, s)


@core
def small_search(strings, bound, cells):
    """Search the end of a global alignment within `bound` edits.

    Parameters
    ----------
    strings
        Both sequences, the reference of at most MAX_SMALL_LENGTH symbols.
    cells
        int16, at least ``(bound + 1) ** 2``; any stride.

    Returns
    -------
    The distance; -1 above `bound`.
    """
    goal = np.int32(strings.ref_len - strings.query_len)
    for s in range(bound + 1):
        here = s * s + s
        before = s * s - s
        left, middle, right = np.int32(_NULL), np.int32(_NULL), np.int32(_NULL)
        if s == 0:
            middle = np.int32(-1)
        elif s > 0:
            right = np.int32(cells[before - s + 1])
        for d in range(-s, s + 1):
            k = np.int32(d)
            h = slide(strings, next_offset(left, middle, right), k, np.int32(_NULL))
            if k == goal and h == strings.ref_len:
                return np.int64(s)
            cells[here + d] = np.int16(h)
            left, middle = middle, right
            right = np.int32(cells[before + d + 2]) if d + 2 < s else np.int32(_NULL)
    return np.int64(-1)
