"""Launch plan of batches whose queries share references: two queries at a time.

Two queries of similar length make a *query pair*. Each reference that both are aligned with is one
*task*; a reference of only one of them makes a task whose other half is empty. A block computes
several tasks of one query pair, with references of similar length, and the most expensive blocks
start first. The kernel is in ``cuda_query_pairs.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mapper.align.matrix.cuda_plan import order_pairs
from mapper.align.matrix.dp import Gaps
from mapper.align.matrix.scoring import GREATEST_HALF, bias_of, halves_possible
from mapper.jit.accelerate import driver
from mapper.parallel.buffers import RECYCLER

UNIT = 4
"""Rows of a unit, whose scores are loaded together and whose origins are stored together."""

LOW, HIGH, REF_AT, REF_SIZE = range(4)
"""Rows of the tasks: pair in the low and high half, or -1; start and length of the reference."""

LOW_AT, LOW_LEN, HIGH_AT, HIGH_LEN, TURN = range(5)
"""Rows of the blocks: start and length of both queries, and the block launched at this position."""


_MOST_TASKS = 0.8
"""Most tasks for each pair; with more, half-empty tasks cost more than query pairs gain."""


class QueryPairPlan(NamedTuple):
    """Launch plan of a batch."""

    tasks: np.ndarray  # int32 (4, n_blocks * groups)
    origin_at: np.ndarray  # int64: first word of origins of each task; (1,) without paths
    blocks: np.ndarray  # int32 (5, n_blocks)
    longest: int  # reference, in symbols
    n_words: int  # of origins
    rest: np.ndarray  # int64: pairs without a task


Room = Callable[[str, int, type], np.ndarray]
"""Returns an array of a name, a number of items and a type."""


def _new(name: str, n: int, dtype: type) -> np.ndarray:
    return np.empty(n, dtype)


def plan_query_pairs(
    n: np.ndarray, m: np.ndarray, query_start: np.ndarray, ref_start: np.ndarray,
    scores: np.ndarray, gaps: Gaps, mode: int, *, want_path: bool, lanes: int, groups: int,
    room: Room = _new,
) -> QueryPairPlan | None:  # fmt: skip
    """Return the plan of a batch of pairs; None if its queries share too few references.

    Parameters
    ----------
    n, m, query_start, ref_start
        As for :func:`mapper.align.matrix.cuda_plan.plan_batch`; starts below 2^31. Shared
        references are recognised if the pairs of a query are consecutive and in ascending
        order of ``ref_start``.
    scores
        int32 (n_letters, n_letters).
    lanes, groups
        Lanes in a group; groups in a block.
    room
        Allocates the arrays of the plan.
    """
    if len(n) == 0 or not halves_possible(scores, gaps):
        return None
    first = _scratch(len(n) + 1, np.int32)
    n_runs = _find_runs(n, query_start, first)
    if len(n) < groups * n_runs:
        return None
    by_length = np.argsort(-n[first[:n_runs]], kind="stable")
    found = _scratch(_FOUND * len(n), np.int32).reshape(_FOUND, len(n))
    rest = _scratch(len(n), np.int64)
    n_tasks, n_blocks, n_rest = _pair_off(
        n, m, ref_start, first, by_length, max(int(scores.max()), 0), gaps, mode, lanes, groups,
        found, rest,
    )  # fmt: skip
    if n_tasks == 0 or n_tasks > _MOST_TASKS * (len(n) - n_rest):
        return None
    order = order_pairs(found[_QUERY_PAIR, :n_tasks], found[_SIZE, :n_tasks])
    n_slots = n_blocks * groups
    tasks = room("tasks", 4 * n_slots, np.int32).reshape(4, n_slots)
    origin_at = room("origins of tasks", n_slots if want_path else 1, np.int64)
    blocks = room("blocks", 5 * n_blocks, np.int32).reshape(5, n_blocks)
    costs = np.empty(n_blocks, np.int64)
    longest, n_words = _deal(
        order, found, first, by_length, n, query_start, ref_start, lanes, groups, want_path,
        tasks, origin_at, blocks, costs,
    )  # fmt: skip
    blocks[TURN] = np.argsort(-costs, kind="stable")
    return QueryPairPlan(tasks, origin_at, blocks, longest, n_words, np.sort(rest[:n_rest]))


_LOW, _HIGH, _QUERY_PAIR, _SIZE = range(4)
_FOUND = 4
"""Rows of unsorted tasks: both pairs, number of the query pair, symbols of the reference."""


def _scratch(n: int, dtype: type) -> np.ndarray:
    """Return a temporary array from the recycler, as the first write to new memory is slow."""
    return RECYCLER.empty(n * np.dtype(dtype).itemsize).view(dtype)


@driver
def _find_runs(n, query_start, first):
    """Write the first pair of each query's run, and the end of all; return the number of runs."""
    n_runs = 0
    for i in range(len(n)):
        if i == 0 or query_start[i] != query_start[i - 1] or n[i] != n[i - 1]:
            first[n_runs] = i
            n_runs += 1
    first[n_runs] = len(n)
    return n_runs


@driver
def _pair_off(n, m, ref_start, bounds, by_length, highest, gaps, mode, lanes, groups, found,
              rest):  # fmt: skip
    """Make tasks of runs (pairs of one query), two consecutive ones of `by_length` at a time.

    Returns
    -------
    Numbers of tasks, of the blocks that they need, and of the other pairs: those with an empty
    sequence, or with scores that may exceed 16 bits.
    """
    n_tasks, n_blocks, n_rest = 0, 0, 0
    for number in range((len(by_length) + 1) // 2):
        low = by_length[2 * number]
        i, i_end = np.int64(bounds[low]), np.int64(bounds[low + 1])
        longest = n[i]
        j, j_end = i, i
        if 2 * number + 1 < len(by_length):
            high = by_length[2 * number + 1]
            j, j_end = np.int64(bounds[high]), np.int64(bounds[high + 1])
        before = n_tasks
        while i < i_end or j < j_end:
            if i < i_end and not _fits(n[i], m[i], longest, highest, gaps, mode, lanes):
                rest[n_rest] = i
                n_rest += 1
                i += 1
                continue
            if j < j_end and not _fits(n[j], m[j], longest, highest, gaps, mode, lanes):
                rest[n_rest] = j
                n_rest += 1
                j += 1
                continue
            both = i < i_end and j < j_end
            takes_low = i < i_end and (not both or ref_start[i] <= ref_start[j])
            takes_high = j < j_end and (
                not takes_low or (both and ref_start[j] == ref_start[i] and m[j] == m[i])
            )
            found[_LOW, n_tasks] = i if takes_low else -1
            found[_HIGH, n_tasks] = j if takes_high else -1
            found[_QUERY_PAIR, n_tasks] = number
            found[_SIZE, n_tasks] = m[i] if takes_low else m[j]
            i += takes_low
            j += takes_high
            n_tasks += 1
        n_blocks += (n_tasks - before + groups - 1) // groups
    return n_tasks, n_blocks, n_rest


@driver
def _fits(n, m, longest, highest, gaps, mode, lanes):
    """Return True if no sequence is empty and all scores with the longest query's bias fit."""
    if n == 0 or m == 0:
        return False
    return bias_of(longest, m, gaps, mode, lanes) + (min(n, m) + 1) * highest <= GREATEST_HALF


@driver
def _deal(order, found, bounds, by_length, n, query_start, ref_start, lanes, groups, want_path,
          tasks, origin_at, blocks, costs):  # fmt: skip
    """Assign tasks, sorted by query pair, to the groups of blocks.

    Returns
    -------
    Length of the longest reference, and words of origins.
    """
    slot = 0
    n_words = 0
    units = 0
    longest = 0
    for x in range(len(order)):
        task = order[x]
        number = found[_QUERY_PAIR, task]
        if x > 0 and number != found[_QUERY_PAIR, order[x - 1]]:
            slot = _closed(slot, groups, want_path, tasks, origin_at)
        low, high, size = found[_LOW, task], found[_HIGH, task], np.int64(found[_SIZE, task])
        block = slot // groups
        if slot % groups == 0:
            first = bounds[by_length[2 * number]]
            blocks[LOW_AT, block] = query_start[first]
            blocks[LOW_LEN, block] = n[first]
            blocks[HIGH_AT, block] = 0
            blocks[HIGH_LEN, block] = 0
            if 2 * number + 1 < len(by_length):
                second = bounds[by_length[2 * number + 1]]
                blocks[HIGH_AT, block] = query_start[second]
                blocks[HIGH_LEN, block] = n[second]
            units = (n[first] + UNIT * lanes - 1) // (UNIT * lanes)
            costs[block] = units * (size + lanes)
        tasks[LOW, slot] = low
        tasks[HIGH, slot] = high
        tasks[REF_AT, slot] = ref_start[max(low, high)]
        tasks[REF_SIZE, slot] = size
        if want_path:
            origin_at[slot] = n_words
            n_words += units * lanes * (size + lanes - 1)
        longest = max(longest, size)
        slot += 1
    _closed(slot, groups, want_path, tasks, origin_at)
    return longest, n_words


@driver
def _closed(slot, groups, want_path, tasks, origin_at):
    """Mark the rest of a block's groups as without task; return the next block's first slot."""
    while slot % groups != 0:
        tasks[LOW, slot] = -1
        tasks[HIGH, slot] = -1
        tasks[REF_AT, slot] = 0
        tasks[REF_SIZE, slot] = 0
        if want_path:
            origin_at[slot] = 0
        slot += 1
    return slot
