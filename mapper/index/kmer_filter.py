"""Core of the k-mer presence filter: skip seeds that contain a k-mer absent from the text.

Reads of another genome are searched in every round, at every start of the last, for seeds of
which almost none occurs. In a small genome most k-mers of the index's table have no row. A bitmap
of the k-mers with rows fits a core's caches, which the table does not. A seed can occur only if
all its k-mers do; the filter skips only seeds that do not occur, so it changes no result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.dna import AMBIGUOUS
from mapper.index.fm import FMIndex
from mapper.jit.accelerate import core

EVERY_KMER = np.zeros(0, np.uint64)
"""The empty filter, which skips no seed."""


def present_kmers(fm: FMIndex) -> np.ndarray:
    """Return a bitmap of the entries of the k-mer table whose interval has a row.

    Returns
    -------
    uint64 (4**k / 64,), k-mer x in bit x & 63 of word x >> 6. Empty if nearly all k-mers would
    be present: if k is less than 3, or the table has fewer entries than the index has rows.
    """
    if fm.kmer_len < 3 or fm.n_rows > 4**fm.kmer_len:
        return EVERY_KMER
    some = fm.kmer_starts[1:] > fm.kmer_starts[:-1]
    return np.packbits(some, bitorder="little").view(np.uint64)


class KmerFilter(NamedTuple):
    """The k-mers of the text, and the k-mers of one read that the text has."""

    kmers: np.ndarray  # uint64: of present_kmers()
    in_read: np.ndarray
    """uint64 (n_words + 1, 2): bit i & 63 of row i >> 6 is set if the k-mer from base i of the
    forward read is in the text: column 0 for itself, 1 for its reverse complement."""


@core
def mark_present(present, kmer_len, codes, read_start, read_end):
    """Fill ``present.in_read`` for the read ``codes[read_start:read_end]``."""
    kmer_0 = kmer_1 = np.int64(0)
    mask = (np.int64(1) << (2 * kmer_len)) - 1
    words = present.in_read
    word_0 = word_1 = np.uint64(0)
    n_clean = np.int64(0)
    row = np.int64(0)
    bit = np.uint64(0)
    for i in range(read_start, read_end):
        code = np.int64(codes[i])
        n_clean = n_clean + 1 if code < AMBIGUOUS else np.int64(0)
        kmer_0 = ((kmer_0 << 2) | (code & 3)) & mask
        kmer_1 = (kmer_1 >> 2) | ((~code & 3) << (2 * kmer_len - 2))
        if i < read_start + kmer_len - 1:
            continue
        if n_clean >= kmer_len:
            word_0 |= ((present.kmers[kmer_0 >> 6] >> np.uint64(kmer_0 & 63)) & np.uint64(1)) << bit
            word_1 |= ((present.kmers[kmer_1 >> 6] >> np.uint64(kmer_1 & 63)) & np.uint64(1)) << bit
        bit += np.uint64(1)
        if bit == np.uint64(64):
            words[row, 0] = word_0
            words[row, 1] = word_1
            word_0 = word_1 = bit = np.uint64(0)
            row += 1
    while row <= (read_end - read_start + 63) >> 6:
        words[row, 0] = word_0
        words[row, 1] = word_1
        word_0 = word_1 = np.uint64(0)
        row += 1


@core
def consecutive_present(words, row, strand, n_kmers):
    """Return a word with bit i set if `n_kmers` (1 to 64) k-mers from bit i on are in the text."""
    word, following = words[row, strand], words[row + 1, strand]
    runs = word
    for i in range(1, n_kmers):
        shift = np.uint64(i)
        runs &= (word >> shift) | (following << (np.uint64(64) - shift))
    return runs
