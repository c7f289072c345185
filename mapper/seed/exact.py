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
from mapper.index.fm import extend_left, kmer_interval


@core
def pattern_base(codes, start, end, strand, i):
    """Base `i`, counted from its right end, of the pattern for ``codes[start:end]``.

    i may reach past the seed's length: the pattern continues into the read.
    """
    if strand == 0:
        return np.int64(codes[end - 1 - i])
    return np.int64(3) - np.int64(codes[start + i])


@core
def search_seed(fm, codes, start, end, strand, room, extend_over):
    """Find a seed's rows; lengthen it while it is frequent.

    Parameters
    ----------
    fm
        FMIndex.
    codes
        uint8 base codes that hold the seed at ``start:end``, none ambiguous.
    strand
        0 or 1.
    room
        Bases beyond the seed (on the side where its pattern grows) that may be used.
    extend_over
        The seed is lengthened while it has more rows than this, there is room, and the
        longer pattern still occurs.

    Returns
    -------
    sa_lo, sa_hi, length
        Rows of the pattern and its length; an empty interval if the seed does not occur.
    """
    seed_len = end - start
    sa_lo = np.int64(0)
    sa_hi = np.int64(fm.n_rows)
    length = np.int64(0)
    if 0 < fm.kmer_len <= seed_len:
        kmer = np.int64(0)
        while length < fm.kmer_len:
            kmer |= pattern_base(codes, start, end, strand, length) << (2 * length)
            length += 1
        sa_lo, sa_hi = kmer_interval(fm, kmer)
    while length < seed_len and sa_lo < sa_hi:
        sa_lo, sa_hi = extend_left(
            fm, pattern_base(codes, start, end, strand, length), sa_lo, sa_hi
        )
        length += 1
    while sa_hi - sa_lo > extend_over and length < seed_len + room:
        next_lo, next_hi = extend_left(
            fm, pattern_base(codes, start, end, strand, length), sa_lo, sa_hi
        )
        if next_lo >= next_hi:
            break
        sa_lo = next_lo
        sa_hi = next_hi
        length += 1
    return sa_lo, sa_hi, length
