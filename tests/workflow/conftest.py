"""Fixtures of the tests on Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.helpers.slurm import LONG_LIMIT, Node, queue, settings, wait_for
from tests.helpers.workflow_runs import records, snakemake


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Records of a local run."""
    directory = settings(tmp_path_factory.mktemp("local"), 1)
    run = snakemake(directory, "--config", "gpu={model: none}", timeout=LONG_LIMIT)  # may compile
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


@pytest.fixture
def lose_node() -> Iterator[Callable[[str], Node]]:
    """Lose the node of a job; it is back after the test, however that ends."""
    lost: list[Node] = []

    def lose(job: str) -> Node:
        (name,) = queue("%N", f"--jobs={job}")
        lost.append(Node(name))
        lost[-1].get_lost()
        return lost[-1]

    yield lose
    for node in lost:
        node.come_back()
