"""Core: gap-affine wavefronts, for a penalty or a path.

For each penalty s and diagonal ``k = h - v`` a wavefront holds the farthest h (the
*offset*) in three states: M (ends in a match or mismatch, or a gap just closed), I (in a gap
that consumes the query), D (in one that consumes the reference)::

    I(s, k) = max(M(s - o - e, k + 1), I(s - e, k + 1))
    D(s, k) = max(M(s - o - e, k - 1), D(s - e, k - 1)) + 1
    M(s, k) = run of matches from max(M(s - x, k) + 1, I(s, k), D(s, k))

Only as many rows of offsets are held as the recurrence looks back (``affine_rows.py``). For
the path each cell leaves a byte that says where its three offsets came from
(``affine_origins.py``). A cell beyond the end of a sequence is dropped: whatever it shadows is
behind a cell of lower penalty on the same diagonal.

References
----------
Marco-Sola et al. (2021), doi:10.1093/bioinformatics/btaa777. Aguado-Puig et al. (2023),
doi:10.1093/bioinformatics/btad061, section 2.2 (recurrence; I and D are named as in SAM here).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.affine.affine_origins import (
    DELETION_OPENED,
    INSERTION_OPENED,
    gap_origin,
    match_origin,
)
from mapper.align.affine.wavefront import (
    begin_row,
    clear_affine_rows,
    end_row,
    null_beside,
    start_row,
)
from mapper.align.edit.wavefront import GOING, NULL, extend_row
from mapper.jit.accelerate import core


class AffinePenalties(NamedTuple):
    """Non-negative costs; a gap of n symbols costs ``gap_open + n * gap_extend``."""

    mismatch: int
    gap_open: int
    gap_extend: int


ALL_ROWS = 2**62
"""As `last` row: no limit but the bound."""


class Band(NamedTuple):
    """Adaptive band: at most `width` diagonals, chosen anew every `interval` rows."""

    width: int  # 0: no band
    interval: int


@core
def highest_bound(pair, penalties):
    """Penalty of mismatches and one gap, or of two gaps: no optimal alignment has more."""
    n, m = pair.query_len, pair.ref_len
    one_gap = penalties.mismatch * min(n, m)
    if n != m:
        one_gap += penalties.gap_open + penalties.gap_extend * abs(n - m)
    return min(one_gap, 2 * penalties.gap_open + penalties.gap_extend * (n + m))


@core
def next_insertion(opened, extended, most):
    """Offset of I from those of M and I on diagonal k + 1; `most`: the greatest inside."""
    offset = max(opened, extended)
    return NULL if offset > most else offset


@core
def next_deletion(opened, extended, most):
    """Offset of D from those of M and D on diagonal k - 1; `most`: the greatest inside."""
    offset = np.int32(max(opened, extended) + np.int32(1))
    return NULL if offset > most else offset


@core
def next_match(mismatch, insertion, deletion):
    """Offset of M, before matches, from M's farther back and I and D of the same cell."""
    return max(np.int32(mismatch + np.int32(1)), max(insertion, deletion))


@core
def _fill_rows(pair, rows, penalties, centre, s, lo, hi, origins, keep):
    """Compute a row, all three states, before matches are followed."""
    r = s & (len(rows.lo) - 1)
    from_x, from_oe, from_e = null_beside(rows, penalties, centre, s, lo, hi)
    first, last = lo + centre, hi + centre
    n = hi - lo + 1
    mismatch = rows.match[from_x, first : last + 1]
    opened_i = rows.match[from_oe, first + 1 : last + 2]
    extended_i = rows.insertion[from_e, first + 1 : last + 2]
    opened_d = rows.match[from_oe, first - 1 : last]
    extended_d = rows.deletion[from_e, first - 1 : last]
    match = rows.match[r, first : last + 1]
    insertion = rows.insertion[r, first : last + 1]
    deletion = rows.deletion[r, first : last + 1]
    most_deletion = np.int32(pair.ref_len)
    most_insertion = np.int32(pair.query_len + lo)
    # One short loop after the other: with more arrays in a loop it is not vectorised, as
    # the compiler would have to check too many for overlap.
    for i in range(n):
        most = np.int32(most_insertion + np.int32(i))
        insertion[i] = next_insertion(opened_i[i], extended_i[i], most)
    for i in range(n):
        deletion[i] = next_deletion(opened_d[i], extended_d[i], most_deletion)
    for i in range(n):
        match[i] = next_match(mismatch[i], insertion[i], deletion[i])
    if keep:
        cells = origins.cells[origins.at[s] : origins.at[s] + n]
        for i in range(n):
            cells[i] = gap_origin(opened_i[i], extended_i[i], INSERTION_OPENED)
        for i in range(n):
            cells[i] |= gap_origin(opened_d[i], extended_d[i], DELETION_OPENED)
        for i in range(n):
            cells[i] |= match_origin(np.int32(mismatch[i] + np.int32(1)), insertion[i], deletion[i])


@core
def affine_row(pair, ends, rows, origins, penalties, band, centre, s, bound, keep, forward):
    """Compute row s, all states, and follow its matches.

    Returns
    -------
    status, end_k, cut
        GOING, FINISHED (and the diagonal of the end), EXCEEDED, NO_ROOM for origins, or
        NO_COLUMNS for offsets; whether the band has cut cells off.
    """
    status, lo, hi = begin_row(
        pair, ends, rows, origins, penalties, centre, s, bound, keep, np.int64(0)
    )
    if status != GOING or lo > hi:
        return status, np.int64(NULL), False
    if s == 0:
        start_row(rows, centre, lo, hi)
    else:
        _fill_rows(pair, rows, penalties, centre, s, lo, hi, origins, keep)
    row = rows.match[s & (len(rows.lo) - 1), lo + centre : hi + centre + 1]
    end_k = extend_row(pair, ends, row, lo, forward)
    return end_row(pair, rows, band, centre, s, lo, hi, end_k)


@core
def lowered_penalty(pair, rows, penalties, centre, s, bound):
    """The bound, or what mismatches to the end of both sequences would cost from row s."""
    goal = pair.ref_len - pair.query_len
    r = s & (len(rows.lo) - 1)
    if rows.lo[r] <= goal <= rows.hi[r] and rows.match[r, goal + centre] >= 0:
        left = pair.ref_len - np.int64(rows.match[r, goal + centre])
        bound = min(bound, s + penalties.mismatch * left)
    return bound


@core
def affine_rows_on(pair, ends, rows, origins, penalties, band, centre, s, last, bound, cut, keep,
                   forward):  # fmt: skip
    """Go on from row s until the end is reached, row `last` is done, or there is no room.

    Returns
    -------
    status, s, k, bound, cut
        FINISHED, the penalty and the diagonal of the end (of several the lowest), or another
        status of :func:`affine_row` and the row from which can be gone on; the bound as
        lowered so far; whether a band cut cells off.
    """
    end_k = np.int64(NULL)
    while s <= last:
        status, end_k, cut_now = affine_row(
            pair, ends, rows, origins, penalties, band, centre, s, bound, keep, forward
        )
        cut = cut or cut_now
        if status != GOING:
            return status, s, end_k, bound, cut
        bound = lowered_penalty(pair, rows, penalties, centre, s, bound)
        s += 1
    return GOING, s, end_k, bound, cut


@core
def affine_search(pair, ends, rows, origins, penalties, band, centre, last, bound, keep, forward):
    """Search the end with one row after the other, up to row `last`.

    Returns
    -------
    status, s, k, cut
        As :func:`affine_rows_on`.
    """
    clear_affine_rows(rows)
    if keep:
        origins.at[0] = 0
    status, s, k, _, cut = affine_rows_on(
        pair, ends, rows, origins, penalties, band, centre, np.int64(0), last,
        np.int64(bound), False, keep, forward,
    )  # fmt: skip
    return status, s, k, cut


@core
def end_offset(rows, centre, s, k):
    """Offset of the end that a search found."""
    return np.int64(rows.match[s & (len(rows.lo) - 1), k + centre])
