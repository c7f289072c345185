"""Errors for users, each with the exit status of the command line."""

from __future__ import annotations


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
