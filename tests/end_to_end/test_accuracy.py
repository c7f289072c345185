"""Simulated reads on a small genome with repeats: how many are right, and how sure they are.

The numbers are a fence against regressions, not a claim; ``docs/accuracy.md`` has those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.helpers.mapping_runs import World, map_to, records_of
from tests.helpers.simulate import Place, Read, Sample, sample_pairs, write_fastq
from tests.naive.seeds import oriented

N_PAIRS = 3000
NEAR = 12  # bases: an indel of a read can move its start by so much


class Tally(NamedTuple):
    """Shares of reads with a position, and of wrong reads with a high MAPQ."""

    correct: float
    sure: float  # correct, at MAPQ >= 30
    wrong_but_sure: list[str]


def is_correct(record: Any, place: Place) -> bool:
    """Return True if a primary record lies at its read's origin, clips included."""
    if record.is_unmapped or record.is_reverse != bool(place.strand):
        return False
    first, last = record.cigartuples[0], record.cigartuples[-1]
    start = record.reference_start - (first[1] if first[0] == 4 else 0)
    end = record.reference_end + (last[1] if last[0] == 4 else 0)
    near = min(abs(start - place.start), abs(end - place.end)) <= NEAR
    return near and record.reference_name == place.contig


def tally(records: list[Any], places: list[Place | None]) -> Tally:
    known = n_correct = n_sure = 0
    wrong = []
    for record, place in zip(records, places, strict=True):
        if place is None:
            continue
        known += 1
        sure = record.mapping_quality >= 30
        if is_correct(record, place):
            n_correct += 1
            n_sure += sure
        elif sure:
            wrong.append(f"{place}: {record.to_string()}")
    return Tally(n_correct / known, n_sure / known, wrong)


@pytest.fixture(scope="module")
def sample(world: World) -> Sample:
    return sample_pairs(world.genome, N_PAIRS, seed=11, foreign=0.02)


def mapped(world: World, directory: Path, sample: Sample, **options: Any) -> list[Any]:
    fastq = write_fastq(directory / "reads.fq", sample.reads)
    map_to(world.index, directory / "x.bam", fastq, threads=2, **options)
    return [r for r in records_of(directory / "x.bam") if not r.flag & 0x900]


@pytest.mark.parametrize(
    ("interleaved", "least_correct", "least_sure"), [(True, 0.984, 0.970), (False, 0.982, 0.938)]
)
def test_reads_lie_where_they_come_from(
    world, tmp_path, sample, interleaved, least_correct, least_sure
):
    result = tally(mapped(world, tmp_path, sample, interleaved=interleaved), sample.places)
    assert result.wrong_but_sure == []
    assert result.correct >= least_correct
    assert result.sure >= least_sure


def test_foreign_reads_stay_unmapped(world, tmp_path, sample):
    foreign = [read for read, place in zip(sample.reads, sample.places, strict=True) if not place]
    assert len(foreign) > 40
    records = mapped(world, tmp_path, Sample(foreign, [None] * len(foreign)))
    assert [r.to_string() for r in records if not r.is_unmapped] == []


def exact_copies(world: World) -> tuple[str, dict[str, int]]:
    """Return the sequence that two contigs hold, and where."""
    copy = world.genome["chr1"][-3900:-3000]
    starts = {name: world.genome[name].find(copy) for name in ("chr1", "HLA*01:01")}
    assert min(starts.values()) > 0
    return copy, starts


def test_reads_of_exact_copies_are_not_sure_and_name_the_other(world, tmp_path):
    copy, starts = exact_copies(world)
    offsets = range(0, 780, 6)
    reads = [Read(f"copy{i}", copy[i : i + 120], "I" * 120) for i in offsets]
    records = mapped(world, tmp_path, Sample(reads, [None] * len(reads)))
    chosen = set()
    for record, offset in zip(records, offsets, strict=True):
        assert record.mapping_quality == 0
        name = record.reference_name
        assert record.reference_start == starts[name] + offset
        (other,) = set(starts) - {name}
        assert record.get_tag("XA") == f"{other},+{starts[other] + offset + 1},120M,0;"
        assert record.get_tag("XS") == record.get_tag("AS") == 120
        chosen.add(name)
    assert chosen == set(starts)  # by the read's name, not always the first


@pytest.mark.parametrize("contig", ["chr1", "HLA*01:01"])
def test_a_mate_outside_tells_exact_copies_apart(world, tmp_path, contig):
    _, starts = exact_copies(world)
    text = world.genome[contig]
    reads, places = [], []
    for i in range(0, 160, 4):
        end = starts[contig] + 150 + i  # the first mate has 40 or more bases outside
        reads.append(Read(f"p{i}", text[end - 350 : end - 230], "I" * 120))
        reads.append(Read(f"p{i}", oriented(text[end - 120 : end], 1), "I" * 120))
        places.append(Place(contig, end - 350, end - 230, 0))
        places.append(Place(contig, end - 120, end, 1))
    result = tally(mapped(world, tmp_path, Sample(reads, [*places]), interleaved=True), [*places])
    assert (result.correct, result.sure) == (1.0, 1.0)
