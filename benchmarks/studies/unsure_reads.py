"""Reads that a peer places with confidence and fmwave does not, by what fmwave saw of them.

    python -m benchmarks.studies.unsure_reads PEER.bam FMWAVE.bam [OLDER.bam ...]

All files hold the same reads of ``simulate.py``, in the same order. A read counts if both place it
right, the peer with at least the threshold's mapping quality, fmwave with less; the last row has
those of which the reverse holds. The table goes to standard output.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam

from benchmarks.common import harness, strata
from benchmarks.common.harness import BenchmarkError

THRESHOLDS = (1, 20, 60)
CLASSES = (
    "a second place as good", "a second place, one mismatch behind", "... two or three behind",
    "not in a proper pair", "eight or more differences", "clipped", "others",
)  # fmt: skip
MISMATCH = 5
"""Score that a mismatch costs: of both mappers."""


class Placed(NamedTuple):
    """What a mapper says of a read."""

    is_right: bool
    mapq: int
    of_class: int


def class_of(record: pysam.AlignedSegment) -> int:
    """Return the first of CLASSES that a primary record is in."""
    lead = int(record.get_tag("AS")) - (int(record.get_tag("XS")) if record.has_tag("XS") else 0)
    first = record.cigartuples or [(0, 0)]
    tests = (
        lead <= 0, lead <= MISMATCH, lead <= 3 * MISMATCH,
        record.is_paired and not record.is_proper_pair, int(record.get_tag("NM")) >= 8,
        first[0][0] == pysam.CSOFT_CLIP or first[-1][0] == pysam.CSOFT_CLIP, True,
    )  # fmt: skip
    return tests.index(True)


def reads_of(path: Path) -> Iterator[tuple[str, bool, Placed]]:
    """Yield the primary records of a file: name, whether it is the second mate, and place."""
    with pysam.AlignmentFile(str(path)) as records:
        for record in records:
            if record.is_secondary or record.is_supplementary:
                continue
            name = str(record.query_name)
            placed = Placed(False, -1, len(CLASSES) - 1)
            if not record.is_unmapped:
                right = strata.is_correct(
                    strata.truth_of(name, record.is_read2), str(record.reference_name),
                    record.reference_start, int(record.reference_end or 0), record.is_reverse,
                )  # fmt: skip
                placed = Placed(right, record.mapping_quality, class_of(record))
            yield name, record.is_read2, placed


def count(peer: Path, own: Path) -> tuple[np.ndarray, int]:
    """Count reads by class and threshold, the reverse in the last row; and all reads."""
    counts = np.zeros((len(CLASSES) + 1, len(THRESHOLDS)), np.int64)
    n_reads = 0
    for ours, theirs in zip(reads_of(own), reads_of(peer), strict=True):
        if ours[:2] != theirs[:2]:
            raise BenchmarkError(f"{own} and {peer} differ in the order of reads: {ours[0]}")
        n_reads += 1
        mine, other = ours[2], theirs[2]
        if not (mine.is_right and other.is_right):
            continue
        for column, threshold in enumerate(THRESHOLDS):
            if mine.mapq < threshold <= other.mapq:
                counts[mine.of_class, column] += 1
            if other.mapq < threshold <= mine.mapq:
                counts[len(CLASSES), column] += 1
    return counts, n_reads


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peer", type=Path)
    parser.add_argument("own", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    counted = [count(options.peer, own) for own in options.own]
    heads = [f"{own.stem}, MAPQ {t}" for own in options.own for t in THRESHOLDS]
    print(f"{counted[0][1]} reads; sure by {options.peer.stem}, not by fmwave, both right:\n")
    print(f"| {' | '.join(['what fmwave saw', *heads])} |")
    print(f"|{'---|' * (len(heads) + 1)}")
    for row, name in enumerate((*CLASSES, "sure by fmwave, not by the peer")):
        cells = [f"{int(value):,}" for counts, _ in counted for value in counts[row]]
        print(f"| {' | '.join([name, *cells])} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
