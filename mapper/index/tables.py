"""Loops that fill the arrays of an index from the text and its suffix array.

Text: uint8 (n,). Suffix array: int32 or int64 (n,), without the sentinel's row, so that
row r of the index (r >= 1) is ``suffix_array[r - 1]``. The stored BWT leaves out the
sentinel: its character i belongs to row i below ``primary`` and to row i + 1 from there.
Loops take the part of their range that a thread is to do.
"""

from __future__ import annotations

import numpy as np

from mapper.index.fm import SUPERBLOCK_SHIFT
from mapper.jit.accelerate import core, driver


@core
def position_hash(text_pos):
    """Mix a text position into 64 bits (the finalizer of splitmix64).

    References
    ----------
    Steele, Lea, Flood (2014), doi:10.1145/2660193.2660195.
    """
    mixed = np.uint64(text_pos) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@driver
def replace_ambiguous(text, first, end):
    """Give every ambiguous base (code above 3) of ``text[first:end]``, in place, a hashed base.

    Runs of N left as one base would be the text's longest repeats, slow to sort and in
    the way of every search for that base.
    """
    for i in range(first, end):
        if text[i] > 3:
            text[i] = np.uint8(position_hash(i) & np.uint64(3))


@driver
def find_primary(suffix_array):
    """Row of the suffix that is the whole text, whose BWT character is the sentinel."""
    for i in range(len(suffix_array)):
        if suffix_array[i] == 0:
            return i + 1
    return 0


@driver
def transform_rows(text, suffix_array, first_row, end_row, bwt):
    """Write the base before the suffix of each row; at the primary, 0."""
    n = len(text)
    for row in range(first_row, end_row):
        text_pos = n if row == 0 else np.int64(suffix_array[row - 1])
        bwt[row - first_row] = text[text_pos - 1] if text_pos > 0 else 0


@driver
def fill_blocks(bwt, primary, n, occ_shift, first_block, end_block, blocks):
    """Fill blocks with the BWT, and in their first two words with each block's own counts.

    `bwt` is uint8 (n + 1,): the base of each row; the sentinel's place, `primary`, is skipped.
    """
    for block in range(first_block, end_block):
        counts = np.zeros(4, np.uint64)
        start = block << occ_shift
        end = min(n, start + (1 << occ_shift))
        blocks[block, 2:] = np.uint64(0)
        for i in range(start, end):
            row = i if i < primary else i + 1
            code = np.uint64(bwt[row])
            counts[code] += np.uint64(1)
            word = 2 + (((i - start) >> 6) << 1)
            bit = np.uint64(i & 63)
            blocks[block, word] |= (code & np.uint64(1)) << bit
            blocks[block, word + 1] |= (code >> np.uint64(1)) << bit
        blocks[block, 0] = counts[0] | counts[1] << np.uint64(32)
        blocks[block, 1] = counts[2] | counts[3] << np.uint64(32)


@driver
def accumulate_counts(blocks, occ_shift, super_counts):
    """Turn each block's own counts into counts before it, within its superblock.

    Returns
    -------
    int64 (4,): how often each base occurs in the text.
    """
    total = np.zeros(4, np.int64)
    before = np.zeros(4, np.uint64)
    low = np.uint64(0xFFFFFFFF)
    per_superblock = 1 << (SUPERBLOCK_SHIFT - occ_shift)
    for block in range(len(blocks)):
        if block % per_superblock == 0:
            super_counts[block // per_superblock] = total
            before[:] = np.uint64(0)
        for half in range(2):
            own = blocks[block, half]
            first = own & low
            second = own >> np.uint64(32)
            blocks[block, half] = before[2 * half] | before[2 * half + 1] << np.uint64(32)
            before[2 * half] += first
            before[2 * half + 1] += second
            total[2 * half] += np.int64(first)
            total[2 * half + 1] += np.int64(second)
    return total
