"""Right places of simulated long reads, without reads whose sequence the genome has several times.

    python -m benchmarks.studies.repeated_places GENOME.fa fmwave=a.bam minibwa=b.sam ...

Reads are those of the evaluation kit's simulate.py, whose names say where they come from; a place
is right if it overlaps the true one by more than a tenth of their union, as for mapeval.py. Where
the sequence at a read's true place lies elsewhere in the genome, too, base by base, a mapper can
only draw one of these places, and how often it draws the right one says nothing about it. The
genome is searched, on both strands, for each read that some mapper places wrongly or with a
quality below LOW_QUALITY.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pysam

from benchmarks.common import strata
from benchmarks.long_alignments import COMPLEMENT

LOW_QUALITY = 10


def is_right(record: pysam.AlignedSegment) -> bool:
    if record.is_unmapped:
        return False
    start, end = record.reference_start, record.reference_end
    assert end is not None
    truth = strata.truth_of(str(record.query_name), False)
    return strata.is_correct(truth, str(record.reference_name), start, end, bool(record.is_reverse))


def placed(path: str) -> dict[str, tuple[bool, int]]:
    """Return of each read's primary record whether it is right, and its quality."""
    with pysam.AlignmentFile(path, check_sq=False) as file:
        return {
            str(record.query_name): (is_right(record), record.mapping_quality)
            for record in file.fetch(until_eof=True)
            if not record.flag & 0x900
        }


def is_repeated(contigs: dict[str, str], name: str) -> bool:
    """Return True if the sequence of a read's place lies in more than one place."""
    truth = strata.truth_of(name, False)
    text = contigs[truth.contig][truth.start : truth.end]
    n = 0
    for wanted in (text, text.translate(COMPLEMENT)[::-1]):
        for letters in contigs.values():
            at = letters.find(wanted)
            while at >= 0 and n < 2:
                n += 1
                at = letters.find(wanted, at + 1)
    return n > 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each mapper."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("genome", type=Path)
    parser.add_argument("alignments", nargs="+", metavar="NAME=FILE")
    options = parser.parse_args(arguments)
    with pysam.FastxFile(str(options.genome), persist=False) as file:
        contigs = {str(entry.name): str(entry.sequence).upper() for entry in file}
    by_name = dict(one.split("=", 1) for one in options.alignments)
    found = {name: placed(path) for name, path in by_name.items()}
    reads = set().union(*found.values())

    def is_doubtful(read: str) -> bool:
        says = [one.get(read, (False, 0)) for one in found.values()]
        return not all(right and quality >= LOW_QUALITY for right, quality in says)

    repeated = {read for read in reads if is_doubtful(read) and is_repeated(contigs, read)}
    print(f"{len(reads)} reads, {len(repeated)} of repeated sequence")
    print("mapper, right of all, of those of repeated sequence, of the others")
    for name, one in found.items():
        right = [read for read, (good, _) in one.items() if good]
        drawn = sum(read in repeated for read in right)
        print(name, len(right), drawn, len(right) - drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
