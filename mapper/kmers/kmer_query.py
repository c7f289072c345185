"""Core: one k-mer on one strand, its parts as table indexes, and its comparison with the text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.dna import plane_word
from mapper.index.reference import contig_bounds, find_contig
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import popcount, reversed_bits

NO_MATCH = 128
"""Number of mismatches of a place that is not within one contig."""


class KmerQuery(NamedTuple):
    """One k-mer on one strand, as bit planes; base i in bit i."""

    low: np.uint64
    high: np.uint64
    right_mask: np.uint64  # bits of the right part
    left_mask: np.uint64


@core
def make_query(low, high, strand, params, left_len):
    """Orient a k-mer: as it is for strand 0, its reverse complement for strand 1."""
    k = params.kmer_len
    mask = ~np.uint64(0) >> np.uint64(64 - k)
    if strand == 1:
        # A complement is 3 - code: both bits flip.
        low = reversed_bits(~low) >> np.uint64(64 - k)
        high = reversed_bits(~high) >> np.uint64(64 - k)
    left_mask = (np.uint64(1) << np.uint64(left_len)) - np.uint64(1)
    return KmerQuery(low & mask, high & mask, mask & ~left_mask, left_mask)


@core
def query_base(query, i):
    """Return the code of base `i`."""
    one, bit = np.uint64(1), np.uint64(i)
    return np.int32(((query.low >> bit) & one) | (((query.high >> bit) & one) << one))


@core
def table_index(query, start, length):
    """Bases start:start+length, 16 at most, coded 2 bits each, the first highest."""
    kmer = np.uint32(0)  # a search may lengthen its table to 16 bases, all 32 bits
    for i in range(np.int32(length)):
        kmer = np.uint32((kmer << np.uint32(2)) | np.uint32(query_base(query, np.int32(start + i))))
    return np.int64(kmer)


@core
def change_base(kmer, change, kmer_len):
    """Put another base into a table index: change m puts code ^ (m % 3 + 1) at base m // 3."""
    if change < 0:
        return kmer
    return kmer ^ ((change % 3 + 1) << (2 * (kmer_len - 1 - change // 3)))


@core
def compare_at(fm, places, query, kmer_len, text_pos):
    """Count mismatches of the left and the right part at a place of the text.

    Returns
    -------
    Two counts; NO_MATCH twice where the place is not within one contig.
    """
    if text_pos < 0 or text_pos + kmer_len >= fm.n_rows:
        return np.int64(NO_MATCH), np.int64(NO_MATCH)
    ambiguous = plane_word(fm.ref_planes, 0, text_pos, 2)
    differ = (
        (plane_word(fm.ref_planes, 0, text_pos, 0) ^ query.low)
        | (plane_word(fm.ref_planes, 0, text_pos, 1) ^ query.high)
        | ambiguous
    )
    if ambiguous & (query.left_mask | query.right_mask):
        # An N is a mismatch, but the separator after a contig is no base at all.
        ref_id = find_contig(places.contig_starts, text_pos)
        _, end = contig_bounds(places.contig_starts, places.contig_lengths, ref_id)
        if text_pos + kmer_len > end:
            return np.int64(NO_MATCH), np.int64(NO_MATCH)
    return popcount(differ & query.left_mask), popcount(differ & query.right_mask)
