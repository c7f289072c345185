"""Logs of the rules that are scripts, as those of shell rules are (imported by these scripts)."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

JOB_NUMBERS = ("SLURM_JOB_ID", "JOB_ID", "LSB_JOBID")  # rules/attempts.smk looks for them


def start_log(snakemake: Any) -> None:
    """Send all that a script and its programs print to the rule's log, tracebacks too.

    The log begins with the host, the scheduler's number of the job and what was asked for.

    Parameters
    ----------
    snakemake
        The object that Snakemake gives to scripts; None where a test imports one.
    """
    if snakemake is None:
        return
    log = os.open(snakemake.log[0], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    os.close(log)
    print(f"host {socket.gethostname()}")
    for name in JOB_NUMBERS:
        if re.fullmatch("[0-9]+", os.environ.get(name, "")):
            print(f"{name}={os.environ[name]}")
    asked = snakemake.resources
    print(f"asked threads={snakemake.threads} mem_mb={asked.mem_mb} runtime={asked.runtime}")
    sys.stdout.flush()


@contextmanager
def errors_in_one_line(*expected: type[Exception]) -> Iterator[None]:
    """End the script with one line, not a traceback, on an error that a user can mend.

    Parameters
    ----------
    expected
        Kinds of such errors beside those of files and values. A program that fails has told why.
    """
    try:
        yield
    except CalledProcessError as error:
        sys.exit(error.returncode if error.returncode > 0 else 128 - error.returncode)
    except (OSError, EOFError, ValueError, *expected) as error:
        sys.exit(f"error: {error}")


@contextmanager
def named(path: str | Path, *expected: type[Exception]) -> Iterator[None]:
    """Name a file in the errors of reading it: those of gzip do not."""
    try:
        yield
    except (OSError, EOFError, ValueError, *expected) as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error
