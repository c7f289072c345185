"""Core: from hits as threads found them to hits in order.

Hits are put side by side by row, in the order found, and then each into its place by rank: how
many hits of its row have a lower position. One thread for each hit makes that even work on a
device, and rows are short. The few that ``--max-hits`` lets be long are sorted first.

Core: hits as threads find them.

Core: rows are handed out whole and, those that take long, again in parts.

In a repeat-rich text one search in a thousand takes a hundred times as long as most. A device
would wait for the last few of them. So a thread gives up a row after many turns, forgets what it
found, and in a second pass 16 threads share that row: one has the matches with the left part
unchanged, one the right part unchanged, the others some first changes of the right part each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.intrinsics import fetch_add, fetch_add_at

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


HELD = 129
"""Hits of a row that a thread holds before it passes them on: unless ``max_hits`` is raised, a
row is known to have too many before any of them gets into the list."""


class HitStore(NamedTuple):
    """Hits as threads find them: the first of each row apart, the others in a list.

    A row is a k-mer on a strand. List items are in no order; ``more_ordinal`` says which hit
    of its row an item is (1, 2, ...).
    """

    row_hits: np.ndarray  # int32 (n_rows,): their number; above the limit, some number above it
    first_pos: np.ndarray  # uint32 or uint64 (n_rows,)
    first_mismatches: np.ndarray  # uint8 (n_rows,)
    held_pos: np.ndarray  # uint32 or uint64 (HELD * n_threads,): not passed on yet
    held_mismatches: np.ndarray  # uint8 (HELD * n_threads,)
    more_used: np.ndarray  # int64 (1,): items of the list, also those without room
    more_row: np.ndarray  # int32 (capacity,)
    more_ordinal: np.ndarray  # int32 (capacity,)
    more_pos: np.ndarray  # uint32 or uint64 (capacity,)
    more_mismatches: np.ndarray  # uint8 (capacity,)


@core
def hold_hit(hits, thread, n_held, text_pos, mismatches):
    """Keep a hit with the thread, which holds `n_held` others of the same row."""
    hits.held_pos[thread * HELD + n_held] = text_pos
    hits.held_mismatches[thread * HELD + n_held] = mismatches


@core
def pass_on(hits, thread, row, n_new, max_hits):
    """Add `n_new` hits to a row, and store them, as long as it has not too many.

    They are those that the thread holds; where they are too many, they need not be there.
    """
    if n_new == 0:
        return
    before = np.int64(fetch_add_at(hits.row_hits, row, n_new))
    if before + n_new > max_hits:
        return
    held = np.int64(thread) * HELD
    if before == 0:
        hits.first_pos[row] = hits.held_pos[held]
        hits.first_mismatches[row] = hits.held_mismatches[held]
        held += 1
        n_new -= 1
        before = np.int64(1)
    if n_new == 0:
        return
    slot = fetch_add(hits.more_used, n_new)
    room = max(len(hits.more_row) - slot, np.int64(0))
    for i in range(np.int32(min(np.int64(n_new), room))):
        to, item = np.uint64(slot + i), np.uint64(held + i)
        hits.more_row[to] = row
        hits.more_ordinal[to] = np.int32(before + i)
        hits.more_pos[to] = hits.held_pos[item]
        hits.more_mismatches[to] = hits.held_mismatches[item]


WHOLE, LEFT_PART, EXACT_PART = -3, -2, -1
"""Parts of a row's search; those from 0 on have CHANGES_OF_PART first changes of the right part."""

CHANGES_OF_PART = 4

PARTS_SHIFT = 4
"""log2 of the parts of a row, two of them empty: 16 bases have 48 changes."""

NEVER = 2**31 - 1
"""``patience`` of who puts nothing aside."""


class Pace(NamedTuple):
    """Which turns of the loop some steps have: those with none of these bits, 255 at most."""

    fetch: int = 0  # to take on a row
    node: int = 0  # to extend an interval by a base
    look: int = 0  # to look at a row in the text


class KmerWork(NamedTuple):
    """What threads take on, one after the other."""

    next_item: np.ndarray  # int64 (1,): that nobody has taken on
    n_rows: int  # 2 i is k-mer i itself, 2 i + 1 its reverse complement
    patience: int  # turns after which a row is put aside
    n_aside: np.ndarray  # int64 (1,)
    aside: np.ndarray  # int32 (n_rows,), or no item where nothing is put aside
    in_parts: bool  # hand out parts of the rows put aside, instead of all rows
    pace: Pace


@core
def put_aside(work, row):
    """Leave a row to the second pass."""
    work.aside[fetch_add(work.n_aside, 1)] = row


@core
def take_on(work):
    """Return a row and the part of its search that nobody has taken on; row -1 if none is left."""
    item = fetch_add(work.next_item, 1)
    if not work.in_parts:
        return (item if item < work.n_rows else np.int64(-1)), np.int64(WHOLE)
    row = item >> PARTS_SHIFT
    if row >= work.n_aside[0]:
        return np.int64(-1), np.int64(WHOLE)
    return np.int64(work.aside[row]), (item & ((1 << PARTS_SHIFT) - 1)) + LEFT_PART
