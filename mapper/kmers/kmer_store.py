"""Core: hits as threads find them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.intrinsics import fetch_add, fetch_add_at

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
