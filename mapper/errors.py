"""The errors a user can meet, each with the exit status it ends the command with."""

from __future__ import annotations


class MapperError(Exception):
    """Base of all errors that are the input's, the machine's or the user's, not ours.

    The message names the thing, the value, what was expected and what to do; the
    command line prints it without a traceback (unless ``--debug``).
    """

    exit_status = 1


class UsageError(MapperError):
    """Options or paths that cannot be what the user meant."""

    exit_status = 2


class InputFormatError(MapperError):
    """A reference or read file that breaks its format; names file and record."""

    exit_status = 1


class IndexFormatError(MapperError):
    """An index directory that is incomplete, damaged or of another version."""

    exit_status = 1


class ResourceError(MapperError):
    """Memory that does not suffice, said before the work starts where possible."""

    exit_status = 1


class DeviceError(MapperError):
    """A device that was asked for and cannot be used."""

    exit_status = 3


class DeviceMemoryError(DeviceError):
    """A device's memory does not suffice; a smaller batch might fit."""


class OutputError(MapperError):
    """Output that could not be written in full."""

    exit_status = 4
