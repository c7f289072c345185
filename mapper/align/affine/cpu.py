"""CPU driver of gap-affine alignment: one pair after the other, for one thread.

Rows of wavefronts are computed by vector instructions, a block of cells at a time, all states and
origins at once; cells after the last of a row are computed too, and never read.

The workspace is small at first, so that it stays in the cache; a pair that does not fit is begun
again with four times as much, which later pairs then have too.

Where the penalty is high for the length, a band of the matrix is faster and takes over
(``banded.py``). It cannot where ends are free, penalties do not fit its bytes, or the memory is too
small for its path. The choice has no effect on results, so it may rest on an estimate, from the
first rows of a pair and from what the pairs before it have cost. If the end is far, a narrow band
of wavefronts then runs ahead of the search and finds the penalty of some alignment, mostly the best
one. That is a bound: of the cells after it only those are computed from which the end can be
reached within it, half of them, with the same result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.affine.banded import dp_align, fits_bytes, new_dp_space
from mapper.align.affine.wavefront import (
    ALL_ROWS,
    NO_COLUMNS,
    AffinePenalties,
    AffineRows,
    Band,
    Origins,
    affine_cell,
    begin_origins,
    begin_row,
    cell_origin,
    clear_affine_rows,
    cut_to_band,
    end_offset,
    end_row,
    highest_bound,
    look_back,
    lowered_penalty,
    null_beside,
    replay,
    start_row,
    trace_back,
)
from mapper.align.coding import code_one, coded_first
from mapper.align.edit.wavefront import (
    EXCEEDED,
    FINISHED,
    GOING,
    NO_ROOM,
    Ends,
    ends_within,
    extend_row,
)
from mapper.align.matches import NULL, Letters, Pair, codes_of, letters_in, pair_at, run_to_fence
from mapper.align.result import HEURISTIC, NO_MEMORY, OK, OVER_LIMIT
from mapper.align.single import BAD, N_OPS, STATUS, cigar_text, columns_of_row
from mapper.jit.accelerate import core, disjoint_core, driver, grown, step

BLOCK = 16
"""Cells computed at a time; rows and origins need as many spare items."""


@disjoint_core
def _fill_blocks(match_x, match_oe, insertion_e, deletion_e, match, insertion, deletion, cells, n,
                 column, cell, most_insertion, most_deletion):  # fmt: skip
    """Compute n cells, rounded up to whole blocks.

    Parameters
    ----------
    match_x, match_oe, insertion_e, deletion_e
        The rows that are looked back to, by penalty.
    match, insertion, deletion, cells
        The row, and its origins, or None if they are not wanted.
    column, cell
        Where the first cell lies in rows and in `cells`: uint64, as an index that may be negative
        would be checked for that.
    most_insertion
        Greatest offset of I of the first cell that is inside.
    """
    for first in range(0, n, BLOCK):
        start = column + np.uint64(first)
        to = cell + np.uint64(first)
        most_first = np.int32(most_insertion + first)
        for lane in range(BLOCK):
            i = start + np.uint64(lane)
            new_insertion, new_deletion, new_match = affine_cell(
                match_x[i], match_oe[i + np.uint64(1)], insertion_e[i + np.uint64(1)],
                match_oe[i - np.uint64(1)], deletion_e[i - np.uint64(1)],
                np.int32(most_first + np.int32(lane)), most_deletion,
            )  # fmt: skip
            if cells is not None:
                cells[to + np.uint64(lane)] = cell_origin(
                    match_x[i], match_oe[i + np.uint64(1)], insertion_e[i + np.uint64(1)],
                    match_oe[i - np.uint64(1)], deletion_e[i - np.uint64(1)],
                    new_insertion, new_deletion,
                )  # fmt: skip
            # Unsigned, what is below 0 is beyond the end too.
            most = min(np.int32(most_first + np.int32(lane)), most_deletion)
            is_inside = np.uint32(new_match) <= np.uint32(most)
            insertion[i], deletion[i] = new_insertion, new_deletion
            match[i] = new_match if is_inside else NULL


@core
def _null_blocks(offsets, before, behind):
    """Write a block of nulls before column `before` and one from `behind` on.

    The offsets are of one state: the compiler does not join stores to several states by turns to
    stores of vectors.
    """
    for lane in range(BLOCK):
        offsets[before - np.uint64(BLOCK) + np.uint64(lane)] = NULL
    for lane in range(BLOCK):
        offsets[behind + np.uint64(lane)] = NULL


@core
def _is_null_beside(rows, r, lo, hi):
    """Return True if the nulls around row r extend beyond diagonals lo - 1 to hi + 1."""
    return rows.lo[r] <= rows.hi[r] and rows.lo[r] - lo < BLOCK and hi - rows.hi[r] < BLOCK


@core
def _follow_letters(letters, query_len, ref_len, row, lo):
    """As ``extend_row``, forward, by letters, where both sequences' last letters are the end.

    Cells beyond an end are null already.
    """
    for i in range(len(row)):
        h = np.int64(row[i])
        if h >= 0:
            row[i] = h + run_to_fence(letters, h - (lo + i), h)
    goal = ref_len - query_len - lo
    if 0 <= goal < len(row) and row[goal] == ref_len:
        return goal + lo
    return np.int64(NULL)


@core
def row_on(pair, letters, ends, rows, origins, penalties, band, centre, s, bound):
    """Compute row s and follow its matches, forward; return as ``affine_row``.

    Parameters and conditions are those of :func:`rows_on`.
    """
    last_row = len(rows.lo) - 1
    status, lo, hi = begin_row(pair, ends, rows, penalties, centre, s, bound, np.int64(BLOCK))
    if origins is not None and status == GOING:
        status = begin_origins(origins, s, lo, hi, np.int64(BLOCK))
    if status != GOING or lo > hi:
        return status, np.int64(NULL), False
    r = np.uint64(s & last_row)
    if s == 0:
        start_row(rows, centre, lo, hi)
    else:
        from_x = (s - penalties.mismatch) & last_row
        from_oe = (s - penalties.gap_open - penalties.gap_extend) & last_row
        from_e = (s - penalties.gap_extend) & last_row
        if not (
            _is_null_beside(rows, from_x, lo, hi)
            and _is_null_beside(rows, from_oe, lo, hi)
            and _is_null_beside(rows, from_e, lo, hi)
        ):
            null_beside(rows, penalties, centre, s, lo, hi)
        if origins is None:
            cells, cell = None, np.uint64(0)
        else:
            cells, cell = origins.cells, np.uint64(origins.at[s])
        _fill_blocks(
            rows.match[np.uint64(from_x)], rows.match[np.uint64(from_oe)],
            rows.insertion[np.uint64(from_e)], rows.deletion[np.uint64(from_e)],
            rows.match[r], rows.insertion[r], rows.deletion[r], cells, hi - lo + 1,
            np.uint64(lo + centre), cell, pair.query_len + lo, np.int32(pair.ref_len),
        )  # fmt: skip
    row = rows.match[r, lo + centre : hi + centre + 1]
    free = ends.query_begin + ends.query_end + ends.ref_begin + ends.ref_end
    is_extension = ends.ref_end < 0  # whose end is nowhere; with both sequences used up it is over
    if letters.fenced != 0 and (free == 0 or is_extension):
        end_k = _follow_letters(letters, pair.query_len, pair.ref_len, row, lo)
    else:
        end_k = extend_row(pair, ends, row, lo, np.int64(1))
    status, end_k, cut = end_row(pair, rows, band, centre, s, lo, hi, end_k)
    if cut:
        _null_around_all(rows, centre)
    elif status == GOING:
        null_around(rows, centre, s)
    return status, end_k, cut


@core
def null_around(rows, centre, s):
    """Write nulls on both sides of row s, so that later rows seldom have to before they read it."""
    r = np.uint64(s & (len(rows.lo) - 1))
    if rows.lo[r] <= rows.hi[r]:
        before, behind = np.uint64(rows.lo[r] + centre), np.uint64(rows.hi[r] + centre + 1)
        _null_blocks(rows.match[r], before, behind)
        _null_blocks(rows.insertion[r], before, behind)
        _null_blocks(rows.deletion[r], before, behind)


@core
def _null_around_all(rows, centre):
    """Write nulls on both sides of all rows, after they have lost cells."""
    for s in range(len(rows.lo)):
        null_around(rows, centre, s)


@core
def _rows_on(pair, letters, ends, rows, origins, penalties, band, centre, s, last, bound, cut):
    end_k = np.int64(NULL)
    while s <= last:
        status, end_k, cut_now = row_on(
            pair, letters, ends, rows, origins, penalties, band, centre, s, bound
        )
        cut = cut or cut_now
        if status != GOING:
            return status, s, end_k, bound, cut
        bound = lowered_penalty(pair, rows, penalties, centre, s, bound)
        s += 1
    return np.int64(GOING), s, end_k, bound, cut


@driver
def rows_on(pair, letters, ends, rows, origins, penalties, band, centre, s, last, bound, cut):
    """Continue as ``affine_rows_on``, forward, with or without origins.

    Rows have a block of nulls on each side, so that later rows seldom have to write more before
    they read them; a caller that saves and restores rows must include these.

    Parameters
    ----------
    letters
        Those of the pair.
    rows, origins
        With BLOCK spare columns on each side, and BLOCK spare items; `origins` may be None.
    """
    return _rows_on(
        pair, letters, ends, rows, origins, penalties, band, centre, s, last, bound, cut
    )


FIRST_CELLS = 1 << 15
FIRST_ROWS = 256
FIRST_MARGIN = 64
"""Spare diagonals on each side of those of both ends."""

MOST_MARGIN = 1 << 11
"""Most spare diagonals by the length of a pair; one that needs more is begun again."""

ROWS_BEFORE_BAND = 96
"""Rows searched before the band runs ahead: for a nearer end it would cost more than it saves."""

ROWS_BEFORE_GUESS = 40
"""Rows searched before the penalty is estimated from their progress."""

BAND_WIDTH = 16
BAND_INTERVAL = 8
"""The band that runs ahead. Of 400 pairs of 1,000 bases and 60 of 10,000 with 5 % edits it found
the lowest penalty of all; of 30 of 10,000 with 10 % that of three quarters, and at most 0.5 % more
of the others."""


@driver
def new_rows(n_rows, n_columns):
    """Allocate rows of offsets."""
    shape = (n_rows, n_columns)
    return AffineRows(
        np.empty(shape, np.int32), np.empty(shape, np.int32), np.empty(shape, np.int32),
        np.empty(n_rows, np.int64), np.empty(n_rows, np.int64),
    )  # fmt: skip


@driver
def new_origins(n_cells, n_rows):
    """Allocate origins of `n_cells` cells in `n_rows` rows."""
    return Origins(
        np.empty(n_cells, np.uint8), np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
    )


@core
def columns_within(pair, ends, margin):
    """Return the column of diagonal 0 and the number of columns for `margin` spare diagonals."""
    goal = pair.ref_len - pair.query_len
    lowest = min(goal - ends.ref_end, -ends.query_begin)
    highest = max(goal + ends.query_end, ends.ref_begin)
    # Beyond the lengths no diagonal has cells.
    below = min(margin, pair.query_len + lowest + 2)
    above = min(margin, pair.ref_len - highest + 2)
    return below - lowest + 2 + BLOCK, highest - lowest + below + above + 5 + 2 * BLOCK


@driver
def _bound_by_band(pair, letters, ends, penalties, rows, centre, s, bound):
    """Return the penalty of the alignment that a band finds from row s on, else `bound`."""
    ahead = AffineRows(
        rows.match.copy(), rows.insertion.copy(), rows.deletion.copy(), rows.lo.copy(),
        rows.hi.copy(),
    )  # fmt: skip
    band = Band(np.int64(BAND_WIDTH), np.int64(BAND_INTERVAL))
    # Not only in the next row whose turn it is: up to there rows would be as wide as the search's.
    if cut_to_band(pair, ahead, (s - 1) & (len(rows.lo) - 1), centre, band):
        _null_around_all(ahead, centre)
    status, penalty, _, _, _ = rows_on(
        pair, letters, ends, ahead, None, penalties, band, centre, s, np.int64(ALL_ROWS), bound,
        False,
    )  # fmt: skip
    return penalty if status == FINISHED else bound


@driver
def penalty_worth(pair):
    """Return the penalty up to which wavefronts are faster than a band of the matrix.

    Measured with penalties 2, 3, 1: both took as long at about 65 for 150 bases, 90 for 300, 105
    for 500, 170 for 1,000, 560 for 3,000, 1,600 for 10,000.
    """
    return max(np.int64(60), (pair.query_len + pair.ref_len) * 17 // 200)


@driver
def _allows_band(free, penalties, band):
    """Return True if a band of the matrix can take over."""
    is_global = free.query_begin + free.query_end + free.ref_begin + free.ref_end == 0
    return is_global and band.width == 0 and fits_bytes(penalties)


@core
def _suits_band(query_len, ref_len):
    """Return False for lengths that differ so much that a band has most diagonals."""
    return 2 * abs(query_len - ref_len) < min(query_len, ref_len)


_USUAL_SYMBOLS = 1 << 16
"""Symbols of both sequences that the usual penalty is for."""

_USUAL_PAIRS = 8
"""Pairs that it is the mean of, roughly: each moves it by this part of the difference."""

_ERROR_OF_FIRST_ROWS = 4
"""The first rows alone tell a penalty with an error of this part of it: at a steady rate of edits
they have met a dozen."""


class Usual(NamedTuple):
    """Penalties of the pairs before that the first rows did not finish, for _USUAL_SYMBOLS."""

    penalty: int  # mean of the last pairs; 0 before the first
    deviation: int  # mean distance of a pair's from it


@core
def _usual_after(usual, penalty, symbols):
    """Update mean and deviation with a pair's penalty and the symbols of both its sequences."""
    penalty = penalty * _USUAL_SYMBOLS // symbols
    if usual.penalty == 0:
        return Usual(penalty, penalty // _ERROR_OF_FIRST_ROWS)
    off = penalty - usual.penalty
    return Usual(
        usual.penalty + off // _USUAL_PAIRS,
        usual.deviation + (abs(off) - usual.deviation) // _USUAL_PAIRS,
    )


@driver
def _estimate(pair, rows, centre, s, usual):
    """Estimate the penalty of a pair from the progress of the rows before s and from other pairs.

    Each of the two estimates counts the more the less the other one can be relied on.
    """
    far = np.int64(1)
    for r in range(len(rows.lo)):
        for k in range(rows.lo[r], rows.hi[r] + 1):
            far = max(far, 2 * np.int64(rows.match[r, k + centre]) - k)
    symbols = pair.query_len + pair.ref_len
    seen = s * symbols // far
    if usual.penalty == 0:
        return seen
    expected = usual.penalty * symbols // _USUAL_SYMBOLS
    deviation = usual.deviation * symbols // _USUAL_SYMBOLS
    error = seen // _ERROR_OF_FIRST_ROWS
    return (seen * deviation + expected * error) // (deviation + error)


@driver
def _search_growing(pair, letters, ends, penalties, band, bound, keep, max_cells, by_dp, usual,
                    margin, rows, origins, s, now):  # fmt: skip
    """Search with as much workspace as it takes, up to `max_cells` bytes of origins.

    Parameters
    ----------
    usual
        What the pairs before have cost.
    s, now
        Row at which to continue a search in this workspace, and its bound; row 0 to begin one.

    Returns
    -------
    status, s, k, offset, cut, margin, rows, origins
        With `by_dp` the status is GOING where a band of the matrix is expected to be faster, and s
        an estimate of the penalty.
    """
    all_rows = np.int64(ALL_ROWS)
    while True:
        # In an adaptive band nothing runs ahead: the result is defined by the band.
        last = all_rows if band.width > 0 else np.int64(ROWS_BEFORE_BAND)
        if by_dp:
            last = np.int64(ROWS_BEFORE_GUESS)
        centre, n_columns = columns_within(pair, ends, margin)
        cut = False
        if s == 0:
            if n_columns > rows.match.shape[1]:
                rows = new_rows(len(rows.lo), n_columns)
            clear_affine_rows(rows)
            origins.at[0] = 0
            now = bound
        while True:
            if keep:
                status, s, k, now, cut = rows_on(
                    pair, letters, ends, rows, origins, penalties, band, centre, s, last, now, cut
                )
            else:
                status, s, k, now, cut = rows_on(
                    pair, letters, ends, rows, None, penalties, band, centre, s, last, now, cut
                )
            if status != GOING:
                break
            if by_dp and last < ROWS_BEFORE_BAND:
                guess = _estimate(pair, rows, centre, s, usual)
                if guess > penalty_worth(pair):
                    return status, guess, k, np.int64(-1), cut, margin, rows, origins
                last = np.int64(ROWS_BEFORE_BAND)
                continue
            ahead = _bound_by_band(pair, letters, ends, penalties, rows, centre, s, now)
            bound = min(bound, ahead)
            # Wavefronts have about as many cells as the square of the penalty, of which those up to
            # row s are done; a band has penalty times length, as many where it begins to be worth.
            if by_dp and bound * (bound - penalty_worth(pair)) > s * s:
                return status, bound, k, np.int64(-1), cut, margin, rows, origins
            now = min(now, bound)
            last = all_rows
        if status == NO_COLUMNS:
            margin *= 4
            s = np.int64(0)
            continue
        if status != NO_ROOM:
            offset = np.int64(-1)
            if status != EXCEEDED:
                offset = end_offset(rows, centre, s, k)
            return status, s, k, offset, cut, margin, rows, origins
        if 4 * len(origins.cells) > max_cells:
            return status, s, k, np.int64(-1), cut, margin, rows, origins
        origins = new_origins(4 * len(origins.cells), 4 * len(origins.at))
        s = np.int64(0)


@core
def _margin(query_len, ref_len):
    """Return the spare diagonals that a pair of these lengths has at least."""
    return min((query_len + ref_len) >> 4, np.int64(MOST_MARGIN))


@core
def _write_score(columns, i, score, status, end_v, end_h):
    columns.score[i] = score
    columns.status[i] = status
    columns.query_end[i] = end_v
    columns.ref_end[i] = end_h


@core
def _write_start(columns, i, v, h):
    columns.query_start[i] = v
    columns.ref_start[i] = h


FAR, WIDER_ROWS, MORE_OPS = range(3)
"""Why near pairs are not gone on with: more columns or room for operations are needed; FAR for all
else, above all an end that is far."""

_NEAR_OPS = 2 * ROWS_BEFORE_GUESS + 8
"""More than the operations of a path that ends in so many rows."""


@step
def _align_near(codes, coded, first, penalties, scale, max_penalty, margin, rows, origins,
                want_path, events, columns, cigar_counts, all_ops, n_all):  # fmt: skip
    """Align pairs from end to end, up to one that ROWS_BEFORE_GUESS rows do not finish.

    A step, because a driver counts references for each pair, and passes a growing workspace around.

    Returns
    -------
    why, i, n_all, s, now
        One of FAR, WIDER_ROWS, MORE_OPS; the pair, or the number of pairs; operations so far; and
        the row at which to continue its search, and the bound there.
    """
    n_pairs = len(coded.shift)
    zero = np.int64(0)
    ends, no_band = Ends(zero, zero, zero, zero), Band(zero, np.int64(1))
    for i in range(first, n_pairs):
        n, m = coded.query_len[i], coded.ref_len[i]
        query_at, ref_at = coded.query_start[i] << 3, coded.ref_start[i] << 3
        letters = Letters(codes.query[query_at:], codes.ref[ref_at:], codes.fenced)
        pair = Pair(
            coded.query_words, coded.ref_words, query_at << 3, ref_at << 3, n, m,
            np.int64(coded.shift[i] & np.uint8(3)),
        )  # fmt: skip
        now = np.int64(min(max_penalty, highest_bound(pair, penalties)))
        if not _suits_band(n, m):
            return FAR, i, n_all, zero, now
        if want_path and n_all + _NEAR_OPS > len(all_ops):
            return MORE_OPS, i, n_all, zero, now
        centre, n_columns = columns_within(pair, ends, max(margin, _margin(n, m)))
        if n_columns > rows.match.shape[1]:
            return WIDER_ROWS, i, n_all, zero, now
        clear_affine_rows(rows)
        origins.at[0] = 0
        last = np.int64(ROWS_BEFORE_GUESS)
        if want_path:
            status, s, k, now, _ = _rows_on(
                pair, letters, ends, rows, origins, penalties, no_band, centre, zero, last, now,
                False,
            )  # fmt: skip
        else:
            status, s, k, now, _ = _rows_on(
                pair, letters, ends, rows, None, penalties, no_band, centre, zero, last, now, False
            )
        if status != FINISHED:
            return FAR, i, n_all, s if status == GOING else zero, now
        _write_score(columns, i, s * scale, OK, n, m)
        _write_start(columns, i, zero, zero)
        if want_path:
            n_events, _ = trace_back(origins, penalties, s, k, events)
            n_ops = replay(pair, events, n_events, zero, zero, m, all_ops[np.uint64(n_all) :])
            cigar_counts[i] = n_ops
            n_all += n_ops
    return FAR, np.int64(n_pairs), n_all, zero, zero


@driver
def align_affine_pairs(coded, free, penalties, scale, band, max_penalty, max_cells, want_path,
                       columns, cigar_counts):  # fmt: skip
    """Align the pairs of a part (``coding.py``), and fill its rows of the results.

    `columns` are without results, `cigar_counts` 0.
    `penalties` and `max_penalty` have been divided by `scale`, which scores are multiplied by.

    Returns
    -------
    The operations of all these pairs (uint32), in order.
    """
    margin = np.int64(FIRST_MARGIN)
    rows = new_rows(look_back(penalties), 4 * FIRST_MARGIN)
    origins = new_origins(FIRST_CELLS, FIRST_ROWS)
    dp = new_dp_space(1, 1, 1)
    codes = codes_of(coded)
    n_pairs = len(coded.shift)
    events = np.empty(256, np.uint32)
    all_ops = np.empty(8 * n_pairs + 16 if want_path else 0, np.uint32)
    n_all = np.int64(0)
    no_band = Band(np.int64(0), np.int64(1))
    keep = np.int64(1 if want_path else 0)
    allows_band = _allows_band(free, penalties, band)
    usual = Usual(np.int64(0), np.int64(0))
    i = np.int64(-1)
    while i + 1 < n_pairs:
        i += 1
        s = np.int64(0)
        if allows_band:
            why, i, n_all, s, now = _align_near(
                codes, coded, i, penalties, scale, max_penalty, margin, rows, origins, want_path,
                events, columns, cigar_counts, all_ops, n_all,
            )  # fmt: skip
            if i == n_pairs:
                break
        n, m = coded.query_len[i], coded.ref_len[i]
        margin = max(margin, _margin(n, m))
        pair = pair_at(coded, i)
        ends = ends_within(free, n, m)
        if allows_band and why != FAR:
            if why == WIDER_ROWS:
                rows = new_rows(len(rows.lo), columns_within(pair, ends, margin)[1])
            else:
                all_ops = grown(all_ops, 2 * (n_all + _NEAR_OPS))
            i -= 1
            continue
        letters = letters_in(codes, coded, i)
        by_dp = allows_band and _suits_band(n, m)
        bound = np.int64(min(max_penalty, highest_bound(pair, penalties)))
        if s == 0:
            now = bound
        now_band, most = band, bound
        n_ops = np.int64(-1)  # of a path in the workspace of the matrix band
        while True:
            status, s, k, h, cut, margin, rows, origins = _search_growing(
                pair, letters, ends, penalties, now_band, most, keep, max_cells, by_dp, usual,
                margin, rows, origins, s, now,
            )  # fmt: skip
            if status == EXCEEDED and cut:
                # Cells that the band cut off might lead to an end in the bound.
                now_band, s = no_band, np.int64(0)
                continue
            if status != GOING:
                break
            s, n_ops, dp = dp_align(pair, letters, penalties, s, bound, max_cells, keep, dp)
            k, h = m - n, m
            status = FINISHED if s <= bound else EXCEEDED
            if status == EXCEEDED or n_ops >= 0 or not want_path:
                break
            by_dp, most, s = False, s, np.int64(0)  # there is no memory for its path
        if status == EXCEEDED or status == NO_ROOM:
            columns.status[i] = OVER_LIMIT if status == EXCEEDED else NO_MEMORY
            continue
        if by_dp:
            usual = _usual_after(usual, s, n + m)
        _write_score(columns, i, s * scale, HEURISTIC if cut else OK, h - k, h)
        if not want_path:
            if ends.query_begin + ends.ref_begin == 0:
                _write_start(columns, i, np.int64(0), np.int64(0))
            continue
        if n_ops >= 0:
            if n_all + n_ops > len(all_ops):
                all_ops = grown(all_ops, 2 * (n_all + n_ops))
            for j in range(n_ops):
                all_ops[n_all + j] = dp.ops[n_ops - 1 - j]
            _write_start(columns, i, np.int64(0), np.int64(0))
            cigar_counts[i] = n_ops
            n_all += n_ops
            continue
        if s + 1 > len(events):
            events = np.empty(2 * (s + 1), np.uint32)
        n_events, start_k = trace_back(origins, penalties, s, k, events)
        v_start = max(np.int64(0), -start_k)
        h_start = max(np.int64(0), start_k)
        if n_all + 2 * n_events + 1 > len(all_ops):
            all_ops = grown(all_ops, 2 * (n_all + 2 * n_events + 1))
        n_ops = replay(pair, events, n_events, v_start, h_start, h, all_ops[n_all:])
        _write_start(columns, i, v_start, h_start)
        cigar_counts[i] = n_ops
        n_all += n_ops
    return all_ops[:n_all]


align_affine_source = coded_first(align_affine_pairs)


@driver
def align_one_affine(query_begin, query_end, ref_begin, ref_end, mismatch, gap_open, gap_extend,
                     scale, band_width, band_interval, max_penalty, max_cells, letters, n_query,
                     query_codes, ref_codes, as_bytes, want_path, row):  # fmt: skip
    """Align two strings (``single.py``); the numbers are :func:`align_affine_pairs`'s."""
    coded, row[BAD] = code_one(letters, n_query, query_codes, ref_codes, as_bytes)
    columns = columns_of_row(row)
    if row[BAD] >= 0:
        return np.empty(0, np.uint8)
    ops = align_affine_pairs(
        coded, Ends(query_begin, query_end, ref_begin, ref_end),
        AffinePenalties(mismatch, gap_open, gap_extend), scale, Band(band_width, band_interval),
        max_penalty, max_cells, want_path, columns, row[N_OPS : N_OPS + 1],
    )  # fmt: skip
    row[STATUS] = columns.status[0]
    return cigar_text(ops)
