"""Jobs that are preempted on a real Slurm go on where they were: ``make test-slurm``.

A mapping job is preempted while it maps, while it spills runs of a sort to disk, and while it
writes the sorted file; a job that merges the parts of a sample begins anew. The finished files are
those of an undisturbed run, byte for byte.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.slurm import (
    LONG_LIMIT,
    only_on_slurm,
    queue,
    restarts,
    settings,
    show_job,
    start,
    start_at_once,
    start_generic,
    wait_for,
    wait_for_exit,
    wait_for_requeue,
)
from tests.helpers.workflow_runs import PORTIERA, snakemake

pytestmark = only_on_slurm

COPIES = 150  # of the reads: they take some time to map, and spill several times
HEADER_BYTES = 2_000  # of compressed BAM
# The least memory of a run of one thread; states each second.
MAP = """map:
  threads: 1
  extra: "--resume-seconds 1 --batch-bases 100000 --memory 460M"
"""
ON_CPU = ["--config", "gpu={model: none}"]


def long_project(directory: Path) -> Path:
    """Write a project whose one sample has many reads."""
    directory.mkdir(exist_ok=True)
    settings(directory, 1)
    rng = np.random.default_rng(1)
    for mate, path in enumerate(PORTIERA, start=1):
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        with gzip.open(directory / f"s1_R{mate}.fq.gz", "wt", 1) as out:
            for _ in range(COPIES):  # with other qualities, or they would compress to nothing
                for at in range(0, len(lines), 4):
                    name, bases = lines[at], lines[at + 1]
                    quals = rng.integers(35, 75, len(bases), np.uint8).tobytes().decode()
                    out.write(f"{name}\n{bases}\n+\n{quals}\n")
    config = directory / "config" / "config.yaml"
    config.write_text(config.read_text() + MAP)
    return directory


def project_of_two_units(directory: Path) -> Path:
    """Write a project whose one sample has two units, which a job merges."""
    long_project(directory)
    for mate in (1, 2):
        (directory / f"second_R{mate}.fq.gz").symlink_to(PORTIERA[mate - 1])
    units = directory / "units.tsv"
    units.write_text(units.read_text() + "s1\tv\tsecond_R1.fq.gz\tsecond_R2.fq.gz\t\t\n")
    return directory


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def undisturbed_merge(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Those of a sample of two units."""
    directory = project_of_two_units(tmp_path_factory.mktemp("undisturbed"))
    run = snakemake(directory, *ON_CPU, "--until", "finish_sample", timeout=LONG_LIMIT)
    assert run.returncode == 0, run.stdout
    return files_in(directory / "results" / "mapped")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The alignments and their index of a local run."""
    directory = long_project(tmp_path_factory.mktemp("undisturbed"))
    run = snakemake(directory, *ON_CPU, "--until", "map_sample", timeout=LONG_LIMIT)
    assert run.returncode == 0, run.stdout
    return files_in(directory / "results" / "mapped")


def preempt_cpus() -> None:
    """Ask for a whole node for a moment, which preempts all jobs of the partitions ``gpu-…``."""
    command = ["sbatch", "--partition=gpu", "--exclusive", "--mem=100", "--output=/dev/null"]
    subprocess.run([*command, "--wrap=sleep 3"], check=True, timeout=30)


def start_time(job: str) -> float:
    """Return when a job began, by Slurm's clock of whole seconds."""
    return datetime.fromisoformat(re.search(r"StartTime=(\S+)", show_job(job))[1]).timestamp()


def state_of(folder: Path) -> dict:
    try:
        return json.loads((folder / "state.json").read_text())
    except FileNotFoundError:
        return {}


def maps(folder: Path) -> bool:
    return bool(state_of(folder))


def spills(folder: Path) -> bool:
    state = state_of(folder)
    return bool(state) and len(state["output"]["blocks"]) > 0


def merges(folder: Path) -> bool:
    path = folder / "records"
    return path.exists() and path.stat().st_size > HEADER_BYTES


@pytest.mark.parametrize("profile", ["slurm-gpu", "slurm-generic"])
@pytest.mark.parametrize("reached", [maps, spills, merges])
def test_a_preempted_job_goes_on(
    tmp_path, undisturbed, no_jobs_left, reached: Callable[[Path], bool], profile: str
) -> None:
    """With PreemptMode=REQUEUE Slurm starts the job again, with CANCEL Snakemake does."""
    requeues = profile == "slurm-gpu"
    partition = "gpu-requeue" if requeues else "gpu-cancel"
    if not requeues:
        pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    directory = long_project(tmp_path)
    options = ["--until", "map_sample", *ON_CPU]
    options += ["--set-resources", f"map_sample:slurm_partition={partition}"]
    process = (start if requeues else start_generic)(directory, *options)
    folder = directory / "results" / "mapped" / ".s1.bam.fmwave-resume"
    wait_for(lambda: reached(folder), f"a job that {reached.__name__}", 200)
    # It would be through before Slurm kills it: the plugin's steps do not pass it the SIGTERM.
    if requeues or reached is merges:
        _, pid = (folder / "lock").read_text().rsplit(maxsplit=1)
        os.kill(int(pid), signal.SIGSTOP)
    (job,) = queue("%A", f"--partition={partition}")
    preempt_cpus()
    if requeues:
        wait_for_requeue(job)
    else:
        wait_for(lambda: "JobState=PREEMPTED" in show_job(job), "the preemption")
    before = state_of(folder)["statistics"]
    age = time.time() - (folder / "state.json").stat().st_mtime
    if requeues:
        start_at_once(job)
    assert wait_for_exit(process, LONG_LIMIT) == 0, (directory / "run.log").read_text()
    assert restarts(job) == requeues
    assert files_in(directory / "results" / "mapped") == undisturbed
    statistics = json.loads((directory / "results" / "stats" / "s1.map.json").read_text())
    assert statistics["resumed"] == 1
    log = (directory / "results" / "logs" / "map" / "s1.log").read_text()
    assert re.search(rf"going on after {before['counts']['reads']} reads", log)
    print(  # noqa: T201
        f"{profile}, {reached.__name__}: {before['counts']['reads']} of "
        f"{statistics['counts']['reads']} reads were mapped; the state was {age:.1f} s old when "
        f"the job had ended; mapped in {statistics['seconds']['wall']:.1f} s in all"
    )


def test_the_signal_of_a_preemption_reaches_the_run(tmp_path, no_jobs_left) -> None:
    """With the generic profile: by itself the run would write no state for an hour."""
    pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    directory = long_project(tmp_path)
    config = directory / "config" / "config.yaml"
    config.write_text(config.read_text().replace("--resume-seconds 1 ", "--resume-seconds 3600 "))
    options = ["--until", "map_sample", *ON_CPU]
    options += ["--set-resources", "map_sample:slurm_partition=gpu-cancel"]
    process = start_generic(directory, *options)
    folder = directory / "results" / "mapped" / ".s1.bam.fmwave-resume"
    spilled = folder / "spilled"
    wait_for(lambda: spilled.exists() and spilled.stat().st_size > 0, "a job that spills", 200)
    assert not maps(folder)
    (job,) = queue("%A", "--partition=gpu-cancel")
    preempt_cpus()
    wait_for(lambda: "JobState=PREEMPTED" in show_job(job), "the preemption")
    assert maps(folder)
    assert wait_for_exit(process, LONG_LIMIT) == 0, (directory / "run.log").read_text()
    statistics = json.loads((directory / "results" / "stats" / "s1.map.json").read_text())
    assert statistics["resumed"] == 1


@pytest.mark.parametrize("profile", ["slurm-gpu", "slurm-generic"])
def test_a_preempted_merge_begins_anew(
    tmp_path, undisturbed_merge, no_jobs_left, profile: str
) -> None:
    """It keeps no state; the next attempt removes what it had written under a temporary name."""
    requeues = profile == "slurm-gpu"
    partition = "gpu-requeue" if requeues else "gpu-cancel"
    if not requeues:
        pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    directory = project_of_two_units(tmp_path)
    options = ["--until", "finish_sample", *ON_CPU]
    options += ["--set-resources", f"finish_sample:slurm_partition={partition}"]
    options += ["fmwave_map:slurm_partition=cpu"]
    process = (start if requeues else start_generic)(directory, *options)
    mapped = directory / "results" / "mapped"

    def temporary() -> list[Path]:
        files = [path for path in mapped.glob(".s1.bam.fmwave-*.tmp") if path.is_file()]
        return [path for path in files if path.stat().st_size > HEADER_BYTES]

    wait_for(temporary, "a job that merges", 300)
    (unfinished,) = temporary()
    merging = int(re.search(r"fmwave-(\d+)", unfinished.name)[1])
    os.kill(merging, signal.SIGSTOP)  # or it would be through
    (job,) = queue("%A", f"--partition={partition}")
    began = start_time(job)
    ran = time.time() - began
    preempt_cpus()
    if requeues:
        wait_for_requeue(job)
    else:
        wait_for(lambda: "JobState=PREEMPTED" in show_job(job), "the preemption")
    lost = time.time() - began
    if requeues:
        start_at_once(job)
    assert wait_for_exit(process, LONG_LIMIT) == 0, (directory / "run.log").read_text()
    assert restarts(job) == requeues
    assert files_in(mapped) == undisturbed_merge
    print(  # noqa: T201
        f"{profile}, merges parts: all is lost, {ran:.0f} s of the job until it was preempted, "
        f"{lost:.0f} s until it had ended"
    )
