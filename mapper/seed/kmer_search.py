"""Core: every place where a k-mer matches with at most two mismatches.

The *right part* of a k-mer is as long as the k-mer table's k. Its exact form and its
neighbours, all patterns within d mismatches, are looked up in the table, and each interval
is extended to the left over the *left part* with the mismatches that remain, depth first.
As soon as few rows are left, they are located and compared with the text instead: 64 bases
take a few instructions.

Of patterns with the full number of mismatches in the right part there are many, and all of
them leave the left part without any. Where the left part alone is rare, its occurrences are
therefore compared with the text instead (pigeonhole), and the right part is searched with
one mismatch less: for 30-mers with two mismatches and a table of 16-mers 49 lookups for
1129, and about one text comparison each.

What is reported is decided by the comparison with the text, never by the index, which holds
random bases in place of ambiguous ones: an ambiguous base of the reference mismatches
everything, and a match lies within one contig. Each match is found once: either the right
part has the full number of mismatches (first search) or fewer (second), and the patterns of
the second are all different.

References
----------
Paper 3 of ``docs/algorithm.md`` (GPU seed generation), section 3.3, has the depth-first
search with a lower bound; the set of matches is the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.atomic import fetch_add
from mapper.bits import popcount, reversed_bits
from mapper.dna import plane_word
from mapper.index.fm import extend_left, locate
from mapper.index.reference import contig_bounds, find_contig
from mapper.seed.kmer_places import surely_clean

NO_MATCH = 128
"""Number of mismatches of a place that is not within one contig."""


class KmerQuery(NamedTuple):
    """One k-mer on one strand, as bit planes; base i in bit i."""

    low: np.uint64
    high: np.uint64
    right_mask: np.uint64  # bits of the right part
    left_mask: np.uint64


class HitStore(NamedTuple):
    """Hits as threads find them: the first of each row apart, the others in a list.

    A row is a k-mer on a strand. List items are in no order; ``more_ordinal`` says which hit
    of its row an item is (1, 2, ...).
    """

    row_hits: np.ndarray  # int32 (n_rows,): their number; above the limit it stops there
    first_pos: np.ndarray  # uint32 or uint64 (n_rows,)
    first_mismatches: np.ndarray  # uint8 (n_rows,)
    more_used: np.ndarray  # int64 (1,): items of the list, also those without room
    more_row: np.ndarray  # int32 (capacity,)
    more_ordinal: np.ndarray  # int32 (capacity,)
    more_pos: np.ndarray  # uint32 or uint64 (capacity,)
    more_mismatches: np.ndarray  # uint8 (capacity,)


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
    low = np.int64(query.low >> np.uint64(i)) & 1
    high = np.int64(query.high >> np.uint64(i)) & 1
    return low | (high << 1)


@core
def table_index(query, start, length):
    """Bases start:start+length coded 2 bits each, the first highest."""
    kmer = np.int64(0)
    for i in range(length):
        kmer = (kmer << 2) | query_base(query, start + i)
    return kmer


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


@core
def store_hit(hits, row, ordinal, text_pos, mismatches):
    """Keep a hit: the first of its row in its own place, another in the shared list."""
    if ordinal == 0:
        hits.first_pos[row] = text_pos
        hits.first_mismatches[row] = mismatches
        return
    slot = fetch_add(hits.more_used, 1)
    if slot < len(hits.more_row):
        hits.more_row[slot] = row
        hits.more_ordinal[slot] = ordinal
        hits.more_pos[slot] = text_pos
        hits.more_mismatches[slot] = mismatches


@core
def has_too_many(fm, places, params, sa_lo, sa_hi, shift):
    """Whether so many rows of a settled interval are clean that the k-mer has too many hits.

    Looks at no more rows than decide it. They lie side by side in the suffix array, and
    nothing is stored: this is what most of the work for repeats comes down to.
    """
    n_clean = np.int64(0)
    for row in range(sa_lo, sa_lo + params.max_hits + 1):
        n_clean += surely_clean(places, locate(fm, row) - shift, params.kmer_len)
    return n_clean > params.max_hits


@core
def take_rows(fm, places, query, params, sa_lo, sa_hi, shift, settled, left, right,
              min_right, max_right, row, n_hits, hits):  # fmt: skip
    """Locate rows and keep those that match.

    Parameters
    ----------
    shift
        Bases of the k-mer to the left of what the rows stand for.
    settled, left, right
        Whether the rows stand for the whole k-mer; if so, their mismatches in either part.
    min_right, max_right
        Mismatches that the right part must have for a match to be this search's.

    Returns
    -------
    Hits of the k-mer so far; above ``params.max_hits``, the rest was not looked at.
    """
    if (
        settled
        and sa_hi - sa_lo > params.max_hits
        and has_too_many(fm, places, params, sa_lo, sa_hi, shift)
    ):
        return params.max_hits + 1
    while sa_lo < sa_hi and n_hits <= params.max_hits:
        text_pos = locate(fm, sa_lo) - shift
        if settled and surely_clean(places, text_pos, params.kmer_len):
            n_left, n_right = left, right
        else:
            n_left, n_right = compare_at(fm, places, query, params.kmer_len, text_pos)
        if min_right <= n_right <= max_right and n_left + n_right <= params.max_mismatches:
            store_hit(hits, row, n_hits, text_pos, n_left + n_right)
            n_hits += 1
        sa_lo += 1
    return n_hits


@core
def search_left(fm, places, query, params, sa_lo, sa_hi, right, max_right, row, n_hits,
                hits):  # fmt: skip
    """Extend an interval of the right part, with `right` mismatches there, over the left part.

    Depth first. A step takes the k-mer's own base (code ^ 0) or, while mismatches remain,
    first the three others (code ^ 1, 2, 3). Only where a mismatch was taken is there
    something to come back to: two saved intervals do for two mismatches.
    """
    left_len = params.kmer_len - fm.kmer_len
    budget = params.max_mismatches - right
    depth = np.int64(0)  # bases of the left part that are done
    level = 0  # mismatches taken
    turn = 1  # what to take next: 1, 2, 3, then 0
    lo_0 = hi_0 = depth_0 = np.int64(0)
    lo_1 = hi_1 = depth_1 = np.int64(0)
    turn_0 = turn_1 = 0
    while True:
        if depth == left_len or sa_hi - sa_lo <= params.verify_rows:
            n_hits = take_rows(
                fm, places, query, params, sa_lo, sa_hi, left_len - depth,
                depth == left_len, level, right, 0, max_right, row, n_hits, hits,
            )  # fmt: skip
            if level == 0 or n_hits > params.max_hits:
                return n_hits
            level -= 1
            if level == 0:
                sa_lo, sa_hi, depth, turn = lo_0, hi_0, depth_0, turn_0
            else:
                sa_lo, sa_hi, depth, turn = lo_1, hi_1, depth_1, turn_1
            continue
        change = turn if turn < 4 and level < budget else 0
        code = query_base(query, left_len - 1 - depth) ^ change
        next_lo, next_hi = extend_left(fm, code, sa_lo, sa_hi)
        turn += 1
        if change != 0 and next_lo >= next_hi:
            continue
        if change != 0:
            if level == 0:
                lo_0, hi_0, depth_0, turn_0 = sa_lo, sa_hi, depth, turn
            else:
                lo_1, hi_1, depth_1, turn_1 = sa_lo, sa_hi, depth, turn
            level += 1
        sa_lo = next_lo
        sa_hi = next_hi
        depth += 1
        turn = 1


@core
def left_interval(fm, query, left_len):
    """Rows of the left part.

    A left part shorter than the table's k is looked up as a range of its extensions. The
    table does not see suffixes shorter than k there, and need not: a match of the whole
    k-mer has at least k bases from its left part on.
    """
    in_table = min(np.int64(left_len), np.int64(fm.kmer_len))
    kmer = table_index(query, left_len - in_table, in_table)
    beyond = 2 * (fm.kmer_len - in_table)
    sa_lo = np.int64(fm.kmer_starts[kmer << beyond])
    sa_hi = np.int64(fm.kmer_starts[(kmer + 1) << beyond])
    i = left_len - in_table
    while i > 0 and sa_lo < sa_hi:
        i -= 1
        sa_lo, sa_hi = extend_left(fm, query_base(query, i), sa_lo, sa_hi)
    return sa_lo, sa_hi


@core
def search_kmer(fm, places, low, high, params, row, hits):
    """Find and keep all matches of a k-mer on one strand.

    Parameters
    ----------
    fm
        FMIndex with 0 < ``kmer_len`` <= k (:func:`mapper.index.expand.with_table`).
    low, high
        Bit planes of the k-mer as given.
    params
        KmerParams.
    row
        2 i for k-mer i itself, 2 i + 1 for its reverse complement.
    hits
        HitStore.

    Returns
    -------
    Number of hits; above ``params.max_hits`` the search stopped there.
    """
    right_len = fm.kmer_len
    left_len = params.kmer_len - right_len
    query = make_query(low, high, row & 1, params, left_len)
    n_changes = np.int64(3 * right_len)  # change m puts code ^ (m % 3 + 1) at base m // 3
    max_right = params.max_mismatches
    n_hits = np.int64(0)
    if max_right > 0 and left_len > 0:
        n_patterns = n_changes if max_right == 1 else n_changes * (n_changes - 3) // 2
        sa_lo, sa_hi = left_interval(fm, query, left_len)
        if sa_hi - sa_lo <= n_patterns:
            n_hits = take_rows(
                fm, places, query, params, sa_lo, sa_hi, 0, False, 0, 0,
                max_right, max_right, row, n_hits, hits,
            )  # fmt: skip
            max_right -= 1
    exact = table_index(query, left_len, right_len)
    first = np.int64(-1)
    while first < (n_changes if max_right > 0 else 0) and n_hits <= params.max_hits:
        once = exact
        if first >= 0:
            once ^= (first % 3 + 1) << (2 * (right_len - 1 - first // 3))
        second = np.int64(-1)
        while second < n_changes and n_hits <= params.max_hits:
            kmer = once
            if second >= 0:
                kmer ^= (second % 3 + 1) << (2 * (right_len - 1 - second // 3))
            n_hits = search_left(
                fm, places, query, params,
                np.int64(fm.kmer_starts[kmer]), np.int64(fm.kmer_starts[kmer + 1]),
                np.int64(first >= 0) + np.int64(second >= 0), max_right, row, n_hits, hits,
            )  # fmt: skip
            if first < 0 or max_right < 2:
                break
            second = 3 * (first // 3 + 1) if second < 0 else second + 1
        first += 1
    return n_hits
