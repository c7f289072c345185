"""Marks of a reference in the index: ALT contigs, groups, masked bases; errors of their files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mapper.errors import IndexFormatError, InputFormatError, ResourceError
from mapper.index.index import Index
from mapper.index.plan import plan_cpu
from mapper.index.reference import ALT, UNGROUPED
from mapper.index.storage import format_version, open_index, verify
from mapper.params import IndexParams, SeedParams
from mapper.seed.cpu import seed_reads
from mapper.seed.exact import resolve
from tests.helpers.read_batches import packed_reads, random_letters

RNG = np.random.default_rng(4)
ONE = random_letters(RNG, 200)
CONTIGS = {"one": ONE, "two": "NNNNN" + random_letters(RNG, 95), "copy": ONE}
MASK = "two\t90\t95\ncopy\t0\t150\ncopy\t100\t160\none\t0\t10\ntwo\t95\t100\n"
MASKED = {"one": range(10), "two": range(90, 100), "copy": range(160)}


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    path = tmp_path / "ref.fa"
    path.write_text("".join(f">{name}\n{letters}\n" for name, letters in CONTIGS.items()))
    return path


def build(fasta: Path, **files: str) -> Index:
    """Build with files of this content."""
    paths = {}
    for kind, content in files.items():
        paths[kind] = fasta.with_name(f"{kind}.txt")
        paths[kind].write_text(content)
    return Index.build(fasta, **paths)


def bits(planes: np.ndarray) -> np.ndarray:
    """Return bit planes as rows of bits, one for each base."""
    shifts = np.arange(64, dtype=np.uint64)[None, :, None]
    return ((planes[:, None, :] >> shifts) & np.uint64(1)).reshape(-1, 3).astype(bool)


def test_groups_are_kept(fasta: Path, tmp_path: Path) -> None:
    built = build(fasta, alt="copy\n", groups="two\tb\n")
    built.save(tmp_path / "x.fmw")
    verify(tmp_path / "x.fmw")
    for index in (built, Index.open(tmp_path / "x.fmw")):
        assert index.contigs.groups.tolist() == [UNGROUPED, 1, ALT]
        assert index.contigs.groups.dtype == np.int32
        assert not index.contigs.groups.flags.writeable
        assert index.contigs.group_names == ("b",)
        assert index.contigs.alt_names == ["copy"]
        assert index.unmasked_planes is None
        assert index.text_planes is index.fm.ref_planes


def test_names_of_groups_are_numbered_by_their_first_contig(fasta: Path) -> None:
    contigs = build(fasta, groups="copy\tA\ntwo\tZ\none\tZ\n").contigs
    assert contigs.group_names == ("Z", "A")
    assert contigs.groups.tolist() == [1, 1, 2]


def test_masked_bases_are_ambiguous_to_seeds_alone(fasta: Path, tmp_path: Path) -> None:
    plain = Index.build(fasta)
    built = build(fasta, mask=MASK)
    built.save(tmp_path / "x.fmw")
    verify(tmp_path / "x.fmw")
    opened = Index.open(tmp_path / "x.fmw")
    assert opened.n_bytes == built.n_bytes == plain.n_bytes + plain.fm.ref_planes.nbytes
    for index in (built, opened):
        assert index.contigs.md5 == plain.contigs.md5
        assert index.meta.n_masked == sum(map(len, MASKED.values()))
        np.testing.assert_array_equal(index.text_planes, plain.fm.ref_planes)
        found, expected = bits(index.fm.ref_planes), bits(plain.fm.ref_planes)
        for name, start in zip(CONTIGS, plain.contigs.starts.tolist(), strict=True):
            expected[[start + i for i in MASKED[name]], 2] = True
        np.testing.assert_array_equal(found[:, 2], expected[:, 2])


def test_seeds_find_the_copy_that_is_not_masked(fasta: Path) -> None:
    for index, n_places in ((Index.build(fasta), 2), (build(fasta, mask=MASK), 1)):
        params = resolve(SeedParams(), index.fm.n_rows - 1)
        seeds = seed_reads(index.fm, *packed_reads([ONE[40:120], ONE[5:150]]), params)
        assert set(seeds.text_pos - seeds.query_start) == set([40, 5, 342, 307][: 2 * n_places])


def test_an_index_without_marks_has_the_first_format(fasta: Path, tmp_path: Path) -> None:
    for files, version in (({}, 1), ({"mask": "#\n"}, 1), ({"mask": MASK}, 2), ({"alt": "one"}, 2)):
        index = build(fasta, **files)
        assert format_version(index) == version
        index.save(tmp_path / "x.fmw")
        meta = json.loads((tmp_path / "x.fmw/meta.json").read_text())
        assert meta["format_version"] == version
        assert ("masked_bases" in meta) == ("alt" in meta["contigs"]) == (version == 2)
        assert (tmp_path / "x.fmw/unmasked_planes.npy").exists() == (files.get("mask") == MASK)


def test_damage_to_the_unmasked_text_is_told(fasta: Path, tmp_path: Path) -> None:
    build(fasta, mask=MASK).save(tmp_path / "x.fmw")
    file = tmp_path / "x.fmw/unmasked_planes.npy"
    data = bytearray(file.read_bytes())
    data[-20] ^= 1
    file.write_bytes(data)
    with pytest.raises(IndexFormatError, match=r"unmasked_planes\.npy: the checksum differs"):
        verify(tmp_path / "x.fmw")
    file.unlink()
    with pytest.raises(IndexFormatError, match=r"unmasked_planes\.npy: is missing"):
        open_index(tmp_path / "x.fmw")


def test_the_memory_of_a_mask_is_part_of_the_plan(fasta: Path) -> None:
    text_bytes = fasta.stat().st_size
    need = plan_cpu(text_bytes, IndexParams(), 1, None).host_bytes
    Index.build(fasta, memory=need, threads=1, device="cpu")
    fasta.with_name("mask.bed").write_text(MASK)
    mask = fasta.with_name("mask.bed")
    with pytest.raises(ResourceError):
        Index.build(fasta, memory=need, threads=1, device="cpu", mask=mask)


UNKNOWN = r"line {}: there is no contig 'nine' in .*ref\.fa; "


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"alt": "@x\none\nnine\n"}, r"alt\.txt: " + UNKNOWN.format(3) + ".*alt=False"),
        ({"groups": "one\ta\nnine\tb\n"}, r"groups\.txt: " + UNKNOWN.format(2)),
        (
            {"alt": "one\n", "groups": "one\ta\n"},
            r"groups\.txt: line 1: contig 'one' has a group, and is an ALT contig by .*, line 1;",
        ),
        ({"mask": "nine\t0\t5\n"}, r"mask\.txt: " + UNKNOWN.format(1)),
        (
            {"mask": "\none\t0\t201\n"},
            r"mask\.txt: line 2: region 0-201 ends beyond contig 'one', which has 200 bases",
        ),
    ],
)
def test_marks_of_another_reference_are_told(fasta: Path, files, message: str) -> None:
    with pytest.raises(InputFormatError, match=message):
        build(fasta, **files)
