"""CPU loop over gap-affine wavefronts: a row's cells by vectors, all states and origins at once.

The cells are the cores of ``wavefront_affine.py``. They are computed a block at a time; those
behind the last of a row are computed too, and seen by none.
"""

from __future__ import annotations

import numpy as np

from mapper.align.affine.affine_origins import (
    DELETION_OPENED,
    INSERTION_OPENED,
    gap_origin,
    match_origin,
)
from mapper.align.affine.wavefront import begin_row, end_row, null_beside, start_row
from mapper.align.affine.wavefront_affine import (
    lowered_penalty,
    next_deletion,
    next_insertion,
    next_match,
)
from mapper.align.edit.wavefront import GOING, NULL, extend_row
from mapper.align.letters import run_to_fence
from mapper.jit.accelerate import core, disjoint_core, driver

BLOCK = 16
"""Cells that are computed at a time; rows and origins need as many items more than they hold."""


@disjoint_core
def _fill_blocks(match_x, match_oe, insertion_e, deletion_e, match, insertion, deletion, cells, n,
                 column, cell, most_insertion, most_deletion, keep):  # fmt: skip
    """Compute n cells, and more up to a whole block.

    Parameters
    ----------
    match_x, match_oe, insertion_e, deletion_e
        The rows that are looked back to, by penalty.
    match, insertion, deletion, cells
        The row, and where its origins go.
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
        if keep:
            for lane in range(BLOCK):
                i = start + np.uint64(lane)
                above, below = match_oe[i + np.uint64(1)], match_oe[i - np.uint64(1)]
                longer_i, longer_d = insertion_e[i + np.uint64(1)], deletion_e[i - np.uint64(1)]
                offset_i = next_insertion(above, longer_i, np.int32(most_first + np.int32(lane)))
                offset_d = next_deletion(below, longer_d, most_deletion)
                origin = gap_origin(above, longer_i, INSERTION_OPENED)
                origin |= gap_origin(below, longer_d, DELETION_OPENED)
                origin |= match_origin(np.int32(match_x[i] + np.int32(1)), offset_i, offset_d)
                match[i] = next_match(match_x[i], offset_i, offset_d)
                insertion[i] = offset_i
                deletion[i] = offset_d
                cells[to + np.uint64(lane)] = origin
        else:
            for lane in range(BLOCK):
                i = start + np.uint64(lane)
                above, below = match_oe[i + np.uint64(1)], match_oe[i - np.uint64(1)]
                longer_i, longer_d = insertion_e[i + np.uint64(1)], deletion_e[i - np.uint64(1)]
                offset_i = next_insertion(above, longer_i, np.int32(most_first + np.int32(lane)))
                offset_d = next_deletion(below, longer_d, most_deletion)
                match[i] = next_match(match_x[i], offset_i, offset_d)
                insertion[i] = offset_i
                deletion[i] = offset_d


@disjoint_core
def _null_blocks(match, insertion, deletion, before, behind):
    """Write a block of nulls before a column and one from another on, of all states."""
    for lane in range(BLOCK):
        i = before - np.uint64(BLOCK) + np.uint64(lane)
        match[i] = insertion[i] = deletion[i] = NULL
    for lane in range(BLOCK):
        i = behind + np.uint64(lane)
        match[i] = insertion[i] = deletion[i] = NULL


@core
def _is_null_beside(rows, r, lo, hi):
    """Whether the nulls around row r reach beyond these diagonals and those beside them."""
    return rows.lo[r] <= rows.hi[r] and rows.lo[r] - lo < BLOCK and hi - rows.hi[r] < BLOCK


@core
def _follow_letters(letters, query_len, ref_len, row, lo):
    """As ``extend_row``, forward, by letters, for alignments from end to end."""
    for i in range(len(row)):
        h = np.int64(row[i])
        v = h - (lo + i)
        # Unsigned, what is below 0 is beyond the end too.
        if np.uint64(h) > np.uint64(ref_len) or np.uint64(v) > np.uint64(query_len):
            row[i] = NULL
        else:
            row[i] = h + run_to_fence(letters, v, h)
    goal = ref_len - query_len - lo
    if 0 <= goal < len(row) and row[goal] == ref_len:
        return goal + lo
    return np.int64(NULL)


@driver
def rows_on(pair, letters, ends, rows, origins, penalties, band, centre, s, last, bound, cut,
            keep):  # fmt: skip
    """As ``affine_rows_on``, forward; it needs BLOCK columns on each side and origins more.

    Rows have a block of nulls on each side, so that it is rare that more must be written for those
    that look back to them. What goes on with rows that were saved must have saved these too.

    `letters`: of the pair.
    """
    end_k = np.int64(NULL)
    most_deletion = np.int32(pair.ref_len)
    free = ends.query_begin + ends.query_end + ends.ref_begin + ends.ref_end
    by_letters = letters.fenced != 0 and free == 0
    last_row = len(rows.lo) - 1
    while s <= last:
        status, lo, hi = begin_row(
            pair, ends, rows, origins, penalties, centre, s, bound, keep, np.int64(BLOCK)
        )
        if status != GOING:
            return status, s, end_k, bound, cut
        if lo <= hi:
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
                _fill_blocks(
                    rows.match[np.uint64(from_x)], rows.match[np.uint64(from_oe)],
                    rows.insertion[np.uint64(from_e)], rows.deletion[np.uint64(from_e)],
                    rows.match[r], rows.insertion[r], rows.deletion[r], origins.cells, hi - lo + 1,
                    np.uint64(lo + centre), np.uint64(origins.at[s] if keep else 0),
                    pair.query_len + lo, most_deletion, keep,
                )  # fmt: skip
            row = rows.match[r, lo + centre : hi + centre + 1]
            if by_letters:
                end_k = _follow_letters(letters, pair.query_len, pair.ref_len, row, lo)
            else:
                end_k = extend_row(pair, ends, row, lo, np.int64(1))
            status, end_k, cut_now = end_row(pair, rows, band, centre, s, lo, hi, end_k)
            cut = cut or cut_now
            if status != GOING:
                return status, s, end_k, bound, cut
            if rows.lo[r] <= rows.hi[r]:
                _null_blocks(
                    rows.match[r], rows.insertion[r], rows.deletion[r],
                    np.uint64(rows.lo[r] + centre), np.uint64(rows.hi[r] + centre + 1),
                )  # fmt: skip
        bound = lowered_penalty(pair, rows, penalties, centre, s, bound)
        s += 1
    return np.int64(GOING), s, end_k, bound, cut
