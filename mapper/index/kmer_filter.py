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
from mapper.jit.intrinsics import trailing_zeros
from mapper.seed.exact import seed_start

SEARCHED_TOGETHER = 16
"""Seeds, of either strand, whose searches take turns."""

ROWS_FULL = -1
"""The seeds to be searched do not fit their work space."""

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


class Present(NamedTuple):
    """The k-mers of the text, and those of one read that are among them."""

    kmers: np.ndarray  # uint64: of present_kmers()
    of_read: np.ndarray
    """uint64 (n_words + 1, 2): bit i & 63 of row i >> 6 is set if the k-mer from base i of the
    read as given is in the text: column 0 for itself, 1 for its reverse complement."""


@core
def look_up(present, kmer_len, codes, read_start, read_end):
    """Fill ``present.of_read`` for the read that `codes` hold at ``read_start:read_end``."""
    kmer_0 = kmer_1 = np.int64(0)
    mask = (np.int64(1) << (2 * kmer_len)) - 1
    words = present.of_read
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
def runs_of(words, row, strand, n_kmers):
    """Set bit i where `n_kmers` (1 to 64) k-mers, from the one of bit i on, are in the text."""
    word, following = words[row, strand], words[row + 1, strand]
    runs = word
    for i in range(1, n_kmers):
        shift = np.uint64(i)
        runs &= (word >> shift) | (following << (np.uint64(64) - shift))
    return runs


@core
def choose_seeds(fm, present, codes, read_start, first, stretch, seed_len, step, n_starts, done,
                 scratch, n_seeds):  # fmt: skip
    """List the next seeds to search, each with its strand, by start.

    Parameters
    ----------
    present
        :class:`Present`, looked up for the read; None for a search of all seeds.
    first, stretch
        Where on `codes` a stretch without ambiguous bases starts, and its length.
    step, n_starts, done
        Distance of seeds, 0 where they are disjoint; how many there are, and are done.
    scratch, n_seeds
        Rows from `n_seeds` on get ``start`` and ``strand``.

    Returns
    -------
    done, n_listed
        n_listed is ROWS_FULL where the rows do not suffice.
    """
    n_listed = np.int32(0)
    capacity = np.int32(len(scratch.start))
    done, n_starts, step = np.int32(done), np.int32(n_starts), np.int32(step)
    n_kmers = np.int64(0)  # of a seed, that have to be there
    if present is not None and step > 0 and len(present.kmers) > 0:
        n_kmers = min(np.int64(64), np.int64(seed_len) - fm.kmer_len + 1)
    row = np.int64(-1)
    runs_0 = runs_1 = ~np.uint64(0)
    while done < n_starts and n_listed <= SEARCHED_TOGETHER - 2:
        start = np.int32(first + seed_start(stretch, seed_len, step, n_starts, done))
        worth_0 = worth_1 = True
        if n_kmers > 0 and present is not None:
            pos = start - read_start
            if pos >> 6 != row:
                row = pos >> 6
                runs_0 = runs_of(present.of_read, row, 0, n_kmers)
                runs_1 = runs_of(present.of_read, row, 1, n_kmers)
            left = (runs_0 | runs_1) >> np.uint64(pos & 63)
            if not left & np.uint64(1):
                # To the next start at which either strand has all, or to that of the next row.
                ahead = 64 - (pos & 63)
                if left:
                    ahead = trailing_zeros(left)
                done = np.int32(done + (ahead + step - 1) // step)
                continue
            worth_0 = (runs_0 >> np.uint64(pos & 63)) & np.uint64(1) != np.uint64(0)
            worth_1 = (runs_1 >> np.uint64(pos & 63)) & np.uint64(1) != np.uint64(0)
        done = np.int32(done + 1)
        for strand in range(2):
            if worth_1 if strand else worth_0:
                seed = np.int32(n_seeds + n_listed)
                if seed >= capacity:
                    return done, np.int32(ROWS_FULL)
                scratch.start[np.uint32(seed)] = start
                scratch.strand[np.uint32(seed)] = strand
                n_listed = np.int32(n_listed + 1)
    return min(done, n_starts), n_listed


@core
def pass_absent(first, last, step, seed_len, n_disjoint, last_end):
    """Count seeds that do not occur, one every `step` bases from `first` to `last`.

    Parameters
    ----------
    n_disjoint, last_end
        Disjoint seeds of the strand counted so far, and where the last one ends.

    Returns
    -------
    n_disjoint, last_end
        With those that are disjoint of them and of the last one, greedily.
    """
    last_end = min(last_end, first + seed_len)
    start = first + max(np.int64(0), last_end - first + step - 1) // step * step
    if start > last:
        return n_disjoint, last_end
    period = (seed_len + step - 1) // step * step
    n_more = (last - start) // period
    return n_disjoint + n_more + 1, start + n_more * period + seed_len
