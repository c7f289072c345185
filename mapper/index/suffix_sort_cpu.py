"""Drivers of the suffix sort on the CPU: buckets of suffixes, and groups that are tied.

A bucket holds the suffixes with one leading k-mer. It is dealt once by the next 4 bases and then
sorted by quicksort on 32 bases at a time; what is tied then is sorted by the ranks of suffixes
further on, in rounds (:mod:`mapper.index.suffix_sort`). Each driver works for one thread
(``sort_cpu.py``); no two write the same item.
"""

from __future__ import annotations

import numpy as np

from mapper.index.packed_text import key_at, next_window, window_at
from mapper.index.pair_sort import STACK, sort_pairs
from mapper.index.ranks import place, rank_after
from mapper.jit.accelerate import driver


@driver
def collect(words, kmer_len, first_kmer, end_kmer, first, end, cursors, positions):
    """Write the suffixes of ``[first, end)`` with a leading k-mer of a range to `positions`.

    Parameters
    ----------
    first
        A multiple of 32.
    cursors
        int64: ``cursors[kmer - first_kmer]`` says where the next of a k-mer goes, and moves on.
    """
    shift = np.uint64(64 - 2 * kmer_len)
    for start in range(first, end, 32):
        key, after = window_at(words, start)
        for text_pos in range(start, min(end, start + 32)):
            kmer = np.int64(key >> shift)
            if first_kmer <= kmer < end_kmer:
                at = cursors[kmer - first_kmer]
                positions[at] = text_pos
                cursors[kmer - first_kmer] = at + 1
            key, after = next_window(key, after)


@driver
def sort_bucket(words, n, skip, depth, positions, heads):
    """Sort suffixes that agree in `skip` bases by `depth` bases; mark where groups begin.

    Parameters
    ----------
    positions
        Row type (m,), m > 0: sorted in place.
    heads
        uint8 (m,): set to 1 at the first of each group, left at 0 elsewhere.
    """
    m = len(positions)
    keys = np.empty(m, np.uint64)
    stack = np.empty(STACK, np.int64)
    starts = np.zeros(257, np.int64)
    for i in range(m):
        keys[i] = key_at(words, n, np.int64(positions[i]) + skip)
        starts[(keys[i] >> np.uint64(56)) + np.uint64(1)] += 1
    if m > 512:
        for digit in range(256):
            starts[digit + 1] += starts[digit]
        dealt_keys = np.empty(m, np.uint64)
        dealt_positions = np.empty(m, positions.dtype)
        for i in range(m):
            digit = keys[i] >> np.uint64(56)
            dealt_keys[starts[digit]] = keys[i]
            dealt_positions[starts[digit]] = positions[i]
            starts[digit] += 1
        lo = 0
        for digit in range(256):
            sort_pairs(dealt_keys, dealt_positions, lo, starts[digit], stack)
            lo = starts[digit]
        keys = dealt_keys
        positions[:] = dealt_positions
    else:
        sort_pairs(keys, positions, 0, m, stack)
    heads[0] = 1
    for i in range(1, m):
        if keys[i] != keys[i - 1]:
            heads[i] = 1
    for sorted_by in range(skip + 32, depth, 32):
        lo = 0
        while lo < m:
            hi = lo + 1
            while hi < m and heads[hi] == 0:
                hi += 1
            if hi - lo > 1:
                for i in range(lo, hi):
                    keys[i] = key_at(words, n, np.int64(positions[i]) + sorted_by)
                sort_pairs(keys, positions, lo, hi, stack)
                for i in range(lo + 1, hi):
                    if keys[i] != keys[i - 1]:
                        heads[i] = 1
            lo = hi


@driver
def sort_buckets(words, n, skip, depth, starts, row, positions, rank):
    """Sort buckets and write the ranks; return rows and positions of what is tied.

    Parameters
    ----------
    starts
        int64: bucket b is ``positions[starts[b]:starts[b + 1]]``, in rows from
        ``row + starts[b]`` on.
    """
    first = starts[0]
    heads = np.zeros(starts[-1] - first + 1, np.uint8)
    heads[-1] = 1
    for bucket in range(len(starts) - 1):
        lo, hi = starts[bucket], starts[bucket + 1]
        if lo < hi:
            sort_bucket(words, n, skip, depth, positions[lo:hi], heads[lo - first : hi - first])
    return write_ranks(rank, row + first, positions[first : starts[-1]], heads)


@driver
def write_ranks(rank, row, positions, heads):
    """Write the ranks of sorted groups in rows from `row` on; return rows and positions tied."""
    m = len(positions)
    n_tied = 0
    for i in range(m):
        if heads[i] == 0 or heads[i + 1] == 0:
            n_tied += 1
    tied_rows = np.empty(n_tied, positions.dtype)
    tied_positions = np.empty(n_tied, positions.dtype)
    n_tied = 0
    group = row
    for i in range(m):
        if heads[i]:
            group = row + i
        rank[positions[i]] = group
        if heads[i] == 0 or heads[i + 1] == 0:
            tied_rows[n_tied] = row + i
            tied_positions[n_tied] = positions[i]
            n_tied += 1
    return tied_rows, tied_positions


@driver
def look_ahead(rank, n, depth, offset, positions, keys):
    """Write the key of each position; no rank may change meanwhile."""
    for i in range(len(positions)):
        keys[i] = rank_after(rank, n, np.int64(positions[i]), depth, offset)


@driver
def refine_groups(rank, rows, positions, keys):
    """Sort each group by its keys and write the new ranks.

    Returns
    -------
    How many are still tied; their rows and positions come first in `rows` and `positions`.
    """
    stack = np.empty(STACK, np.int64)
    m = len(rows)
    kept = 0
    lo = 0
    while lo < m:
        group = rank[positions[lo]]
        hi = lo + 1
        while hi < m and rank[positions[hi]] == group:
            hi += 1
        sort_pairs(keys, positions, lo, hi, stack)
        at = lo
        while at < hi:
            end = at + 1
            while end < hi and keys[end] == keys[at]:
                end += 1
            row = rows[at]
            for i in range(at, end):
                rank[positions[i]] = row
                if end - at > 1:
                    rows[kept] = rows[i]
                    positions[kept] = positions[i]
                    kept += 1
            at = end
        lo = hi
    return kept


@driver
def place_suffixes(words, rank, first, end, sa_shift, bwt, sa_samples):
    """Write out the suffixes of ``[first, end)``, whose rank is now their row."""
    for text_pos in range(first, end):
        place(words, rank, text_pos, 0, len(bwt), sa_shift, bwt, sa_samples)
