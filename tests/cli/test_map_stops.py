"""``fmwave map`` that is stopped, or cannot write: nothing stays under a final name.

Each test starts its processes together and then looks at one after the other: their
start-up, loading compiled code, is most of the time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from tests.helpers.mapping_runs import World, map_to

ROOT = Path(__file__).parents[2]

# Signals may be ignored in the test's process, and children inherit that.
COMMAND = """
import resource, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if int(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from mapper.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


def start(
    *arguments: str, command: str = "map", limit: int = 0, stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start a command of fmwave, with files of at most `limit` bytes, if that is given."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(limit), command, *arguments],
        cwd=ROOT, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def last_error(stderr: bytes) -> str:
    """Return the one error line of a process; there must be just one, and no traceback."""
    text = stderr.decode()
    assert "Traceback" not in text, text
    (line,) = [line for line in text.splitlines() if "error" in line]
    assert line == text.splitlines()[-1]
    return line


def wait_until(process: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    """Wait until `reached()`; only the timeout of the test limits it."""
    while not reached():
        if process.poll() is not None:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read().decode())
        time.sleep(0.01)


HEADER_BYTES = 2_000
"""Bytes, more than the header's: a longer file holds records."""


class Stopped(NamedTuple):
    """A signal to a run in the middle of its input, and how the run ends."""

    number: signal.Signals
    sort: bool
    status: int
    message: str


STOPPED = (
    Stopped(signal.SIGKILL, False, -9, ""),
    Stopped(signal.SIGKILL, True, -9, ""),
    Stopped(signal.SIGTERM, False, 143, "fmwave: error: terminated"),
    Stopped(signal.SIGTERM, True, 143, "fmwave: error: terminated"),
    Stopped(signal.SIGINT, False, 130, "fmwave: error: interrupted"),
    Stopped(
        signal.SIGHUP, False, 129,
        "fmwave: error: ended by SIGHUP: the terminal or connection was closed",
    ),
    Stopped(signal.SIGUSR1, True, 138, "fmwave: error: ended by SIGUSR1"),
)  # fmt: skip


@contextmanager
def endless_input(process: subprocess.Popen[bytes], text: bytes) -> Iterator[None]:
    """Feed `text` again and again until the process ends."""

    def feed() -> None:
        assert process.stdin is not None
        try:
            process.stdin.flush()
            while True:
                # Past Python's buffer, which could not be flushed once the process is gone.
                os.write(process.stdin.fileno(), text)
        except OSError:  # the process is gone
            return

    thread = threading.Thread(target=feed)
    thread.start()
    yield
    thread.join()


def spilled_bytes(process: subprocess.Popen[bytes], directory: Path) -> int:
    """Return the bytes of the temporary file of a sort, which has no name."""
    for handle in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if handle.readlink().is_relative_to(directory) and handle.stat().st_nlink == 0:
                return handle.stat().st_size
    return 0


def is_under_way(case: Stopped, process: subprocess.Popen[bytes], directory: Path) -> bool:
    """Return True when records of a run have been written, or, sorted, to the temporary file."""
    if case.sort:
        return spilled_bytes(process, directory) > 0
    return written_bytes(directory) > HEADER_BYTES


def written_bytes(directory: Path) -> int:
    """Return the bytes of records in temporary files under a directory."""
    return sum(p.stat().st_size for p in directory.rglob("*.tmp") if p.is_file())


@pytest.fixture(scope="module", autouse=True)
def compiled(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile here once, not in each of the processes."""
    map_to(world.index, tmp_path_factory.mktemp("compiled") / "x.bam", world.first, world.second)


@pytest.mark.medium
def test_signals_in_the_middle_of_a_run(world: World, tmp_path: Path) -> None:
    text = Path(world.both).read_bytes()
    runs = []
    for i, case in enumerate(STOPPED):
        directory = tmp_path / str(i)
        directory.mkdir()
        name = "x.bam" if case.sort else "x.sam"
        (directory / name).write_text("old")
        options = ["--sort", "--memory", "480M"] if case.sort else []
        output = ["-o", str(directory / name), "--batch-bases", "20000", "-t", "1", *options]
        runs.append((case, directory, start(world.index_path, "-", *output, stdin=subprocess.PIPE)))
    for case, directory, process in runs:
        with process, endless_input(process, text):
            wait_until(process, partial(is_under_way, case, process, directory))
            process.send_signal(case.number)
            status = process.wait()
            assert process.stderr is not None
            stderr = process.stderr.read()
        assert status == case.status
        if case.message:
            assert last_error(stderr) == case.message
        left = sorted(path.name for path in directory.iterdir())
        final = "x.bam" if case.sort else "x.sam"
        assert (directory / final).read_text() == "old"
        left.remove(final)
        if case.number == signal.SIGKILL and not case.sort:
            assert len(left) == 1
            assert left[0].startswith(f".{final}.fmwave-{process.pid}")
        else:
            assert left == []


@pytest.mark.medium
def test_no_room_for_the_output(world: World, tmp_path: Path) -> None:
    for name in ("plain", "sorted", "stats"):
        (tmp_path / name).mkdir()
    reads = [world.index_path, world.both]
    reference = tmp_path / "stats" / "genome.fa"
    reference.write_bytes((Path(world.index_path).parent / "genome.fa").read_bytes())
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        runs = [
            start(*reads, "-o", str(tmp_path / "plain" / "x.sam"), limit=20_000),
            start(*reads, "-o", str(tmp_path / "sorted" / "x.bam"), "--sort", limit=20_000),
            start(*reads, "-O", "sam", stdout=full),
            start(*reads, "-O", "bam", stdout=write_end),
            start(*reads, "-O", "cram", "--reference", str(reference), stdout=write_end),
        ]
    os.close(write_end)
    wanted = (
        f"fmwave: error: {tmp_path}/plain/x.sam: writing failed: File too large",
        "sorted/x.bam: writing failed: File too large",
        "fmwave: error: standard output: writing failed: No space left on device",
        "fmwave: error: standard output: writing failed: Broken pipe",
        "fmwave: error: standard output: writing failed: Broken pipe",
    )
    for process, message in zip(runs, wanted, strict=True):
        _, stderr = process.communicate()
        assert process.returncode == 4
        assert message in last_error(stderr)
    left = {path.name for path in tmp_path.rglob("*") if not path.is_dir()}
    assert left <= {"genome.fa", "genome.fa.fai"}
    assert [path.name for path in (tmp_path / "sorted").iterdir()] == []


@pytest.mark.parametrize("fmt", ["sam", "bam"])
def test_a_full_device(world: World, capfd: pytest.CaptureFixture[str], fmt: str) -> None:
    from mapper.cli.main import main

    assert main(["map", world.index_path, world.both, "-o", "/dev/full", "-O", fmt]) == 4
    assert "error: /dev/full: writing failed: No space left" in capfd.readouterr().err
    assert Path("/dev/full").is_char_device()
