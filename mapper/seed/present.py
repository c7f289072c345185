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

from mapper.accelerate import core
from mapper.index.fm import FMIndex
from mapper.seed.plan import seed_start

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
    would be there for any to be missed: with a table shorter than 3, and unless it has twice as
    many entries as the text has bases.
    """
    if fm.kmer_len < 3 or 2 * fm.n_rows > 4**fm.kmer_len:
        return EVERY_KMER
    some = fm.kmer_starts[1:] > fm.kmer_starts[:-1]
    return np.packbits(some, bitorder="little").view(np.uint64)


class Passed(NamedTuple):
    """The k-mers of a stretch of a read up to some base, on both strands."""

    end: int  # behind the last of these bases
    kmer_0: int  # the last k-mer, as the read has it, first base highest
    kmer_1: int  # its reverse complement
    run_0: int  # how many k-mers, up to the last one, are in the text without a gap
    run_1: int


@core
def none_passed(start):
    """Before the first base of a stretch."""
    zero = np.int64(0)
    return Passed(np.int64(start), zero, zero, zero, zero)


@core
def is_present(present, kmer):
    """Whether a k-mer has rows."""
    return (present[kmer >> 6] >> np.uint64(kmer & 63)) & np.uint64(1) != np.uint64(0)


@core
def pass_bases(present, kmer_len, codes, first, end, passed):
    """Go on to base `end` of a stretch that starts at `first`."""
    at, kmer_0, kmer_1, run_0, run_1 = passed
    mask = (np.int64(1) << (2 * kmer_len)) - 1
    while at < end:
        code = np.int64(codes[at])
        kmer_0 = ((kmer_0 << 2) | code) & mask
        kmer_1 = (kmer_1 >> 2) | ((3 - code) << (2 * kmer_len - 2))
        at += 1
        if at >= first + kmer_len:
            run_0 = run_0 + 1 if is_present(present, kmer_0) else np.int64(0)
            run_1 = run_1 + 1 if is_present(present, kmer_1) else np.int64(0)
    return Passed(at, kmer_0, kmer_1, run_0, run_1)


@core
def choose_seeds(fm, present, codes, first, stretch, seed_len, step, n_starts, done, scratch,
                 n_seeds, passed):  # fmt: skip
    """List the next seeds to search, each with its strand, by start.

    Parameters
    ----------
    present
        Bits of :func:`present_kmers`; None for a search of all seeds.
    first, stretch
        Where on `codes` a stretch without ambiguous bases starts, and its length.
    step, n_starts, done
        Distance of seeds, 0 where they are disjoint; how many there are, and are done.
    scratch, n_seeds
        Rows from `n_seeds` on get ``start`` and ``strand``.
    passed
        As returned before, or :func:`none_passed`.

    Returns
    -------
    done, n_listed, passed
        n_listed is ROWS_FULL where the rows do not suffice.
    """
    n_listed = np.int64(0)
    n_kmers = np.int64(0)  # of a seed, that have to be there
    if present is not None and step > 0 and len(present) > 0:
        n_kmers = max(np.int64(0), np.int64(seed_len) - fm.kmer_len + 1)
    while done < n_starts and n_listed <= SEARCHED_TOGETHER - 2:
        start = first + seed_start(stretch, seed_len, step, n_starts, done)
        done += 1
        if n_kmers > 0 and present is not None:
            passed = pass_bases(present, fm.kmer_len, codes, first, start + seed_len, passed)
        for strand in range(2):
            if (passed.run_1 if strand else passed.run_0) >= n_kmers:
                row = n_seeds + n_listed
                if row >= len(scratch.start):
                    return done, np.int64(ROWS_FULL), passed
                scratch.start[row] = start
                scratch.strand[row] = strand
                n_listed += 1
    return done, n_listed, passed
