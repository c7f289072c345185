"""Core: edit-distance wavefronts, for a distance, a path, or the middle of a path.

v and h count the symbols of query and reference consumed, ``k = h - v`` is the diagonal.
Wavefront s holds for each diagonal the farthest h (the *offset*) that s edits reach::

    W(s, k) = run of matches from max(W(s-1, k-1) + 1, W(s-1, k) + 1, W(s-1, k+1))

(deletion, mismatch, insertion, in SAM's sense: an insertion consumes the query). A
wavefront lies in a row of `Rows`, diagonal ``lo`` first, with two null cells on each side,
so that the recurrence needs no bounds. Either every row is kept, for the path, or two.

Diagonals from which the end cannot be reached within the *bound* are not computed:
a cell needs an edit for every diagonal between it and the end's. The bound falls as the
wavefront goes ahead on the end's own diagonal, where the rest could be all mismatches
(the dynamic diamond of Castells-Rufas 2023, section 3).

References
----------
Aguado-Puig et al. (2022), IEEE Access 10:63782, algorithms 1 to 3: wavefronts for edit
distance. Castells-Rufas (2023), Parallel Computing, 103019. Myers (1986), lemma 3, and
Marco-Sola et al. (2023), doi:10.1093/bioinformatics/btad074: meeting in the middle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.matches import fence_of, first_run, run_of_matches, symbols_a_word
from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.jit.accelerate import core

NULL = np.int32(-(2**30))
"""Offset of a cell that does not exist; two of them can still be added."""

PAD = 2
"""Null cells on each side of a row."""

GOING, FINISHED, EXCEEDED, NO_ROOM = range(4)
"""What a step leads to: go on; the end is reached; the bound is; the rows are full."""


class Ends(NamedTuple):
    """Symbols at each end that may stay unaligned at no cost."""

    query_begin: int
    query_end: int
    ref_begin: int
    ref_end: int


class Rows(NamedTuple):
    """Wavefronts in a flat array: row r is ``cells[at[r]:]``, diagonals lo[r] to hi[r]."""

    cells: np.ndarray  # int32
    at: np.ndarray  # int64
    lo: np.ndarray  # int64
    hi: np.ndarray  # int64


@core
def ends_within(free, query_len, ref_len):
    """What of `free` a pair of these lengths has."""
    return Ends(
        min(free.query_begin, query_len), min(free.query_end, query_len),
        min(free.ref_begin, ref_len), min(free.ref_end, ref_len),
    )  # fmt: skip


@core
def next_offset(left, here, right):
    """Offset that one more edit reaches, from those on the diagonals k - 1, k and k + 1."""
    return max(np.int32(max(left, here) + np.int32(1)), right)


@core
def fill_row(before, after):
    """Compute a row from the one before, which reaches one cell farther on each side."""
    for i in range(len(after)):
        after[i] = next_offset(before[i], before[i + 1], before[i + 2])


@core
def extend_row(pair, ends, row, lo, forward):
    """Follow the matches from every cell of a row; drop cells beyond an end.

    Returns
    -------
    Lowest diagonal on which the end is reached, or null.
    """
    n, m = pair.query_len, pair.ref_len
    step = symbols_a_word(pair.shift)
    fence = fence_of(pair.shift, forward)
    end_k = np.int64(NULL)
    for i in range(len(row)):
        h = np.int64(row[i])
        k = lo + i
        room = min(n + k, m) - h
        if (h | room) < 0:
            row[i] = NULL
            continue
        run = first_run(pair, h - k, h, fence, forward)
        if run >= min(step, room):
            if run == step:
                run += run_of_matches(pair, h - k + run, h + run, room - run, forward)
            run = min(run, room)
            # At an end of one sequence what is left of the other must be free.
            left_query, left_ref = n - h + k - run, m - h - run
            free = left_query <= ends.query_end and left_ref <= ends.ref_end
            if run == room and free and end_k == NULL:
                end_k = np.int64(k)
        row[i] = h + run
    return end_k


@core
def _place(rows, r, lo, hi, keep):
    """Reserve a row; False if there is no room."""
    n = hi - lo + 1
    half = len(rows.cells) >> 1
    if keep:
        at = np.int64(PAD) if r == 0 else rows.at[r - 1] + rows.hi[r - 1] - rows.lo[r - 1] + 5
        if r + 1 >= len(rows.at) or at + n + PAD > len(rows.cells):
            return False
    else:
        at = PAD + half * r
        if n + 2 * PAD > half:
            return False
    rows.at[r] = at
    rows.lo[r] = lo
    rows.hi[r] = hi
    return True


@core
def _trim(rows, r):
    """Take null cells off both sides of a row, and put the padding there."""
    at, lo, hi = rows.at[r], rows.lo[r], rows.hi[r]
    while lo <= hi and rows.cells[at] < 0:
        at += 1
        lo += 1
    while lo <= hi and rows.cells[at + hi - lo] < 0:
        hi -= 1
    for i in range(1, PAD + 1):
        rows.cells[at - i] = NULL
        rows.cells[at + hi - lo + i] = NULL
    rows.at[r] = at
    rows.lo[r] = lo
    rows.hi[r] = hi


@core
def edit_row(pair, ends, rows, s, bound, keep, forward):
    """Compute wavefront s from wavefront s - 1 (or start, for s = 0).

    Parameters
    ----------
    bound
        Distances above it are of no interest.
    keep
        Whether every row is kept, or only the last two.
    forward
        Whether v and h count from the starts of both sequences, or from their ends.

    Returns
    -------
    status, end_k
        GOING, FINISHED (and the diagonal of the end, of several the lowest), EXCEEDED, or
        NO_ROOM: then nothing has changed.
    """
    r = s if keep else s & 1
    goal = pair.ref_len - pair.query_len
    lo = goal - ends.ref_end - (bound - s)
    hi = goal + ends.query_end + (bound - s)
    if s == 0:
        lo = max(lo, -np.int64(ends.query_begin))
        hi = min(hi, np.int64(ends.ref_begin))
    else:
        before = s - 1 if keep else (s - 1) & 1
        lo = max(lo, rows.lo[before] - 1)
        hi = min(hi, rows.hi[before] + 1)
    if lo > hi or s > bound:
        return EXCEEDED, np.int64(NULL)
    if not _place(rows, r, lo, hi, keep):
        return NO_ROOM, np.int64(NULL)
    row = rows.cells[rows.at[r] : rows.at[r] + hi - lo + 1]
    if s == 0:
        for i in range(len(row)):
            row[i] = max(np.int64(0), lo + i)
    else:
        start = rows.at[before] + lo - rows.lo[before] - 1
        fill_row(rows.cells[start : start + len(row) + 2], row)
    end_k = extend_row(pair, ends, row, lo, forward)
    _trim(rows, r)
    if end_k != NULL:
        return FINISHED, end_k
    if rows.lo[r] > rows.hi[r]:
        return EXCEEDED, end_k
    return GOING, end_k


@core
def cell(rows, r, k):
    """Offset in row r on diagonal k, or null."""
    if k < rows.lo[r] or k > rows.hi[r]:
        return np.int64(NULL)
    return np.int64(rows.cells[rows.at[r] + k - rows.lo[r]])


@core
def lowered_bound(pair, rows, r, s, bound):
    """The bound, or what mismatches to the end of both sequences would cost from row r."""
    goal = pair.ref_len - pair.query_len
    offset = cell(rows, r, goal)
    if offset < 0:
        return bound
    return min(bound, s + pair.ref_len - offset)


@core
def edit_rows_on(pair, ends, rows, s, last, bound, keep, forward):
    """Go on from row s until the end is reached, row `last` is done, or there is no room.

    Parameters
    ----------
    last
        None: the search has no last row, and its loop does not ask.

    Returns
    -------
    status, s, k, bound
        FINISHED, the distance and the diagonal of the end (of several the lowest); EXCEEDED or
        NO_ROOM, and the row where that was found; or GOING, and the next row. The bound as
        lowered so far.
    """
    while True:
        status, end_k = edit_row(pair, ends, rows, s, bound, keep, forward)
        if status != GOING:
            return status, s, end_k, bound
        bound = lowered_bound(pair, rows, s if keep else s & 1, s, bound)
        s += 1
        if last is not None and s > last:
            return GOING, s, end_k, bound


@core
def edit_search(pair, ends, bound, rows, keep, forward):
    """Search the end with one row after the other; return what :func:`edit_rows_on` does."""
    status, s, k, _ = edit_rows_on(pair, ends, rows, np.int64(0), None, bound, keep, forward)
    return status, s, k


@core
def trace_edit(rows, s, k, offset, ops, n_ops):
    """Append the operations from a cell back to row 0, last first; needs every row.

    Of equal ways into a cell a mismatch is taken before a deletion, that before an insertion.

    Returns
    -------
    n_ops, k
        Number of operations, and the diagonal on which the path starts.
    """
    while s > 0:
        s -= 1
        mismatch = cell(rows, s, k) + 1
        deletion = cell(rows, s, k - 1) + 1
        entry = max(mismatch, max(deletion, cell(rows, s, k + 1)))
        n_ops = append_op(ops, n_ops, EQUAL, offset - entry)
        offset = entry
        if mismatch == entry:
            n_ops = append_op(ops, n_ops, X, 1)
            offset -= 1
        elif deletion == entry:
            n_ops = append_op(ops, n_ops, D, 1)
            offset -= 1
            k -= 1
        else:
            n_ops = append_op(ops, n_ops, I, 1)
            k += 1
    return append_op(ops, n_ops, EQUAL, offset - max(np.int64(0), k)), k
