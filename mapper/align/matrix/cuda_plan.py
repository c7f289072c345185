"""Launch plan of matrix alignment on a device: shapes of strips, order of pairs, workspace.

A *group* of lanes sweeps the matrix of a pair in *strips* of rows. A lane holds ``rows`` rows of
each of its ``halves`` (cells in a register), and each half is one column behind the previous half:
the antidiagonal moves down the group. The padding rows of a strip lie *above* the first row of the
query, and padding columns before the first delay later lanes: both hold an extra letter, with
whose scores the recurrence itself yields the borders
(:func:`mapper.align.matrix.scoring.padded_scores`). So the last row of the matrix is always
the last row of the last lane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.matrix.dp import Gaps
from mapper.align.matrix.scoring import fits_halves, halves_possible
from mapper.jit.accelerate import driver

_COSTS = {False: (100, 8), True: (100, 22)}
"""Approximate instructions of a step, and of each row in it, without and with a path; they decide
the shape."""


class Shape(NamedTuple):
    """Shape of a strip: the cells that a lane holds."""

    halves: int  # cells in a register: 1 or 2
    rows: int  # of each half

    def items_a_word(self) -> int:
        """Return the rows whose scores lie in one 64-bit word of a query profile."""
        return 8 if self.halves == 2 else 4

    def profile_words(self, n_letters: int, lanes: int) -> int:
        """Return the 64-bit words of the query profile of one strip."""
        per_half = -(-self.rows // self.items_a_word())
        return (n_letters + 1) * self.halves * per_half * lanes

    def origin_words(self) -> int:
        """Return the 32-bit words of origins that a lane writes at a step, four bits a cell."""
        return -(-self.rows * self.halves // 8)


ONE_CELL = Shape(1, 8)
"""Shape for scores that may exceed 16 bits."""

_UNIT = 4
"""Divisor of the rows of shapes of two cells."""

TWO_CELLS = {
    want_path: tuple(Shape(2, rows) for rows in range(_UNIT, most + 1, _UNIT))
    for want_path, most in ((False, 32), (True, 20))
}
"""Strips of several heights, so that any length has little padding. The compiler does not unroll
higher ones, and does not keep their cells in registers."""


class Launch(NamedTuple):
    """Launch of one kernel; its pairs are in order of descending length."""

    shape: Shape
    first_block: int
    n_blocks: int


(
    QUERY_START, QUERY_LEN, REF_START, REF_LEN, HALVES, ROWS, BOUNDARY_START, ORIGIN_START, PAIR,
) = range(9)  # fmt: skip
FIELDS = 9
"""Rows of the table of a batch. One array means one transfer and one argument."""


class Plan(NamedTuple):
    """Launches, and the parts of the workspace of each pair."""

    launches: list[Launch]
    shared: bool  # the pairs of a block have the same query
    slots: np.ndarray  # int64 (n_blocks * groups,): pair of each group, or -1
    most: np.ndarray  # int32 (2, n_blocks): most strips and most steps of a pair of each block
    table: np.ndarray  # int64 (FIELDS, n_pairs): properties of each pair
    sizes: np.ndarray  # int64 (2,): columns of rows between strips, words of origins


def plan_batch(
    n: np.ndarray, m: np.ndarray, query_start: np.ndarray, ref_start: np.ndarray,
    scores: np.ndarray, gaps: Gaps, mode: int, *, has_halves: bool, want_path: bool, lanes: int,
    groups: int, shared_bytes: int, pair: np.ndarray | None = None,
) -> Plan:  # fmt: skip
    """Return the launch plan of a batch.

    Parameters
    ----------
    n, m, query_start, ref_start
        Lengths of queries and references, and their starts; int64 (n_pairs,).
    has_halves
        True if the device computes two cells in a register.
    lanes, groups
        Lanes in a group; groups in a block.
    shared_bytes
        Shared memory of a block for query profiles.
    pair
        Index of the results of each pair; None for 0, 1, ...
    """
    run = np.empty(len(n), np.int64)
    n_runs = _number_runs(n, query_start, run)
    shared = len(n) >= 2 * groups * n_runs
    shapes = [ONE_CELL]
    if has_halves and halves_possible(scores, gaps):
        shapes += [
            shape
            for shape in TWO_CELLS[want_path]
            if shape.profile_words(len(scores), lanes) * 8 * (1 if shared else groups)
            <= shared_bytes
        ]
    columns = _Columns(*(np.empty(len(n), np.int32) for _ in _Columns._fields))
    table = np.empty((FIELDS, len(n)), np.int64)
    table[PAIR] = np.arange(len(n)) if pair is None else pair
    sizes = np.zeros(2, np.int64)
    highest = max(int(scores.max()), 0)
    _measure(
        n, m, query_start, ref_start, highest, gaps, mode, lanes, want_path,
        _shape_table(shapes, n, lanes, want_path),
        np.array([(*shape, shape.origin_words()) for shape in shapes]), columns, table, sizes,
    )  # fmt: skip
    if shared:
        first = np.flatnonzero(np.diff(run, prepend=-1))
        rank = np.empty(n_runs, np.int64)
        rank[np.lexsort((-n[first], -columns.shape[first]))] = np.arange(n_runs)
        rank = rank[run]
    else:
        few = np.minimum(columns.strips, _MOST_RANKS)
        rank = (len(shapes) - 1 - columns.shape.astype(np.int64)) * (_MOST_RANKS + 1)
        rank += _MOST_RANKS - few
    order = order_pairs(rank, m)
    n_slots = len(n) + groups * (n_runs if shared else len(shapes))
    slots = np.full(n_slots, -1)
    most = np.zeros((2, n_slots // groups + 1), np.int32)
    blocks = np.zeros((len(shapes), 2), np.int64)
    n_blocks = _deal(order, run, columns, groups, shared, slots, most[0], most[1], blocks)
    launches = [
        Launch(shapes[i], int(blocks[i, 0]), int(blocks[i, 1]))
        for i in reversed(range(len(shapes)))
        if blocks[i, 1]
    ]
    return Plan(
        launches, shared, slots[: n_blocks * groups], most[:, :n_blocks],
        table, sizes,
    )  # fmt: skip


_MOST_RANKS = 1023
"""Pairs of more strips are not ordered by them."""


class _Columns(NamedTuple):
    """Number of the shape of each pair, its strips and steps, int32."""

    shape: np.ndarray
    strips: np.ndarray
    steps: np.ndarray


def _shape_table(shapes: list[Shape], n: np.ndarray, lanes: int, want_path: bool) -> np.ndarray:
    """Return the shape of two cells with the fewest instructions for a query length; 0 for none.

    Item u is for queries of up to u units, a unit being the rows of the lowest strip.
    """
    units = np.arange(int(n.max(initial=0)) // (2 * _UNIT * lanes) + 2)
    step_cost, row_cost = _COSTS[want_path]
    costs = [
        -(-units // (shape.rows // _UNIT)) * (step_cost + row_cost * shape.rows)
        for shape in shapes[1:]
    ]
    return 1 + np.argmin(np.stack(costs), axis=0) if costs else np.zeros_like(units)


@driver
def _number_runs(n, query_start, run):
    """Number the runs of consecutive pairs with the same query; return the number of runs."""
    number = -1
    for i in range(len(n)):
        if i == 0 or query_start[i] != query_start[i - 1] or n[i] != n[i - 1]:
            number += 1
        run[i] = number
    return number + 1


@driver
def _measure(n, m, query_start, ref_start, highest, gaps, mode, lanes, want_path, best_shape,
             shapes, columns, table, sizes):  # fmt: skip
    """Choose the shape of each pair, and lay out the workspace."""
    unit = 2 * _UNIT * lanes
    for i in range(len(n)):
        shape = np.int64(0)
        if fits_halves(n[i], m[i], highest, gaps, mode, lanes):
            shape = best_shape[(n[i] + unit - 1) // unit]
        halves, rows, words = shapes[shape]
        a_strip = lanes * halves * rows
        strips = (n[i] + a_strip - 1) // a_strip if m[i] > 0 else 0
        steps = m[i] + lanes * halves - 1
        columns.shape[i] = shape
        columns.strips[i] = strips
        columns.steps[i] = steps
        table[QUERY_START, i] = query_start[i]
        table[QUERY_LEN, i] = n[i]
        table[REF_START, i] = ref_start[i]
        table[REF_LEN, i] = m[i]
        table[HALVES, i] = halves
        table[ROWS, i] = rows
        table[BOUNDARY_START, i] = sizes[0]
        table[ORIGIN_START, i] = sizes[1]
        if strips > 1:
            sizes[0] += m[i]
        if want_path:
            sizes[1] += strips * steps * words * lanes


@driver
def order_pairs(rank, m):
    """Return pairs by rank, then by descending m (to 16 bits of precision), by counting sort."""
    longest = 0
    for i in range(len(m)):
        longest = max(longest, m[i])
    shift = 0
    while longest >> shift >= 1 << 16:
        shift += 1
    by_length = np.empty(len(m), np.int32)
    counts = np.zeros((longest >> shift) + 2, np.int64)
    for i in range(len(m)):
        counts[((longest - m[i]) >> shift) + 1] += 1
    for key in range(1, len(counts)):
        counts[key] += counts[key - 1]
    for i in range(len(m)):
        key = (longest - m[i]) >> shift
        by_length[counts[key]] = i
        counts[key] += 1
    order = np.empty(len(m), np.int32)
    counts = np.zeros(rank.max() + 2 if len(m) else 1, np.int64)
    for i in range(len(m)):
        counts[rank[i] + 1] += 1
    for key in range(1, len(counts)):
        counts[key] += counts[key - 1]
    for x in range(len(m)):
        key = rank[by_length[x]]
        order[counts[key]] = by_length[x]
        counts[key] += 1
    return order


@driver
def _deal(order, run, columns, groups, shared, slots, strips, steps, blocks):
    """Assign pairs to the groups of blocks; if blocks share a query, each query begins a block.

    Returns
    -------
    The number of blocks. `blocks` gets the first block and the number of blocks of each shape.
    """
    slot = 0
    for x in range(len(order)):
        pair = order[x]
        shape = columns.shape[pair]
        before = order[x - 1]
        if x > 0 and (columns.shape[before] != shape or (shared and run[before] != run[pair])):
            slot = (slot + groups - 1) // groups * groups
        block = slot // groups
        if x == 0 or columns.shape[before] != shape:
            blocks[shape, 0] = block
        blocks[shape, 1] = block + 1 - blocks[shape, 0]
        slots[slot] = pair
        strips[block] = max(strips[block], columns.strips[pair])
        steps[block] = max(steps[block], columns.steps[pair])
        slot += 1
    return (slot + groups - 1) // groups
