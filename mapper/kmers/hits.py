"""Core: from hits as threads found them to hits in order.

Hits are put side by side by row, in the order found, and then each into its place by rank: how
many hits of its row have a lower position. One thread for each hit makes that even work on a
device, and rows are short. The few that ``--max-hits`` lets be long are sorted first.
"""

from __future__ import annotations

from mapper.jit.accelerate import core

LONG_ROW = 256
"""Hits of a row from which on it is sorted, instead of ranking each hit."""


@core
def drop_if_many(row_hits, kmer, max_hits):
    """Forget the hits of a k-mer that has too many; return whether it has.

    `row_hits` is the column of HitStore; both rows of the k-mer are set to 0.
    """
    if row_hits[2 * kmer] + row_hits[2 * kmer + 1] <= max_hits:
        return False
    row_hits[2 * kmer] = 0
    row_hits[2 * kmer + 1] = 0
    return True


@core
def place_first(hits, row, hit_offsets, text_pos, mismatches):
    """Put the first hit of a row beside the others, ``text_pos`` and ``mismatches``."""
    if hits.row_hits[row]:
        text_pos[hit_offsets[row]] = hits.first_pos[row]
        mismatches[hit_offsets[row]] = hits.first_mismatches[row]


@core
def place_more(hits, item, hit_offsets, text_pos, mismatches):
    """Put an item of the list beside its row's other hits, unless they were dropped."""
    row = hits.more_row[item]
    if hits.row_hits[row]:
        at = hit_offsets[row] + hits.more_ordinal[item]
        text_pos[at] = hits.more_pos[item]
        mismatches[at] = hits.more_mismatches[item]


@core
def _sift_down(text_pos, mismatches, start, root, n):
    """Restore the heap ``start:start+n``, largest on top, from item `root` down."""
    while True:
        child = 2 * root + 1
        if child >= n:
            return
        if child + 1 < n and text_pos[start + child] < text_pos[start + child + 1]:
            child += 1
        if text_pos[start + root] >= text_pos[start + child]:
            return
        _swap(text_pos, mismatches, start + root, start + child)
        root = child


@core
def _swap(text_pos, mismatches, i, j):
    pos = text_pos[i]
    text_pos[i] = text_pos[j]
    text_pos[j] = pos
    count = mismatches[i]
    mismatches[i] = mismatches[j]
    mismatches[j] = count


@core
def sort_long_row(text_pos, mismatches, start, end):
    """Sort the hits of a long row by position, in place (heap sort: there may be millions)."""
    n = end - start
    if n <= LONG_ROW:
        return
    root = n // 2 - 1
    while root >= 0:
        _sift_down(text_pos, mismatches, start, root, n)
        root -= 1
    last = n - 1
    while last > 0:
        _swap(text_pos, mismatches, start, start + last)
        _sift_down(text_pos, mismatches, start, 0, last)
        last -= 1


@core
def settle_hit(text_pos, mismatches, start, end, ordinal, sorted_pos, sorted_mismatches):
    """Copy hit `ordinal` of the row ``start:end`` to its place in the sorted columns."""
    pos = text_pos[start + ordinal]
    rank = ordinal
    if end - start <= LONG_ROW:
        rank = 0
        for other in range(start, end):
            rank += text_pos[other] < pos
    sorted_pos[start + rank] = pos
    sorted_mismatches[start + rank] = mismatches[start + ordinal]
