"""Batches cut in two, joined, and cut out of larger ones: a device's input and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapper.batch import AlignmentBatch, PackedReads, ReadBatch, SeedSummary
from mapper.ragged import join_offsets


class Found(NamedTuple):
    """What a device found for the reads of a batch."""

    packed: PackedReads | None
    """None where mates have been rescued: nothing else needs it."""
    seeds: SeedSummary
    alignments: AlignmentBatch


class Share(NamedTuple):
    """The part of a device's results that belongs to one of the batches that it was given."""

    whole: Found
    start: int
    end: int
    """Reads of `whole`."""

    def cut(self) -> Found:
        """Return it as the results of a batch of its own; columns stay views of the whole."""
        found, start, end = self
        if start == 0 and end == len(found.seeds.guarantee):
            return found
        return Found(
            None if found.packed is None else packed_of(found.packed, start, end),
            SeedSummary._make(column[start:end] for column in found.seeds),
            alignments_of(found.alignments, start, end),
        )


def reads_of(reads: ReadBatch, start: int, end: int) -> ReadBatch:
    """Return reads start:end as a batch, without their tags."""
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


def packed_of(packed: PackedReads, start: int, end: int) -> PackedReads:
    """Return the bit planes of reads start:end, as a copy with its own row of padding."""
    first, last = packed.word_offsets[[start, end]]
    planes = np.zeros((last - first + 1, 3), np.uint64)
    planes[:-1] = packed.planes[first:last]
    return PackedReads(planes, packed.word_offsets[start : end + 1] - first)


def alignments_of(batch: AlignmentBatch, start: int, end: int) -> AlignmentBatch:
    """Return the alignments of reads start:end."""
    first, last = batch.alignment_offsets[[start, end]]
    op, last_op = batch.cigar_offsets[[first, last]]
    columns = [column[first:last] for column in batch[1:9]]
    return AlignmentBatch._make(
        (
            batch.alignment_offsets[start : end + 1] - first,
            *columns,
            batch.cigar_offsets[first : last + 1] - op,
            batch.cigar_ops[op:last_op],
        )
    )


def join_packed(parts: Sequence[PackedReads]) -> PackedReads:
    """Join bit planes, with one row of padding behind the last."""
    planes = [part.planes[:-1] for part in parts[:-1]]
    return PackedReads(
        np.concatenate([*planes, parts[-1].planes]),
        join_offsets([part.word_offsets for part in parts]),
    )


def join_summaries(parts: Sequence[SeedSummary]) -> SeedSummary:
    """Join what is known of the reads of batches that follow one another."""
    return SeedSummary._make(np.concatenate(column) for column in zip(*parts, strict=True))


def join_alignments(parts: Sequence[AlignmentBatch]) -> AlignmentBatch:
    """Join the alignments of batches that follow one another."""
    columns = [np.concatenate(column) for column in zip(*(p[1:9] for p in parts), strict=True)]
    return AlignmentBatch._make(
        (
            join_offsets([part.alignment_offsets for part in parts]),
            *columns,
            join_offsets([part.cigar_offsets for part in parts]),
            np.concatenate([part.cigar_ops for part in parts]),
        )
    )
