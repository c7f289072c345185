"""Standard streams that are full or closed, and signals inside callbacks of C code."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mapper.cli import info
from mapper.cli.main import main
from mapper.parallel.signals import Terminated
from tests.helpers.mapping_runs import World

ROOT = Path(__file__).parents[2]


HELP = [["--help"], ["map", "--help"], ["--version"]]
"""What argparse writes: `map --help` is more than Python's buffer holds, the others less."""


@pytest.fixture
def reports(tmp_path: Path) -> list[list[str]]:
    """Commands that report on standard output."""
    (tmp_path / "a.fa").write_text(">a\nACGT\n")
    fasta = str(tmp_path / "a.fa")
    return [["info"], ["distance", fasta, fasta, "--device", "cpu"]]


@pytest.fixture
def tables(world: World, tmp_path: Path) -> list[list[str]]:
    """Commands that write lines or records on standard output."""
    (tmp_path / "a.seq").write_text(">ACGT\n<ACCT\n")
    return [
        ["align", str(tmp_path / "a.seq"), "--device", "cpu"],
        ["seed", world.index_path, world.first, "--device", "cpu"],
    ]


def start(
    words: list[str], redirected: str, stdout: int = subprocess.DEVNULL, unbuffered: str = ""
) -> subprocess.Popen[str]:
    shell = f'exec "$@" {redirected}'
    return subprocess.Popen(
        ["sh", "-c", shell, "sh", sys.executable, "-m", "mapper.cli.main", *words],
        stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip


def errors_of(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the end; return the lines of standard error."""
    return process.communicate()[1].splitlines()


@pytest.mark.medium
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has")
@pytest.mark.parametrize(
    "redirected,reason", [(">/dev/full", "No space left"), (">&-", "Bad file descriptor")]
)
def test_standard_output_that_takes_nothing(
    redirected: str, reason: str, reports: list[list[str]], tables: list[list[str]]
) -> None:
    started = [start(words, redirected) for words in HELP + reports + tables]
    started += [start(words, redirected, unbuffered="1") for words in HELP]
    for process, errors in [(process, errors_of(process)) for process in started]:
        assert process.returncode == 4, errors
        assert [line for line in errors if "error" in line] == errors[-1:]
        assert reason in errors[-1]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_went_away_is_no_error(unbuffered: str, reports: list[list[str]]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    started = [start(words, "", writing, unbuffered) for words in [*HELP, *reports]]
    os.close(writing)
    for process, errors in [(process, errors_of(process)) for process in started]:
        assert process.returncode == 128 + signal.SIGPIPE, errors
        told = ("fmwave: 4 and 4 symbols", "fmwave: compiling code")
        assert [line for line in errors if not line.startswith(told)] == []


def test_files_do_not_take_the_places_of_closed_streams(
    tmp_path: Path, tables: list[list[str]]
) -> None:
    out = tmp_path / "out.tsv"
    process = start([*tables[0], "-o", str(out)], "<&- >&- 2>&-")
    process.communicate()
    assert process.returncode == 0
    assert out.read_text().splitlines()[1:] == ["0\t4\t4\t1\tok\t2=1X1="]


@pytest.fixture
def kept_handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    "number,status,word",
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_that_a_library_swallows_is_told_nevertheless(
    number: signal.Signals, status: int, word: str, kept_handlers: None,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """As LLVM's callbacks do while numba compiles."""

    def compile_something(args: argparse.Namespace) -> int:
        try:
            signal.raise_signal(number)
        except (KeyboardInterrupt, Terminated):
            raise RuntimeError("no compiled object yet") from None
        return 0

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test's process may ignore it
    monkeypatch.setattr(info, "run", compile_something)
    assert main(["info"]) == status
    assert capsys.readouterr().err == f"fmwave: error: {word}\n"
    monkeypatch.setattr(info, "run", lambda args: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main(["info"])
