"""Signals that end a run, as exceptions that always reach the bottom of the stack.

A handler runs between two instructions of the main thread, wherever that is. Python drops an
exception that it raises in a ``__del__``, in a callback of the garbage collector or in a function
called by C code: the run would continue as if no signal had come, and LLVM crashed when its
callback was cut short. So the handler sets a
timer until the main thread is elsewhere, and raises again if its exception was dropped.

One cause often sends two signals: a terminal that closes (the kernel's SIGHUP and the shell's),
``timeout`` (to the process and to its group). A second exception would cut short what the first one
cleans up, so signals within REPEAT_SECONDS of the first raise none.
"""

from __future__ import annotations

import gc
import logging
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

log = logging.getLogger(__name__)

STOPPING = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,  # the terminal or the connection is gone
    signal.SIGUSR1,  # batch systems, some minutes before SIGKILL (sbatch --signal, qsub -notify)
    signal.SIGUSR2,
    signal.SIGURG,  # the same: shells and Python ignore it, so that it ends nothing but the run
    signal.SIGXCPU,  # the soft limit of CPU time (ulimit -t, s_cpu)
)
"""Signals that end a run. All but SIGURG would end the process without its handlers."""

REPEAT_SECONDS = 1.0
_RETRY_SECONDS = 0.005
_CALLED_BACK = "llvmlite.binding"
"""Modules that C code calls, or whose objects fail if their construction is cut short."""

_TAKING_LOCKS = (
    threading.Condition.__enter__.__code__, threading.Condition.__exit__.__code__,
)  # fmt: skip
"""Functions between whose instructions a lock is taken or released."""

caught: list[signal.Signals] = []
"""Signals that came during this run."""

_raised: set[weakref.ref[BaseException]] = set()
"""Exceptions that have not been caught at the bottom of the stack yet."""


_raised_at = 0.0
"""Time of the last signal that raised."""

_patience = 0.0
"""Seconds for which signals wait; see :func:`waiting`."""

_is_held = False
"""True if a signal waits. Not the same as ``caught``, which keeps those of a run that has ended."""


class Terminated(BaseException):
    """A signal but SIGINT came; like KeyboardInterrupt, it passes ``except Exception``."""


class Interrupted(KeyboardInterrupt):
    """SIGINT came."""


def end_at_once() -> None:
    """Let SIGINT end the process without a message, as SIGTERM does: there is nothing to clean up.

    This holds until :func:`raise_on_signals`; Python itself would print a traceback of its imports.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_on_signals() -> None:
    """Raise Interrupted for SIGINT and Terminated for the others of STOPPING, unless ignored.

    ``nohup`` ignores SIGHUP, a shell SIGINT of what it starts in the background.
    """
    caught.clear()
    _raised.clear()
    try:
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _stop)
    except ValueError:
        log.debug("not in the main thread: signals keep their handlers")


def stop_raising() -> None:
    """Raise nothing again: the exceptions have been caught, or the run has ended without any."""
    if caught:
        _raised.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def waiting(seconds: float) -> Iterator[None]:
    """Let signals wait in the block until it calls :func:`raise_waiting`, `seconds` at most.

    Then, at the end of the block, and for a second SIGINT, they raise as outside of it.
    """
    global _patience, _is_held
    _patience, _is_held = seconds, False
    try:
        yield
    finally:
        _patience = 0.0
    raise_waiting()


def is_waiting() -> bool:
    """Return True if a signal waits for the end of what the block of :func:`waiting` does."""
    return _is_held


def raise_waiting() -> None:
    """Raise for the signal that waits, if one does."""
    global _raised_at, _is_held
    if _is_held:
        _is_held = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        _raised_at = time.monotonic()
        raise _error()


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGINT in the block, so that it always leaves the block.

    Handlers are changed in the main thread only, where Python's own is in place (that of Jupyter
    while a cell runs, too), and put back at the end: an application's handler is left alone.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    caught.clear()
    _raised.clear()
    on_alarm = signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGINT, _stop)
    try:
        yield
    except Exception:
        if caught:  # samtools gets the terminal's signals too, and its end is an error
            raise KeyboardInterrupt from None
        raise
    finally:
        stop_raising()
        caught.clear()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, on_alarm)


def _stop(signum: int, frame: FrameType | None) -> None:
    global _raised_at, _is_held
    if signum != signal.SIGALRM:
        caught.append(signal.Signals(signum))
        now = time.monotonic()
        if len(caught) > 1 and now - _raised_at < REPEAT_SECONDS:
            return
        if _patience and (len(caught) == 1 or signum != signal.SIGINT):
            if len(caught) == 1:
                _is_held = True
                _raise_after(_patience)
            return
        _raised_at = now
    if _would_be_dropped(frame):
        _raise_after(_RETRY_SECONDS)
        return
    error = _error()
    try:
        raise error
    finally:
        del error  # or this frame, which its traceback holds, would keep it


def _error() -> BaseException:
    """Return the exception for the first signal, to be raised."""
    error = Interrupted() if caught[0] == signal.SIGINT else Terminated()
    _raised.add(weakref.ref(error, _dropped))
    return error


def _dropped(error: weakref.ref[BaseException]) -> None:
    """Retry if an exception was deleted before it was caught; called by its weak reference."""
    if error in _raised:  # nobody has caught it at the bottom of the stack
        _raised.remove(error)
        _raise_after(_RETRY_SECONDS)


def _raise_after(seconds: float) -> None:
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _would_be_dropped(frame: FrameType | None) -> bool:
    """Return True if an exception raised in a frame may not reach the bottom of its stack.

    Or if it would leave a lock held, on which a worker then waits for ever: a Condition, as every
    Future has, takes its lock in a function of Python's.
    """
    if frame is not None and frame.f_code in _TAKING_LOCKS:
        return True
    of_collector = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code in of_collector:
            return True
        if str(frame.f_globals.get("__name__")).startswith(_CALLED_BACK):
            return True
        frame = frame.f_back
    return False
