"""Places scored against the truth in the names, by MAPQ, for all reads and for the hard ones.

``mapeval.py`` scores all reads and looks for faults; what it does not do is here: reads whose
template holds an indel of the donor, and reads that cross a segmental duplication, apart.
Correct means what it means there: same contig and strand, overlap over union with the true
place above 0.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam

MIN_OVERLAP = 0.1
ALL, INDEL, DUPLICATION = "all", "indel of 1-50", "segmental duplication"


class Truth(NamedTuple):
    """Where a read comes from, in the reference."""

    contig: str
    start: int
    end: int
    reverse: bool


class Intervals:
    """Half-open intervals of one contig; which queries touch one of them."""

    def __init__(self, intervals: Iterable[tuple[int, int]]) -> None:
        merged: list[list[int]] = []
        for start, end in sorted(intervals):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        self.starts = np.array([start for start, _ in merged], np.int64)
        self.ends = np.array([end for _, end in merged], np.int64)

    def touch(self, start: int, end: int) -> bool:
        """Return True if an interval shares a base with start:end."""
        i = int(np.searchsorted(self.ends, start, side="right"))
        return i < len(self.starts) and bool(self.starts[i] < end)


def truth_of(name: str, is_last: bool) -> Truth:
    """Read the true place out of a name of simulate.py (``S1!chr!s1_s2!e1_e2!+-``)."""
    contig, starts, ends, strands = name.split("!", 1)[1].rsplit("!", 3)
    mate = int(is_last and "_" in starts)
    return Truth(
        contig, int(starts.split("_")[mate]), int(ends.split("_")[mate]), strands[mate] == "-"
    )


def is_correct(truth: Truth, contig: str, start: int, end: int, reverse: bool) -> bool:
    """Return True if an alignment lies where its read comes from."""
    if contig != truth.contig or reverse != truth.reverse:
        return False
    shared = min(end, truth.end) - max(start, truth.start)
    union = max(end, truth.end) - min(start, truth.start)
    return shared > MIN_OVERLAP * union


def indels(vcf: Path) -> dict[str, Intervals]:
    """Return the places of the donor's indels in the reference, by contig."""
    places: dict[str, list[tuple[int, int]]] = {}
    with pysam.VariantFile(str(vcf)) as records:
        for record in records:
            ref, alt = str(record.ref), str((record.alts or ("",))[0])
            if len(ref) != len(alt):
                # The base before the change is not changed; an insertion lies before the next.
                places.setdefault(record.chrom, []).append(
                    (record.start + 1, max(record.stop, record.start + 2))
                )
    return {contig: Intervals(found) for contig, found in places.items()}


def duplications(bed: Path) -> dict[str, Intervals]:
    """Return the segmental duplications of a synthetic genome, by contig."""
    places: dict[str, list[tuple[int, int]]] = {}
    for line in bed.read_text().splitlines():
        contig, start, end, kind, *_ = line.split("\t")
        if kind.startswith("segdup"):
            places.setdefault(contig, []).append((int(start), int(end)))
    return {contig: Intervals(found) for contig, found in places.items()}


def score(
    alignments: Path, kinds: Mapping[str, Mapping[str, Intervals]]
) -> dict[str, dict[str, Any]]:
    """Count reads and wrong ones by MAPQ.

    Parameters
    ----------
    alignments
        SAM or BAM file; the primary records count.
    kinds
        Places, by contig, that reads of a kind touch.

    Returns
    -------
    For all reads and each kind: ``reads``, ``correct_pct`` (of all), and ``by_mapq``, a list of
    ``[mapq, mapped reads, wrong]`` from the highest down, for the MAPQs that occur.
    """
    counts = {kind: np.zeros((256, 2), np.int64) for kind in (ALL, *kinds)}
    n_reads = dict.fromkeys(counts, 0)
    with pysam.AlignmentFile(str(alignments), check_sq=False) as records:
        for record in records.fetch(until_eof=True):
            if record.flag & 0x900:
                continue
            truth = truth_of(str(record.query_name), record.is_read2)
            mine = [ALL]
            for kind, contigs in kinds.items():
                places = contigs.get(truth.contig)
                if places is not None and places.touch(truth.start, truth.end):
                    mine.append(kind)
            row = None
            if not record.is_unmapped:
                right = is_correct(
                    truth, str(record.reference_name), record.reference_start,
                    int(record.reference_end or 0), record.is_reverse,
                )  # fmt: skip
                row = np.array([1, not right])
            for kind in mine:
                n_reads[kind] += 1
                if row is not None:
                    counts[kind][record.mapping_quality] += row
    return {kind: summary(counts[kind], n_reads[kind]) for kind in counts}


def summary(counts: np.ndarray, n_reads: int) -> dict[str, Any]:
    """Return what :func:`score` says of one kind; `counts` is (256, 2): mapped, wrong."""
    mapped, wrong = counts.sum(axis=0).tolist()
    qualities = np.flatnonzero(counts[:, 0])[::-1]
    return {
        "reads": n_reads,
        "correct_pct": 100 * (mapped - wrong) / max(n_reads, 1),
        "by_mapq": [[q, *counts[q].tolist()] for q in qualities.tolist()],
    }


def at_least(score_of_kind: Mapping[str, Any], mapq: int) -> tuple[int, int]:
    """Mapped and wrong reads of at least this MAPQ."""
    rows = [row for row in score_of_kind["by_mapq"] if row[0] >= mapq]
    return sum(row[1] for row in rows), sum(row[2] for row in rows)
