"""CUDA kernels of extension: candidate loci → alignments.

Ungapped alignments are made with one thread for each locus. Then one thread for each read
does those (most) on which no gap could pay; the others get a warp each, whose lanes share
the diagonals of a wavefront, in buckets of growing work space.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.batch import AlignmentBatch, LocusBatch
from mapper.device.lanes import WARP, WarpLanes
from mapper.device.memory import Workspace
from mapper.device.reads import DeviceReads
from mapper.device.seam import cuda, kernel
from mapper.device.work import (
    POOL,
    Lists,
    Pool,
    check_lists,
    columns,
    new_lists,
    offsets_of,
    threads_for,
)
from mapper.extend.penalties import wavefront_penalties
from mapper.extend.read import (
    FOUND_TYPES,
    Found,
    ReadScratch,
    align_row,
    extend_read,
    keep_distinct,
    scratch_sizes,
    sort_loci,
)
from mapper.extend.wavefront_affine import Wavefronts, wavefront_sizes
from mapper.lanes import ONE_LANE, lane_max, lanes_meet
from mapper.params import ExtendParams

LIGHT_LOCI = 4
"""Reads with more loci get a warp, lest the others of a warp wait for them."""

LIGHT_OPS = 64
"""Room for the operations of a read that one thread does."""


class Bucket(NamedTuple):
    """Work space of one warp."""

    cells: int  # of each of the three states of the wavefronts
    penalties: int
    ops: int  # of all alignments of a read


BUCKETS = (Bucket(1024, 192, 512), Bucket(8192, 384, 4096))
"""Before the last, which fits any read. Of 2 M simulated E. coli reads 0.3 % need the
second and 0.04 % the last."""


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


class PerWarp(NamedTuple):
    """Work space of warps; those of one warp lie together."""

    wavefronts: Wavefronts
    lost_before: Any  # int32
    read_ops: Any  # uint32


class _Out(NamedTuple):
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
def _align_ungapped(text_planes, reads, loci, locus_read, params, n_threads, positions, rows):
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
def _extend_light(text_planes, reads, loci, params, penalties, lists, n_threads, scratch,
                  read_ops, no_cells, rows, pool, n_found, pool_ops):  # fmt: skip
    """Align the reads on which no gap could pay, one a thread at a time; list the others."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    none = no_cells[:0]
    wavefronts = Wavefronts(none, none, none, none, none, none)
    positions = scratch.positions[thread::n_threads]
    spare_ops = scratch.spare_ops[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    my_ops = read_ops[thread::n_threads]
    for read in range(thread, len(pool.count), n_threads):
        first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
        mine = _scratch_of(rows, first, end, positions, none, spare_ops, ops)
        sort_loci(mine, end - first, params.match)
        found = np.int64(-1)
        n_ops = np.int64(0)
        if end - first <= LIGHT_LOCI:
            found, n_ops = extend_read(
                text_planes, reads.planes, reads.word_offsets[read],
                reads.base_offsets[read + 1] - reads.base_offsets[read], loci, first,
                end - first, params, penalties, wavefronts, mine, my_ops, ONE_LANE,
            )  # fmt: skip
        if found < 0:
            row = cuda.atomic.add(lists.counters, POOL + 1, 1)
            lists.reads[0, row] = read
            continue
        n_found[read] = found
        start = cuda.atomic.add(lists.counters, POOL, n_ops)
        pool.start[read] = start
        if start + n_ops <= len(pool_ops):
            for i in range(n_ops):
                pool_ops[start + i] = my_ops[i]


@kernel(128)
def _extend(text_planes, reads, loci, params, penalties, lists, bucket, n_threads, sizes, scratch,
            shared, rows, pool, n_found, pool_ops):  # fmt: skip
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
def _keep(loci, rows, n_found, n_kept, pool, none):
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
def _gather(locus_offsets, rows, pool, pool_ops, alignment_offsets, op_offsets, out,
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


def extend_loci(
    space: Workspace, text_planes: Any, reads: DeviceReads, longest: int, loci: LocusBatch,
    locus_read: Any, offsets: np.ndarray, params: ExtendParams,
) -> AlignmentBatch:  # fmt: skip
    """Align each read to its candidate loci: :func:`mapper.extend.cpu.extend_loci`.

    Parameters
    ----------
    text_planes
        Bit planes of the indexed text, on the device; `loci` are there too.
    longest
        Bases of the longest read.
    locus_read
        int32, shape (n_loci,), on the device: whose locus it is.
    offsets
        ``loci.locus_offsets`` on the host.

    Returns
    -------
    A batch of host arrays. Waits for the stream.
    """
    n_reads, n_loci = len(reads.base_offsets) - 1, len(locus_read)
    rows = PerLocus(
        space.device("extend.ungapped", 8 * n_loci, np.int64).reshape(n_loci, 8),
        space.device("extend.order", n_loci, np.int32),
        space.device("extend.kept", n_loci, np.int32),
        columns(space, "extend.found", Found, FOUND_TYPES, n_loci),
    )
    pool = columns(space, "extend.pool", Pool, ("i4", "i8"), n_reads)
    n_found = space.device("extend.n_found", n_reads, np.int32)
    n_kept = space.device("extend.n_kept", n_reads, np.int32)
    none = space.device("extend.none", 0, np.int32)
    most_loci = int(np.diff(offsets).max(initial=1))
    capacity = 8 * n_loci + 1024
    while True:
        pool_ops = space.device("extend.pool_ops", capacity, np.uint32)
        lists = _run_buckets(
            space, text_planes, reads, longest, loci, locus_read, most_loci, params, rows, pool,
            n_found, pool_ops,
        )  # fmt: skip
        _keep.launch(n_reads, space.stream, loci, rows, n_found, n_kept, pool, none)
        counters = space.download("counters", lists.counters)
        kept_counts = space.download("extend.n_kept", n_kept)
        op_counts = space.download("extend.n_ops", pool.count)
        space.synchronize()
        check_lists(counters)
        if counters[POOL] <= capacity:
            break
        capacity = int(counters[POOL])
    alignment_offsets = offsets_of(kept_counts)
    op_offsets = offsets_of(op_counts)
    total, n_ops = int(alignment_offsets[-1]), int(op_offsets[-1])
    out = columns(space, "extend.out", _Out, FOUND_TYPES[:8], total)
    cigar_offsets = space.device("extend.cigar_offsets", total + 1, np.int64)
    cigar_ops = space.device("extend.cigar_ops", n_ops, np.uint32)
    _gather.launch(
        n_reads, space.stream, loci.locus_offsets, rows, pool, pool_ops,
        space.upload("extend.alignment_offsets", alignment_offsets),
        space.upload("extend.op_offsets", op_offsets), out, cigar_offsets, cigar_ops,
    )  # fmt: skip
    host = [
        space.download(f"extend.{i}", column)
        for i, column in enumerate((*out, cigar_offsets, cigar_ops))
    ]
    space.synchronize()
    host = [column.copy() for column in host]
    host[8][0] = 0
    return AlignmentBatch._make((alignment_offsets, *host))


def _run_buckets(
    space: Workspace, text_planes: Any, reads: DeviceReads, longest: int, loci: LocusBatch,
    locus_read: Any, most_loci: int, params: ExtendParams, rows: PerLocus, pool: Pool,
    n_found: Any, pool_ops: Any,
) -> Lists:  # fmt: skip
    """Queue all kernels up to the last bucket's; return the lists, which tell how it went."""
    penalties = wavefront_penalties(params)
    n_reads, n_loci = len(reads.base_offsets) - 1, len(locus_read)
    positions, n_blocks, ops = scratch_sizes(longest, params.max_gap)
    cells, n_penalties = wavefront_sizes(longest, params.max_gap, penalties, params.end_bonus)
    buckets = (*BUCKETS, Bucket(cells, n_penalties, most_loci * ops))
    lists = new_lists(space, n_reads, len(buckets), full=False)
    per_thread = 4 * (positions + 2 * ops)

    n_threads = threads_for(n_loci, 4 * positions)
    own = space.device("extend.positions", n_threads * positions, np.int32)
    _align_ungapped.launch(
        min(n_threads, n_loci), space.stream, text_planes, reads, loci, locus_read, params,
        n_threads, own, rows,
    )  # fmt: skip

    n_threads = threads_for(n_reads, per_thread + 4 * LIGHT_OPS)
    none = space.device("extend.none", 0, np.int32)
    _extend_light.launch(
        n_threads, space.stream, text_planes, reads, loci, params, penalties, lists, n_threads,
        _per_thread(space, n_threads, positions, ops),
        space.device("extend.read_ops", n_threads * LIGHT_OPS, np.uint32), none, rows, pool,
        n_found, pool_ops,
    )  # fmt: skip

    for bucket, size in enumerate(buckets):
        shared_bytes = 12 * (size.cells + size.penalties) + 4 * (size.ops + n_blocks)
        n_warps = threads_for(n_reads, WARP * per_thread + shared_bytes)
        shared = PerWarp(
            Wavefronts(
                *(space.device(f"extend.cells.{i}", n_warps * size.cells, np.int32)
                  for i in range(3)),
                *(space.device(f"extend.bounds.{i}", n_warps * size.penalties, np.int32)
                  for i in range(3)),
            ),
            space.device("extend.lost_before", n_warps * n_blocks, np.int32),
            space.device("extend.read_ops", n_warps * size.ops, np.uint32),
        )  # fmt: skip
        n_threads = WARP * n_warps
        _extend.launch(
            n_threads, space.stream, text_planes, reads, loci, params, penalties, lists, bucket,
            n_threads, size, _per_thread(space, n_threads, positions, ops), shared, rows, pool,
            n_found, pool_ops,
        )  # fmt: skip
    return lists


def _per_thread(space: Workspace, n_threads: int, positions: int, ops: int) -> PerThread:
    return PerThread(
        space.device("extend.positions", n_threads * positions, np.int32),
        space.device("extend.spare_ops", n_threads * ops, np.uint32),
        space.device("extend.ops", n_threads * ops, np.uint32),
    )
