"""Samtools as a process of its own."""

from __future__ import annotations

from pathlib import Path

import pysam
import pytest

from mapper.io.samtools import SamtoolsProcess


def test_modules_of_the_working_directory_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = pysam.AlignmentHeader.from_references(["a"], [30])
    with pysam.AlignmentFile(str(tmp_path / "x.bam"), "wb", header=header):
        pass
    for name in ("pysam", "struct"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')\n")
    monkeypatch.chdir(tmp_path)
    assert SamtoolsProcess("view", "-H", "x.bam").wait() is None
