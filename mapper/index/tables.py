"""Loops that fill the arrays of an index from the text and its suffix array.

Text: uint8 (n,). Suffix array: int32 or int64 (n,), without the sentinel's row, so that
row r of the index (r >= 1) is ``suffix_array[r - 1]``. The stored BWT leaves out the
sentinel: its character i belongs to row i below ``primary`` and to row i + 1 from there.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from mapper.accelerate import core, driver, parallel_driver
from mapper.index.fm import SUPERBLOCK_SHIFT


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


@parallel_driver
def replace_ambiguous(text):
    """Give every ambiguous base (code above 3) of `text`, in place, a hashed base.

    Runs of N left as one base would be the text's longest repeats, slow to sort and in
    the way of every search for that base.
    """
    for i in prange(len(text)):
        if text[i] > 3:
            text[i] = np.uint8(position_hash(i) & np.uint64(3))


@driver
def find_primary(suffix_array):
    """Row of the suffix that is the whole text, whose BWT character is the sentinel."""
    for i in range(len(suffix_array)):
        if suffix_array[i] == 0:
            return i + 1
    return 0


@parallel_driver
def fill_blocks(text, suffix_array, primary, occ_shift, blocks):
    """Write the BWT into `blocks`, and in their first two words each block's own counts."""
    n = len(text)
    for block in prange(len(blocks)):
        counts = np.zeros(4, np.uint64)
        start = block << occ_shift
        end = min(n, start + (1 << occ_shift))
        for i in range(start, end):
            row = i if i < primary else i + 1
            code = text[n - 1] if row == 0 else text[suffix_array[row - 1] - 1]
            counts[code] += np.uint64(1)
            word = 2 + (((i - start) >> 6) << 1)
            bit = np.uint64(i & 63)
            blocks[block, word] |= np.uint64(code & 1) << bit
            blocks[block, word + 1] |= np.uint64(code >> 1) << bit
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


@driver
def count_kmers(text, kmer_len, starts):
    """Add to `starts`, at the first k-mer that does not sort before it, each suffix.

    A suffix of k bases or more counts one past its own k-mer, a shorter one (padded
    with A, the smallest base) at the k-mer it is padded to, and the sentinel at 0. The
    running sum is then the table of :func:`mapper.index.fm.kmer_interval`.
    """
    n = len(text)
    starts[0] += starts.dtype.type(1)
    mask = (1 << (2 * kmer_len)) - 1
    kmer = 0
    for i in range(n):
        kmer = (kmer << 2 | np.int64(text[i])) & mask
        if i >= kmer_len - 1:
            starts[kmer + 1] += starts.dtype.type(1)
    for length in range(1, min(kmer_len, n + 1)):
        kmer = 0
        for i in range(n - length, n):
            kmer = kmer << 2 | np.int64(text[i])
        starts[kmer << (2 * (kmer_len - length))] += starts.dtype.type(1)
