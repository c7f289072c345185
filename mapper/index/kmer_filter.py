"""Core: which seeds of a round are worth a search, by what short k-mers the text has at all.

A read that does not belong to the text is searched in every round, at every start of the last,
for seeds of which next to none occurs. In a small genome most k-mers of the index's table have no
row. One bit for each says so: small enough for a core's caches, where the table is not. A seed
can occur only where all its k-mers do. What is left out here would have been searched in vain, so
the seeds found are the same without.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.dna import AMBIGUOUS
from mapper.index.fm import FMIndex
from mapper.jit.accelerate import core

EVERY_KMER = np.zeros(0, np.uint64)
"""The set of k-mers that tells nothing."""


def present_kmers(fm: FMIndex) -> np.ndarray:
    """Return a bit for each entry of the table of k-mers: whether its interval has a row.

    Returns
    -------
    uint64 (4**k / 64,), k-mer x in bit x & 63 of word x >> 6; no item where too many k-mers
    would be there for any to be missed: with a table shorter than 3, and unless it has at least
    as many entries as the index has rows.
    """
    if fm.kmer_len < 3 or fm.n_rows > 4**fm.kmer_len:
        return EVERY_KMER
    some = fm.kmer_starts[1:] > fm.kmer_starts[:-1]
    return np.packbits(some, bitorder="little").view(np.uint64)


class KmerFilter(NamedTuple):
    """The k-mers of the text, and those of one read that are among them."""

    kmers: np.ndarray  # uint64: of present_kmers()
    in_read: np.ndarray
    """uint64 (n_words + 1, 2): bit i & 63 of row i >> 6 is set if the k-mer from base i of the
    read as given is in the text: column 0 for itself, 1 for its reverse complement."""


@core
def mark_present(present, kmer_len, codes, read_start, read_end):
    """Fill ``present.of_read`` for the read that `codes` hold at ``read_start:read_end``."""
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
    """Set bit i where `n_kmers` (1 to 64) k-mers, from the one of bit i on, are in the text."""
    word, following = words[row, strand], words[row + 1, strand]
    runs = word
    for i in range(1, n_kmers):
        shift = np.uint64(i)
        runs &= (word >> shift) | (following << (np.uint64(64) - shift))
    return runs
