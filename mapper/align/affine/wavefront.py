"""Core: gap-affine wavefronts, for a penalty or a path.

For each penalty s and diagonal ``k = h - v`` a wavefront holds the farthest h (the *offset*) in
three states: M (ends in a match or mismatch, or a gap just closed), I (in a gap that consumes the
query), D (in one that consumes the reference)::

    I(s, k) = max(M(s - o - e, k + 1), I(s - e, k + 1))
    D(s, k) = max(M(s - o - e, k - 1), D(s - e, k - 1)) + 1
    M(s, k) = run of matches from max(M(s - x, k) + 1, I(s, k), D(s, k))

:func:`next_offsets`, :func:`affine_cell` and :func:`cell_origin` are this recurrence, in all CPU
loops and CUDA kernels. A cell beyond the end of a sequence is dropped: whatever it shadows is
behind a cell of lower penalty on the same diagonal.

**Rows.** A wavefront is stored as a *row* of offsets for each state. Only as many rows are held as
the recurrence looks back, in a ring buffer. Its memory is reused by rows with other diagonals, of
which each writes its own only: before a row is read, the columns next to its diagonals are set to
null (:func:`null_beside`).

**Origins.** For the path each cell leaves a byte that tells which cells its three offsets came
from. From the end back these bytes give the mismatches and gaps of the path; a second walk, from
the start, finds the matches between them again by comparing both sequences (the *piggybacked*
traceback of Aguado-Puig et al. 2023, section 3.3, with one byte a cell in place of linked blocks).

References
----------
Marco-Sola et al. (2021), doi:10.1093/bioinformatics/btaa777. Aguado-Puig et al. (2023),
doi:10.1093/bioinformatics/btad061, sections 2.2 (recurrence; I and D are named as in SAM here), 3.3
and 3.5 (adaptive band).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.edit.wavefront import EXCEEDED, FINISHED, GOING, NO_ROOM, extend_row
from mapper.align.matches import NULL, run_of_matches
from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.gap_affine import next_offsets
from mapper.jit.accelerate import core, disjoint_core

# --- recurrence ---

# Bits of an origin.
_FROM_DELETION = np.uint8(1)
_FROM_INSERTION = np.uint8(2)
INSERTION_OPENED = np.uint8(4)
DELETION_OPENED = np.uint8(8)


class Origins(NamedTuple):
    """A byte for each cell of all rows: row s is ``cells[at[s]:]``, from diagonal lo[s] on."""

    cells: np.ndarray  # uint8
    at: np.ndarray  # int64
    lo: np.ndarray  # int64


class AffinePenalties(NamedTuple):
    """Non-negative costs; a gap of n symbols costs ``gap_open + n * gap_extend``."""

    mismatch: int
    gap_open: int
    gap_extend: int


@core
def highest_bound(pair, penalties):
    """Return the penalty of mismatches and one gap, or of two gaps: no optimum has more."""
    n, m = pair.query_len, pair.ref_len
    one_gap = penalties.mismatch * min(n, m)
    if n != m:
        one_gap += penalties.gap_open + penalties.gap_extend * abs(n - m)
    return min(one_gap, 2 * penalties.gap_open + penalties.gap_extend * (n + m))


@core
def affine_cell(mismatched, opened_i, extended_i, opened_d, extended_d, most_i, most_d):
    """Compute one cell, before its run of matches.

    Parameters
    ----------
    mismatched, opened_i, extended_i, opened_d, extended_d
        As for :func:`next_offsets`.
    most_i, most_d
        Greatest offsets of I and D inside both sequences; beyond them the result is NULL.

    Returns
    -------
    insertion, deletion, match
        Offsets of I, D and M. That of M may lie outside if it comes from a mismatch.
    """
    insertion, deletion, mismatch = next_offsets(
        mismatched, opened_i, extended_i, opened_d, extended_d
    )
    insertion = NULL if insertion > most_i else insertion
    deletion = NULL if deletion > most_d else deletion
    return insertion, deletion, max(mismatch, max(insertion, deletion))


@core
def cell_origin(mismatched, opened_i, extended_i, opened_d, extended_d, insertion, deletion):
    """Return the byte of one cell for the traceback (uint8).

    A gap is opened rather than extended if both reach as far; M comes from a mismatch rather than a
    deletion, from a deletion rather than an insertion. Apart from :func:`affine_cell`, so that
    loops without origins do not compute them.

    Parameters
    ----------
    mismatched, opened_i, extended_i, opened_d, extended_d
        As for :func:`next_offsets`.
    insertion, deletion
        Offsets of I and D, by :func:`affine_cell`.
    """
    origin = INSERTION_OPENED if opened_i >= extended_i else np.uint8(0)
    origin |= DELETION_OPENED if opened_d >= extended_d else np.uint8(0)
    if np.int32(mismatched + np.int32(1)) < max(insertion, deletion):
        origin |= _FROM_DELETION if deletion >= insertion else _FROM_INSERTION
    return origin


# --- rows of offsets ---

ALL_ROWS = 2**62
"""As `last` row: no limit other than the bound."""


class Band(NamedTuple):
    """Adaptive band: at most `width` diagonals, chosen anew every `interval` rows."""

    width: int  # 0: no band
    interval: int


NO_COLUMNS = 4
"""Status, in addition to those of ``edit/wavefront.py``: the rows of offsets are too narrow."""


class AffineRows(NamedTuple):
    """The last rows of offsets: penalty s in row ``s & (n_rows - 1)``, k in column k + centre."""

    match: np.ndarray  # int32 (n_rows, n_columns)
    insertion: np.ndarray  # int32, same shape
    deletion: np.ndarray  # int32, same shape
    lo: np.ndarray  # int64 (n_rows,), inclusive
    hi: np.ndarray  # int64 (n_rows,), inclusive; below lo for a row without cells


@core
def look_back(penalties):
    """Return how many rows to hold: the current and all that it looks back to, a power of two."""
    n_rows = 1
    while n_rows <= max(penalties.mismatch, penalties.gap_open + penalties.gap_extend):
        n_rows *= 2
    return n_rows


@core
def clear_affine_rows(rows):
    """Mark all rows as empty."""
    rows.lo[:] = 0
    rows.hi[:] = -1


@core
def _null_around(offsets, rows, r, centre, first, last):
    """Set the columns first to last of row r to null where it has no cells."""
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
    """Set the columns that row s reads to null where earlier rows have no cells.

    Returns
    -------
    The rows of penalties s - x, s - o - e and s - e in the ring buffer.
    """
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
    """Return the lowest and highest diagonal that row s can have cells on."""
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
def drop_empty_sides(rows, r, centre, lo, hi):
    """Drop diagonals without any offset from both ends of a row."""
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
    """Return the symbols of the longer of both remainders at offset h of diagonal k."""
    return max(pair.ref_len - h, pair.query_len - h + k)


@core
def kept_diagonals(best_k, lo, hi, width):
    """Return the `width` diagonals around `best_k` that a band keeps of lo to hi."""
    lo = max(lo, min(best_k - (width >> 1), hi - width + 1))
    return lo, lo + width - 1


@core
def cut_to_band(pair, rows, r, centre, band):
    """Keep the diagonals around that on which row r is closest to the end.

    Closest: with the fewest symbols left in the longer remainder; of equals the lowest. The cells
    outside are left as they are, like all columns where a row has none (:func:`null_beside`).

    Returns
    -------
    True if any diagonal was dropped.
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
    # Earlier rows, too: the next ones look back to them, and would be as wide again.
    for before in range(len(rows.lo)):
        rows.lo[before] = max(rows.lo[before], lo)
        rows.hi[before] = min(rows.hi[before], hi)
    return True


@core
def begin_row(pair, ends, rows, penalties, centre, s, bound, spare):
    """Find the diagonals of row s, and check that they and `spare` columns on each side fit.

    Returns
    -------
    status, lo, hi
        GOING, also where there are none (lo is above hi), EXCEEDED or NO_COLUMNS.
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
    if lo <= hi and (lo + centre < 1 + spare or hi + centre + 2 + spare > rows.match.shape[1]):
        return NO_COLUMNS, lo, hi
    return GOING, lo, hi


@core
def begin_origins(origins, s, lo, hi, spare):
    """Reserve the bytes of row s and check that `spare` more fit; return GOING or NO_ROOM."""
    if s + 1 >= len(origins.at):
        return NO_ROOM
    n = max(hi - lo + 1, np.int64(0))
    if n > 0 and origins.at[s] + n + spare > len(origins.cells):
        return NO_ROOM
    origins.lo[s] = lo
    origins.at[s + 1] = origins.at[s] + n
    return GOING


@core
def start_row(rows, centre, lo, hi):
    """Write row 0, before matches are followed."""
    for k in range(lo, hi + 1):
        rows.match[0, k + centre] = max(np.int64(0), k)
        rows.insertion[0, k + centre] = NULL
        rows.deletion[0, k + centre] = NULL


@core
def end_row(pair, rows, band, centre, s, lo, hi, end_k):
    """Trim a row and cut it to the band, after its matches; return as :func:`affine_row`."""
    r = s & (len(rows.lo) - 1)
    drop_empty_sides(rows, r, centre, lo, hi)
    if end_k != np.int64(NULL):
        return FINISHED, end_k, False
    cut = False
    if band.width > 0 and s % band.interval == 0:
        cut = cut_to_band(pair, rows, r, centre, band)
    return GOING, end_k, cut


# --- search ---


@disjoint_core
def _fill_cells(match_x, match_oe, insertion_e, deletion_e, match, insertion, deletion, cells, n,
                most_insertion, most_deletion, keep):  # fmt: skip
    """Compute n cells; rows of M that are looked back to begin a column before the others."""
    for i in range(n):
        mismatched, opened_i, opened_d = match_x[i], match_oe[i + 2], match_oe[i]
        extended_i, extended_d = insertion_e[i], deletion_e[i]
        cell_i, cell_d, match[i] = affine_cell(
            mismatched, opened_i, extended_i, opened_d, extended_d, np.int32(most_insertion + i),
            most_deletion,
        )  # fmt: skip
        insertion[i], deletion[i] = cell_i, cell_d
        if keep:
            cells[i] = cell_origin(
                mismatched, opened_i, extended_i, opened_d, extended_d, cell_i, cell_d
            )


@core
def _fill_rows(pair, rows, penalties, centre, s, lo, hi, origins, keep):
    """Compute a row of all three states, before matches are followed."""
    r = s & (len(rows.lo) - 1)
    from_x, from_oe, from_e = null_beside(rows, penalties, centre, s, lo, hi)
    first, behind = lo + centre, hi + centre + 1
    _fill_cells(
        rows.match[from_x, first:behind], rows.match[from_oe, first - 1 : behind + 1],
        rows.insertion[from_e, first + 1 : behind + 1],
        rows.deletion[from_e, first - 1 : behind - 1], rows.match[r, first:behind],
        rows.insertion[r, first:behind], rows.deletion[r, first:behind],
        origins.cells[origins.at[s] if keep else 0 :], hi - lo + 1,
        np.int32(pair.query_len + lo), np.int32(pair.ref_len), keep,
    )  # fmt: skip


@core
def affine_row(pair, ends, rows, origins, penalties, band, centre, s, bound, keep, forward):
    """Compute row s of all states, and follow its matches.

    Returns
    -------
    status, end_k, cut
        GOING, FINISHED (and the diagonal of the end), EXCEEDED, NO_ROOM for origins, or
        NO_COLUMNS for offsets; True if the band has cut cells off.
    """
    none = np.int64(0)
    status, lo, hi = begin_row(pair, ends, rows, penalties, centre, s, bound, none)
    if keep and status == GOING:
        status = begin_origins(origins, s, lo, hi, none)
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
    """Return the bound, or, if lower, the penalty of mismatches from row s to the end."""
    goal = pair.ref_len - pair.query_len
    r = s & (len(rows.lo) - 1)
    if rows.lo[r] <= goal <= rows.hi[r] and rows.match[r, goal + centre] >= 0:
        left = pair.ref_len - np.int64(rows.match[r, goal + centre])
        bound = min(bound, s + penalties.mismatch * left)
    return bound


@core
def affine_rows_on(pair, ends, rows, origins, penalties, band, centre, s, last, bound, cut, keep,
                   forward):  # fmt: skip
    """Continue from row s until the end is reached, row `last` is done, or there is no room.

    Returns
    -------
    status, s, k, bound, cut
        FINISHED, the penalty and the diagonal of the end (of several the lowest), or another
        status of :func:`affine_row` and the row at which to continue; the bound as lowered so
        far; True if a band cut cells off.
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
    """Search the end row by row, up to row `last`.

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
    """Return the offset of the end that a search found."""
    return np.int64(rows.match[s & (len(rows.lo) - 1), k + centre])


# --- traceback ---


@core
def trace_rows(origins, penalties, first, s, k, gap, length, events, n):
    """Trace back from a cell to row `first`, before which no origins are held.

    Parameters
    ----------
    s, k
        The cell.
    gap, length
        The gap that the cell is in (I or D; 0 for none), and its symbols so far.
    events, n
        Events of the path, from the last on, and their number: ``length << 4 | op``; a gap is one
        event. Those found are appended.

    Returns
    -------
    n, s, k, gap, length
        At a row before `first`, or at row 0.
    """
    e = penalties.gap_extend
    while s > 0 and s >= first:
        origin = origins.cells[origins.at[s] + k - origins.lo[s]]
        if gap == 0:
            if origin & _FROM_INSERTION:
                gap = np.int64(I)
            elif origin & _FROM_DELETION:
                gap = np.int64(D)
            else:
                events[n] = np.uint32((1 << 4) | X)
                n += 1
                s -= penalties.mismatch
                continue
        opened = origin & (INSERTION_OPENED if gap == I else DELETION_OPENED)
        length += 1
        k += 1 if gap == I else -1
        if opened:
            events[n] = np.uint32((length << 4) | gap)
            n += 1
            gap = length = np.int64(0)
            s -= penalties.gap_open + e
        else:
            s -= e
    return n, s, k, gap, length


@core
def trace_back(origins, penalties, s, k, events):
    """Trace back from a cell of M to row 0: write mismatches and gaps, the last first.

    Returns
    -------
    n_events, k
        Number of events, and the diagonal on which the path starts.
    """
    zero = np.int64(0)
    n, _, k, _, _ = trace_rows(origins, penalties, zero, s, k, zero, zero, events, zero)
    return n, k


@core
def replay(pair, events, n_events, v, h, end_h, ops):
    """Write the operations of a path from (v, h) on: its events and the matches between them."""
    n_ops = np.int64(0)
    for j in range(n_events):
        room = min(pair.query_len - v, pair.ref_len - h)
        run = run_of_matches(pair, v, h, room, True)
        n_ops = append_op(ops, n_ops, EQUAL, run)
        event = events[n_events - 1 - j]
        code = np.int64(event & 15)
        length = np.int64(event >> 4)
        v += run + (0 if code == D else length)
        h += run + (0 if code == I else length)
        n_ops = append_op(ops, n_ops, code, length)
    return append_op(ops, n_ops, EQUAL, end_h - h)
