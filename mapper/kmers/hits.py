"""Core of k-mer search: its worklist, the store of hits, and their order.

**Work.** A row is a k-mer on a strand. In a repeat-rich text one row in a thousand takes a
hundred times as long as most, and a device would wait for the last few of them. So a thread
gives up a row after many turns, drops its hits and defers the row to a second pass, in which 16
threads share it: one takes the matches with the left part unchanged, one the right part
unchanged, the others some first changes of the right part each.

**Order.** Hits are gathered by row, in the order found, and then each is copied to its rank: the
number of hits of its row with a lower position. One thread for each hit balances that on a
device, as rows are short. The few that ``--max-hits`` allows to be long are sorted first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.intrinsics import fetch_add, fetch_add_at

# --- worklist ---

WHOLE, LEFT_PART, EXACT_PART = -3, -2, -1
"""Parts of a row's search; part i >= 0 has CHANGES_OF_PART first changes of the right part."""

CHANGES_OF_PART = 4

PARTS_SHIFT = 4
"""log2 of the parts of a row, two of which are empty: 16 bases have 48 changes."""

NO_LIMIT = 2**31 - 1
"""``max_turns`` of a search that defers no row."""


class StepMasks(NamedTuple):
    """Bit masks (255 at most) of the loop's turn number: a step is taken if none is set."""

    fetch: int = 0  # take the next row
    node: int = 0  # extend an interval by a base
    look: int = 0  # compare a row with the text


class KmerWork(NamedTuple):
    """The worklist that all threads share."""

    next_item: np.ndarray  # int64 (1,): the first item not taken
    n_rows: int  # 2 i is k-mer i itself, 2 i + 1 its reverse complement
    max_turns: int  # turns after which a row is deferred
    n_deferred: np.ndarray  # int64 (1,)
    deferred: np.ndarray  # int32 (n_rows,), or empty where nothing is deferred
    in_parts: bool  # hand out parts of the deferred rows, instead of all rows
    step_masks: StepMasks


@core
def defer_row(work, row):
    """Append a row to the list of the second pass."""
    work.deferred[fetch_add(work.n_deferred, 1)] = row


@core
def take_item(work):
    """Take the next item: return a row and the part of its search, or row -1 at the end."""
    item = fetch_add(work.next_item, 1)
    if not work.in_parts:
        return (item if item < work.n_rows else np.int64(-1)), np.int64(WHOLE)
    row = item >> PARTS_SHIFT
    if row >= work.n_deferred[0]:
        return np.int64(-1), np.int64(WHOLE)
    return np.int64(work.deferred[row]), (item & ((1 << PARTS_SHIFT) - 1)) + LEFT_PART


# --- store of hits ---

BUFFERED = 129
"""Hits of a row that a thread buffers before it flushes them: with the default ``max_hits``, a
row is known to have too many before any of them gets into the list."""


class HitStore(NamedTuple):
    """Hits in the order found: the first of each row in its own column, the others in a list.

    A row is a k-mer on a strand. List items are in no order; ``list_ordinal`` is the number of
    the hit within its row (1, 2, ...).
    """

    row_hits: np.ndarray  # int32 (n_rows,): number of hits; above the limit, inexact
    first_pos: np.ndarray  # uint32 or uint64 (n_rows,)
    first_mismatches: np.ndarray  # uint8 (n_rows,)
    buffer_pos: np.ndarray  # uint32 or uint64 (BUFFERED * n_threads,): not flushed yet
    buffer_mismatches: np.ndarray  # uint8 (HELD * n_threads,)
    list_used: np.ndarray  # int64 (1,): items of the list, counting those without room
    list_row: np.ndarray  # int32 (capacity,)
    list_ordinal: np.ndarray  # int32 (capacity,)
    list_pos: np.ndarray  # uint32 or uint64 (capacity,)
    list_mismatches: np.ndarray  # uint8 (capacity,)


@core
def buffer_hit(hits, thread, n_buffered, text_pos, mismatches):
    """Append a hit to the thread's buffer, which holds `n_buffered` hits of the same row."""
    hits.buffer_pos[thread * BUFFERED + n_buffered] = text_pos
    hits.buffer_mismatches[thread * BUFFERED + n_buffered] = mismatches


@core
def flush_hits(hits, thread, row, n_new, max_hits):
    """Add the `n_new` hits in the thread's buffer to a row, and store them unless too many.

    Where the row gets more than `max_hits`, only their number is used.
    """
    if n_new == 0:
        return
    before = np.int64(fetch_add_at(hits.row_hits, row, n_new))
    if before + n_new > max_hits:
        return
    first = np.int64(thread) * BUFFERED
    if before == 0:
        hits.first_pos[row] = hits.buffer_pos[first]
        hits.first_mismatches[row] = hits.buffer_mismatches[first]
        first += 1
        n_new -= 1
        before = np.int64(1)
    if n_new == 0:
        return
    slot = fetch_add(hits.list_used, n_new)
    room = max(len(hits.list_row) - slot, np.int64(0))
    for i in range(np.int32(min(np.int64(n_new), room))):
        to, item = np.uint64(slot + i), np.uint64(first + i)
        hits.list_row[to] = row
        hits.list_ordinal[to] = np.int32(before + i)
        hits.list_pos[to] = hits.buffer_pos[item]
        hits.list_mismatches[to] = hits.buffer_mismatches[item]


# --- order of hits ---

LONG_ROW = 256
"""Rows of more hits than this are sorted; in shorter ones each hit is ranked."""


@core
def drop_if_many(row_hits, kmer, max_hits):
    """Drop the hits of a k-mer that has too many, and return True if it had.

    `row_hits` is the column of HitStore; both rows of the k-mer are set to 0.
    """
    if row_hits[2 * kmer] + row_hits[2 * kmer + 1] <= max_hits:
        return False
    row_hits[2 * kmer] = 0
    row_hits[2 * kmer + 1] = 0
    return True


@core
def gather_first(hits, row, hit_offsets, text_pos, mismatches):
    """Copy the first hit of a row to the start of its row in the unsorted columns."""
    if hits.row_hits[row]:
        text_pos[hit_offsets[row]] = hits.first_pos[row]
        mismatches[hit_offsets[row]] = hits.first_mismatches[row]


@core
def gather_listed(hits, item, hit_offsets, text_pos, mismatches):
    """Copy an item of the list to its row in the unsorted columns, unless the row was dropped."""
    row = hits.list_row[item]
    if hits.row_hits[row]:
        at = hit_offsets[row] + hits.list_ordinal[item]
        text_pos[at] = hits.list_pos[item]
        mismatches[at] = hits.list_mismatches[item]


@core
def _sift_down(text_pos, mismatches, start, root, n):
    """Restore the max-heap ``start:start+n`` from item `root` down."""
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
    """Sort the hits of a row longer than LONG_ROW by position, in place (heap sort)."""
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
def scatter_sorted(text_pos, mismatches, start, end, ordinal, sorted_pos, sorted_mismatches):
    """Copy hit `ordinal` of the row ``start:end`` to its rank in the sorted columns."""
    pos = text_pos[start + ordinal]
    rank = ordinal
    if end - start <= LONG_ROW:
        rank = 0
        for other in range(start, end):
            rank += text_pos[other] < pos
    sorted_pos[start + rank] = pos
    sorted_mismatches[start + rank] = mismatches[start + ordinal]
