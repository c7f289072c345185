"""The workflow on a real Slurm with GPUs in its words: ``make test-slurm``.

Needs a running Slurm with the partitions ``cpu`` and ``gpu`` and two GPUs (devices need not be
real: what counts is that Slurm assigns them), 4 GB a node, and snakemake-executor-plugin-slurm.
The plugin's faults are hangs, so each run has a limit. The waiting before the first status
query is lowered; all else is as ``profiles/slurm-gpu`` says.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pysam
import pytest

from tests.workflow.runs import (
    CONFIG,
    PORTIERA,
    ROOT,
    SAMPLES_HEADER,
    UNITS_HEADER,
    environment,
    project,
    records,
    snakemake,
)

pytestmark = pytest.mark.skipif(
    os.environ.get("FMWAVE_TEST_SLURM") != "1" or shutil.which("sbatch") is None,
    reason="needs a Slurm of its own: make test-slurm",
)

LIMIT = 150  # seconds of a run
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
FASTER = ["--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "5"]
UNTIL = ["--until", "finish_sample"]  # statistics and plots would only take time

SHIM = """#!/bin/bash
# The first `fmwave map` gets into trouble; the others are as always.
if [ "$1" = map ] && mkdir "{directory}/first" 2>/dev/null; then
    echo $$ > "{directory}/pid"
    {trouble}
fi
exec {fmwave} "$@"
"""
SLEEP = "sleep 100; exit 7"
EAT = f"exec {sys.executable} -c 'import time; b = bytearray(3 << 30); time.sleep(30)'"


def settings(directory: Path, n_samples: int) -> Path:
    """Write a project: samples of the same reads, under names of their own."""
    samples, units = SAMPLES_HEADER, UNITS_HEADER
    for n in range(1, n_samples + 1):
        cells = []
        for mate, path in enumerate(PORTIERA, start=1):
            shutil.copy(path, directory / f"s{n}_R{mate}.fq.gz")
            cells.append(f"s{n}_R{mate}.fq.gz")
        samples += f"s{n}\t\n"
        units += f"s{n}\tu\t{cells[0]}\t{cells[1]}\t\t\n"
    (directory / "gpus.toml").write_text(GPUS)
    config = CONFIG.replace("phix174.fa", "portiera.fa.gz")
    config += "gpu: {model: test, table: gpus.toml}\n"
    return project(directory, config, samples, units)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Records of a local run."""
    directory = settings(tmp_path_factory.mktemp("local"), 1)
    run = snakemake(directory, "--config", "gpu={model: none}", timeout=LIMIT)
    assert run.returncode == 0, run.stdout
    return records(directory / "results" / "mapped" / "s1.bam")


@pytest.fixture
def no_jobs_left() -> Iterator[None]:
    """Whatever a test leaves in the queue is taken out of it."""
    yield
    ids = queue("%A")
    if ids:
        subprocess.run(["scancel", *ids], check=True, timeout=30)
        wait_for(lambda: not queue("%A"), "the queue to be empty")


def queue(form: str, *options: str) -> list[str]:
    listing = subprocess.run(
        ["squeue", "--noheader", f"--format={form}", *options],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    return listing.stdout.split()


def wait_for(condition, what: str, seconds: int = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)


def start(
    directory: Path, *options: str, profile: str = "slurm-gpu", faster: Sequence[str] = FASTER
) -> subprocess.Popen[str]:
    """Start the workflow on Slurm; its messages go to run.log."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "workflow" / "Snakefile"]
    command += ["--directory", directory, "--profile", ROOT / "profiles" / profile]
    path = f"{directory / 'bin'}{os.pathsep}{environment()['PATH']}"
    with (directory / "run.log").open("a") as log:
        return subprocess.Popen(
            [*map(str, command), *faster, *options],
            env={**environment(), "PATH": path}, stdout=log, stderr=log, text=True,
        )  # fmt: skip


def trouble(directory: Path, what: str) -> None:
    """Put an fmwave before the real one, that gets into trouble once."""
    (directory / "bin").mkdir()
    shim = directory / "bin" / "fmwave"
    real = shutil.which("fmwave", path=environment()["PATH"])
    shim.write_text(SHIM.format(directory=directory, trouble=what, fmwave=real))
    shim.chmod(0o755)


def pid_of_first(directory: Path) -> int:
    pid = directory / "pid"
    wait_for(lambda: pid.exists() and pid.read_text().strip(), "the first mapping job", 120)
    return int(pid.read_text())


def end(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(LIMIT)
    finally:
        process.kill()


def check(directory: Path, expected: list[str], samples: int = 1) -> None:
    for n in range(1, samples + 1):
        bam = directory / "results" / "mapped" / f"s{n}.bam"
        pysam.quickcheck(str(bam))
        assert records(bam) == expected
    # Nothing of what was interrupted lies around under a temporary name.
    left = list((directory / "results").rglob(".s[0-9]*"))
    assert not left


def test_two_gpus_two_jobs_at_a_time_and_the_local_result(tmp_path, expected, no_jobs_left):
    directory = settings(tmp_path, 4)
    running: list[int] = []
    process = start(directory)

    def watch() -> None:
        while process.poll() is None:
            running.append(len(queue("%A", "--partition=gpu", "--states=RUNNING")))
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = end(process)
    watcher.join()

    assert status == 0, (directory / "run.log").read_text()
    assert max(running) == 2
    logs = [path.read_text() for path in (directory / "results" / "logs" / "map").iterdir()]
    devices = [re.search(r"CUDA_VISIBLE_DEVICES=(\S+)", log)[1] for log in logs]
    assert len(devices) == 4
    assert set(devices) == {"0", "1"}
    check(directory, expected, 4)
    assert (directory / "results" / "summary.tsv").exists()


def test_a_killed_job_runs_again(tmp_path, expected, no_jobs_left):
    directory = settings(tmp_path, 1)
    trouble(directory, SLEEP)
    process = start(directory, *UNTIL)
    os.kill(pid_of_first(directory), signal.SIGKILL)
    assert end(process) == 0, (directory / "run.log").read_text()
    check(directory, expected)


def test_a_cancelled_job_runs_again(tmp_path, expected, no_jobs_left):
    directory = settings(tmp_path, 1)
    trouble(directory, SLEEP)
    process = start(directory, *UNTIL)
    pid_of_first(directory)
    subprocess.run(["scancel", *queue("%A", "--partition=gpu")], check=True, timeout=30)
    assert end(process) == 0, (directory / "run.log").read_text()
    check(directory, expected)


def test_a_job_out_of_memory_gets_more(tmp_path, expected, no_jobs_left):
    directory = settings(tmp_path, 1)
    trouble(directory, EAT)
    process = start(directory, *UNTIL)
    assert end(process) == 0, (directory / "run.log").read_text()
    asked = re.findall(
        r"rule fmwave_map:.*?mem_mb=(\d+)", (directory / "run.log").read_text(), re.S
    )
    assert asked[:2] == ["1000", "2000"]
    check(directory, expected)


def test_interrupted_and_started_again(tmp_path, expected, no_jobs_left):
    directory = settings(tmp_path, 2)
    trouble(directory, SLEEP)
    process = start(directory, *UNTIL)
    pid_of_first(directory)
    process.send_signal(signal.SIGINT)
    assert end(process) != 0
    wait_for(lambda: not queue("%A"), "the jobs to be cancelled")
    assert (
        not (directory / "results" / "mapped" / "s1.bam").exists()
        or not (directory / "results" / "mapped" / "s2.bam").exists()
    )

    assert end(start(directory, *UNTIL)) == 0, (directory / "run.log").read_text()
    check(directory, expected, 2)


def test_killed_and_started_again_as_the_docs_say(tmp_path, expected, no_jobs_left):
    """SIGKILL: jobs go on. They are cancelled by hand, the folder unlocked, the run repeated."""
    directory = settings(tmp_path, 2)
    trouble(directory, SLEEP)
    process = start(directory, *UNTIL)
    pid_of_first(directory)
    process.kill()
    process.wait(30)
    assert queue("%A")
    name = re.search(r"SLURM run ID: (\S+)", (directory / "run.log").read_text())[1]
    subprocess.run(["scancel", f"--name={name}"], check=True, timeout=30)
    wait_for(lambda: not queue("%A"), "the jobs to be cancelled")
    assert end(start(directory, "--unlock")) == 0

    assert end(start(directory, *UNTIL)) == 0, (directory / "run.log").read_text()
    check(directory, expected, 2)


def test_the_generic_profile_survives_what_the_plugin_does_not(tmp_path, expected, no_jobs_left):
    """A cancelled job (preemption with PreemptMode=CANCEL looks the same) runs again."""
    pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    directory = settings(tmp_path, 1)
    (directory / "profiles").symlink_to(ROOT / "profiles")  # commands are relative
    trouble(directory, SLEEP)
    faster = ["--latency-wait", "5", "--seconds-between-status-checks", "2"]
    process = start(directory, *UNTIL, profile="slurm-generic", faster=faster)
    pid_of_first(directory)
    (job,) = queue("%A", "--partition=gpu")
    subprocess.run(["scancel", job], check=True, timeout=30)
    assert end(process) == 0, (directory / "run.log").read_text()
    first = next(iter((directory / "slurm_logs").glob(f"fmwave-fmwave_map-{job}.log")))
    assert "CANCELLED" in first.read_text()
    log = directory / "results" / "logs" / "map" / "s1-u.1-of-1.log"
    assert "CUDA_VISIBLE_DEVICES=0" in log.read_text()
    check(directory, expected)
