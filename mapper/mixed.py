"""Batches that mix pairs and single reads: in two parts through the stages, then merged.

A stage knows pairs or single reads, not both. The parts hold the rows of each kind in
input order, and their records are merged back into it, so the result is that of a batch
cut wherever the kind changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapper.batch import NO_OFFSETS, NO_TAGS, ReadBatch, RecordBatch

_PAIRED = 0x1


class Part(NamedTuple):
    """Rows of a batch that are all pairs, or all single reads."""

    reads: ReadBatch  # without tags: these stay with the whole batch
    rows: np.ndarray  # int32: which rows of the whole batch they are, ascending


def split(reads: ReadBatch) -> list[Part]:
    """Return the parts of a batch: one, unless it mixes pairs and single reads.

    Returns
    -------
    Pairs before single reads. A batch that is all of one kind is not copied.
    """
    whole = reads._replace(tags=NO_TAGS, tag_offsets=NO_OFFSETS)
    in_pair = (reads.flags & _PAIRED) != 0
    if reads.paired or not in_pair.any():
        return [Part(whole, np.arange(reads.n_reads, dtype=np.int32))]
    parts = []
    for paired in (True, False):
        rows = np.flatnonzero(in_pair == paired).astype(np.int32)
        if len(rows):
            parts.append(Part(_take_reads(whole, rows, paired), rows))
    return parts


def merge(records: Sequence[RecordBatch], rows: Sequence[np.ndarray]) -> RecordBatch:
    """Return the records of all parts in the order of the whole batch's rows.

    Parameters
    ----------
    records
        Records of each part; ``read`` counts the part's rows.
    rows
        Rows of each part in the whole batch, int32, rising.
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
        name_offsets=name_offsets, paired=paired, flags=reads.flags[rows],
    )  # fmt: skip


def _take_ragged(
    flat: np.ndarray, lengths: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the given rows of a ragged column, and their offsets."""
    starts = np.cumsum(lengths) - lengths
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths[rows], out=offsets[1:])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths[rows])
    return flat[np.repeat(starts[rows], lengths[rows]) + within], offsets
