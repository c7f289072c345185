"""CUDA kernels that align reads to loci, and the work space they take.

``extend/cuda.py`` launches them, between those of ``settle.py``, which say what there is to align.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.cuda.api import cuda, kernel
from mapper.cuda.warp import WARP, WarpLanes
from mapper.cuda.worklist import POOL
from mapper.dna import n_words
from mapper.extend.bounds import bound_sides, worth_extending
from mapper.extend.locus import align_gapped
from mapper.extend.read import align_row, edit_distance_of, ungapped_of
from mapper.extend.settle import settle_read
from mapper.extend.wavefronts import Wavefronts
from mapper.jit.accelerate import core
from mapper.jit.lanes import ONE_LANE, lane_max, lanes_meet


class Bucket(NamedTuple):
    """Work space of the thread or the warp that aligns a read to a locus."""

    cells: int  # of each of the three states of the wavefronts
    penalties: int


class Lists(NamedTuple):
    """Loci that wait to be aligned, in two lists by turns, and reads to be settled alone."""

    counters: Any  # int64: operations in the pool, then items of each list
    loci: Any  # int32 (2, n_loci)
    reads: Any  # int32 (n_reads,): to be settled alone; then those with many alignments


class PerThread(NamedTuple):
    """Work space of threads; item i of thread t is ``i * n_threads + t``."""

    positions: Any  # int32
    spare_ops: Any  # uint32
    ops: Any  # uint32


class PerUnit(NamedTuple):
    """Work space of what aligns a read to a locus.

    Threads: interleaved, as in PerThread. Warps: that of one behind that of the other.
    """

    wavefronts: Wavefronts
    losses: Any  # int32


ALIGNING = 2
"""Blocks that aligning kernels leave room for, as they do untold; but untold, the compiler may put
numbers into local memory to make room for a third."""


@kernel(128)
def align_ungapped(text_planes, reads, loci, locus_read, params, n_threads, positions, rows):
    """Align reads to their loci without gaps, one locus a thread at a time."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    mine = positions[thread::n_threads]
    for locus in range(thread, len(locus_read), n_threads):
        read = locus_read[locus]
        align_row(
            text_planes, reads.planes, reads.word_offsets[read],
            reads.base_offsets[read + 1] - reads.base_offsets[read], loci, locus, params, mine,
            rows.ungapped[locus],
        )  # fmt: skip


@kernel(128, blocks_per_sm=4)
def screen(text_planes, reads, loci, locus_read, params, penalties, lists, this, following, turn,
           n_threads, n_penalties, losses, rows):  # fmt: skip
    """List those loci of a list where gaps may pay by their bounds, one a thread at a time.

    At most repeats they cannot, and to tell takes a third of the registers that aligning does.
    `this` and `following` are the lists' counters, `turn` is the row of ``lists.loci``.
    """
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    mine = losses[thread::n_threads]
    for item in range(thread, lists.counters[this], n_threads):
        locus = lists.loci[turn, item]
        read = locus_read[locus]
        read_len = reads.base_offsets[read + 1] - reads.base_offsets[read]
        ungapped = ungapped_of(rows.ungapped[locus])
        target = np.int64(rows.target[locus])
        bounds = bound_sides(
            reads.planes, reads.word_offsets[read] + n_words(read_len) * loci.strand[locus],
            read_len, text_planes, loci.diagonal[locus], loci.window_start[locus],
            loci.window_end[locus], ungapped, target, params, penalties, n_penalties, mine,
            ONE_LANE,
        )  # fmt: skip
        if worth_extending(bounds, ungapped, target, params):
            lists.loci[1 - turn, cuda.atomic.add(lists.counters, following, 1)] = locus


@core
def _align_locus(text_planes, reads, loci, read, locus, params, penalties, wavefronts, losses,
                 positions, spare_ops, ops, rows, counters, pool_ops, lanes):  # fmt: skip
    """Align a read to a locus with gaps, where they pay; say whether the work space was enough."""
    read_len = reads.base_offsets[read + 1] - reads.base_offsets[read]
    total, doubled, query_start, query_end, text_start, text_end, n_ops = align_gapped(
        reads.planes, reads.word_offsets[read] + n_words(read_len) * loci.strand[locus], read_len,
        text_planes, loci.diagonal[locus], loci.window_start[locus], loci.window_end[locus],
        ungapped_of(rows.ungapped[locus]), np.int64(rows.target[locus]), params, penalties,
        wavefronts, positions, losses, spare_ops, ops, None, lanes,
    )  # fmt: skip
    if n_ops <= 0:
        return n_ops == 0
    start = np.int64(-1)
    if lanes.lane == 0:
        start = cuda.atomic.add(counters, POOL, n_ops)
        rows.total[locus] = total
        rows.found.score[locus] = doubled
        rows.found.query_start[locus] = query_start
        rows.found.query_end[locus] = query_end
        rows.found.text_start[locus] = text_start
        rows.found.text_end[locus] = text_end
        rows.found.edit_distance[locus] = edit_distance_of(ops, n_ops)
        rows.found.cigar_start[locus] = start
        rows.found.cigar_end[locus] = start + n_ops
    start = lane_max(start, lanes)
    if start + n_ops <= len(pool_ops):
        i = np.uint32(lanes.lane)
        while i < np.uint32(n_ops):
            pool_ops[np.uint64(start + i)] = ops[i]
            i = np.uint32(i + lanes.n_lanes)
    lanes_meet(lanes)
    return True


@kernel(128, blocks_per_sm=ALIGNING)
def extend_alone(text_planes, reads, loci, locus_read, params, penalties, lists, this, following,
                 turn, n_threads, sizes, scratch, shared, rows, pool_ops):  # fmt: skip
    """Align the loci of a list, one a thread at a time; list those that do not fit.

    `this` and `following` are the lists' counters, `turn` is the row of ``lists.loci``.
    """
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    wavefronts = Wavefronts(
        shared.wavefronts.match[thread::n_threads],
        shared.wavefronts.insertion[thread::n_threads],
        shared.wavefronts.deletion[thread::n_threads],
        shared.wavefronts.lo[thread::n_threads],
        shared.wavefronts.hi[thread::n_threads],
        shared.wavefronts.start[thread::n_threads],
    )
    losses = shared.losses[thread::n_threads]
    positions = scratch.positions[thread::n_threads]
    spare_ops = scratch.spare_ops[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    for item in range(thread, lists.counters[this], n_threads):
        locus = lists.loci[turn, item]
        if not _align_locus(
            text_planes, reads, loci, locus_read[locus], locus, params, penalties, wavefronts,
            losses, positions, spare_ops, ops, rows, lists.counters, pool_ops, ONE_LANE,
        ):  # fmt: skip
            lists.loci[1 - turn, cuda.atomic.add(lists.counters, following, 1)] = locus


@core
def _warp_wavefronts(shared, sizes, warp):
    """Wavefronts of a warp."""
    cell, cells_end = warp * sizes.cells, (warp + 1) * sizes.cells
    bound, bounds_end = warp * sizes.penalties, (warp + 1) * sizes.penalties
    return Wavefronts(
        shared.wavefronts.match[cell:cells_end],
        shared.wavefronts.insertion[cell:cells_end],
        shared.wavefronts.deletion[cell:cells_end],
        shared.wavefronts.lo[bound:bounds_end],
        shared.wavefronts.hi[bound:bounds_end],
        shared.wavefronts.start[bound:bounds_end],
    )


@kernel(128, blocks_per_sm=ALIGNING)
def extend_by_warp(text_planes, reads, loci, locus_read, params, penalties, lists, this, following,
                   turn, n_threads, sizes, scratch, shared, rows, pool_ops):  # fmt: skip
    """Align the loci of a list, one a warp at a time; otherwise like `extend_alone`."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    warp = thread // WARP
    n_warps = n_threads // WARP
    wavefronts = _warp_wavefronts(shared, sizes, warp)
    n_losses = len(shared.losses) // n_warps
    losses = shared.losses[warp * n_losses : (warp + 1) * n_losses]
    positions = scratch.positions[thread::n_threads]
    spare_ops = scratch.spare_ops[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    for item in range(warp, lists.counters[this], n_warps):
        locus = lists.loci[turn, item]
        if (
            not _align_locus(
                text_planes, reads, loci, locus_read[locus], locus, params, penalties, wavefronts,
                losses, positions, spare_ops, ops, rows, lists.counters, pool_ops, lanes,
            )
            and lanes.lane == 0
        ):  # fmt: skip
            lists.loci[1 - turn, cuda.atomic.add(lists.counters, following, 1)] = locus


@kernel(128, blocks_per_sm=ALIGNING)
def settle_by_warp(text_planes, reads, loci, params, penalties, lists, this, following, n_threads,
                   sizes, scratch, shared, rows, pool_ops, n_found):  # fmt: skip
    """Settle the reads of a list, one a warp: align again what had too high a target."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    warp = thread // WARP
    n_warps = n_threads // WARP
    wavefronts = _warp_wavefronts(shared, sizes, warp)
    n_losses = len(shared.losses) // n_warps
    losses = shared.losses[warp * n_losses : (warp + 1) * n_losses]
    positions = scratch.positions[thread::n_threads]
    spare_ops = scratch.spare_ops[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    for item in range(warp, lists.counters[this], n_warps):
        read = lists.reads[item]
        first = loci.locus_offsets[read]
        n_loci = loci.locus_offsets[read + 1] - first
        read_len = reads.base_offsets[read + 1] - reads.base_offsets[read]
        found, row, target = settle_read(rows, loci, first, n_loci, read_len, params)
        while row >= 0:
            lanes_meet(lanes)  # all have seen the target that is replaced now
            rows.target[row] = target
            rows.total[row] = 0
            lanes_meet(lanes)
            if (
                not _align_locus(
                    text_planes, reads, loci, read, row, params, penalties, wavefronts,
                    losses, positions, spare_ops, ops, rows, lists.counters, pool_ops, lanes,
                )
                and lanes.lane == 0
            ):  # fmt: skip
                cuda.atomic.add(lists.counters, following, 1)
            lanes_meet(lanes)
            found, row, target = settle_read(rows, loci, first, n_loci, read_len, params)
        if lanes.lane == 0:
            n_found[read] = found
