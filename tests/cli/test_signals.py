"""A signal ends a run wherever the main thread is, with one message."""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from mapper.cli import info, signals
from mapper.cli.main import main

STATUS = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "terminated")}


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    kept = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test's process may ignore it
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def when_deleted(number: signal.Signals) -> None:
    class Held:
        def __del__(self) -> None:
            signal.raise_signal(number)

    Held()


def where_all_is_caught(number: signal.Signals) -> None:
    with contextlib.suppress(BaseException):
        signal.raise_signal(number)


def in_a_callback(number: signal.Signals) -> None:
    """Raise in a function that C code calls, as in LLVM's binding."""
    code = "import signal\nsignal.raise_signal(number)\ndone.append(number)\n"
    done: list[signal.Signals] = []
    exec(code, {"__name__": "llvmlite.binding.executionengine", "number": number, "done": done})
    assert done == [number]  # not cut short


@pytest.mark.parametrize("number", STATUS)
@pytest.mark.parametrize("place", [when_deleted, where_all_is_caught, in_a_callback])
def test_no_signal_is_dropped(
    number: signal.Signals, place: Callable[[signal.Signals], None],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def run(args: argparse.Namespace) -> int:
        place(number)
        for _ in range(6000):  # a minute, if the signal is lost
            time.sleep(0.01)
        return 0

    monkeypatch.setattr(info, "run", run)
    status, word = STATUS[number]
    assert main(["info"]) == status
    assert capsys.readouterr().err == f"fmwave: error: {word}\n"


def test_nothing_is_raised_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends before the timer of the handler."""

    def run(args: argparse.Namespace) -> int:
        where_all_is_caught(signal.SIGTERM)
        return 0

    monkeypatch.setattr(info, "run", run)
    assert main(["info"]) == 0
    assert signals.caught == [signal.SIGTERM]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def outcome(code: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stderr


def test_an_interrupt_of_the_imports_is_silent() -> None:
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from mapper.cli.main import set_up_process; set_up_process()\n"
        "signal.raise_signal(signal.SIGINT)"
    )
    assert outcome(code) == (-signal.SIGINT, "")


def test_an_ignored_interrupt_stays_ignored() -> None:
    """SIGINT is ignored in processes that a shell starts in the background."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from mapper.cli import info, main\n"
        "info.run = lambda args: signal.raise_signal(signal.SIGINT) or 7\n"
        "sys.argv[1:] = ['info']; main.entry()"
    )
    assert outcome(code) == (7, "")


def test_the_status_is_ours_whatever_python_executes() -> None:
    """Python ends by the signal itself if that comes inside `eval` of a text."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from mapper.cli import info, main\n"
        "info.run = lambda args: eval('signal.raise_signal(signal.SIGINT)')\n"
        "sys.argv[1:] = ['info']; main.entry()"
    )
    assert outcome(code) == (130, "fmwave: error: interrupted\n")
