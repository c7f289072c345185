"""``--sdm apptainer``, with a made-up Apptainer that runs the commands here."""

from __future__ import annotations

import os
import shlex

import pytest

from tests.helpers.workflow_runs import CONFIG, needs_snakemake, project, records, snakemake

pytestmark = [needs_snakemake, pytest.mark.slow]

# apptainer [--quiet] exec --home DIR [OPTION ...] IMAGE SHELL -c COMMAND
APPTAINER = """#!/bin/bash
if [ "$1" = --version ]; then echo "apptainer version 1.3.4"; exit; fi
printf '%q ' "$@" >> {log}; echo >> {log}
exec "${{@: -3}}"
"""


def test_every_job_runs_in_the_image(tmp_path, monkeypatch):
    """That of the settings, with the arguments of the command line."""
    commands = tmp_path / "commands"
    commands.mkdir()
    log = tmp_path / "apptainer.log"
    (commands / "apptainer").write_text(APPTAINER.format(log=log))
    (commands / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    place = tmp_path / "run"
    place.mkdir()
    image = tmp_path / "fmwave.sif"
    image.touch()
    directory = project(place, f"{CONFIG}container: {image}\n")

    run = snakemake(directory, "--sdm", "apptainer", "--apptainer-args=--nv")

    assert run.returncode == 0, run.stdout
    assert records(directory / "results" / "mapped" / "phix.bam")
    calls = [shlex.split(line) for line in log.read_text().splitlines()]
    for call in calls:
        assert str(image) in call
        assert "--nv" in call
    ran = " ".join(call[-1] for call in calls)
    for what in (
        "fmwave index", "fmwave map", "alignment_statistics.py", "summary.py", "summary_page.py",
        "plots.py", "efficiency.py",
    ):  # fmt: skip
        assert what in ran


def test_an_image_with_a_blank_in_its_name_is_refused(tmp_path):
    directory = project(tmp_path, f"{CONFIG}container: my image.sif\n")
    run = snakemake(directory, "--dry-run")
    assert run.returncode != 0
    assert "container: 'my image.sif' is not allowed. Expected: an image" in run.stdout
