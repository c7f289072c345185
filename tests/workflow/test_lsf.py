"""The workflow by the real plugin for LSF, and a made-up LSF: what is submitted, and the result."""

from __future__ import annotations

import os
import re

import pytest

from tests.helpers.made_up_lsf import make_lsf, submitted
from tests.helpers.slurm import fail_first_run, requested
from tests.helpers.workflow_runs import CONFIG, needs_snakemake, project, records, snakemake

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
    return project(place, CONFIG + "gpu: {model: test, table: gpus.toml, device: cpu}\n")


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
    others = [job for job in jobs if job not in mapping]
    assert {(job["q"], job["gpu"]) for job in others} == {("normal", None)}
    assert all(job["W"] > 0 for job in jobs)


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
