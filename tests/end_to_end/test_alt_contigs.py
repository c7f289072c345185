"""References with ALT contigs, haplotypes and masked regions, from the command line to records."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam
import pytest

from mapper.cli.main import main
from tests.helpers.mapping_runs import records_of
from tests.helpers.read_batches import mutated, random_letters
from tests.helpers.simulate import Read, sample_pairs, write_fasta, write_fastq
from tests.naive.sam_check import Checker
from tests.naive.seeds import oriented

BWA = shutil.which("bwa")
INSERT = ["-I", "350,40"]


class Reference(NamedTuple):
    """A reference on disk, with reads of all its contigs."""

    folder: Path
    contigs: dict[str, str]
    reads: list[Read]
    index: Path

    def map_to(self, name: str, *options: str, index: Path | None = None) -> list[Any]:
        """Map the reads as pairs; return the records."""
        out = self.folder / name
        words = ["map", index or self.index, self.folder / "1.fq", self.folder / "2.fq", "-o", out]
        assert main([*map(str, words), *INSERT, "--quiet", *options]) == 0
        return records_of(out)


def write_reference(
    folder: Path, contigs: dict[str, str], *options: str, donor: dict[str, str] | None = None
) -> Reference:
    """Index contigs; simulate reads of a donor, or of the contigs themselves."""
    write_fasta(folder / "ref.fa", contigs)
    assert main(["index", str(folder / "ref.fa"), "--quiet", *options]) == 0
    sample = sample_pairs(donor or contigs, 500, seed=3)
    write_fastq(folder / "1.fq", sample.reads[::2])
    write_fastq(folder / "2.fq", sample.reads[1::2])
    return Reference(folder, contigs, sample.reads, folder / "ref.fmw")


def valid(reference: Reference, name: str) -> bool:
    reads = [(read.name, read.letters, read.quals) for read in reference.reads]
    return Checker(reference.contigs, reads, paired=True).check_file(reference.folder / name) == []


def primary(records: list[Any]) -> list[Any]:
    return [record for record in records if not record.flag & 0x900]


@pytest.fixture(scope="module")
def with_alt(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("alt")
    rng = np.random.default_rng(1)
    first, second = random_letters(rng, 12_000), random_letters(rng, 6_000)
    contigs = {
        "chr1": first,
        "chr2": second,
        "chr1_alt": mutated(rng, first[2_000:6_000], 0.015),
        "chr1_alt2": mutated(rng, first[3_000:6_000], 0.015),
        "chr2_alt": oriented(second[1_000:4_000], 1),
        "chr1_alt3": first[7_000:8_500] + random_letters(rng, 600) + first[8_500:10_000],
    }
    lines = [f"{name}\t0\tchr1\t1\t60\t*\t*\t0\t0\t*\t*\n" for name in contigs if "alt" in name]
    (folder / "ref.fa.alt").write_text("@HD\tVN:1.6\n" + "".join(lines))
    return write_reference(folder, contigs)


def test_the_header_and_info_tell_alt_contigs(
    with_alt: Reference, capsys: pytest.CaptureFixture[str]
) -> None:
    with_alt.map_to("header.bam")
    with pysam.AlignmentFile(str(with_alt.folder / "header.bam")) as file:
        lines = file.header.to_dict()["SQ"]
    assert {line["SN"] for line in lines if line.get("AH") == "*"} == {
        name for name in with_alt.contigs if "alt" in name
    }
    capsys.readouterr()
    assert main(["info", str(with_alt.index)]) == 0
    facts = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines())
    assert facts["ALT contigs"].split() == ["4"]
    assert facts["masked"].split() == ["0", "bases"]


def test_the_primary_assembly_has_the_records_that_it_has_alone(
    with_alt: Reference, tmp_path: Path
) -> None:
    """Not the same qualities: they depend on all copies that seeds may have missed."""
    main_contigs = {n: text for n, text in with_alt.contigs.items() if "alt" not in n}
    write_fasta(tmp_path / "main.fa", main_contigs)
    assert main(["index", str(tmp_path / "main.fa"), "--quiet"]) == 0
    records = with_alt.map_to("alt.bam")
    assert valid(with_alt, "alt.bam")
    ours, alone = (
        primary(records),
        primary(with_alt.map_to("main.bam", index=tmp_path / "main.fmw")),
    )
    same = surer = n = 0
    for a, b in zip(ours, alone, strict=True):
        if "alt" in a.reference_name:  # in the insertion
            continue
        n += 1
        here = (a.reference_name, a.reference_start, a.cigarstring)
        same += here == (b.reference_name, b.reference_start, b.cigarstring)
        surer += (a.mapping_quality >= 30) == (b.mapping_quality >= 30)
    assert n > 0.95 * len(ours)
    assert same > 0.985 * n
    assert surer > 0.985 * n


def test_a_better_alt_hit_is_a_supplementary_record(with_alt: Reference) -> None:
    records = with_alt.map_to("alt.bam")
    by_read: dict[tuple[str, int], list[Any]] = {}
    for record in records:
        by_read.setdefault((record.query_name, record.flag & 0xC0), []).append(record)
    n_better = n_listed = 0
    for group in by_read.values():
        head, *others = group
        better = [r for r in others if "alt" in r.reference_name]
        if "alt" in head.reference_name:  # in the insertion
            assert not others
            continue
        for r in better:
            assert r.is_supplementary and "H" not in r.cigarstring
            assert r.query_length == head.query_length
        if head.has_tag("pa"):
            scores = [r.get_tag("AS") for r in better]
            assert any(
                head.get_tag("pa") == pytest.approx(head.get_tag("AS") / score, abs=6e-4)
                for score in scores
            )
            n_better += 1
        n_listed += "alt" in head.get_tag("XA") if head.has_tag("XA") else 0
    assert n_better > 40 and n_listed > 100


def test_no_alt_makes_contigs_equal(with_alt: Reference) -> None:
    plain = with_alt.folder / "plain.fmw"
    options = ["--no-alt", "-o", str(plain), "--quiet"]
    assert main(["index", str(with_alt.folder / "ref.fa"), *options]) == 0
    sure = [
        sum(r.mapping_quality >= 30 for r in primary(with_alt.map_to("x.bam", index=index)))
        for index in (with_alt.index, plain)
    ]
    assert sure[0] > 1.1 * sure[1]
    records = with_alt.map_to("plain.bam", index=plain)
    assert any("alt" in r.reference_name for r in primary(records))
    assert not any(r.has_tag("pa") for r in records)


@pytest.mark.parametrize("form", ["list", "gzip"])
def test_a_list_of_alt_contigs_gives_the_same_index(
    with_alt: Reference, tmp_path: Path, form: str
) -> None:
    names = "".join(f"{name}\n" for name in with_alt.contigs if "alt" in name)
    (tmp_path / "names.txt").write_text(names)
    fasta = tmp_path / "ref.fa"
    shutil.copy(with_alt.folder / "ref.fa", fasta)
    options = ["--alt", str(tmp_path / "names.txt")]
    if form == "gzip":  # bwa's name for it, beside a reference that is compressed since
        pysam.tabix_compress(str(fasta), f"{fasta}.gz")
        fasta.unlink()
        shutil.copy(with_alt.folder / "ref.fa.alt", tmp_path / "ref.fa.alt")
        fasta, options = tmp_path / "ref.fa.gz", []
    assert main(["index", str(fasta), "--quiet", *options]) == 0
    for name in ("blocks.npy", "ref_planes.npy"):
        assert (tmp_path / "ref.fmw" / name).read_bytes() == (with_alt.index / name).read_bytes()
    one, other = (with_alt.map_to("x.bam", index=i) for i in (with_alt.index, tmp_path / "ref.fmw"))
    assert [r.to_string() for r in one] == [r.to_string() for r in other]


@pytest.mark.skipif(BWA is None, reason="bwa is not installed (apt-get install bwa)")
def test_places_are_those_of_bwa(with_alt: Reference) -> None:
    folder = with_alt.folder
    assert BWA is not None
    subprocess.run([BWA, "index", str(folder / "ref.fa")], check=True, capture_output=True)
    done = subprocess.run(
        [BWA, "mem", *INSERT, str(folder / "ref.fa"), str(folder / "1.fq"), str(folder / "2.fq")],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "bwa.sam").write_bytes(done.stdout)

    def summary(records: list[Any]) -> list[tuple[Any, ...]]:
        """Return, for each read, its primary's place, and the ALT contigs of its other records."""
        rows: list[tuple[Any, ...]] = []
        for r in records:
            if r.flag & 0x900:
                if "alt" in r.reference_name:
                    rows[-1][-1].append(r.reference_name)
                continue
            place = (r.reference_name, r.reference_start - r.query_alignment_start)
            rows.append((*place, r.is_proper_pair, r.has_tag("pa"), r.mapping_quality >= 20, []))
        return rows

    theirs = summary(records_of(folder / "bwa.sam"))
    ours = summary(with_alt.map_to("x.bam"))
    same = [a == b for a, b in zip(ours, theirs, strict=True)]
    assert sum(same) > 0.99 * len(same)


def test_many_alt_haplotypes_do_not_hide_the_primary_assembly(tmp_path: Path) -> None:
    """Their seeds occur more often than those of most repeats."""
    rng = np.random.default_rng(6)
    first = random_letters(rng, 12_000)
    other = mutated(rng, first[4_000:8_000], 0.012)
    contigs = {"chr1": first, **{f"alt{i}": mutated(rng, other, 0.002) for i in range(14)}}
    (tmp_path / "ref.fa.alt").write_text("".join(f"alt{i}\n" for i in range(14)))
    donor = {"chr1": first[3_000:9_000], "alt": mutated(rng, other, 0.002)}
    reference = write_reference(tmp_path, contigs, donor=donor)
    found = primary(reference.map_to("x.bam"))
    assert np.mean([r.reference_name == "chr1" for r in found]) > 0.99
    assert np.mean([r.mapping_quality >= 30 for r in found]) > 0.98


@pytest.fixture(scope="module")
def diploid(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("diploid")
    rng = np.random.default_rng(2)
    first, mito = random_letters(rng, 10_000), random_letters(rng, 1_500)
    first = first[:4_000] + first[1_000:1_400] + first[4_000:]  # a duplication
    contigs = {"hap1": first, "hap2": mutated(rng, first, 0.002), "chrM": mito}
    (folder / "groups.tsv").write_text("hap1\ta\nhap2\tb\n")
    lacking = "".join(first[start : start + 1_700] for start in range(0, len(first), 2_000))
    donor = {"hap1": lacking, "chrM": mito}
    options = ["--group", str(folder / "groups.tsv")]
    return write_reference(folder, contigs, *options, donor=donor)


def test_reads_of_a_diploid_reference_are_sure_of_their_place(diploid: Reference) -> None:
    records = diploid.map_to("x.bam")
    assert valid(diploid, "x.bam")
    plain = diploid.folder / "plain.fmw"
    options = ["-o", str(plain), "--quiet"]
    assert main(["index", str(diploid.folder / "ref.fa"), *options]) == 0
    share = [
        np.mean([r.mapping_quality >= 30 for r in primary(found)])
        for found in (records, diploid.map_to("plain.bam", index=plain))
    ]
    assert share[0] > 0.9 and share[1] < 0.5
    on_haplotypes = [r for r in primary(records) if r.reference_name != "chrM"]
    assert np.mean([r.has_tag("XA") for r in on_haplotypes]) > 0.9
    parts = [r for r in records if r.is_supplementary]  # of reads over a deletion
    whole = [r for r in parts if r.get_tag("SA").split(",")[0] == r.reference_name]
    assert {r.reference_name for r in parts} == {"hap1", "hap2"}
    assert len(whole) > 0.8 * len(parts) > 20


def test_the_insert_size_of_a_diploid_sample_is_estimated(diploid: Reference) -> None:
    words = ["map", diploid.index, diploid.folder / "1.fq", diploid.folder / "2.fq", "-o",
             diploid.folder / "i.bam", "--json-stats", diploid.folder / "i.json"]  # fmt: skip
    assert main([*map(str, words), "--quiet"]) == 0
    assert '"pairs": 0' not in (diploid.folder / "i.json").read_text()


def test_masked_copies_are_not_found_by_seeds_and_keep_their_bases(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    first, flank = random_letters(rng, 8_000), random_letters(rng, 3_000)
    contigs = {"chr1": first, "chr2": flank + first[2_000:5_000] + flank[::-1]}
    (tmp_path / "mask.bed").write_text("chr2\t3000\t6000\tfalse_duplication\n")
    masked = write_reference(tmp_path, contigs, "--mask", str(tmp_path / "mask.bed"))
    plain = tmp_path / "plain.fmw"
    assert main(["index", str(tmp_path / "ref.fa"), "-o", str(plain), "--quiet"]) == 0
    within = {
        name: [r for r in primary(masked.map_to(f"{name}.bam", index=index))
               if r.reference_name == "chr1" and 2_400 < r.reference_start < 4_400]
        for name, index in (("masked", masked.index), ("plain", plain))
    }  # fmt: skip
    assert len(within["masked"]) > 1.5 * len(within["plain"])
    assert np.mean([r.mapping_quality >= 30 for r in within["masked"]]) > 0.95
    assert not any(r.mapping_quality >= 30 for r in within["plain"])
    assert valid(masked, "masked.bam")
    inside = [r for r in primary(records_of(tmp_path / "masked.bam"))
              if r.reference_name == "chr2" and 3_400 < r.reference_start < 5_500]  # fmt: skip
    assert not inside
    over_its_start = [
        r for r in primary(records_of(tmp_path / "masked.bam"))
        if r.reference_name == "chr2" and r.reference_start < 2_970 < 3_030 < r.reference_end
    ]  # fmt: skip
    assert over_its_start
