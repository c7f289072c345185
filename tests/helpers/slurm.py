"""Runs of the workflow on a real Slurm, and failures of its jobs.

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
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pysam
import pytest

from tests.helpers.workflow_runs import (
    CONFIG,
    PORTIERA,
    ROOT,
    SAMPLES_HEADER,
    UNITS_HEADER,
    environment,
    project,
    records,
)

Seen = TypeVar("Seen")

only_on_slurm = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.environ.get("FMWAVE_TEST_SLURM") != "1" or shutil.which("sbatch") is None,
        reason="needs a Slurm of its own: make test-slurm",
    ),
]

LIMIT = 240  # seconds of a run; a third of it on an idle machine
LONG_LIMIT = 400  # with a minute's time limit, or a requeued job's wait
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
# The first `fmwave map` fails with half a file under its final name; the others run normally.
if [ "$1" = map ] && mkdir "{directory}/first" 2>/dev/null; then
    head -c 1000 "$3" > "$(printf '%s\n' "$@" | grep -x -A 1 -e -o | tail -n 1)"
    echo $$ > "{directory}/pid"
    {trouble}
fi
exec {fmwave} "$@"
"""
SLEEP = "sleep 100; exit 7"
EAT = f"exec {sys.executable} -c 'import time; b = bytearray(3 << 30); time.sleep(30)'"


def settings(directory: Path, n_samples: int) -> Path:
    """Write a project: samples of the same reads, under names of their own.

    Each job is submitted by itself, and nothing is compiled first.
    """
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
    config += "gpu: {model: test, table: gpus.toml, device: cpu}\n"  # its GPUs are made up
    config += "resources: {small_minutes: 0}\n"
    (directory / "results").mkdir()
    (directory / "results" / "compiled").touch()
    return project(directory, config, samples, units)


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
    directory: Path,
    *options: str,
    profile: str = "slurm-gpu",
    faster: Sequence[str] = FASTER,
    env: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start the workflow on Slurm, in ``environment()`` by default; its messages go to run.log."""
    env = environment() if env is None else env
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "workflow" / "Snakefile"]
    command += ["--directory", directory, "--profile", ROOT / "profiles" / profile]
    path = f"{directory / 'bin'}{os.pathsep}{env['PATH']}"
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # Of pytest in the background of a script; Snakemake would inherit it and ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with (directory / "run.log").open("a") as log:
        return subprocess.Popen(
            [*map(str, command), *faster, *options],
            env={**env, "PATH": path}, stdout=log, stderr=log, text=True,
        )  # fmt: skip


def start_generic(
    directory: Path, *options: str, profile: str = "slurm-generic"
) -> subprocess.Popen[str]:
    """Start it by profiles/slurm-generic or a copy of it, whose commands are relative."""
    (directory / "profiles").symlink_to(ROOT / "profiles")
    faster = ["--latency-wait", "5", "--seconds-between-status-checks", "2"]
    return start(directory, *options, profile=profile, faster=faster)


def fail_first_run(directory: Path, what: str) -> None:
    """Put an ``fmwave`` first on the path whose first call fails; later calls run the real one."""
    (directory / "bin").mkdir()
    shim = directory / "bin" / "fmwave"
    real = shutil.which("fmwave", path=environment()["PATH"])
    shim.write_text(SHIM.format(directory=directory, trouble=what, fmwave=real))
    shim.chmod(0o755)


def pid_of_first(directory: Path) -> int:
    pid = directory / "pid"
    wait_for(lambda: pid.exists() and pid.read_text().strip(), "the first mapping job", 120)
    return int(pid.read_text())


def step_processes(job: str) -> list[Path]:
    """Return Slurm's processes of a job on this machine."""
    title = f"slurmstepd: [{job}."
    return [p for p in Path("/proc").glob("[0-9]*/cmdline") if title in read_process(p)]


def read_process(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""


def wait_for_exit(process: subprocess.Popen[str], limit: int = LIMIT) -> int:
    try:
        return process.wait(limit)
    finally:
        process.kill()


def look_until_exit(
    process: subprocess.Popen[str], look: Callable[[], Seen], limit: int = LIMIT
) -> list[Seen]:
    """Return what a function returns, called five times a second until a run ends."""
    seen: list[Seen] = []

    def ended() -> bool:
        seen.append(look())
        return process.poll() is not None

    try:
        wait_for(ended, "the end of the run", limit)
    finally:
        process.kill()
    return seen


def requested(directory: Path, resource: str, rule: str = "fmwave_map") -> list[str]:
    """Return what the mapping job asked for, attempt by attempt.

    Of a failed job the plugin shows Snakemake's own log, too, in which nothing is submitted.
    """
    log = (directory / "run.log").read_text()
    asked = rf"    resources: .*?\b{resource}=(\w+).*\n"
    submitted = r"(?:Job \d+ has been submitted|Submitted job \d+ with external)"
    return re.findall(rf"rule {rule}:\n(?:    .*\n)*?{asked}\s*{submitted}", log)


def partition(name: str) -> list[str]:
    """Return options of the mapping job: the profile's, in another partition."""
    return ["--set-resources", f"fmwave_map:slurm_partition={name}", "fmwave_map:nodes=1"]


def preempt() -> None:
    """Ask for all GPUs for a moment, which preempts jobs of the partitions ``gpu-…``."""
    command = ["sbatch", "--partition=gpu", "--gpus=2", "--mem=100", "--output=/dev/null"]
    subprocess.run([*command, "--wrap=sleep 3"], check=True, timeout=30)


def show_job(job: str) -> str:
    command = ["scontrol", "show", "job", "--oneliner", job]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=True
    ).stdout  # fmt: skip


def restarts(job: str) -> int:
    """Return the number of restarts of a job; Slurm remembers ended jobs for minutes."""
    return int(re.search(r"Restarts=(\d+)", show_job(job))[1])


def wait_for_requeue(job: str) -> None:
    """Wait until a job is back in the queue."""
    wait_for(lambda: restarts(job) == 1 and "JobState=PENDING" in show_job(job), "the requeue")


def start_at_once(job: str) -> None:
    """Start a requeued job without its delay of 2 minutes."""
    update = ["scontrol", "update", f"JobId={job}", "StartTime=now"]
    subprocess.run(update, check=True, timeout=30)


class Node:
    """A node whose daemon is killed, and started again in the end."""

    def __init__(self, name: str) -> None:
        self.name = name
        settings = subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        file = re.search(r"^SlurmdPidFile\s*= (\S+)", settings, re.MULTILINE)[1]
        self.pid_file = Path(file.replace("%n", name))

    def state(self) -> str:
        listing = ["sinfo", "--noheader", "--nodes", self.name, "--format=%t"]
        return subprocess.run(
            listing, capture_output=True, text=True, timeout=30, check=True
        ).stdout  # fmt: skip

    def get_lost(self) -> None:
        os.kill(int(self.pid_file.read_text()), signal.SIGKILL)
        wait_for(lambda: "down" in self.state(), "the node to be taken for lost", 120)

    def come_back(self) -> None:
        if "down" in self.state():
            subprocess.run(["slurmd", "-N", self.name], check=True, timeout=30)
            wait_for(lambda: "down" not in self.state(), "the node to come back")


def check(directory: Path, expected: list[str], samples: int = 1) -> None:
    for n in range(1, samples + 1):
        bam = directory / "results" / "mapped" / f"s{n}.bam"
        pysam.quickcheck(str(bam))
        assert records(bam) == expected
    # Nothing of what was interrupted lies around under a temporary name.
    left = list((directory / "results").rglob(".s[0-9]*"))
    assert not left
