"""The stages that a device does: reads → seeds → loci → alignments, as on the CPU.

A lane is a stream with its workspace; a thread that brings a batch takes a free lane, waits
until the batch is done, and gives the lane back. With several lanes the copies of one batch
overlap the kernels of another, and short kernels share the device. With several devices each
has lanes of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from mapper.batch import AlignmentBatch, LocusBatch, PackedReads, ReadBatch, SeedSummary
from mapper.chain.cuda import find_loci
from mapper.device.memory import Workspace, upload
from mapper.device.reads import download_packed, upload_reads
from mapper.device.seam import cuda
from mapper.errors import DeviceMemoryError
from mapper.extend.cuda import extend_loci
from mapper.extend.merge import merge_alignments
from mapper.index.cuda import expand_suffix_array
from mapper.index.fm import FMIndex
from mapper.index.reference import ContigBounds, Index
from mapper.pair.cuda import propose_loci
from mapper.pair.insert_size import InsertSizeModel
from mapper.params import MapParams
from mapper.seed.cuda import seed_reads
from mapper.stats import RunStats

LANES = 3
"""Batches in work on a device at a time: while the slowest reads of one are finished, others
are copied and computed."""


class Lane(NamedTuple):
    """What one batch needs of a device."""

    ordinal: int
    fm: FMIndex
    contigs: ContigBounds
    space: Workspace


class _Done(NamedTuple):
    """What a lane made of a batch."""

    packed: PackedReads | None
    seeds: SeedSummary
    alignments: AlignmentBatch
    rescued: AlignmentBatch | None
    """Alignments that rescue has found, to be merged with the others."""

    def merged(self, stats: RunStats) -> _Done:
        """Return it with all alignments in one batch; the host's work."""
        if self.rescued is None:
            return self
        with stats.stage("rescue"):
            both = merge_alignments(self.alignments, self.rescued)
        return self._replace(alignments=both, rescued=None)


class DeviceStages:
    """An index on one or several devices, and the stages there.

    The suffix array is expanded where there is memory for it. The table of k-mers is not: rows of
    the text's end that its length puts into an interval are counted, so another one could
    give other seeds than the CPU's.

    Parameters
    ----------
    ordinals
        Devices, among the visible ones; one named twice works as two.

    Raises
    ------
    DeviceMemoryError
        If the index does not fit.
    """

    def __init__(self, index: Index, ordinals: Sequence[int], lanes: int = LANES) -> None:
        self._free: SimpleQueue[Lane] = SimpleQueue()
        made = []
        for ordinal in ordinals:
            with cuda.gpus[ordinal]:
                fm = upload(index.fm, f"the index {index.meta.source_name}")
                fm = expand_suffix_array(fm)
                contigs = upload(
                    ContigBounds(index.contigs.starts, index.contigs.lengths), "the contigs"
                )
                made.append([Lane(ordinal, fm, contigs, Workspace()) for _ in range(lanes)])
        self.lanes = [lane for turn in zip(*made, strict=True) for lane in turn]  # by turns
        for lane in self.lanes:
            self._free.put(lane)

    def align(
        self, reads: ReadBatch, params: MapParams, stats: RunStats,
        model: InsertSizeModel | None = None,
    ) -> tuple[PackedReads | None, SeedSummary, AlignmentBatch]:  # fmt: skip
        """Pack, seed, chain and extend every read for itself; identical to the CPU's results.

        With the insert-size `model`, mates are rescued too, and packed reads, which serve only
        for that on the host, are not returned. A batch for which the device's memory does not
        suffice is done in halves.
        """
        with stats.stage("wait"):
            lane = self._free.get()
        try:
            with cuda.gpus[lane.ordinal]:
                done = _align(lane, reads, params, stats, model)
        finally:
            self._free.put(lane)
        packed, seeds, alignments, _ = done.merged(stats)
        return packed, seeds, alignments


def _align(
    lane: Lane, reads: ReadBatch, params: MapParams, stats: RunStats, model: InsertSizeModel | None
) -> _Done:
    step = 2 if reads.paired else 1  # mates stay together
    try:
        return _align_at_once(lane, reads, params, stats, model)
    except DeviceMemoryError:
        lane.space.release()
        if reads.n_reads < 2 * step:
            raise
    middle = reads.n_reads // (2 * step) * step
    halves = [
        _align(lane, half, params, stats, model).merged(stats)
        for half in (_rows(reads, 0, middle), _rows(reads, middle, reads.n_reads))
    ]
    packed, seeds, alignments, _ = zip(*halves, strict=True)
    return _Done(_join_packed(packed), _join_summaries(seeds), _join_alignments(alignments), None)


def _align_at_once(
    lane: Lane, reads: ReadBatch, params: MapParams, stats: RunStats, model: InsertSizeModel | None
) -> _Done:
    space = lane.space
    longest = max(int(np.diff(reads.base_offsets).max(initial=0)), 1)
    with stats.stage("pack"):
        on_device = upload_reads(space, reads)
        packed = None if model is not None else download_packed(space, on_device)
    with stats.stage("seed"):
        found = seed_reads(space, lane.fm, on_device, longest, params.seed)
    with stats.stage("chain"):
        loci = find_loci(space, lane.contigs, found)
    with stats.stage("extend"):
        alignments, there = extend_loci(
            space, lane.fm.ref_planes, on_device, longest, loci, found.read,
            params.extend,
        )  # fmt: skip
    rescued = None
    if model is not None and reads.paired:
        with stats.stage("rescue"):
            near = propose_loci(
                space, lane.fm.ref_planes, lane.contigs, on_device, found, there, model,
                params.pair, params.extend,
            )  # fmt: skip
            if near.host_offsets[-1]:
                rescued, _ = extend_loci(
                    space, lane.fm.ref_planes, on_device, longest, near.loci, near.read,
                    params.extend,
                )  # fmt: skip
    return _Done(packed, found.summary, alignments, rescued)


def download_loci(space: Workspace, loci: LocusBatch) -> LocusBatch:
    """Return the batch with host arrays; waits for the stream."""
    host = [space.download(f"locus.{i}", column) for i, column in enumerate(loci)]
    space.synchronize()
    return LocusBatch._make(column.copy() for column in host)


def _rows(reads: ReadBatch, start: int, end: int) -> ReadBatch:
    """Return reads start:end as a batch."""
    first, last = reads.base_offsets[start], reads.base_offsets[end]
    name_first, name_last = reads.name_offsets[start], reads.name_offsets[end]
    return ReadBatch(
        bases=reads.bases[first:last],
        quals=reads.quals[first:last],
        base_offsets=reads.base_offsets[start : end + 1] - first,
        names=reads.names[name_first:name_last],
        name_offsets=reads.name_offsets[start : end + 1] - name_first,
        first_read=reads.first_read + start,
        paired=reads.paired,
    )


def _join_offsets(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Join the bounds of ragged rows that follow one another."""
    joined = [parts[0]]
    for part in parts[1:]:
        joined.append(joined[-1][-1] + part[1:])
    return np.concatenate(joined)


def _join_packed(parts: Sequence[PackedReads | None]) -> PackedReads | None:
    first, second = parts
    if first is None or second is None:
        return None
    return PackedReads(
        np.concatenate([first.planes[:-1], second.planes]),  # one row of padding, at the end
        _join_offsets([first.word_offsets, second.word_offsets]),
    )


def _join_summaries(parts: Sequence[SeedSummary]) -> SeedSummary:
    return SeedSummary._make(np.concatenate(column) for column in zip(*parts, strict=True))


def _join_alignments(parts: Sequence[AlignmentBatch]) -> AlignmentBatch:
    columns = [np.concatenate(column) for column in zip(*(p[1:9] for p in parts), strict=True)]
    return AlignmentBatch._make(
        (
            _join_offsets([part.alignment_offsets for part in parts]),
            *columns,
            _join_offsets([part.cigar_offsets for part in parts]),
            np.concatenate([part.cigar_ops for part in parts]),
        )
    )
