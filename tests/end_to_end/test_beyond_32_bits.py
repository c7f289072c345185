"""Positions beyond 2**32, from the suffix array to the records: the same reads, moved.

Rows of 64 bits, which texts of 2**32 bases have, are made by lowering that limit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam
import pytest

from mapper.errors import IndexFormatError
from mapper.index import plan as route_module
from mapper.index import storage
from mapper.index.index import Index
from mapper.kmers import pipeline
from mapper.params import KmerParams
from mapper.sorting.options import SortOptions
from tests.helpers.big_offsets import BEYOND, index_at, with_rows_of
from tests.helpers.mapping_runs import World, map_to, records_of
from tests.helpers.mapping_runs import build_index as save_and_open
from tests.helpers.simulate import write_fasta
from tests.naive.sam_check import Checker

WORDS = np.dtype(np.uint64)


class Near(NamedTuple):
    """The genome behind a contig that no read comes from, where no position has to be right."""

    index: Index  # of 64-bit rows
    genome: dict[str, str]
    fasta: Path


@pytest.fixture(scope="module")
def near(world: World, tmp_path_factory: pytest.TempPathFactory) -> Near:
    folder = tmp_path_factory.mktemp("near")
    rng = np.random.default_rng(9)
    genome = {"decoy": "".join(rng.choice(list("ACGT"), 3000))} | world.genome
    write_fasta(folder / "genome.fa", genome)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "NARROW_ROWS", 1000)
        index = save_and_open(folder / "genome.fa", folder / "wide.fmw")
    return Near(index, genome, folder / "genome.fa")


def seeds_of(index: Index, reads: str, output: Path, most: int) -> list[str]:
    job = pipeline.SeedJob(reads, str(output), KmerParams(21, most, 20), stride=50, threads=2)
    counts = pipeline.seed_reads(index, job)
    assert counts.hits > 1000
    return output.read_text().splitlines()


@pytest.mark.slow
def test_records_do_not_depend_on_where_the_text_lies(world, near, tmp_path) -> None:
    """Seeds, loci, alignments, rescued mates, pairs, XA, SA and mate fields.

    The hash that decides between equal places is one of text positions: of those pairs only
    the scores are the same.
    """
    by_name = []
    for name, index in (
        ("near", with_rows_of(near.index, BEYOND)),
        ("far", index_at(near.index, BEYOND)),
    ):
        path = tmp_path / f"{name}.bam"
        stats = map_to(index, path, world.first, world.second, threads=2)
        assert stats.counts["proper"] > 800
        assert Checker(near.genome, world.reads, paired=True).check_file(path) == []
        records: dict[str, list[Any]] = {}
        for record in records_of(path):
            records.setdefault(record.query_name, []).append(record)
        by_name.append(records)
    tags = set()
    n_ties = 0
    for name, expected in by_name[0].items():
        found = by_name[1][name]
        if not has_tie(expected):
            assert [r.to_string() for r in found] == [r.to_string() for r in expected]
            tags |= {tag for record in found for tag, _ in record.get_tags()}
        else:
            n_ties += 1
            assert best_scores(found) == best_scores(expected)
    assert {"XA", "SA", "MC", "XS"} <= tags
    assert n_ties < len(by_name[0]) // 4


def has_tie(records: list[Any]) -> bool:
    """Return True if equal loci compete: MAPQ 0, or parts of a split read with one score."""
    mapped = [record for record in records if not record.is_unmapped]
    parts = [(record.is_read2, record.get_tag("AS")) for record in mapped]
    return len(set(parts)) < len(parts) or not all(record.mapping_quality for record in mapped)


def best_scores(records: list[Any]) -> list[int]:
    return [r.get_tag("AS") if r.has_tag("AS") else -1 for r in records if not r.flag & 0x900]


@pytest.mark.medium
@pytest.mark.parametrize("most", [0, 2])
def test_seeds_do_not_depend_on_where_the_text_lies(world, near, tmp_path, most) -> None:
    expected = seeds_of(near.index, world.first, tmp_path / "near.tsv", most)
    assert (
        seeds_of(index_at(near.index, BEYOND), world.first, tmp_path / "far.tsv", most) == expected
    )


def test_a_contig_of_more_than_512_mbp(near, tmp_path) -> None:
    """Places in it, and the index of the sorted file (.csi) that finds them."""
    far = 600 << 20
    index = index_at(near.index, far, one_contig=True)
    starts = range(800, 2800, 100)
    lines = [f"@r{i}\n{near.genome['decoy'][i : i + 100]}\n+\n{'I' * 100}\n" for i in starts]
    (tmp_path / "reads.fq").write_text("".join(lines))
    map_to(index, tmp_path / "s.bam", str(tmp_path / "reads.fq"), sort=SortOptions())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reads.fq", "s.bam", "s.bam.csi"]
    with pysam.AlignmentFile(str(tmp_path / "s.bam")) as file:
        assert file.header.get_reference_length("decoy") == far + 3000
        found = {r.query_name: r.reference_start for r in file.fetch("decoy", far, far + 3000)}
    assert found == {f"r{i}": far + i for i in starts}


def assert_wide(index: Index, narrow: Index) -> None:
    """Compare an index of 64-bit rows with that of 32-bit ones."""
    for name, column in narrow.fm._asdict().items():
        wide = getattr(index.fm, name)
        assert np.array_equal(wide, column), name
        if name in ("sa_samples", "kmer_starts"):
            assert wide.dtype == WORDS and column.dtype == np.uint32


@pytest.mark.parametrize("route", ["library", "blocks"])
def test_rows_of_64_bits(world, near, tmp_path, monkeypatch, route) -> None:
    """Packed, sorted, stored, opened, mapped to and searched as with 32 bits."""
    narrow = save_and_open(near.fasta, tmp_path / "narrow.fmw")
    index = near.index
    if route == "blocks":
        monkeypatch.setattr(storage, "NARROW_ROWS", 1000)
        monkeypatch.setattr(route_module, "LIBRARY_UP_TO", 0)
        index = Index.build(near.fasta, device="cpu", threads=2)
    assert_wide(index, narrow)
    if route == "library":
        for name, own in (("wide", index), ("narrow", narrow)):
            map_to(own, tmp_path / f"{name}.bam", world.first, world.second, threads=2)
        assert (tmp_path / "wide.bam").read_bytes() == (tmp_path / "narrow.bam").read_bytes()
        expected = seeds_of(narrow, world.first, tmp_path / "narrow.tsv", 1)
        assert seeds_of(index, world.first, tmp_path / "wide.tsv", 1) == expected


def test_an_index_of_other_rows_is_refused(near, tmp_path) -> None:
    near.index.save(tmp_path / "wide.fmw")
    with pytest.raises(IndexFormatError, match=r"sa_samples.npy: holds uint64 .* uint32"):
        Index.open(tmp_path / "wide.fmw")
