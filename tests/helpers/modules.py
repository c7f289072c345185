"""A module of fmwave for tests of ``--sdm env-modules``, by the modulefile of docs/cluster.md."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.workflow_runs import ROOT, environment

needs_modules = pytest.mark.skipif(
    shutil.which("modulecmd") is None,
    reason="Environment Modules are not installed: apt-get install environment-modules",
)
MODULES = "modules: [tools/1, fmwave/0.1.0]\n"


def modulefile(prefix: Path) -> str:
    """Return the modulefile of docs/cluster.md for an installation in ``prefix``."""
    [text] = re.findall(
        r"^```tcl\n(#%Module.*?)^```", (ROOT / "docs" / "cluster.md").read_text(), re.M | re.S
    )
    assert "/software/fmwave/0.1.0" in text
    return text.replace("/software/fmwave/0.1.0", str(prefix))


def without_fmwave() -> dict[str, str]:
    """Return this environment with no folder on the PATH that has ``fmwave``."""
    folders = [
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not (Path(folder) / "fmwave").exists()
    ]
    return {**os.environ, "PATH": os.pathsep.join(folders)}


def with_modules(folder: Path) -> dict[str, str]:
    """Return the environment of a shell that has ``module`` and the modulefiles of ``folder``.

    ``module`` is a function. Bash hands it down, but dash, Debian's ``sh`` in which Slurm's plugin
    starts jobs, does not: BASH_ENV lets each bash define it anew, as docs/cluster.md says.
    """
    initialise = (
        f'eval "$(modulecmd bash autoinit)"; module use {shlex.quote(str(folder))}; '
        'export BASH_ENV="$MODULESHOME/init/bash"; env -0'
    )
    shell = subprocess.run(
        ["bash", "-c", initialise],
        env=without_fmwave(),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in shell.stdout.split("\0") if line)


def install(place: Path, log: Path) -> Path:
    """Write modules `tools` and `fmwave`, whose commands log their calls; return the folder."""
    for name in ("fmwave", "python", "python3"):
        real = shutil.which(name, path=environment()["PATH"])
        command = place / "fmwave" / "bin" / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f'#!/bin/sh\necho "$TOOLS {name} $*" >> {log}\nexec {real} "$@"\n')
        command.chmod(0o755)
    files = place / "modulefiles"
    for name, text in (
        ("fmwave/0.1.0", modulefile(place / "fmwave")),
        ("tools/1", f"#%Module1.0\nprepend-path PATH {place}/tools\nsetenv TOOLS loaded\n"),
    ):
        (files / name).parent.mkdir(parents=True)
        (files / name).write_text(text)
    return files
