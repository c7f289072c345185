"""Core: how much of each block of 8 bases of a read matches on some diagonal of a band.

A mismatch word has a bit for each of 64 bases; a byte of it is a block. All 8 blocks are looked
at together, by arithmetic that stays within bytes.
"""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.lanes import lane_union

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
    w = np.uint64(text_pos >> 6)
    first = np.int32(text_pos & 63)
    left_over = np.int32(n_diagonals)
    while left_over > 0:
        following = w + one
        low, next_low = text_planes[w, 0], text_planes[following, 0]
        high, next_high = text_planes[w, 1], text_planes[following, 1]
        ambiguous, next_ambiguous = text_planes[w, 2], text_planes[following, 2]
        end = min(np.int32(64), np.int32(first + left_over))
        # Nothing but shifts and logic: a compiler takes several diagonals at a time.
        for i in range(first, end):
            shift = np.uint64(i)
            left = last_bit - shift
            differ = read_low ^ ((low >> shift) | ((next_low << one) << left))
            differ |= read_high ^ ((high >> shift) | ((next_high << one) << left))
            differ |= read_ambiguous | (ambiguous >> shift) | ((next_ambiguous << one) << left)
            marks |= block_marks(differ)
        left_over = np.int32(left_over - (end - first))
        first = np.int32(0)
        w = following
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
