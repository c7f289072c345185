"""How the matrices of a batch of pairs are cut for a device: shapes, order, work space.

A *group* of lanes sweeps the matrix of a pair in *strips* of rows. A lane holds ``rows`` rows of
each of its ``halves`` (cells in a register), and each half is one column behind the half before
it: the wavefront runs down the group. Rows that the query has too few stand *above* its
first one, and columns before the first let the lanes that begin later wait: both hold an
extra letter, whose scores make the recurrence itself yield the borders
(:func:`padded_scores`). So the last row of the matrix is always the last of the last lane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.pairwise.dp_matrix import LOCAL, SEMIGLOBAL, Gaps

GREATEST_HALF = 2**15 - 1
PAD_OF_BYTE, PAD_OF_SHORT = -128, -(2**15) + 1
"""Score of the extra letter with any other; below every gap cost that the kernel takes."""

_COSTS = {False: (100, 8), True: (100, 22)}
"""Instructions of a step, and of each row in it, about, without and with a path: what a shape is
chosen by."""

_CLIPPED = 2**21 - 1


class Shape(NamedTuple):
    """What a lane holds."""

    halves: int  # cells in a register: 1 or 2
    rows: int  # of each half

    def items_a_word(self) -> int:
        """Rows whose scores lie in one 64-bit word of a query profile."""
        return 8 if self.halves == 2 else 4

    def profile_words(self, n_letters: int, lanes: int) -> int:
        """64-bit words of a query profile, for one strip."""
        per_half = -(-self.rows // self.items_a_word())
        return (n_letters + 1) * self.halves * per_half * lanes

    def origin_words(self) -> int:
        """32-bit words of origins that a lane writes at a step, four bits a cell."""
        return -(-self.rows * self.halves // 8)


ONE_CELL = Shape(1, 8)
"""For scores that may leave 16 bits."""

TWO_CELLS = {
    want_path: tuple(Shape(2, rows) for rows in range(4, most + 1, 4))
    for want_path, most in ((False, 32), (True, 20))
}
"""Strips of different heights, so that few rows are wasted on any length. Higher ones are not
unrolled by the compiler, and their cells not kept in registers."""


@core
def bias_of(n, m, gaps, mode, lanes):
    """What is added to scores in halves, so that every cell is above 0 and no gap below.

    At 0 itself a mismatch would be cut off, and taken for one that leads to the score. A local
    alignment begins there, and asks no further.
    """
    if mode == LOCAL:
        return np.int64(0)
    return np.int64(1 + 3 * gaps.gap_open + (n + m + 2 * lanes + 2) * gaps.gap_extend)


def fits_halves(
    n: np.ndarray, m: np.ndarray, scores: np.ndarray, gaps: Gaps, mode: int, lanes: int
) -> np.ndarray:
    """Say of each pair whether all scores of its matrix fit 16 bits, in every alignment."""
    if np.abs(scores).max() > 127 or sum(gaps) >= -PAD_OF_BYTE:
        return np.zeros(len(n), bool)
    bias = np.zeros(len(n), np.int64)
    if mode != LOCAL:
        bias += 1 + 3 * gaps.gap_open + (n + m + 2 * lanes + 2) * gaps.gap_extend
    highest = (np.minimum(n, m) + 1) * max(int(scores.max()), 0)
    fits: np.ndarray = bias + highest <= GREATEST_HALF
    return fits


def padded_scores(scores: np.ndarray, mode: int, halves: int) -> np.ndarray:
    """Return a matrix with a letter more, which makes the borders: int16.

    Rows above the query must hold the border's first row, columns before the reference its
    first column: where borders cost gaps, by the gap alone, and where they are free, by the
    diagonal.
    """
    n = len(scores)
    pad = PAD_OF_BYTE if halves == 2 else PAD_OF_SHORT
    padded = np.full((n + 1, n + 1), 0 if mode == SEMIGLOBAL else pad, np.int16)
    padded[:n, :n] = scores
    padded[n, n] = 0
    return padded


class Launch(NamedTuple):
    """Pairs that one kernel does, longest first: a block of groups at a time."""

    shape: Shape
    slots: np.ndarray  # int64 (n_blocks * groups,): pair of each group, or -1
    strips: np.ndarray  # int32 (n_blocks,): most strips of a pair of the block
    steps: np.ndarray  # int32 (n_blocks,): most steps
    shared: bool  # the pairs of a block have the same query


class Plan(NamedTuple):
    """Launches, and where the parts of each pair lie in the work space."""

    launches: list[Launch]
    boundary_start: np.ndarray  # int64 (n + 1,): columns of the row between two strips
    origin_start: np.ndarray  # int64 (n + 1,): words of origins
    ops_start: np.ndarray  # int64 (n + 1,): operations


def plan_batch(
    n: np.ndarray, m: np.ndarray, query_start: np.ndarray, fits: np.ndarray, n_letters: int,
    *, want_path: bool, lanes: int, groups: int, shared_bytes: int,
) -> Plan:  # fmt: skip
    """Cut a batch.

    Parameters
    ----------
    n, m, query_start
        Symbols of queries and references, and where each query begins; int64 (n_pairs,).
    fits
        Of each pair, whether two cells share a register.
    lanes, groups
        Lanes of a group; groups of a block.
    shared_bytes
        Of the block, for query profiles.
    """
    begins = np.ones(len(n), bool)
    begins[1:] = (np.diff(query_start) != 0) | (np.diff(n) != 0)
    run = np.cumsum(begins)
    shared = len(n) >= 2 * groups * run[-1]
    profiles = 1 if shared else groups
    shapes = [ONE_CELL] + [
        shape
        for shape in TWO_CELLS[want_path]
        if shape.profile_words(n_letters, lanes) * 8 * profiles <= shared_bytes
    ]
    chosen = np.where(fits, _best_shape(n, shapes, lanes, *_COSTS[want_path]), 0)
    strip_rows = np.array([lanes * shape.halves * shape.rows for shape in shapes])[chosen]
    strips = np.where(m > 0, -(-n // strip_rows), 0)
    steps = m + np.array([lanes * shape.halves - 1 for shape in shapes])[chosen]
    if shared:
        key = _descending(n) << 42 | run << 21 | _descending(m)
    else:
        key = _descending(strips) << 42 | _descending(m)
    launches = []
    for number, shape in enumerate(shapes):
        pairs = np.flatnonzero(chosen == number)
        if len(pairs):
            pairs = pairs[np.argsort(key[pairs])]
            slots = _slots(pairs, run, groups, shared)
            blocks = slots.reshape(-1, groups)
            launches.append(
                Launch(
                    shape, slots, _most(strips, blocks), _most(steps, blocks), shared
                )
            )  # fmt: skip
    origins = np.array([shape.origin_words() * lanes for shape in shapes])[chosen]
    return Plan(
        launches,
        _starts(np.where(strips > 1, m, 0)),
        _starts(strips * steps * origins if want_path else np.zeros_like(n)),
        _starts(n + m + 2 if want_path else np.zeros_like(n)),
    )


def _best_shape(
    n: np.ndarray, shapes: list[Shape], lanes: int, step_cost: int, row_cost: int
) -> np.ndarray:
    """Return the index of the shape that sweeps n rows with the fewest instructions."""
    costs = [
        -(-n // (lanes * shape.halves * shape.rows)) * (step_cost + row_cost * shape.rows)
        for shape in shapes[1:]
    ]
    best: np.ndarray = 1 + np.argmin(np.stack(costs), axis=0)
    return best


def _descending(lengths: np.ndarray) -> np.ndarray:
    """Return keys of 21 bits that fall as lengths rise; of what is longer, the order is free."""
    keys: np.ndarray = _CLIPPED - np.minimum(lengths, _CLIPPED)
    return keys


def _slots(pairs: np.ndarray, run: np.ndarray, groups: int, shared: bool) -> np.ndarray:
    """Deal pairs to the groups of blocks; where a query is shared, each begins a block."""
    if not shared:
        slots = np.full(-(-len(pairs) // groups) * groups, -1)
        slots[: len(pairs)] = pairs
        return slots
    begins = np.flatnonzero(np.diff(run[pairs], prepend=0))
    sizes = np.diff(begins, append=len(pairs))
    blocks = _starts(-(-sizes // groups))
    slots = np.full(int(blocks[-1]) * groups, -1)
    at = np.arange(len(pairs)) + np.repeat(blocks[:-1] * groups - begins, sizes)
    slots[at] = pairs
    return slots


def _most(values: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    most: np.ndarray = np.where(blocks >= 0, values[blocks], 0).max(axis=1).astype(np.int32)
    return most


def _starts(counts: np.ndarray) -> np.ndarray:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts
