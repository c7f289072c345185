"""Worklist of the pairs of a chunk that are unsolved, for kernels with a block or group a pair.

A block takes the next pair of the list when it has finished one. Paths that do not fit the slot of
a pair go to memory that all pairs of a chunk share.
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
"""Threads of a block that aligns a long pair; few in the simulator, whose barriers are slow. With
256, a third of the work would be what all threads compute alike for each wavefront."""

MOST_BLOCKS = 2048
"""Most blocks of a launch: more are not resident at once."""

IN_SLOT, NO_SPACE = -1, -2
"""Result of :func:`allocate_path` that is no index of ``long_ops``."""


class Worklist(NamedTuple):
    """The unsolved pairs of a chunk."""

    pairs: Any  # int32 (most pairs,)
    counts: Any  # int32 (3,): pairs listed, pairs taken, operations allocated in ``long_ops``


def resident_blocks(n_pairs: int, shared_bytes: int, most_resident: int, own_bytes: int) -> int:
    """Return how many blocks to launch for up to `n_pairs` (or as many groups of pairs).

    Parameters
    ----------
    shared_bytes, own_bytes
        Shared and global memory of a block. All blocks together take at most a 32nd of the
        device's memory.
    most_resident
        Blocks that a multiprocessor holds, by the registers of a thread.
    """
    return min(
        n_pairs,
        MOST_BLOCKS,
        multiprocessors() * blocks_by_shared(shared_bytes, most_resident),
        max(1, (total_bytes() >> 5) // own_bytes),
    )


@kernel(BLOCK)
def clear_worklist_kernel(worklist, n, n_counts):
    """Empty the list; `n_counts`: 3 before the first list of a chunk, 2 to keep long paths."""
    i = cuda.grid(1)
    if i < n_counts:
        worklist.counts[i] = 0


@kernel(BLOCK)
def fill_worklist_kernel(staged, n, is_first, out, worklist):
    """List the unsolved pairs; `is_first`: no other kernel has seen the chunk."""
    i = cuda.grid(1)
    if i >= n:
        return
    if is_first:
        out.status[i] = UNFIT if staged.view(np.int32)[2 * n + i] < 0 else UNSOLVED
        out.score[i] = -1
        out.n_ops[i] = 0
    if out.status[i] == UNSOLVED:
        worklist.pairs[cuda.atomic.add(worklist.counts, 0, np.int32(1))] = i


@device_function
def take_pair(worklist, state, lane):
    """Take the next pair; called by all threads of a block. Return it, or -1 after the last.

    `state`: int32, shared; its first item is overwritten.
    """
    if lane == 0:
        state[0] = cuda.atomic.add(worklist.counts, 1, np.int32(1))
    cuda.syncthreads()
    j = np.int32(state[0])
    cuda.syncthreads()
    return np.int64(worklist.pairs[j]) if j < worklist.counts[0] else np.int64(-1)


@device_function
def allocate_path(worklist, out, slot, most):
    """Reserve memory for a path of up to `most` operations; by one thread.

    Return IN_SLOT if the slot suffices, an index of ``long_ops``, or NO_SPACE.
    """
    if most <= slot:
        return np.int64(IN_SLOT)
    first = np.int64(cuda.atomic.add(worklist.counts, 2, np.int32(most)))
    return first if first + most <= len(out.long_ops) else np.int64(NO_SPACE)


@device_function
def move_path(out, i, slot, first, n_ops):
    """Move a path from ``long_ops`` to its slot, or store its index there if it is too long."""
    if n_ops > slot:
        out.slots[i * slot] = first
        return
    for j in range(n_ops):
        out.slots[i * slot + j] = out.long_ops[first + j]
