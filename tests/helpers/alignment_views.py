"""Alignments of a batch as objects, and loci from plain tuples."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mapper import cigar
from mapper.batch import AlignmentBatch, LocusBatch
from tests.helpers.read_batches import Genome, offsets_of


class Aligned(NamedTuple):
    """One row of an AlignmentBatch."""

    strand: int
    ref_id: int
    text_start: int
    text_end: int
    query_start: int
    query_end: int
    score: int
    edit_distance: int
    cigar: str


def alignments_of(batch: AlignmentBatch) -> list[list[Aligned]]:
    """Return the alignments of each read."""
    assert batch.alignment_offsets[0] == batch.cigar_offsets[0] == 0
    assert batch.alignment_offsets[-1] == len(batch.strand) == len(batch.cigar_offsets) - 1
    assert batch.cigar_offsets[-1] == len(batch.cigar_ops)
    rows = [
        Aligned(
            *(int(column[i]) for column in batch[1:9]),
            cigar.to_text(batch.cigar_ops[batch.cigar_offsets[i] : batch.cigar_offsets[i + 1]]),
        )
        for i in range(len(batch.strand))
    ]
    offsets = batch.alignment_offsets.tolist()
    return [rows[a:b] for a, b in pairwise(offsets)]


def batch_of(reads: list[list[Aligned]]) -> AlignmentBatch:
    """Return the batch that holds these alignments, in this order."""
    rows = [row for read in reads for row in read]
    columns = list(zip(*rows, strict=True)) if rows else [()] * 9
    types = "u1 i4 i8 i8 i4 i4 i4 i4"
    ops = [cigar.from_text(text) for text in columns[8]]
    return AlignmentBatch(
        offsets_of([len(read) for read in reads]),
        *(np.array(c, np.dtype(t)) for c, t in zip(columns[:8], types.split(), strict=True)),
        offsets_of([len(op) for op in ops]),
        np.concatenate([np.empty(0, np.uint32), *ops]),
    )


def loci_of(genome: Genome, places: list[list[tuple[int, int]]]) -> LocusBatch:
    """Return loci of (strand, diagonal) for each read; a diagonal's middle names the contig."""
    flat = [place for read in places for place in read]
    diagonal = np.array([d for _, d in flat], np.int64)
    ref_id = np.searchsorted(genome.starts, np.maximum(diagonal + 5, 0), side="right") - 1
    return LocusBatch(
        locus_offsets=offsets_of([len(read) for read in places]),
        strand=np.array([s for s, _ in flat], np.uint8),
        diagonal=diagonal,
        ref_id=ref_id.astype(np.int32),
        window_start=genome.starts[ref_id],
        window_end=genome.starts[ref_id] + genome.lengths[ref_id],
    )
