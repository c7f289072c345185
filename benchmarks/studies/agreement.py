"""Where mappers put the same reads, which have no known places: how often they agree.

    python -m benchmarks.studies.agreement fmwave=a.bam 'bwa mem=b.bam' ... [--quality 20]

Each file after the first is compared with the first, by primary records. Two agree on a read if
contig and strand are the same and the positions of its first base, clipped ones put back, differ by
at most NEAR.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pysam

from benchmarks.common.harness import table

NEAR = 20
"""Bases: an indel near an end, or a clip instead of it, is no other place."""

HEADER = ("mapper", "reads", "mapped", "of these with that quality", "by both", "agree", "differ")

Key = tuple[str, int]


class Place(NamedTuple):
    """A read's primary record, if it is mapped."""

    contig: str
    is_reverse: bool
    first_base: int
    quality: int


def place_of(record: pysam.AlignedSegment) -> Place:
    """Return the place of a mapped record."""
    operations = record.cigartuples or []
    start, end = record.reference_start, record.reference_end
    assert end is not None
    clips = (pysam.CSOFT_CLIP, pysam.CHARD_CLIP)
    for operation, length in operations if not record.is_reverse else reversed(operations):
        if operation not in clips:
            break
        start, end = start - length, end + length
    first = end - 1 if record.is_reverse else start
    return Place(str(record.reference_name), bool(record.is_reverse), first, record.mapping_quality)


def places(path: Path) -> tuple[dict[Key, Place], int]:
    """Return the places of the mapped reads of a file, and how many reads it has."""
    found, n_reads = {}, 0
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        for record in file.fetch(until_eof=True):
            if record.flag & 0x900:
                continue
            n_reads += 1
            if not record.is_unmapped:
                found[str(record.query_name), record.flag & 0xC0] = place_of(record)
    return found, n_reads


def agree(one: Place, other: Place) -> bool:
    """Return True for two places that are the same."""
    same = one.contig == other.contig and one.is_reverse == other.is_reverse
    return same and abs(one.first_base - other.first_base) <= NEAR


def rows(files: Mapping[str, Path], quality: int) -> list[list[object]]:
    """Return the rows of the table."""
    (first, *_), first_places = files, {}
    made: list[list[object]] = []
    for name, path in files.items():
        own, n_reads = places(path)
        sure = {key: place for key, place in own.items() if place.quality >= quality}
        row: list[object] = [name, n_reads, len(own), len(sure)]
        if name == first:
            first_places = sure
            made.append([*row, "", "", ""])
            continue
        both = sure.keys() & first_places.keys()
        n_agree = sum(agree(sure[key], first_places[key]) for key in both)
        made.append([*row, len(both), n_agree, len(both) - n_agree])
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="NAME=FILE", help="SAM, BAM or CRAM")
    parser.add_argument("--quality", type=int, default=20, help="at least [%(default)s]")
    options = parser.parse_args(arguments)
    files: dict[str, Path] = {}
    for word in options.files:
        name, _, path = word.partition("=")
        if not path or name in files:
            parser.error(f"{word}: NAME=FILE is expected, with names that differ")
        files[name] = Path(path)
    print(*table(HEADER, rows(files, options.quality)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
