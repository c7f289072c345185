"""Limits of the process (``ulimit``) as the cause of errors, to be told in one line."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator

_N_FILES = "Too many open files"
_NO_MEMORY = ("failed to map segment", "annot allocate memory")
"""Words of the dynamic loader, whose errors have no number."""


def problem_of_limits(error: BaseException) -> str:
    """Return the message for an error that a limit of memory, files or threads caused.

    Returns
    -------
    Empty for any other error.
    """
    for cause in _causes(error):
        number = cause.errno if isinstance(cause, OSError) else None
        text = str(cause)
        if number in (errno.EMFILE, errno.ENFILE) or _N_FILES in text:
            return too_many_files()
        if isinstance(cause, MemoryError) or number == errno.ENOMEM:
            return out_of_memory()
        if any(words in text for words in _NO_MEMORY):
            return out_of_memory()
        if isinstance(cause, RuntimeError) and "can't start new thread" in text:
            return (
                "a thread could not be started; give fewer (-t), or raise the limits of processes "
                "and memory (ulimit -u, -v)"
            )
    return ""


def out_of_memory() -> str:
    """Return the message of a run that gets no more memory."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return "memory is exhausted; use a machine or job with more"
    return (
        f"memory is exhausted: ulimit -v allows {limit / 1e9:.2f} GB of addresses; raise it, or "
        "use a machine or job with more"
    )


def too_many_files() -> str:
    """Return the message of a run that may open no more files."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"too many open files: ulimit -n allows {limit}; raise it (ulimit -n 1024)"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
