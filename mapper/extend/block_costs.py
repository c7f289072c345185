"""Core: what the differences in a block of 8 bases take from an alignment's score at the least.

From its marks (``marks.py``), which say how much of the block matches on any of some diagonals,
follows how many differences an alignment has there that passes on those, or ends there. All
costs are in units of the doubled objective (``penalties.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.extend.marks import BLOCK, BUT_ONE, FIRST_FOUR, FIVE, LAST_FOUR
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import leading_zeros, trailing_zeros


class Costs(NamedTuple):
    """What differences take from the doubled objective at the least."""

    least: int  # any block that does not match
    hard: int  # one of which no diagonal matches all bases but one
    harder: int  # nor the first or the last five, nor this the first four and that the last
    hardest: int  # nor the first four or the last
    deletion: int
    insertion: int  # what the block pays in which it starts, or ends
    opening: int  # its part of that which is paid already if the insertion is open


@core
def costs_of(penalties):
    """Return what blocks pay for differences, and what gaps cost that change sides.

    The block before a deletion, or around it, pays for it. An insertion's opening is shared by
    the blocks in which it starts and ends; each block pays for its own inserted bases, and
    for the matches that they do not earn. Any difference costs a block the least at least.

    A block that does not pass but for one base has two differences, or one gap between bases
    that match: a deletion; or an insertion, the shorter the longer those bases are.
    Unless the first or the last five match, an insertion that crosses the border takes four of
    its bases; and if first and last that match are fewer than eight together, no single deletion
    is enough, with fewer than seven no insertion of one.
    """
    inserted = penalties.gap_extend + penalties.match
    deletion = penalties.gap_open + penalties.gap_extend - penalties.match
    opening = penalties.gap_open // 2
    whole = BLOCK * inserted
    least = min(min(penalties.mismatch, deletion), min(opening + inserted, whole))
    two = min(2 * least, whole)
    one_inside = penalties.gap_open + inserted
    hard = min(min(two, deletion), min(one_inside, opening + 2 * inserted))
    harder = min(two, min(one_inside, opening + 4 * inserted))
    hardest = min(two, min(one_inside + inserted, opening + 5 * inserted))
    return Costs(least, hard, harder, hardest, deletion, opening + inserted, opening)


@core
def cost_of(marks, costs):
    """What a block pays that passes none but the diagonals of these marks, and matches on none."""
    if marks & BUT_ONE:
        return np.int64(costs.least)
    if marks & FIVE or (marks & FIRST_FOUR and marks & LAST_FOUR):
        return np.int64(costs.hard)
    if marks & (FIRST_FOUR | LAST_FOUR):
        return np.int64(costs.harder)
    return np.int64(costs.hardest)


@core
def most_in_clipped(marks, match, costs):
    """What a block can still bring at the most in which the alignment ends (doubled).

    Up to seven bases, less what a difference costs, or as many as match at its near end.
    """
    if marks & (BUT_ONE | FIVE):
        return np.int64(2 * match * (BLOCK - 1))
    n_matched = np.int64(3)
    if marks & (FIRST_FOUR | LAST_FOUR):
        n_matched = np.int64(4)
    return max(2 * match * n_matched, 2 * match * (BLOCK - 1) - costs.least)


@core
def most_before(differ, forward, match, costs):
    """:func:`most_in_clipped` on one diagonal, from the mismatches of the block (its byte)."""
    if forward:
        n_matched = np.int64(trailing_zeros(differ | np.uint64(0x80)))
    else:
        n_matched = np.int64(leading_zeros((differ | np.uint64(1)) << np.uint64(56)))
    return max(2 * match * n_matched, 2 * match * (BLOCK - 1) - costs.least)
