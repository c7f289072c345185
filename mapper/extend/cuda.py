"""CUDA kernels of extension: candidate loci → alignments.

Ungapped alignments are made with one thread for each locus. Then one thread for each read
does those (most) on which no gap could pay, and once more, for the others, with room for a
narrow band. What is left gets a warp for each read, whose lanes share the diagonals of a
wavefront, in buckets of growing work space.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mapper.batch import AlignmentBatch, LocusBatch
from mapper.device.lanes import WARP
from mapper.device.memory import Workspace
from mapper.device.reads import DeviceReads
from mapper.device.work import (
    POOL,
    Lists,
    Pool,
    check_lists,
    columns,
    first_capacity,
    new_lists,
    offsets_of,
    threads_for,
)
from mapper.extend.kernels import (
    Bucket,
    Out,
    PerLocus,
    PerThread,
    PerUnit,
    align_ungapped,
    extend_alone,
    extend_by_warp,
    gather,
    keep,
)
from mapper.extend.penalties import wavefront_penalties
from mapper.extend.read import FOUND_TYPES, Found, scratch_sizes
from mapper.extend.wavefronts import Wavefronts, wavefront_sizes
from mapper.params import ExtendParams

MAX_LOCI = 2**31 - 1
"""More than a read can have."""

THREAD_BUCKETS = (Bucket(0, 0, 64, 16), Bucket(64, 64, 128, 4))
"""The first has no wavefronts at all: it does three of four reads at 0.5 % error. Reads with
many loci get a warp, lest the other threads of a warp wait for them."""

WARP_BUCKETS = (Bucket(1024, 192, 512, MAX_LOCI),)
"""Before the last, which fits any read. Of 2 M simulated E. coli reads 0.3 % need that."""


def extend_loci(
    space: Workspace, text_planes: Any, reads: DeviceReads, longest: int, loci: LocusBatch,
    locus_read: Any, offsets: np.ndarray, params: ExtendParams,
) -> tuple[AlignmentBatch, AlignmentBatch]:  # fmt: skip
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
    A batch of host arrays, and the same with device arrays, which hold until `space` is used
    for other loci. Waits for the stream.
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
    capacity = first_capacity(n_loci, 8)
    while True:
        pool_ops = space.device("extend.pool_ops", capacity, np.uint32)
        lists = _run_buckets(
            space, text_planes, reads, longest, loci, locus_read, most_loci, params, rows, pool,
            n_found, pool_ops,
        )  # fmt: skip
        keep.launch(n_reads, space.stream, loci, rows, n_found, n_kept, pool, none)
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
    out = columns(space, "extend.out", Out, FOUND_TYPES[:8], total)
    cigar_offsets = space.device("extend.cigar_offsets", total + 1, np.int64)
    cigar_ops = space.device("extend.cigar_ops", n_ops, np.uint32)
    offsets_there = space.upload("extend.alignment_offsets", alignment_offsets)
    there = AlignmentBatch._make((offsets_there, *out, cigar_offsets, cigar_ops))
    gather.launch(
        n_reads, space.stream, loci.locus_offsets, rows, pool, pool_ops, there.alignment_offsets,
        space.upload("extend.op_offsets", op_offsets), out, cigar_offsets, cigar_ops,
    )  # fmt: skip
    host = [
        space.download(f"extend.{i}", column)
        for i, column in enumerate((*out, cigar_offsets, cigar_ops))
    ]
    space.synchronize()
    host = [column.copy() for column in host]
    host[8][0] = 0
    return AlignmentBatch._make((alignment_offsets, *host)), there


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
    last = Bucket(cells, n_penalties, most_loci * ops, MAX_LOCI)
    buckets = (*THREAD_BUCKETS, *WARP_BUCKETS, last)
    lists = new_lists(space, n_reads, len(buckets))

    n_threads = threads_for(n_loci, 4 * positions)
    own = space.device("extend.positions", n_threads * positions, np.int32)
    align_ungapped.launch(
        min(n_threads, n_loci), space.stream, text_planes, reads, loci, locus_read, params,
        n_threads, own, rows,
    )  # fmt: skip
    for bucket, size in enumerate(buckets):
        # A unit is what does a read: a thread or a warp.
        kernel, width = (
            (extend_alone, 1) if bucket < len(THREAD_BUCKETS) else (extend_by_warp, WARP)
        )
        shared_bytes = 12 * (size.cells + size.penalties) + 4 * (size.ops + n_blocks)
        n_units = threads_for(n_reads, width * 4 * (positions + 2 * ops) + shared_bytes)
        n_threads = width * n_units
        shared = PerUnit(
            Wavefronts(
                *(space.device(f"extend.cells.{i}", n_units * size.cells, np.int32)
                  for i in range(3)),
                *(space.device(f"extend.bounds.{i}", n_units * size.penalties, np.int32)
                  for i in range(3)),
            ),
            space.device("extend.lost_before", n_units * n_blocks, np.int32),
            space.device("extend.read_ops", n_units * size.ops, np.uint32),
        )  # fmt: skip
        scratch = PerThread(
            space.device("extend.positions", n_threads * positions, np.int32),
            space.device("extend.spare_ops", n_threads * ops, np.uint32),
            space.device("extend.ops", n_threads * ops, np.uint32),
        )
        kernel.launch(
            n_threads, space.stream, text_planes, reads, loci, params, penalties, lists, bucket,
            n_threads, size, scratch, shared, rows, pool, n_found, pool_ops,
        )  # fmt: skip
    return lists
