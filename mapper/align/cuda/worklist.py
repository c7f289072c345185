"""The pairs of a chunk that other kernels have left: listed, taken by blocks, and their paths.

A block takes the next pair of the list when it has ended one. Paths that do not fit the slot of a
pair go to room that all pairs of a chunk share.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.cuda.cooperative import blocks_by_shared
from mapper.align.cuda.kernels import BLOCK, UNFIT
from mapper.align.cuda.retry import UNSOLVED
from mapper.cuda.api import SIMULATED, cuda, device_function, kernel
from mapper.cuda.memory import multiprocessors, total_bytes

WIDE_BLOCK = 8 if SIMULATED else 128
"""Threads of a block that aligns a long pair; few in the simulator, which is slow to keep them in
step. What all threads of a block compute alike for a row is a third of the work of 256."""

MOST_BLOCKS = 2048
"""Of a launch: more are not resident at once."""

IN_SLOT, NO_SPACE = -1, -2
"""Where a path goes, beside places in ``long_ops``."""


class Worklist(NamedTuple):
    """The pairs of a chunk that are left."""

    pairs: Any  # int32 (most pairs,)
    counts: Any  # int32 (3,): how many are listed, are taken, and operations in ``long_ops``


def resident_blocks(n_pairs: int, shared_bytes: int, most_resident: int, own_bytes: int) -> int:
    """Return how many blocks to launch for up to `n_pairs`, or as many groups of pairs.

    Parameters
    ----------
    shared_bytes, own_bytes
        Shared memory, and global memory, of a block. Of global memory all blocks take at most a
        32nd of the device's.
    most_resident
        Blocks that a multiprocessor holds by the registers of a thread.
    """
    return min(
        n_pairs,
        MOST_BLOCKS,
        multiprocessors() * blocks_by_shared(shared_bytes, most_resident),
        max(1, (total_bytes() >> 5) // own_bytes),
    )


@kernel(BLOCK)
def clear_worklist_kernel(left, n, n_counts):
    """Empty the list; `n_counts`: 3 before the first of a chunk, 2 to keep the operations."""
    i = cuda.grid(1)
    if i < n_counts:
        left.counts[i] = 0


@kernel(BLOCK)
def fill_worklist_kernel(staged, n, is_first, out, left):
    """List the pairs that are left; `is_first`: no other kernel has looked at the chunk."""
    i = cuda.grid(1)
    if i >= n:
        return
    if is_first:
        out.status[i] = UNFIT if staged.view(np.int32)[2 * n + i] < 0 else UNSOLVED
        out.score[i] = -1
        out.n_ops[i] = 0
    if out.status[i] == UNSOLVED:
        left.pairs[cuda.atomic.add(left.counts, 0, np.int32(1))] = i


@device_function
def take_pair(left, state, lane):
    """Take the next pair, by all threads of a block; return it, or -1 behind the last.

    `state`: int32, shared; its first item is written.
    """
    if lane == 0:
        state[0] = cuda.atomic.add(left.counts, 1, np.int32(1))
    cuda.syncthreads()
    j = np.int32(state[0])
    cuda.syncthreads()
    return np.int64(left.pairs[j]) if j < left.counts[0] else np.int64(-1)


@device_function
def allocate_path(left, out, slot, most):
    """Return where a path of up to `most` operations can be written; by one thread."""
    if most <= slot:
        return np.int64(IN_SLOT)
    first = np.int64(cuda.atomic.add(left.counts, 2, np.int32(most)))
    return first if first + most <= len(out.long_ops) else np.int64(NO_SPACE)


@device_function
def move_path(out, i, slot, first, n_ops):
    """Say, for what gathers paths, where in ``long_ops`` one has been written."""
    if n_ops > slot:
        out.slots[i * slot] = first
        return
    for j in range(n_ops):
        out.slots[i * slot + j] = out.long_ops[first + j]
