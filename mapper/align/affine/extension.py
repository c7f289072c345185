"""Core and CPU driver of extension: the best-scoring prefixes of both sequences.

The search is that of ``wavefront.py``, in penalties that turn into scores by

    2 score = match (v + h) - penalty

(:mod:`mapper.extend.wavefront`), without an end to be reached: after each row the cell with the
best score so far is kept. No cell of penalty s can lead to more than ``match (n + m) - s``,
so the search ends when that does not exceed the best.

*X-drop* (runtime heuristic): after each row, cells whose score lies more than X below the best so
far become null, and nothing grows from them; the search also ends when no row that is looked back
to has a cell. It may miss an end behind a stretch that costs more than X; pairs that lost cells
have the status ``heuristic``.

References
----------
Zhang, Schwartz, Wagner, Miller (2000), J. Comput. Biol. 7:203: X-drop.
"""

from __future__ import annotations

import numpy as np

from mapper.align.affine.cpu import FIRST_CELLS, FIRST_MARGIN, FIRST_ROWS, new_origins, new_rows
from mapper.align.affine.wavefront import (
    ALL_ROWS,
    NO_COLUMNS,
    AffinePenalties,
    Band,
    affine_row,
    drop_empty_sides,
    look_back,
    replay,
    trace_back,
)
from mapper.align.coding import code_one
from mapper.align.edit.wavefront import FINISHED, GOING, NO_ROOM, Ends
from mapper.align.matches import NULL, pair_at
from mapper.align.result import HEURISTIC, NO_MEMORY, OK
from mapper.align.single import BAD, N_OPS, STATUS, columns_of_row
from mapper.cigar import S, append_op
from mapper.jit.accelerate import core, driver, grown

_NO_BOUND = 2**40

NO_X_DROP = -1
"""As `x_drop`: no cell is dropped."""


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
def _drop_low(offsets, centre, lo, hi, match, least):
    """Set offsets whose doubled score, before the penalty, is below `least` to null.

    Returns
    -------
    True if there were any.
    """
    dropped = False
    for k in range(lo, hi + 1):
        h = np.int64(offsets[k + centre])
        if h >= 0 and match * (2 * h - k) < least:
            offsets[k + centre] = NULL
            dropped = True
    return dropped


@core
def _drop_cells(rows, r, s, centre, match, least):
    """Drop the cells of a row whose doubled score is below `least`; return True if any."""
    lo, hi = rows.lo[r], rows.hi[r]
    dropped = _drop_low(rows.match[r], centre, lo, hi, match, least + s)
    dropped |= _drop_low(rows.insertion[r], centre, lo, hi, match, least + s)
    dropped |= _drop_low(rows.deletion[r], centre, lo, hi, match, least + s)
    if dropped:
        drop_empty_sides(rows, r, centre, lo, hi)
    return dropped


@core
def extension_search(pair, rows, origins, penalties, match, x_drop, centre, last, keep):
    """Search the best-scoring end of an alignment that begins at both starts.

    Parameters
    ----------
    x_drop
        Drop cells whose score is more than this below the best so far; NO_X_DROP: none.
    last
        The last row; after it the status is NO_ROOM.

    Returns
    -------
    status, doubled, s, k, h, dropped
        FINISHED, the doubled score and the cell of the end (of equals that with the lowest
        penalty, then diagonal), or NO_ROOM or NO_COLUMNS; True if cells were dropped.
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
    last_alive = np.int64(0)  # the last row with cells
    dropped = False
    while most - s > best and s - last_alive <= last_row:
        if s > last:
            return NO_ROOM, best, s, best_k, best_h, dropped
        status, _, _ = affine_row(
            pair, ends, rows, origins, penalties, no_band, centre, s, np.int64(_NO_BOUND), keep,
            True,
        )  # fmt: skip
        if status != GOING:
            return status, best, s, best_k, best_h, dropped
        r = s & last_row
        found, k = _best_of_row(rows, r, s, centre, match, best)
        if found > best:
            best, best_s, best_k = found, s, k
            best_h = np.int64(rows.match[r, k + centre])
        if x_drop >= 0:
            dropped |= _drop_cells(rows, r, s, centre, match, best - 2 * x_drop)
        if rows.lo[r] <= rows.hi[r]:
            last_alive = s
        s += 1
    return FINISHED, best, best_s, best_k, best_h, dropped


@driver
def extend_pairs(packed, penalties, match, x_drop, max_cells, want_path, columns, cigar_counts):
    """Extend the pairs of a part, and fill its rows of the results.

    Parameters
    ----------
    columns, cigar_counts
        Without results, and 0.

    Returns
    -------
    The operations of all these pairs (uint32), in order; the rest of a query is clipped (S).
    """
    n_pairs = len(packed.shift)
    margin = np.int64(FIRST_MARGIN)
    rows = new_rows(look_back(penalties), 4 * FIRST_MARGIN)
    origins = new_origins(FIRST_CELLS, FIRST_ROWS)
    events = np.empty(256, np.uint32)
    all_ops = np.empty(8 * n_pairs + 16 if want_path else 0, np.uint32)
    n_all = 0
    keep = np.int64(1 if want_path else 0)
    for i in range(n_pairs):
        pair = pair_at(packed, i)
        n, m = pair.query_len, pair.ref_len
        while True:
            below, above = min(margin, n + 2), min(margin, m + 2)
            if below + above + 5 > rows.match.shape[1]:
                rows = new_rows(len(rows.lo), below + above + 5)
            status, doubled, s, k, h, dropped = extension_search(
                pair, rows, origins, penalties, match, x_drop, below + 2, ALL_ROWS, keep
            )
            if status == NO_COLUMNS:
                margin *= 4
            elif status == NO_ROOM and 4 * len(origins.cells) <= max_cells:
                origins = new_origins(4 * len(origins.cells), 4 * len(origins.at))
            else:
                break
        if status == NO_ROOM:
            columns.status[i] = NO_MEMORY
            continue
        columns.score[i] = doubled >> 1
        columns.status[i] = HEURISTIC if dropped else OK
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
    return all_ops[:n_all]


@driver
def align_one_extension(letters, n_query, query_codes, ref_codes, as_bytes, want_path, row,
                        mismatch, gap_open, gap_extend, match, x_drop, max_cells):  # fmt: skip
    """Extend two strings (``single.py``); the numbers are :func:`extend_pairs`'s."""
    coded, row[BAD] = code_one(letters, n_query, query_codes, ref_codes, as_bytes)
    columns = columns_of_row(row)
    if row[BAD] >= 0:
        return np.empty(0, np.uint32)
    ops = extend_pairs(
        coded, AffinePenalties(mismatch, gap_open, gap_extend), match, x_drop, max_cells,
        want_path, columns, row[N_OPS : N_OPS + 1],
    )  # fmt: skip
    row[STATUS] = columns.status[0]
    return ops
