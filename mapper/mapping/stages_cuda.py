"""The stages that a device does: reads → seeds → loci → alignments, as on the CPU.

A lane is a stream with its workspace; a thread that brings a batch takes a free lane, waits
until the batch is done, and gives the lane back. With several lanes the copies of one batch
overlap the kernels of another, and short kernels share the device. With several devices each
has lanes of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from mapper.batch import ReadBatch
from mapper.batch_ops import (
    Found,
    Share,
    join_alignments,
    join_packed,
    join_summaries,
    reads_of,
)
from mapper.chain.cuda import find_loci
from mapper.cuda.api import cuda, knowing_its_device
from mapper.cuda.memory import Workspace, free_bytes, result_memory
from mapper.cuda.upload import upload
from mapper.errors import DeviceMemoryError
from mapper.extend.cuda import download_alignments, extend_loci
from mapper.extend.merge_cuda import merge_on_device
from mapper.index.cuda import expand_suffix_array
from mapper.index.fm import FMIndex
from mapper.index.reference import ContigBounds, Index
from mapper.mapping.memory_plan import device_batch_bases
from mapper.mapping.stages import align_reads, rescue_mates
from mapper.mapping.stats import ON_CPU, RunStats
from mapper.pair.cuda import propose_loci
from mapper.pair.insert_size import InsertSizeModel
from mapper.parallel.map import map_in_threads
from mapper.params import DEVICE_LANES, MapParams
from mapper.seed.cuda import download_packed, seed_reads, upload_reads

log = logging.getLogger(__name__)


class Lane(NamedTuple):
    """What one batch needs of a device."""

    on_host: Index
    ordinal: int
    fm: FMIndex
    contigs: ContigBounds
    space: Workspace


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

    def __init__(self, index: Index, ordinals: Sequence[int], lanes: int = DEVICE_LANES) -> None:
        self._free: SimpleQueue[Lane] = SimpleQueue()

        def begin(ordinal: int) -> list[Lane]:
            with cuda.gpus[ordinal]:
                fm = upload(index.fm, f"the index {index.meta.source_name}")
                fm = expand_suffix_array(fm)
                contigs = upload(
                    ContigBounds(index.contigs.starts, index.contigs.lengths), "the contigs"
                )
                slabs = result_memory()
                return [
                    Lane(index, ordinal, fm, contigs, Workspace(slabs, sleeps=True))
                    for _ in range(lanes)
                ]

        made = map_in_threads(begin, ordinals, len(ordinals))
        self.lanes = [lane for turn in zip(*made, strict=True) for lane in turn]  # by turns
        for lane in self.lanes:
            self._free.put(lane)
        self.batch_bases = min(_batch_bases(i, ordinals.count(i) * lanes) for i in set(ordinals))
        """Bases in a batch for which the free memory of every device suffices, about."""

    def align(
        self, reads: ReadBatch, params: MapParams, stats: RunStats,
        model: InsertSizeModel | None = None,
    ) -> Found:  # fmt: skip
        """Do the one batch: see :meth:`align_batches`."""
        (share,) = self.align_batches([reads], params, stats, model)
        return share.cut()

    def align_batches(
        self, batches: Sequence[ReadBatch], params: MapParams, stats: RunStats,
        model: InsertSizeModel | None = None,
    ) -> list[Share]:  # fmt: skip
        """Pack, seed, chain and extend every read for itself; identical to the CPU's results.

        Batches, all of pairs or all of single reads, are done as one. With the insert-size
        `model`, mates are rescued too, and packed reads, which serve only for that on the
        host, are not returned. What the device's memory does not suffice for is done in halves, and
        a read or pair that does not fit alone by the CPU.

        Returns
        -------
        Each batch's share of the results. These lie in page-locked memory, which is used again
        when nothing refers to them any more.
        """
        lane = self._free.get()
        try:
            with cuda.gpus[lane.ordinal]:
                return knowing_its_device(_align)(lane, batches, params, stats, model)
        finally:
            self._free.put(lane)


def _batch_bases(ordinal: int, lanes: int) -> int:
    with cuda.gpus[ordinal]:
        return device_batch_bases(free_bytes(), lanes)


def _align(
    lane: Lane, batches: Sequence[ReadBatch], params: MapParams, stats: RunStats,
    model: InsertSizeModel | None,
) -> list[Share]:  # fmt: skip
    try:
        return _align_at_once(lane, batches, params, stats, model)
    except DeviceMemoryError as error:
        lane.space.release()
        step = 2 if batches[0].paired else 1  # mates stay together
        if len(batches) == 1 and batches[0].n_reads < 2 * step:
            if not stats.counts.get(ON_CPU):
                log.warning("%s; reads that do not fit even alone are mapped by the CPU", error)
            stats.count(**{ON_CPU: batches[0].n_reads})
            found = _on_cpu(lane.on_host, batches[0], params, stats, model)
            return [Share(found, 0, batches[0].n_reads)]
    if len(batches) > 1:
        n = len(batches) // 2
        return [
            share
            for half in (batches[:n], batches[n:])
            for share in _align(lane, half, params, stats, model)
        ]
    (reads,) = batches
    middle = reads.n_reads // (2 * step) * step
    halves = [
        _align(lane, [half], params, stats, model)[0].cut()
        for half in (reads_of(reads, 0, middle), reads_of(reads, middle, reads.n_reads))
    ]
    return [Share(_join(halves), 0, reads.n_reads)]


def _on_cpu(
    index: Index, reads: ReadBatch, params: MapParams, stats: RunStats,
    model: InsertSizeModel | None,
) -> Found:  # fmt: skip
    """Return what the device would have found."""
    aligned = align_reads(index, reads, params, stats)
    if model is None:
        return Found(aligned.packed, aligned.seeds, aligned.alignments)
    alignments = aligned.alignments
    if reads.paired:
        alignments = rescue_mates(index, aligned, model, params, stats)
    return Found(None, aligned.seeds, alignments)


def _join(parts: Sequence[Found]) -> Found:
    """Join what was found for batches that follow one another."""
    packed = [part.packed for part in parts if part.packed is not None]
    return Found(
        join_packed(packed) if packed else None,
        join_summaries([part.seeds for part in parts]),
        join_alignments([part.alignments for part in parts]),
    )


def _align_at_once(
    lane: Lane, batches: Sequence[ReadBatch], params: MapParams, stats: RunStats,
    model: InsertSizeModel | None,
) -> list[Share]:  # fmt: skip
    space = lane.space
    with stats.stage("pack"):
        on_device, longest = upload_reads(space, batches)
        packed = None if model is not None else download_packed(space, on_device)
    with stats.stage("seed"):
        found = seed_reads(space, lane.fm, on_device, longest, params.seed)
    with stats.stage("chain"):
        loci = find_loci(space, lane.contigs, found)
    with stats.stage("extend"):
        there = extend_loci(
            space, lane.fm.ref_planes, on_device, longest, loci, found.read, params.extend,
            params.keep,
        )  # fmt: skip
        if model is None or not batches[0].paired:
            alignments = download_alignments(space, there)
    if model is not None and batches[0].paired:
        with stats.stage("rescue"):
            near = propose_loci(
                space, lane.fm.ref_planes, lane.contigs, on_device, found, there.batch, model,
                params.pair, params.extend,
            )  # fmt: skip
            if near.host_offsets[-1]:
                rescued = extend_loci(
                    space, lane.fm.ref_planes, on_device, longest, near.loci, near.read,
                    params.extend, params.keep, "rescued",
                )  # fmt: skip
                there = merge_on_device(space, there, rescued)
            alignments = download_alignments(space, there)
    whole = Found(packed, found.summary, alignments)
    ends = np.cumsum([reads.n_reads for reads in batches]).tolist()
    return [
        Share(whole, end - reads.n_reads, end) for reads, end in zip(batches, ends, strict=True)
    ]
