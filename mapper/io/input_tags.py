"""Copy the input's tags and quality flag of each read to its records.

The input's tags follow the mapper's own. Tags with a value for each base (OQ U2 E2, and base
modifications MM ML MN, PacBio's kinetics) are copied only where the record holds the whole read; by
the specification OQ, U2 and E2 follow the orientation of SEQ, and the others keep the read's.
"""

from __future__ import annotations

import numpy as np

from mapper.batch import ReadBatch, RecordBatch
from mapper.batch_ops import longest_row
from mapper.io.bam_writer import copy_bytes
from mapper.io.tags import reverse_base_tag, tag_end, tag_key
from mapper.jit.accelerate import driver
from mapper.jit.simd import get16
from mapper.parallel.buffers import RECYCLER
from mapper.sam_flags import QC_FAIL, REVERSE

PER_BASE_TAGS = (
    "OQ", "U2", "E2", "MM", "ML", "MN", "Mm", "Ml", "ip", "pw", "fi", "fp", "ri", "rp",
)  # fmt: skip
"""The last six are PacBio's times of each base, in the order of the read."""

_PER_BASE = np.array([tag_key(tag) for tag in PER_BASE_TAGS], np.uint16)


def copy_input_tags(records: RecordBatch, reads: ReadBatch) -> RecordBatch:
    """Add the tags and the flag 0x200 of each read to its records.

    Parameters
    ----------
    records, reads
        Records, and the reads that ``records.read`` refers to.

    Returns
    -------
    `records` itself if the reads have neither tags nor the flag.
    """
    if len(reads.flags):
        records = records._replace(flag=records.flag | (reads.flags & QC_FAIL)[records.read])
    if len(reads.tag_offsets) == 0 or reads.tag_offsets[-1] == 0:
        return records
    room = len(records.tags) + int(np.diff(reads.tag_offsets)[records.read].sum())
    tags = RECYCLER.empty(room)
    tag_offsets = np.zeros(records.n_records + 1, np.int64)
    _merge_tags(
        records.read, records.flag, records.query_start, records.query_end, records.tags,
        records.tag_offsets, reads.base_offsets, reads.tags, reads.tag_offsets, tags, tag_offsets,
    )  # fmt: skip
    return records._replace(tags=tags[: tag_offsets[-1]], tag_offsets=tag_offsets)


@driver
def _merge_tags(read, flag, query_start, query_end, own_tags, own_offsets, base_offsets, read_tags,
                read_offsets, tags, tag_offsets):  # fmt: skip
    at = np.int64(0)
    for r in range(len(read)):
        at = copy_bytes(tags, at, own_tags, own_offsets[r], own_offsets[r + 1])
        n_bases = base_offsets[read[r] + 1] - base_offsets[read[r]]
        whole = query_end[r] - query_start[r] == n_bases
        tag, end = read_offsets[read[r]], read_offsets[read[r] + 1]
        if whole and not flag[r] & REVERSE:  # all are copied as they are
            at = copy_bytes(tags, at, read_tags, tag, end)
            tag = end
        while tag < end:
            following = tag_end(read_tags, tag, end)
            key = get16(read_tags, tag)
            per_base = False
            for other in _PER_BASE:
                per_base |= key == other
            if whole or not per_base:
                copied = at
                at = copy_bytes(tags, at, read_tags, tag, following)
                if flag[r] & REVERSE and following - tag - 4 == n_bases:
                    reverse_base_tag(tags, copied, n_bases)
            tag = following
        tag_offsets[r + 1] = at


@driver
def _is_repeated(tags, n_bytes):
    """Return True if the first `n_bytes` of `tags` come again and again, to their end."""
    same = len(tags) % n_bytes == 0
    for i in range(n_bytes, len(tags)):
        same &= tags[i] == tags[i - n_bytes]
    return same


def common_read_group(reads: ReadBatch) -> bytes | None:
    """Return the read group that all reads of a batch have as their only tag; empty for no tags.

    None for other tags, or if a read has the flag 0x200.
    """
    if (reads.flags & QC_FAIL).any():
        return None
    offsets = reads.tag_offsets
    if not len(offsets) or offsets[-1] == 0:
        return b""
    first = reads.tags[: offsets[1]].tobytes()
    # Each read has one of the copies, if none has more.
    if offsets[-1] != reads.n_reads * len(first) or longest_row(offsets) != len(first):
        return None
    group = read_group_of(first)
    if not group or not _is_repeated(reads.tags[: offsets[-1]], len(first)):
        return None
    return group


def read_group_of(tags: bytes) -> bytes | None:
    """Return the read group that is the only tag of a read; empty for no tags, None for others."""
    if not tags:
        return b""
    if tags[:3] != b"RGZ" or tags.find(b"\0") != len(tags) - 1 or len(tags) < 5:
        return None  # or a group without a name, which is not that there is none
    return tags[3:-1]


def with_tag(reads: ReadBatch, tag: bytes) -> ReadBatch:
    """Return the reads with one more tag, the same for all, before their own."""
    n = reads.n_reads
    old_offsets = reads.tag_offsets if len(reads.tag_offsets) else np.zeros(n + 1, np.int64)
    offsets = old_offsets + len(tag) * np.arange(n + 1, dtype=np.int64)
    tags = np.empty(offsets[-1], np.uint8)
    _prepend(np.frombuffer(bytearray(tag), np.uint8), reads.tags, old_offsets, offsets, tags)
    return reads._replace(tags=tags, tag_offsets=offsets)


@driver
def _prepend(tag, old_tags, old_offsets, offsets, tags):
    for row in range(len(offsets) - 1):
        at = copy_bytes(tags, offsets[row], tag, 0, len(tag))
        copy_bytes(tags, at, old_tags, old_offsets[row], old_offsets[row + 1])
