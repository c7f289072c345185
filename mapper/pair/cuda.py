"""CUDA kernels of mate rescue: propose loci, one warp for each pair."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.batch import AlignmentBatch, LocusBatch
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace
from mapper.cuda.warp import WARP, WarpLanes
from mapper.cuda.worklist import (
    POOL,
    Pool,
    columns,
    first_capacity,
    offsets_of,
    queue_total,
    threads_for,
)
from mapper.index.reference import ContigBounds
from mapper.jit.lanes import lane_max, lanes_meet
from mapper.pair.insert_size import InsertSizeModel
from mapper.pair.pairing import best_pair_score
from mapper.pair.rescue import MOST_IN_WINDOW, rescue_anchors, search_near
from mapper.params import ExtendParams, PairParams
from mapper.seed.cuda import DeviceReads, DeviceSeeds

NEXT_PAIR = POOL + 1
"""Counter from which warps take their next pair: the work differs much between pairs."""


class Proposed(NamedTuple):
    """Columns of proposed loci, in the order of their discovery by warps."""

    strand: Any  # uint8
    diagonal: Any  # int64
    ref_id: Any  # int32


class PerWarp(NamedTuple):
    """Diagonals of one read and their anchors; the workspaces of warps follow each other."""

    diagonal: Any  # int64
    anchor: Any  # int64


class DeviceProposals(NamedTuple):
    """A LocusBatch on the device, and the read of each locus."""

    loci: LocusBatch
    read: Any  # int32 (n_loci,)


@kernel(128)
def _propose(text_planes, reads, contigs, alignments, guarantee, model, params, scores,
             counters, n_pairs, n_threads, room, scratch, ends, pool, proposed):  # fmt: skip
    """Propose loci for both mates of a pair; each warp takes one pair at a time.

    `ends` is a workspace: int64, an item for each alignment.
    """
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    first_row = (thread // WARP) * room
    diagonals = scratch.diagonal[first_row : first_row + room]
    anchors = scratch.anchor[first_row : first_row + room]
    while True:
        taken = np.int64(-1)
        if lanes.lane == 0:
            taken = cuda.atomic.add(counters, NEXT_PAIR, 1)
        pair = lane_max(taken, lanes)
        if pair >= n_pairs:
            break
        ends_of_pair = ends[alignments.alignment_offsets[2 * pair + 1] :]
        score = best_pair_score(
            reads.base_offsets, alignments, 2 * pair, model, ends_of_pair, lanes
        )
        for read in range(2 * pair, 2 * pair + 2):
            first, end = rescue_anchors(
                reads.base_offsets, alignments, guarantee, read, score, params, scores
            )
            n = np.int64(0)
            for anchor in range(first, end):
                n_found, _ = search_near(
                    text_planes, reads.base_offsets, reads.planes, reads.word_offsets, contigs,
                    alignments, model, read, anchor, diagonals[n : n + MOST_IN_WINDOW], lanes,
                )  # fmt: skip
                for i in range(lanes.lane, n_found, WARP):
                    anchors[n + i] = anchor
                n += n_found
            lanes_meet(lanes)
            start = np.int64(-1)
            if lanes.lane == 0:
                pool.count[read] = n
                if n:
                    start = cuda.atomic.add(counters, POOL, n)
                    pool.start[read] = start
            if n == 0:
                continue
            start = lane_max(start, lanes)
            if start + n <= len(proposed.strand):
                for i in range(lanes.lane, n, WARP):
                    anchor = anchors[i]
                    proposed.strand[start + i] = 1 - np.int64(alignments.strand[anchor])
                    proposed.diagonal[start + i] = diagonals[i]
                    proposed.ref_id[start + i] = alignments.ref_id[anchor]
            lanes_meet(lanes)


@kernel(128)
def _gather_proposed(n_reads, contigs, pool, proposed, loci, locus_read):
    """Copy loci from the pool to their rows, one read for each thread."""
    read = cuda.grid(1)
    if read < n_reads:
        start, row = pool.start[read], loci.locus_offsets[read]
        for i in range(pool.count[read]):
            contig = proposed.ref_id[start + i]
            loci.strand[row + i] = proposed.strand[start + i]
            loci.diagonal[row + i] = proposed.diagonal[start + i]
            loci.ref_id[row + i] = contig
            loci.window_start[row + i] = contigs.starts[contig]
            loci.window_end[row + i] = contigs.starts[contig] + contigs.lengths[contig]
            locus_read[row + i] = read


def propose_loci(
    space: Workspace, text_planes: Any, contigs: ContigBounds, reads: DeviceReads,
    seeds: DeviceSeeds, alignments: AlignmentBatch, model: InsertSizeModel, params: PairParams,
    scores: ExtendParams,
) -> DeviceProposals:  # fmt: skip
    """Propose loci near mates' alignments, as :func:`mapper.pair.rescue.propose_loci` does.

    Parameters
    ----------
    text_planes, contigs, alignments
        On the device.
    model
        On the host.

    Returns
    -------
    Arrays that are valid until `space` is used for another batch. Waits for the stream.
    """
    n_reads = len(reads.base_offsets) - 1
    room = params.max_rescue * MOST_IN_WINDOW
    n_warps = threads_for(n_reads // 2, 16 * room)
    scratch = columns(space, "rescue.scratch", PerWarp, ("i8", "i8"), n_warps * room)
    ends = space.device("rescue.ends", len(alignments.strand), np.int64)
    pool = columns(space, "rescue.pool", Pool, ("i4", "i8"), n_reads)
    device_model = model._replace(penalty=space.upload("rescue.penalty", model.penalty))
    capacity = first_capacity(n_reads, 1)
    while True:
        counters = space.upload("counters", np.zeros(2, np.int64))
        proposed = columns(space, "rescue.proposed", Proposed, ("u1", "i8", "i4"), capacity)
        _propose.launch(
            n_warps * WARP, space.stream, text_planes, reads, contigs, alignments,
            seeds.per_read.guarantee, device_model, params, scores, counters,
            n_reads // 2, n_warps * WARP, room, scratch, ends, pool, proposed,
        )  # fmt: skip
        offsets = offsets_of(space, "rescue.offsets", pool.count, n_reads)
        total = queue_total(space, "rescue.offsets", offsets)
        n_found = space.download("counters", counters)
        space.synchronize()
        if n_found[POOL] <= capacity:
            break
        capacity = int(n_found[POOL])
    n_loci = int(total[0])
    loci = LocusBatch(
        locus_offsets=offsets,
        strand=space.device("rescue.strand", n_loci, np.uint8),
        diagonal=space.device("rescue.diagonal", n_loci, np.int64),
        ref_id=space.device("rescue.ref_id", n_loci, np.int32),
        window_start=space.device("rescue.window_start", n_loci, np.int64),
        window_end=space.device("rescue.window_end", n_loci, np.int64),
    )
    read = space.device("rescue.read", n_loci, np.int32)
    _gather_proposed.launch(n_reads, space.stream, n_reads, contigs, pool, proposed, loci, read)
    return DeviceProposals(loci, read)
