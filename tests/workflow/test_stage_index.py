"""Copies of the index on a node's own disk: one for all jobs, complete or absent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers.workflow_runs import ROOT

SCRIPT = ROOT / "workflow" / "scripts" / "stage_index.py"


def make(path: Path, content: str) -> Path:
    path.mkdir()
    (path / "meta.json").write_text(f'{{"crc32": "{content}"}}')
    (path / "blocks.npy").write_text(content)
    return path


def stage(index: Path, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, SCRIPT, index, folder],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_jobs_that_start_together_share_one_copy(tmp_path):
    index, folder = make(tmp_path / "a.fmw", "one"), tmp_path / "node" / "scratch"
    jobs = [stage(index, folder) for _ in range(4)]
    told = {job.communicate(timeout=300)[0] for job in jobs}
    assert [job.returncode for job in jobs] == [0] * 4
    (copy,) = (Path(line.strip()) for line in told)
    assert (copy / "blocks.npy").read_text() == "one"
    assert list(folder.glob("fmwave-*")) == [copy]

    # It is used as it is; another index gets another.
    inode = (copy / "blocks.npy").stat().st_ino
    assert stage(index, folder).communicate(timeout=300)[0].strip() == str(copy)
    assert (copy / "blocks.npy").stat().st_ino == inode
    other = stage(make(tmp_path / "b.fmw", "two"), folder).communicate(timeout=300)[0].strip()
    assert other != str(copy)
    assert (Path(other) / "blocks.npy").read_text() == "two"


def test_half_a_copy_of_a_dead_job_is_not_used(tmp_path):
    index, folder = make(tmp_path / "a.fmw", "one"), tmp_path / "node"
    copy = Path(stage(index, folder).communicate(timeout=300)[0].strip())
    half = folder / f".{copy.name}.half"
    copy.rename(half)
    (half / "blocks.npy").write_text("o")
    assert stage(index, folder).communicate(timeout=300)[0].strip() == str(copy)
    assert (copy / "blocks.npy").read_text() == "one"
    assert not half.exists()


def test_an_index_that_is_not_there_is_an_error(tmp_path):
    job = stage(tmp_path / "none.fmw", tmp_path / "node")
    out, err = job.communicate(timeout=300)
    assert job.returncode == 1
    assert out == ""
    assert "none.fmw" in err
