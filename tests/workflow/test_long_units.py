"""Units of long reads: presets by platform, no mates, no duplicates, and their plots."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pysam
import pytest

from tests.helpers.read_batches import random_letters
from tests.helpers.shared_data import shared_file
from tests.helpers.simulate import Read, write_fasta, write_fastq
from tests.helpers.workflow_runs import (
    CONFIG,
    DATA,
    PHIX,
    SAMPLES_HEADER,
    needs_snakemake,
    project,
    script_module,
    snakemake,
)
from tests.naive.seeds import oriented

pytestmark = needs_snakemake

HEADER = "sample\tunit\tfq1\tfq2\tbam\tplatform\tpreset\tchunks\n"


def records_of(path: Path) -> list[pysam.AlignedSegment]:
    with pysam.AlignmentFile(str(path)) as file:
        return list(file.fetch(until_eof=True))


def texts_of(plot: Path) -> str:
    return "".join(ElementTree.parse(plot).getroot().itertext())


@pytest.mark.medium
def test_units_of_nanopore_and_hifi_reads_beside_pairs(tmp_path: Path) -> None:
    """Scattered and whole; reads that lie twice at one place are no duplicates."""
    rng = np.random.default_rng(3)
    text = random_letters(rng, 40_000)
    write_fasta(tmp_path / "g.fa", {"c": text})
    starts = [int(rng.integers(0, 34_000)) for _ in range(20)]
    reads = []
    for i, start in enumerate([*starts, *starts]):
        letters = list(oriented(text[start : start + 3000], start % 2))
        letters[100::100] = ["A" if c != "A" else "C" for c in letters[100::100]]
        reads.append(Read(f"r{i}", "".join(letters), "5" * len(letters)))
    write_fastq(tmp_path / "ont.fq", reads)
    with pysam.AlignmentFile(
        str(tmp_path / "hifi.bam"), "wb", text="@HD\tVN:1.6\n@RG\tID:m1\tSM:hifi\n"
    ) as out:
        for read in reads:
            record = pysam.AlignedSegment()
            record.query_name, record.flag, record.query_sequence = read.name, 4, read.letters
            record.query_qualities = pysam.qualitystring_to_array(read.quals)
            record.set_tag("RG", "m1")
            out.write(record)
    units = (
        "ont\ta\tont.fq\t\t\tONT\t\t2\n"
        "hifi\ta\t\t\thifi.bam\tPACBIO\t\t\n"
        f"short\ta\t{PHIX[0]}\t{PHIX[1]}\t\t\t\t\n"
    )  # fmt: skip
    config = CONFIG.replace(str(DATA / "phix174.fa"), "g.fa")
    directory = project(
        tmp_path, config, SAMPLES_HEADER + "ont\t\nhifi\t\nshort\t\n", HEADER + units
    )

    run = snakemake(directory)

    assert run.returncode == 0, run.stdout
    results = directory / "results"
    assert "--preset ont" in run.stdout
    assert "--preset hifi" in run.stdout
    assert not list((results / "insert_size").glob("ont*"))
    for sample, platform in (("ont", "ONT"), ("hifi", None)):
        with pysam.AlignmentFile(str(results / "mapped" / f"{sample}.bam")) as bam:
            assert [group.get("PL") for group in bam.header["RG"]] == [platform]
            records = list(bam.fetch(until_eof=True))
        assert len(records) == 40
        assert not any(record.is_duplicate for record in records)
        assert all(record.has_tag("de") and record.is_mapped for record in records)
        table = (results / "stats" / f"{sample}.identity.tsv").read_text().splitlines()
        assert table[0] == "identity\treads"
        assert sum(int(line.split("\t")[1]) for line in table[1:]) == 40
        assert all(9880 <= int(line.split("\t")[0]) <= 9920 for line in table[1:])
    short = (results / "stats" / "short.identity.tsv").read_text()
    assert short == "identity\treads\n"
    for plot in ("read_length", "identity"):
        assert {"ont", "hifi", "short"} & set(
            texts_of(results / "plots" / f"{plot}.svg").split()
        ) == {"ont", "hifi"}
    again = snakemake(directory, "--dry-run")
    assert "Nothing to be done" in again.stdout


@pytest.mark.medium
def test_real_hifi_reads_of_a_mitochondrion(tmp_path: Path) -> None:
    """Reads wrap around the origin of a circle: both parts of each are in the file."""
    reads, reference = shared_file("reads/moth_hifi.fa.gz"), shared_file("ref/moth_mt.fa")
    directory = project(
        tmp_path,
        f"reference: {reference}\nsamples: samples.tsv\nunits: units.tsv\n",
        SAMPLES_HEADER + "moth\t\n",
        HEADER + f"moth\ta\t{reads}\t\t\tPACBIO\t\t\n",
    )
    run = snakemake(directory)
    assert run.returncode == 0, run.stdout
    records = records_of(directory / "results" / "mapped" / "moth.bam")
    primary = [record for record in records if not record.flag & 0x900]
    assert len(primary) == 100
    assert sum(record.is_mapped for record in primary) >= 95
    assert any(record.is_supplementary for record in records)
    identity = texts_of(directory / "results" / "plots" / "identity.svg")
    assert "moth" in identity


def test_sheets_that_contradict_themselves(tmp_path: Path) -> None:
    units = (
        f"a\tx\t{PHIX[0]}\t{PHIX[1]}\t\tONT\t\t\n"
        f"a\ty\t{PHIX[0]}\t\t\tILLUMINA\t\t\n"
        f"b\tx\t{PHIX[1]}\t\t\tPACBIO\tclr\t\n"
    )  # fmt: skip
    config = CONFIG + "map: {extra: --preset ont}\n"
    directory = project(tmp_path, config, SAMPLES_HEADER + "a\t\nb\t\n", HEADER + units)
    run = snakemake(directory, "--dry-run")
    assert "map.extra: --preset is not allowed" in run.stdout
    (directory / "config" / "config.yaml").write_text(CONFIG)
    run = snakemake(directory, "--dry-run")
    assert run.returncode != 0
    for message in (
        "line 2: fq2: long reads have no mates",
        "sample 'a' has units of long and of short reads",
        "line 4: preset: 'clr' is not allowed. Expected: sr, hifi or ont",
    ):
        assert message in run.stdout


def test_plots_of_lengths_and_identity() -> None:
    script = script_module("plots")
    none = script.counts_of([])
    reads = script.counts_of([["1000", "50"], ["10000", "5"], ["50000", "1"]])
    curves = script.length_curves([reads, none])
    assert curves.heights[1] is None
    assert curves.heights[0][0] == 1 and np.all(np.diff(curves.heights[0]) <= 0)
    n50 = 10 ** curves.edges[:-1][curves.heights[0] >= 0.5][-1]
    assert 9000 < n50 <= 10_000  # half of the 150 000 bases lie in reads of 10 kb and more
    identities = script.counts_of([["9000", "1"], ["9900", "9"], ["10000", "90"]])
    curves = script.identity_curves([none, identities])
    assert curves.heights[0] is None
    assert curves.edges[0] == 90 and curves.edges[-1] == 100
    assert curves.heights[1][-1] == pytest.approx(0.1)
    assert script.length_curves([none]).heights == script.identity_curves([none]).heights == [None]
