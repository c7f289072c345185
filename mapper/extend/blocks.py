"""Core: a bound on what a gapped alignment can still score, from blocks of 8 bases.

The read is cut into blocks of 8. Beside the diagonal of the ungapped alignment, where the
mismatches of each block are counted, an alignment with gaps visits diagonals to the one side
of it (deletions lead there) or to the other (insertions). A block that matches without error
on no diagonal of a side must contain a difference in every alignment that passes it there,
and to change sides takes a gap, which touches a block, too. Differences in distinct blocks
add up, so going through the blocks from the far end gives, for each, the least loss from
there on (:func:`fill_losses`). It bounds every extension from above, exactly: nothing optimal
is cut off. At a random place nearly all blocks are lost; where isolated mismatches are all
there is, no gap can pay, and the search ends before it starts.

The test takes the bytes of 64-base mismatch words: a byte of zeros is a block that matches.

References
----------
Groot Koerkamp, Ivanov (2024), doi:10.1093/bioinformatics/btae032: exact seed heuristic
for A* alignment; this is its banded, bit-parallel form.
"""

from __future__ import annotations

import numpy as np

from mapper.accelerate import core
from mapper.bits import popcount
from mapper.dna import mismatch_word
from mapper.lanes import lane_union

BLOCK = 8


@core
def matching_bytes(differ):
    """Return a word with the high bit set in each byte of `differ` that is zero."""
    low_bits = np.uint64(0x7F7F7F7F7F7F7F7F)
    return ~(((differ & low_bits) + low_bits) | differ | low_bits)


@core
def matching_blocks(read_planes, word, text_planes, text_pos, n_diagonals):
    """Compare 64 bases of a read with the text from `text_pos` on, then one base on, and so on.

    Returns
    -------
    Word with the high bit set in each byte whose 8 bases match on some of the diagonals.
    """
    one, last_bit = np.uint64(1), np.uint64(63)
    read_low, read_high = read_planes[word, 0], read_planes[word, 1]
    read_ambiguous = read_planes[word, 2]
    matched = np.uint64(0)
    w, shift, left = text_pos >> 6, text_pos & 63, n_diagonals
    while left > 0:
        # The text slides past, a base at a time, until its first word has gone by: no test but
        # the loop's own, and shifts by one, on a device the innermost work there is.
        behind, before = np.uint64(shift), last_bit - np.uint64(shift)
        next_low, next_high = text_planes[w + 1, 0], text_planes[w + 1, 1]
        next_ambiguous = text_planes[w + 1, 2]
        low = (text_planes[w, 0] >> behind) | ((next_low << one) << before)
        high = (text_planes[w, 1] >> behind) | ((next_high << one) << before)
        ambiguous = (text_planes[w, 2] >> behind) | ((next_ambiguous << one) << before)
        next_low >>= behind
        next_high >>= behind
        next_ambiguous >>= behind
        here = min(left, 64 - shift)
        for _ in range(here):
            matched |= matching_bytes(
                (read_low ^ low) | (read_high ^ high) | read_ambiguous | ambiguous
            )
            low = (low >> one) | (next_low << last_bit)
            high = (high >> one) | (next_high << last_bit)
            ambiguous = (ambiguous >> one) | (next_ambiguous << last_bit)
            next_low >>= one
            next_high >>= one
            next_ambiguous >>= one
        left -= here
        shift = 0
        w += 1
    return matched


@core
def matched_on(read_planes, word, text_planes, text_pos, n_diagonals, lanes):
    """:func:`matching_blocks`, with the diagonals dealt to the lanes."""
    share = (n_diagonals + lanes.n_lanes - 1) // lanes.n_lanes
    first = min(lanes.lane * share, n_diagonals)
    mine = min(share, n_diagonals - first)
    matched = np.uint64(0)
    if mine > 0:
        matched = matching_blocks(read_planes, word, text_planes, text_pos + first, mine)
    return lane_union(matched, lanes)


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
    cost = block_cost(penalties)
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
    gapped = cost
    losses[slot : slot + 3] = 0
    word = np.int64(-1)
    mismatches = with_deletions = with_insertions = np.uint64(0)
    while (block - last) * step <= 0:
        if block >> 3 != word:
            word = block >> 3
            row, pos = read_word + word, word * 64
            mismatches = byte_popcounts(
                mismatch_word(read_planes, row, 0, text_planes, 0, diagonal + pos)
            )
            with_deletions = matched_on(
                read_planes, row, text_planes, first_deleted + pos, deletions, lanes
            )
            with_insertions = matched_on(
                read_planes, row, text_planes, first_inserted + pos, insertions, lanes
            )
        bit = np.uint64(8 * (block & 7))
        mismatched = penalties.mismatch * np.int64((mismatches >> bit) & np.uint64(15))
        lost_deleted = lost_inserted = cost
        if (with_deletions >> bit) & np.uint64(0x80):
            lost_deleted = np.int64(0)
        if (with_insertions >> bit) & np.uint64(0x80):
            lost_inserted = np.int64(0)
        left = read_len - BLOCK * block if forward else BLOCK * (block + 1)
        clip = 2 * penalties.match * (left - BLOCK + 1) + bonus
        apart = min(deleted, inserted)
        gapped = min(mismatched + gapped, cost + apart)
        changed = min(clip, cost + min(here, apart))  # by a clip in this block, or a gap
        here = min(min(mismatched, 2 * cost) + here, min(clip, cost + apart))
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
    return min(gapped, cost + min(deleted, inserted))


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
