"""Failures of a cluster, on a real Slurm: the run continues or resumes, with the right result.

Each first mapping job leaves half a file under its final name behind. ``make test-slurm``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from tests.helpers.slurm import (
    EAT,
    LONG_LIMIT,
    SLEEP,
    UNTIL,
    check,
    fail_first_run,
    only_on_slurm,
    partition,
    pid_of_first,
    preempt,
    queue,
    requested,
    restarts,
    settings,
    show_job,
    start,
    start_at_once,
    start_generic,
    step_processes,
    wait_for,
    wait_for_exit,
    wait_for_requeue,
)

pytestmark = only_on_slurm


def test_a_killed_job_runs_again(tmp_path, expected, no_jobs_left):
    directory = settings(tmp_path, 1)
    fail_first_run(directory, SLEEP)
    process = start(directory, *UNTIL)
    os.kill(pid_of_first(directory), signal.SIGKILL)
    assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    assert requested(directory, "mem_mb") == ["1000", "1000"]
    assert len(set(requested(directory, "runtime"))) == 1
    check(directory, expected)


def test_a_cancelled_job_runs_again(tmp_path, expected, no_jobs_left):
    directory = settings(tmp_path, 1)
    fail_first_run(directory, SLEEP)
    process = start(directory, *UNTIL)
    pid_of_first(directory)
    subprocess.run(["scancel", *queue("%A", "--partition=gpu")], check=True, timeout=30)
    assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    check(directory, expected)


def test_a_job_out_of_memory_gets_more(tmp_path, expected, no_jobs_left):
    directory = settings(tmp_path, 1)
    fail_first_run(directory, EAT)
    process = start(directory, *UNTIL)
    assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    assert requested(directory, "mem_mb") == ["1000", "2000"]
    first, second = map(int, requested(directory, "runtime"))
    assert second == first
    check(directory, expected)


def test_a_job_out_of_time_gets_more(tmp_path, expected, no_jobs_left):
    """With minutes instead of the quarter of an hour that jobs ask for by themselves."""
    directory = settings(tmp_path, 1)
    fail_first_run(directory, "sleep 300; exit 7")
    more = ["--set-resources", "fmwave_map:slurm_partition=gpu", "fmwave_map:runtime=attempt"]
    process = start(directory, *UNTIL, *more)
    assert wait_for_exit(process, LONG_LIMIT) == 0, (directory / "run.log").read_text()
    assert requested(directory, "runtime") == ["1", "2"]
    check(directory, expected)


def test_a_preempted_job_is_requeued(tmp_path, expected, no_jobs_left):
    """PreemptMode=REQUEUE: Slurm itself starts the job again."""
    directory = settings(tmp_path, 1)
    fail_first_run(directory, SLEEP)
    process = start(directory, *UNTIL, *partition("gpu-requeue"))
    pid_of_first(directory)
    (job,) = queue("%A", "--partition=gpu-requeue")
    preempt()
    wait_for_requeue(job)
    start_at_once(job)
    assert wait_for_exit(process, LONG_LIMIT) == 0, (directory / "run.log").read_text()
    assert restarts(job) == 1
    assert len(requested(directory, "runtime")) == 1  # to Snakemake it was one attempt
    check(directory, expected)


def test_a_job_that_is_cancelled_to_make_room_runs_again(tmp_path, expected, no_jobs_left):
    """PreemptMode=CANCEL, which the plugin waits on for ever: with profiles/slurm-generic."""
    pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    directory = settings(tmp_path, 1)
    fail_first_run(directory, SLEEP)
    process = start_generic(directory, *UNTIL, *partition("gpu-cancel"))
    pid_of_first(directory)
    (job,) = queue("%A", "--partition=gpu-cancel")
    preempt()
    assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    assert re.search(r"JobState=PREEMPTED", show_job(job))
    check(directory, expected)


def test_a_job_of_a_lost_node_is_requeued(tmp_path, expected, no_jobs_left, lose_node):
    """The node's daemon is killed: Slurm takes the node for lost, though its processes live on."""
    directory = settings(tmp_path, 1)
    fail_first_run(directory, SLEEP)
    process = start(directory, *UNTIL)
    pid_of_first(directory)
    (job,) = queue("%A", "--partition=gpu")
    node = lose_node(job)
    wait_for_requeue(job)
    assert step_processes(job)
    node.come_back()
    wait_for(lambda: not step_processes(job), "the node to end what was left there")
    start_at_once(job)
    assert wait_for_exit(process, LONG_LIMIT) == 0, (directory / "run.log").read_text()
    assert restarts(job) == 1
    check(directory, expected)


def test_interrupted_and_started_again(tmp_path, expected, no_jobs_left):
    directory = settings(tmp_path, 2)
    fail_first_run(directory, SLEEP)
    process = start(directory, *UNTIL)
    pid_of_first(directory)
    process.send_signal(signal.SIGINT)
    assert wait_for_exit(process) != 0
    wait_for(lambda: not queue("%A"), "the jobs to be cancelled")
    assert (
        not (directory / "results" / "mapped" / "s1.bam").exists()
        or not (directory / "results" / "mapped" / "s2.bam").exists()
    )

    assert wait_for_exit(start(directory, *UNTIL)) == 0, (directory / "run.log").read_text()
    check(directory, expected, 2)


def test_killed_and_started_again_as_the_docs_say(tmp_path, expected, no_jobs_left):
    """SIGKILL: jobs go on. They are cancelled by hand, the folder unlocked, the run repeated."""
    directory = settings(tmp_path, 2)
    fail_first_run(directory, SLEEP)
    process = start(directory, *UNTIL)
    pid_of_first(directory)
    process.kill()
    process.wait(30)
    assert queue("%A")
    name = re.search(r"SLURM run ID: (\S+)", (directory / "run.log").read_text())[1]
    subprocess.run(["scancel", f"--name={name}"], check=True, timeout=30)
    wait_for(lambda: not queue("%A"), "the jobs to be cancelled")
    assert wait_for_exit(start(directory, "--unlock")) == 0

    assert wait_for_exit(start(directory, *UNTIL)) == 0, (directory / "run.log").read_text()
    check(directory, expected, 2)
