"""Core and CPU driver of extension: the best-scoring prefixes of both sequences.

The search is that of ``wavefront.py``, in penalties that turn into scores by

    2 score = match (v + h) - penalty

(:mod:`mapper.extend.wavefront`), without an end to be reached: after each row the cell with the
best score so far is kept. No cell of penalty s can lead to more than ``match (n + m) - s``,
so the search ends when that does not exceed the best.
"""

from __future__ import annotations

import numpy as np

from mapper.align.affine.cpu import FIRST_CELLS, FIRST_MARGIN, FIRST_ROWS, new_origins, new_rows
from mapper.align.affine.wavefront import (
    ALL_ROWS,
    NO_COLUMNS,
    Band,
    affine_row,
    look_back,
    replay,
    trace_back,
)
from mapper.align.edit.wavefront import FINISHED, GOING, NO_ROOM, Ends
from mapper.align.matches import pair_at
from mapper.align.result import NO_MEMORY, OK
from mapper.cigar import S, append_op
from mapper.jit.accelerate import core, driver, grown

_NO_BOUND = 2**40


@core
def _best_of_row(rows, r, s, centre, match, best):
    """Return the best doubled score of a row above `best`, and its diagonal, the lowest."""
    best_k = np.int64(0)
    for k in range(rows.lo[r], rows.hi[r] + 1):
        h = np.int64(rows.match[r, k + centre])
        if h >= 0 and match * (2 * h - k) - s > best:
            best = match * (2 * h - k) - s
            best_k = np.int64(k)
    return best, best_k


@core
def extension_search(pair, rows, origins, penalties, match, centre, last, keep):
    """Search the best-scoring end of an alignment that begins at both starts.

    `last`: the last row; after it the status is NO_ROOM.

    Returns
    -------
    status, doubled, s, k, h
        FINISHED, the doubled score and the cell of the end (of equals that with the lowest
        penalty, then diagonal), or NO_ROOM or NO_COLUMNS.
    """
    # An end that is never reached: -1 symbols of the reference may be left.
    ends = Ends(np.int64(0), np.int64(pair.query_len), np.int64(0), np.int64(-1))
    no_band = Band(np.int64(0), np.int64(1))
    last_row = len(rows.lo) - 1
    rows.lo[:] = 0
    rows.hi[:] = -1
    if keep:
        origins.at[0] = 0
    most = match * (pair.query_len + pair.ref_len)
    best = np.int64(-1)
    best_s = best_k = best_h = np.int64(0)
    s = np.int64(0)
    while most - s > best:
        if s > last:
            return NO_ROOM, best, s, best_k, best_h
        status, _, _ = affine_row(
            pair, ends, rows, origins, penalties, no_band, centre, s, np.int64(_NO_BOUND), keep,
            True,
        )  # fmt: skip
        if status != GOING:
            return status, best, s, best_k, best_h
        r = s & last_row
        found, k = _best_of_row(rows, r, s, centre, match, best)
        if found > best:
            best, best_s, best_k = found, s, k
            best_h = np.int64(rows.match[r, k + centre])
        s += 1
    return FINISHED, best, best_s, best_k, best_h


@driver
def extend_pairs(packed, first, last, penalties, match, max_cells, want_path, columns,
                 cigar_counts):  # fmt: skip
    """Extend pairs first:last, and write their rows of `columns` and `cigar_counts`.

    Returns
    -------
    The operations of all these pairs (uint32), in order; the rest of a query is clipped (S).
    """
    margin = np.int64(FIRST_MARGIN)
    rows = new_rows(look_back(penalties), 4 * FIRST_MARGIN)
    origins = new_origins(FIRST_CELLS, FIRST_ROWS)
    events = np.empty(256, np.uint32)
    all_ops = np.empty(8 * (last - first) + 16 if want_path else 0, np.uint32)
    n_all = 0
    keep = np.int64(1 if want_path else 0)
    for i in range(first, last):
        pair = pair_at(packed, i)
        n, m = pair.query_len, pair.ref_len
        while True:
            below, above = min(margin, n + 2), min(margin, m + 2)
            if below + above + 5 > rows.match.shape[1]:
                rows = new_rows(len(rows.lo), below + above + 5)
            status, doubled, s, k, h = extension_search(
                pair, rows, origins, penalties, match, below + 2, ALL_ROWS, keep
            )
            if status == NO_COLUMNS:
                margin *= 4
            elif status == NO_ROOM and 4 * len(origins.cells) <= max_cells:
                origins = new_origins(4 * len(origins.cells), 4 * len(origins.at))
            else:
                break
        cigar_counts[i] = 0
        if status == NO_ROOM:
            columns.status[i] = NO_MEMORY
            continue
        columns.score[i] = doubled >> 1
        columns.status[i] = OK
        columns.query_start[i] = 0
        columns.query_end[i] = h - k
        columns.ref_start[i] = 0
        columns.ref_end[i] = h
        if not want_path:
            continue
        if s + 1 > len(events):
            events = np.empty(2 * (s + 1), np.uint32)
        n_events, _ = trace_back(origins, penalties, s, k, events)
        if n_all + 2 * n_events + 2 > len(all_ops):
            all_ops = grown(all_ops, 2 * (n_all + 2 * n_events + 2))
        own_ops = all_ops[n_all:]
        n_ops = replay(pair, events, n_events, np.int64(0), np.int64(0), h, own_ops)
        n_ops = append_op(own_ops, n_ops, S, n - h + k)
        cigar_counts[i] = n_ops
        n_all += n_ops
    return all_ops[:n_all].copy()
