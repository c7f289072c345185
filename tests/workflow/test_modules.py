"""``--sdm env-modules``, with Environment Modules and the modulefile that docs/cluster.md shows."""

from __future__ import annotations

import shutil

import pytest

from tests.helpers.modules import MODULES, install, needs_modules, with_modules
from tests.helpers.workflow_runs import CONFIG, needs_snakemake, project, records, snakemake

pytestmark = needs_snakemake


@pytest.fixture
def installed(tmp_path):
    """Return a project with modules, the environment that has them, and the log of their calls."""
    log = tmp_path / "commands.log"
    env = with_modules(install(tmp_path, log))
    place = tmp_path / "run"
    place.mkdir()
    return project(place, CONFIG + MODULES), env, log


@needs_modules
@pytest.mark.slow
def test_every_job_has_the_modules(installed):
    """Those of the settings, in that order; Snakemake itself runs without them."""
    directory, env, log = installed
    assert shutil.which("fmwave", path=env["PATH"]) is None

    run = snakemake(directory, "--sdm", "env-modules", env=env)

    assert run.returncode == 0, run.stdout
    assert records(directory / "results" / "mapped" / "phix.bam")
    ran = log.read_text()
    assert all(line.startswith("loaded ") for line in ran.splitlines())
    for what in (
        "fmwave index", "fmwave map", "alignment_statistics.py", "summary.py", "summary_page.py",
        "plots.py", "efficiency.py",
    ):  # fmt: skip
        assert what in ran


@needs_modules
@pytest.mark.medium
def test_modules_are_loaded_only_on_request(installed):
    directory, env, log = installed

    run = snakemake(directory, "--retries", "0", env=env)

    assert run.returncode != 0
    assert "fmwave: command not found" in (directory / "results/logs/index.log").read_text()
    assert not log.exists()


@pytest.mark.parametrize(
    ("modules", "complaint"),
    [
        ("fmwave", "modules: 'fmwave' is not allowed. Expected: a list of names"),
        ("[fmwave; rm]", "modules.0: 'fmwave; rm' is not allowed. Expected: a name"),
    ],
)
def test_what_is_no_list_of_modules_is_refused(tmp_path, modules, complaint):
    directory = project(tmp_path, f"{CONFIG}modules: {modules}\n")
    run = snakemake(directory, "--dry-run")
    assert run.returncode != 0
    assert complaint in run.stdout
