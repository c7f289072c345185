"""Core: bounds on what gaps can gain over an ungapped alignment, before any is tried.

First by the number of mismatches of each side alone, then by the blocks of the read that match
on some diagonal near the alignment's (``block_losses.py``). A side that cannot exceed its floor is
not extended; where neither can, the ungapped alignment is the result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.extend.block_losses import (
    blocks_of_side,
    fill_losses,
    forget_losses,
    least_lost,
    lost_in_blocks,
)
from mapper.extend.ungapped import lowest_ungapped, ungapped_score
from mapper.extend.wavefront import CELLS_FULL
from mapper.jit.accelerate import core
from mapper.jit.lanes import lanes_meet, takes_vectors


@core
def gap_may_pay(n_mismatches, params):
    """Return True if the cheapest gap costs less than `n_mismatches` mismatches."""
    return n_mismatches * (params.match + params.mismatch) > params.gap_open + params.gap_extend


@core
def perfect_side(room, params):
    """Doubled objective of a side that matches throughout."""
    return 2 * (params.match * room + params.end_bonus)


@core
def gapped_bounds(ungapped, read_len, target, params):
    """Bound the two sides of an ungapped alignment, whose whole is to exceed `target`.

    Returns
    -------
    most_left, left_floor, most_right, right_floor
        Doubled objectives that each side cannot exceed, and that it has to.
    """
    anchor = 2 * params.match * (ungapped.anchor_end - ungapped.anchor_start)
    most_left, most_right = ungapped.left, ungapped.right
    if ungapped_score(ungapped, read_len, params) >= 2 * lowest_ungapped(read_len, params):
        if gap_may_pay(ungapped.n_left, params):
            most_left = perfect_side(ungapped.anchor_start, params)
        if gap_may_pay(ungapped.n_right, params):
            most_right = perfect_side(read_len - ungapped.anchor_end, params)
    left_floor = max(ungapped.left, target - anchor - most_right)
    right_floor = max(ungapped.right, target - anchor - most_left)
    return most_left, left_floor, most_right, right_floor


@core
def longest_gaps(slack, params):
    """Longest insertion and deletion that lose less than `slack` (doubled).

    Against a perfect side, to which the inserted bases would add their matches.
    """
    most = slack // 2 - params.gap_open
    if most <= 0:
        return np.int64(0), np.int64(0)
    return (
        min(np.int64(params.max_gap), most // (params.gap_extend + params.match)),
        min(np.int64(params.max_gap), most // params.gap_extend),
    )


@core
def gaps_may_win(ungapped, read_len, target, params):
    """Return True if some gap is short enough to exceed `target`."""
    most_left, left_floor, most_right, right_floor = gapped_bounds(
        ungapped, read_len, target, params
    )
    slack = max(most_left - left_floor, most_right - right_floor)
    return longest_gaps(slack, params)[1] > 0


@core
def bound_side(read_planes, read_word, read_len, text_planes, diagonal, window_start,
               window_end, corner, forward, most, floor, params, penalties, n_penalties, losses,
               lanes):  # fmt: skip
    """Bound one side more tightly, by the blocks of the read beyond `corner`.

    Returns
    -------
    most, insertions, deletions
        Doubled objective that no extension with a gap exceeds; the band of diagonals that
        those above `floor` stay in. `most` is CELLS_FULL if that is more than `n_penalties`.
    """
    insertions, deletions = longest_gaps(most - floor, params)
    if deletions == 0:
        return floor, insertions, deletions
    if insertions + deletions + 1 > n_penalties:
        # Little workspace: do not even look at the blocks on a wide band. (Workspace that
        # fits any read has more penalties than a band has diagonals.)
        return np.int64(CELLS_FULL), insertions, deletions
    reach = max(insertions, deletions)
    if diagonal - reach < window_start or diagonal + reach > window_end - read_len:
        # The read overhangs its contig somewhere in the band: no bound, a full search.
        forget_losses(read_len, losses)
        return most, insertions, deletions
    most -= fill_losses(
        read_planes, read_word, read_len, text_planes, diagonal, corner, forward, insertions,
        deletions, penalties, 2 * params.end_bonus, most - floor, losses, lanes,
    )  # fmt: skip
    return max(most, np.int64(0)), insertions, deletions


@core
def _most_known_lost(ungapped, read_len, forward, most, floor, params, penalties):
    """Return the most that :func:`_least_lost_on_side` can return for a side."""
    corner, room, without = ungapped.anchor_start, ungapped.anchor_start, ungapped.left
    if forward:
        corner, room, without = ungapped.anchor_end, read_len - ungapped.anchor_end, ungapped.right
    if longest_gaps(most - floor, params)[1] == 0:
        return perfect_side(room, params) - without
    first, end, furthest = blocks_of_side(read_len, corner, forward)
    return lost_in_blocks(end - first, furthest, penalties, 2 * params.end_bonus)


@core
def _least_lost_on_side(read_planes, read_word, read_len, text_planes, diagonal, window_start,
                        window_end, ungapped, forward, most, floor, needed, enough, params,
                        penalties):  # fmt: skip
    """Bound from below what one side loses of a perfect one, with gaps or without (doubled).

    `most` and `floor` are those of :func:`gapped_bounds`, `needed` and `enough` those of
    :func:`mapper.extend.block_losses.least_lost`.
    """
    corner, room, without = ungapped.anchor_start, ungapped.anchor_start, ungapped.left
    if forward:
        corner, room, without = ungapped.anchor_end, read_len - ungapped.anchor_end, ungapped.right
    insertions, deletions = longest_gaps(most - floor, params)
    if deletions == 0:
        return perfect_side(room, params) - without
    reach = max(insertions, deletions)
    if diagonal - reach < window_start or diagonal + reach > window_end - read_len:
        return np.int64(0)
    return least_lost(
        read_planes, read_word, read_len, text_planes, diagonal, corner, forward, insertions,
        deletions, penalties, 2 * params.end_bonus, needed, enough,
    )  # fmt: skip


@core
def is_hopeless(read_planes, read_word, read_len, text_planes, diagonal, window_start, window_end,
                ungapped, target, params, penalties):  # fmt: skip
    """Return True if the two sides of an ungapped alignment lose too much together.

    Of most loci that are old copies of a repeat this is enough to say that no gap brings them above
    the target.
    """
    most_left, left_floor, most_right, right_floor = gapped_bounds(
        ungapped, read_len, target, params
    )
    if most_left <= left_floor and most_right <= right_floor:
        return True
    anchor = 2 * params.match * (ungapped.anchor_end - ungapped.anchor_start)
    left_over = perfect_side(ungapped.anchor_start, params) + anchor - target
    left_over += perfect_side(read_len - ungapped.anchor_end, params)
    right_first = ungapped.anchor_start < read_len - ungapped.anchor_end
    for side in range(2):
        forward = (side == 0) == right_first  # the longer one first
        # What the side that comes later may be known to lose.
        later = np.int64(0)
        if side == 0:
            later = _most_known_lost(
                ungapped, read_len, not forward, most_left if forward else most_right,
                left_floor if forward else right_floor, params, penalties,
            )  # fmt: skip
        left_over -= _least_lost_on_side(
            read_planes, read_word, read_len, text_planes, diagonal, window_start, window_end,
            ungapped, forward, most_right if forward else most_left,
            right_floor if forward else left_floor, left_over - later, left_over, params,
            penalties,
        )  # fmt: skip
        if left_over <= 0:
            return True
        if left_over > later:
            return False
    return False


class Bounds(NamedTuple):
    """What gaps can bring on the two sides of an anchor, and which diagonals they may visit."""

    most_left: int  # doubled objective that no extension with a gap exceeds
    left_insertions: int
    left_deletions: int
    most_right: int  # CELLS_FULL where the workspace is too small to tell
    right_insertions: int
    right_deletions: int
    right_floor: int
    """Doubled objective that the right side has to exceed: the target takes it."""


_NOTHING = 2**30
"""``Bounds.right_floor`` that no side exceeds."""


@core
def bound_sides(read_planes, read_word, read_len, text_planes, diagonal, window_start, window_end,
                ungapped, target, params, penalties, n_penalties, losses, lanes):  # fmt: skip
    """Bound both sides of an ungapped alignment (:func:`bound_side`), as :class:`Bounds`.

    `losses` gets what :func:`mapper.extend.wavefront.extend_side` needs.
    """
    if takes_vectors(lanes) and is_hopeless(
        read_planes, read_word, read_len, text_planes, diagonal, window_start, window_end, ungapped,
        target, params, penalties,
    ):  # fmt: skip
        none = np.int64(0)
        return Bounds(none, none, none, none, none, none, np.int64(_NOTHING))
    anchor = 2 * params.match * (ungapped.anchor_end - ungapped.anchor_start)
    most_left, left_floor, most_right, right_floor = gapped_bounds(
        ungapped, read_len, target, params
    )
    most_gapped_left = most_gapped_right = np.int64(0)
    left_insertions = left_deletions = right_insertions = right_deletions = np.int64(0)
    lanes_meet(lanes)  # a slower lane may still be reading the losses of the locus before
    # One text for both sides: with two, kernels grow beyond the instruction cache.
    for side in range(2):
        forward = side == 1
        corner, most, floor = ungapped.anchor_start, most_left, left_floor
        if forward:
            corner, most, floor = ungapped.anchor_end, most_right, right_floor
        if most <= floor:
            continue
        gapped, insertions, deletions = bound_side(
            read_planes, read_word, read_len, text_planes, diagonal, window_start, window_end,
            corner, forward, most, floor, params, penalties, n_penalties, losses, lanes,
        )  # fmt: skip
        if forward or gapped == CELLS_FULL:
            most_gapped_right = gapped
            right_insertions, right_deletions = insertions, deletions
            break
        most_gapped_left = gapped
        left_insertions, left_deletions = insertions, deletions
        right_floor = max(ungapped.right, target - anchor - max(ungapped.left, gapped))
    return Bounds(
        most_gapped_left, left_insertions, left_deletions, most_gapped_right, right_insertions,
        right_deletions, right_floor,
    )  # fmt: skip


@core
def left_floor_of(ungapped, right, target, params):
    """Doubled objective that the left side has to exceed, with a right side of `right`."""
    anchor = 2 * params.match * (ungapped.anchor_end - ungapped.anchor_start)
    return max(ungapped.left, target - anchor - right)


@core
def worth_extending(bounds, ungapped, target, params):
    """Return True if ``align_gapped`` would extend some side, or if these bounds cannot tell."""
    if bounds.most_right == CELLS_FULL or bounds.most_right > bounds.right_floor:
        return True
    left_floor = left_floor_of(ungapped, ungapped.right, target, params)
    return bounds.most_left > left_floor and ungapped.right == bounds.right_floor
