"""The memory plan, and runs that keep to --memory and -t."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mapper.cli.info import plan_facts
from mapper.errors import ResourceError
from mapper.index.plan import has_library
from mapper.index.storage import index_bytes
from mapper.mapping import memory_plan
from mapper.mapping.memory_plan import (
    DEVICE_PROCESS_BYTES,
    FINISHING_BYTES_PER_THREAD,
    LEAST_BATCH_BASES,
    LEAST_SORT_BYTES,
    PROCESS_BYTES,
    SORT_BYTES_PER_THREAD,
    SPILLING_BYTES_PER_THREAD,
    STREAM_BYTES_PER_BASE,
    MemoryPlan,
    device_batch_bases,
    mapping_bytes,
    plan_memory,
)
from mapper.parallel.pool import share_threads
from mapper.params import (
    BATCH_BASES,
    DEVICE_BATCH_BASES,
    DEVICE_STREAMS,
    LEAST_MEMBER_BASES,
    MEMBER_BASES,
    IndexParams,
)
from mapper.sorting.options import LARGE_RANGES_SHARE
from tests.helpers.mapping_runs import World, build_world

ROOT = Path(__file__).parents[2]


def test_without_a_bound_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_plan, "available_bytes", lambda: 10**12)
    sorting = 8 * SORT_BYTES_PER_THREAD
    assert plan_memory(None, 10**9, 8, 3_000_000) == (3_000_000, 3_000_000, 0, 0)
    assert plan_memory(None, 10**9, 8, 3_000_000, sorts=True) == (3_000_000, 3_000_000, sorting, 0)
    monkeypatch.setattr(memory_plan, "available_bytes", lambda: 10**9)
    assert plan_memory(None, 10**9, 8, 3_000_000, sorts=True).sort_bytes == 5 * 10**8


@pytest.mark.parametrize(("n_streams", "of_servers"), [(0, 0), (4, 0), (8, 2 * 10**9)])
def test_sorted_records_have_what_mapping_leaves(n_streams: int, of_servers: int) -> None:
    """Processes of devices live as long as the run."""
    for bound in range(12 * 10**9, 60 * 10**9, 3 * 10**9):
        plan = plan_memory(
            bound, 10**9, 8, 3_000_000, sorts=True, n_streams=n_streams, process_bytes=of_servers
        )
        mapping = mapping_bytes(10**9, 8, plan.batch_bases, n_streams, plan.member_bases)
        mapping += of_servers
        assert plan.sort_bytes >= LEAST_SORT_BYTES
        spilling = SPILLING_BYTES_PER_THREAD * (8 + 2)
        assert mapping + spilling + plan.sort_bytes <= bound
        finishing = PROCESS_BYTES + 10**9 + FINISHING_BYTES_PER_THREAD * 8 + of_servers
        finishing += DEVICE_PROCESS_BYTES if n_streams else 0
        kept_free = plan.sort_bytes // LARGE_RANGES_SHARE
        assert finishing + plan.sort_bytes + kept_free + plan.freed_bytes <= bound
    assert plan.batch_bases == 3_000_000


@pytest.mark.parametrize("threads", [1, 4, 16])
@pytest.mark.parametrize("index_bytes", [10**6, 10**10])
def test_batches_fill_the_bound_and_do_not_exceed_it(threads: int, index_bytes: int) -> None:
    for bound in (index_bytes + 500_000_000, index_bytes + 10**9):
        plan = plan_memory(bound, index_bytes, threads, 3_000_000)
        assert mapping_bytes(index_bytes, threads, plan.batch_bases) <= bound
        assert (
            plan.batch_bases == 3_000_000
            or mapping_bytes(index_bytes, threads, plan.batch_bases + 1) > bound
        )
    enough = mapping_bytes(index_bytes, threads, 3_000_000)
    assert plan_memory(enough, index_bytes, threads, 3_000_000).batch_bases == 3_000_000


def test_a_batch_of_a_device_is_what_its_free_memory_holds() -> None:
    assert device_batch_bases(100 * 10**9, 4) == DEVICE_BATCH_BASES
    # Three quarters of the memory, by the streams.
    assert device_batch_bases(4_000_000 * STREAM_BYTES_PER_BASE, 4) == 750_000
    assert device_batch_bases(4_000_000 * STREAM_BYTES_PER_BASE, 8) == 375_000
    for free in (0, 10**6):
        assert device_batch_bases(free, 4) == LEAST_BATCH_BASES


@pytest.mark.parametrize("n_streams", [1, 6])
def test_groups_for_a_device_fill_the_bound_and_do_not_exceed_it(n_streams: int) -> None:
    least = mapping_bytes(10**9, 4, 0, n_streams)
    for bound in range(least + 200_000_000, least + 12_000_000_000, 600_000_000):
        plan = plan_memory(bound, 10**9, 4, 30_000_000, n_streams=n_streams)
        members = plan.member_bases
        assert mapping_bytes(10**9, 4, plan.batch_bases, n_streams, members) <= bound
        if members == plan.batch_bases:
            members += 1  # the group is one batch, which would grow with it
        assert (
            plan.batch_bases == 30_000_000
            or mapping_bytes(10**9, 4, plan.batch_bases + 1, n_streams, members) > bound
        )
    assert plan.batch_bases == 30_000_000


def test_batches_of_the_host_are_large_where_there_is_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def members(bound: int | None, wanted: int = MEMBER_BASES) -> int:
        plan = plan_memory(
            bound, 10**9, 16, DEVICE_BATCH_BASES, sorts=True, n_streams=3, member_bases=wanted
        )
        assert plan.sort_bytes >= LEAST_SORT_BYTES
        return plan.member_bases

    found = [members(bound) for bound in range(12 * 10**9, 40 * 10**9, 10**9)]
    assert found == sorted(found)
    assert found[0] < 9_000_000
    assert found[-1] == MEMBER_BASES
    assert members(7 * 10**9) == LEAST_MEMBER_BASES
    assert members(40 * 10**9, 8_000_000) == 8_000_000
    monkeypatch.setattr(memory_plan, "available_bytes", lambda: 64 * 10**9)
    assert members(None) == MEMBER_BASES
    monkeypatch.setattr(memory_plan, "available_bytes", lambda: 10**9)
    assert members(None) == LEAST_MEMBER_BASES
    monkeypatch.setattr(memory_plan, "available_bytes", lambda: None)
    assert members(None) == MEMBER_BASES


def test_what_cannot_fit_is_refused_with_what_would() -> None:
    with pytest.raises(ResourceError, match="takes at least 1304 MB; give more memory"):
        plan_memory(10**8, 10**9, 1, 10**6)
    with pytest.raises(ResourceError, match=r"takes at least \d+ MB") as refused:
        plan_memory(10**8, 10**6, 8, 10**6, sorts=True)
    least = 10**6 * (int(re.findall(r"least (\d+) MB", str(refused.value))[0]) + 1)
    assert plan_memory(least, 10**6, 8, 10**6, sorts=True).sort_bytes >= LEAST_SORT_BYTES
    with pytest.raises(ResourceError):
        plan_memory(least - 2 * 10**6, 10**6, 8, 10**6, sorts=True)


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
from mapper.mapping.backend import CpuBackend
from mapper.cli.main import main
most, names = 0, set()
align = CpuBackend.align
def watched(*arguments):
    global most
    names.update(t.name for t in threading.enumerate() if t is not threading.main_thread())
    most = max(most, len(os.listdir("/proc/self/task")) - before)
    return align(*arguments)
CpuBackend.align = watched
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
    """There are only the threads of the pool: with regular files, no other thread is needed."""
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
    assert (
        sorted({*report["names"]} - {"tqdm_monitor"}) == workers
    )  # tqdm's thread only looks at a clock
    assert report["threads"] == len(report["names"])  # none that was started outside Python
    assert report["peak"] <= bound


STATED = re.compile(r"about ([\d.]+) GB of memory are needed")


def run_quietly(code: str, *arguments: str) -> str:
    """Run Python in a new process; return its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, check=False, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def stated_bytes(messages: str) -> float:
    """Return the memory that a run announced at its start."""
    found = STATED.search(messages)
    assert found, messages
    # Rounded to 10 MB in the message.
    return 1e9 * float(found[1]) + 5e6


MAIN = "import sys; from mapper.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("options", [[], ["--sort"]])
def test_map_stays_under_what_it_says(world: World, tmp_path: Path, options: list[str]) -> None:
    messages = run_quietly(
        MAIN, "map", world.index_path, world.first, world.second, "-o", str(tmp_path / "x.bam"),
        "-t", "2", "--device", "cpu", "--json-stats", str(tmp_path / "x.json"), *options,
    )  # fmt: skip
    peak = json.loads((tmp_path / "x.json").read_text())["peak_memory_bytes"]
    assert peak <= stated_bytes(messages) < 4 * peak
    assert ("; sorted records take up to " in messages) == bool(options)
    assert messages.index("are needed") < messages.index("reads, ")


def test_what_is_not_there_is_warned_of(monkeypatch, caplog) -> None:
    monkeypatch.setattr(memory_plan, "available_bytes", lambda: 400_000_000)
    with caplog.at_level("INFO", logger="mapper"):
        plan = MemoryPlan(10**6, 10**6, 0)
        memory_plan.log_memory(10**10, 1, plan)
        assert "about 10.35 GB of memory are needed, 10.00 GB of it" in caplog.text
        assert "available" not in caplog.text
        memory_plan.log_memory(10**10, 4, plan)
    assert "0.40 GB are available: memory makes batches smaller" in caplog.text


INDEX = """
import sys
from mapper.cli.main import main
from mapper.index import plan
plan.LIBRARY_UP_TO = int(sys.argv.pop(1))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.medium
@pytest.mark.parametrize("route", ["library", "blocks"])
def test_index_stays_under_what_it_says(tmp_path: Path, route: str) -> None:
    """fmwave info --plan names the same memory for a genome of that size, sorted by the library."""
    if route == "library" and not has_library():
        pytest.skip("pydivsufsort is not installed")
    n = 8_000_000
    bases = np.frombuffer(b"ACGT", np.uint8)[np.random.default_rng(1).integers(0, 4, n)]
    (tmp_path / "g.fa").write_bytes(b">g\n" + bases.tobytes() + b"\n")
    messages = run_quietly(
        INDEX, str(n * 2 if route == "library" else 0), "index", str(tmp_path / "g.fa"),
        "--device", "cpu", "-t", "2",
    )  # fmt: skip
    found = re.search(r"peak memory ([\d.]+) GB", messages)
    assert found
    peak = 1e9 * float(found[1])
    assert peak <= stated_bytes(messages) < 3 * peak
    if route == "library":
        planned = dict(plan_facts(n, "cpu"))["fmwave index, CPU"]
        assert abs(float(planned.split()[0]) * 1e6 - stated_bytes(messages)) < 2e7


def test_a_plan_for_map_is_what_map_says(capsys) -> None:
    """info --plan and map use one function for an index of the planned size."""
    cores = len(os.sched_getaffinity(0))
    facts = dict(plan_facts(10**9, "cpu"))
    whole = mapping_bytes(index_bytes(10**9, IndexParams()), cores, BATCH_BASES)
    assert facts["fmwave map, CPU"].startswith(f"{whole / 1e9:.2f} GB with {cores} threads, ")
    whole = mapping_bytes(
        index_bytes(10**9, IndexParams()), cores, DEVICE_BATCH_BASES, DEVICE_STREAMS
    )
    assert f"; {whole / 1e9:.2f} GB of the host's for one device" in facts["fmwave map, CUDA"]


@pytest.mark.parametrize(
    ("bases", "peak"),
    [(3_100_000_000, 10.115e9), (4_400_000_000, 18.020e9)],
    ids=["3.1 Gbp", "4.4 Gbp"],
)
def test_what_map_took_with_a_device_is_covered_with_a_margin(bases: int, peak: float) -> None:
    """benchmarks/results/whole_genome_{3.1G,4.4G}.md: H200, 16 threads, 2 x 150, groups of 30 M,
    batches of 6 M."""
    said = mapping_bytes(
        index_bytes(bases, IndexParams()), 16, 30_000_000, DEVICE_STREAMS, 6_000_000
    )
    assert 1.05 * peak < said < 1.5 * peak
