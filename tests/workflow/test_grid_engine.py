"""The workflow on a real Grid Engine with GPUs as its resources: ``make test-sge``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.helpers.grid_engine import (
    delete_all,
    granted,
    jobs,
    only_on_grid_engine,
    start_on_grid_engine,
)
from tests.helpers.slurm import (
    EAT,
    LONG_LIMIT,
    SLEEP,
    UNTIL,
    check,
    fail_first_run,
    pid_of_first,
    requested,
    settings,
    wait_for,
    wait_for_exit,
)
from tests.helpers.workflow_runs import ROOT
from tests.workflow.test_slurm_preemption import long_project

pytestmark = only_on_grid_engine


@pytest.fixture(autouse=True)
def no_jobs_left() -> Iterator[None]:
    """Whatever a test leaves in the queue is taken out of it."""
    pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    yield
    delete_all()


def test_two_gpus_two_jobs_at_a_time_and_the_local_result(tmp_path, expected):
    directory = settings(tmp_path, 3)
    process = start_on_grid_engine(directory)
    with_gpu: dict[str, str] = {}
    most = 0

    def watch() -> None:
        nonlocal most
        while process.poll() is None:
            running = [job.id for job in jobs() if job.state == "r"]
            for job in set(running) - set(with_gpu):
                try:
                    with_gpu[job] = granted(job)
                except subprocess.CalledProcessError:  # it has ended
                    continue
            most = max(most, sum("gpu=1" in with_gpu.get(job, "") for job in running))
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = wait_for_exit(process, LONG_LIMIT)
    watcher.join()

    assert status == 0, (directory / "run.log").read_text()
    assert most == 2
    check(directory, expected, 3)
    assert (directory / "results" / "summary.tsv").exists()
    # GPU jobs have no bound of address space, of which CUDA reserves much; all have one of time.
    asked = set(with_gpu.values())
    assert any("h_vmem" in one and "gpu" not in one for one in asked)
    assert not any("h_vmem" in one for one in asked if "gpu=1" in one)
    assert all("h_rt=" in one for one in asked)


def test_a_killed_job_runs_again(tmp_path, expected):
    directory = settings(tmp_path, 1)
    fail_first_run(directory, SLEEP)
    process = start_on_grid_engine(directory, *UNTIL)
    os.kill(pid_of_first(directory), signal.SIGKILL)
    assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    assert len(requested(directory, "runtime")) == 2
    assert len(set(requested(directory, "runtime"))) == 1
    assert len(set(requested(directory, "mem_mb"))) == 1
    check(directory, expected)


def test_a_deleted_job_runs_again(tmp_path, expected):
    directory = settings(tmp_path, 1)
    fail_first_run(directory, SLEEP)
    process = start_on_grid_engine(directory, *UNTIL)
    pid_of_first(directory)
    [job] = jobs()
    subprocess.run(["qdel", job.id], check=True, timeout=30)
    assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    check(directory, expected)


def test_a_mapping_job_has_a_minute_to_write_how_far_it_is(tmp_path):
    """qdel and the end of its time begin with SIGUSR2; by itself it writes no state for an hour."""
    directory = long_project(tmp_path)
    config = directory / "config" / "config.yaml"
    config.write_text(config.read_text().replace("--resume-seconds 1 ", "--resume-seconds 3600 "))
    process = start_on_grid_engine(
        directory, "--until", "map_sample", "--config", "gpu={model: none}"
    )
    folder = directory / "results" / "mapped" / ".s1.bam.fmwave-resume"
    spilled = folder / "spilled"
    wait_for(lambda: spilled.exists() and spilled.stat().st_size > 0, "a job that spills", 200)
    assert not (folder / "state.json").exists()
    [job] = jobs()
    subprocess.run(["qdel", job.id], check=True, timeout=30)
    assert wait_for_exit(process, LONG_LIMIT) == 0, (directory / "run.log").read_text()
    log = (directory / "results" / "logs" / "map" / "s1.log").read_text()
    assert re.search("going on after [1-9]", log)
    statistics = json.loads((directory / "results" / "stats" / "s1.map.json").read_text())
    assert statistics["resumed"] == 1


def test_a_job_out_of_memory_gets_more(tmp_path, expected):
    """Without a GPU: ``h_vmem`` bounds the job's address space."""
    directory = settings(tmp_path, 1)
    fail_first_run(directory, EAT.replace("3 << 30", "6 << 30"))  # the job asks for 4.6 GB
    process = start_on_grid_engine(
        directory, "--until", "map_sample", "--config", "gpu={model: none}"
    )
    assert wait_for_exit(process, LONG_LIMIT) == 0, (directory / "run.log").read_text()
    first, second = map(int, requested(directory, "mem_mb", "map_sample"))
    assert second // 2 == first  # rounded down
    assert len(set(requested(directory, "runtime", "map_sample"))) == 1
    check(directory, expected)


def test_a_job_out_of_time_gets_more(tmp_path, expected):
    """With minutes instead of the quarter of an hour that jobs ask for by themselves."""
    directory = settings(tmp_path, 1)
    fail_first_run(directory, "sleep 300; exit 7")
    process = start_on_grid_engine(
        directory, *UNTIL, "--set-resources", "fmwave_map:runtime=attempt"
    )
    assert wait_for_exit(process, LONG_LIMIT) == 0, (directory / "run.log").read_text()
    assert requested(directory, "runtime") == ["1", "2"]
    check(directory, expected)


def test_interrupting_snakemake_deletes_its_jobs(tmp_path):
    directory = settings(tmp_path, 1)
    fail_first_run(directory, SLEEP)
    process = start_on_grid_engine(directory, *UNTIL)
    pid_of_first(directory)
    process.send_signal(signal.SIGINT)
    assert wait_for_exit(process) != 0
    wait_for(lambda: not jobs(), "the jobs to be deleted")


def test_after_the_death_of_snakemake_the_run_goes_on(tmp_path, expected):
    """Jobs that run go on; what they made is kept, what was cut is made again."""
    directory = settings(tmp_path, 2)
    fail_first_run(directory, "sleep 20; exit 7")
    process = start_on_grid_engine(directory, *UNTIL)
    pid_of_first(directory)
    process.kill()
    process.wait()
    wait_for(lambda: not jobs(), "the jobs to end", 120)
    unlock = [sys.executable, "-m", "snakemake", "--unlock", "--directory", str(directory)]
    unlock += ["--snakefile", str(ROOT / "workflow" / "Snakefile")]
    subprocess.run(unlock, check=True, timeout=60, capture_output=True)
    assert wait_for_exit(start_on_grid_engine(directory, *UNTIL)) == 0
    check(directory, expected, 2)
