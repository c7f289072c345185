"""Standard input, output and error: opened if the process was started without them."""

from __future__ import annotations

import os
import sys

from mapper.io.output_file import output_error


def open_closed_streams() -> None:
    """Open standard streams that are closed, as after ``fmwave ... >&-``.

    Otherwise the next file to be opened would get the stream's descriptor, and its data. Reading
    from standard input and writing to standard output fail as on a closed stream; messages are
    lost. Call this before any file is opened.
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
        If it cannot be written to, as on a full disk.
    BrokenPipeError
        If its reader went away.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # Python would flush again at exit, and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise output_error("standard output", error) from error
