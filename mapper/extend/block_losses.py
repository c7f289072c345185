"""Core: a bound on what a gapped alignment can still score, from blocks of 8 bases.

The read is cut into blocks of 8. Next to the diagonal of the ungapped alignment, where the
mismatches of each block are counted, an alignment with gaps visits diagonals on one side of it
(deletions lead there) or on the other (insertions). A block that matches without error on no
diagonal of a side contains a difference in every alignment that passes it there, and changing sides
takes a gap, which touches a block, too. A block of which no diagonal matches any long part contains
several differences. Differences in distinct blocks add up, so a pass over the blocks from the far
end gives, for each, the least loss from there on (:func:`fill_losses`). It bounds every extension
from above, exactly: nothing optimal is cut off. At a random place most blocks lose all that they
could score; where isolated mismatches are all there is, no gap can pay: the search ends before it
starts.

The file has three parts, each used by the next:

- *Marks*: how much of each block matches on some diagonal of a band. A mismatch word has a bit for
  each of 64 bases; a byte of it is a block, and a byte of zeros a block that matches. All 8 blocks
  are processed at once, by arithmetic that stays within bytes.
- *Costs*: how many differences an alignment has in a block with given marks, whether it passes the
  block or ends there, in units of the doubled objective (:class:`Penalties` of ``wavefront.py``).
- *Losses*: the sums over blocks.

References
----------
Groot Koerkamp, Ivanov (2024), doi:10.1093/bioinformatics/btae032: exact seed heuristic for A*
alignment; this is its banded, bit-parallel form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.dna import mismatch_word
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import leading_zeros, popcount, trailing_zeros
from mapper.jit.lanes import lane_union, takes_vectors

BLOCK = 8

MATCHED, BUT_ONE, FIVE, FIRST_FOUR, LAST_FOUR = 0x80, 0x40, 0x20, 0x10, 0x08
"""Marks of a block in its byte of a word: on some diagonal all its bases match; all but one at
most; the first or the last five; the first four; the last four."""


@core
def block_marks(differ):
    """Return the marks of 8 blocks from a word with a bit set for each mismatch."""
    all_bits, low_bits = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0x7F7F7F7F7F7F7F7F)
    # Numbers of up to 7 bits bring a carry into the high bit of their byte unless they are 0.
    first_five = (differ & np.uint64(0x1F1F1F1F1F1F1F1F)) + low_bits
    last_five = ((differ >> np.uint64(3)) & np.uint64(0x1F1F1F1F1F1F1F1F)) + low_bits
    first_four = (differ & np.uint64(0x0F0F0F0F0F0F0F0F)) + low_bits
    last_four = ((differ >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)) + low_bits
    # Take away the lowest mismatch; a byte with its high bit set borrows from none, and where
    # it had no other it is left with none.
    low = differ & low_bits
    second = (low & ((low | ~low_bits) - np.uint64(0x0101010101010101))) + low_bits
    # Two among the low seven; or the eighth, and one of the seven.
    second |= differ & (low + low_bits)
    unmarked = ((low + low_bits) | differ) & ~low_bits
    unmarked |= (second & ~low_bits) >> np.uint64(1)
    unmarked |= ((first_five & last_five) & ~low_bits) >> np.uint64(2)
    unmarked |= (first_four & ~low_bits) >> np.uint64(3)
    unmarked |= (last_four & ~low_bits) >> np.uint64(4)
    return (all_bits ^ unmarked) & np.uint64(0xF8F8F8F8F8F8F8F8)


VECTOR = 8
"""Diagonals in a vector, or a few: for fewer a compiled loop takes one at a time."""


@core
def matching_blocks(read_planes, word, text_planes, text_pos, n_diagonals, by_vectors):
    """Compare 64 bases of a read with the text from `text_pos` on, then one base on, and so on.

    `by_vectors`: by whole vectors, of which some diagonals do not count.

    Returns
    -------
    The marks that each of the 8 blocks gets on any of the diagonals (:func:`block_marks`).
    """
    one, last_bit = np.uint64(1), np.uint64(63)
    read_low, read_high = read_planes[word, 0], read_planes[word, 1]
    read_ambiguous = read_planes[word, 2]
    marks = np.uint64(0)
    w = np.uint64(text_pos >> 6)
    first = np.int32(text_pos & 63)
    left_over = np.int32(n_diagonals)
    while left_over > 0:
        following = w + one
        low, next_low = text_planes[w, 0], text_planes[following, 0]
        high, next_high = text_planes[w, 1], text_planes[following, 1]
        ambiguous, next_ambiguous = text_planes[w, 2], text_planes[following, 2]
        end = min(np.int32(64), np.int32(first + left_over))
        begin, stop = first, end
        if by_vectors:
            begin, stop = np.int32(first & -VECTOR), np.int32((end + VECTOR - 1) & -VECTOR)
        # Nothing but shifts and logic: a compiler takes several diagonals at a time.
        for i in range(begin, stop):
            shift = np.uint64(i)
            left = last_bit - shift
            differ = read_low ^ ((low >> shift) | ((next_low << one) << left))
            differ |= read_high ^ ((high >> shift) | ((next_high << one) << left))
            differ |= read_ambiguous | (ambiguous >> shift) | ((next_ambiguous << one) << left)
            found = block_marks(differ)
            if by_vectors:
                found = found if first <= i and i < end else np.uint64(0)
            marks |= found
        left_over = np.int32(left_over - (end - first))
        first = np.int32(0)
        w = following
    return marks


@core
def unmatched_blocks(read_planes, word, text_planes, text_pos, n_diagonals):
    """Return a word with bit 7 of each byte set whose block matches on none of the diagonals.

    As :func:`matching_blocks` compares them, by whole vectors.
    """
    one, last_bit = np.uint64(1), np.uint64(63)
    low_bits = np.uint64(0x7F7F7F7F7F7F7F7F)
    read_low, read_high = read_planes[word, 0], read_planes[word, 1]
    read_ambiguous = read_planes[word, 2]
    unmatched = ~np.uint64(0)
    w = np.uint64(text_pos >> 6)
    first = np.int32(text_pos & 63)
    left_over = np.int32(n_diagonals)
    while left_over > 0:
        following = w + one
        low, next_low = text_planes[w, 0], text_planes[following, 0]
        high, next_high = text_planes[w, 1], text_planes[following, 1]
        ambiguous, next_ambiguous = text_planes[w, 2], text_planes[following, 2]
        end = min(np.int32(64), np.int32(first + left_over))
        # Other diagonals of a vector may match as well: then less is known.
        for i in range(np.int32(first & -VECTOR), np.int32((end + VECTOR - 1) & -VECTOR)):
            shift = np.uint64(i)
            left = last_bit - shift
            differ = read_low ^ ((low >> shift) | ((next_low << one) << left))
            differ |= read_high ^ ((high >> shift) | ((next_high << one) << left))
            differ |= read_ambiguous | (ambiguous >> shift) | ((next_ambiguous << one) << left)
            unmatched &= ((differ & low_bits) + low_bits) | differ
        left_over = np.int32(left_over - (end - first))
        first = np.int32(0)
        w = following
    return unmatched & ~low_bits


@core
def marks_on(read_planes, word, text_planes, text_pos, n_diagonals, lanes):
    """:func:`matching_blocks`, with the diagonals dealt to the lanes."""
    share = (n_diagonals + lanes.n_lanes - 1) // lanes.n_lanes
    first = min(lanes.lane * share, n_diagonals)
    mine = min(share, n_diagonals - first)
    marks = np.uint64(0)
    if mine > 0:
        marks = matching_blocks(
            read_planes, word, text_planes, text_pos + first, mine, takes_vectors(lanes)
        )
    return lane_union(marks, lanes)


@core
def byte_popcounts(word):
    """Return a word each byte of which is the number of bits set in that byte of `word`."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    twos = np.uint64(0x3333333333333333)
    word = (word & twos) + ((word >> np.uint64(2)) & twos)
    return (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)


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
    """Return the costs of differences within blocks, and of gaps that change sides.

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
def blocks_of_side(read_len, corner, forward):
    """Return the first block of a side, the one behind its last, and the bases from the last on."""
    if forward:
        end = read_len // BLOCK
        return (corner + BLOCK - 1) // BLOCK, end, read_len - BLOCK * (end - 1)
    return np.int64(0), corner // BLOCK, np.int64(BLOCK)


@core
def lost_in_blocks(n_unmatched, furthest, penalties, bonus):
    """Return a lower bound of what an extension loses if `n_unmatched` blocks match nowhere.

    Either each block costs the least penalty, or the alignment ends in one of them: then it loses
    the matches of that block, but for seven bases, and of all beyond. `furthest` is the number of
    bases lost if it ends in the block at the far end.
    """
    if n_unmatched <= 0:
        return np.int64(0)
    least = np.int64(costs_of(penalties).least)
    ended = 2 * penalties.match * (furthest - (BLOCK - 1)) + bonus
    beyond = min(least, np.int64(2 * BLOCK * penalties.match))
    return min(n_unmatched * least, ended + (n_unmatched - 1) * beyond)


@core
def least_lost(read_planes, read_word, read_len, text_planes, diagonal, corner, forward,
               insertions, deletions, penalties, bonus, needed, enough):  # fmt: skip
    """Bound the losses of a side from below by the blocks that match nowhere, on the CPU.

    It takes a third of the time of :func:`fill_losses`, whose parameters these are.

    Parameters
    ----------
    needed
        Less than this is of no use to the caller: blocks are left out that cannot bring it.

    Returns
    -------
    What any extension loses, with gaps or without; or `enough` or more; or less than `needed`.
    """
    first, end, furthest = blocks_of_side(read_len, corner, forward)
    lowest = diagonal - (insertions if forward else deletions)
    n_unmatched = lost = np.int64(0)
    word = first >> 3
    while 8 * word < end and lost < enough:
        n_left = end - max(first, 8 * word)
        if lost_in_blocks(n_unmatched + n_left, furthest, penalties, bonus) < needed:
            return lost
        unmatched = unmatched_blocks(
            read_planes, read_word + word, text_planes, lowest + 64 * word,
            insertions + deletions + 1,
        )  # fmt: skip
        if first > 8 * word:
            unmatched &= ~np.uint64(0) << np.uint64(8 * (first - 8 * word))
        if end < 8 * word + 8:
            unmatched &= ~np.uint64(0) >> np.uint64(8 * (8 * word + 8 - end))
        n_unmatched += popcount(unmatched)
        lost = lost_in_blocks(n_unmatched, furthest, penalties, bonus)
        word += 1
    return lost


@core
def fill_losses(read_planes, read_word, read_len, text_planes, diagonal, corner, forward,
                insertions, deletions, penalties, bonus, enough, losses, lanes):  # fmt: skip
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
    enough
        A loss of so much or more leaves nothing to search for.
    losses
        int32, 3 items for each block and 3 more blocks (:func:`loss_slot`): least doubled
        objective lost, of what a perfect rest would bring, on the corner's diagonal, among
        those that deletions lead to, and among those that insertions lead to.
    lanes
        They share the diagonals; all write the same losses.

    Returns
    -------
    What any extension loses that has a gap; or `enough` or more, and the losses are not complete.
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
        is_next = block >> 3 != word
        # Losses only grow from block to block: stop when they are too large. Threads that wait for
        # each other look less often. A warp gets no such loci, because a thread has screened them.
        if (takes_vectors(lanes) or (lanes.n_lanes == 1 and is_next)) and min(
            min(gapped, here), min(deleted, inserted)
        ) >= enough:
            return np.int64(enough)
        if is_next:
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
