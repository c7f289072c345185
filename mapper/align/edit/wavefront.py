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

Core: the middle of a shortest edit path, from wavefronts of both ends that meet.

Rows from the start and from the end are computed in turn. As soon as a forward row s and a
backward row r overlap on a diagonal, ``s + r`` is the distance, and the forward offset there
lies on a shortest path, s edits behind it and r before it: distances do not fall along a
diagonal, so a path through any point between both offsets costs no more (Myers 1986). The
memory is O(distance); the rows computed are half of what one end alone would need.

The search can be left after any number of rows and resumed, which the progress bar, the
growing of rows and the checkpoints of ``long.py`` use.

Core: edit-distance wavefronts of small distances, every row in a square of cells.

Wavefront s of a global alignment has the diagonals -s to s and lies behind those before it:
diagonal k in cell ``s * s + s + k``. Nothing is looked up, cut or padded, and a cell takes two
bytes, so that one thread of a device holds all rows of a short pair in fast memory. The cells
are those of ``wavefront_edit`` (where that leaves some out, no path leads through them), and
its core traces the path.

Core: a strip of eight neighbouring cells of an edit wavefront, advanced row after row.

Where the rows of one long pair are computed by many threads, a thread holds eight cells in
registers and advances them for some rows, together with its neighbours, before anything is
written. Two things differ from ``wavefront_edit.extend_row``, neither seen in a result:

- A cell that passes the end of a sequence stays at that end; there it is dropped. What
  stands at the end is reached with as many edits or fewer, so cells never fall from row to
  row, and two rows that overlap on a diagonal still do some rows later.
- All eight cells are compared by a first look of 32 bits without a branch; only those whose
  look was not enough go on.

The search of the other end is this one on the reversed sequences. Reversing all bits of the
words does that: it turns the bits of each symbol about too, in both sequences alike, so that
equal symbols stay equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.matches import fence_of, first_run, run_of_matches, symbols_a_word
from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import trailing_zeros, trailing_zeros_32

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


# Fields of a search's state (int64).
S, R, BOUND, REACH, BACK_REACH, MIDDLE_K, MIDDLE_OFFSET = range(7)
N_STATE = 7


def new_state(bound: int) -> np.ndarray:
    """Return the state of a search that has not begun."""
    state = np.zeros(N_STATE, np.int64)
    reset_state(state, bound)
    return state


@core
def reset_state(state, bound):
    """Begin a search; `bound`: greatest distance of interest."""
    state[S] = -1  # rows done, from the start and from the end, are S + 1 and R + 1
    state[R] = -1
    state[BOUND] = bound
    state[REACH] = 0
    state[BACK_REACH] = 0


@core
def _reach(rows, r):
    """Greatest number of symbols that a cell of a row has consumed."""
    lo = rows.lo[r]
    row = rows.cells[rows.at[r] : rows.at[r] + rows.hi[r] - lo + 1]
    reach = np.int64(0)
    for i in range(len(row)):
        reach = max(reach, 2 * np.int64(row[i]) - lo - i)
    return reach


@core
def _overlap(pair, rows, r, back_rows, back_r):
    """Lowest diagonal on which a forward and a backward row overlap, or null."""
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
    """Go on with a search for at most `n_steps` rows.

    Returns
    -------
    FINISHED: the distance is ``state[S] + state[R]``, the middle on diagonal
    ``state[MIDDLE_K]`` at ``state[MIDDLE_OFFSET]``. EXCEEDED: it is above the bound.
    NO_ROOM: give wider rows and go on. GOING: after `n_steps`.
    """
    ends = Ends(np.int64(0), np.int64(0), np.int64(0), np.int64(0))
    for _ in range(n_steps):
        if state[R] >= 0 and state[S] + state[R] >= state[BOUND]:
            return EXCEEDED
        forward = state[S] <= state[R]
        s = (state[S] if forward else state[R]) + 1
        # Two calls, as a choice between both rows would be an array that is counted.
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


WIDTH = 8
"""Cells of a strip."""


class Strings(NamedTuple):
    """Both packed sequences of a part, in the direction of a search.

    At least one word lies before a part and six behind it.
    """

    query: np.ndarray  # uint32
    ref: np.ndarray  # uint32
    query_at: int  # uint32: symbol of `query` where the part starts
    ref_at: int  # uint32
    query_len: int  # int32, symbols
    ref_len: int  # int32
    shift: int  # int32: log2 of the bits of a symbol: 1, 2 or 3


@core
def window(words, symbol, shift):
    """The 32 bits from a symbol (uint32) on."""
    # Unsigned, as an index that may be negative would be checked for that.
    at = np.uint64(np.uint32(symbol >> np.uint32(np.int32(5) - shift)))
    low = np.uint64(words[at])
    high = np.uint64(words[at + np.uint64(1)])
    bits = np.uint64(np.uint32(symbol << np.uint32(shift)) & np.uint32(31))
    return np.uint32(((high << np.uint64(32)) | low) >> bits)


@core
def _window_64(words, symbol, shift):
    """The 64 bits from a symbol (uint32) on."""
    low = np.uint64(window(words, symbol, shift))
    behind = np.uint32(symbol + np.uint32(np.int32(32) >> shift))
    return (np.uint64(window(words, behind, shift)) << np.uint64(32)) | low


@core
def farthest(k, query_len, ref_len):
    """Greatest offset on diagonal k."""
    return np.int32(min(np.int32(query_len + k), ref_len))


@core
def look(strings, h, k):
    """Matches at offset h of diagonal k as far as 32 bits show, ends not regarded.

    A cell that does not exist (h < 0) looks at the start of the part.
    """
    v = np.uint32(max(np.int32(h - k), np.int32(0)))
    at_query = window(strings.query, np.uint32(strings.query_at + v), strings.shift)
    at = np.uint32(max(h, np.int32(0)))
    at_ref = window(strings.ref, np.uint32(strings.ref_at + at), strings.shift)
    return np.int32(trailing_zeros_32(np.uint32(at_query ^ at_ref)) >> strings.shift)


@core
def follow(strings, h, k, limit):
    """Go on from offset h of diagonal k along matches, 128 bits at a time."""
    step = np.uint32(np.int32(64) >> strings.shift)
    while h < limit:
        at_query = np.uint32(strings.query_at + np.uint32(h - k))
        at_ref = np.uint32(strings.ref_at + np.uint32(h))
        near = _window_64(strings.query, at_query, strings.shift)
        near ^= _window_64(strings.ref, at_ref, strings.shift)
        far = _window_64(strings.query, np.uint32(at_query + step), strings.shift)
        far ^= _window_64(strings.ref, np.uint32(at_ref + step), strings.shift)
        bits = trailing_zeros(near) if near != 0 else 64 + trailing_zeros(far)
        h = np.int32(h + (bits >> strings.shift))
        if bits < 128:
            break
    return np.int32(min(h, limit))


@core
def slide(strings, h, k, null):
    """Follow the matches from offset h of diagonal k on.

    Returns
    -------
    The offset behind them; `null` for a cell that does not exist or lies beyond an end.
    """
    limit = farthest(k, strings.query_len, strings.ref_len)
    if h < 0 or h > limit:
        return null
    run = look(strings, h, k)
    h = np.int32(min(np.int32(h + run), limit))
    if run == np.int32(32) >> strings.shift and h < limit:
        h = follow(strings, h, k, limit)
    return h


@core
def _first_look(strings, k, left, here, right):
    """Return the next cell as far as the first look shows, and whether to go on from it."""
    limit = farthest(k, strings.query_len, strings.ref_len)
    h = np.int32(min(next_offset(left, here, right), limit))
    run = look(strings, h, k)
    return np.int32(min(np.int32(h + run), limit)), run == np.int32(32) >> strings.shift


@core
def _rest(strings, k, h):
    """Return the cell that a first look did not show the end of."""
    if h < 0:
        return h
    return follow(strings, h, k, farthest(k, strings.query_len, strings.ref_len))


@core
def next_strip(strings, k, before, strip, behind):
    """Return the next row of the cells on the diagonals k to k + 7.

    Parameters
    ----------
    k
        int32.
    before, behind
        Offsets on the diagonals k - 1 and k + 8 of the row that `strip` is of.
    strip
        Eight offsets (int32); below 0 where there is no cell.
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
            h0 = _rest(strings, k, h0)
        if more1:
            h1 = _rest(strings, k1, h1)
        if more2:
            h2 = _rest(strings, k2, h2)
        if more3:
            h3 = _rest(strings, k3, h3)
        if more4:
            h4 = _rest(strings, k4, h4)
        if more5:
            h5 = _rest(strings, k5, h5)
        if more6:
            h6 = _rest(strings, k6, h6)
        if more7:
            h7 = _rest(strings, k7, h7)
    return h0, h1, h2, h3, h4, h5, h6, h7


MAX_SMALL_LENGTH = 2**15 - 2
"""Longest reference whose offsets fit."""

_SMALL_NULL = -(2**15)


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
        left, middle, right = np.int32(_SMALL_NULL), np.int32(_SMALL_NULL), np.int32(_SMALL_NULL)
        if s == 0:
            middle = np.int32(-1)
        elif s > 0:
            right = np.int32(cells[before - s + 1])
        for d in range(-s, s + 1):
            k = np.int32(d)
            h = slide(strings, next_offset(left, middle, right), k, np.int32(_SMALL_NULL))
            if k == goal and h == strings.ref_len:
                return np.int64(s)
            cells[here + d] = np.int16(h)
            left, middle = middle, right
            right = np.int32(cells[before + d + 2]) if d + 2 < s else np.int32(_SMALL_NULL)
    return np.int64(-1)
