"""Memory and time of a job that is tried again: more only where the job before lacked them."""

from __future__ import annotations

import math
import os
import re
import shutil
import types
from pathlib import Path

import pytest

from tests.helpers.workflow_runs import (
    CONFIG,
    ROOT,
    environment,
    needs_snakemake,
    project,
    snakemake,
)

GRID_ENGINE = """failed       {failed}
exit_status  137                  (Killed)
ru_wallclock {took}s
category     -l h_rt=900,h_vmem=500M
"""
QMASTER = "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit"
NEITHER, MEMORY, TIME = (False, False), (True, False), (False, True)


@pytest.fixture
def rules() -> dict:
    """The functions of attempts.smk, which is plain Python."""
    namespace: dict = {"math": math}
    path = ROOT / "workflow" / "rules" / "attempts.smk"
    exec(compile(path.read_text(), path, "exec"), namespace)
    return namespace


def answering(directory: Path, answers: dict[str, str]) -> None:
    """Write commands that print these texts, and nothing for another job than 7."""
    for command in ("scontrol", "sacct", "qacct", "bjobs"):
        path = directory / command
        text = answers.get(command)
        path.write_text(
            "#!/bin/bash\nexit 1\n"
            if text is None
            else f"#!/bin/bash\n[ \"${{@: -1}}\" = 7 ] && cat <<'END'\n{text}\nEND\n"
        )
        path.chmod(0o755)


@pytest.mark.parametrize(
    ("log", "answers", "expected"),
    [
        # No scheduler: only what a program says.
        ("", {}, NEITHER),
        ("Killed", {}, NEITHER),
        ("fmwave: error: memory is exhausted; use a machine or job with more", {}, MEMORY),
        ("Traceback …\nMemoryError", {}, MEMORY),
        ("numpy: Unable to allocate 3 GiB", {}, MEMORY),
        ("CUDA_ERROR_OUT_OF_MEMORY", {}, NEITHER),  # of the GPU: a larger host does not help
        # Slurm
        ("SLURM_JOB_ID=7", {}, NEITHER),
        ("SLURM_JOB_ID=7", {"scontrol": "JobId=7 JobState=OUT_OF_MEMORY Reason=x"}, MEMORY),
        ("SLURM_JOB_ID=7", {"scontrol": "JobId=7 JobState=TIMEOUT Reason=x"}, TIME),
        ("SLURM_JOB_ID=7", {"scontrol": "JobId=7 JobState=FAILED Reason=x"}, NEITHER),
        ("SLURM_JOB_ID=7", {"scontrol": "JobId=7 JobState=CANCELLED TimeLimit=01:00"}, NEITHER),
        ("SLURM_JOB_ID=7", {"scontrol": "JobId=7 JobState=NODE_FAIL"}, NEITHER),
        ("SLURM_JOB_ID=7", {"sacct": "FAILED\nFAILED\nOUT_OF_MEMORY"}, MEMORY),  # of a step
        ("SLURM_JOB_ID=7", {"sacct": "TIMEOUT\nCANCELLED"}, TIME),
        ("SLURM_JOB_ID=7", {"sacct": "CANCELLED by 0"}, NEITHER),
        ("SLURM_JOB_ID=8", {"sacct": "OUT_OF_MEMORY"}, NEITHER),
        ("SLURM_JOB_ID=7", {"scontrol": "JobState=FAILED StdOut={d}/my log Power=x"}, MEMORY),
        # Grid Engine, which kills for both in the same words
        ("JOB_ID=7", {}, NEITHER),
        ("JOB_ID=7", {"qacct": GRID_ENGINE.format(failed=QMASTER, took=901)}, TIME),
        ("JOB_ID=7", {"qacct": GRID_ENGINE.format(failed=QMASTER, took=2)}, MEMORY),
        ("JOB_ID=7", {"qacct": GRID_ENGINE.format(failed="0", took=6)}, NEITHER),
        ("JOB_ID=7", {"qacct": GRID_ENGINE.format(failed="100 : after job", took=6)}, NEITHER),
        # LSF
        ("LSB_JOBID=7", {"bjobs": "TERM_MEMLIMIT: job killed after reaching LSF memory"}, MEMORY),
        ("LSB_JOBID=7", {"bjobs": "TERM_RUNLIMIT: job killed after reaching LSF run time"}, TIME),
        ("LSB_JOBID=7", {"bjobs": "TERM_OWNER: job killed by owner"}, NEITHER),
    ],
)
def test_what_a_job_lacked(rules, tmp_path, monkeypatch, log, answers, expected):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "my log").write_text("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7")
    answering(
        tmp_path, {name: text.replace("{d}", str(tmp_path)) for name, text in answers.items()}
    )
    path = tmp_path / "rule.log"
    path.write_text(f"host a\n{log}\nfmwave: 3500 reads\n")
    assert rules["what_lacked"](path, 2) == expected
    assert rules["what_lacked"](tmp_path / "none", 2) == NEITHER


def test_a_job_that_never_began_is_not_judged_by_an_older_log(rules, tmp_path):
    """A submission that is refused counts as an attempt, and leaves the log before it."""
    log = tmp_path / "rule.log"
    rule = types.SimpleNamespace(expand_log=lambda wildcards: [log])
    rules["workflow"] = types.SimpleNamespace(get_rule=lambda name: rule)

    def counts(attempt: int) -> tuple[int, int, int]:
        return rules["history"]("r", {"unit": "a"}, attempt)[1:]

    log.write_text("host a\nMemoryError\n")  # of a run on another day
    assert counts(1) == (0, 0, 0)
    assert counts(2) == (0, 0, 1)
    log.unlink()
    log.write_text("host a\n… and MemoryError\n")
    assert counts(3) == (1, 0, 1)
    assert counts(3) == (1, 0, 1)
    assert counts(4) == (1, 0, 2)


SHIM = """#!/bin/bash
# The next line of `ends` is the state that the scheduler will tell of this job.
end=$(head -n 1 {directory}/ends)
sed -i 1d {directory}/ends
[ -n "$end" ] || exec {fmwave} "$@"
echo "JobId=7 JobState=$end Reason=x" > {directory}/state
kill -9 $$
"""


@pytest.mark.medium
@needs_snakemake
def test_each_attempt_asks_for_what_the_one_before_lacked_up_to_the_caps(tmp_path, monkeypatch):
    caps = "resources: {max_mem_mb: 2500, max_runtime: 50}\n"
    directory = project(tmp_path, CONFIG + caps)
    ends = [
        "FAILED",
        "OUT_OF_MEMORY",
        "TIMEOUT",
        "CANCELLED",
        "OUT_OF_MEMORY",
        "TIMEOUT",
        "TIMEOUT",
    ]
    (directory / "ends").write_text("\n".join([*ends, ""]))
    (directory / "bin").mkdir()
    shim, scontrol = directory / "bin" / "fmwave", directory / "bin" / "scontrol"
    fmwave = shutil.which("fmwave", path=environment()["PATH"])
    shim.write_text(SHIM.format(directory=directory, fmwave=fmwave))
    scontrol.write_text(f'#!/bin/bash\n[ "${{@: -1}}" = 7 ] && cat {directory}/state\n')
    for path in (shim, scontrol):
        path.chmod(0o755)
    monkeypatch.setenv("SLURM_JOB_ID", "7")

    run = snakemake(directory, "--until", "fmwave_index", "--retries", "7", first_on_path=shim)

    assert run.returncode == 0, run.stdout
    asked = [
        (int(re.search(r"\bmem_mb=(\d+)", line)[1]), int(re.search(r"\bruntime=(\d+)", line)[1]))
        for line in re.findall(r"resources: (.*mem_mb.*)", run.stdout)
    ]
    mem, minutes = asked[0]
    assert 1000 <= mem < 1250
    assert minutes == 16
    assert asked == [
        (mem, 16), (mem, 16),  # killed: the same again
        (2 * mem, 16), (2 * mem, 32), (2 * mem, 32),  # cancelled: the same again
        (2500, 32), (2500, 48), (2500, 50),
    ]  # fmt: skip
    log = (directory / "results" / "logs" / "index.log").read_text()
    assert log.startswith(f"host {os.uname().nodename}\nSLURM_JOB_ID=7\n")
