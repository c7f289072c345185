"""A signal ends a run wherever the main thread is, with one message."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mapper.cli import info
from mapper.cli.main import main
from mapper.errors import OutputError
from mapper.parallel import signals

ROOT = Path(__file__).parents[2]

STATUS = {
    signal.SIGINT: (130, "interrupted"),
    signal.SIGTERM: (143, "terminated"),
    signal.SIGHUP: (129, "ended by SIGHUP: the terminal or connection was closed"),
    signal.SIGUSR1: (138, "ended by SIGUSR1"),
    signal.SIGUSR2: (140, "ended by SIGUSR2"),
    signal.SIGURG: (151, "ended by SIGURG"),
    signal.SIGXCPU: (152, "ended by SIGXCPU: the limit of CPU time is reached"),
}


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    kept = {n: signal.getsignal(n) for n in (*STATUS, signal.SIGALRM)}
    for number in STATUS:  # a test's process may ignore them
        signal.signal(number, signal.default_int_handler)
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


def in_a_collection(number: signal.Signals) -> None:
    """Raise in a callback of the garbage collector, as Hypothesis has one.

    pytest keeps the exceptions that Python drops there: none is deleted, and so none is retried.
    """
    done: list[signal.Signals] = []

    def callback(phase: str, counts: dict[str, int]) -> None:
        if not done:
            signal.raise_signal(number)
            done.append(number)

    gc.callbacks.append(callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(callback)
    assert done == [number]


@pytest.mark.parametrize("number", STATUS)
@pytest.mark.parametrize(
    "place", [when_deleted, where_all_is_caught, in_a_callback, in_a_collection]
)
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


def outcome(code: str, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stderr


def test_an_interrupt_of_the_imports_is_silent() -> None:
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from mapper.cli.main import set_up_process; set_up_process()\n"
        "signal.raise_signal(signal.SIGINT)"
    )
    assert outcome(code) == (-signal.SIGINT, "")


@pytest.mark.parametrize("number", STATUS)
def test_an_ignored_signal_stays_ignored(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGHUP is ignored under nohup, SIGINT in processes that a shell starts in the background."""
    monkeypatch.setattr(info, "run", lambda args: signal.raise_signal(number) or 7)
    signal.signal(number, signal.SIG_IGN)
    assert main(["info"]) == 7
    assert signal.getsignal(number) is signal.SIG_IGN


def test_nohup() -> None:
    """The command's own start-up does not undo it."""
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from mapper.cli import info, main\n"
        "info.run = lambda args: signal.raise_signal(signal.SIGHUP) or 7\n"
        "sys.argv[1:] = ['info']; main.entry()"
    )
    assert outcome(code) == (7, "")


@pytest.mark.parametrize("second", [signal.SIGHUP, signal.SIGTERM])
def test_a_second_signal_does_not_cut_cleaning_up_short(
    second: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell that ends sends SIGHUP, and the kernel another one; timeout sends SIGTERM twice."""
    cleaned: list[str] = []

    def run(args: argparse.Namespace) -> int:
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.raise_signal(second)
            cleaned.append("all")
        return 0

    monkeypatch.setattr(info, "run", run)
    assert main(["info"]) == 129
    assert cleaned == ["all"]
    assert capsys.readouterr().err == f"fmwave: error: {STATUS[signal.SIGHUP][1]}\n"


def test_a_second_signal_some_time_later_ends_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "REPEAT_SECONDS", 0)

    def run(args: argparse.Namespace) -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            for _ in range(6000):
                time.sleep(0.01)
        return 0

    monkeypatch.setattr(info, "run", run)
    assert main(["info"]) == 143


def test_an_error_that_a_signal_caused_is_told_as_the_signal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A closed terminal ends samtools too, and its pipe breaks while this process cleans up."""

    def run(args: argparse.Namespace) -> int:
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            raise OutputError("samtools view ended early")

    monkeypatch.setattr(info, "run", run)
    assert main(["info"]) == 129
    assert capsys.readouterr().err == f"fmwave: error: {STATUS[signal.SIGHUP][1]}\n"


_ON_A_TERMINAL = """
import fcntl, os, signal, sys, termios, time
os.setsid()
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from mapper.cli import info, main
from mapper.io.output_file import OutputFile
def run(args):
    with OutputFile(sys.argv[2]) as file:
        print("writing", flush=True)
        time.sleep(60)
info.run = run
sys.argv[1:] = ["info", sys.argv[1]]
main.entry()
"""


def test_a_terminal_that_closes_leaves_nothing(tmp_path: Path) -> None:
    """Messages can no longer be written then."""
    ours, its = pty.openpty()
    command = [sys.executable, "-c", _ON_A_TERMINAL, str(tmp_path / "x.bam")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=its) as process:
        os.close(its)
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        assert len(list(tmp_path.iterdir())) == 1
        os.close(ours)
        assert process.wait() == 129
    assert list(tmp_path.iterdir()) == []


_STOPPED_AT_THE_FIRST_WRITE = """
import os, signal, sys, time
for number in (signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, signal.SIG_DFL)
from mapper.cli.main import main
from mapper.io.output_file import OutputFile
def write(self, data):
    os.write(self.fileno(), data)
    assert os.listdir("out")
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(60)
OutputFile.write = write
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_tables_leave_nothing_either(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "a.fa").write_text(">a\nACGTACGTACGTAC\n")
    assert main(["index", str(tmp_path / "a.fa"), "--quiet"]) == 0
    for words in ("align a.fa a.fa -t 1 -o out/x.tsv", "seed a.fmw a.fa -k 5 -t 1 -o out/x.tsv"):
        command = [sys.executable, "-c", _STOPPED_AT_THE_FIRST_WRITE, str(int(number))]
        done = subprocess.run(
            [*command, *words.split(), "--device", "cpu"], cwd=tmp_path, stderr=subprocess.PIPE,
            text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 128 + number, done.stderr
        assert done.stderr.endswith(f"fmwave: error: {STATUS[number][1]}\n")
        assert list((tmp_path / "out").iterdir()) == []


_STOPPED_AS_A_FILE_BEGINS_OR_ENDS = """
import os, signal, sys
from contextlib import ExitStack
from mapper.cli import info, main
from mapper.io.output_file import OutputFile
path, moment = sys.argv[1:]
def stop():
    assert os.listdir(os.path.dirname(path))
    signal.raise_signal(signal.SIGTERM)
def run(args):
    if moment == "made":
        make = os.open
        def made(*words):
            handle = make(*words)
            os.open = make
            stop()
            return handle
        os.open = made
    else:
        leave = OutputFile.__exit__
        def leaving(self, *words):
            stop()
            leave(self, *words)
        OutputFile.__exit__ = leaving
    with ExitStack() as stack:
        stack.enter_context(OutputFile(path)).write(b"x")
info.run = run
sys.argv[1:] = ["info"]
main.entry()
"""


@pytest.mark.parametrize("moment", ["made", "complete"])
def test_nothing_is_left_outside_of_a_block(moment: str, tmp_path: Path) -> None:
    """A signal ends the run when the file is there, before or after its block holds it."""
    path = tmp_path / "x.bam"
    assert outcome(_STOPPED_AS_A_FILE_BEGINS_OR_ENDS, str(path), moment) == (
        143, "fmwave: error: terminated\n",
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_the_status_is_ours_whatever_python_executes() -> None:
    """Python ends by the signal itself if that comes inside `eval` of a text."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from mapper.cli import info, main\n"
        "info.run = lambda args: eval('signal.raise_signal(signal.SIGINT)')\n"
        "sys.argv[1:] = ['info']; main.entry()"
    )
    assert outcome(code) == (130, "fmwave: error: interrupted\n")


def test_no_lock_is_left_held() -> None:
    """A Condition takes its lock in Python: an exception right behind that would keep it."""
    frames = []

    class Lock:
        def acquire(self, *_: object) -> bool:
            return True

        def release(self) -> None:
            pass

        def locked(self) -> bool:  # asked for by a Condition from Python 3.14 on
            return False

        def __enter__(self) -> None:
            frames.append(sys._getframe(1))

        def __exit__(self, *_: object) -> None:
            frames.append(sys._getframe(1))

    with threading.Condition(Lock()):  # type: ignore[arg-type]
        assert not signals._would_be_dropped(sys._getframe())
    assert [frame.f_code.co_name for frame in frames] == ["__enter__", "__exit__"]
    assert all(map(signals._would_be_dropped, frames))


def test_a_signal_waits_for_the_end_of_a_step() -> None:
    signals.raise_on_signals()
    done = []
    with pytest.raises(signals.Terminated), signals.waiting(60):
        assert not signals.is_waiting()
        signal.raise_signal(signal.SIGTERM)
        assert signals.is_waiting()
        signal.raise_signal(signal.SIGTERM)
        done.append("step")
        signals.raise_waiting()
        done.append("next step")
    assert done == ["step"]
    signals.stop_raising()


def test_a_signal_of_an_ended_run_waits_no_more() -> None:
    signals.raise_on_signals()
    with pytest.raises(signals.Terminated):
        signal.raise_signal(signal.SIGTERM)
    signals.stop_raising()
    with signals.waiting(60):
        assert not signals.is_waiting()
        signals.raise_waiting()


def test_a_signal_that_nobody_asked_for_raises_at_the_end() -> None:
    signals.raise_on_signals()
    with pytest.raises(signals.Terminated), signals.waiting(60):
        signal.raise_signal(signal.SIGUSR1)
    signals.stop_raising()


def test_a_signal_does_not_wait_for_ever() -> None:
    signals.raise_on_signals()
    with pytest.raises(signals.Terminated), signals.waiting(0.01):
        signal.raise_signal(signal.SIGTERM)
        threading.Event().wait()
    signals.stop_raising()


def test_a_second_interrupt_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "REPEAT_SECONDS", 0.0)
    signals.raise_on_signals()
    with pytest.raises(signals.Interrupted), signals.waiting(60):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second signal does not wait")
    signals.stop_raising()
