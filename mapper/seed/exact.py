"""Core: exact seeds of one read by backward search.

A seed is a stretch of the read as given. Its occurrences on the forward strand are found
by searching it; those on the reverse strand by searching its reverse complement, which
backward search reads from the seed's first base to its last. Both searches lengthen a
pattern at its left end: for strand 0 towards the start of the read, for strand 1 towards
its end.
"""

from __future__ import annotations

import numpy as np

from mapper.accelerate import core
from mapper.index.fm import extend_left, extend_unique, kmer_interval


@core
def pattern_base(codes, start, end, strand, i):
    """Base `i`, counted from its right end, of the pattern for ``codes[start:end]``.

    i may reach past the seed's length: the pattern continues into the read.
    """
    if strand == 0:
        return np.int64(codes[end - 1 - i])
    return np.int64(3) - np.int64(codes[start + i])


@core
def begin_seed(fm, codes, start, end, strand):
    """Look up the last bases of a seed's pattern in the table of k-mers.

    Parameters
    ----------
    fm
        FMIndex.
    codes
        uint8 base codes that hold the seed at ``start:end``, none ambiguous.
    strand
        0 or 1.

    Returns
    -------
    sa_lo, sa_hi, length
        Rows of the last `length` bases of the pattern: all rows and 0 without a table.
    """
    if fm.kmer_len == 0 or fm.kmer_len > end - start:
        return np.int64(0), np.int64(fm.n_rows), np.int64(0)
    kmer = np.int64(0)
    for i in range(fm.kmer_len):
        kmer |= pattern_base(codes, start, end, strand, i) << (2 * i)
    sa_lo, sa_hi = kmer_interval(fm, kmer)
    return sa_lo, sa_hi, np.int64(fm.kmer_len)


@core
def narrow_seeds(fm, codes, seed_len, scratch, first, n):
    """Search seeds until each is complete or has at most one row left.

    All take one step after the other together: the memory accesses of different seeds do
    not wait for each other, those of one seed do.

    Parameters
    ----------
    scratch
        Rows ``first:first + n`` hold ``start`` (on `codes`) and ``strand``; ``sa_lo``,
        ``sa_hi`` and ``length`` get the rows of the last ``length`` bases of each pattern.
    """
    for i in range(first, first + n):
        start = np.int64(scratch.start[i])
        sa_lo, sa_hi, length = begin_seed(fm, codes, start, start + seed_len, scratch.strand[i])
        scratch.sa_lo[i] = sa_lo
        scratch.sa_hi[i] = sa_hi
        scratch.length[i] = length
    n_alive = n
    while n_alive > 0:
        n_alive = 0
        for i in range(first, first + n):
            sa_lo = scratch.sa_lo[i]
            sa_hi = scratch.sa_hi[i]
            length = np.int64(scratch.length[i])
            if length < seed_len and sa_lo + 1 < sa_hi:
                start = np.int64(scratch.start[i])
                base = pattern_base(codes, start, start + seed_len, scratch.strand[i], length)
                sa_lo, sa_hi = extend_left(fm, base, sa_lo, sa_hi)
                scratch.sa_lo[i] = sa_lo
                scratch.sa_hi[i] = sa_hi
                scratch.length[i] = length + 1
                n_alive += 1


@core
def complete_unique(fm, codes, start, end, strand, row, length):
    """Search the rest of a seed whose last `length` bases have one row; its row, or -1."""
    while length < end - start and row >= 0:
        row = extend_unique(fm, pattern_base(codes, start, end, strand, length), row)
        length += 1
    return row


@core
def lengthen_seed(fm, codes, start, end, strand, sa_lo, sa_hi, room, extend_over):
    """Lengthen a complete seed while it is frequent.

    Parameters
    ----------
    room
        Bases beyond the seed (on the side where its pattern grows) that may be used.
    extend_over
        The seed is lengthened while it has more rows than this, there is room, and the
        longer pattern still occurs.

    Returns
    -------
    sa_lo, sa_hi, length
        Rows of the pattern and its length.
    """
    length = end - start
    longest = length + room
    while sa_hi - sa_lo > extend_over and length < longest:
        next_lo, next_hi = extend_left(
            fm, pattern_base(codes, start, end, strand, length), sa_lo, sa_hi
        )
        if next_lo >= next_hi:
            break
        sa_lo = next_lo
        sa_hi = next_hi
        length += 1
    return sa_lo, sa_hi, length
