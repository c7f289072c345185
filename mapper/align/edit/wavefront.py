"""Edit-distance wavefronts: the recurrence, the search, the bidirectional search and the traceback.

v and h count the symbols of query and reference consumed, ``k = h - v`` is the diagonal.
Wavefront s holds for each diagonal the farthest h (the *offset*) that s edits reach::

    W(s, k) = run of matches from max(W(s-1, k-1) + 1, W(s-1, k) + 1, W(s-1, k+1))

(deletion, mismatch, insertion, in SAM's sense: an insertion consumes the query). A wavefront is
stored as a row of cells, diagonal ``lo`` first, with two null cells on each side, so that the
recurrence needs no bounds checks. `Rows` keeps either all wavefronts, for the path, or the last
two.

Diagonals from which the end cannot be reached within the *bound* are not computed: a cell needs
one edit for every diagonal between it and the end's. The bound falls as the wavefront advances on
the end's own diagonal, where the rest of both sequences could be all mismatches (the dynamic
diamond of Castells-Rufas 2023, section 3).

*Bidirectional search* (:func:`meet`). Wavefronts from the start and from the end are computed in
turn. As soon as forward wavefront s and backward wavefront r overlap on a diagonal, ``s + r`` is
the distance, and the forward offset there lies on a shortest path, s edits from the start and r
from the end: distances do not fall along a diagonal, so a path through any point between both
offsets costs no more (Myers 1986). Memory is O(distance), and half as many cells are computed as
from one end alone. The search can be interrupted after any wavefront and resumed, which the
progress bar, the growing of rows and the checkpoints of ``long/search.py`` use.

*Strips* (:func:`next_strip`) are for one long pair whose wavefronts many threads compute: a thread
holds eight neighbouring cells in registers and advances them by several wavefronts before it
writes. Two things differ from :func:`extend_row`, without effect on results. A cell that passes
the end of a sequence stays at that end instead of becoming null; whatever stands at the end is
reached with as many edits or fewer, so cells never fall from one wavefront to the next, and two
that overlap on a diagonal still do later. And all eight cells are first compared by 32 bits,
without a branch; only those that match throughout are compared further. The backward search is the
same on the reversed sequences: reversing all bits of their words also reverses the bits of each
symbol, in both sequences alike, so that equal symbols stay equal.

*Small distances* (:func:`small_search`). Wavefront s of a global alignment has the diagonals -s to
s; here diagonal k is cell ``s * s + s + k``. Nothing is looked up, cut off or padded, and a cell
takes two bytes, so that one CUDA thread keeps all wavefronts of a short pair in shared memory. The
cells are those of :func:`edit_search` (cells that it cuts off are on no path), and
:func:`trace_edit` traces both.

References
----------
Aguado-Puig et al. (2022), IEEE Access 10:63782, algorithms 1 to 3: wavefronts for edit distance.
Castells-Rufas (2023), Parallel Computing, 103019. Myers (1986), lemma 3, and Marco-Sola et al.
(2023), doi:10.1093/bioinformatics/btad074: bidirectional search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.matches import (
    NULL,
    NULL_16,
    farthest,
    fence_of,
    first_run,
    follow,
    look,
    run_of_matches,
    slide,
    symbols_a_word,
)
from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.jit.accelerate import core

PAD = 2
"""Null cells on each side of a row."""

GOING, FINISHED, EXCEEDED, NO_ROOM = range(4)
"""Outcome of a step: go on; end reached; bound exceeded; no room for another row."""


class Ends(NamedTuple):
    """Numbers of symbols at each end that may stay unaligned at no cost."""

    query_begin: int
    query_end: int
    ref_begin: int
    ref_end: int


class Rows(NamedTuple):
    """Wavefronts in one array: row r is ``cells[at[r]:]``, for the diagonals lo[r] to hi[r]."""

    cells: np.ndarray  # int32
    at: np.ndarray  # int64
    lo: np.ndarray  # int64
    hi: np.ndarray  # int64


@core
def ends_within(free, query_len, ref_len):
    """Return `free`, limited to the lengths of a pair."""
    return Ends(
        min(free.query_begin, query_len), min(free.query_end, query_len),
        min(free.ref_begin, ref_len), min(free.ref_end, ref_len),
    )  # fmt: skip


@core
def next_offset(left, here, right):
    """Return the offset that one more edit reaches, from those on diagonals k - 1, k and k + 1."""
    return max(np.int32(max(left, here) + np.int32(1)), right)


@core
def fill_row(before, after):
    """Compute a row from the previous one, which has one more cell on each side."""
    for i in range(len(after)):
        after[i] = next_offset(before[i], before[i + 1], before[i + 2])


@core
def extend_row(pair, ends, row, lo, forward):
    """Follow the matches from every cell of a row; set cells beyond an end to null.

    Returns
    -------
    The lowest diagonal on which the end is reached, or null.
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
def _reserve(rows, r, lo, hi, keep):
    """Reserve a row; return False if there is no room."""
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
    """Remove null cells at both sides of a row, and pad it there."""
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
        Greatest distance of interest.
    keep
        Keep every row, or only the last two.
    forward
        v and h count from the starts of both sequences, or from their ends.

    Returns
    -------
    status, end_k
        GOING; FINISHED, with the lowest diagonal on which the end is reached; EXCEEDED; or
        NO_ROOM, with nothing changed.
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
    if not _reserve(rows, r, lo, hi, keep):
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
    """Return the offset in row r on diagonal k, or null."""
    if k < rows.lo[r] or k > rows.hi[r]:
        return np.int64(NULL)
    return np.int64(rows.cells[rows.at[r] + k - rows.lo[r]])


@core
def lowered_bound(pair, rows, r, s, bound):
    """Return the bound, lowered to the cost of mismatches from row r to the end of both sides."""
    goal = pair.ref_len - pair.query_len
    offset = cell(rows, r, goal)
    if offset < 0:
        return bound
    return min(bound, s + pair.ref_len - offset)


@core
def edit_rows_on(pair, ends, rows, s, last, bound, keep, forward):
    """Compute rows from row s on until the end is reached, row `last` is done, or room runs out.

    Parameters
    ----------
    last
        None if there is no last row; the compiled loop then has no test for it.

    Returns
    -------
    status, s, k, bound
        FINISHED, the distance and the lowest diagonal of the end; EXCEEDED or NO_ROOM, and the
        row where that happened; or GOING, and the next row. The bound as lowered so far.
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
    """Search the end row by row; return status, s and k of :func:`edit_rows_on`."""
    status, s, k, _ = edit_rows_on(pair, ends, rows, np.int64(0), None, bound, keep, forward)
    return status, s, k


@core
def trace_edit(rows, s, k, offset, ops, n_ops):
    """Append the operations from a cell back to row 0, last first; needs every row.

    Of equal origins of a cell a mismatch is preferred to a deletion, and that to an insertion.

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


# --- bidirectional search ---

# Fields of the state of a search (int64).
S, R, BOUND, REACH, BACK_REACH, MIDDLE_K, MIDDLE_OFFSET = range(7)
N_STATE = 7


def new_state(bound: int) -> np.ndarray:
    """Return the state of a new search."""
    state = np.zeros(N_STATE, np.int64)
    reset_state(state, bound)
    return state


@core
def reset_state(state, bound):
    """Start a search anew; `bound`: greatest distance of interest."""
    state[S] = -1  # rows done, from the start and from the end, are S + 1 and R + 1
    state[R] = -1
    state[BOUND] = bound
    state[REACH] = 0
    state[BACK_REACH] = 0


@core
def _reach(rows, r):
    """Return the greatest number of symbols that a cell of a row has consumed."""
    lo = rows.lo[r]
    row = rows.cells[rows.at[r] : rows.at[r] + rows.hi[r] - lo + 1]
    reach = np.int64(0)
    for i in range(len(row)):
        reach = max(reach, 2 * np.int64(row[i]) - lo - i)
    return reach


@core
def _overlap(pair, rows, r, back_rows, back_r):
    """Return the lowest diagonal on which a forward and a backward row overlap, or null."""
    goal = pair.ref_len - pair.query_len
    lo = max(rows.lo[r], goal - back_rows.hi[back_r])
    hi = min(rows.hi[r], goal - back_rows.lo[back_r])
    at = rows.at[r] - rows.lo[r]
    back_at = back_rows.at[back_r] - back_rows.lo[back_r] + goal
    for k in range(lo, hi + 1):
        reached = np.int64(rows.cells[at + k]) + np.int64(back_rows.cells[back_at - k])
        if reached >= pair.ref_len:
            return np.int64(k)
    return np.int64(NULL)


@core
def meet(pair, state, rows, back_rows, n_steps):
    """Continue a bidirectional search for at most `n_steps` rows.

    Returns
    -------
    FINISHED: the distance is ``state[S] + state[R]``, the middle of a path on diagonal
    ``state[MIDDLE_K]`` at ``state[MIDDLE_OFFSET]``. EXCEEDED: the distance is above the bound.
    NO_ROOM: call again with wider rows. GOING: not finished after `n_steps`.
    """
    ends = Ends(np.int64(0), np.int64(0), np.int64(0), np.int64(0))
    for _ in range(n_steps):
        if state[R] >= 0 and state[S] + state[R] >= state[BOUND]:
            return EXCEEDED
        forward = state[S] <= state[R]
        s = (state[S] if forward else state[R]) + 1
        # Two calls: choosing one of both rows would make an array with a reference count.
        if forward:
            status, _ = edit_row(pair, ends, rows, s, state[BOUND], False, True)
        else:
            status, _ = edit_row(pair, ends, back_rows, s, state[BOUND], False, False)
        if status == NO_ROOM or status == EXCEEDED:
            return status
        if forward:
            state[S] = s
            state[REACH] = _reach(rows, s & 1)
            state[BOUND] = lowered_bound(pair, rows, s & 1, s, state[BOUND])
        else:
            state[R] = s
            state[BACK_REACH] = _reach(back_rows, s & 1)
            state[BOUND] = lowered_bound(pair, back_rows, s & 1, s, state[BOUND])
        # Overlapping offsets on one diagonal sum up to at least this.
        if state[R] >= 0 and state[REACH] + state[BACK_REACH] >= pair.query_len + pair.ref_len:
            k = _overlap(pair, rows, state[S] & 1, back_rows, state[R] & 1)
            if k != NULL:
                r = state[S] & 1
                state[MIDDLE_K] = k
                state[MIDDLE_OFFSET] = rows.cells[rows.at[r] + k - rows.lo[r]]
                return FINISHED
    return GOING


# --- strips of eight cells, for many threads on one pair ---

WIDTH = 8
"""Cells of a strip."""


@core
def _first_look(strings, k, left, here, right):
    """Return the next cell after one comparison, and True if matches may continue from there."""
    limit = farthest(k, strings.query_len, strings.ref_len)
    h = np.int32(min(next_offset(left, here, right), limit))
    run = look(strings, h, k)
    return np.int32(min(np.int32(h + run), limit)), run == np.int32(32) >> strings.shift


@core
def _follow_on(strings, k, h):
    """Return the cell after all matches, from where the first comparison ended."""
    if h < 0:
        return h
    return follow(strings, h, k, farthest(k, strings.query_len, strings.ref_len))


@core
def next_strip(strings, k, before, strip, behind):
    """Return the cells of the next wavefront on the diagonals k to k + 7.

    Parameters
    ----------
    k
        int32.
    before, behind
        Offsets on the diagonals k - 1 and k + 8 of the wavefront of `strip`.
    strip
        Eight offsets (int32), negative for null cells.
    """
    c0, c1, c2, c3, c4, c5, c6, c7 = strip
    k1, k2, k3, k4 = np.int32(k + 1), np.int32(k + 2), np.int32(k + 3), np.int32(k + 4)
    k5, k6, k7 = np.int32(k + 5), np.int32(k + 6), np.int32(k + 7)
    h0, more0 = _first_look(strings, k, before, c0, c1)
    h1, more1 = _first_look(strings, k1, c0, c1, c2)
    h2, more2 = _first_look(strings, k2, c1, c2, c3)
    h3, more3 = _first_look(strings, k3, c2, c3, c4)
    h4, more4 = _first_look(strings, k4, c3, c4, c5)
    h5, more5 = _first_look(strings, k5, c4, c5, c6)
    h6, more6 = _first_look(strings, k6, c5, c6, c7)
    h7, more7 = _first_look(strings, k7, c6, c7, behind)
    if more0 | more1 | more2 | more3 | more4 | more5 | more6 | more7:
        if more0:
            h0 = _follow_on(strings, k, h0)
        if more1:
            h1 = _follow_on(strings, k1, h1)
        if more2:
            h2 = _follow_on(strings, k2, h2)
        if more3:
            h3 = _follow_on(strings, k3, h3)
        if more4:
            h4 = _follow_on(strings, k4, h4)
        if more5:
            h5 = _follow_on(strings, k5, h5)
        if more6:
            h6 = _follow_on(strings, k6, h6)
        if more7:
            h7 = _follow_on(strings, k7, h7)
    return h0, h1, h2, h3, h4, h5, h6, h7


# --- small distances, in a triangle of 16-bit cells ---

MAX_SMALL_LENGTH = 2**15 - 2
"""Longest reference whose offsets fit 16 bits."""


def small_layout(bound: int, cells: np.ndarray) -> Rows:
    """Return `cells` (int16) as rows up to wavefront `bound`, for :func:`trace_edit`."""
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
    The distance, or -1 if it is above `bound`.
    """
    goal = np.int32(strings.ref_len - strings.query_len)
    for s in range(bound + 1):
        here = s * s + s
        before = s * s - s
        left, middle, right = NULL_16, NULL_16, NULL_16
        if s == 0:
            middle = np.int32(-1)
        elif s > 0:
            right = np.int32(cells[before - s + 1])
        for d in range(-s, s + 1):
            k = np.int32(d)
            h = slide(strings, next_offset(left, middle, right), k, NULL_16)
            if k == goal and h == strings.ref_len:
                return np.int64(s)
            cells[here + d] = np.int16(h)
            left, middle = middle, right
            right = np.int32(cells[before + d + 2]) if d + 2 < s else NULL_16
    return np.int64(-1)
