"""Limits of the process end a run with one line, a status, and nothing half-written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mapper.cli import info
from mapper.cli.main import main
from mapper.cli.process_limits import problem_of_limits
from tests.helpers.mapping_runs import World, map_to

ROOT = Path(__file__).parents[2]

_LIMITED = """
import resource, sys
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]), int(sys.argv[2])))
from mapper.cli.main import main
sys.exit(main(sys.argv[3:]))
"""


def limited(limit: str, value: int, words: list[str]) -> tuple[int, str]:
    """Return the exit status and the last line on stderr of a command under a limit."""
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, limit, str(value), *words],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr.splitlines()[-1]


@pytest.mark.medium
@pytest.mark.parametrize("command", ["map", "index", "info"])
def test_too_little_memory_to_load_the_libraries(
    world: World, tmp_path: Path, command: str
) -> None:
    words = {
        "map": [world.index_path, world.first, "-o", str(tmp_path / "x.bam")],
        "index": [str(Path(world.index_path).parent / "genome.fa"), "-o", str(tmp_path / "x.fmw")],
        "info": [world.index_path],
    }[command]
    status, line = limited("RLIMIT_AS", 200_000 << 10, [command, *words])
    assert status == 1
    assert line.startswith("fmwave: error: memory is exhausted: ulimit -v allows 0.20 GB")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.medium
def test_too_few_files_at_any_point_of_a_sorted_run(world: World, tmp_path: Path) -> None:
    map_to(world.index, tmp_path / "x.bam", world.first, world.second)  # compiles once, here
    map_words = ["map", world.index_path, world.first, world.second, "-t", "1"]
    (tmp_path / "x.bam").write_text("old")
    (tmp_path / "x.bam.bai").write_text("old")
    output = ["-o", str(tmp_path / "x.bam"), "--sort", "--markdup"]
    for n_files in (9, 10):  # opening the index, compiled code
        status, line = limited("RLIMIT_NOFILE", n_files, [*map_words, *output])
        assert status in (1, 4), n_files
        assert "oo many open files" in line
        left = {path.name: path.read_text() for path in tmp_path.iterdir()}
        assert left == {"x.bam": "old", "x.bam.bai": "old"}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "too many open files: ulimit -n allows "),
        (ImportError("libx.so: cannot open shared object file: Too many open files"), "too many"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory is exhausted"),
        (ImportError("libx.so: failed to map segment from shared object"), "memory is exhausted"),
        (MemoryError(), "memory is exhausted"),
        (RuntimeError("can't start new thread"), "a thread could not be started"),
    ],
)
def test_errors_of_limits_are_told_in_one_line_also_as_causes(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fail(args: object) -> int:
        try:
            raise error
        except Exception:  # llvmlite's error has no number and, as here, no explicit cause
            raise OSError("could not load the library")  # noqa: B904

    for run in (fail, lambda args: (_ for _ in ()).throw(error)):
        monkeypatch.setattr(info, "run", run)
        assert main(["info"]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith(f"fmwave: error: {words}")


def test_other_errors_are_no_limits() -> None:
    for error in (OSError(errno.EACCES, "Permission denied"), RuntimeError("x"), ImportError("x")):
        assert problem_of_limits(error) == ""
