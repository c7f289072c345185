"""CUDA kernels that every metric shares: from staged chunks to the caller's result columns.

A chunk is staged as in ``sources.py``. The kernels of a metric (``edit/cuda_kernels.py``,
``affine/cuda_kernels.py``) write `ChunkResults`: a row a pair, and the operations of its path in a
slot of fixed size. The kernels at the end of this module count the operations, compute prefix sums
of the counts, and write `OutputColumns`, with the operations of all pairs contiguous.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.cuda.retry import CUT, UNSOLVED
from mapper.align.edit.wavefront import MAX_SMALL_LENGTH
from mapper.align.matches import Pair, Strings
from mapper.align.pairs import is_misplaced
from mapper.align.result import HEURISTIC, OK, OVER_LIMIT
from mapper.cuda.api import cuda, device_function, kernel

BLOCK = 128
"""Threads of a block."""

UNFIT = 3
"""Status, in addition to those of ``retry.py``: other letters than A, C, G, T, or too long."""

MISPLACED = -2
"""Length, in a staged chunk, of a packed pair whose words overlap those of its neighbours or lie
outside the chunk."""


class PackedColumns(NamedTuple):
    """The caller's columns of a chunk of packed pairs."""

    query_start: Any  # int64: word
    query_len: Any  # int64: symbols
    ref_start: Any  # int64
    ref_len: Any  # int64
    shift: Any  # uint8


PACKED_TYPES = (np.int64, np.int64, np.int64, np.int64, np.uint8)
"""Types of :class:`PackedColumns`."""


class ChunkResults(NamedTuple):
    """Results of a chunk, a row a pair, and slots of operations, in the order of the launch plan.

    A path longer than its slot lies in `long_ops`; the first item of the slot is its index there.

    The rows of `totals` count operations, unsolved pairs and misplaced pairs of each block;
    :func:`sum_blocks_kernel` replaces them by prefix sums.
    """

    score: Any  # int32; -1 without an alignment
    status: Any  # int8: DONE, UNSOLVED, CUT or UNFIT
    n_ops: Any  # int32
    slots: Any  # uint32, n * slot
    long_ops: Any  # uint32
    totals: Any  # int64 (3, at least n_blocks + 1)


@device_function
def strings_of(staged, n, i):
    """Return pair i of a staged chunk of n."""
    words, columns = staged.view(np.uint32), staged.view(np.int32)
    return Strings(
        words, words, np.uint32(columns[i]), np.uint32(columns[n + i]), columns[2 * n + i],
        columns[3 * n + i], np.int32(1),
    )  # fmt: skip


@device_function
def pair_of(staged, strings):
    """Return the same pair in the form that tracebacks take."""
    return Pair(
        staged, staged, np.int64(strings.query_at) << 1, np.int64(strings.ref_at) << 1,
        np.int64(strings.query_len), np.int64(strings.ref_len), 1,
    )  # fmt: skip


@device_function
def two_bits(strings):
    """Return the same strings with a constant shift, so that the compiler sees 2-bit symbols."""
    return Strings(
        strings.query, strings.ref, strings.query_at, strings.ref_at, strings.query_len,
        strings.ref_len, np.int32(1),
    )  # fmt: skip


@device_function
def _is_outside(start, length, shift, following, begin, end):
    """Return True if a packed sequence overlaps the `following` one or exceeds begin:end."""
    return is_misplaced(start - begin + 1, length, shift, min(following, end) - begin + 1)


@kernel(BLOCK)
def packed_columns_kernel(given, n, query_begin, query_end, ref_begin, ref_end, query_at, ref_at,
                staged):  # fmt: skip
    """Write the four staged columns of a chunk of packed pairs.

    Parameters
    ----------
    query_begin, query_end, ref_begin, ref_end
        Words of the caller's arrays; in the chunk they start at words `query_at` and `ref_at`.
    """
    i = cuda.grid(1)
    if i >= n:
        return
    shift = given.shift[i]
    query_start, query_len = given.query_start[i], given.query_len[i]
    ref_start, ref_len = given.ref_start[i], given.ref_len[i]
    query_next = given.query_start[i + 1] if i + 1 < n else query_end
    ref_next = given.ref_start[i + 1] if i + 1 < n else ref_end
    columns = staged.view(np.int32)
    if _is_outside(query_start, query_len, shift, query_next, query_begin, query_end) or (
        _is_outside(ref_start, ref_len, shift, ref_next, ref_begin, ref_end)
    ):
        columns[2 * n + i] = MISPLACED
        columns[3 * n + i] = MISPLACED
        return
    fits = shift == 1 and max(query_len, ref_len) <= MAX_SMALL_LENGTH
    columns[i] = (query_start - query_begin + query_at) << 5
    columns[n + i] = (ref_start - ref_begin + ref_at) << 5
    columns[2 * n + i] = query_len if fits else -1
    columns[3 * n + i] = ref_len if fits else -1


# --- columns of results ---

NOT_DONE = -1
"""Status, in the output columns, of a pair that is unsolved or unfit."""

LANES = 8
"""Threads that copy the operations of a pair."""


class OutputColumns(NamedTuple):
    """The columns of results as the caller gets them, and the operations of a chunk."""

    score: Any  # int64
    status: Any  # int8: a status of ``result.py``, or NOT_DONE
    query_start: Any  # int64
    query_end: Any  # int64
    ref_start: Any  # int64
    ref_end: Any  # int64
    cigar_offsets: Any  # int64, of the whole batch
    cigar_ops: Any  # uint32, of the chunk


@kernel(BLOCK)
def count_blocks_kernel(staged, n, out):
    """Count the operations, the unsolved pairs and the misplaced pairs of each block of pairs."""
    total = cuda.shared.array(3, np.int32)
    i = cuda.grid(1)
    if cuda.threadIdx.x < 3:
        total[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    if i < n:
        cuda.atomic.add(total, 0, out.n_ops[i])
        if out.status[i] == UNSOLVED or out.status[i] == UNFIT:
            cuda.atomic.add(total, 1, 1)
        columns = staged.view(np.int32)
        if columns[2 * n + i] == MISPLACED:
            cuda.atomic.add(total, 2, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x < 3:
        out.totals[cuda.threadIdx.x, cuda.blockIdx.x] = total[cuda.threadIdx.x]


@kernel(BLOCK)
def sum_blocks_kernel(totals, n_blocks, sums_of_all):
    """Replace the totals of blocks by their exclusive prefix sums; one block for each row.

    `sums_of_all`: int64 (3,), receives the sums of the rows.
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
    """Copy the operations of a block's pairs; LANES threads a pair, so that accesses coalesce.

    `counts`, `firsts`: int32, shared: the operations of each pair, and their prefix sums.
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
    """Write the output columns of a chunk, and its operations contiguously.

    `last_first`: slots hold the last operation first. `first_op`: operations of the chunks before.
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
    if status == UNSOLVED or status == UNFIT:
        columns.status[i] = NOT_DONE
    elif not found:
        columns.status[i] = OVER_LIMIT
    else:
        columns.status[i] = HEURISTIC if status == CUT else OK
