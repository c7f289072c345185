"""Core: gap-affine wavefront extension from a fixed corner, with soft clip or end bonus.

Both sides of an anchor are extended by the same text: `forward` extension runs to the
right of a corner (query_pos, text_pos), backward extension to its left. v and h count the
bases of read and reference consumed, ``k = h - v`` is the diagonal, and a wavefront holds
for each penalty s and diagonal k the farthest h (the *offset*) in three states: M (ends in
a match or mismatch, or a gap just closed), I (in a gap that consumes the read), D (in one
that consumes the reference).

::

    I(s, k) = max(M(s - o - e, k + 1), I(s - e, k + 1))
    D(s, k) = max(M(s - o - e, k - 1), D(s - e, k - 1)) + 1
    M(s, k) = longest_run from max(M(s - x, k) + 1, I(s, k), D(s, k))

The aim is the best *objective*: score, plus a bonus where the read's end is reached, both
doubled (``penalties.py``). Exact branch and bound: a cell is dropped when even the best
imaginable rest, less what is lost of it at the least (``blocks.py``),
would not beat the best objective so far. The wavefront dies out by itself.

References
----------
Marco-Sola et al. (2021), doi:10.1093/bioinformatics/btaa777: wavefront recurrences
(paper 4 of ``docs/algorithm.md``, section 4.1, with I and D named as in SAM).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.bits import leading_zeros, trailing_zeros
from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.dna import mismatch_word
from mapper.extend.blocks import (
    least_loss,
    least_loss_behind,
    least_loss_deleting,
    least_loss_inserting,
)
from mapper.extend.wavefronts import NULL, cell, row_of
from mapper.lanes import lane_mask, lane_max, lanes_meet

CELLS_FULL = -2
"""Penalty returned by :func:`extend_side` where the wavefronts do not fit their work space."""


class Side(NamedTuple):
    """One side of an anchor: where the extension starts and what it may consume."""

    query_word: int  # row of the read's strand in its bit planes
    query_pos: int  # corner, in the oriented read
    query_room: int  # bases of the read on this side
    text_pos: int  # corner, in the text
    text_room: int  # bases of the contig on this side
    forward: bool


@core
def longest_run(query_planes, text_planes, side, v, h):
    """Length of the run of matches from (v, h) on; 64 bases a step."""
    limit = min(side.query_room - v, side.text_room - h)
    done = 0
    while done < limit:
        step = min(np.int64(64), limit - done)
        if side.forward:
            query_pos = side.query_pos + v + done
            text_pos = side.text_pos + h + done
        else:
            query_pos = side.query_pos - v - done - step
            text_pos = side.text_pos - h - done - step
        differ = mismatch_word(query_planes, side.query_word, query_pos, text_planes, 0, text_pos)
        if side.forward:
            run = trailing_zeros(differ)
        else:
            run = leading_zeros(differ << np.uint64(64 - step))
        if run < step:
            return done + run
        done += step
    return limit


@core
def bounded(offset, k, side):
    """The offset, or NULL if it lies beyond the end of read or reference."""
    if offset > side.text_room or offset - k > side.query_room:
        return np.int64(NULL)
    return offset


@core
def admitted(offset, doubled_match, lost, highest):
    """The offset, or NULL if its matches do not exceed what is lost, or beyond the highest."""
    return offset if (doubled_match * offset > lost) & (offset <= highest) else np.int64(NULL)


@core
def pruned_gap(gap, closes, lost, spare):
    """The offset of an open gap, or NULL if it loses all there is to spare.

    One that closes here is kept in any case, for the way back.
    """
    return gap if closes or lost < spare else np.int64(NULL)


@core
def pruned(offset, insertion, deletion, k, s, side, penalties, bonus, losses, best):
    """Return the offsets of a cell's states, NULL for those that cannot beat objective `best`.

    ``match * (v + h) - s`` is the cell's doubled score so far. Every read base left can add
    ``2 * match``, and some of that is lost (:func:`blocks.least_loss`). The states of gaps
    stand for gaps that go on: one that closes here is the state of matches.
    """
    spare = penalties.match * (k + 2 * side.query_room) - s + bonus - best
    if spare <= 0:
        return np.int64(NULL), np.int64(NULL), np.int64(NULL)
    sign = np.int64(1 if side.forward else -1)
    corner = side.query_pos - sign * k
    entry = offset
    if offset >= 0 and least_loss(losses, corner + sign * offset, side.forward, k) >= spare:
        offset = np.int64(NULL)
    if insertion >= 0:
        lost = least_loss_inserting(losses, corner + sign * insertion, side.forward, k, penalties)
        insertion = pruned_gap(insertion, offset >= 0 and insertion == entry, lost, spare)
    if deletion >= 0:
        lost = least_loss_deleting(losses, corner + sign * deletion, side.forward, k, penalties)
        deletion = pruned_gap(deletion, offset >= 0 and deletion == entry, lost, spare)
    return offset, insertion, deletion


@core
def leads_on(offset, k, s, side, penalties, bonus, losses, best):
    """Whether a run of matches that ends here can go on to beat objective `best`."""
    pos = side.query_pos - k + offset if side.forward else side.query_pos + k - offset
    most = penalties.match * (k + 2 * side.query_room) - s + bonus
    return most - least_loss_behind(losses, pos, side.forward, k, penalties) > best


@core
def extend_side(query_planes, text_planes, side, penalties, end_bonus, reserve, floor, insertions,
                deletions, losses, wavefronts, lanes):  # fmt: skip
    """Extend an anchor to one side; the lanes share the diagonals of each wavefront.

    Parameters
    ----------
    end_bonus
        Added to the score where the read's end is reached.
    reserve
        Doubled objective of the rest of the alignment: what this side may lose on its way
        without losing all. No extension is found that does so at a mismatch or in a gap.
    floor
        Doubled objective that must be exceeded (the ungapped extension's, for one).
    insertions, deletions
        Diagonals to either side of the corner's that may be used.
    losses
        What is lost at the least within that band (:func:`blocks.fill_losses`).

    Returns
    -------
    objective, s, k, offset
        Doubled objective and end cell of the best extension; ``s = -1`` if none exceeds
        `floor`, CELLS_FULL if the work space is too small to tell. Of equals the lowest
        penalty wins, then the lowest diagonal.
    """
    match, x = penalties.match, penalties.mismatch
    e = penalties.gap_extend
    oe = penalties.gap_open + e
    bonus = 2 * end_bonus
    best = np.int64(floor)
    best_s = np.int64(-1)
    best_k = np.int64(0)
    best_offset = np.int64(0)
    used = np.int64(0)
    idle = 0
    s = np.int64(0)
    lanes_meet(lanes)  # a slower one may still be tracing back the extension before
    # From this penalty on every cell is pruned, on whatever diagonal.
    while s < match * (2 * side.query_room + deletions) + bonus - best and idle <= max(x, oe):
        if s >= len(wavefronts.lo):
            return best, np.int64(CELLS_FULL), best_k, best_offset
        mismatched = row_of(wavefronts, s - x)
        opened = row_of(wavefronts, s - oe)
        lengthened = row_of(wavefronts, s - e)
        k_lo, k_hi = np.int64(deletions + 1), np.int64(-insertions - 1)
        if s == 0:
            k_lo = k_hi = np.int64(0)
        if mismatched[0] <= mismatched[1]:
            k_lo, k_hi = mismatched[0], mismatched[1]
        if opened[0] <= opened[1]:
            k_lo, k_hi = min(k_lo, opened[0] - 1), max(k_hi, opened[1] + 1)
        if lengthened[0] <= lengthened[1]:
            k_lo, k_hi = min(k_lo, lengthened[0] - 1), max(k_hi, lengthened[1] + 1)
        if k_lo > k_hi:
            wavefronts.lo[s] = 1
            wavefronts.hi[s] = 0
            wavefronts.start[s] = 0
            idle += 1
            s += 1
            continue
        k_lo = max(k_lo, np.int64(-insertions))
        k_hi = min(k_hi, np.int64(deletions))
        if used + k_hi - k_lo >= len(wavefronts.match):
            return best, np.int64(CELLS_FULL), best_k, best_offset
        start = used - k_lo
        alive_lo, alive_hi = np.int64(1), np.int64(0)
        first = k_lo
        while first <= k_hi:
            k = first + lanes.lane
            insertion = deletion = offset = np.int64(NULL)
            objective = best
            if k <= k_hi:
                insertion = max(
                    cell(wavefronts.match, opened, k + 1),
                    cell(wavefronts.insertion, lengthened, k + 1),
                )
                deletion = 1 + max(
                    cell(wavefronts.match, opened, k - 1),
                    cell(wavefronts.deletion, lengthened, k - 1),
                )
                offset = cell(wavefronts.match, mismatched, k) + 1
            # Nothing leads to most cells between those that are alive.
            if max(offset, max(insertion, deletion)) >= 0 or (s == 0 and k == 0):
                # Up to an end, and not where all is lost: match * (v + h) - s > -reserve.
                highest = min(side.text_room, side.query_room + k)
                lost = s - reserve + match * k
                insertion = admitted(insertion, 2 * match, lost, highest)
                deletion = admitted(deletion, 2 * match, lost, highest)
                offset = admitted(offset, 2 * match, lost, highest)
                offset = max(offset, max(insertion, deletion))
                if s == 0:
                    offset = np.int64(0)
                offset, insertion, deletion = pruned(
                    offset, insertion, deletion, k, s, side, penalties, bonus, losses, best
                )
                if offset >= 0:
                    offset += longest_run(query_planes, text_planes, side, offset - k, offset)
                    objective = match * (2 * offset - k) - s
                    if offset - k == side.query_room:
                        objective += bonus
                    if objective <= best and not leads_on(
                        offset, k, s, side, penalties, bonus, losses, best
                    ):
                        offset = np.int64(NULL)
            alive = lane_mask(max(offset, max(insertion, deletion)) >= 0, lanes)
            if k <= k_hi:
                wavefronts.match[start + k] = offset
                wavefronts.insertion[start + k] = insertion
                wavefronts.deletion[start + k] = deletion
            if alive:
                if alive_lo > alive_hi:
                    alive_lo = first + trailing_zeros(np.uint64(alive))
                alive_hi = first + 63 - leading_zeros(np.uint64(alive))
            if lane_mask(objective > best, lanes):
                # The highest objective, of equals the lowest diagonal.
                key = np.int64(-1)
                if objective > best:
                    key = (objective << 20) | ((1 << 19) - k)
                key = lane_max(key, lanes)
                best = key >> 20
                best_s = s
                best_k = (1 << 19) - (key & ((1 << 20) - 1))
                lanes_meet(lanes)
                best_offset = np.int64(wavefronts.match[start + best_k])
            first += lanes.n_lanes
        wavefronts.lo[s] = alive_lo
        wavefronts.hi[s] = alive_hi
        wavefronts.start[s] = start
        if alive_lo > alive_hi:
            idle += 1
        else:
            idle = 0
            used = start + alive_hi + 1
        lanes_meet(lanes)
        s += 1
    return best, best_s, best_k, best_offset


@core
def backtrace_side(wavefronts, penalties, side, s, k, offset, ops, n_ops):
    """Append the operations from an end cell back to the corner; return the new count.

    They come out from the far end to the anchor: in read order for a backward extension,
    reversed for a forward one. Of equal ways into a cell a mismatch is taken before a
    deletion, a deletion before an insertion, and a gap is opened before it is lengthened.
    """
    x = penalties.mismatch
    e = penalties.gap_extend
    oe = penalties.gap_open + e
    while s > 0:
        here = row_of(wavefronts, s)
        mismatch = bounded(cell(wavefronts.match, row_of(wavefronts, s - x), k) + 1, k, side)
        insertion = cell(wavefronts.insertion, here, k)
        deletion = cell(wavefronts.deletion, here, k)
        entry = max(mismatch, max(insertion, deletion))
        n_ops = append_op(ops, n_ops, EQUAL, offset - entry)
        offset = entry
        if mismatch == entry:
            n_ops = append_op(ops, n_ops, X, 1)
            s -= x
            offset -= 1
        elif deletion == entry:
            opened = False
            while not opened:
                n_ops = append_op(ops, n_ops, D, 1)
                offset -= 1
                k -= 1
                opened = cell(wavefronts.match, row_of(wavefronts, s - oe), k) == offset
                s -= oe if opened else e
        else:
            opened = False
            while not opened:
                n_ops = append_op(ops, n_ops, I, 1)
                k += 1
                opened = cell(wavefronts.match, row_of(wavefronts, s - oe), k) == offset
                s -= oe if opened else e
    return append_op(ops, n_ops, EQUAL, offset)
