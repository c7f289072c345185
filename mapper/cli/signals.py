"""SIGINT and SIGTERM as exceptions that always reach the bottom of the stack.

A handler runs between two instructions of the main thread, wherever that is. Python drops an
exception that it raises in a ``__del__`` or in a function called by C code: the run would continue
as if no signal had come, and LLVM crashed when its callback was cut short. So the handler sets a
timer until the main thread is elsewhere, and raises again if its exception was dropped.
"""

from __future__ import annotations

import logging
import signal
import weakref
from types import FrameType

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.005
_CALLED_BACK = "llvmlite.binding"
"""Modules that C code calls, or whose objects fail if their construction is cut short."""

caught: list[signal.Signals] = []
"""Signals that came during this run."""

_raised: set[weakref.ref[BaseException]] = set()
"""Exceptions that have not been caught at the bottom of the stack yet."""


class Terminated(BaseException):
    """SIGTERM came; like KeyboardInterrupt, it passes ``except Exception``."""


class Interrupted(KeyboardInterrupt):
    """SIGINT came."""


def end_at_once() -> None:
    """Let SIGINT end the process without a message, as SIGTERM does: there is nothing to clean up.

    This holds until :func:`raise_on_signals`; Python itself would print a traceback of its imports.
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


def stop_raising() -> None:
    """Raise nothing again: the exceptions have been caught, or the run has ended without any."""
    if caught:
        _raised.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)


def _stop(signum: int, frame: FrameType | None) -> None:
    if signum != signal.SIGALRM:
        caught.append(signal.Signals(signum))
    if _would_be_dropped(frame):
        _retry()
        return
    error = Interrupted() if caught[0] == signal.SIGINT else Terminated()
    _raised.add(weakref.ref(error, _dropped))
    try:
        raise error
    finally:
        del error  # or this frame, which its traceback holds, would keep it


def _dropped(error: weakref.ref[BaseException]) -> None:
    """Retry if an exception was deleted before it was caught; called by its weak reference."""
    if error in _raised:  # nobody has caught it at the bottom of the stack
        _raised.remove(error)
        _retry()


def _retry() -> None:
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)


def _would_be_dropped(frame: FrameType | None) -> bool:
    """Return True if an exception raised in a frame may not reach the bottom of its stack."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        if str(frame.f_globals.get("__name__")).startswith(_CALLED_BACK):
            return True
        frame = frame.f_back
    return False
