"""Compiled code on disk: a file for each function and signature.

In place of numba's own cache, for three reasons. Numba keeps a list of a function's signatures in
a second file, which two processes that compile at the same time rewrite without looking at each
other's: code of one signature could come to lie under the name of another. It imports and
registers all that it can compile before it looks for compiled code, 0.3 s of a start (its compiler
does so again when it has something to compile). And it tries for every function whether files
can be made, which takes long on the file systems of clusters.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import logging
import pickle
import sys
import uuid
import warnings
import zlib
from pathlib import Path
from types import FunctionType

import numba
from numba.core.errors import NumbaWarning
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from mapper.jit.code_library import restored

log = logging.getLogger(__name__)

_VERSION = (numba.__version__, sys.implementation.cache_tag)


class CodeCache:
    """The compiled code of one function; what numba's dispatcher asks before it compiles.

    Parameters
    ----------
    py_func
        The function.
    directory
        Where files are; its name tells the sources of this package apart.
    variant
        Of the options it is compiled with.

    Notes
    -----
    A file is named after all that its code depends on, holds that again to compare, and appears
    by renaming: processes that compile the same write the same. One that is damaged is not there.
    """

    def __init__(self, py_func: FunctionType, directory: Path, variant: str = "") -> None:
        self._py_func = py_func
        self.cache_path = directory
        self._variant = variant

    @property
    def name(self) -> str:
        """Name of the function, with which the names of its files begin."""
        function = self._py_func
        return f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")

    def load_overload(self, sig, target_context):
        """Return the result of an earlier compilation, or None."""
        rtsys.initialize(target_context)  # the functions that compiled code calls
        key = self._key(sig, target_context.codegen())
        try:
            data = self._path(key).read_bytes()
        except OSError:  # there is none, most often
            return None
        if zlib.crc32(data[4:]).to_bytes(4, "little") != data[:4]:
            log.debug("%s is damaged", self._path(key))
            return None
        stream = io.BytesIO(data[4:])
        if pickle.load(stream) != key:
            return None
        return restored(target_context, pickle.load(stream))

    def save_overload(self, sig, result):
        """Keep the result of a compilation; without room for it on disk, go on without."""
        if result.library.has_dynamic_globals or any(not part.can_cache for part in result.lifted):
            warnings.warn(f"the code of {self.name} cannot be kept on disk", NumbaWarning, 2)
            return
        key = self._key(sig, result.codegen)
        *kept, environments = result._reduce()
        # Of other functions' environments, code of numba's nopython mode reads the constants
        # only. To restore one imports its function's module: for nothing, most often.
        environments = tuple(other for other in environments if other.consts)
        data = dumps(key) + dumps((*kept, environments))
        path = self._path(key)
        unfinished = path.with_name(f"{uuid.uuid4().hex}.unfinished")
        try:
            try:
                unfinished.write_bytes(zlib.crc32(data).to_bytes(4, "little") + data)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
        except OSError as error:
            _say_once(f"compiled code cannot be kept in {self.cache_path}: {error.strerror}")

    def _key(self, sig, codegen):
        function = self._py_func
        cells = function.__closure__ or ()
        return (
            _VERSION, sig, codegen.magic_tuple(), self._variant, function.__code__.co_firstlineno,
            _digest(function.__code__.co_code),
            _digest(dumps(tuple(cell.cell_contents for cell in cells)) if cells else b""),
            _source_digest(function),
        )  # fmt: skip

    def _path(self, key: object) -> Path:
        return self.cache_path / f"{self.name}-{_digest(repr(key).encode())[:20]}.code"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _source_digest(function: FunctionType) -> str:
    """Return a digest of the function's file, unless the directory's name covers it."""
    if function.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return ""
    return _file_digest(inspect.getfile(function))


@functools.cache
def _file_digest(path: str) -> str:
    try:
        return _digest(Path(path).read_bytes())
    except OSError:  # typed in: there is nothing but the code
        return ""


@functools.cache
def _say_once(message: str) -> None:
    log.warning("%s", message)
