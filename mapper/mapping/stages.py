"""The stages on the CPU: pure functions from batch to batch.

Packing, seeding, chaining, extension and rescue have a second form for CUDA devices with the same
results (:mod:`mapper.mapping.stages_cuda`). So have placement and records, as BAM, of short reads
that bring no tags of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from mapper.batch import (
    AlignmentBatch,
    AnchorBatch,
    BatchSize,
    ChainBatch,
    EncodedBatch,
    LinkBatch,
    PackedReads,
    ReadBatch,
    RecordBatch,
    SeedSummary,
)
from mapper.batch_ops import join_alignments
from mapper.chain.cpu import chain_anchors, find_loci
from mapper.chain.weak import choose_chains, weak_reads
from mapper.extend.chains import ChainSupport, align_chains
from mapper.extend.cpu import extend_loci
from mapper.extend.detours import drop_detours
from mapper.extend.doubt import doubtful_reads, mates_of_doubtful_pairs
from mapper.extend.merge import merge_alignments
from mapper.extend.piece_plan import NO_PIECES, DonePieces
from mapper.index.index import Index
from mapper.index.reference import ContigBounds
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import InsertSizeModel
from mapper.pair.long_placement import place_long_reads
from mapper.pair.placement import PlacementBatch, place_reads
from mapper.pair.records import NO_ANCHORS, Names, make_records
from mapper.pair.rescue import propose_loci
from mapper.params import AnchorParams, MapParams, SeedParams
from mapper.seed.cpu import Stretches, find_anchors, find_stretches, seed_reads
from mapper.seed.pack import pack_reads


class Aligned(NamedTuple):
    """A batch after extension."""

    reads: ReadBatch
    packed: PackedReads | None
    """None after rescue on a device: no later stage reads it."""
    seeds: SeedSummary
    alignments: AlignmentBatch
    rescued: bool
    """True if mates have been rescued already."""


class LongReads(NamedTuple):
    """Long reads of a batch, and where they have windows, for a device."""

    reads: ReadBatch
    stretches: Stretches


class LongChained(NamedTuple):
    """Long reads after chaining."""

    reads: ReadBatch
    packed: PackedReads
    chains: ChainBatch
    frequent: np.ndarray  # int32 (n_reads,): of AnchorBatch
    done: DonePieces = NO_PIECES


class LongAligned(NamedTuple):
    """Long reads after extension."""

    reads: ReadBatch
    alignments: AlignmentBatch
    support: ChainSupport
    frequent: np.ndarray  # int32 (n_reads,): of AnchorBatch


class AlignedBatch(NamedTuple):
    """A batch after extension, in parts if it mixes pairs, single reads and long ones."""

    reads: ReadBatch
    rows: list[np.ndarray]  # of each part: its reads' numbers in the batch
    parts: list[Aligned | LongAligned]


class EncodedReads(NamedTuple):
    """A batch whose records a device has made: it comes in place of an AlignedBatch."""

    size: BatchSize
    records: EncodedBatch


class LeftToHost(Enum):
    """Why a device has not mapped FASTQ, which the host has to parse then."""

    ODD = "not all are short and in plain FASTQ"
    NO_MEMORY = "the device had no memory for a group of them"
    NO_RECORDS = "the device has no memory for records"


def align_reads(index: Index, reads: ReadBatch, params: MapParams, stats: RunStats) -> Aligned:
    """Seed, chain and extend every read; those in doubt twice, and pairs in doubt three times."""
    contigs = index.contigs
    with stats.stage("pack"):
        packed = pack_reads(reads)

    def look(how: SeedParams, chosen: np.ndarray | None) -> tuple[SeedSummary, AlignmentBatch]:
        with stats.stage("seed"):
            seeds = seed_reads(index.fm, reads, packed, how, index.present_kmers, chosen)
        with stats.stage("chain"):
            loci = find_loci(seeds, contigs.starts, contigs.lengths)
        with stats.stage("extend"):
            found = extend_loci(index.text_planes, reads, packed, loci, params.extend, params.keep)
        return SeedSummary(seeds.guarantee, seeds.thinned), found

    def look_again(how: SeedParams, chosen: np.ndarray) -> tuple[SeedSummary, AlignmentBatch]:
        if not chosen.any():
            return summary, alignments
        again, found = look(how, chosen)
        with stats.stage("extend"):
            merged = merge_alignments(alignments, found)
        columns = zip(summary, again, strict=True)
        return SeedSummary(*(np.where(chosen, new, old) for old, new in columns)), merged

    summary, alignments = look(params.seed, None)
    chosen = doubtful_reads(reads, summary.guarantee, alignments, params.extend)
    summary, alignments = look_again(params.second_look, chosen)
    if reads.paired:
        chosen = mates_of_doubtful_pairs(reads, summary, alignments, params.extend)
        summary, alignments = look_again(params.third_look, chosen)
    return Aligned(reads, packed, summary, alignments, rescued=False)


def align_long_reads(
    index: Index, reads: ReadBatch, params: MapParams, stats: RunStats
) -> LongAligned:
    """Seed, chain and extend long single reads; those of which chains explain little seed twice."""
    chained = seed_long_reads(index, reads, params, stats)
    return extend_long_reads(index, reads, [chained], params, stats)


def seed_long_reads(
    index: Index, reads: ReadBatch, params: MapParams, stats: RunStats
) -> LongChained:
    """Seed and chain long reads."""
    with stats.stage("pack"):
        packed = pack_reads(reads)
    with stats.stage("seed"):
        anchors = find_anchors(index.fm, reads, packed, params.long.anchors)
    return chain_long_reads(index, reads, packed, anchors, params, stats)


def long_reads_of(reads: ReadBatch, params: AnchorParams) -> LongReads:
    """Find the stretches of long reads."""
    return LongReads(reads, find_stretches(reads, params))


def chain_long_reads(
    index: Index, reads: ReadBatch, packed: PackedReads, anchors: AnchorBatch, params: MapParams,
    stats: RunStats, links: LinkBatch | None = None,
) -> LongChained:  # fmt: skip
    """Chain the sorted anchors of long reads; seed those again of which chains explain little.

    `links` are those of the anchors if they are known.
    """
    contigs = index.contigs
    with stats.stage("chain"):
        chains = chain_anchors(anchors, contigs.starts, params.long.chain, links)
    frequent = anchors.frequent
    weak = weak_reads(reads.base_offsets, chains, params.long.weak_share)
    if weak.any():
        with stats.stage("seed"):
            anchors = find_anchors(index.fm, reads, packed, params.long.second_look, weak)
        with stats.stage("chain"):
            again = chain_anchors(anchors, contigs.starts, params.long.chain)
            chains = choose_chains(chains, again, weak)
        frequent = np.where(weak, anchors.frequent, frequent)
    with stats.stage("chain"):
        chains = drop_detours(chains, params.long.scoring)
    return LongChained(reads, packed, chains, frequent)


def extend_long_reads(
    index: Index, reads: ReadBatch, parts: Sequence[LongChained], params: MapParams,
    stats: RunStats,
) -> LongAligned:  # fmt: skip
    """Align long reads along their chains; `parts` are consecutive reads of the batch."""
    bounds = ContigBounds(index.contigs.starts, index.contigs.lengths)
    with stats.stage("extend"):
        found = [
            align_chains(
                index.text_planes,
                part.reads,
                part.packed,
                part.chains,
                bounds,
                params.long,
                part.done,
            )
            for part in parts
        ]
        alignments, support = found[0]
        if len(parts) > 1:
            alignments = join_alignments([alignments for alignments, _ in found])
            columns = zip(*(support for _, support in found), strict=True)
            support = ChainSupport._make(np.concatenate(column) for column in columns)
    return LongAligned(reads, alignments, support, np.concatenate([p.frequent for p in parts]))


def rescue_mates(
    index: Index, aligned: Aligned, model: InsertSizeModel, params: MapParams, stats: RunStats
) -> AlignmentBatch:
    """Return the alignments, and those of mates found near each other's alignments.

    Raises
    ------
    ValueError
        If the mates of these reads have been rescued already.
    """
    reads, packed, seeds, alignments, _ = aligned
    contigs = index.contigs
    if packed is None:
        raise ValueError("the mates of these reads have been rescued already")
    with stats.stage("rescue"):
        loci = propose_loci(
            index.text_planes, reads, packed, contigs.starts, contigs.lengths, seeds,
            alignments, model, params.pair, params.extend,
        )  # fmt: skip
        if len(loci.strand):
            rescued = extend_loci(
                index.text_planes, reads, packed, loci, params.extend, params.keep
            )
            alignments = merge_alignments(alignments, rescued)
    return alignments


def place_batch(
    index: Index, aligned: Aligned | LongAligned, model: InsertSizeModel, params: MapParams,
    names: Names, stats: RunStats,
) -> tuple[PlacementBatch, RecordBatch]:  # fmt: skip
    """Rescue mates unless that has been done, choose placements and make records."""
    reads, alignments = aligned.reads, aligned.alignments
    record_params, n_anchors = params.record, NO_ANCHORS
    groups = index.contigs.groups
    if isinstance(aligned, LongAligned):
        record_params = record_params.for_long_reads()
        n_anchors = aligned.support.n_anchors
        with stats.stage("place"):
            placements = place_long_reads(
                reads, alignments, aligned.support, aligned.frequent, params.long, groups
            )
    else:
        if reads.paired and not aligned.rescued:
            alignments = rescue_mates(index, aligned, model, params, stats)
        with stats.stage("place"):
            placements = place_reads(
                reads, aligned.seeds, alignments, model, params.pair, params.extend,
                index.fm.n_rows - 1, groups,
            )  # fmt: skip
    with stats.stage("records"):
        records = make_records(
            reads, alignments, placements, names, index.text_planes, record_params, n_anchors
        )
    return placements, records
