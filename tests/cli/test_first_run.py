"""Subcommands say on standard error that they compile, in their first run only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")

GENOME = "GATTACAGTCCTAGGATCCAGTACGGTACATTTGCACCGGTAACTGATCGATTTACGCAGGCATCAGTTCGA"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "ref.fa").write_text(f">chr1\n{GENOME * 3}\n")
    read = f"@r/1\n{GENOME[:50]}\n+\n{'I' * 50}\n"
    (tmp_path / "1.fq").write_text(read)
    (tmp_path / "pairs.seq").write_text(">GATTACA\n<GAATA\n")
    return tmp_path


@pytest.mark.slow
def test_the_first_run_of_each_kind_says_so_once(files: Path) -> None:
    """Also where another subcommand has compiled some of its code before."""
    runs = ("index ref.fa -o ref.fmw", "seed ref.fmw 1.fq", "align pairs.seq")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(files / "code")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    for n_messages in (1, 0):
        for run in runs:
            done = subprocess.run(
                [sys.executable, "-m", "mapper.cli.main", *run.split()], cwd=files, text=True,
                env=environment, capture_output=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            found = [line for line in done.stderr.splitlines() if "compiling code" in line]
            assert len(found) == n_messages, (run, done.stderr)
