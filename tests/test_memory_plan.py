"""What fits into --memory, and that a run keeps to it and to -t."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mapper.errors import ResourceError
from mapper.memory_plan import (
    LEAST_SORT_BYTES,
    SAMTOOLS_BYTES,
    SORT_BYTES,
    mapping_bytes,
    plan_memory,
)
from mapper.workers import share_threads
from tests.whole import World, build_world

ROOT = Path(__file__).parents[1]


def test_without_a_bound_nothing_changes() -> None:
    assert plan_memory(None, 10**9, 8, 3_000_000, 8) == (3_000_000, SORT_BYTES)


@pytest.mark.parametrize("threads", [1, 4, 16])
@pytest.mark.parametrize("index_bytes", [10**6, 10**10])
def test_batches_fill_the_bound_and_do_not_exceed_it(threads: int, index_bytes: int) -> None:
    for bound in (index_bytes + 500_000_000, index_bytes + 10**9):
        plan = plan_memory(bound, index_bytes, threads, 3_000_000, 0)
        assert mapping_bytes(index_bytes, threads, plan.batch_bases) <= bound
        assert (
            plan.batch_bases == 3_000_000
            or mapping_bytes(index_bytes, threads, plan.batch_bases + 1) > bound
        )
    enough = mapping_bytes(index_bytes, threads, 3_000_000)
    assert plan_memory(enough, index_bytes, threads, 3_000_000).batch_bases == 3_000_000


@pytest.mark.parametrize("lanes", [1, 6])
def test_groups_for_a_device_fill_the_bound_and_do_not_exceed_it(lanes: int) -> None:
    least = mapping_bytes(10**9, 4, 0, lanes)
    for bound in range(least + 200_000_000, least + 12_000_000_000, 600_000_000):
        plan = plan_memory(bound, 10**9, 4, 30_000_000, lanes=lanes)
        assert mapping_bytes(10**9, 4, plan.batch_bases, lanes) <= bound
        assert (
            plan.batch_bases == 30_000_000
            or mapping_bytes(10**9, 4, plan.batch_bases + 1, lanes) > bound
        )
    assert plan.batch_bases == 30_000_000


def test_what_cannot_fit_is_refused_with_what_would() -> None:
    with pytest.raises(ResourceError, match="takes at least 1304 MB; give more memory"):
        plan_memory(10**8, 10**9, 1, 10**6, 0)
    least = mapping_bytes(10**6, 8, 0) + SAMTOOLS_BYTES + 8 * LEAST_SORT_BYTES
    assert plan_memory(least, 10**6, 8, 10**6, 8).sort_bytes == 8 * LEAST_SORT_BYTES
    with pytest.raises(ResourceError):
        plan_memory(least - 1, 10**6, 8, 10**6, 8)


@pytest.mark.parametrize("threads", range(1, 33))
@pytest.mark.parametrize("n_helpers", [0, 1, 2])
def test_pool_and_helpers_share_the_threads(threads: int, n_helpers: int) -> None:
    pool, each = share_threads(threads, n_helpers)
    assert pool >= 1
    assert each >= 1
    if threads > n_helpers:
        assert pool + n_helpers * each == threads
    else:
        assert (pool, each) == (1, 1)


COUNT_THREADS = """
import json, os, sys, threading, time
from mapper import pipeline
from mapper.cli.main import main
most, names = 0, set()
align = pipeline._Run.align
def watched(*arguments):
    global most
    names.update(t.name for t in threading.enumerate() if t is not threading.main_thread())
    most = max(most, len(os.listdir("/proc/self/task")) - before)
    return align(*arguments)
pipeline._Run.align = watched
import numpy, numba, pysam, isal
before = len(os.listdir("/proc/self/task"))
status = main(sys.argv[1:])
from mapper.host_memory import peak_bytes
print(json.dumps({"status": status, "threads": most, "names": sorted(names), "peak": peak_bytes()}))
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return build_world(tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_run_keeps_to_its_threads_and_memory(world: World, tmp_path: Path, threads: int) -> None:
    """No thread computes but those of the pool, and none beside it waits: the files are regular."""
    bound = 600_000_000
    command = [
        sys.executable, "-c", COUNT_THREADS, "map", world.index_path, world.first, world.second,
        "-o", str(tmp_path / "x.bam"), "-t", str(threads), "--memory", str(bound),
        "--device", "cpu", "--quiet",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        check=False,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["status"] == 0
    workers = [f"worker {i}" for i in range(threads)]
    assert sorted({*report["names"]} - {"tqdm_monitor"}) == workers  # tqdm's own looks at a clock
    assert report["threads"] == len(report["names"])  # none that Python does not know of
    assert report["peak"] <= bound
