"""The checker of whole runs reports every kind of damaged record."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pysam
import pytest

from tests.helpers.mapping_runs import World, map_to
from tests.naive.sam_check import Checker, Walk, walk

Spoil = Callable[[Any], None]


@pytest.fixture(scope="module")
def lines(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[str]]:
    """Return header and SAM lines of a run without errors."""
    path = tmp_path_factory.mktemp("checked") / "x.sam"
    map_to(world.index, path, world.first, world.second, read_group="@RG\tID:g")
    with pysam.AlignmentFile(str(path)) as file:
        return file.header, [record.to_string() for record in file]


def problems(world: World, records: list[Any]) -> list[str]:
    return Checker(world.genome, world.reads, paired=True, read_group="g").check_records(records)


def parsed(lines: tuple[Any, list[str]]) -> list[Any]:
    header, texts = lines
    return [pysam.AlignedSegment.fromstring(text, header) for text in texts]


def set_tag(name: str, change: Callable[[Any], Any]) -> Spoil:
    return lambda r: r.set_tag(name, change(r.get_tag(name)))


def flip(bit: int) -> Spoil:
    return lambda r: setattr(r, "flag", r.flag ^ bit)


def add(attribute: str, n: int) -> Spoil:
    return lambda r: setattr(r, attribute, getattr(r, attribute) + n)


def mapped(r: Any) -> bool:
    return not r.is_unmapped and r.is_proper_pair


def has(tag: str) -> Callable[[Any], bool]:
    return lambda r: r.has_tag(tag)


OTHER_STRAND = str.maketrans("+-", "-+")

SPOILED = {
    "NM": (mapped, set_tag("NM", lambda nm: nm + 1), "NM is not"),
    "MD": (mapped, set_tag("MD", lambda md: f"{md}A0"), "MD is not"),
    "AS": (mapped, set_tag("AS", lambda score: score - 1), "AS is not"),
    "MC": (mapped, set_tag("MC", lambda mc: f"1S{mc}"), "MC is not"),
    "MQ": (mapped, set_tag("MQ", lambda mq: mq - 1), "MQ is not"),
    "ms": (mapped, set_tag("ms", lambda ms: ms + 1), "ms is not"),
    "RG": (mapped, lambda r: r.set_tag("RG", "other"), "RG"),
    "no RG": (mapped, lambda r: r.set_tag("RG", None), "RG"),
    "TLEN": (mapped, add("template_length", 1), "TLEN"),
    "TLEN sign": (mapped, lambda r: setattr(r, "template_length", -r.template_length), "TLEN"),
    "PNEXT": (mapped, add("next_reference_start", 1), "PNEXT"),
    "RNEXT": (mapped, lambda r: setattr(r, "next_reference_id", 3), "RNEXT"),
    "POS": (mapped, add("reference_start", 3), "MD is not"),
    "off the contig": (mapped, lambda r: setattr(r, "reference_start", 29_000), "leaves"),
    "CIGAR": (mapped, lambda r: setattr(r, "cigarstring", "7M"), "does not fit"),
    "CIGAR order": (mapped, lambda r: setattr(r, "cigarstring", "1I119M"), "must not be"),
    "MAPQ": (mapped, lambda r: setattr(r, "mapping_quality", 61), "MAPQ"),
    "name": (mapped, lambda r: setattr(r, "query_name", "other"), "name is not"),
    "QUAL": (mapped, lambda r: setattr(r, "query_qualities", r.query_qualities[::-1]), "QUAL"),
    "proper": (mapped, flip(0x2), "0x2"),
    "mate unmapped": (mapped, flip(0x8), "0x8"),
    "strand": (mapped, flip(0x10), "SEQ"),
    "mate strand": (mapped, flip(0x20), "0x20"),
    "both mates first": (lambda r: r.is_read2, flip(0xC0), "0x40"),
    "secondary": (lambda r: r.is_supplementary, flip(0x900), "secondary"),
    "two primaries": (lambda r: r.is_supplementary, flip(0x800), "primary records"),
    "SA": (has("SA"), set_tag("SA", lambda sa: sa.translate(OTHER_STRAND)), "SA is not"),
    "no SA": (has("SA"), lambda r: r.set_tag("SA", None), "SA is not"),
    "XA place": (has("XA"), set_tag("XA", lambda xa: re.sub(r",([+-])", r",\g<1>1", xa)), "XA"),
    "XA distance": (has("XA"), set_tag("XA", lambda xa: xa.replace(";", "0;")), "XA NM"),
    "XA syntax": (has("XA"), set_tag("XA", lambda xa: xa[:-1]), "XA syntax"),
    "unmapped": (lambda r: r.is_unmapped, add("reference_start", 1), "unmapped mate's place"),
}


def test_nothing_is_wrong_in_good_records(world, lines):
    assert problems(world, parsed(lines)) == []


@pytest.mark.medium
@pytest.mark.parametrize(("which", "spoil", "found"), SPOILED.values(), ids=SPOILED)
def test_spoiled_records_are_found(world, lines, which, spoil, found):
    records = parsed(lines)
    spoiled = next(record for record in records if which(record))
    before = sorted(spoiled.to_string().split("\t"))  # a tag that is set anew goes to the end
    spoil(spoiled)
    assert sorted(spoiled.to_string().split("\t")) != before
    assert any(found in problem.split(":")[0] for problem in problems(world, records))


def test_lost_and_doubled_reads_are_found(world, lines):
    records = parsed(lines)
    assert problems(world, records[:-1])
    assert problems(world, [*records, records[-1]])
    assert problems(world, [records[1], records[0], *records[2:]])


def test_another_header_is_found(world, tmp_path: Path):
    map_to(world.index, tmp_path / "x.bam", world.first)
    other = {**world.genome, "chr1": world.genome["chr1"] + "A"}
    checker = Checker(other, world.reads[::2], paired=False)
    assert any("@SQ" in problem for problem in checker.check_file(tmp_path / "x.bam"))


def test_walk_of_a_cigar():
    walked = walk("1S3M1I2M2D3M", "TACCGTTAAC", 1, "GACGTTGGAACG")
    assert walked == Walk(11, 4, -12, "2G2^GG3")
    assert "is not so" in walk("4=", "ACGN", 0, "ACGN")
    assert "is not so" in walk("3=1X", "ACGT", 0, "ACGT")
    assert "leaves" in walk("4M", "ACGT", 1, "ACGT")
    assert "empty or repeated" in walk("2M2M", "ACGT", 0, "ACGT")
