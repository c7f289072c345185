"""Files of compiled code: a file for each function and kind of arguments.

The name of a file is a digest of everything that its code depends on, which the file holds again
for comparison. It is written under a temporary name and renamed, so processes may compile the same
function at the same time. A damaged file counts as missing.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import logging
import pickle
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.serialize import dumps

log = logging.getLogger(__name__)


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name; the names of its files begin with it."""
    return f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")


def text_of(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return what identifies a function's text within a directory of one version of the package."""
    cells = [_identity(cell.cell_contents) for cell in function.__closure__ or ()]
    return (
        function.__code__.co_firstlineno,
        _digest(function.__code__.co_code),
        _digest(dumps(tuple(cells)) if cells else b""),
        _source_digest(function),
    )


def _identity(value: Any) -> Any:
    """Return what identifies a value of a closure: name and text of a compiled function."""
    function = getattr(value, "py_func", None)
    return (name_of(function), text_of(function)) if function else value


def path_of(directory: Path, function: Callable[..., Any], key: object, suffix: str) -> Path:
    """Return the path of a function's code; `key` is everything that the code depends on."""
    return directory / f"{name_of(function)}-{_digest(repr(key).encode())[:20]}.{suffix}"


def read(path: Path, key: object) -> bytes | None:
    """Return the content of a file that was written with this key; None if there is none."""
    try:
        data = path.read_bytes()
    except OSError:  # most often: there is none
        return None
    if zlib.crc32(data[4:]).to_bytes(4, "little") != data[:4]:
        log.debug("%s is damaged", path)
        return None
    stream = io.BytesIO(data[4:])
    if pickle.load(stream) != key:
        return None
    return stream.read()


def content(path: Path) -> bytes:
    """Return the content of a file, whatever its key."""
    stream = io.BytesIO(path.read_bytes()[4:])
    pickle.load(stream)
    return stream.read()


def write(path: Path, key: object, content: bytes) -> None:
    """Write a file; if that fails, log it once and go on."""
    data = dumps(key) + content
    unfinished = path.with_name(f"{uuid.uuid4().hex}.unfinished")
    try:
        try:
            unfinished.write_bytes(zlib.crc32(data).to_bytes(4, "little") + data)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        _say_once(f"compiled code cannot be kept in {path.parent}: {error.strerror}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _source_digest(function: Callable[..., Any]) -> str:
    """Return a digest of the function's file, unless the directory's name covers it."""
    if function.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return ""
    return _file_digest(inspect.getfile(function))


@functools.cache
def _file_digest(path: str) -> str:
    try:
        return _digest(Path(path).read_bytes())
    except OSError:  # typed in: there is no file
        return ""


@functools.cache
def _say_once(message: str) -> None:
    log.warning("%s", message)
