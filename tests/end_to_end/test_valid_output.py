"""Valid output in every format from every kind of input: by samtools, Picard and our checker.

Picard's ValidateSamFile must find neither errors nor warnings; it is left out where Picard is not
installed (Debian and Ubuntu: picard-tools).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pysam
import pytest

from mapper.sorting.options import SortOptions
from tests.end_to_end.test_formats_in import import_pairs
from tests.helpers import mapping_runs
from tests.helpers.mapping_runs import World, map_to
from tests.naive.sam_check import Checker

PICARD = shutil.which("PicardCommandLine")
READ_GROUP = r"@RG\tID:a\tSM:s\tPL:ILLUMINA"
KINDS = {"single": "", "paired": "", "mixed": "psPs", "unaligned": "p"}
FORMATS = ("bam", "cram", "sam")
COMPLEMENT = str.maketrans("ACGT", "TGCA")


class Case(NamedTuple):
    """The reads of a run, and functions that make its outputs."""

    pairs: list[tuple[str, str, str]]  # name, letters and qualities of the reads that are in pairs
    singles: list[tuple[str, str, str]]
    reference: Path
    map_to: Callable[[str, bool], Path]  # of format and whether sorted


@pytest.fixture(scope="module")
def reference(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reference") / "genome.fa"
    path.write_bytes((Path(world.index_path).parent / "genome.fa").read_bytes())
    pysam.faidx(str(path))
    pysam.dict("-o", str(path.with_suffix(".dict")), str(path), catch_stdout=False)
    return path


@pytest.fixture(scope="module", params=KINDS)
def case(
    request: pytest.FixtureRequest, world: World, tmp_path_factory: pytest.TempPathFactory,
    reference: Path,
) -> Case:  # fmt: skip
    kinds = KINDS[request.param]
    directory = tmp_path_factory.mktemp(request.param)
    reads = [(read.name, read.letters, read.quals) for read in world.reads]
    pairs, singles, group = reads, [], None
    if kinds:
        paths = [str(with_platform(import_pairs(world, directory / "u.bam", "\tRX:Z:AC", kinds)))]
        alone = [kinds[i // 2 % len(kinds)] == "s" for i in range(len(reads))]
        pairs = [read for read, single in zip(reads, alone, strict=True) if not single]
        singles = [
            (name + "xy"[i % 2], letters, quals)
            for i, (name, letters, quals) in enumerate(reads)
            if alone[i]
        ]
    elif request.param == "paired":
        paths, group = [world.first, world.second], READ_GROUP
    else:
        paths, group, pairs, singles = [world.first], READ_GROUP, [], reads[::2]
    made = {}

    def output(fmt: str, sort: bool) -> Path:
        path = directory / f"{'sorted' if sort else 'unsorted'}.{fmt}"
        if path not in made:
            made[path] = map_to(
                world.index, path, *paths, read_group=group, reference=str(reference),
                sort=SortOptions() if sort else None,
            )  # fmt: skip
        return path

    return Case(pairs, singles, reference, output)


def with_platform(path: Path) -> Path:
    """Give a file's read group a PL, and take its @PG lines, as Picard wants it."""
    lines = [line for line in pysam.view("-H", str(path)).splitlines() if line[:3] != "@PG"]
    header, result = path.with_suffix(".header"), path.with_suffix(".pl.bam")
    header.write_text("".join(f"{line}\n" for line in lines).replace("SM:s", "SM:s\tPL:ILLUMINA"))
    pysam.reheader("-P", str(header), str(path), save_stdout=str(result))
    return result


def text_of(path: Path, reference: Path, *options: str) -> str:
    return pysam.view("--no-PG", "-T", str(reference), *options, str(path))


def records_of(text: str) -> list[str]:
    """Return records with sorted tags: CRAM does not keep their order."""
    split = [line.split("\t") for line in text.splitlines() if line[0] != "@"]
    return ["\t".join(fields[:11] + sorted(fields[11:])) for fields in split]


@pytest.mark.medium
@pytest.mark.parametrize("fmt", FORMATS)
def test_samtools_and_the_checker_find_nothing(
    world: World, tmp_path: Path, case: Case, fmt: str
) -> None:
    path = case.map_to(fmt, False)
    if fmt != "sam":  # which is not checked for SAM
        pysam.quickcheck(str(path))
    for paired, reads in ((True, case.pairs), (False, case.singles)):
        checker = Checker(world.genome, reads, paired=paired, read_group="a")
        with pysam.AlignmentFile(str(path), reference_filename=str(case.reference)) as file:
            records = [r for r in file.fetch(until_eof=True) if r.is_paired == paired]
        assert checker.check_records(records) == []
    text = text_of(path, case.reference, "-h")
    assert records_of(text) == records_of(text_of(case.map_to("bam", False), case.reference))
    (tmp_path / "x.sam").write_text(text)
    for option, name in (("-b", "x.bam"), ("-C", "x.cram")):
        back = tmp_path / name
        pysam.view(
            "--no-PG", option, "-T", str(case.reference), "-o", str(back), str(tmp_path / "x.sam"),
            catch_stdout=False,
        )  # fmt: skip
        assert records_of(text_of(back, case.reference)) == records_of(text)


@pytest.mark.parametrize("fmt", ["bam", "cram"])
def test_sorted_is_what_samtools_sort_makes(tmp_path: Path, case: Case, fmt: str) -> None:
    ours = case.map_to(fmt, True)
    pysam.quickcheck(str(ours))
    theirs = tmp_path / f"x.{fmt}"
    pysam.sort(
        "--no-PG", "--reference", str(case.reference), "-O", fmt, "-o", str(theirs),
        str(case.map_to(fmt, False)),
    )  # fmt: skip
    expected = records_of(text_of(theirs, case.reference))
    assert records_of(text_of(ours, case.reference)) == expected
    assert len(expected) >= len(case.pairs) + len(case.singles)


def validate(path: Path, reference: Path | None) -> str:
    """Return a line for each kind of error that ValidateSamFile finds, or that there is none."""
    command = [
        str(PICARD), "ValidateSamFile", f"I={path}", "MODE=SUMMARY", "QUIET=true",
        "VERBOSITY=ERROR",
    ]  # fmt: skip
    if reference is not None:
        command.append(f"R={reference}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return "\n".join(line for line in lines if line.startswith(("ERROR", "WARNING", "No errors")))


needs_picard = pytest.mark.skipif(PICARD is None, reason="Picard is not installed")


@needs_picard
@pytest.mark.parametrize("fmt", FORMATS)
def test_picard_finds_nothing(case: Case, fmt: str) -> None:
    # Picard reads a reference of several contigs forward only.
    sort = fmt != "sam"
    path = case.map_to(fmt, sort)
    assert validate(path, case.reference if sort else None) == "No errors found"


@needs_picard
def test_picard_finds_what_is_wrong(world: World, tmp_path: Path) -> None:
    """The test above can fail: a record has a read group that is not in the header."""
    map_to(world.index, tmp_path / "x.sam", world.first, read_group=READ_GROUP)
    text = (tmp_path / "x.sam").read_text()
    (tmp_path / "y.sam").write_text(text.replace("\tRG:Z:a", "\tRG:Z:b", 1))
    assert "ERROR:READ_GROUP_NOT_FOUND" in validate(tmp_path / "y.sam", None)


def test_template_lengths_are_those_of_samtools_fixmate(world: World, tmp_path: Path) -> None:
    """Of mates apart, within each other, beyond each other's start, and on one strand."""
    name, letters = next(iter(world.genome.items()))
    rows: list[list[str]] = [[], []]
    for i in range(60):
        at = 1000 + 250 * i
        mate = at + (300, 20, 0, -40, -400, 150)[i % 6]
        ends = [letters[at : at + 120], letters[mate : mate + 120]]
        if i % 6 < 5:
            ends[1] = ends[1].translate(COMPLEMENT)[::-1]
        for row, end in zip(rows, ends, strict=True):
            row.append(f"@{name}_{i}\n{end}\n+\n{'I' * 120}\n")
    paths = [tmp_path / "1.fq", tmp_path / "2.fq"]
    for path, row in zip(paths, rows, strict=True):
        path.write_text("".join(row))
    map_to(world.index, tmp_path / "x.bam", *map(str, paths))
    pysam.fixmate(str(tmp_path / "x.bam"), str(tmp_path / "y.bam"), catch_stdout=False)
    ours, theirs = (
        [
            (r.query_name, r.flag & 0xC0, r.template_length)
            for r in mapping_runs.records_of(tmp_path / file)
        ]
        for file in ("x.bam", "y.bam")
    )
    assert ours == theirs
    assert len({length > 0 for _, segment, length in ours if segment == 0x40}) == 2
