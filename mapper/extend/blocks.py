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

from typing import NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.bits import popcount
from mapper.dna import mismatch_word
from mapper.lanes import lane_union

BLOCK = 8


MATCHED, NEARLY, FIVE, FIRST_FOUR, LAST_FOUR = 0x80, 0x40, 0x20, 0x10, 0x08
"""Marks of a block of 8 bases, in its byte of a word of marks: on some diagonal it matches; but
for one mismatch, or for its first two or last two bases; in its first or last five bases; in its
first four; in its last four."""


@core
def block_marks(differ):
    """Return the marks of 8 blocks from a word with a bit set for each mismatch."""
    all_bits, low_bits = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0x7F7F7F7F7F7F7F7F)
    # Numbers of up to 7 bits bring a carry into the high bit of their byte unless they are 0.
    later = differ >> np.uint64(2)
    first_six = (differ & np.uint64(0x3F3F3F3F3F3F3F3F)) + low_bits
    last_six = (later & np.uint64(0x3F3F3F3F3F3F3F3F)) + low_bits
    first_five = (differ & np.uint64(0x1F1F1F1F1F1F1F1F)) + low_bits
    last_five = ((differ >> np.uint64(3)) & np.uint64(0x1F1F1F1F1F1F1F1F)) + low_bits
    first_four = (differ & np.uint64(0x0F0F0F0F0F0F0F0F)) + low_bits
    last_four = ((differ >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)) + low_bits
    whole = ((differ & low_bits) + low_bits) | differ
    # With a mismatch of the middle four taken away (no byte with its high bit set borrows from
    # the next), is there another one?
    middle = later & np.uint64(0x0F0F0F0F0F0F0F0F)
    second = middle & ((middle | ~low_bits) - np.uint64(0x0101010101010101))
    second |= (differ & np.uint64(0x4343434343434343)) | ((differ & ~low_bits) >> np.uint64(3))
    second += low_bits
    unmarked = whole & ~low_bits
    unmarked |= ((second & first_six & last_six) & ~low_bits) >> np.uint64(1)
    unmarked |= ((first_five & last_five) & ~low_bits) >> np.uint64(2)
    unmarked |= (first_four & ~low_bits) >> np.uint64(3)
    unmarked |= (last_four & ~low_bits) >> np.uint64(4)
    return (all_bits ^ unmarked) & np.uint64(0xF8F8F8F8F8F8F8F8)


@core
def matching_blocks(read_planes, word, text_planes, text_pos, n_diagonals):
    """Compare 64 bases of a read with the text from `text_pos` on, then one base on, and so on.

    Returns
    -------
    The marks that each of the 8 blocks gets on any of the diagonals (:func:`block_marks`).
    """
    one, last_bit = np.uint64(1), np.uint64(63)
    read_low, read_high = read_planes[word, 0], read_planes[word, 1]
    read_ambiguous = read_planes[word, 2]
    marks = np.uint64(0)
    w = text_pos >> 6
    first = text_pos & 63
    done = np.int64(0)
    while done < n_diagonals:
        low, next_low = text_planes[w, 0], text_planes[w + 1, 0]
        high, next_high = text_planes[w, 1], text_planes[w + 1, 1]
        ambiguous, next_ambiguous = text_planes[w, 2], text_planes[w + 1, 2]
        end = min(np.int64(64), first + n_diagonals - done)
        # Nothing but shifts and logic: a compiler takes several diagonals at a time.
        for i in range(first, end):
            shift = np.uint64(i)
            left = last_bit - shift
            differ = read_low ^ ((low >> shift) | ((next_low << one) << left))
            differ |= read_high ^ ((high >> shift) | ((next_high << one) << left))
            differ |= read_ambiguous | (ambiguous >> shift) | ((next_ambiguous << one) << left)
            marks |= block_marks(differ)
        done += end - first
        first = np.int64(0)
        w += 1
    return marks


@core
def marks_on(read_planes, word, text_planes, text_pos, n_diagonals, lanes):
    """:func:`matching_blocks`, with the diagonals dealt to the lanes."""
    share = (n_diagonals + lanes.n_lanes - 1) // lanes.n_lanes
    first = min(lanes.lane * share, n_diagonals)
    mine = min(share, n_diagonals - first)
    marks = np.uint64(0)
    if mine > 0:
        marks = matching_blocks(read_planes, word, text_planes, text_pos + first, mine)
    return lane_union(marks, lanes)


@core
def byte_popcounts(word):
    """Return a word each byte of which is the number of bits set in that byte of `word`."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    twos = np.uint64(0x3333333333333333)
    word = (word & twos) + ((word >> np.uint64(2)) & twos)
    return (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)


@core
def block_cost(penalties):
    """What each of many lost blocks takes from the doubled objective at the least.

    A block that the alignment does not pass whole and unchanged has a mismatch, a
    deletion, part of an insertion, or is clipped. An insertion of n bases touches at most
    ``2 + (n - 2) / 8`` blocks: two for its opening and two bases, and another for each 8.
    """
    inserted = penalties.gap_extend + penalties.match  # with the match that it does not earn
    deletion = penalties.gap_open + penalties.gap_extend - penalties.match
    insertion = min(penalties.gap_open // 2 + inserted, BLOCK * inserted)
    clip = 2 * BLOCK * penalties.match
    return min(min(penalties.mismatch, deletion), min(insertion, clip))


class BlockCosts(NamedTuple):
    """What a block takes from the doubled objective at the least, by its marks."""

    least: int  # with any mark but MATCHED
    hard: int  # without NEARLY
    hardest: int  # and without FIVE, and not with both FIRST_FOUR and LAST_FOUR


@core
def block_costs(penalties):
    """Return what blocks cost that do not match.

    Each difference in a block brings it :func:`block_cost` at the least, an insertion across
    its border with half of the whole. A block that is not nearly matched has two differences; or
    a deletion, or an insertion, wholly inside; or one across its border of more than three bases
    (of which a shorter would leave it six in a row that match). Without FIVE these are more than
    four; and where first and last bases that match are fewer than eight together, it is no single
    deletion. Of an insertion that is open already, three bases or four in the block are enough
    (see :func:`least_loss`).
    """
    inserted = penalties.gap_extend + penalties.match
    deletion = penalties.gap_open + penalties.gap_extend - penalties.match
    least = block_cost(penalties)
    across_three = (penalties.gap_open + 10 * inserted) // 3
    longer = min(min(penalties.gap_open + inserted, BLOCK * inserted), across_three)
    hardest = min(min(2 * least, 2 * BLOCK * penalties.match), longer)
    hard = min(min(deletion, hardest), (penalties.gap_open + 4 * inserted) // 2)
    hardest = min(hardest, (penalties.gap_open + 5 * inserted) // 2)
    return BlockCosts(least, min(hard, least + 2 * inserted), min(hardest, least + 3 * inserted))


@core
def loss_slot(pos, forward):
    """Where the losses lie of an extension that has come to `pos` of the read.

    Whole blocks beyond it count. The slots of both sides of an anchor are distinct.
    """
    if forward:
        return 3 * ((pos + BLOCK - 1) // BLOCK + 1)
    return 3 * (pos // BLOCK)


@core
def forget_losses(read_len, losses):
    """Make all losses zero: nothing is known."""
    losses[: 3 * (read_len // BLOCK + 3)] = 0


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
    costs = block_costs(penalties)
    n_blocks = read_len // BLOCK
    if forward:
        block, last, step = n_blocks - 1, (corner + BLOCK - 1) // BLOCK, np.int64(-1)
        losses[3 * n_blocks + 6 : 3 * n_blocks + 9] = 0
        slot = 3 * n_blocks + 3
        # Deletions lead to higher diagonals of the text.
        first_deleted, first_inserted = diagonal + 1, diagonal - insertions
    else:
        block, last, step = np.int64(0), corner // BLOCK - 1, np.int64(1)
        slot = np.int64(0)
        first_deleted, first_inserted = diagonal - deletions, diagonal + 1
    here = deleted = inserted = np.int64(0)
    gapped = costs.least
    losses[slot : slot + 3] = 0
    word = np.int64(-1)
    mismatches = with_deletions = with_insertions = anywhere = np.uint64(0)
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
            anywhere = block_marks(differ) | with_deletions | with_insertions
        bit = np.uint64(8 * (block & 7))
        mismatched = penalties.mismatch * np.int64((mismatches >> bit) & np.uint64(15))
        marks = np.int64((anywhere >> bit) & np.uint64(0xFF))
        cost = np.int64(costs.least)
        if not marks & NEARLY:
            cost = np.int64(costs.hard)
            if not (marks & FIVE or (marks & FIRST_FOUR and marks & LAST_FOUR)):
                cost = np.int64(costs.hardest)
        lost_deleted = lost_inserted = cost
        if (with_deletions >> bit) & np.uint64(MATCHED):
            lost_deleted = np.int64(0)
        if (with_insertions >> bit) & np.uint64(MATCHED):
            lost_inserted = np.int64(0)
        left = read_len - BLOCK * block if forward else BLOCK * (block + 1)
        clip = 2 * penalties.match * (left - BLOCK + 1) + bonus
        apart = min(deleted, inserted)
        gapped = min(mismatched + gapped, cost + apart)
        changed = min(clip, cost + min(here, apart))  # by a clip in this block, or a gap
        here = min(min(mismatched, 2 * costs.least) + here, min(clip, cost + apart))
        deleted = min(lost_deleted + deleted, changed)
        inserted = min(lost_inserted + inserted, changed)
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
    return min(gapped, costs.least + min(deleted, inserted))


@core
def least_loss(losses, slot, k, insertion, deletion, penalties):
    """What is lost at the least from a cell on: by its diagonal, and what gap is open there.

    A gap that is open goes on for less than a new one costs: into the next block, or, towards
    the corner's diagonal, to the other side.
    """
    loss = np.int64(losses[slot])
    if k > 0:
        loss = np.int64(losses[slot + 1])
    elif k < 0:
        loss = np.int64(losses[slot + 2])
    if deletion >= 0 and k <= 0:
        loss = min(loss, min(np.int64(losses[slot]), np.int64(losses[slot + 1])))
    if insertion >= 0:
        if k >= 0:
            loss = min(loss, min(np.int64(losses[slot]), np.int64(losses[slot + 2])))
        loss -= max(0, block_cost(penalties) - penalties.gap_extend - penalties.match)
    return loss
