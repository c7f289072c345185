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

from typing import NamedTuple

import numpy as np

from mapper.align.affine.cpu import (
    BLOCK,
    FIRST_CELLS,
    FIRST_MARGIN,
    FIRST_ROWS,
    new_origins,
    new_rows,
    null_around,
    row_on,
)
from mapper.align.affine.wavefront import (
    NO_COLUMNS,
    AffinePenalties,
    Band,
    affine_row,
    clear_affine_rows,
    drop_empty_sides,
    look_back,
    replay,
    trace_back,
)
from mapper.align.coding import code_one, coded_first
from mapper.align.edit.wavefront import FINISHED, GOING, NO_ROOM, Ends
from mapper.align.matches import NULL, codes_of, letters_in, pair_at
from mapper.align.result import HEURISTIC, NO_MEMORY, OK
from mapper.align.single import BAD, N_OPS, STATUS, cigar_text, columns_of_row
from mapper.cigar import S, append_op
from mapper.jit.accelerate import core, disjoint_core, driver, grown

_NO_BOUND = 2**40

NO_X_DROP = -1
"""As `x_drop`: no cell is dropped."""


@core
def _best_of_row(rows, r, s, centre, match, best):
    """Return the best doubled score of a row above `best`, and its diagonal, the lowest."""
    lo = rows.lo[r]
    offsets = rows.match[r, lo + centre : rows.hi[r] + centre + 1]
    farthest = np.int64(NULL)  # the most symbols of both; a null counts as fewer than any
    for i in range(len(offsets)):
        farthest = max(farthest, 2 * np.int64(offsets[i]) - lo - i)
    if match * farthest - s <= best:
        return best, np.int64(0)
    i = np.int64(0)
    while 2 * np.int64(offsets[i]) - lo - i < farthest:
        i += 1
    return match * farthest - s, lo + i


@disjoint_core
def _drop_low(match, insertion, deletion, lo, least):
    """Set offsets, from diagonal `lo` on, to null that count fewer than `least` symbols of both.

    Returns
    -------
    True if there were any.
    """
    n_dropped = np.int64(0)
    for i in range(len(match)):
        lowest = least + lo + i
        for offsets in (match, insertion, deletion):
            h = offsets[i]
            is_low = (h >= 0) & (2 * np.int64(h) < lowest)
            n_dropped += is_low
            offsets[i] = NULL if is_low else h
    return n_dropped > 0


@core
def _drop_cells(rows, r, s, centre, match, least):
    """Drop the cells of a row whose doubled score is below `least`; return True if any."""
    lo, hi = rows.lo[r], rows.hi[r]
    first, behind = lo + centre, hi + centre + 1
    symbols = (least + s + match - 1) // match  # that a cell needs
    dropped = _drop_low(
        rows.match[r, first:behind], rows.insertion[r, first:behind],
        rows.deletion[r, first:behind], lo, symbols,
    )  # fmt: skip
    if dropped:
        drop_empty_sides(rows, r, centre, lo, hi)
    return dropped


class Best(NamedTuple):
    """The end with the best score so far; of equals that with the lowest penalty, then diagonal."""

    doubled: int  # score
    penalty: int
    k: int
    h: int


@core
def _look_at_row(rows, s, centre, match, x_drop, best):
    """Return the best end up to row s, and True if cells of it were dropped."""
    r = s & (len(rows.lo) - 1)
    found, k = _best_of_row(rows, r, s, centre, match, best.doubled)
    if found > best.doubled:
        best = Best(found, s, k, np.int64(rows.match[r, k + centre]))
    dropped = False
    if x_drop >= 0:
        dropped = _drop_cells(rows, r, s, centre, match, best.doubled - 2 * x_drop)
    return best, dropped


@core
def _nowhere():
    """Return the ends of a search that none ends: -1 symbols of the reference may be left."""
    return Ends(np.int64(0), np.int64(0), np.int64(0), np.int64(-1))


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
    status, best, dropped
        FINISHED, NO_ROOM or NO_COLUMNS; the end; True if cells were dropped.
    """
    ends, no_band = _nowhere(), Band(np.int64(0), np.int64(1))
    clear_affine_rows(rows)
    if keep:
        origins.at[0] = 0
    most = match * (pair.query_len + pair.ref_len)
    best = Best(np.int64(-1), np.int64(0), np.int64(0), np.int64(0))
    s = last_alive = np.int64(0)  # the last row with cells
    dropped = False
    while most - s > best.doubled and s - last_alive < len(rows.lo):
        if s > last:
            return NO_ROOM, best, dropped
        status, _, _ = affine_row(
            pair, ends, rows, origins, penalties, no_band, centre, s, np.int64(_NO_BOUND), keep,
            True,
        )  # fmt: skip
        if status != GOING:
            return status, best, dropped
        best, dropped_now = _look_at_row(rows, s, centre, match, x_drop, best)
        dropped |= dropped_now
        r = s & (len(rows.lo) - 1)
        if rows.lo[r] <= rows.hi[r]:
            last_alive = s
        s += 1
    return FINISHED, best, dropped


@core
def _search_by_blocks(pair, letters, rows, origins, penalties, match, x_drop, centre):
    """Search as :func:`extension_search`, by the CPU's rows; `origins` may be None."""
    ends, no_band = _nowhere(), Band(np.int64(0), np.int64(1))
    clear_affine_rows(rows)
    if origins is not None:
        origins.at[0] = 0
    most = match * (pair.query_len + pair.ref_len)
    best = Best(np.int64(-1), np.int64(0), np.int64(0), np.int64(0))
    s = last_alive = np.int64(0)
    dropped = False
    while most - s > best.doubled and s - last_alive < len(rows.lo):
        status, _, _ = row_on(
            pair, letters, ends, rows, origins, penalties, no_band, centre, s, np.int64(_NO_BOUND)
        )
        if status != GOING and status != FINISHED:
            return status, best, dropped
        best, dropped_now = _look_at_row(rows, s, centre, match, x_drop, best)
        if dropped_now:
            dropped = True
            null_around(rows, centre, s)
        r = s & (len(rows.lo) - 1)
        if rows.lo[r] <= rows.hi[r]:
            last_alive = s
        s += 1
    return np.int64(FINISHED), best, dropped


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
    codes = codes_of(packed)
    for i in range(n_pairs):
        pair, letters = pair_at(packed, i), letters_in(codes, packed, i)
        n, m = pair.query_len, pair.ref_len
        while True:
            below, above = min(margin, n + 2), min(margin, m + 2)
            n_columns = below + above + 5 + 2 * BLOCK
            if n_columns > rows.match.shape[1]:
                rows = new_rows(len(rows.lo), n_columns)
            centre = below + 2 + BLOCK
            if want_path:
                status, best, dropped = _search_by_blocks(
                    pair, letters, rows, origins, penalties, match, x_drop, centre
                )
            else:
                status, best, dropped = _search_by_blocks(
                    pair, letters, rows, None, penalties, match, x_drop, centre
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
        s, k, h = best.penalty, best.k, best.h
        columns.score[i] = best.doubled >> 1
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


extend_source = coded_first(extend_pairs)


@driver
def align_one_extension(mismatch, gap_open, gap_extend, match, x_drop, max_cells, letters, n_query,
                        query_codes, ref_codes, as_bytes, want_path, row):  # fmt: skip
    """Extend two strings (``single.py``); the numbers are :func:`extend_pairs`'s."""
    coded, row[BAD] = code_one(letters, n_query, query_codes, ref_codes, as_bytes)
    columns = columns_of_row(row)
    if row[BAD] >= 0:
        return np.empty(0, np.uint8)
    ops = extend_pairs(
        coded, AffinePenalties(mismatch, gap_open, gap_extend), match, x_drop, max_cells,
        want_path, columns, row[N_OPS : N_OPS + 1],
    )  # fmt: skip
    row[STATUS] = columns.status[0]
    return cigar_text(ops)
