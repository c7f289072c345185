"""CUDA kernels of extension, and the work space they take (``extend/cuda.py`` launches them)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.device.lanes import WARP, WarpLanes
from mapper.device.seam import cuda, kernel
from mapper.device.work import POOL
from mapper.extend.read import (
    Found,
    ReadScratch,
    align_row,
    extend_read,
    keep_distinct,
    sort_loci,
)
from mapper.extend.wavefronts import Wavefronts
from mapper.lanes import ONE_LANE, lane_max, lanes_meet


class Bucket(NamedTuple):
    """Work space of the thread or the warp that does a read."""

    cells: int  # of each of the three states of the wavefronts
    penalties: int
    ops: int  # of all alignments of a read
    loci: int  # of a read at most


class PerLocus(NamedTuple):
    """Work space with a row for each locus; a read has the rows of its loci."""

    ungapped: Any  # int64 (n_loci, 8)
    order: Any  # int32
    kept: Any  # int32
    found: Found


class PerThread(NamedTuple):
    """Work space of threads; item i of thread t is ``i * n_threads + t``."""

    positions: Any  # int32
    spare_ops: Any  # uint32
    ops: Any  # uint32


class PerUnit(NamedTuple):
    """Work space of what does a read.

    Threads: interleaved, as in PerThread. Warps: that of one behind that of the other.
    """

    wavefronts: Wavefronts
    lost_before: Any  # int32
    read_ops: Any  # uint32


class Out(NamedTuple):
    """Columns of an AlignmentBatch with a row for each alignment."""

    strand: Any
    ref_id: Any
    text_start: Any
    text_end: Any
    query_start: Any
    query_end: Any
    score: Any
    edit_distance: Any


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


@core
def _scratch_of(rows, first, end, positions, lost_before, spare_ops, ops):
    """Work space of the read whose loci are first:end."""
    found = Found(
        rows.found.strand[first:end],
        rows.found.ref_id[first:end],
        rows.found.text_start[first:end],
        rows.found.text_end[first:end],
        rows.found.query_start[first:end],
        rows.found.query_end[first:end],
        rows.found.score[first:end],
        rows.found.edit_distance[first:end],
        rows.found.cigar_start[first:end],
        rows.found.cigar_end[first:end],
    )
    return ReadScratch(
        rows.ungapped[first:end], rows.order[first:end], found, rows.kept[first:end],
        positions, lost_before, spare_ops, ops,
    )  # fmt: skip


@kernel(128)
def extend_alone(text_planes, reads, loci, params, penalties, lists, bucket, n_threads, sizes,
                  scratch, shared, rows, pool, n_found, pool_ops):  # fmt: skip
    """Align the reads of one bucket's list, one a thread at a time; leave what does not fit."""
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
    lost_before = shared.lost_before[thread::n_threads]
    read_ops = shared.read_ops[thread::n_threads]
    positions = scratch.positions[thread::n_threads]
    spare_ops = scratch.spare_ops[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    for item in range(thread, lists.counters[POOL + 1 + bucket], n_threads):
        read = lists.reads[bucket, item]
        first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
        mine = _scratch_of(rows, first, end, positions, lost_before, spare_ops, ops)
        if bucket == 0:
            sort_loci(mine, end - first, params.match)
        found = np.int64(-1)
        n_ops = np.int64(0)
        if end - first <= sizes.loci:
            found, n_ops = extend_read(
                text_planes, reads.planes, reads.word_offsets[read],
                reads.base_offsets[read + 1] - reads.base_offsets[read], loci, first,
                end - first, params, penalties, wavefronts, mine, read_ops, ONE_LANE,
            )  # fmt: skip
        if found < 0:
            row = cuda.atomic.add(lists.counters, POOL + 2 + bucket, 1)
            lists.reads[bucket + 1, row] = read
            continue
        n_found[read] = found
        start = cuda.atomic.add(lists.counters, POOL, n_ops)
        pool.start[read] = start
        if start + n_ops <= len(pool_ops):
            for i in range(n_ops):
                pool_ops[start + i] = read_ops[i]


@kernel(128)
def extend_by_warp(text_planes, reads, loci, params, penalties, lists, bucket, n_threads, sizes,
                    scratch, shared, rows, pool, n_found, pool_ops):  # fmt: skip
    """Align the reads of one bucket's list, one a warp at a time; leave what does not fit."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    warp = thread // WARP
    n_warps = n_threads // WARP
    cell, cells_end = warp * sizes.cells, (warp + 1) * sizes.cells
    bound, bounds_end = warp * sizes.penalties, (warp + 1) * sizes.penalties
    wavefronts = Wavefronts(
        shared.wavefronts.match[cell:cells_end],
        shared.wavefronts.insertion[cell:cells_end],
        shared.wavefronts.deletion[cell:cells_end],
        shared.wavefronts.lo[bound:bounds_end],
        shared.wavefronts.hi[bound:bounds_end],
        shared.wavefronts.start[bound:bounds_end],
    )
    n_blocks = len(shared.lost_before) // n_warps
    lost_before = shared.lost_before[warp * n_blocks : (warp + 1) * n_blocks]
    read_ops = shared.read_ops[warp * sizes.ops : (warp + 1) * sizes.ops]
    positions = scratch.positions[thread::n_threads]
    spare_ops = scratch.spare_ops[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    for item in range(warp, lists.counters[POOL + 1 + bucket], n_warps):
        read = lists.reads[bucket, item]
        first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
        mine = _scratch_of(rows, first, end, positions, lost_before, spare_ops, ops)
        found, n_ops = extend_read(
            text_planes, reads.planes, reads.word_offsets[read],
            reads.base_offsets[read + 1] - reads.base_offsets[read], loci, first, end - first,
            params, penalties, wavefronts, mine, read_ops, lanes,
        )  # fmt: skip
        if found < 0:
            if lanes.lane == 0:
                row = cuda.atomic.add(lists.counters, POOL + 2 + bucket, 1)
                lists.reads[bucket + 1, row] = read
            continue
        start = np.int64(-1)
        if lanes.lane == 0:
            n_found[read] = found
            start = cuda.atomic.add(lists.counters, POOL, n_ops)
            pool.start[read] = start
        start = lane_max(start, lanes)
        lanes_meet(lanes)
        if start + n_ops <= len(pool_ops):
            for i in range(lanes.lane, n_ops, WARP):
                pool_ops[start + i] = read_ops[i]
        lanes_meet(lanes)


@kernel(128)
def keep(loci, rows, n_found, n_kept, pool, none):
    """Order the alignments of one read a thread, and drop those found twice."""
    read = cuda.grid(1)
    if read >= len(n_found):
        return
    first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
    mine = _scratch_of(rows, first, end, none, none, none, none)
    kept = keep_distinct(mine, n_found[read])
    n_ops = np.int64(0)
    for i in range(kept):
        row = mine.kept[i]
        n_ops += mine.found.cigar_end[row] - mine.found.cigar_start[row]
    n_kept[read] = kept
    pool.count[read] = n_ops


@kernel(128)
def gather(locus_offsets, rows, pool, pool_ops, alignment_offsets, op_offsets, out,
            cigar_offsets, cigar_ops):  # fmt: skip
    """Copy the alignments of one read a thread to their place, best first."""
    read = cuda.grid(1)
    if read >= len(pool.count):
        return
    first = locus_offsets[read]
    op = op_offsets[read]
    for to in range(alignment_offsets[read], alignment_offsets[read + 1]):
        row = first + rows.kept[first + to - alignment_offsets[read]]
        out.strand[to] = rows.found.strand[row]
        out.ref_id[to] = rows.found.ref_id[row]
        out.text_start[to] = rows.found.text_start[row]
        out.text_end[to] = rows.found.text_end[row]
        out.query_start[to] = rows.found.query_start[row]
        out.query_end[to] = rows.found.query_end[row]
        out.score[to] = rows.found.score[row]
        out.edit_distance[to] = rows.found.edit_distance[row]
        for i in range(rows.found.cigar_start[row], rows.found.cigar_end[row]):
            cigar_ops[op] = pool_ops[pool.start[read] + i]
            op += 1
        cigar_offsets[to + 1] = op
