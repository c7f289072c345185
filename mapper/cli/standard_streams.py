"""The three streams that a process is given: there even where it was started without them."""

from __future__ import annotations

import os
import sys

from mapper.io.output_file import output_error


def open_closed_streams() -> None:
    """Take the places of closed standard streams, as ``fmwave ... >&-`` leaves them.

    The next file to be opened would take them, and get what is meant for the stream. Reading
    such standard input, and writing to such standard output, fail as on a closed one; messages
    are lost. Call this before any file is opened.
    """
    for descriptor, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def report(text: str) -> None:
    """Write to standard output, at once.

    Raises
    ------
    OutputError
        If it takes no more, as on a full disk.
    BrokenPipeError
        If its reader went away.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # Python would try once more at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise output_error("standard output", error) from error
