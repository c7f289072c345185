"""How pairs with common references are cut for a device: queries in twos, references in groups.

Two queries of like length are *twins*. For every reference that both are aligned with there is one
*task*; a reference that only one of them has makes a task with a half left empty. A block takes
some tasks of the same twins at a time, of references of like length, and the dearest blocks
come first. See ``twins_cuda.py`` for what a block does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.accelerate import driver
from mapper.pairwise.dp_matrix import Gaps
from mapper.pairwise.matrix_numbers import GREATEST_HALF, bias_of, halves_possible
from mapper.pairwise.matrix_plan import number_runs, order_pairs

UNIT = 4
"""Rows of a unit: as many as have their scores loaded, or their origins stored, together."""

LOW, HIGH, REF_AT, REF_SIZE, ORIGIN_AT = range(5)
"""Rows of the tasks: pair in the low and the high half, or -1; reference; first word of origins."""

LOW_AT, LOW_LEN, HIGH_AT, HIGH_LEN, TURN = range(5)
"""Rows of the blocks: both queries, and which block comes at this place in the order."""


_MOST_TASKS = 0.8
"""Tasks a pair; with more, half-empty ones cost more than twins gain."""


class TwinPlan(NamedTuple):
    """What a device is to do."""

    tasks: np.ndarray  # int64 (5, n_blocks * groups)
    blocks: np.ndarray  # int64 (5, n_blocks)
    longest: int  # reference, in symbols
    n_words: int  # of origins
    rest: np.ndarray  # int64: pairs that are in no task


def plan_twins(
    n: np.ndarray, m: np.ndarray, query_start: np.ndarray, ref_start: np.ndarray,
    scores: np.ndarray, gaps: Gaps, mode: int, *, want_path: bool, lanes: int, groups: int,
) -> TwinPlan | None:  # fmt: skip
    """Cut a batch of pairs; None where its queries have too few references in common.

    Parameters
    ----------
    n, m, query_start, ref_start
        As for :func:`mapper.pairwise.matrix_plan.plan_batch`. References in common are found
        where pairs of the same query follow one another by rising ``ref_start``.
    lanes, groups
        Lanes of a group; groups of a block.
    """
    if len(n) == 0 or not halves_possible(scores, gaps):
        return None
    run = np.empty(len(n), np.int64)
    n_runs = number_runs(n, query_start, run)
    if len(n) < groups * n_runs:
        return None
    first = np.flatnonzero(np.diff(run, prepend=-1))
    by_length = np.argsort(-n[first], kind="stable")
    tasks, twin = np.empty((2, len(n)), np.int64), np.empty(len(n), np.int64)
    rest = np.empty(len(n), np.int64)
    highest = max(int(scores.max()), 0)
    n_tasks, n_rest = _pair_off(
        n, m, ref_start, np.append(first, len(n)), by_length, highest, gaps, mode, lanes, tasks,
        twin, rest,
    )  # fmt: skip
    if n_tasks == 0 or n_tasks > _MOST_TASKS * (len(n) - n_rest):
        return None
    twin = twin[:n_tasks]
    order = order_pairs(twin, m[np.maximum(tasks[0, :n_tasks], tasks[1, :n_tasks])])
    n_slots = n_tasks + groups * ((n_runs + 1) // 2)
    slots = np.empty((5, n_slots // groups * groups + groups), np.int64)
    blocks = np.empty((5, n_slots // groups + 1), np.int64)
    costs = np.empty(blocks.shape[1], np.int64)
    n_blocks, n_words = _deal(
        order, tasks, twin, first[by_length], n, m, query_start, ref_start, lanes, groups,
        want_path, slots, blocks, costs,
    )  # fmt: skip
    tasks, blocks = slots[:, : n_blocks * groups], blocks[:, :n_blocks]
    blocks[TURN] = np.argsort(-costs[:n_blocks], kind="stable")
    return TwinPlan(tasks, blocks, int(tasks[REF_SIZE].max()), n_words, np.sort(rest[:n_rest]))


@driver
def _pair_off(n, m, ref_start, bounds, by_length, highest, gaps, mode, lanes, tasks, twin,
              rest):  # fmt: skip
    """Make tasks of the runs (pairs of one query) that follow one another in `by_length`.

    Returns
    -------
    Tasks, and pairs that are left: those with nothing to align, or with scores that may
    leave 16 bits.
    """
    n_tasks, n_rest = 0, 0
    for number in range((len(by_length) + 1) // 2):
        low = by_length[2 * number]
        i, i_end = bounds[low], bounds[low + 1]
        longest = n[i]
        j, j_end = i, i
        if 2 * number + 1 < len(by_length):
            high = by_length[2 * number + 1]
            j, j_end = bounds[high], bounds[high + 1]
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
            tasks[0, n_tasks] = i if takes_low else -1
            tasks[1, n_tasks] = j if takes_high else -1
            i += takes_low
            j += takes_high
            twin[n_tasks] = number
            n_tasks += 1
    return n_tasks, n_rest


@driver
def _fits(n, m, longest, highest, gaps, mode, lanes):
    """Whether there is something to align, and all scores fit beside the longest query's."""
    if n == 0 or m == 0:
        return False
    return bias_of(longest, m, gaps, mode, lanes) + (min(n, m) + 1) * highest <= GREATEST_HALF


@driver
def _deal(order, tasks, twin, by_length, n, m, query_start, ref_start, lanes, groups, want_path,
          slots, blocks, costs):  # fmt: skip
    """Deal tasks, which come twins by twins, to the groups of blocks.

    Returns
    -------
    Blocks, and words of origins.
    """
    slot = 0
    n_words = 0
    units = 0
    for x in range(len(order)):
        task = order[x]
        number = twin[task]
        if x > 0 and number != twin[order[x - 1]]:
            slot = _closed(slot, groups, slots)
        low, high = tasks[0, task], tasks[1, task]
        pair = max(low, high)
        block = slot // groups
        if slot % groups == 0:
            first = by_length[2 * number]
            blocks[LOW_AT, block] = query_start[first]
            blocks[LOW_LEN, block] = n[first]
            blocks[HIGH_AT, block] = 0
            blocks[HIGH_LEN, block] = 0
            if 2 * number + 1 < len(by_length):
                second = by_length[2 * number + 1]
                blocks[HIGH_AT, block] = query_start[second]
                blocks[HIGH_LEN, block] = n[second]
            units = (n[first] + UNIT * lanes - 1) // (UNIT * lanes)
            costs[block] = units * (m[pair] + lanes)
        slots[LOW, slot] = low
        slots[HIGH, slot] = high
        slots[REF_AT, slot] = ref_start[pair]
        slots[REF_SIZE, slot] = m[pair]
        slots[ORIGIN_AT, slot] = n_words
        if want_path:
            n_words += units * lanes * (m[pair] + lanes - 1)
        slot += 1
    return _closed(slot, groups, slots) // groups, n_words


@driver
def _closed(slot, groups, slots):
    """Leave the other groups of a block without a task; return the next block's first slot."""
    while slot % groups != 0:
        slots[LOW, slot] = -1
        slots[HIGH, slot] = -1
        slots[REF_AT, slot] = 0
        slots[REF_SIZE, slot] = 0
        slots[ORIGIN_AT, slot] = 0
        slot += 1
    return slot
