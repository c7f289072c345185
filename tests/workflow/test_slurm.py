"""The workflow on a real Slurm with GPUs as its resources: ``make test-slurm``."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helpers.modules import MODULES, install, needs_modules, with_modules
from tests.helpers.slurm import (
    LONG_LIMIT,
    SLEEP,
    UNTIL,
    check,
    fail_first_run,
    look_until_exit,
    only_on_slurm,
    pid_of_first,
    queue,
    settings,
    show_job,
    start,
    start_generic,
    wait_for,
    wait_for_exit,
)
from tests.helpers.workflow_runs import ROOT

pytestmark = only_on_slurm


def test_two_gpus_two_jobs_at_a_time_and_the_local_result(tmp_path, expected, no_jobs_left):
    """Four samples; the last in two chunks, whose insert size a job on the CPU estimates."""
    directory = settings(tmp_path, 4)
    sheet = directory / "units.tsv"
    sheet.write_text(sheet.read_text().removesuffix("\n") + "2\n")
    process = start(directory)
    running = look_until_exit(
        process, lambda: len(queue("%A", "--partition=gpu", "--states=RUNNING")), LONG_LIMIT
    )

    assert process.wait() == 0, (directory / "run.log").read_text()
    assert max(running) == 2
    logs = [path.read_text() for path in (directory / "results" / "logs" / "map").iterdir()]
    devices = [re.search(r"CUDA_VISIBLE_DEVICES=(\S+)", log)[1] for log in logs]
    assert len(devices) == 5
    assert (directory / "results" / "insert_size" / "s4-u.json").exists()
    assert set(devices) == {"0", "1"}
    check(directory, expected, 4)
    assert (directory / "results" / "summary.tsv").exists()


def test_a_group_of_mapping_jobs_asks_for_one_gpu(tmp_path, expected, no_jobs_left):
    """They run one after the other: the GPUs of a group are not added up (resource scope)."""
    directory = settings(tmp_path, 2)
    groups = ["--groups", "fmwave_map=map", "--group-components", "map=2"]
    process = start(directory, *UNTIL, *groups)
    wait_for(lambda: queue("%A", "--partition=gpu"), "the group", 120)
    (job,) = queue("%A", "--partition=gpu")
    assert "TresPerJob=gres:gpu:1 " in show_job(job)
    assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    assert (directory / "run.log").read_text().count("has been submitted with SLURM jobid") == 4
    check(directory, expected, 2)


SHARE = {  # comments of the profiles
    "slurm-gpu": 'gres: "shard:2"',
    "slurm-generic": """slurm_extra: "'--gres=shard:2'\"""",
}


def gres() -> str:
    """Return what the node has, as ``gpu:a100:2,shard:a100:8``."""
    return subprocess.run(
        ["sinfo", "--noheader", "--format=%G"], capture_output=True, text=True, timeout=30
    ).stdout


def profile_with(directory: Path, name: str, comment: str, line: str) -> str:
    """Copy a profile; of both rules that use a GPU, a line takes the place of a comment."""
    text = (ROOT / "profiles" / name / "profile.yaml").read_text()
    text, n = re.subn(rf"# {re.escape(comment)}(?=\s)", lambda _: line, text)
    assert n == 2
    copy = directory / "own" / "profile.yaml"
    copy.parent.mkdir()
    copy.write_text(text)
    return str(copy.parent)


def hold_a_gpu(directory: Path) -> tuple[str, str]:
    """Start a job that is alone on a GPU; return its number and the GPU's."""
    log = directory / "holder.log"
    subprocess.run(
        ["sbatch", "--partition=gpu", "--gpus=1", "--mem=100", "--time=15", f"--output={log}",
         "--wrap=echo $CUDA_VISIBLE_DEVICES; sleep 900"],
        check=True, timeout=30,
    )  # fmt: skip
    (job,) = queue("%A", "--partition=gpu")
    wait_for(lambda: log.exists() and log.read_text(), "the job that holds a GPU")
    return job, log.read_text().strip()


def test_a_job_asks_for_a_kind_of_gpu(tmp_path, expected, no_jobs_left):
    """By the name that the node has for it, which of a MIG instance is such as 1g.10gb."""
    model = re.search(r"\bgpu:([^:,(]+):", gres())
    if model is None:
        pytest.skip("this Slurm does not name the kind of its GPUs")
    directory = settings(tmp_path, 1)
    own = profile_with(directory, "slurm-gpu", "gpu_model: a100", f"gpu_model: {model[1]}")
    process = start(directory, *UNTIL, profile=own)
    wait_for(lambda: queue("%A", "--partition=gpu"), "the mapping job", 120)
    (job,) = queue("%A", "--partition=gpu")
    assert f"TresPerJob=gres:gpu:{model[1]}:1 " in show_job(job)
    assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    check(directory, expected)


@pytest.mark.parametrize("kind", ["shard", "mps"])
@pytest.mark.parametrize("profile", ["slurm-gpu", "slurm-generic"])
def test_two_jobs_share_a_gpu(tmp_path, expected, no_jobs_left, profile: str, kind: str):
    """The only free one, of which each has a half; a third waits. As docs/cluster.md tells."""
    shares = re.search(rf"\b{kind}\b.*?:(\d+)\b", gres())  # of both GPUs
    if shares is None:
        pytest.skip(f"this Slurm has no gres/{kind}")
    directory = settings(tmp_path, 3)
    table = directory / "gpus.toml"
    row = table.read_text().replace("jobs_per_gpu = 1", "jobs_per_gpu = 2")
    table.write_text(row.replace("host_memory_gb = 1", "host_memory_gb = 2"))
    (directory / "results" / "compiled").unlink()  # the job that compiles has a share, too
    share = f"{kind}:{int(shares[1]) // 4}"
    own = profile_with(directory, profile, SHARE[profile], SHARE[profile].replace("shard:2", share))
    holder, held = hold_a_gpu(directory)

    if profile == "slurm-generic":
        pytest.importorskip("snakemake_executor_plugin_cluster_generic")
        process = start_generic(directory, *UNTIL, profile=own)
    else:
        process = start(directory, *UNTIL, profile=own)
    running = look_until_exit(
        process, lambda: queue("%A=%b", "--partition=gpu", "--states=RUNNING"), LONG_LIMIT
    )

    assert process.wait() == 0, (directory / "run.log").read_text()
    jobs = [[job for job in jobs if not job.startswith(f"{holder}=")] for jobs in running]
    assert max(map(len, jobs)) == 2
    asked = dict(job.split("=") for seen in jobs for job in seen)
    assert len(asked) == 4
    assert set(asked.values()) == {f"gres:{share}"}
    (free,) = {"0", "1"} - {held}
    logs = [path.read_text() for path in (directory / "results" / "logs" / "map").iterdir()]
    assert len(logs) == 3
    for log in logs:
        assert "asked gpus=1/2xtest\n" in log
        assert f"CUDA_VISIBLE_DEVICES={free}\n" in log
    check(directory, expected, 3)


def test_a_job_that_no_gpu_was_free_for_goes_to_the_cpu(tmp_path, expected, no_jobs_left):
    """After a minute: Slurm takes it out of the queue, and the next attempt asks for no GPU."""
    directory = settings(tmp_path, 1)
    config = directory / "config" / "config.yaml"
    waiting = "{max_wait: 1, partition: gpu, cpu_partition: cpu, model"
    config.write_text(config.read_text().replace("{model", waiting))
    profile = directory / "profile" / "profile.yaml"
    profile.parent.mkdir()
    text = (ROOT / "profiles" / "slurm-gpu" / "profile.yaml").read_text()
    profile.write_text(re.sub(" {4}slurm_partition: gpu\\b.*", "", text))
    subprocess.run(
        ["sbatch", "--partition=gpu", "--gpus=2", "--mem=100", "--time=15", "--wrap=sleep 900"],
        cwd=tmp_path, check=True, timeout=30,
    )  # fmt: skip
    (holder,) = queue("%A", "--partition=gpu")

    process = start(directory, *UNTIL, profile=str(profile.parent))
    wait_for(lambda: len(queue("%A", "--partition=gpu")) == 2, "the mapping job", 120)
    (job,) = set(queue("%A", "--partition=gpu")) - {holder}
    status = wait_for_exit(process, LONG_LIMIT)

    log = (directory / "run.log").read_text()
    assert status == 0, log
    assert "JobState=DEADLINE" in show_job(job)
    assert holder in queue("%A", "--partition=gpu")  # to the end
    (map_log,) = (directory / "results" / "logs" / "map").iterdir()
    assert "CUDA_VISIBLE_DEVICES=not set" in map_log.read_text()
    check(directory, expected, 1)
    subprocess.run(["scancel", holder], check=True, timeout=30)


def test_account_qos_reservation_mail_and_gpu_hours(tmp_path, no_jobs_left):
    """As docs/cluster.md tells administrators."""
    if subprocess.run(
        ["sacctmgr", "-n", "show", "account"], capture_output=True, timeout=30
    ).returncode:
        pytest.skip("this Slurm has no accounting")
    directory = settings(tmp_path, 1)
    reservation = ["reservationname=fmwave_test"]
    subprocess.run(
        ["scontrol", "create", *reservation, "starttime=now", "duration=10", "users=root",
         "nodes=ALL", "flags=ignore_jobs"],
        check=True, timeout=30,
    )  # fmt: skip
    try:
        process = start(
            directory, *UNTIL, "--slurm-qos", "normal", "--slurm-reservation", "fmwave_test",
            "--default-resources", "slurm_account=root", "slurm_extra='--mail-type=FAIL'",
        )  # fmt: skip
        wait_for(lambda: queue("%A", "--partition=gpu"), "the mapping job", 120)
        (job,) = queue("%A", "--partition=gpu")
        told = show_job(job)
        for field in ("Account=root", "QOS=normal", "Reservation=fmwave_test", "MailType=FAIL"):
            assert field in told
        assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    finally:
        subprocess.run(["scontrol", "delete", *reservation], check=False, timeout=30)
    run_id = re.search(r"SLURM run ID: (\S+)", (directory / "run.log").read_text())[1]

    def jobs_with_gpu() -> list[str]:
        jobs = subprocess.run(
            ["sacct", "-X", "-n", "-P", f"--name={run_id}", "-o", "ElapsedRaw,AllocTRES"],
            capture_output=True, text=True, timeout=30, check=True,
        ).stdout.splitlines()  # fmt: skip
        assert len(jobs) <= 3  # that map, merge, and make the index
        return re.findall(r"^[1-9]\d*\|.*\bgres/gpu=1\b", "\n".join(jobs), re.MULTILINE)

    wait_for(lambda: len(jobs_with_gpu()) == 1, "the accounting of the mapping job")


@pytest.mark.parametrize("submitted", ["by themselves", "in groups"])
def test_what_sorts_on_the_disk_of_the_node_asks_for_it(tmp_path, no_jobs_left, submitted):
    """As docs/cluster.md tells administrators; a node that states no TmpDisk refuses the job."""
    directory = settings(tmp_path, 1)
    if submitted == "in groups":
        config = directory / "config" / "config.yaml"
        config.write_text(config.read_text().replace("small_minutes: 0", "small_minutes: 2"))
    everything = ("%A", "--states=all", "--partition=cpu")
    earlier = queue(*everything)
    process = start(
        directory, "--until", "alignment_statistics", "--retries", "0",
        "--set-resources", "finish_sample:slurm_extra='--tmp=1'",
    )  # fmt: skip

    def asked() -> bool:
        told = [show_job(job) for job in queue(*everything) if job not in earlier]
        return any("MinTmpDiskNode=1M" in one and "finish_sample" in one for one in told)

    wait_for(asked, "the job that sorts", 200)
    process.send_signal(signal.SIGINT)
    wait_for_exit(process)


def test_the_generic_profile_asks_for_the_disk_that_each_job_needs(tmp_path, no_jobs_left):
    """With the submit command of docs/cluster.md; sbatch refuses it if the node states no disk."""
    pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    directory = settings(tmp_path, 1)
    profile = yaml.safe_load((ROOT / "profiles" / "slurm-generic" / "profile.yaml").read_text())
    command = profile["cluster-generic-submit-cmd"]
    extra = "{resources.slurm_extra}"
    assert extra in command
    command = command.replace(extra, f"--tmp={{resources.disk_mb}} {extra}")
    submitted = directory / "submitted"
    shim = directory / "bin" / "sbatch"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/bash\necho "$*" >> {submitted}\nexec {shutil.which("sbatch")} "$@"\n')
    shim.chmod(0o755)
    process = start_generic(
        directory, "--until", "finish_sample", "--cluster-generic-submit-cmd", command
    )

    def asked() -> list[tuple[str, str]]:
        lines = submitted.read_text() if submitted.exists() else ""
        return re.findall(r"--job-name=(\w+).* (--tmp=\d+) ", lines)

    wait_for(lambda: ("finish_sample", "--tmp=1") in asked(), "the job that sorts", 200)
    assert ("fmwave_map", "--tmp=0") in asked()
    process.send_signal(signal.SIGINT)
    wait_for_exit(process)


@needs_modules
def test_jobs_load_modules(tmp_path, expected, no_jobs_left):
    """Neither Snakemake nor what it submits has another ``fmwave`` on the PATH."""
    log = tmp_path / "commands.log"
    env = with_modules(install(tmp_path / "software", log))
    directory = settings(tmp_path, 1)
    with (directory / "config" / "config.yaml").open("a") as config:
        config.write(MODULES)

    process = start(directory, *UNTIL, "--sdm", "env-modules", env=env)

    assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    check(directory, expected, 1)
    ran = [line.split()[:3] for line in log.read_text().splitlines()]
    assert all(words[0] == "loaded" for words in ran)
    commands = [words[2] for words in ran if words[1] == "fmwave"]
    assert commands == ["index", "map", "merge"]


def test_the_generic_profile_survives_what_the_plugin_does_not(tmp_path, expected, no_jobs_left):
    """A cancelled job runs again."""
    pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    directory = settings(tmp_path, 1)
    fail_first_run(directory, SLEEP)
    process = start_generic(directory, *UNTIL)
    pid_of_first(directory)
    (job,) = queue("%A", "--partition=gpu")
    subprocess.run(["scancel", job], check=True, timeout=30)
    assert wait_for_exit(process) == 0, (directory / "run.log").read_text()
    first = next(iter((directory / "slurm_logs").glob(f"fmwave_map.s1-u.1.1-{job}.log")))
    assert "CANCELLED" in first.read_text()
    log = directory / "results" / "logs" / "map" / "s1-u.1-of-1.log"
    assert "CUDA_VISIBLE_DEVICES=0" in log.read_text()
    check(directory, expected)
