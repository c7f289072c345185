"""Split, merge, slice and join batches, and compute offsets of ragged rows.

Loops over offsets are compiled, because NumPy releases the GIL in some of them, or holds it for
long, and the threads of a run then wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapper.batch import (
    NO_OFFSETS,
    NO_TAGS,
    AlignmentBatch,
    PackedReads,
    ReadBatch,
    RecordBatch,
    SeedSummary,
)
from mapper.jit.accelerate import brief, driver
from mapper.sam_flags import PAIRED

# --- ragged rows ---


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Return the offsets (int64, n + 1) of n ragged rows, given their lengths."""
    offsets = np.empty(len(counts) + 1, np.int64)
    _accumulate(counts, offsets)
    return offsets


@driver
def _accumulate(counts, offsets):
    total = np.int64(0)
    offsets[0] = 0
    for i in range(len(counts)):
        total += counts[i]
        offsets[i + 1] = total


@driver
def longest_row(offsets):
    """Return the length of the longest row; 0 without rows."""
    longest = np.int64(0)
    for row in range(len(offsets) - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    return longest


def join_offsets(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Join the offsets (int64, n + 1 for n rows) of consecutive ragged rows."""
    joined = np.empty(1 + sum(len(part) - 1 for part in parts), np.int64)
    joined[0] = parts[0][0]
    at = 0
    for part in parts:
        _append_offsets(joined, at, part)
        at += len(part) - 1
    return joined


@brief
def _append_offsets(joined, at, part):
    """Append the offsets of `part` after those of the first `at` rows."""
    shift = joined[at] - part[0]
    for i in range(1, len(part)):
        joined[at + i] = part[i] + shift


# --- batches that mix pairs, single reads and long reads ---


class Part(NamedTuple):
    """The pairs of a batch, its single reads, or its long reads."""

    reads: ReadBatch  # without tags: these stay with the whole batch
    rows: np.ndarray  # int32: their rows in the whole batch, ascending
    is_long: bool = False


def split_mixed(reads: ReadBatch, longest_short: int) -> list[Part]:
    """Split a batch that mixes pairs, single reads and long ones, as a stage takes only one kind.

    Each part has its rows in input order, and :func:`merge_mixed` restores the order of all. So the
    result is that of batches cut wherever the kind changes.

    Parameters
    ----------
    longest_short
        Single reads of more bases are long.

    Returns
    -------
    Pairs before single reads before long ones; one part, not copied, for a batch of one kind.
    """
    whole = reads._replace(tags=NO_TAGS, tag_offsets=NO_OFFSETS)
    kind = np.zeros(reads.n_reads, np.uint8)  # 0: pairs, 1: single reads, 2: long reads
    if not reads.paired:
        kind[:] = 1
        if len(reads.flags):
            kind[(reads.flags & PAIRED) != 0] = 0
        kind[(kind > 0) & (np.diff(reads.base_offsets) > longest_short)] = 2
    if reads.n_reads == 0 or (kind == kind[0]).all():
        rows = np.arange(reads.n_reads, dtype=np.int32)
        return [Part(whole, rows, reads.n_reads > 0 and bool(kind[0] == 2))]
    parts = []
    for value in range(3):
        rows = np.flatnonzero(kind == value).astype(np.int32)
        if len(rows):
            parts.append(Part(_take_reads(whole, rows, value == 0), rows, value == 2))
    return parts


def merge_mixed(records: Sequence[RecordBatch], rows: Sequence[np.ndarray]) -> RecordBatch:
    """Merge the records of all parts in the order of the whole batch's rows.

    Parameters
    ----------
    records
        Records of each part; ``read`` is a row of the part.
    rows
        Rows of each part in the whole batch, int32, ascending.
    """
    if len(records) == 1:
        return records[0]
    read = np.concatenate([r[batch.read] for batch, r in zip(records, rows, strict=True)])
    order = np.argsort(read, kind="stable")
    columns = {
        name: np.concatenate([getattr(batch, name) for batch in records])
        for name in RecordBatch._fields
        if not name.endswith("_offsets")
    }
    taken = {
        name: column[order] for name, column in columns.items() if name not in ("cigar_ops", "tags")
    }
    taken["read"] = read[order]
    for name, offsets_name in (("cigar_ops", "cigar_offsets"), ("tags", "tag_offsets")):
        lengths = np.concatenate([np.diff(getattr(batch, offsets_name)) for batch in records])
        taken[name], taken[offsets_name] = _take_ragged(columns[name], lengths, order)
    return RecordBatch(**taken)


def _take_reads(reads: ReadBatch, rows: np.ndarray, paired: bool) -> ReadBatch:
    lengths = np.diff(reads.base_offsets)
    bases, base_offsets = _take_ragged(reads.bases, lengths, rows)
    quals, _ = _take_ragged(reads.quals, lengths, rows)
    names, name_offsets = _take_ragged(reads.names, np.diff(reads.name_offsets), rows)
    return reads._replace(
        bases=bases, quals=quals, base_offsets=base_offsets, names=names,
        name_offsets=name_offsets, paired=paired,
        flags=reads.flags[rows] if len(reads.flags) else reads.flags,
    )  # fmt: skip


def _take_ragged(
    flat: np.ndarray, lengths: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the given rows of a ragged column, and their offsets."""
    offsets = offsets_of(lengths[rows])
    taken = np.empty(offsets[-1], flat.dtype)
    _copy_rows(flat, offsets_of(lengths), rows, taken, offsets)
    return taken, offsets


# --- rows and joins of reads and records ---


def take_records(records: RecordBatch, rows: np.ndarray) -> RecordBatch:
    """Return some records: int64 rows, in any order; consecutive ones are not copied."""
    n = len(rows)
    if n and rows[-1] - rows[0] == n - 1 and (n == 1 or (np.diff(rows) == 1).all()):
        return _slice_records(records, int(rows[0]), int(rows[-1]) + 1)
    taken: dict[str, np.ndarray] = {}
    for name, offsets_name in (("cigar_ops", "cigar_offsets"), ("tags", "tag_offsets")):
        flat, offsets = getattr(records, name), getattr(records, offsets_name)
        own = offsets_of(np.diff(offsets)[rows])
        taken[name], taken[offsets_name] = np.empty(own[-1], flat.dtype), own
        _copy_rows(flat, offsets, rows, taken[name], own)
    fixed = {
        name: column[rows]
        for name, column in zip(records._fields, records, strict=True)
        if name not in taken
    }
    return RecordBatch(**fixed, **taken)


def _slice_records(records: RecordBatch, start: int, end: int) -> RecordBatch:
    cut = {
        name: column[start:end]
        for name, column in zip(records._fields, records, strict=True)
        if name not in ("cigar_ops", "tags", "cigar_offsets", "tag_offsets")
    }
    for name, offsets_name in (("cigar_ops", "cigar_offsets"), ("tags", "tag_offsets")):
        offsets = getattr(records, offsets_name)[start : end + 1]
        cut[name] = getattr(records, name)[offsets[0] : offsets[-1]]
        cut[offsets_name] = offsets - offsets[0]
    return RecordBatch(**cut)


@driver
def _copy_rows(flat, offsets, rows, out, out_offsets):
    for i in range(len(rows)):
        start = offsets[rows[i]]
        for j in range(out_offsets[i + 1] - out_offsets[i]):
            out[out_offsets[i] + j] = flat[start + j]


def join_reads(parts: Sequence[ReadBatch]) -> ReadBatch:
    """Join consecutive batches: all of pairs, all of single reads, or mixed."""
    if len(parts) == 1:
        return parts[0]
    has_tags = any(len(part.tag_offsets) for part in parts)
    flags = [part.flags for part in parts]
    if len({len(part.flags) > 0 for part in parts}) > 1:  # no flags: all are single reads
        flags = [p.flags if len(p.flags) else np.zeros(p.n_reads, np.uint16) for p in parts]
    tags, tag_offsets = NO_TAGS, NO_OFFSETS
    if has_tags:
        offsets = [
            part.tag_offsets if len(part.tag_offsets) else np.zeros(part.n_reads + 1, np.int64)
            for part in parts
        ]
        tags, tag_offsets = np.concatenate([part.tags for part in parts]), join_offsets(offsets)
    return ReadBatch(
        bases=np.concatenate([part.bases for part in parts]),
        quals=np.concatenate([part.quals for part in parts]),
        base_offsets=join_offsets([part.base_offsets for part in parts]),
        names=np.concatenate([part.names for part in parts]),
        name_offsets=join_offsets([part.name_offsets for part in parts]),
        first_read=parts[0].first_read,
        paired=parts[0].paired,
        flags=np.concatenate(flags),
        tags=tags,
        tag_offsets=tag_offsets,
    )


def join_records(parts: Sequence[RecordBatch], n_reads: Sequence[int]) -> RecordBatch:
    """Join the records of consecutive batches, of which each has `n_reads` reads."""
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0, *n_reads[:-1]]).astype(np.int32)
    joined = {}
    for name in RecordBatch._fields:
        columns = [getattr(part, name) for part in parts]
        if name == "read":
            columns = [column + n for column, n in zip(columns, before, strict=True)]
        is_offsets = name.endswith("_offsets")
        joined[name] = join_offsets(columns) if is_offsets else np.concatenate(columns)
    return RecordBatch(**joined)


# --- slices and joins of a device's results ---


class DeviceResults(NamedTuple):
    """The results of a device for the reads of a batch."""

    packed: PackedReads | None
    """None if mates have been rescued, as only rescue needs it."""
    seeds: SeedSummary
    alignments: AlignmentBatch


class ResultSlice(NamedTuple):
    """The slice of a device's results that belongs to one of the joined batches."""

    whole: DeviceResults
    start: int
    end: int
    """Bounds of its reads in `whole`."""

    def cut(self) -> DeviceResults:
        """Return the slice as results of its own; its columns are views."""
        found, start, end = self
        if start == 0 and end == len(found.seeds.guarantee):
            return found
        return DeviceResults(
            None if found.packed is None else slice_packed(found.packed, start, end),
            SeedSummary._make(column[start:end] for column in found.seeds),
            slice_alignments(found.alignments, start, end),
        )


def slice_reads(reads: ReadBatch, start: int, end: int) -> ReadBatch:
    """Return reads start:end as a batch without tags."""
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


def slice_packed(packed: PackedReads, start: int, end: int) -> PackedReads:
    """Return the bit planes of reads start:end, as a copy with its own row of padding."""
    first, last = packed.word_offsets[[start, end]]
    planes = np.zeros((last - first + 1, 3), np.uint64)
    planes[:-1] = packed.planes[first:last]
    return PackedReads(planes, packed.word_offsets[start : end + 1] - first)


def slice_alignments(batch: AlignmentBatch, start: int, end: int) -> AlignmentBatch:
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
    """Join bit planes, with one row of padding after the last."""
    planes = [part.planes[:-1] for part in parts[:-1]]
    return PackedReads(
        np.concatenate([*planes, parts[-1].planes]),
        join_offsets([part.word_offsets for part in parts]),
    )


def join_summaries(parts: Sequence[SeedSummary]) -> SeedSummary:
    """Join the seed summaries of consecutive batches."""
    return SeedSummary._make(np.concatenate(column) for column in zip(*parts, strict=True))


def join_alignments(parts: Sequence[AlignmentBatch]) -> AlignmentBatch:
    """Join the alignments of consecutive batches."""
    columns = [np.concatenate(column) for column in zip(*(p[1:9] for p in parts), strict=True)]
    return AlignmentBatch._make(
        (
            join_offsets([part.alignment_offsets for part in parts]),
            *columns,
            join_offsets([part.cigar_offsets for part in parts]),
            np.concatenate([part.cigar_ops for part in parts]),
        )
    )
