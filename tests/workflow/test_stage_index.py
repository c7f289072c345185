"""Copies of the index on a node's own disk: one for all jobs, complete or absent, not for ever."""

from __future__ import annotations

import errno
import os
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.workflow_runs import ROOT

SCRIPT = ROOT / "workflow" / "scripts" / "stage_index.py"
DAY = 24 * 3600


def make(path: Path, content: str) -> Path:
    path.mkdir()
    (path / "meta.json").write_text(f'{{"crc32": "{content}"}}')
    (path / "blocks.npy").write_text(content)
    return path


def stage(index: Path, folder: Path, *command: str) -> subprocess.Popen[str]:
    """Start a job on an index, by default one that says where its index is."""
    command = command or ("echo", str(index))
    return subprocess.Popen(
        [sys.executable, SCRIPT, index, folder, *command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def staged(index: Path, folder: Path) -> Path:
    """Return the copy that a job on an index works with."""
    job = stage(index, folder)
    told, complaints = job.communicate(timeout=300)
    assert job.returncode == 0, complaints
    return Path(told.strip())


def make_old(copy: Path, days: int) -> Path:
    """Let the last job on a copy have begun some days ago."""
    lock = copy.with_name(f".{copy.name}.lock")
    os.utime(lock, times=(time.time() - days * DAY,) * 2)
    return lock


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "node" / "scratch"


def test_jobs_that_start_together_share_one_copy(tmp_path, folder):
    index = make(tmp_path / "a.fmw", "one")
    jobs = [stage(index, folder) for _ in range(4)]
    told = {job.communicate(timeout=300)[0] for job in jobs}
    assert [job.returncode for job in jobs] == [0] * 4
    (copy,) = (Path(line.strip()) for line in told)
    assert (copy / "blocks.npy").read_text() == "one"
    assert list(folder.glob("fmwave-*")) == [copy]

    # It is used as it is; another index gets another.
    inode = (copy / "blocks.npy").stat().st_ino
    assert staged(index, folder) == copy
    assert (copy / "blocks.npy").stat().st_ino == inode
    other = staged(make(tmp_path / "b.fmw", "two"), folder)
    assert other != copy
    assert (other / "blocks.npy").read_text() == "two"


def test_half_a_copy_of_a_dead_job_is_not_used(tmp_path, folder):
    index = make(tmp_path / "a.fmw", "one")
    copy = staged(index, folder)
    half = folder / f".{copy.name}.half"
    copy.rename(half)
    (half / "blocks.npy").write_text("o")
    assert staged(index, folder) == copy
    assert (copy / "blocks.npy").read_text() == "one"
    assert not half.exists()


def test_a_copy_that_was_not_used_for_long_is_removed(tmp_path, folder):
    old, recent = (staged(make(tmp_path / name, name), folder) for name in ("old", "recent"))
    half = folder / f".{old.name}.half"
    half.mkdir()
    lock = make_old(old, 15)
    make_old(recent, 13)
    new = staged(make(tmp_path / "new", "new"), folder)
    assert set(folder.glob("fmwave-*")) == {recent, new}
    assert not half.exists()
    assert not lock.exists()
    assert staged(tmp_path / "old", folder) == old  # it comes back when it is wanted


def test_a_job_keeps_its_copy_as_long_as_it_runs(tmp_path, folder):
    index, another = make(tmp_path / "a.fmw", "one"), make(tmp_path / "b.fmw", "two")
    job = stage(index, folder, "sh", "-c", 'echo "$0"; read line', str(index))
    copy = Path(job.stdout.readline().strip())
    make_old(copy, 100)
    staged(another, folder)
    assert (copy / "blocks.npy").read_text() == "one"

    job.kill()  # and the kernel takes its lock
    job.communicate(timeout=300)
    staged(another, folder)
    assert not copy.exists()


def test_a_job_makes_its_copy_new_again(tmp_path, folder):
    index, another = make(tmp_path / "a.fmw", "one"), make(tmp_path / "b.fmw", "two")
    copy = staged(index, folder)
    make_old(copy, 100)
    inode = copy.stat().st_ino
    assert staged(index, folder).stat().st_ino == inode  # its own job does not remove it
    staged(another, folder)
    assert copy.exists()


def test_the_command_is_what_runs(tmp_path, folder):
    job = stage(make(tmp_path / "a.fmw", "one"), folder, "sh", "-c", "echo $$; exit 7")
    told, _ = job.communicate(timeout=300)
    assert (job.returncode, int(told)) == (7, job.pid)  # signals to the job reach it


def test_an_index_that_is_not_there_is_an_error(tmp_path, folder):
    job = stage(tmp_path / "none.fmw", folder)
    out, err = job.communicate(timeout=300)
    assert job.returncode == 1
    assert out == ""
    assert "none.fmw" in err


@pytest.mark.parametrize("why", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_without_room(tmp_path, folder, monkeypatch, capsys, why):
    """The job reads the index where it is, and says so; nothing of the copy is left."""
    index = make(tmp_path / "a.fmw", "one")
    stage_index = runpy.run_path(str(SCRIPT))["stage"]

    def copy(source: Path, to: Path) -> None:
        (to / source.name).write_text("o")
        raise OSError(why, os.strerror(why))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy2", copy)
        if why == errno.EIO:
            with pytest.raises(OSError, match="Input/output error"):
                stage_index(index, folder)
        else:
            assert stage_index(index, folder) == index
            assert f"no room for a copy of {index}" in capsys.readouterr().err
    assert [path.suffix for path in folder.iterdir()] == [".lock"]
    assert (staged(index, folder) / "blocks.npy").read_text() == "one"  # there is room again


def test_a_disk_that_has_less_room_is_not_filled(tmp_path, folder, monkeypatch, capsys):
    index = make(tmp_path / "a.fmw", "one")
    stage_index = runpy.run_path(str(SCRIPT))["stage"]
    n_bytes = sum(path.stat().st_size for path in index.iterdir())
    monkeypatch.setattr(shutil, "copy2", lambda *_: pytest.fail("a file was copied"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=n_bytes - 1))
    assert stage_index(index, folder) == index
    assert "No space left on device" in capsys.readouterr().err
    assert [path.suffix for path in folder.iterdir()] == [".lock"]
