"""The commands of the tutorials, run as they stand on the bundled reads.

Blocks marked ``sh`` are run, in one shell for each page, in a folder that has ``tests/``; what
installs is marked ``console`` and is not.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from mapper.cuda.devices import find_devices

ROOT = Path(__file__).parents[2]
NEEDS = {
    "quick-start": (),
    "variants": ("bcftools",),
    "unaligned-bam": ("samtools",),
    "how-to": ("samtools",),
    "gpu-node": (),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT"),
]


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a document in a language."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", NEEDS)
def test_the_commands_run(page: str, tmp_path: Path) -> None:
    if page == "gpu-node" and (problem := find_devices().problem):
        pytest.skip(problem)
    missing = [program for program in NEEDS[page] if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {missing}")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "fmwave"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mapper.cli.main "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks(page, "sh"))], cwd=tmp_path, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    for shown in blocks(page, "text"):
        for line in shown.splitlines():
            if not re.search(r"\d reads/s", line):
                assert line in said
