"""Errors for users, each with the exit status of the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Real


class MapperError(Exception):
    """Base of all errors that are caused by the input, the machine or the user.

    The message names the thing, the value, what was expected and what to do; the
    command line prints it without a traceback (unless ``--debug``).
    """

    exit_status = 1


class UsageError(MapperError):
    """Options or paths that contradict each other or are out of range."""

    exit_status = 2


class InputFormatError(MapperError):
    """A reference or read file that breaks its format; names file and record."""

    exit_status = 1


class IndexFormatError(MapperError):
    """An index directory that is incomplete, damaged or of another version."""

    exit_status = 1


class ResourceError(MapperError):
    """Insufficient memory, reported before the work starts where possible."""

    exit_status = 1


class DeviceError(MapperError):
    """A requested device that cannot be used."""

    exit_status = 3


class DeviceMemoryError(DeviceError):
    """Insufficient memory of a device; a smaller batch might fit."""


class OutputError(MapperError):
    """Output that could not be written in full."""

    exit_status = 4


# --- names of options in messages ---

_COMMAND_NAMES: list[Mapping[str, str]] = []
"""While the command runs: its options that are not named as the arguments of Python."""


_PYTHON_NAMES = {
    "no_alt": "alt=False",
    "force": "force=True",
    "ignore_memory": "check_memory=False",
}
"""Arguments of Python that are not named as options of the command."""


@contextmanager
def naming_command_options(names: Mapping[str, str]) -> Iterator[None]:
    """Let messages name the options of the command in the block, not arguments of Python.

    Parameters
    ----------
    names
        Option of each argument that has another name there.
    """
    _COMMAND_NAMES.append(names)
    try:
        yield
    finally:
        _COMMAND_NAMES.pop()


def build_call(reference: str) -> str:
    """Return how users build an index of a FASTA file: a command, or a call in Python."""
    if _COMMAND_NAMES:
        return f"'fmwave index {reference}'"
    return f"mapper.Index.build({reference!r})"


def option(name: str, value: object = None) -> str:
    """Return how users give an option: ``--name value``, or ``name=value`` in Python.

    Parameters
    ----------
    name
        Name of the argument of Python.
    value
        None for the name alone.
    """
    if not _COMMAND_NAMES:
        name = _PYTHON_NAMES.get(name, name)
        return name if value is None else f"{name}={value!r}"
    flag = _COMMAND_NAMES[-1].get(name, f"--{name.replace('_', '-')}")
    return flag if value is None else f"{flag} {value}"


def refuse_file_name(argument: str, given: str | bytes, kind: str) -> None:
    """Raise UsageError if `given`, which stands for something else, is the name of a file.

    Parameters
    ----------
    argument
        What it was given as, as in ``reads``.
    kind
        What a str means there, as in ``a read``.
    """
    if os.path.isfile(given):  # noqa: PTH113 - Path raises for what is too long for a name
        name = os.fsdecode(given)
        raise UsageError(f"{argument}: a str is {kind}; for the file give pathlib.Path({name!r})")


LEAST_MEMORY = 1_000_000
"""Lowest bound of memory that can be given, in bytes: less is a number without its unit."""


def check_memory_bound(memory: object) -> None:
    """Raise UsageError for a bound of memory that is not None or a number of bytes."""
    if memory is not None and not (isinstance(memory, Real) and float(memory) >= LEAST_MEMORY):
        raise UsageError(
            f"{option('memory', memory)}: a number of bytes is expected, {LEAST_MEMORY} at least"
        )
