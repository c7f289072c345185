"""The workflow on a real Slurm with GPUs in its words: ``make test-slurm``."""

from __future__ import annotations

import re
import subprocess
import threading
import time

import pytest

from tests.workflow.slurm import (
    SLEEP,
    UNTIL,
    check,
    end,
    only_on_slurm,
    pid_of_first,
    queue,
    settings,
    start,
    start_generic,
    trouble,
)

pytestmark = only_on_slurm


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


def test_the_generic_profile_survives_what_the_plugin_does_not(tmp_path, expected, no_jobs_left):
    """A cancelled job runs again."""
    pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    directory = settings(tmp_path, 1)
    trouble(directory, SLEEP)
    process = start_generic(directory, *UNTIL)
    pid_of_first(directory)
    (job,) = queue("%A", "--partition=gpu")
    subprocess.run(["scancel", job], check=True, timeout=30)
    assert end(process) == 0, (directory / "run.log").read_text()
    first = next(iter((directory / "slurm_logs").glob(f"fmwave-fmwave_map-{job}.log")))
    assert "CANCELLED" in first.read_text()
    log = directory / "results" / "logs" / "map" / "s1-u.1-of-1.log"
    assert "CUDA_VISIBLE_DEVICES=0" in log.read_text()
    check(directory, expected)
