"""CPU drivers of edit distance: one pair after the other, for one thread.

Global alignments of nucleotides are searched by vector code (``letter_rows.py``), if their distance
is limited. Any other pair is first searched in a workspace for all wavefronts of a limited
distance, unless its first wavefronts predict that it will not fit. A pair that does not fit is
searched from both ends in rows that grow with its distance; its path is then found by divide and
conquer in linear memory: each half has half of the distance, until a part fits the small workspace
(Hirschberg's idea on wavefronts, Marco-Sola et al. 2023).
"""

from __future__ import annotations

import numpy as np

from mapper.align.coding import code_one, coded_first
from mapper.align.edit.letter_rows import new_letterwise, search_by_letters
from mapper.align.edit.short_rows import new_masks
from mapper.align.edit.wavefront import (
    EXCEEDED,
    FINISHED,
    GOING,
    MIDDLE_K,
    MIDDLE_OFFSET,
    N_STATE,
    NO_ROOM,
    PAD,
    Ends,
    R,
    Rows,
    S,
    cell,
    edit_rows_on,
    edit_search,
    ends_within,
    meet,
    reset_state,
    trace_edit,
)
from mapper.align.matches import PLAIN, Letters, codes_of, pair_at, part_of
from mapper.align.result import OVER_LIMIT
from mapper.align.single import BAD, N_OPS, STATUS, cigar_text, columns_of_row
from mapper.cigar import D, I, append_op
from mapper.jit.accelerate import core, driver, grown, step

# --- workspace ---


@driver
def new_rows(n_cells, n_rows):
    """Allocate a workspace."""
    return Rows(
        np.empty(n_cells, np.int32),
        np.empty(n_rows, np.int64),
        np.empty(n_rows, np.int64),
        np.empty(n_rows, np.int64),
    )


@driver
def widened(rows):
    """Return two rows in a workspace of twice the size."""
    wider = new_rows(2 * len(rows.cells), 2)
    half = len(wider.cells) >> 1
    for r in range(2):
        n = rows.hi[r] - rows.lo[r] + 1
        if n < 0 or n + 2 * PAD > half:  # unused so far
            n = 0
        else:
            start = rows.at[r] - PAD
            wider.cells[half * r : half * r + n + 2 * PAD] = rows.cells[start : start + n + 2 * PAD]
        wider.at[r] = half * r + PAD
        wider.lo[r] = rows.lo[r]
        wider.hi[r] = rows.hi[r]
    return wider


@driver
def clear_rows(rows):
    """Mark both rows as unused."""
    half = len(rows.cells) >> 1
    for r in range(2):
        rows.at[r] = half * r + PAD
        rows.lo[r] = 0
        rows.hi[r] = -1


@driver
def meet_with_room(pair, state, rows, back_rows, n_steps):
    """Continue a search as :func:`mapper.align.edit.wavefront.meet`, widening full rows.

    Returns
    -------
    status, rows, back_rows
    """
    while True:
        status = meet(pair, state, rows, back_rows, n_steps)
        if status != NO_ROOM:
            return status, rows, back_rows
        rows, back_rows = widened(rows), widened(back_rows)


# --- search and path ---

LEAF_ROWS = 1 << 10
LEAF_CELLS = 1 << 20
"""Workspace for paths: distances up to about 1020, in 4 MB; a pair touches only as much as its
distance needs."""

ROWS_BEFORE_GUESS = 1 << 8
"""Rows that are searched for a path before the distance is estimated from how far they reach."""

SCORE_BOUND = 256
"""Distances up to this are searched from one end; above, bidirectional search is faster."""

# Flags as numbers: numba would compile the search anew for each literal truth value.
_YES, _NO = np.int64(1), np.int64(0)

_ALL_STEPS = 2**62
_STACK = 160


@driver
def find_middle(pair, bound, state, rows, back_rows):
    """Search the middle of a path; return status and the rows."""
    reset_state(state, bound)
    clear_rows(rows)
    clear_rows(back_rows)
    return meet_with_room(pair, state, rows, back_rows, np.int64(_ALL_STEPS))


@driver
def search(pair, ends, bound, rows, keep, forward):
    """Call :func:`edit_search`; compiled once for all callers."""
    return edit_search(pair, ends, bound, rows, keep, forward)


@driver
def _search_on(pair, ends, rows, s, last, bound):
    """Call :func:`edit_rows_on`, keeping all rows; compiled once for all callers."""
    return edit_rows_on(pair, ends, rows, s, last, bound, _YES, _YES)


@driver
def _search_growing(pair, ends, bound, rows, forward):
    """Search one end from the other, in rows that grow as needed."""
    while True:
        status, s, k = search(pair, ends, bound, rows, _NO, forward)
        if status != NO_ROOM:
            return status, s, k, rows
        rows = new_rows(4 * len(rows.cells), 2)


@driver
def global_path(pair, bound, leaf, rows, back_rows, state, ops, n_ops):
    """Append the path of a whole pair, or of a part, last operation first.

    Returns
    -------
    distance, ops, n_ops, rows, back_rows
        The distance is -1 if it exceeds the bound; arrays may be replaced by larger ones.
    """
    stack = np.empty((_STACK, 5), np.int64)  # v, h, query_len, ref_len, bound
    stack[0, 0] = stack[0, 1] = 0
    stack[0, 2] = pair.query_len
    stack[0, 3] = pair.ref_len
    stack[0, 4] = bound
    depth = 1
    total = np.int64(0)
    ends = Ends(np.int64(0), np.int64(0), np.int64(0), np.int64(0))
    while depth:
        depth -= 1
        v, h, query_len, ref_len, most = stack[depth]
        if n_ops + 4 > len(ops):
            ops = grown(ops, 2 * len(ops) + 4)
        if query_len == 0 or ref_len == 0:
            if query_len + ref_len > most:
                return np.int64(-1), ops, n_ops, rows, back_rows
            n_ops = append_op(ops, n_ops, I, query_len)
            n_ops = append_op(ops, n_ops, D, ref_len)
            total += query_len + ref_len
            continue
        part = part_of(pair, v, h, query_len, ref_len)
        status, s, k = NO_ROOM, np.int64(0), np.int64(0)
        if fits_leaf(most):
            status, s, k = search(part, ends, most, leaf, _YES, _YES)
        elif depth == 0 and most == bound:
            status, s, k = _search_likely(part, ends, most, leaf)
        if status == EXCEEDED:
            return np.int64(-1), ops, n_ops, rows, back_rows
        if status == FINISHED:
            if n_ops + 2 * s + 4 > len(ops):
                ops = grown(ops, 2 * (n_ops + 2 * s + 4))
            n_ops, _ = trace_edit(leaf, s, k, ref_len, ops, n_ops)
            total += s
            continue
        status, rows, back_rows = find_middle(part, most, state, rows, back_rows)
        distance = state[S] + state[R]
        if status == EXCEEDED or distance > most:
            return np.int64(-1), ops, n_ops, rows, back_rows
        if fits_leaf(distance):
            # The estimate was wrong. A part that fits is traced as a whole, so that of equal paths
            # the same one is found.
            stack[depth] = v, h, query_len, ref_len, distance
            depth += 1
            continue
        middle_h = state[MIDDLE_OFFSET]
        middle_v = middle_h - state[MIDDLE_K]
        stack[depth] = v, h, middle_v, middle_h, state[S]
        stack[depth + 1] = (
            v + middle_v, h + middle_h, query_len - middle_v, ref_len - middle_h, state[R]
        )  # fmt: skip
        depth += 2
    return total, ops, n_ops, rows, back_rows


@driver
def _search_likely(pair, ends, bound, leaf):
    """Search as :func:`search`, keeping all rows; NO_ROOM, too, if they will hardly suffice."""
    last = np.int64(ROWS_BEFORE_GUESS - 1)
    status, s, k, bound = _search_on(pair, ends, leaf, np.int64(0), last, bound)
    if status != GOING:
        return status, s, k
    far = np.int64(1)
    for i in range(leaf.lo[last], leaf.hi[last] + 1):
        far = max(far, 2 * cell(leaf, last, i) - i)
    if not fits_leaf(s * (pair.query_len + pair.ref_len) // far):
        return np.int64(NO_ROOM), s, k
    status, s, k, _ = _search_on(pair, ends, leaf, s, np.int64(_ALL_STEPS), bound)
    return status, s, k


@driver
def fits_leaf(distance):
    """Return True if every row of a search up to `distance` fits the small workspace."""
    return distance + 2 < LEAF_ROWS and (distance + 1) * (distance + 5) < LEAF_CELLS


LEAF_DISTANCE = LEAF_ROWS - 3
"""Greatest distance that :func:`fits_leaf`."""


@driver
def _distance(pair, ends, bound, leaf, rows, back_rows, state):
    """Return distance (or -1), end of query and reference, and the rows."""
    n, m = pair.query_len, pair.ref_len
    is_global = ends.query_begin + ends.query_end + ends.ref_begin + ends.ref_end == 0
    status, s, k = search(pair, ends, min(bound, SCORE_BOUND), leaf, _NO, _YES)
    if status == FINISHED:
        h = cell(leaf, s & 1, k)
        return s, h - k, h, rows, back_rows
    if status == EXCEEDED and bound <= SCORE_BOUND:
        return np.int64(-1), n, m, rows, back_rows
    if is_global:
        status, rows, back_rows = find_middle(pair, bound, state, rows, back_rows)
        distance = state[S] + state[R]
        if status == EXCEEDED or distance > bound:
            distance = np.int64(-1)
        return distance, n, m, rows, back_rows
    status, s, k, rows = _search_growing(pair, ends, bound, rows, _YES)
    if status == EXCEEDED:
        return np.int64(-1), n, m, rows, back_rows
    h = cell(rows, s & 1, k)
    return s, h - k, h, rows, back_rows


@driver
def _path(pair, ends, bound, leaf, rows, back_rows, state, ops):
    """Return distance (or -1), span of query and reference, operations, and the rows."""
    n, m = pair.query_len, pair.ref_len
    v = h = np.int64(0)
    end_v, end_h = n, m
    if ends.query_begin + ends.query_end + ends.ref_begin + ends.ref_end > 0:
        status, s, k = search(pair, ends, bound, leaf, _YES, _YES)
        if status == FINISHED:
            if 2 * s + 4 > len(ops):
                ops = grown(ops, 2 * (2 * s + 4))
            end_h = cell(leaf, s, k)
            end_v = end_h - k
            n_ops, start_k = trace_edit(leaf, s, k, end_h, ops, 0)
            v = max(np.int64(0), -start_k)
            h = max(np.int64(0), start_k)
            return s, v, end_v, h, end_h, ops, n_ops, rows, back_rows
        if status == NO_ROOM:
            status, s, k, rows = _search_growing(pair, ends, bound, rows, _YES)
        if status == EXCEEDED:
            return np.int64(-1), v, end_v, h, end_h, ops, 0, rows, back_rows
        end_h = cell(rows, s & 1, k)
        end_v = end_h - k
        # Backward from that end: the free start is now at the far end.
        part = part_of(pair, 0, 0, end_v, end_h)
        back_ends = Ends(np.int64(0), ends.query_begin, np.int64(0), ends.ref_begin)
        _, s, k, rows = _search_growing(part, back_ends, s, rows, _NO)
        back_h = cell(rows, s & 1, k)
        h = end_h - back_h
        v = end_v - (back_h - k)
        bound = s
    part = part_of(pair, v, h, end_v - v, end_h - h)
    distance, ops, n_ops, rows, back_rows = global_path(
        part, bound, leaf, rows, back_rows, state, ops, 0
    )
    return distance, v, end_v, h, end_h, ops, n_ops, rows, back_rows


@core
def _write_row(columns, i, distance, v, end_v, h, end_h):
    if distance < 0:
        columns.status[i] = OVER_LIMIT
        return
    columns.score[i] = distance
    columns.query_start[i] = v
    columns.query_end[i] = end_v
    columns.ref_start[i] = h
    columns.ref_end[i] = end_h


@core
def _append_reversed(ops, n_ops, all_ops, n_all):
    for j in range(n_ops):
        all_ops[np.uint64(n_all + j)] = ops[np.uint64(n_ops - 1 - j)]


@step
def _align_by_letters(codes, coded, first, max_distance, leaf, space, masks, want_path, ops,
                      columns, cigar_counts, all_ops, n_all):  # fmt: skip
    """Align pairs from end to end by their codes, up to one whose distance is too large for that.

    A step, because a driver counts references for each pair, which takes as long as a short one.

    Returns
    -------
    i, n_all, n_more
        The first pair that is not aligned, operations so far, and its operations, if there is only
        no room for them; else 0.
    """
    n_pairs = len(coded.shift)
    for i in range(first, n_pairs):
        query_at, ref_at = coded.query_start[i] << 3, coded.ref_start[i] << 3
        letters = Letters(codes.query[query_at:], codes.ref[ref_at:], codes.fenced)
        n, m = coded.query_len[i], coded.ref_len[i]
        status, s = search_by_letters(
            letters, (coded.shift[i] & PLAIN) != 0, n, m, min(max_distance, max(n, m)), leaf,
            np.int64(LEAF_DISTANCE), space, masks,
        )  # fmt: skip
        if status == NO_ROOM:
            return i, n_all, np.int64(0)
        if status == EXCEEDED:
            s = np.int64(-1)
        elif want_path:
            n_ops, _ = trace_edit(leaf, s, m - n, m, ops, 0)
            if n_all + n_ops > len(all_ops):
                return i, n_all, np.int64(n_ops)
            _append_reversed(ops, n_ops, all_ops, n_all)
            cigar_counts[i] = n_ops
            n_all += n_ops
        _write_row(columns, i, s, np.int64(0), n, np.int64(0), m)
    return np.int64(n_pairs), n_all, np.int64(0)


@driver
def align_edit(coded, free, max_distance, want_path, columns, cigar_counts):
    """Align the pairs of a part (``coding.py``), and fill its rows of the results.

    Parameters
    ----------
    columns, cigar_counts
        Without results, and 0.

    Returns
    -------
    The operations of all these pairs (uint32), in order.
    """
    n_pairs = len(coded.shift)
    codes = codes_of(coded)
    leaf = new_rows(LEAF_CELLS, LEAF_ROWS)
    rows = new_rows(1 << 12, 2)
    back_rows = new_rows(1 << 12, 2)
    state = np.empty(N_STATE, np.int64)
    space = new_letterwise()
    masks = new_masks()
    ops = np.empty(2 * LEAF_DISTANCE + 4, np.uint32)
    n_symbols = coded.query_len.sum() + coded.ref_len.sum()
    # Enough for 3 % edits: where it is too small, a pair is aligned twice.
    all_ops = np.empty(8 * n_pairs + 16 + n_symbols // 16 if want_path else 0, np.uint32)
    n_all = np.int64(0)
    is_global = free.query_begin + free.query_end + free.ref_begin + free.ref_end == 0
    i = np.int64(0)
    while i < n_pairs:
        if is_global and codes.fenced:
            i, n_all, n_more = _align_by_letters(
                codes, coded, i, max_distance, leaf, space, masks, want_path, ops, columns,
                cigar_counts, all_ops, n_all,
            )  # fmt: skip
            if i == n_pairs:
                break
            if n_more > 0:
                all_ops = grown(all_ops, 2 * (n_all + n_more))
                continue
        n, m = coded.query_len[i], coded.ref_len[i]
        pair = pair_at(coded, i)
        ends = ends_within(free, n, m)
        bound = min(max_distance, max(n, m))
        v = h = n_ops = np.int64(0)
        if want_path:
            distance, v, end_v, h, end_h, ops, n_ops, rows, back_rows = _path(
                pair, ends, bound, leaf, rows, back_rows, state, ops
            )
        else:
            distance, end_v, end_h, rows, back_rows = _distance(
                pair, ends, bound, leaf, rows, back_rows, state
            )
            if ends.query_begin + ends.ref_begin > 0:
                v = h = np.int64(-1)  # only a path shows the start
        _write_row(columns, i, distance, v, end_v, h, end_h)
        if want_path and distance >= 0:
            cigar_counts[i] = n_ops
            if n_all + n_ops > len(all_ops):
                all_ops = grown(all_ops, 2 * (n_all + n_ops))
            _append_reversed(ops, n_ops, all_ops, n_all)
            n_all += n_ops
        i += 1
    return all_ops[:n_all]


align_edit_source = coded_first(align_edit)


@driver
def align_one_edit(query_begin, query_end, ref_begin, ref_end, max_distance, letters, n_query,
                   query_codes, ref_codes, as_bytes, want_path, row):  # fmt: skip
    """Align two strings (``single.py``), given the free ends and the greatest distance."""
    coded, row[BAD] = code_one(letters, n_query, query_codes, ref_codes, as_bytes)
    columns = columns_of_row(row)
    if row[BAD] >= 0:
        return np.empty(0, np.uint8)
    free = Ends(query_begin, query_end, ref_begin, ref_end)
    ops = align_edit(coded, free, max_distance, want_path, columns, row[N_OPS : N_OPS + 1])
    row[STATUS] = columns.status[0]
    return cigar_text(ops)
