"""Runs of the workflow on a real Grid Engine.

Needs a running Grid Engine of one's own with two of the consumable ``gpu`` (devices need not be
real) and the parallel environment ``smp``, and snakemake-executor-plugin-cluster-generic.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.slurm import start, wait_for
from tests.helpers.workflow_runs import ROOT

only_on_grid_engine = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.environ.get("FMWAVE_TEST_SGE") != "1" or shutil.which("qsub") is None,
        reason="needs a Grid Engine of its own: make test-sge",
    ),
]

FASTER = ["--latency-wait", "5", "--seconds-between-status-checks", "2"]


class Job(NamedTuple):
    """A job that waits or runs."""

    id: str
    state: str  # r: it runs


def jobs() -> list[Job]:
    """Return the jobs of all users."""
    rows = _output("qstat", "-u", "*").splitlines()[2:]
    return [Job(words[0], words[4]) for words in map(str.split, rows)]


def granted(job: str) -> str:
    """Return the resources that a waiting or running job asked for, such as ``h_rt=900,gpu=1``."""
    lines = _output("qstat", "-j", job).splitlines()
    [asked] = [line.split(maxsplit=2)[2] for line in lines if line.startswith("hard resource_list")]
    return asked


def delete_all() -> None:
    """Take all jobs out of the queue."""
    left = [job.id for job in jobs()]
    if left:
        subprocess.run(["qdel", *left], check=False, timeout=30, stdout=subprocess.DEVNULL)
        wait_for(lambda: not jobs(), "the queue to be empty")


def start_on_grid_engine(directory: Path, *options: str) -> subprocess.Popen[str]:
    """Start the workflow by profiles/sge-gpu, whose commands are relative."""
    if not (directory / "profiles").exists():
        (directory / "profiles").symlink_to(ROOT / "profiles")
    return start(directory, *options, profile="sge-gpu", faster=FASTER)


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout
