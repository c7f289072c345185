"""Core: rows of gap-affine wavefronts: which diagonals they have, room for them, their band.

The recurrence that fills them, and the search that goes from row to row, are in
``wavefront_affine.py``. Rows of several penalties lie in turn in the same memory, of which a
row uses the columns of its own diagonals only: whoever looks back sets to null what it reads
beside them (:func:`null_beside`).

References
----------
Aguado-Puig et al. (2023), doi:10.1093/bioinformatics/btad061, section 3.5 (adaptive band).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.edit.wavefront import EXCEEDED, FINISHED, GOING, NO_ROOM, NULL
from mapper.jit.accelerate import core

NO_COLUMNS = 4
"""Status beside those of ``wavefront_edit``: the rows of offsets are too narrow."""


class AffineRows(NamedTuple):
    """The last rows of offsets: penalty s in row ``s & (n_rows - 1)``, k in column k + centre."""

    match: np.ndarray  # int32 (n_rows, n_columns)
    insertion: np.ndarray  # int32, same shape
    deletion: np.ndarray  # int32, same shape
    lo: np.ndarray  # int64 (n_rows,), inclusive
    hi: np.ndarray  # int64 (n_rows,), inclusive; below lo for a row without cells


@core
def look_back(penalties):
    """Rows to hold: all that are looked back to and that to be computed, a power of two."""
    n_rows = 1
    while n_rows <= max(penalties.mismatch, penalties.gap_open + penalties.gap_extend):
        n_rows *= 2
    return n_rows


@core
def clear_affine_rows(rows):
    """Mark all rows as without cells."""
    rows.lo[:] = 0
    rows.hi[:] = -1


@core
def _null_around(offsets, rows, r, centre, first, last):
    """Set the columns first to last of row r, as far as it has no cells there, to null."""
    lo, hi = rows.lo[r] + centre, rows.hi[r] + centre
    if lo > hi:
        lo, hi = last + 1, last
    row = offsets[r]
    for i in range(first, min(lo, last + 1)):
        row[i] = NULL
    for i in range(max(hi + 1, first), last + 1):
        row[i] = NULL


@core
def null_beside(rows, penalties, centre, s, lo, hi):
    """Set to null what row s looks back to on diagonals that had no cells."""
    last_row = len(rows.lo) - 1
    from_x = (s - penalties.mismatch) & last_row
    from_oe = (s - penalties.gap_open - penalties.gap_extend) & last_row
    from_e = (s - penalties.gap_extend) & last_row
    first, last = lo + centre, hi + centre
    _null_around(rows.match, rows, from_x, centre, first, last)
    _null_around(rows.match, rows, from_oe, centre, first - 1, last + 1)
    _null_around(rows.insertion, rows, from_e, centre, first, last + 1)
    _null_around(rows.deletion, rows, from_e, centre, first - 1, last)
    return from_x, from_oe, from_e


@core
def _bounds(rows, penalties, s):
    """Lowest and highest diagonal that row s can have cells on."""
    last_row = len(rows.lo) - 1
    lo, hi = np.int64(2**40), -np.int64(2**40)
    x = penalties.mismatch
    e = penalties.gap_extend
    oe = penalties.gap_open + e
    if s >= x:
        r = (s - x) & last_row
        if rows.lo[r] <= rows.hi[r]:
            lo, hi = rows.lo[r], rows.hi[r]
    if s >= oe:
        r = (s - oe) & last_row
        if rows.lo[r] <= rows.hi[r]:
            lo, hi = min(lo, rows.lo[r] - 1), max(hi, rows.hi[r] + 1)
    if s >= e:
        r = (s - e) & last_row
        if rows.lo[r] <= rows.hi[r]:
            lo, hi = min(lo, rows.lo[r] - 1), max(hi, rows.hi[r] + 1)
    return lo, hi


@core
def _trim(rows, r, centre, lo, hi):
    """Take columns without any offset off both sides of a row."""
    match, insertion, deletion = rows.match[r], rows.insertion[r], rows.deletion[r]
    while lo <= hi and max(
        match[lo + centre], max(insertion[lo + centre], deletion[lo + centre])
    ) < 0:  # fmt: skip
        lo += 1
    while lo <= hi and max(
        match[hi + centre], max(insertion[hi + centre], deletion[hi + centre])
    ) < 0:  # fmt: skip
        hi -= 1
    rows.lo[r] = lo
    rows.hi[r] = hi


@core
def symbols_left(pair, h, k):
    """Symbols of the longer of both remainders at offset h of diagonal k."""
    return max(pair.ref_len - h, pair.query_len - h + k)


@core
def kept_diagonals(best_k, lo, hi, width):
    """The diagonals that a band of `width` keeps of lo to hi, more than that, around one."""
    lo = max(lo, min(best_k - (width >> 1), hi - width + 1))
    return lo, lo + width - 1


@core
def _cut_to_band(pair, rows, r, centre, band):
    """Keep the diagonals around that on which row r is closest to the end; say if any went.

    Closest: with the fewest symbols left in the longer remainder; of equals the lowest.
    """
    lo, hi = rows.lo[r], rows.hi[r]
    if hi - lo + 1 <= band.width:
        return False
    best_k = lo
    fewest = np.int64(2**40)
    for k in range(lo, hi + 1):
        h = np.int64(rows.match[r, k + centre])
        if h >= 0:
            left = symbols_left(pair, h, k)
            if left < fewest:
                fewest = left
                best_k = k
    lo, hi = kept_diagonals(best_k, lo, hi, band.width)
    # The rows before, too: the next ones look back to those, and would be as wide again.
    for before in range(len(rows.lo)):
        first, last = rows.lo[before], rows.hi[before]
        for k in range(first, last + 1):
            if k < lo or k > hi:
                rows.match[before, k + centre] = NULL
                rows.insertion[before, k + centre] = NULL
                rows.deletion[before, k + centre] = NULL
        rows.lo[before] = max(first, lo)
        rows.hi[before] = min(last, hi)
    return True


@core
def begin_row(pair, ends, rows, origins, penalties, centre, s, bound, keep, spare):
    """Find the diagonals of row s, and room for them and `spare` columns on each side.

    Returns
    -------
    status, lo, hi
        GOING, also where there are none (lo is above hi), EXCEEDED, NO_ROOM or NO_COLUMNS.
    """
    none = np.int64(NULL)
    if s > bound:
        return EXCEEDED, none, none
    r = s & (len(rows.lo) - 1)
    goal = pair.ref_len - pair.query_len
    slack = (bound - s) // penalties.gap_extend
    if s == 0:
        lo, hi = -np.int64(ends.query_begin), np.int64(ends.ref_begin)
    else:
        lo, hi = _bounds(rows, penalties, s)
    lo = max(lo, goal - ends.ref_end - slack)
    hi = min(hi, goal + ends.query_end + slack)
    rows.lo[r] = 0
    rows.hi[r] = -1
    if keep:
        if s + 1 >= len(origins.at):
            return NO_ROOM, lo, hi
        origins.lo[s] = lo
        origins.at[s + 1] = origins.at[s]
    if lo > hi:
        return GOING, lo, hi
    if lo + centre < 1 + spare or hi + centre + 2 + spare > rows.match.shape[1]:
        return NO_COLUMNS, lo, hi
    if keep:
        if origins.at[s] + hi - lo + 1 + spare > len(origins.cells):
            return NO_ROOM, lo, hi
        origins.at[s + 1] = origins.at[s] + hi - lo + 1
    return GOING, lo, hi


@core
def start_row(rows, centre, lo, hi):
    """Write row 0, before matches are followed."""
    for k in range(lo, hi + 1):
        rows.match[0, k + centre] = max(np.int64(0), k)
        rows.insertion[0, k + centre] = NULL
        rows.deletion[0, k + centre] = NULL


@core
def end_row(pair, rows, band, centre, s, lo, hi, end_k):
    """Narrow a row whose matches have been followed; return what ``affine_row`` does."""
    r = s & (len(rows.lo) - 1)
    _trim(rows, r, centre, lo, hi)
    if end_k != np.int64(NULL):
        return FINISHED, end_k, False
    cut = False
    if band.width > 0 and s % band.interval == 0:
        cut = _cut_to_band(pair, rows, r, centre, band)
    return GOING, end_k, cut
