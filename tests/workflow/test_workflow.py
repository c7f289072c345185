"""The workflow on the bundled reads: its results, and its import by another workflow."""

from __future__ import annotations

import csv
import importlib.util
import json
import platform
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pysam
import pytest

from mapper import __version__
from tests.helpers.workflow_runs import (
    CONFIG,
    DATA,
    PHIX,
    ROOT,
    SAMPLES_HEADER,
    UNITS_HEADER,
    copied,
    needs_snakemake,
    project,
    snakemake,
    unaligned,
)

pytestmark = needs_snakemake

STATISTICS = (
    "flagstat.txt", "stats.txt", "idxstats.tsv", "coverage.tsv", "depth.tsv", "identity.tsv",
    "markdup.json",
)  # fmt: skip
PLOTS = ("reads", "insert_size", "coverage", "depth", "mapq", "read_length", "identity")
UNCOUNTED = 0x704  # unmapped, secondary, failed checks, duplicate


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open() as table:
        return list(csv.DictReader(table, delimiter="\t"))


def positions_and_qualities(path: Path, reference: Path) -> tuple[np.ndarray, list[int]]:
    """Return the depth of each position of a file's only contig, and the aligned qualities."""
    qualities: list[int] = []
    with pysam.AlignmentFile(str(path), reference_filename=str(reference)) as file:
        depths = np.zeros(file.lengths[0], int)
        for record in file.fetch(until_eof=True):
            if record.flag & UNCOUNTED:
                continue
            for at, position in record.get_aligned_pairs(matches_only=True):
                depths[position] += 1
                qualities.append(record.query_qualities[at])
    return depths, qualities


def test_dry_run_of_the_bundled_settings():
    run = snakemake(ROOT, "--dry-run", "--forceall", "--nolock")
    assert run.returncode == 0, run.stdout
    for rule, n in (
        ("fmwave_index", 1), ("map_sample", 1), ("fmwave_map", 2), ("finish_sample", 1),
        ("alignment_statistics", 2), ("plots", 1),
    ):  # fmt: skip
        assert run.stdout.count(f"rule {rule}:") == n, rule
    assert "split_reads" not in run.stdout
    assert "--device cpu" in run.stdout
    assert "gpu=1" not in run.stdout


@pytest.mark.medium
def test_samples_of_pairs_and_single_reads_to_cram_and_reports(tmp_path):
    """Two libraries, single reads, duplicates marked and not; write-protected CRAM."""
    twice = copied(tmp_path, "twice", *PHIX)  # the same molecules, in another library and run
    again = copied(tmp_path, "again", *PHIX)
    single = copied(tmp_path, "single", PHIX[0])
    kept = copied(tmp_path, "kept", PHIX[0])
    units = (
        f"phix\ta\t{PHIX[0]}\t{PHIX[1]}\tone\t\n"
        f"phix\tb\t{again}\ttwo\t\n"
        f"phix\tc\t{twice}\ttwo\t\n"
        f"single\ta\t{single}\t\t\n"
        f"kept\ta\t{kept}\t\t\n"
    )
    directory = project(
        tmp_path,
        CONFIG + "output: {format: cram, protect: true}\n",
        SAMPLES_HEADER + "# a comment\nphix\t\nsingle\tyes\nkept\tno\n",
        UNITS_HEADER + "# a comment\n" + units,
    )

    run = snakemake(directory)

    assert run.returncode == 0, run.stdout
    results = directory / "results"
    assert not (directory / "benchmarks").exists()
    reference = results / "reference" / "reference.fa"
    libraries = {"phix": ["one", "two", "two"], "single": ["single"], "kept": ["kept"]}
    for sample, expected in libraries.items():
        path = results / "mapped" / f"{sample}.cram"
        assert not path.stat().st_mode & 0o222
        with pysam.AlignmentFile(str(path), reference_filename=str(reference)) as cram:
            assert cram.has_index()
            assert cram.is_cram
            assert cram.version == (3, 0)
            assert cram.header["HD"]["SO"] == "coordinate"
            groups = cram.header["RG"]
            assert [group["LB"] for group in groups] == expected
            assert [group["ID"] for group in groups] == [f"{sample}-{u}" for u in "abc"][
                : len(groups)
            ]
            assert {(group["SM"], group["PL"]) for group in groups} == {(sample, "ILLUMINA")}
            found = list(cram.fetch(until_eof=True))
        primary = [r for r in found if not r.flag & 0x900]
        n_reads = 45 if sample != "phix" else 3 * 90
        assert len(primary) == n_reads
        assert sum(r.is_mapped for r in primary) >= 0.85 * n_reads  # bwa mem: 94 % of the pairs
        duplicates: dict[str, int] = {}
        for r in primary:
            group = str(r.get_tag("RG"))
            duplicates[group] = duplicates.get(group, 0) + r.is_duplicate
        if sample == "phix":
            # Library two holds everything twice, library one has no copies but its own.
            n_mapped = sum(r.is_mapped and r.get_tag("RG") == "phix-a" for r in primary)
            assert duplicates["phix-b"] + duplicates["phix-c"] >= n_mapped - 4
            assert duplicates["phix-a"] <= 0.2 * n_mapped
        if sample == "kept":
            assert sum(duplicates.values()) == 0
        for kind in STATISTICS:
            assert (results / "stats" / f"{sample}.{kind}").stat().st_size > 0
        marked = json.loads((results / "stats" / f"{sample}.markdup.json").read_text())
        if sample == "kept":
            assert marked == {"duplicates": "not marked"}
        else:
            # It counts no unmapped mates of duplicates, and they are marked too.
            assert 0 < marked["DUPLICATE PRIMARY TOTAL"] <= sum(duplicates.values())
    summary = read_table(results / "summary.tsv")
    assert [(row["sample"], row["reads"]) for row in summary] == [
        ("phix", "270"), ("single", "45"), ("kept", "45"),
    ]  # fmt: skip
    assert all(0 < float(row["breadth"]) <= 1 < float(row["mean_depth"]) for row in summary)
    assert float(summary[0]["insert_size_mean"]) > 100
    assert [row["insert_size_mean"] for row in summary[1:]] == ["NA", "NA"]
    for sample, row in zip(libraries, summary, strict=True):
        path = results / "mapped" / f"{sample}.cram"
        depths, qualities = positions_and_qualities(path, reference)
        (coverage,) = read_table(results / "stats" / f"{sample}.coverage.tsv")
        assert float(coverage["meanbaseq"]) == pytest.approx(np.mean(qualities), abs=0.06)
        assert float(coverage["meandepth"]) == pytest.approx(np.mean(depths), rel=1e-5)
        table = read_table(results / "stats" / f"{sample}.depth.tsv")
        found = {int(line["depth"]): int(line["positions"]) for line in table}
        counted = enumerate(np.bincount(depths))
        assert found == {depth: n for depth, n in counted if n or not depth}
        for least in (10, 20, 30):
            part = np.mean(depths >= least)
            assert float(row[f"breadth_{least}x"]) == pytest.approx(part, rel=1e-3)
    units = read_table(results / "units.tsv")
    assert [(row["sample"], row["unit"], row["library"], row["reads"]) for row in units] == [
        ("phix", "a", "one", "90"), ("phix", "b", "two", "90"), ("phix", "c", "two", "90"),
        ("single", "a", "single", "45"), ("kept", "a", "kept", "45"),
    ]  # fmt: skip
    assert [row["mapped"] for row in units[:2]] == [units[2]["mapped"]] * 2
    assert [row["insert_size_sd"] for row in units[3:]] == ["NA", "NA"]
    versions = {row["program"]: row["version"] for row in read_table(results / "versions.tsv")}
    assert versions == {
        "fmwave": __version__, "Python": platform.python_version(), "numba": version("numba"),
        "NumPy": version("numpy"), "samtools": pysam.version.__samtools_version__,
        "htslib": pysam.version.__htslib_version__, "Matplotlib": version("matplotlib"),
        "Snakemake": version("snakemake"),
    }  # fmt: skip
    for plot in PLOTS:
        svg = ElementTree.parse(results / "plots" / f"{plot}.svg")
        texts = "".join(svg.getroot().itertext())
        named = {"phix", "single", "kept"} & set(texts.split())
        if plot in ("read_length", "identity"):
            assert "no long reads" in texts
        else:
            assert named == ({"phix"} if plot == "insert_size" else {"phix", "single", "kept"})
    assert not (results / "parts").exists()  # temp()
    for kind in ("logs", "benchmarks"):
        found = {path.stem for path in (results / kind / "finish_sample").iterdir()}
        assert found == {"phix"}  # the others are one job

    assert "Nothing to be done" in snakemake(directory).stdout
    report = snakemake(directory, "--report", "report.html")
    assert report.returncode == 0, report.stdout
    html = (directory / "report.html").read_text()
    for plot in PLOTS:
        assert f"results/plots/{plot}.svg" in html


@pytest.mark.medium
def test_units_of_unaligned_bam_beside_fastq(tmp_path):
    unaligned(tmp_path / "phix.bam", "phix")
    unaligned(tmp_path / "other.bam", "somebody")
    units = (
        "sample\tunit\tfq1\tfq2\tbam\n"
        f"phix\tfastq\t{PHIX[0]}\t{PHIX[1]}\t\n"
        "phix\tubam\t\t\tphix.bam\n"
        "wrong\tubam\t\t\tother.bam\n"
    )
    samples = SAMPLES_HEADER + "phix\tno\nwrong\t\n"
    directory = project(tmp_path, CONFIG + "map: {chunks: 2}\n", samples, units)

    run = snakemake(directory, "--keep-going", "--until", "finish_sample")

    assert run.returncode != 0
    assert "read groups of sample somebody, in sample wrong of the sheet" in run.stdout
    mapped = directory / "results" / "mapped"
    assert not (mapped / "wrong.bam").exists()
    with pysam.AlignmentFile(str(mapped / "phix.bam")) as bam:
        assert {group["ID"] for group in bam.header["RG"]} == {"phix-fastq", "lane"}
        of_unit: dict[str, list] = {"phix-fastq": [], "lane": []}
        for record in bam.fetch(until_eof=True):
            group = str(record.get_tag("RG"))
            assert record.has_tag("RX") == (group == "lane")
            of_unit[group].append((record.query_name, record.flag, record.pos, record.cigarstring))
    assert of_unit["lane"] == of_unit["phix-fastq"]
    assert len(of_unit["lane"]) >= 90


@pytest.mark.medium
@pytest.mark.parametrize("chunks", ["", "2"])
@pytest.mark.parametrize(
    ("sample", "library", "message"),
    [
        ("somebody", "", "read groups of sample somebody, in sample phix of the sheet"),
        ("phix", "pool", "read groups of library lib, in library pool of the sheet"),
    ],
)
def test_read_groups_that_contradict_the_sheet_are_refused_before_mapping(
    tmp_path, chunks, sample, library, message
):
    unaligned(tmp_path / "reads.bam", sample)
    units = (
        "sample\tunit\tfq1\tfq2\tbam\tlibrary\tchunks\n"
        f"phix\ta\t\t\treads.bam\t{library}\t{chunks}\n"
        f"phix\tb\t{PHIX[0]}\t{PHIX[1]}\t\tlib\t\n"
    )
    directory = project(tmp_path, units=units)
    part = f"phix-a.1-of-{chunks or 1}"
    run = snakemake(directory, "--", f"results/parts/{part}.bam")
    assert run.returncode != 0
    assert message in run.stdout
    log = (directory / "results" / "logs" / "map" / f"{part}.log").read_text()
    assert "computing on" not in log


@pytest.mark.medium
def test_read_groups_of_the_library_of_the_sheet_are_taken(tmp_path):
    unaligned(tmp_path / "reads.bam", "phix")
    units = "sample\tunit\tbam\tlibrary\nphix\ta\treads.bam\tlib\n"
    run = snakemake(project(tmp_path, units=units), "--", "results/mapped/phix.bam")
    assert run.returncode == 0, run.stdout


@pytest.mark.medium
def test_a_read_of_bam_without_read_group_is_an_error(tmp_path):
    unaligned(tmp_path / "whole.bam", "phix")
    with (
        pysam.AlignmentFile(str(tmp_path / "whole.bam"), check_sq=False) as whole,
        pysam.AlignmentFile(str(tmp_path / "phix.bam"), "wb", template=whole) as bam,
    ):
        for number, record in enumerate(whole.fetch(until_eof=True)):
            record.set_tag("RG", "lane" if number > 1 else None)
            bam.write(record)
    config = CONFIG + "output: {format: cram}\n"
    units = "sample\tunit\tbam\nphix\tubam\tphix.bam\n"
    directory = project(tmp_path, config, units=units)

    run = snakemake(directory, "--until", "alignment_statistics")

    assert run.returncode != 0
    assert "results/mapped/phix.cram: 2 records have no read group" in run.stdout
    assert "Traceback" not in run.stdout


@pytest.mark.skipif(
    importlib.util.find_spec("multiqc") is None,
    reason="multiqc is not installed: pip install -e '.[multiqc]'",
)
def test_multiqc_knows_every_statistic(tmp_path):
    directory = project(tmp_path, CONFIG + "report: {multiqc: true}\n")
    run = snakemake(directory)
    assert run.returncode == 0, run.stdout
    log = (directory / "results" / "logs" / "multiqc.log").read_text()
    for kind in ("stats", "flagstat", "idxstats", "coverage", "markdup"):
        assert f"Found 1 {kind} reports" in log
    assert "phix.coverage<" not in (directory / "results" / "multiqc.html").read_text()


@pytest.mark.medium
@pytest.mark.parametrize("prefix", [None, "mapping/"])
def test_another_workflow_imports_this_one_and_moves_its_results(tmp_path, prefix):
    """With overridden config, threads and paths; user files stay where they are."""
    directory = project(tmp_path)
    importing = directory / "Snakefile"
    settings = {
        "reference": str(DATA / "phix174.fa"),
        "samples": "samples.tsv",
        "units": "units.tsv",
        "map": {"chunks": 2},
    }
    importing.write_text(
        f"""
module mapping:
    snakefile: "{ROOT / "workflow" / "Snakefile"}"
    config: {settings}
    {f'prefix: "{prefix}"' if prefix else ""}
    pathvars:
        results="elsewhere",

use rule * from mapping as mapping_*

use rule fmwave_map from mapping as mapping_fmwave_map with:
    threads: 1
"""
    )

    run = snakemake(directory, "--dry-run", "mapping_all", snakefile=importing)

    assert run.returncode == 0, run.stdout
    base = f"{prefix or ''}elsewhere"
    assert f" fmwave map {base}/index/reference.fmw " in run.stdout
    assert f"-o {base}/parts/phix-run1.2-of-2.bam --sort -t 1 " in run.stdout
    assert f"--insert-size-from {base}/insert_size/phix-run1.json" in run.stdout
    assert f"{base}/chunks/phix-run1/2_R1.fq.gz" in run.stdout
    assert f"exec > {base}/logs/map/phix-run1.2-of-2.log" in run.stdout
    assert f"{base}/mapped/phix.bam" in run.stdout
    assert f" {PHIX[0]}" in run.stdout


@pytest.mark.medium
def test_a_workflow_that_imports_this_one_keeps_its_own_default_target(tmp_path):
    directory = project(tmp_path)
    importing = directory / "Snakefile"
    settings = {"samples": "samples.tsv", "units": "units.tsv"}
    settings["reference"] = str(DATA / "phix174.fa")
    importing.write_text(
        f"""
rule variants:
    input:
        "results/mapped/phix.bam",
    output:
        "variants.vcf",
    shell:
        "touch {{output}}"

module mapping:
    snakefile: "{ROOT / "workflow" / "Snakefile"}"
    config: {settings}

use rule * from mapping as mapping_*
"""
    )
    run = snakemake(directory, "--dry-run", snakefile=importing)
    assert run.returncode == 0, run.stdout
    assert "rule variants:" in run.stdout
    assert "rule mapping_map_sample:" in run.stdout
    assert "rule mapping_all:" not in run.stdout
