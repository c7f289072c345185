"""Single rules: their resources, and that each remakes its outputs from its inputs."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

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
    records,
    snakemake,
)

pytestmark = needs_snakemake

RULES = {
    name
    for path in (ROOT / "workflow" / "rules").glob("*.smk")
    for name in re.findall(r"^rule (\w+):", path.read_text(), re.MULTILINE)
}
OUTPUTS = {
    "fmwave_compile": ["compiled"],
    "fmwave_index": ["index/reference.fmw"],
    "plain_reference": ["reference/reference.fa", "reference/reference.fa.fai"],
    "split_reads": ["chunks/phix-a"],
    "estimate_insert_size": ["insert_size/phix-a.json"],
    "fmwave_map": [
        "parts/phix-a.2-of-2.bam",
        "parts/phix-a.2-of-2.bam.bai",
        "stats/phix-a.2-of-2.map.json",
    ],
    "finish_sample": ["mapped/phix.cram", "mapped/phix.cram.crai", "stats/phix.markdup.json"],
    "map_sample": [
        "mapped/one.cram",
        "mapped/one.cram.crai",
        "stats/one.markdup.json",
        "stats/one.map.json",
    ],
    "alignment_statistics": [
        f"stats/phix.{name}"
        for name in (
            "flagstat.txt",
            "stats.txt",
            "idxstats.tsv",
            "coverage.tsv",
            "depth.tsv",
            "identity.tsv",
        )
    ],
    "summary": ["summary.tsv", "units.tsv"],
    "efficiency": ["efficiency.tsv", "efficiency.html"],
    "plots": [
        f"plots/{name}.svg"
        for name in ("reads", "insert_size", "coverage", "depth", "mapq", "read_length", "identity")
    ],
    "summary_page": ["summary.html", "versions.tsv"],
}
"""What each rule makes in the run below, under results/. MultiQC has a test of its own."""


def settings(directory: Path) -> Path:
    """Write a project in which every rule has work to do."""
    single = copied(directory, "single", PHIX[0])
    alone = copied(directory, "alone", *PHIX)
    units = f"phix\ta\t{PHIX[0]}\t{PHIX[1]}\t\t2\nphix\tb\t{single}\t\t\n"
    units += f"one\ta\t{alone}\t\t\n"
    config = CONFIG + "output: {format: cram}\nmap: {threads: 1}\n"
    config += "resources: {small_minutes: 0}\n"  # dry runs show jobs of groups in another form
    return project(directory, config, SAMPLES_HEADER + "phix\t\none\t\n", UNITS_HEADER + units)


def jobs_of(
    directory: Path, attempt: int, config: str = ""
) -> dict[str, tuple[set[str], dict[str, str]]]:
    """Return, for each rule of a dry run, the keywords that are shown and the resources."""
    more = directory / "more.yaml"
    more.write_text("report: {multiqc: true}\n" + config)
    multiqc = directory / "bin" / "multiqc"  # need not be installed for a dry run
    multiqc.parent.mkdir(exist_ok=True)
    multiqc.write_text("#!/bin/bash\nexit 1\n")
    multiqc.chmod(0o755)
    options = ["--dry-run", "--attempt", str(attempt), "--configfile", str(more)]
    run = snakemake(directory, *options, first_on_path=multiqc)
    assert run.returncode == 0, run.stdout
    jobs = {}
    for name, text in re.findall(r"^rule (\w+):\n((?:    .*\n)+)", run.stdout, re.MULTILINE):
        keywords = dict(re.findall(r"^    (\w+): (.*)$", text, re.MULTILINE))
        resources = dict(part.split("=", 1) for part in keywords["resources"].split(", "))
        jobs[name] = (set(keywords), resources)
    return jobs


@pytest.mark.medium
def test_every_rule_logs_is_measured_and_bounds_what_it_asks_for(tmp_path):
    """By the caps; and a new attempt alone is no reason to ask for more."""
    directory = settings(tmp_path)
    caps = "resources: {max_mem_mb: 900, max_runtime: 7}\n"
    first, again, bounded = (jobs_of(directory, *case) for case in ((1,), (2,), (1, caps)))
    assert set(first) - {"all"} == RULES == {*OUTPUTS, "multiqc"}
    for rule in RULES:
        keywords, resources = first[rule]
        assert {"log", "benchmark"} <= keywords, rule
        for resource, cap in (("mem_mb", 900), ("runtime", 7)):
            assert int(resources[resource]) > cap
            assert again[rule][1][resource] == resources[resource], (rule, resource)
            assert bounded[rule][1][resource] == str(cap), (rule, resource)
    for profile in (ROOT / "profiles").glob("*/profile.yaml"):
        if profile.parent.name != "local-cpu":
            assert re.search(r"^retries: [12] ", profile.read_text(), re.MULTILINE), profile


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is through, with its temporary files."""
    directory = settings(tmp_path_factory.mktemp("finished"))
    run = snakemake(directory, "--notemp")
    assert run.returncode == 0, run.stdout
    return directory


def content(path: Path, reference: Path) -> object:
    """Return what must be the same in two runs of a rule: no times, no path of the run."""
    if path.is_dir():
        return {p.name: content(p, reference) for p in path.iterdir()}
    if path.suffix in (".bam", ".cram"):
        return records(path, reference)
    if path.suffix == ".json":
        kept = json.loads(path.read_text())
        return {key: kept[key] for key in kept if key not in ("seconds", *MEASURED)}
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".crai":
        return path.stat().st_size > 0  # positions behind a header that names the run's folder
    if path.name == "phix.stats.txt":
        return [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return path.read_bytes()


MEASURED = ("reads_per_second", "peak_memory_bytes")


@pytest.mark.slow
@pytest.mark.parametrize("rule", OUTPUTS)
def test_a_rule_makes_its_outputs_again(rule, finished, tmp_path):
    """The other rules are forbidden: what this one needs must be among its inputs."""
    directory = tmp_path / "again"
    shutil.copytree(finished, directory, copy_function=shutil.copy2)
    results = directory / "results"
    outputs = [results / name for name in OUTPUTS[rule]]
    for path in outputs:
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    targets = [str(path.relative_to(directory)) for path in outputs]
    run = snakemake(
        directory, "--allowed-rules", rule, "--rerun-triggers", "mtime", "--notemp", "--", *targets
    )

    assert run.returncode == 0, run.stdout
    assert "1 of 1 steps" in run.stdout
    reference = results / "reference" / "reference.fa"
    for path in outputs:
        before = finished / path.relative_to(directory)
        assert content(path, reference) == content(before, reference), path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("alignment_statistics", "stats/phix.coverage.tsv"),
        ("map_sample", "stats/one.markdup.json"),
        ("efficiency", "efficiency.html"),
    ],
)
def test_a_result_that_was_deleted_is_made_again_without_being_asked_for(
    rule, name, finished, tmp_path
):
    directory = tmp_path / "again"
    shutil.copytree(finished, directory, copy_function=shutil.copy2)
    (directory / "results" / name).unlink()
    run = snakemake(directory, "--dry-run", "--notemp")
    assert run.returncode == 0, run.stdout
    assert re.search(rf"^ *(?:local)?rule {rule}:", run.stdout, re.MULTILINE), run.stdout


@pytest.mark.medium
def test_marks_of_the_reference_are_inputs_of_its_index(tmp_path):
    contig = (DATA / "phix174.fa").read_text().split()[0].removeprefix(">")
    (tmp_path / "alt names.txt").write_text(f"{contig}\n")
    (tmp_path / "mask.bed").write_text(f"{contig}\t10\t30\n")
    config = CONFIG + "index: {alt: alt names.txt, mask: mask.bed}\n"
    directory = project(tmp_path, config)

    run = snakemake(directory, "--", "results/index/reference.fmw")

    assert run.returncode == 0, run.stdout
    meta = json.loads((directory / "results/index/reference.fmw/meta.json").read_text())
    assert meta["masked_bases"] == 20
    assert meta["contigs"]["alt"] == [contig]
    (tmp_path / "mask.bed").unlink()
    again = snakemake(directory, "--", "results/index/reference.fmw")
    assert again.returncode != 0
    assert "mask.bed" in again.stdout


@pytest.mark.medium
def test_alt_contigs_beside_the_reference_make_a_new_index_when_they_change(tmp_path):
    shutil.copy(DATA / "phix174.fa", tmp_path / "phix.fa")
    directory = project(tmp_path, CONFIG.replace(str(DATA / "phix174.fa"), "phix.fa"))
    contig = (DATA / "phix174.fa").read_text().split()[0].removeprefix(">")
    names = tmp_path / "phix.fa.alt"
    for there, alt in ((False, None), (True, [contig]), (False, None)):
        names.write_text(f"{contig}\n") if there else names.unlink(missing_ok=True)
        run = snakemake(directory, "--", "results/index/reference.fmw")
        assert run.returncode == 0, run.stdout
        meta = json.loads((directory / "results/index/reference.fmw/meta.json").read_text())
        assert meta["contigs"].get("alt") == alt


# A sample that is one job, and one of two.
TWO_SAMPLES = SAMPLES_HEADER + "one\t\ntwo\t\n"
THEIR_FILES = ("results/mapped/one.bam", "results/mapped/two.bam")


def mapped_by(config: str, directory: Path) -> Path:
    """Map two samples with these settings; their temporary files are kept."""
    cells = [copied(directory, name, *PHIX) for name in "abc"]
    rows = (f"one\ta\t{cells[0]}\t\t\n", f"two\tb\t{cells[1]}\t\t\n", f"two\tc\t{cells[2]}\t\t\n")
    project(directory, config, TWO_SAMPLES, UNITS_HEADER + "".join(rows))
    run = snakemake(directory, "--notemp", "--", *THEIR_FILES)
    assert run.returncode == 0, run.stdout
    return directory


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two samples that are mapped, with their temporary files."""
    return mapped_by(CONFIG, tmp_path_factory.mktemp("mapped"))


ON_H100 = "gpu: {model: H100, device: cpu}\n"  # with its row, but on the CPU


@pytest.fixture(scope="module")
def mapped_for_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the settings of a GPU."""
    return mapped_by(CONFIG + ON_H100, tmp_path_factory.mktemp("gpu"))


def planned(directory: Path) -> set[str]:
    """Return the rules by which the files of both samples would be made again."""
    run = snakemake(directory, "--dry-run", "--notemp", "--", *THEIR_FILES)
    assert run.returncode == 0, run.stdout
    return set(re.findall(r"^ *(?:local)?rule (\w+):", run.stdout, re.MULTILINE))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("config", "mark"),
    [
        ("duplicates: {mark: false}\n", ""),
        ("duplicates: {optical_distance: 100}\n", ""),
        ("duplicates: {barcode_tag: RX}\n", ""),
        ("", "no"),
    ],
)
def test_samples_are_made_again_if_their_duplicates_are_to_be_marked_otherwise(
    mapped, tmp_path, config, mark
):
    directory = tmp_path / "changed"
    shutil.copytree(mapped, directory, copy_function=shutil.copy2)
    assert planned(directory) == set()
    (directory / "config" / "config.yaml").write_text(CONFIG + config)
    (directory / "samples.tsv").write_text(TWO_SAMPLES.replace("\t\n", f"\t{mark}\n"))
    assert planned(directory) == {"map_sample", "finish_sample"}


@pytest.mark.medium
def test_samples_are_made_again_if_first_and_second_mates_change_places(mapped, tmp_path):
    directory = tmp_path / "changed"
    shutil.copytree(mapped, directory, copy_function=shutil.copy2)
    sheet = directory / "units.tsv"
    sheet.write_text(re.sub(r"(\w+_R1\.fq)\t(\w+_R2\.fq)", r"\2\t\1", sheet.read_text()))
    assert planned(directory) == {"map_sample", "fmwave_map", "finish_sample"}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "scratch: /tmp/somewhere\n"),
        ("", "map: {threads: 1}\nresources: {max_mem_mb: 9000, small_minutes: 0}\n"),
        (ON_H100, ON_H100.replace("H100", "H200")),
        (ON_H100, ON_H100.replace("H100", "[H100, H200], cores: 4")),
        (ON_H100, ON_H100.replace(", device: cpu", "")),
        (ON_H100, ON_H100 + "scratch: /tmp/somewhere\n"),
    ],
)
def test_no_sample_is_made_again_for_what_does_not_change_its_records(
    request, tmp_path, before, after
):
    directory = tmp_path / "changed"
    finished = request.getfixturevalue("mapped_for_gpu" if before else "mapped")
    shutil.copytree(finished, directory, copy_function=shutil.copy2)
    assert planned(directory) == set()
    (directory / "config" / "config.yaml").write_text(CONFIG + after)
    assert planned(directory) == set()


@pytest.mark.medium
@pytest.mark.parametrize("change", ["extra", "read group", "reference"])
def test_samples_are_made_again_if_their_records_change(mapped, tmp_path, change):
    directory = tmp_path / "changed"
    shutil.copytree(mapped, directory, copy_function=shutil.copy2)
    config, sheet = directory / "config" / "config.yaml", directory / "units.tsv"
    if change == "extra":
        config.write_text(f"{CONFIG}map: {{extra: -T 20}}\n")
    elif change == "read group":
        sheet.write_text(sheet.read_text().replace("\t\t\n", "\tpool\t\n"))
    else:
        config.write_text(CONFIG.replace("phix174.fa", "portiera.fa.gz"))
    assert planned(directory) >= {"map_sample", "fmwave_map", "finish_sample"}


@pytest.mark.medium
def test_a_change_of_device_hides_no_other_change(mapped_for_gpu, tmp_path):
    directory = tmp_path / "changed"
    shutil.copytree(mapped_for_gpu, directory, copy_function=shutil.copy2)
    settings = CONFIG + ON_H100.replace(", device: cpu", "") + "map: {extra: -a}\n"
    (directory / "config" / "config.yaml").write_text(settings)
    assert planned(directory) >= {"fmwave_map", "finish_sample"}


@pytest.mark.medium
def test_a_gpu_of_less_memory_gets_a_new_index(mapped_for_gpu, tmp_path):
    directory = tmp_path / "changed"
    shutil.copytree(mapped_for_gpu, directory, copy_function=shutil.copy2)
    meta = json.loads((directory / "results/index/reference.fmw/meta.json").read_text())
    assert meta["parameters"]["sa_sampling"] == 1
    settings = CONFIG + ON_H100.replace("H100", "A100-40")
    (directory / "config" / "config.yaml").write_text(settings)
    assert "fmwave_index" in planned(directory)
