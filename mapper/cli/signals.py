"""SIGINT and SIGTERM as exceptions that arrive.

A handler runs between two instructions of the main thread, wherever that is. What it raises in
a ``__del__`` or in a function that C code has called, Python drops: the run would go on as if no
signal had come. LLVM even crashed where its callback had been cut short. So the handler waits
until the main thread is elsewhere, and comes again if its exception was dropped nevertheless.
"""

from __future__ import annotations

import logging
import signal
import weakref
from types import FrameType

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.005
_CALLED_BACK = "llvmlite.binding"
"""Modules that C code calls, or whose objects complain if they are left half made."""

caught: list[signal.Signals] = []
"""Those that came during this run."""

_raised: set[weakref.ref[BaseException]] = set()
"""Exceptions that are on their way."""


class Terminated(BaseException):
    """SIGTERM came; like KeyboardInterrupt, it passes ``except Exception``."""


class Interrupted(KeyboardInterrupt):
    """SIGINT came."""


def end_at_once() -> None:
    """Let SIGINT end the process without a word, as SIGTERM does: there is nothing to clean up.

    Until :func:`raise_on_signals`; Python itself would show a traceback of its imports.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_on_signals() -> None:
    """Raise Terminated for SIGTERM and, unless it is ignored, Interrupted for SIGINT."""
    caught.clear()
    _raised.clear()
    try:
        signal.signal(signal.SIGTERM, _stop)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, _stop)
    except ValueError:
        log.debug("not in the main thread: signals keep their handlers")


def settle() -> None:
    """Raise nothing again: exceptions have arrived, or the run has ended without."""
    if caught:
        _raised.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)


def _stop(signum: int, frame: FrameType | None) -> None:
    if signum != signal.SIGALRM:
        caught.append(signal.Signals(signum))
    if _would_be_dropped(frame):
        _come_again()
        return
    error = Interrupted() if caught[0] == signal.SIGINT else Terminated()
    _raised.add(weakref.ref(error, _dropped))
    try:
        raise error
    finally:
        del error  # or this frame, which its traceback holds, would keep it


def _dropped(error: weakref.ref[BaseException]) -> None:
    """Hear that an exception is gone."""
    if error in _raised:  # nobody has caught it at the bottom of the stack
        _raised.remove(error)
        _come_again()


def _come_again() -> None:
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)


def _would_be_dropped(frame: FrameType | None) -> bool:
    """Say whether what is raised in a frame may not reach the bottom of its stack."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        if str(frame.f_globals.get("__name__")).startswith(_CALLED_BACK):
            return True
        frame = frame.f_back
    return False
