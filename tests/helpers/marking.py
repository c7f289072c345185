"""Mark the duplicates of a sorted BAM file by ranges of records and parts of the genome."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam

from mapper.sorting.duplicate_counts import COUNTS, count_records, report
from mapper.sorting.duplicate_keys import find_entries
from mapper.sorting.duplicates import VERDICT_BITS, decide
from mapper.sorting.libraries import Libraries
from mapper.sorting.marked_records import (
    copy_marked,
    find_names,
    mark_others,
    merge_names,
    set_flags,
)
from mapper.sorting.options import MarkOptions
from mapper.sorting.ranges import Records

EVERYWHERE = 1 << 62


class BamBytes(NamedTuple):
    """A BAM file: its header as bytes and as text, its records, and where they start."""

    head: bytes
    header: str
    data: np.ndarray
    starts: np.ndarray


class Marked(NamedTuple):
    bam: bytes  # uncompressed
    counts: dict[str, Any]
    reach: int


def bam_bytes(path: Path) -> BamBytes:
    data = gzip.decompress(path.read_bytes())
    length = int.from_bytes(data[4:8], "little")
    at = 8 + length
    n_contigs = int.from_bytes(data[at : at + 4], "little")
    at += 4
    for _ in range(n_contigs):
        at += 8 + int.from_bytes(data[at : at + 4], "little")
    records = np.frombuffer(data[at:], np.uint8)
    starts, start = [], 0
    while start < len(records):
        starts.append(start)
        start += 4 + int.from_bytes(records[start : start + 4].tobytes(), "little")
    return BamBytes(data[:at], data[8 : 8 + length].decode(), records, np.array(starts, np.int64))


def mark(
    bam: BamBytes,
    options: MarkOptions,
    range_cuts: Sequence[int] = (),
    place_cuts: Sequence[int] = (),
) -> Marked:
    """Mark duplicates; ranges are cut before records, parts of the genome at places."""
    libraries = Libraries(bam.header)
    cuts = [0, *range_cuts, len(bam.starts)]
    bounds = np.append(bam.starts, len(bam.data))
    ranges = [
        Records(bam.data[bounds[a] : bounds[b]].copy(), bam.starts[a:b] - bounds[a])
        for a, b in pairwise(cuts)
    ]
    found = [find_entries(*records, libraries, options) for records in ranges]
    rows, of_records = [one for one, _ in found], [one for _, one in found]
    verdicts = [np.zeros(len(records.starts), np.uint8) for records in ranges]
    for low, high in pairwise([0, *place_cuts, EVERYWHERE]):
        for marks, verdict in zip(decide(rows, low, high, options), verdicts, strict=True):
            np.bitwise_or.at(verdict, marks >> VERDICT_BITS, marks.astype(np.uint8) & 3)
    each = list(zip(ranges, of_records, verdicts, strict=True))
    if options.supplementary:
        names = merge_names([find_names(*one, of, verdict) for one, of, verdict in each])
        for one, of, verdict in each:
            mark_others(*one, of, names, verdict)
    out, counts = [bam.head], np.zeros((len(libraries.names), len(COUNTS)), np.int64)
    for (one, of, verdict), entries in zip(each, rows, strict=True):
        count_records(*one, of, verdict, options.remove, options.clear, counts)
        if options.keeps_sizes(entries.has_marks):
            set_flags(*one, verdict)
            records, out_starts = one
        else:
            records, out_starts = copy_marked(one, verdict, options)
        sizes = [int.from_bytes(records[s : s + 4].tobytes(), "little") + 4 for s in out_starts]
        assert np.array_equal(out_starts, np.cumsum([0, *sizes])[:-1]) and sum(sizes) == len(
            records
        )
        out.append(records.tobytes())
    reach = max(entries.reach for entries in rows)
    return Marked(b"".join(out), report(counts, libraries, "fmwave"), reach)


def records_of(marked: Marked, path: Path) -> list[str]:
    """Return the records as SAM lines, by way of a file at `path`."""
    path.write_bytes(marked.bam)
    previous = pysam.set_verbosity(0)  # BAM without compression has no end marker
    try:
        return sam_lines(path)
    finally:
        pysam.set_verbosity(previous)


def sam_lines(path: Path) -> list[str]:
    return pysam.view("--no-PG", str(path)).splitlines()
