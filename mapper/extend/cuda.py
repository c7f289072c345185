"""CUDA kernels of extension: candidate loci → alignments, one thread for each read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.batch import AlignmentBatch, LocusBatch
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
    align_read,
    keep_distinct,
    scratch_sizes,
)
from mapper.extend.wavefront_affine import Wavefronts, wavefront_sizes
from mapper.params import ExtendParams


class _Bucket(NamedTuple):
    """Work space of one thread."""

    cells: int  # of each of the three states of the wavefronts
    penalties: int
    ops: int  # of all alignments of a read


FIRST_BUCKETS = (_Bucket(0, 0, 64), _Bucket(64, 64, 128), _Bucket(1024, 192, 1024))
"""Before the last, which fits any read. The first has no wavefronts at all: it does the
reads, four of five at 0.5 % error, that need none. Of 2 M simulated E. coli pairs 2.3 %
need the third and 0.3 % the last."""


class _PerLocus(NamedTuple):
    """Work space with a row for each locus; a read has the rows of its loci."""

    ungapped: Any  # int64 (n_loci, 8)
    order: Any  # int32
    kept: Any  # int32
    found: Found


class _PerThread(NamedTuple):
    """Work space of the threads of a bucket; item i of thread t is ``i * n_threads + t``."""

    positions: Any  # int32
    lost_before: Any  # int32
    spare_ops: Any  # uint32
    ops: Any  # uint32
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
def _extend(text_planes, reads, loci, params, penalties, lists, bucket, n_threads, wavefronts,
            scratch, rows, pool, n_kept, pool_ops):  # fmt: skip
    """Align the reads of one bucket's list; leave those that do not fit to the next."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    my_wavefronts = Wavefronts(
        wavefronts.match[thread::n_threads],
        wavefronts.insertion[thread::n_threads],
        wavefronts.deletion[thread::n_threads],
        wavefronts.lo[thread::n_threads],
        wavefronts.hi[thread::n_threads],
        wavefronts.start[thread::n_threads],
    )
    positions = scratch.positions[thread::n_threads]
    lost_before = scratch.lost_before[thread::n_threads]
    spare_ops = scratch.spare_ops[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    read_ops = scratch.read_ops[thread::n_threads]
    item = thread
    while item < lists.counters[POOL + 1 + bucket]:
        read = lists.reads[bucket, item]
        item += n_threads
        first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
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
        mine = ReadScratch(
            rows.ungapped[first:end], rows.order[first:end], found, rows.kept[first:end],
            positions, lost_before, spare_ops, ops,
        )  # fmt: skip
        n_found = align_read(
            text_planes, reads.planes, reads.word_offsets[read],
            reads.base_offsets[read + 1] - reads.base_offsets[read], loci, first, end - first,
            params, penalties, my_wavefronts, mine, read_ops,
        )  # fmt: skip
        if n_found < 0:
            row = cuda.atomic.add(lists.counters, POOL + 2 + bucket, 1)
            lists.reads[bucket + 1, row] = read
            continue
        kept = keep_distinct(mine, n_found)
        n_ops = np.int64(0)
        for i in range(kept):
            row = mine.kept[i]
            n_ops += found.cigar_end[row] - found.cigar_start[row]
        start = cuda.atomic.add(lists.counters, POOL, n_ops)
        n_kept[read] = kept
        pool.count[read] = n_ops
        pool.start[read] = start
        if start + n_ops <= len(pool_ops):
            for i in range(kept):
                row = mine.kept[i]
                for j in range(found.cigar_start[row], found.cigar_end[row]):
                    pool_ops[start] = read_ops[j]
                    start += 1


@kernel(128)
def _gather(n_reads, locus_offsets, rows, pool, pool_ops, alignment_offsets, op_offsets, out,
            cigar_offsets, cigar_ops):  # fmt: skip
    """Copy the alignments of one read a thread to their place, best first."""
    read = cuda.grid(1)
    if read >= n_reads:
        return
    first = locus_offsets[read]
    op = op_offsets[read]
    start = pool.start[read]
    for i in range(pool.count[read]):
        cigar_ops[op + i] = pool_ops[start + i]
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
        op += rows.found.cigar_end[row] - rows.found.cigar_start[row]
        cigar_offsets[to + 1] = op


def extend_loci(
    space: Workspace, text_planes: Any, reads: DeviceReads, longest: int, loci: LocusBatch,
    most_loci: int, params: ExtendParams,
) -> AlignmentBatch:  # fmt: skip
    """Align each read to its candidate loci: :func:`mapper.extend.cpu.extend_loci`.

    Parameters
    ----------
    text_planes
        Bit planes of the indexed text, on the device; `loci` are there too.
    longest, most_loci
        Bases of the longest read, and loci of the read that has most.

    Returns
    -------
    A batch of host arrays. Waits for the stream.
    """
    n_reads = len(reads.base_offsets) - 1
    n_loci = len(loci.strand)
    rows = _PerLocus(
        space.device("extend.ungapped", 8 * n_loci, np.int64).reshape(n_loci, 8),
        space.device("extend.order", n_loci, np.int32),
        space.device("extend.kept", n_loci, np.int32),
        columns(space, "extend.found", Found, FOUND_TYPES, n_loci),
    )
    pool = columns(space, "extend.pool", Pool, ("i4", "i8"), n_reads)
    n_kept = space.device("extend.n_kept", n_reads, np.int32)
    capacity = 8 * n_loci + 1024
    while True:
        pool_ops = space.device("extend.pool_ops", capacity, np.uint32)
        lists = _run_buckets(
            space, text_planes, reads, longest, loci, most_loci, params, rows, pool, n_kept,
            pool_ops,
        )  # fmt: skip
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
        n_reads, space.stream, n_reads, loci.locus_offsets, rows, pool, pool_ops,
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
    most_loci: int, params: ExtendParams, rows: _PerLocus, pool: Pool, n_kept: Any, pool_ops: Any,
) -> Lists:  # fmt: skip
    """Queue the kernel for every bucket; return the lists, whose counters tell how it went."""
    penalties = wavefront_penalties(params)
    n_reads = len(reads.base_offsets) - 1
    sizes = scratch_sizes(longest, params.max_gap)
    cells, n_penalties = wavefront_sizes(longest, params.max_gap, penalties, params.end_bonus)
    buckets = (*FIRST_BUCKETS, _Bucket(cells, n_penalties, most_loci * sizes.ops))
    lists = new_lists(space, n_reads, len(buckets))
    per_read = 4 * (sizes.positions + sizes.lost_before + 2 * sizes.ops)
    for bucket, size in enumerate(buckets):
        slice_bytes = per_read + 12 * (size.cells + size.penalties) + 4 * size.ops
        n_threads = threads_for(n_reads, slice_bytes)
        wavefronts = Wavefronts(
            *(space.device(f"extend.cells.{i}", n_threads * size.cells, np.int32)
              for i in range(3)),
            *(space.device(f"extend.bounds.{i}", n_threads * size.penalties, np.int32)
              for i in range(3)),
        )  # fmt: skip
        scratch = _PerThread(
            space.device("extend.positions", n_threads * sizes.positions, np.int32),
            space.device("extend.lost_before", n_threads * sizes.lost_before, np.int32),
            space.device("extend.spare_ops", n_threads * sizes.ops, np.uint32),
            space.device("extend.ops", n_threads * sizes.ops, np.uint32),
            space.device("extend.read_ops", n_threads * size.ops, np.uint32),
        )
        _extend.launch(
            n_threads, space.stream, text_planes, reads, loci, params, penalties, lists, bucket,
            n_threads, wavefronts, scratch, rows, pool, n_kept, pool_ops,
        )  # fmt: skip
    return lists
