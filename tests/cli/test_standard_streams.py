"""Standard streams that are full or closed, and signals where Python cannot raise them."""

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
from mapper.cli.signals import Terminated

ROOT = Path(__file__).parents[2]


@pytest.fixture
def commands(tmp_path: Path) -> list[list[str]]:
    """One of each way to write on standard output: a report, a table, a result."""
    (tmp_path / "a.fa").write_text(">a\nACGT\n")
    (tmp_path / "a.seq").write_text(">ACGT\n<ACCT\n")
    fasta = str(tmp_path / "a.fa")
    return [
        ["info"],
        ["align", str(tmp_path / "a.seq"), "--device", "cpu"],
        ["distance", fasta, fasta, "--device", "cpu"],
    ]


def start(words: list[str], redirected: str) -> subprocess.Popen[str]:
    shell = f'exec "$@" {redirected}'
    return subprocess.Popen(
        ["sh", "-c", shell, "sh", sys.executable, "-m", "mapper.cli.main", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has")
@pytest.mark.parametrize(
    "redirected,reason", [(">/dev/full", "No space left"), (">&-", "Bad file descriptor")]
)
def test_standard_output_that_takes_nothing(
    redirected: str, reason: str, commands: list[list[str]]
) -> None:
    for process in [start(words, redirected) for words in commands]:
        errors = process.communicate()[1].splitlines()
        assert process.returncode == 4, errors
        assert [line for line in errors if "error" in line] == errors[-1:]
        assert reason in errors[-1]


def test_files_do_not_take_the_places_of_closed_streams(
    tmp_path: Path, commands: list[list[str]]
) -> None:
    out = tmp_path / "out.tsv"
    process = start([*commands[1], "-o", str(out)], "<&- >&- 2>&-")
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
