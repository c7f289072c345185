"""Core: a bound on what a gapped alignment can still score, from blocks of 8 bases.

The read is cut into blocks of 8. Beside the diagonal of the ungapped alignment, where the
mismatches of each block are counted, an alignment with gaps visits diagonals to the one side
of it (deletions lead there) or to the other (insertions). A block that matches without error
on no diagonal of a side must contain a difference in every alignment that passes it there, and
to change sides takes a gap, which touches a block, too. A block of which no diagonal of all
matches any long part contains several differences. What differs in distinct blocks
adds up, so going through the blocks from the far end gives, for each, the least loss from
there on (:func:`fill_losses`). It bounds every extension from above, exactly: nothing optimal
is cut off. At a random place most blocks lose all that they could bring; where isolated
mismatches are all there is, no gap can pay: the search ends before it starts.

The tests take the bytes of 64-base mismatch words: a byte of zeros is a block that matches.

References
----------
Groot Koerkamp, Ivanov (2024), doi:10.1093/bioinformatics/btae032: exact seed heuristic
for A* alignment; this is its banded, bit-parallel form.
"""

from __future__ import annotations

import numpy as np

from mapper.dna import mismatch_word
from mapper.extend.block_costs import cost_of, costs_of, most_before, most_in_clipped
from mapper.extend.marks import BLOCK, MATCHED, block_marks, byte_popcounts, marks_on
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import popcount

ONE, TWO = np.uint32(1), np.uint32(2)
"""Added to a slot: a number of 64 bits would widen the sum."""


@core
def loss_slot(pos, forward):
    """Where the losses lie of an extension that has come to `pos` of the read.

    Whole blocks beyond it count. The slots of both sides of an anchor are distinct.
    """
    if forward:
        return np.uint32(3 * (np.uint32(pos + (2 * BLOCK - 1)) // np.uint32(BLOCK)))
    return np.uint32(3 * (np.uint32(pos) // np.uint32(BLOCK)))


@core
def bases_before(pos, forward):
    """How many bases lie between `pos` of the read and the whole blocks beyond."""
    return np.int32((-pos if forward else pos) & (BLOCK - 1))


@core
def forget_losses(read_len, losses):
    """Make all losses zero: nothing is known."""
    for slot in range(np.int32(3 * (read_len // BLOCK + 3))):
        losses[np.uint32(slot)] = 0


@core
def _forget_block(losses, slot):
    """Make the losses from one block on zero; as many given to a slice are a loop."""
    for item in range(3):
        losses[np.uint32(slot + item)] = 0


@core
def fill_losses(read_planes, read_word, read_len, text_planes, diagonal, corner, forward,
                insertions, deletions, penalties, bonus, losses, lanes):  # fmt: skip
    """Find the least losses of a side's extension from each block on.

    Parameters
    ----------
    diagonal
        Of the ungapped alignment, in the text; the read must lie within the text there and on
        all the others.
    corner, forward
        Where the side starts, in the read, and whether it goes to the right.
    insertions, deletions
        How many diagonals may be visited on the side to which insertions and deletions lead.
    bonus
        Doubled, for the end of the read.
    losses
        int32, 3 items for each block and 3 more blocks (:func:`loss_slot`): least doubled
        objective lost, of what a perfect rest would bring, on the corner's diagonal, among
        those that deletions lead to, and among those that insertions lead to.
    lanes
        They share the diagonals; all write the same losses.

    Returns
    -------
    What any extension loses that has a gap.
    """
    costs = costs_of(penalties)
    # To leave a diagonal and come back takes a deletion and an insertion.
    back = costs.deletion + costs.insertion
    n_blocks = read_len // BLOCK
    if forward:
        block, last, step = n_blocks - 1, (corner + BLOCK - 1) // BLOCK, np.int64(-1)
        _forget_block(losses, 3 * n_blocks + 6)
        slot = 3 * n_blocks + 3
        # Deletions lead to higher diagonals of the text.
        first_deleted, first_inserted = diagonal + 1, diagonal - insertions
    else:
        block, last, step = np.int64(0), corner // BLOCK - 1, np.int64(1)
        slot = np.int64(0)
        first_deleted, first_inserted = diagonal - deletions, diagonal + 1
    # From the far end on: the least losses on the corner's diagonal and on either side.
    here = deleted = inserted = np.int64(0)
    gapped = np.int64(costs.least)
    _forget_block(losses, slot)
    word = np.int64(-1)
    differ = mismatches = with_none = with_deletions = with_insertions = np.uint64(0)
    while (block - last) * step <= 0:
        if block >> 3 != word:
            word = block >> 3
            row, pos = read_word + word, word * 64
            differ = mismatch_word(read_planes, row, 0, text_planes, 0, diagonal + pos)
            mismatches = byte_popcounts(differ)
            with_deletions = marks_on(
                read_planes, row, text_planes, first_deleted + pos, deletions, lanes
            )
            with_insertions = marks_on(
                read_planes, row, text_planes, first_inserted + pos, insertions, lanes
            )
            with_none = block_marks(differ)
        bit = np.uint64(8 * (block & 7))
        mismatched = penalties.mismatch * np.int64((mismatches >> bit) & np.uint64(15))
        marks_here = np.int64((with_none >> bit) & np.uint64(0xFF))
        marks_deleted = np.int64((with_deletions >> bit) & np.uint64(0xFF))
        marks_inserted = np.int64((with_insertions >> bit) & np.uint64(0xFF))
        # What this block pays if the alignment passes it on one side, or changes in it or
        # behind it towards higher diagonals, or to lower ones.
        lost_deleted = lost_inserted = np.int64(0)
        if not marks_deleted & MATCHED:
            lost_deleted = cost_of(marks_deleted, costs)
        if not marks_inserted & MATCHED:
            lost_inserted = cost_of(marks_inserted, costs)
        lower = cost_of(marks_here | marks_deleted | marks_inserted, costs)
        higher = np.int64(costs.deletion)
        if lower > costs.hard:  # no deletion alone
            higher += costs.least
        left = read_len - BLOCK * block if forward else BLOCK * (block + 1)
        clip = 2 * penalties.match * left + bonus
        clip_here = clip - most_before(differ >> bit, forward, penalties.match, costs)
        clip_deleted = clip - most_in_clipped(marks_deleted, penalties.match, costs)
        clip_inserted = clip - most_in_clipped(marks_inserted, penalties.match, costs)
        apart = min(higher + deleted, lower + inserted)
        gapped = min(min(mismatched + gapped, back + here), apart)
        ended_deleted = min(clip_deleted, lower + min(here, inserted))
        ended_inserted = min(clip_inserted, higher + min(here, deleted))
        here = min(min(mismatched, back) + here, min(clip_here, apart))
        deleted = min(lost_deleted + deleted, ended_deleted)
        inserted = min(lost_inserted + inserted, ended_inserted)
        slot += 3 * step
        losses[slot] = here
        losses[slot + 1] = deleted
        losses[slot + 2] = inserted
        block += step
    # Between the corner and the first whole block.
    start, end = corner, min(np.int64(read_len), BLOCK * last)
    if not forward:
        start, end = BLOCK * (last + 1), np.int64(corner)
    if start < end:
        differ = mismatch_word(read_planes, read_word, start, text_planes, 0, diagonal + start)
        differ &= (np.uint64(1) << np.uint64(end - start)) - np.uint64(1)
        gapped += penalties.mismatch * popcount(differ)
    return min(min(gapped, back + here), min(costs.deletion + deleted, costs.insertion + inserted))


@core
def least_loss(losses, pos, forward, k):
    """What is lost at the least from a cell on that lies on diagonal k and has no gap open."""
    slot = loss_slot(pos, forward)
    if k != 0:
        slot += np.uint32(1 if k > 0 else 2)
    return losses[slot]


@core
def least_loss_behind(losses, pos, forward, k, penalties):
    """What is lost at the least from a cell on at which a run of matches has ended.

    The difference that follows lies before the next whole block, which does not pay for it,
    unless that begins here; a gap may lead to another side.
    """
    loss = least_loss(losses, pos, forward, k)
    if bases_before(pos, forward) == 0:
        return loss
    costs = costs_of(penalties)
    loss = np.int32(loss + costs.least)
    slot = loss_slot(pos, forward)
    here, deleted, inserted = losses[slot], losses[slot + ONE], losses[slot + TWO]
    if k <= 0:
        loss = min(loss, np.int32(costs.deletion + deleted))
    if k < 0:
        loss = min(loss, np.int32(costs.deletion + here))
    if k >= 0:
        loss = min(loss, np.int32(costs.insertion + inserted))
    if k > 0:
        loss = min(loss, np.int32(costs.insertion + here))
    return loss


@core
def least_loss_deleting(losses, pos, forward, k, penalties):
    """What is lost at the least from a cell on with an open deletion that goes on.

    It takes another base of the text, and may come to all higher diagonals.
    """
    slot = loss_slot(pos, forward)
    loss = losses[slot + ONE]
    if k <= 0:
        loss = min(loss, losses[slot])
    if k < 0:
        loss = min(loss, losses[slot + TWO])
    return np.int32(loss + penalties.gap_extend - penalties.match)


@core
def least_loss_inserting(losses, pos, forward, k, penalties):
    """What is lost at the least from a cell on with an open insertion that goes on.

    It takes another base of the read, and may come to all lower diagonals. Where it ends before
    the next whole block, that block owes it nothing; where it comes so far, its opening is paid
    already, of which the block counts a part.
    """
    slot = loss_slot(pos, forward)
    loss = losses[slot + TWO]
    if k >= 0:
        loss = min(loss, losses[slot])
    if k > 0:
        loss = min(loss, losses[slot + ONE])
    inserted = np.int32(penalties.gap_extend + penalties.match)
    n_before = bases_before(pos, forward)
    into_block = np.int32(n_before * inserted - costs_of(penalties).opening)
    if n_before > 0:
        into_block = min(inserted, into_block)
    return np.int32(loss + into_block)
