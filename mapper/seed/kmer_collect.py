"""Core: from hits as threads found them to hits in order."""

from __future__ import annotations

from mapper.accelerate import core


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
    """Put the first hit of a row in its place."""
    if hits.row_hits[row]:
        text_pos[hit_offsets[row]] = hits.first_pos[row]
        mismatches[hit_offsets[row]] = hits.first_mismatches[row]


@core
def place_more(hits, item, hit_offsets, text_pos, mismatches):
    """Put an item of the list in its place, unless its row's hits were dropped."""
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
def sort_row(text_pos, mismatches, start, end):
    """Sort the hits of a row by position, in place (heap sort: a row may have millions)."""
    n = end - start
    root = n // 2 - 1
    while root >= 0:
        _sift_down(text_pos, mismatches, start, root, n)
        root -= 1
    last = n - 1
    while last > 0:
        _swap(text_pos, mismatches, start, start + last)
        _sift_down(text_pos, mismatches, start, 0, last)
        last -= 1
