"""CUDA kernels for many short pairs as they lie in memory: letters in, results out.

A thread packs the letters of its pair and aligns it in work space of its own. What it finds
goes to a slot of fixed size; a second and a third kernel put the operations of all pairs one
behind the other. Letters other than A C G T, and pairs that do not fit, are left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.device.seam import cuda, device_function, kernel
from mapper.pairwise.affine_cuda import search_within
from mapper.pairwise.affine_origins import replay, trace_back
from mapper.pairwise.affine_space import origins_of, rows_of
from mapper.pairwise.compare import Pair
from mapper.pairwise.cuda_batch import DONE, LEFT
from mapper.pairwise.packing import is_acgt, pack_acgt
from mapper.pairwise.small_rows import MAX_SMALL_LENGTH, small_search
from mapper.pairwise.strip import Strings
from mapper.pairwise.wavefront_affine import highest_bound
from mapper.pairwise.wavefront_edit import Ends, Rows, trace_edit

BLOCK = 128

SMALL = 12
"""Greatest distance of the small kernel: its cells fill 43 of the 48 kB of shared memory that a
block has without asking."""

_SHARED_CELLS = BLOCK * (SMALL + 1) * (SMALL + 1)


UNFIT = 3
"""Status beside those of ``cuda_batch``: other letters, or too long."""


class FlatSide(NamedTuple):
    """Letters of one side of a chunk, and room for them packed."""

    letters: Any  # uint64: ASCII
    start: Any  # int32 (n,): bytes
    length: Any  # int32 (n,)
    word: Any  # int32 (n,): where each sequence is packed, 32 letters a word
    words: Any  # uint64


class FlatResults(NamedTuple):
    """Rows of results, one a pair, and slots of operations, the last operation first."""

    score: Any  # int64; -1 where there is none
    status: Any  # int8: DONE, LEFT, CUT or UNFIT
    n_ops: Any  # int32
    slots: Any  # uint32, n * slot
    totals: Any  # int64, a value a block: operations, then operations of the blocks before


@device_function
def pack_side(side, i):
    """Pack a sequence; return its first symbol in the packed words, or -1 if it cannot be."""
    start, end = np.int64(side.start[i]), np.int64(side.start[i]) + side.length[i]
    if not is_acgt(side.letters, start, end):
        return np.int64(-1)
    pack_acgt(side.letters, start, end, side.words, side.word[i])
    return np.int64(side.word[i]) << 5


@device_function
def align_small(queries, refs, i, query_at, ref_at, max_distance, bound, cells, layout, want_path,
                slot, out):  # fmt: skip
    """Align a packed pair within `bound`, and write its row and operations."""
    strings = Strings(
        queries.words.view(np.uint32), refs.words.view(np.uint32), np.uint32(query_at),
        np.uint32(ref_at), np.int32(queries.length[i]), np.int32(refs.length[i]), np.int32(1),
    )  # fmt: skip
    most = min(max_distance, max(strings.query_len, strings.ref_len))
    score = small_search(strings, min(most, bound), cells)
    n_ops = np.int64(0)
    if score >= 0 and want_path:
        rows = Rows(cells, layout.at, layout.lo, layout.hi)
        goal = np.int64(strings.ref_len - strings.query_len)
        ops = out.slots[i * slot : (i + 1) * slot]
        n_ops, _ = trace_edit(rows, score, goal, np.int64(strings.ref_len), ops, 0)
    out.score[i] = score
    # Above the limit if the room did not lower it.
    out.status[i] = DONE if score >= 0 or most <= bound else LEFT
    out.n_ops[i] = n_ops


@kernel(BLOCK)
def small_edit_kernel(queries, refs, max_distance, want_path, layout, slot, out):
    """Pack pairs, and find global edit distances up to SMALL, and paths; a thread a pair.

    `layout` is that of ``small_rows.small_layout``; its cells are not used.
    """
    cells = cuda.shared.array(_SHARED_CELLS, np.int16)
    i = cuda.grid(1)
    if i >= len(out.score):
        return
    query_at, ref_at = pack_side(queries, i), pack_side(refs, i)
    if query_at < 0 or ref_at < 0 or refs.length[i] > MAX_SMALL_LENGTH:
        out.score[i] = -1
        out.status[i] = UNFIT
        out.n_ops[i] = 0
        return
    # Every 128th cell, so that the threads of a warp touch neighbouring ones.
    own = cells[cuda.threadIdx.x :: BLOCK]
    align_small(
        queries, refs, i, query_at, ref_at, max_distance, SMALL, own, layout, want_path, slot, out
    )


@kernel(BLOCK)
def more_edit_kernel(queries, refs, max_distance, bound, want_path, cells, layout, slot, out):
    """Align the packed pairs that are left, up to `bound`; threads stride over pairs.

    `cells`: int16, the last axis is the thread.
    """
    thread = cuda.grid(1)
    own = cells[:, thread]
    for i in range(thread, len(out.score), cuda.gridsize(1)):
        if out.status[i] == LEFT:
            query_at, ref_at = np.int64(queries.word[i]) << 5, np.int64(refs.word[i]) << 5
            align_small(
                queries, refs, i, query_at, ref_at, max_distance, bound, own, layout, want_path,
                slot, out,
            )  # fmt: skip


@kernel(BLOCK)
def small_affine_kernel(queries, refs, penalties, scale, max_penalty, band, bound, is_first,
                        want_path, space, slot, out):  # fmt: skip
    """Find global gap-affine alignments up to a (divided) penalty; threads stride over pairs.

    The first launch packs the pairs; others do those that are left.
    """
    thread = cuda.grid(1)
    own, own_origins = rows_of(space, thread), origins_of(space, thread)
    own_events = space.events[:, thread]
    ends = Ends(0, 0, 0, 0)
    for i in range(thread, len(out.score), cuda.gridsize(1)):
        query_at, ref_at = np.int64(queries.word[i]) << 5, np.int64(refs.word[i]) << 5
        if is_first:
            query_at, ref_at = pack_side(queries, i), pack_side(refs, i)
            out.n_ops[i] = 0
            out.score[i] = -1
            out.status[i] = UNFIT if query_at < 0 or ref_at < 0 else LEFT
        if out.status[i] != LEFT:
            continue
        pair = Pair(
            queries.words, refs.words, query_at << 1, ref_at << 1, np.int64(queries.length[i]),
            np.int64(refs.length[i]), 1,
        )  # fmt: skip
        most = min(max_penalty, highest_bound(pair, penalties))
        status, s, k = search_within(
            pair, ends, own, own_origins, penalties, band, most, bound, want_path
        )
        out.status[i] = status
        if s < 0:
            continue
        out.score[i] = s * scale
        if want_path:
            n_events, _ = trace_back(own_origins, penalties, s, k, own_events)
            ops = out.slots[i * slot : (i + 1) * slot]
            n_ops = replay(pair, own_events, n_events, 0, 0, pair.ref_len, ops)
            for x in range(n_ops >> 1):  # the last first
                ops[x], ops[n_ops - 1 - x] = ops[n_ops - 1 - x], ops[x]
            out.n_ops[i] = n_ops


@kernel(BLOCK)
def count_blocks_kernel(n_ops, totals):
    """Add up the operations of each block of pairs."""
    total = cuda.shared.array(1, np.int32)
    i = cuda.grid(1)
    if cuda.threadIdx.x == 0:
        total[0] = 0
    cuda.syncthreads()
    if i < len(n_ops):
        cuda.atomic.add(total, 0, n_ops[i])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        totals[cuda.blockIdx.x] = total[0]


@kernel(BLOCK)
def sum_blocks_kernel(totals, n_blocks):
    """Turn the totals of blocks into the totals of the blocks before; one block of threads."""
    sums = cuda.shared.array(BLOCK, np.int64)
    thread = cuda.threadIdx.x
    share = (n_blocks + BLOCK - 1) // BLOCK
    first, last = min(thread * share, n_blocks), min((thread + 1) * share, n_blocks)
    own = np.int64(0)
    for i in range(first, last):
        own += totals[i]
    sums[thread] = own
    cuda.syncthreads()
    before = np.int64(0)
    for i in range(thread):
        before += sums[i]
    for i in range(first, last):
        own = totals[i]
        totals[i] = before
        before += own
    if thread == BLOCK - 1:
        totals[n_blocks] = before


@kernel(BLOCK)
def gather_slots_kernel(results, slot, flat):
    """Write the operations of all pairs one behind the other, in their order."""
    counts = cuda.shared.array(BLOCK, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    n_ops = np.int32(results.n_ops[i]) if i < len(results.n_ops) else np.int32(0)
    counts[thread] = n_ops
    cuda.syncthreads()
    if i < len(results.n_ops):
        at = results.totals[cuda.blockIdx.x]
        for j in range(thread):
            at += counts[j]
        for x in range(n_ops):
            flat[at + x] = results.slots[i * slot + n_ops - 1 - x]
