"""CUDA kernels that write the rows of results as the caller gets them.

They count, and write the columns of a chunk, and the operations of all its pairs one behind the
other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.cuda.kernels import BLOCK, UNFIT, WRONG
from mapper.align.cuda.retry import CUT, LEFT
from mapper.align.result import HEURISTIC, OK, OVER_LIMIT
from mapper.cuda.api import cuda, device_function, kernel

NOT_DONE = -1
"""Status, in the columns, of a pair that is left or unfit."""


LANES = 8
"""Threads that copy the operations of a pair."""


class FlatColumns(NamedTuple):
    """The columns of results as the caller gets them, and the operations."""

    score: Any  # int64
    status: Any  # int8, that of `result`; or NOT_DONE
    query_start: Any  # int64
    query_end: Any  # int64
    ref_start: Any  # int64
    ref_end: Any  # int64
    cigar_offsets: Any  # int64, of the whole batch
    cigar_ops: Any  # uint32, of the chunk


@kernel(BLOCK)
def count_blocks_kernel(staged, n, out):
    """Add up the operations, the pairs not done and the wrong ones, of each block of pairs."""
    total = cuda.shared.array(3, np.int32)
    i = cuda.grid(1)
    if cuda.threadIdx.x < 3:
        total[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    if i < n:
        cuda.atomic.add(total, 0, out.n_ops[i])
        if out.status[i] == LEFT or out.status[i] == UNFIT:
            cuda.atomic.add(total, 1, 1)
        columns = staged.view(np.int32)
        if columns[2 * n + i] == WRONG:
            cuda.atomic.add(total, 2, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x < 3:
        out.totals[cuda.threadIdx.x, cuda.blockIdx.x] = total[cuda.threadIdx.x]


@kernel(BLOCK)
def sum_blocks_kernel(totals, n_blocks, sums_of_all):
    """Turn the totals of blocks into the totals of the blocks before; a block for each row.

    `sums_of_all`: int64 (3,), gets the sums of the rows.
    """
    sums = cuda.shared.array(BLOCK, np.int64)
    thread, row = cuda.threadIdx.x, cuda.blockIdx.x
    share = (n_blocks + BLOCK - 1) // BLOCK
    first, last = min(thread * share, n_blocks), min((thread + 1) * share, n_blocks)
    own = np.int64(0)
    for i in range(first, last):
        own += totals[row, i]
    sums[thread] = own
    cuda.syncthreads()
    before = np.int64(0)
    for i in range(thread):
        before += sums[i]
    for i in range(first, last):
        own = totals[row, i]
        totals[row, i] = before
        before += own
    if thread == BLOCK - 1:
        sums_of_all[row] = before


@device_function
def _copy_paths(results, slot, last_first, counts, firsts, cigar_ops):
    """Copy the operations of a block's pairs; LANES threads a pair, so that neighbours go together.

    `counts`, `firsts`: int32, shared: how many each has, and where they go from the block's first.
    """
    thread = np.int32(cuda.threadIdx.x)
    lane = np.int32(thread & np.int32(LANES - 1))
    of_block = np.int64(cuda.blockIdx.x) * BLOCK
    to = np.int64(results.totals[0, cuda.blockIdx.x])
    pair = np.int32(thread // np.int32(LANES))
    while pair < BLOCK:
        n_ops = np.int32(counts[pair])
        here = np.uint64(to + firsts[pair])
        first = np.int64((of_block + pair) * slot)
        ops = results.slots
        if n_ops > slot:
            first, ops = np.int64(results.slots[first]), results.long_ops
        step = np.int32(1)
        if last_first:
            first += n_ops - 1
            step = np.int32(-1)
        x = lane
        while x < n_ops:
            cigar_ops[here + np.uint64(x)] = ops[np.uint64(first + np.int32(x * step))]
            x = np.int32(x + np.int32(LANES))
        pair = np.int32(pair + np.int32(BLOCK // LANES))


@kernel(BLOCK)
def finish_kernel(staged, n, results, slot, last_first, want_path, first_op, columns):
    """Write the columns of a chunk, and its operations one behind the other.

    `last_first`: whether those of a slot are in this order. `first_op`: operations of the chunks
    before.
    """
    counts = cuda.shared.array(BLOCK, np.int32)
    firsts = cuda.shared.array(BLOCK, np.int32)
    thread = np.int32(cuda.threadIdx.x)
    i = np.int64(cuda.grid(1))
    if want_path:
        counts[thread] = results.n_ops[i] if i < n else np.int32(0)
        cuda.syncthreads()
        at = np.int32(0)
        for j in range(thread):
            at = np.int32(at + counts[j])
        firsts[thread] = at
        cuda.syncthreads()
        _copy_paths(results, slot, last_first, counts, firsts, columns.cigar_ops)
    if i >= n:
        return
    if want_path:
        columns.cigar_offsets[i] = first_op + results.totals[0, cuda.blockIdx.x] + firsts[thread]
    lengths = staged.view(np.int32)
    found = results.score[i] >= 0
    status = results.status[i]
    columns.score[i] = results.score[i]
    columns.query_start[i] = 0 if found else -1
    columns.query_end[i] = lengths[2 * n + i] if found else -1
    columns.ref_start[i] = 0 if found else -1
    columns.ref_end[i] = lengths[3 * n + i] if found else -1
    if status == LEFT or status == UNFIT:
        columns.status[i] = NOT_DONE
    elif not found:
        columns.status[i] = OVER_LIMIT
    else:
        columns.status[i] = HEURISTIC if status == CUT else OK
