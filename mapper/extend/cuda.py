"""CUDA driver of extension: candidate loci → alignments.

Ungapped alignments are computed by one thread for each locus. Where gaps may pay they are tried,
for the first locus of every read and then for all others (``cuda_kernels.py`` explains why the
result is that of one after the other): first one thread for each locus checks whether any gap can
pay; then one thread aligns within a narrow band; then a warp, whose lanes share the diagonals of a
wavefront, within a wider one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.batch import AlignmentBatch, LocusBatch
from mapper.cuda.memory import Workspace, multiprocessors
from mapper.cuda.warp import WARP
from mapper.cuda.worklist import (
    POOL,
    PoolSize,
    check_lists,
    columns,
    first_capacity,
    offsets_of,
    queue_total,
    threads_for,
)
from mapper.extend.cuda_kernels import (
    Bucket,
    Lists,
    Out,
    PerLocus,
    PerThread,
    PerUnit,
    align_ungapped,
    begin,
    begin_by_warp,
    commit,
    commit_by_warp,
    count_ops,
    extend_alone,
    extend_by_warp,
    gather,
    gather_by_warp,
    go_on,
    keep,
    keep_by_warp,
    screen,
    write_cigars,
)
from mapper.extend.read import FOUND_TYPES, Found, scratch_sizes
from mapper.extend.wavefront import Penalties, Wavefronts, wavefront_penalties, wavefront_sizes
from mapper.params import KEEP_ALL, ExtendParams, KeepParams
from mapper.seed.cuda import DeviceReads

SCREENED_BAND = 64
"""Diagonals of the widest band whose blocks are looked at before there is room for wavefronts."""

SCREENING_THREADS = 2048
"""A multiprocessor's threads that screen loci in turn: more would only make workspace larger."""

THREAD_BUCKETS = (Bucket(128, 128),)
"""Their penalties, too, bound the band whose blocks are looked at."""

WARP_BUCKETS = (Bucket(1024, 192),)
"""Before the last, which fits any read."""


LISTED_WARPS = 4096
"""Warps that take the reads with many loci or alignments in turn; the device holds so many."""


class DeviceAlignments(NamedTuple):
    """An AlignmentBatch on the device."""

    batch: AlignmentBatch

    @property
    def n_rows(self) -> int:
        return len(self.batch.strand)


class NewOffsets:
    """Where the alignments of each read, and their operations, will begin in a new batch.

    Parameters
    ----------
    name
        Of the batch in the workspace.
    counts, op_counts
        int32 (n_reads,), on the device: alignments of each read, and operations of them all.
    """

    def __init__(self, space: Workspace, name: str, counts: Any, op_counts: Any) -> None:
        self._space, self._name = space, name
        n_reads = len(counts)
        self._rows = offsets_of(space, f"{name}.alignment_offsets", counts, n_reads)
        self.ops = offsets_of(space, f"{name}.op_offsets", op_counts, n_reads)
        """int64 (n_reads + 1,), on the device."""
        self._n_rows = queue_total(space, f"{name}.alignment_offsets", self._rows)
        self._n_ops = queue_total(space, f"{name}.op_offsets", self.ops)

    def make_room(self) -> DeviceAlignments:
        """Return the batch, which has only offsets of reads yet; call it after `synchronize`."""
        space, name = self._space, self._name
        n_rows, n_cigar_ops = int(self._n_rows[0]), int(self._n_ops[0])
        return DeviceAlignments(
            AlignmentBatch._make(
                (
                    self._rows,
                    *columns(space, f"{name}.out", Out, FOUND_TYPES[:8], n_rows),
                    space.device(f"{name}.cigar_offsets", n_rows + 1, np.int64),
                    space.device(f"{name}.cigar_ops", n_cigar_ops, np.uint32),
                )
            )
        )


def download_alignments(space: Workspace, there: DeviceAlignments) -> AlignmentBatch:
    """Return the batch with host arrays, which are the caller's to keep; waits for the stream."""
    found = AlignmentBatch._make(space.download_results("alignments", there.batch))
    space.synchronize()
    found.cigar_offsets[0] = 0  # which no kernel writes where there are no reads
    return found


def extend_loci(
    space: Workspace, text_planes: Any, reads: DeviceReads, longest: int, loci: LocusBatch,
    locus_read: Any, params: ExtendParams, keep_params: KeepParams = KEEP_ALL,
    name: str = "extended",
) -> DeviceAlignments:  # fmt: skip
    """Align each read to its candidate loci: :func:`mapper.extend.cpu.extend_loci`.

    Parameters
    ----------
    text_planes
        Bit planes of the indexed text, on the device; `loci` are there too.
    longest
        Bases of the longest read.
    locus_read
        int32, shape (n_loci,), on the device: whose locus it is.
    keep_params
        Which alignments may matter to what follows.
    name
        Of the alignments in the workspace.

    Returns
    -------
    Arrays that hold until `space` is used for other alignments of that name. Waits for the
    stream.
    """
    n_reads, n_loci = len(reads.base_offsets) - 1, len(locus_read)
    rows = PerLocus(
        ungapped=space.device("extend.ungapped", 8 * n_loci, np.int32).reshape(n_loci, 8),
        keys=space.device("extend.keys", 2 * n_loci, np.int64),
        order=space.device("extend.order", n_loci, np.int32),
        kept=space.device("extend.kept", n_loci, np.int32),
        target=space.device("extend.target", n_loci, np.int32),
        total=space.device("extend.total", n_loci, np.int32),
        found=columns(space, "extend.found", Found, FOUND_TYPES, n_loci),
    )
    n_found = space.device("extend.n_found", n_reads, np.int32)
    n_kept = space.device("extend.n_kept", n_reads, np.int32)
    n_ops = space.device("extend.n_ops", n_reads, np.int32)
    pool_size = PoolSize(space, "extend.pool_ops", first_capacity(n_loci, 8))
    while True:
        pool_ops = space.device("extend.pool_ops", pool_size.capacity, np.uint32)
        work = _Work(space, text_planes, reads, longest, loci, locus_read, params, rows, pool_ops)
        work.align(n_found, n_kept, keep_params)
        count_ops.launch(n_reads, space.stream, loci, rows, n_kept, n_ops)
        offsets = NewOffsets(space, name, n_kept, n_ops)
        counters = space.download("counters", work.lists.counters)
        space.synchronize()
        for left_over in work.left_over:
            check_lists(counters[left_over : left_over + 1])
        if pool_size.suffices(int(counters[POOL])):
            break
    there = offsets.make_room()
    gathering = (loci, rows, pool_ops, offsets.ops, there.batch)
    gather.launch(n_reads, space.stream, *gathering, n_found)
    n_warps = min(n_reads, LISTED_WARPS)
    gather_by_warp.launch(WARP * n_warps, space.stream, *gathering, work.lists, work.many, n_warps)
    return there


class _Work:
    """One pass over the loci of a batch: everything up to the alignments in the pool."""

    def __init__(
        self, space: Workspace, text_planes: Any, reads: DeviceReads, longest: int,
        loci: LocusBatch, locus_read: Any, params: ExtendParams, rows: PerLocus, pool_ops: Any,
    ) -> None:  # fmt: skip
        self.space, self.text_planes, self.reads = space, text_planes, reads
        self.loci, self.locus_read, self.params = loci, locus_read, params
        self.rows, self.pool_ops = rows, pool_ops
        self.penalties: Penalties = wavefront_penalties(params)
        self.n_reads, self.n_loci = len(reads.base_offsets) - 1, len(locus_read)
        self.sizes = scratch_sizes(longest, params.max_gap)
        cells, n_penalties = wavefront_sizes(
            longest, params.max_gap, self.penalties, params.end_bonus
        )
        self.last = Bucket(cells, n_penalties)
        self.buckets = (*THREAD_BUCKETS, *WARP_BUCKETS, self.last)
        # The lists of each round: loci to be screened, those of each bucket, and those that fit
        # none; then the reads to be committed alone, and those that do not fit. Their list is then
        # reused.
        n_lists = len(self.buckets) + 2
        self.rounds = (POOL + 1, POOL + 1 + n_lists)
        self.alone = POOL + 1 + 2 * n_lists
        self.many = self.alone + 2  # reads with many alignments
        self.many_loci = self.alone + 3
        self.left_over = (self.rounds[1] - 1, self.alone - 1, self.alone + 1)
        self.lists = Lists(
            space.upload("counters", np.zeros(self.many_loci + 1, np.int64)),
            space.device("extend.lists", 2 * self.n_loci, np.int32).reshape(2, self.n_loci),
            space.device("extend.listed", self.n_reads, np.int32),
        )

    def align(self, n_found: Any, n_kept: Any, keep_params: KeepParams) -> None:
        """Queue all kernels.

        Of each read, `n_found` gets the number of alignments, and `n_kept` how many matter.
        """
        stream, loci, rows, lists = self.space.stream, self.loci, self.rows, self.lists
        listed_warps = min(self.n_reads, LISTED_WARPS)
        n_threads = threads_for(self.n_loci, 4 * (self.sizes.positions + 2 * self.sizes.ops))
        scratch = self._per_thread(n_threads)
        align_ungapped.launch(
            min(n_threads, self.n_loci), stream, self.text_planes, self.reads, loci,
            self.locus_read, self.params, n_threads, scratch.positions, rows,
        )  # fmt: skip
        beginning = (self.reads, loci, self.params, rows, lists, self.rounds[0], self.many_loci)
        begin.launch(self.n_reads, stream, *beginning)
        begin_by_warp.launch(WARP * listed_warps, stream, *beginning, listed_warps)
        self._run_buckets(self.rounds[0], self.n_reads)
        go_on.launch(
            self.n_loci, stream, self.reads, loci, self.locus_read, self.params, rows, lists,
            self.rounds[1],
        )  # fmt: skip
        self._run_buckets(self.rounds[1], self.n_loci)
        commit.launch(
            self.n_reads, stream, self.reads, loci, self.params, rows, lists, self.alone, n_found
        )
        n_threads, scratch, shared = self._workspace(self.last, WARP, self.n_reads)
        commit_by_warp.launch(
            n_threads, stream, self.text_planes, self.reads, loci, self.params, self.penalties,
            lists, self.alone, self.alone + 1, n_threads, self.last, scratch, shared, rows,
            self.pool_ops, n_found,
        )  # fmt: skip
        keep.launch(
            self.n_reads, stream, self.reads, loci, keep_params, rows, n_found, n_kept, lists,
            self.many,
        )  # fmt: skip
        keep_by_warp.launch(
            WARP * listed_warps, stream, self.reads, loci, keep_params, rows, n_found, n_kept,
            lists, self.many, listed_warps,
        )  # fmt: skip
        n_threads = threads_for(self.n_loci, 4 * (self.sizes.positions + 2 * self.sizes.ops))
        write_cigars.launch(
            min(n_threads, self.n_loci), stream, self.text_planes, self.reads, loci,
            self.locus_read, n_threads, self._per_thread(n_threads), rows, lists.counters,
            self.pool_ops,
        )  # fmt: skip

    def _run_buckets(self, this: int, most: int) -> None:
        """Queue the kernels for the listed loci, at `most` so many."""
        most = min(most, self.n_loci)
        n_losses = self.sizes.losses
        n_threads = min(threads_for(most, 4 * n_losses), multiprocessors() * SCREENING_THREADS)
        screen.launch(
            n_threads, self.space.stream, self.text_planes, self.reads, self.loci,
            self.locus_read, self.params, self.penalties, self.lists, this, this + 1, 0,
            n_threads, SCREENED_BAND,
            self.space.device("extend.losses", n_threads * n_losses, np.int32), self.rows,
        )  # fmt: skip
        for bucket, size in enumerate(self.buckets):
            # A unit is what aligns a read to a locus: a thread or a warp.
            kernel, width = (
                (extend_alone, 1) if bucket < len(THREAD_BUCKETS) else (extend_by_warp, WARP)
            )
            n_threads, scratch, shared = self._workspace(size, width, most)
            here = this + 1 + bucket
            kernel.launch(
                n_threads, self.space.stream, self.text_planes, self.reads, self.loci,
                self.locus_read, self.params, self.penalties, self.lists, here, here + 1,
                1 - (bucket & 1), n_threads, size, scratch, shared, self.rows, self.pool_ops,
            )  # fmt: skip

    def _per_thread(self, n_threads: int) -> PerThread:
        positions, _, ops = self.sizes
        return PerThread(
            self.space.device("extend.positions", n_threads * positions, np.int32),
            self.space.device("extend.spare_ops", n_threads * ops, np.uint32),
            self.space.device("extend.ops", n_threads * ops, np.uint32),
        )

    def _workspace(self, size: Bucket, width: int, n_items: int) -> tuple[int, Any, Any]:
        """Return the number of threads for so many items, and their workspace."""
        positions, n_losses, ops = self.sizes
        shared_bytes = 12 * (size.cells + size.penalties) + 4 * n_losses
        n_units = threads_for(n_items, width * 4 * (positions + 2 * ops) + shared_bytes)
        shared = PerUnit(
            Wavefronts(
                *(self.space.device(f"extend.cells.{i}", n_units * size.cells, np.int32)
                  for i in range(3)),
                *(self.space.device(f"extend.bounds.{i}", n_units * size.penalties, np.int32)
                  for i in range(3)),
            ),
            self.space.device("extend.losses", n_units * n_losses, np.int32),
        )  # fmt: skip
        return width * n_units, self._per_thread(width * n_units), shared
