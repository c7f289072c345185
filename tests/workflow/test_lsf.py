"""The workflow by the real plugin for LSF, and a made-up LSF: what is submitted, and the result."""

from __future__ import annotations

import os
import re

import pytest

from tests.helpers.made_up_lsf import make_lsf, submitted
from tests.helpers.slurm import fail_first_run, requested
from tests.helpers.workflow_runs import (
    CONFIG,
    PHIX,
    SAMPLES_HEADER,
    UNITS_HEADER,
    copied,
    needs_snakemake,
    project,
    records,
    snakemake,
)

pytestmark = [needs_snakemake, pytest.mark.slow]

GPUS = """[test]
memory_gb = 24
sa_sampling = 4
batch_bases = 3_000_000
jobs_per_gpu = 1
host_cores = 2
host_memory_gb = 1
reads_per_second = 100_000
basis = "estimate"
"""

EACH_BY_ITSELF = "resources: {small_minutes: 0}\n"

FASTER = ["--until", "finish_sample", "--latency-wait", "5", "--seconds-between-status-checks", "1"]


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A project whose GPUs are made up, and a made-up LSF on the path."""
    pytest.importorskip("snakemake_executor_plugin_lsf", reason="not installed: make test-profiles")
    commands = make_lsf(tmp_path / "lsf")
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    place = tmp_path / "run"
    place.mkdir()
    (place / "gpus.toml").write_text(GPUS)
    config = CONFIG + "gpu: {model: test, table: gpus.toml, device: cpu}\n"
    return project(place, config + EACH_BY_ITSELF)


@pytest.mark.parametrize(("memory_of", "mapping_mem"), [("percpu", 500), ("perjob", 1000)])
def test_jobs_are_submitted_as_lsf_takes_them(
    directory, tmp_path, monkeypatch, memory_of, mapping_mem
):
    """The plugin divides memory by cores unless the site counts it per job."""
    monkeypatch.setenv("SNAKEMAKE_LSF_MEMFMT", memory_of)
    run = snakemake(directory, *FASTER, profile="lsf-gpu")
    assert run.returncode == 0, run.stdout
    assert len(records(directory / "results" / "mapped" / "phix.bam")) > 0
    jobs = submitted(tmp_path / "lsf")
    mapping = [job for job in jobs if "rule_fmwave_map" in job["J"]]
    assert len(mapping) == 1
    assert mapping[0]["gpu"] == "num=1:mode=shared:j_exclusive=yes"
    assert (mapping[0]["q"], mapping[0]["n"]) == ("gpu", 2)
    [memory] = [
        re.search(r"mem=([0-9.]+)", wanted) for wanted in mapping[0]["R"] if "mem" in wanted
    ]
    assert float(memory[1]) == mapping_mem
    compiling = [job for job in jobs if "rule_fmwave_compile" in job["J"]]
    assert [(job["q"], job["gpu"]) for job in compiling] == [("gpu", mapping[0]["gpu"])]
    assert jobs.index(compiling[0]) < jobs.index(mapping[0])
    compiled = (directory / "results" / "logs" / "compile.log").read_text()
    assert "all stages of map are compiled" in compiled
    assert (directory / "results" / "compiled").exists()  # so that it is not done again
    others = [job for job in jobs if job not in [*mapping, *compiling]]
    assert {(job["q"], job["gpu"]) for job in others} == {("normal", None)}
    assert all(job["W"] > 0 for job in jobs)
    assert {(job["wa"], job["wt"]) for job in jobs} == {("URG", 1)}


def test_a_job_over_its_memory_limit_gets_more(directory, tmp_path):
    reason = "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit"
    fail_first_run(
        directory, f'echo "{reason}" > {tmp_path}/lsf/jobs/$LSB_JOBID/exit_reason; exit 7'
    )
    run = snakemake(
        directory, *FASTER, profile="lsf-gpu", first_on_path=directory / "bin" / "fmwave"
    )
    assert run.returncode == 0, run.stdout
    (directory / "run.log").write_text(run.stdout)
    first, second = map(int, requested(directory, "mem_mb"))
    assert second == 2 * first
    assert len(set(requested(directory, "runtime"))) == 1


def test_small_jobs_are_submitted_together_and_fail_alone(directory, tmp_path):
    """One of them has no reads; the others of its groups have their files at the end."""
    config = directory / "config" / "config.yaml"
    config.write_text(config.read_text().replace(EACH_BY_ITSELF, ""))
    samples, units = SAMPLES_HEADER, UNITS_HEADER
    for name in ("a", "b", "c"):
        samples += f"{name}\t\n"
        units += f"{name}\tu\t{copied(directory, name, *PHIX)}\t\t\n"
    (directory / "samples.tsv").write_text(samples)
    (directory / "units.tsv").write_text(units)
    (directory / "results").mkdir()
    (directory / "results" / "compiled").touch()  # as if it were done
    good = (directory / "b_R1.fq").read_text()
    (directory / "b_R1.fq").write_text("no FASTQ")
    options = ["--latency-wait", "5", "--seconds-between-status-checks", "1", "--retries", "0"]
    until = ["--until", "alignment_statistics"]

    run = snakemake(directory, *options, *until, profile="lsf-gpu")

    assert run.returncode != 0
    jobs = submitted(tmp_path / "lsf")
    assert sorted(job["gpu"] is not None for job in jobs) == [False, True], run.stdout  # and index
    parts = directory / "results" / "parts"
    assert {path.name for path in parts.glob("*.bam")} == {"a-u.1-of-1.bam", "c-u.1-of-1.bam"}

    (directory / "b_R1.fq").write_text(good)
    run = snakemake(directory, *options, *until, profile="lsf-gpu")

    assert run.returncode == 0, run.stdout
    again = submitted(tmp_path / "lsf")[len(jobs) :]
    assert run.stdout.count("    rule fmwave_map:") == 1, run.stdout  # of b alone
    assert len(again) == 2  # that, and all merges and statistics
    for name in ("a", "b", "c"):
        assert records(directory / "results" / "mapped" / f"{name}.bam")
        assert (directory / "results" / "stats" / f"{name}.flagstat.txt").exists()
