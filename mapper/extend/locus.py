"""Core: one candidate locus → one local alignment with its CIGAR.

First the ungapped alignment on the locus' diagonal; then, on each side of its anchor with enough
mismatches for a gap to pay, the wavefront. Its result counts if it beats the ungapped side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.cigar import EQUAL, X, append_op, left_align
from mapper.extend.banded_screen import UNKNOWN, highest_objective
from mapper.extend.bounds import bound_sides, left_floor_of
from mapper.extend.ungapped import find_mismatches, trim_left, trim_right
from mapper.extend.wavefront import CELLS_FULL, Side, backtrace_side, extend_side
from mapper.jit.accelerate import core


class Ungapped(NamedTuple):
    """The best ungapped alignment on a diagonal, in oriented read positions."""

    start: int
    end: int
    anchor_start: int
    anchor_end: int
    left: int  # doubled objective left of the anchor
    right: int
    n_left: int  # mismatches left of the anchor, up to the end of read or contig
    n_right: int


@core
def align_ungapped(read_planes, read_word, read_len, text_planes, diagonal, window_start,
                   window_end, params, positions):  # fmt: skip
    """Align a read to one diagonal without gaps; `positions` (int32) gets its mismatches."""
    start = max(np.int64(0), window_start - diagonal)
    end = min(np.int64(read_len), window_end - diagonal)
    n, anchor_start, anchor_end, n_before = find_mismatches(
        read_planes, read_word, text_planes, diagonal, start, end, positions
    )
    left, cut_left = trim_left(
        positions, n_before, anchor_start, start, params.match, params.mismatch, params.end_bonus
    )
    right, cut_right = trim_right(
        positions, n_before, n, anchor_end, end, read_len, params.match, params.mismatch,
        params.end_bonus,
    )  # fmt: skip
    return Ungapped(
        cut_left, cut_right, anchor_start, anchor_end, left, right, n_before, n - n_before
    )


@core
def ungapped_ops(read_planes, read_word, text_planes, diagonal, start, end, positions, ops, n_ops):
    """Append the runs of matches and mismatches of start:end; return the new count."""
    n, _, _, _ = find_mismatches(
        read_planes, read_word, text_planes, diagonal, start, end, positions
    )
    matched = np.int32(start)  # from where on bases match
    for i in range(n):
        pos = positions[np.uint32(i)]
        n_ops = append_op(ops, n_ops, EQUAL, np.int32(pos - matched))
        n_ops = append_op(ops, n_ops, X, np.int32(1))
        matched = np.int32(pos + 1)
    return append_op(ops, n_ops, EQUAL, np.int32(end - matched))


@core
def search_side(query_planes, text_planes, side, params, penalties, reserve, floor, insertions,
                deletions, losses, wavefronts, screen, lanes):  # fmt: skip
    """Extend an anchor to one side, as :func:`extend_side` does, where that can exceed `floor`.

    `screen`: a :class:`mapper.extend.banded_screen.BandedScreen`, or None. It only spares searches.
    """
    most = highest_objective(
        query_planes, text_planes, side, params, floor, insertions, deletions, screen
    )
    start = np.int64(floor)
    if most < UNKNOWN:
        start = max(start, most - 1)
    objective, s, k, offset = np.int32(floor), np.int32(-1), np.int32(0), np.int32(0)
    searching = most > floor
    while searching:
        objective, s, k, offset = extend_side(
            query_planes, text_planes, side, penalties, params.end_bonus, reserve, start,
            insertions, deletions, losses, wavefronts, lanes,
        )  # fmt: skip
        # What reaches most may be out of bounds: then the best within them is less.
        searching = s == -1 and start > floor
        start = np.int64(floor)
    return objective, s, k, offset


@core
def align_gapped(read_planes, read_word, read_len, text_planes, diagonal, window_start, window_end,
                 ungapped, target, params, penalties, wavefronts, positions, losses,
                 spare_ops, ops, screen, lanes):  # fmt: skip
    """Extend the anchor of an ungapped alignment with gaps where they may pay.

    Parameters
    ----------
    target
        Doubled objective that must be exceeded for the caller to have any use for gaps. The
        result depends on it in nothing else: a search with a lower target finds the same
        alignment, or one that does not exceed this.
    positions, losses
        int32 workspace.
    spare_ops, ops
        uint32 workspace, and the operations of the result, in read order, left-aligned.
    screen
        Workspace to spare searches with (:func:`highest_objective`), or None.
    lanes
        Each with `positions`, `spare_ops` and `ops` of its own; the rest is shared.

    Returns
    -------
    total, doubled, query_start, query_end, text_start, text_end, n_ops
        Doubled objective, with the bonuses for ends, and doubled score, without. Where n_ops is
        0, the ungapped alignment stands; where it is CELLS_FULL, the wavefronts do not fit. The
        other numbers mean nothing then.
    """
    anchor = 2 * params.match * (ungapped.anchor_end - ungapped.anchor_start)
    left, right = ungapped.left, ungapped.right
    query_start, query_end = ungapped.start, ungapped.end
    text_start, text_end = query_start + diagonal, query_end + diagonal
    total = doubled = np.int64(0)
    n_ops = n_right_ops = np.int32(0)
    gapped_left = gapped_right = False
    bounds = bound_sides(
        read_planes, read_word, read_len, text_planes, diagonal, window_start, window_end,
        ungapped, target, params, penalties, len(wavefronts.lo), losses, lanes,
    )  # fmt: skip
    if bounds.most_right == CELLS_FULL:
        n_ops = np.int32(CELLS_FULL)
        return total, doubled, query_start, query_end, text_start, text_end, n_ops

    # One text for both sides: with two, kernels grow, and compile as long again.
    for turn in range(2):
        forward = turn == 0
        corner, room, text_room = ungapped.anchor_end, read_len - ungapped.anchor_end, np.int64(0)
        if forward:
            text_room = window_end - diagonal - corner
            reserve, most, floor = anchor + ungapped.left, bounds.most_right, bounds.right_floor
            insertions, deletions = bounds.right_insertions, bounds.right_deletions
        else:
            corner = room = ungapped.anchor_start
            text_room = corner + diagonal - window_start
            reserve, most = anchor + ungapped.right, bounds.most_left
            floor = left_floor_of(ungapped, right, target, params)
            insertions, deletions = bounds.left_insertions, bounds.left_deletions
            if not gapped_right and right != bounds.right_floor:
                break  # without the right side that the target takes, it is out of reach
        if most <= floor:
            continue
        text_room = min(text_room, room + deletions)
        side = Side(read_word, corner, room, corner + diagonal, text_room, forward)
        objective, s, k, offset = search_side(
            read_planes, text_planes, side, params, penalties, reserve, floor, insertions,
            deletions, losses, wavefronts, screen, lanes,
        )  # fmt: skip
        if s == CELLS_FULL:
            return total, doubled, query_start, query_end, text_start, text_end, s
        if s < 0:
            continue
        n_side_ops = backtrace_side(
            wavefronts, penalties, side, s, k, offset, spare_ops if forward else ops, np.int32(0)
        )
        if forward:
            gapped_right, right, n_right_ops = True, objective, n_side_ops
            query_end, text_end = corner + offset - k, side.text_pos + offset
        else:
            gapped_left, left, n_ops = True, objective, n_side_ops
            query_start, text_start = corner - (offset - k), side.text_pos - offset

    total = anchor + left + right
    if total <= target or not (gapped_left or gapped_right):
        n_ops = np.int32(0)
        return total, doubled, query_start, query_end, text_start, text_end, n_ops
    middle_start = ungapped.anchor_start if gapped_left else ungapped.start
    middle_end = ungapped.anchor_end if gapped_right else ungapped.end
    n_ops = ungapped_ops(
        read_planes, read_word, text_planes, diagonal, middle_start, middle_end, positions, ops,
        n_ops,
    )  # fmt: skip
    while n_right_ops > 0:
        n_right_ops = np.int32(n_right_ops - 1)
        op = np.int32(spare_ops[np.uint32(n_right_ops)])
        n_ops = append_op(ops, n_ops, np.int32(op & 15), np.int32(op >> 4))
    left_align(ops, n_ops, read_planes, read_word, query_start, text_planes, text_start)
    doubled = total
    if query_start == 0:
        doubled -= 2 * params.end_bonus
    if query_end == read_len:
        doubled -= 2 * params.end_bonus
    return total, doubled, query_start, query_end, text_start, text_end, n_ops
