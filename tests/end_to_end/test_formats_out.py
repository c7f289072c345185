"""Whole runs to every output format: the same records in each."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pysam
import pytest

from mapper.sorting.options import MarkOptions, SortOptions
from tests.helpers.mapping_runs import World, lines_of, map_to, records_of

READ_GROUP = r"@RG\tID:a\tSM:s"


@pytest.fixture(scope="module")
def reference(world: World, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("reference") / "genome.fa"
    path.write_bytes((Path(world.index_path).parent / "genome.fa").read_bytes())
    return str(path)


@pytest.fixture(scope="module")
def from_fastq(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fastq") / "out.bam"
    map_to(world.index, path, world.first, world.second, read_group=READ_GROUP)
    return path


def test_cram_holds_the_same(world, tmp_path, from_fastq, reference):
    for name, options in (("plain", {}), ("sorted", {"sort": SortOptions()})):
        out = tmp_path / f"{name}.cram"
        map_to(
            world.index, out, world.first, world.second, read_group=READ_GROUP, threads=2,
            reference=reference, **options,
        )  # fmt: skip
        with pysam.AlignmentFile(str(out), reference_filename=reference) as file:
            assert file.is_cram
            assert file.version == (3, 0)  # many readers know no later one
            lines = [record.to_string() for record in file.fetch(until_eof=True)]
            assert all("M5" in sq for sq in file.header.to_dict()["SQ"])
        if name == "plain":
            assert normal(lines) == normal(lines_of(from_fastq))
        else:
            assert sorted(normal(lines)) == sorted(normal(lines_of(from_fastq)))
            assert (tmp_path / "sorted.cram.crai").exists()
            with pysam.AlignmentFile(str(out), reference_filename=reference) as file:
                assert sum(1 for _ in file.fetch(next(iter(world.genome)))) > 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"plain.cram", "sorted.cram", "sorted.cram.crai"}


def normal(lines: list[str]) -> list[str]:
    """Return records with sorted tags: CRAM does not keep their order."""
    split = [line.split("\t") for line in lines]
    return ["\t".join(fields[:11] + sorted(fields[11:])) for fields in split]


def test_a_failing_cram_leaves_nothing(world, tmp_path, reference):
    from mapper.errors import OutputError

    with pytest.raises(OutputError, match=r"/dev/full: samtools view failed: "):
        map_to(
            world.index, Path("/dev/full"), world.first, output_format="cram",
            reference=reference,
        )  # fmt: skip


def test_paf_has_the_places_of_sam(world, tmp_path, from_fastq):
    map_to(world.index, tmp_path / "out.paf", world.first, world.second)
    given = [line.split("\t") for line in (tmp_path / "out.paf").read_text().splitlines()]
    mapped = [record for record in records_of(from_fastq) if not record.is_unmapped]
    assert len(given) == len(mapped)
    for fields, record in zip(given, mapped, strict=True):
        assert fields[0] == f"{record.query_name}/{1 if record.is_read1 else 2}"
        assert int(fields[1]) == record.infer_read_length()
        assert (fields[4] == "-") == record.is_reverse
        assert fields[5] == record.reference_name
        assert int(fields[6]) == len(world.genome[record.reference_name])
        assert (int(fields[7]), int(fields[8])) == (record.reference_start, record.reference_end)
        matches = int(fields[10]) - record.get_tag("NM")
        assert int(fields[9]) == matches
        assert int(fields[11]) == record.mapping_quality
        left = record.cigartuples[0]
        right = record.cigartuples[-1]
        clip = right if record.is_reverse else left
        assert int(fields[2]) == (clip[1] if clip[0] in (4, 5) else 0)
        assert f"AS:i:{record.get_tag('AS')}" in fields


def test_duplicates_are_those_of_samtools(world, tmp_path):
    """Every pair twice, the second time with lower qualities: these are the duplicates."""
    texts = []
    for path in (world.first, world.second):
        lines = Path(path).read_text().splitlines()
        worse = list(lines)
        worse[0::4] = [f"@copy_{line[1:]}" for line in lines[0::4]]
        worse[3::4] = ["#" * len(line) for line in lines[3::4]]
        texts.append("\n".join(lines + worse) + "\n")
    paths = [tmp_path / "1.fq", tmp_path / "2.fq"]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    out = tmp_path / "out.bam"
    map_to(world.index, out, *map(str, paths), sort=SortOptions(duplicates=MarkOptions()))
    records = records_of(out)
    flagged = {(r.query_name, r.is_read1) for r in records if r.is_duplicate}
    primary = [r for r in records if not r.flag & 0x900 and not r.is_unmapped]
    originals = [r for r in primary if not r.query_name.startswith("copy_")]
    copies = [r for r in primary if r.query_name.startswith("copy_")]
    # In repeats the copy may go elsewhere, and a worse copy may align in another way.
    sure = [r for r in copies if r.mapping_quality >= 30 and r.is_proper_pair]
    assert np.mean([(r.query_name, r.is_read1) in flagged for r in sure]) > 0.95
    assert np.mean([(r.query_name, r.is_read1) in flagged for r in originals]) < 0.05
    assert (tmp_path / "out.bam.bai").exists()
    pysam.quickcheck(str(out))
    plain = tmp_path / "plain.bam"
    map_to(world.index, plain, *map(str, paths), sort=SortOptions())
    expected = tmp_path / "expected.bam"
    pysam.markdup("--no-PG", str(plain), str(expected), catch_stdout=False)
    assert lines_of(out) == lines_of(expected)


@pytest.mark.parametrize("level", [0, 6])
def test_levels(world, tmp_path, from_fastq, level):
    for name, options in (("plain", {}), ("sorted", {"sort": SortOptions()})):
        out = tmp_path / f"{name}.bam"
        map_to(
            world.index, out, world.first, world.second, compression=level,
            read_group=READ_GROUP, **options,
        )  # fmt: skip
        assert sorted(lines_of(out)) == sorted(lines_of(from_fastq))
        assert gzip.decompress(out.read_bytes()).startswith(b"BAM\1")
