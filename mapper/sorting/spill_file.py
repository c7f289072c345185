"""The temporary file of a sort: runs of sorted records that do not fit in memory."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numba
import numpy as np
from numba import types

from mapper.errors import OutputError, option
from mapper.io.output_file import Partial, later_sync, open_partial, output_error, system_call
from mapper.jit.accelerate import driver

_PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE of linux/falloc.h

# Of a handle: mode, offset and bytes.
_fallocate = system_call("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

_pread = types.ExternalFunction(
    "pread", types.intp(types.intc, types.uintp, types.uintp, types.int64)
)


@driver
def _read_parts(handle, parts, out):
    """Read parts of a file by pread(2); return False if one could not be read in full.

    One call for all: threads that read a part of each of some dozen runs by Python's function
    waited longer for the GIL than for the file.
    """
    at = np.int64(0)
    for i in range(len(parts)):
        offset, left = parts[i, 0], parts[i, 1]
        while left > 0:
            n = _pread(np.int32(handle), np.uintp(out.ctypes.data + at), np.uintp(left), offset)
            if n <= 0:
                return False
            at += n
            offset += n
            left -= n
    return True


class SpilledRun(NamedTuple):
    """Sorted records in the file, in compressed blocks of whole records."""

    first_keys: np.ndarray  # int64 (n_blocks,): of the first record of each block
    sizes: np.ndarray  # int64 (n_blocks,): of the records, in bytes
    rows: np.ndarray  # int64 (n_blocks,): their number
    offsets: np.ndarray  # int64 (n_blocks + 1,): of the blocks, in the file


def spill_directory(given: str | None, output: Path | None) -> Path:
    """Return the directory for temporary files.

    That is `given` or TMPDIR; else that of the output, which must have room for the records anyway
    (/tmp may not); else the system's.

    Raises
    ------
    OutputError
        If a directory that the user named does not exist.
    """
    for name, path in ((option("tmp_dir"), given), ("TMPDIR", os.environ.get("TMPDIR"))):
        if path:
            if not Path(path).is_dir():
                raise OutputError(
                    f"{name} {path}: no such directory, and sorting writes its temporary file "
                    "there; make it, or name another one"
                )
            return Path(path)
    return Path(tempfile.gettempdir()) if output is None else output.parent


class SpillFile:
    """A file without a name, which the system removes when the process ends, however it ends.

    It is made when it is first written to.

    Parameters
    ----------
    directory
        From :func:`spill_directory`.
    partial
        A file that another process can go on with; None for one without a name.
    """

    def __init__(self, directory: Path, partial: Partial | None = None) -> None:
        self.directory = directory
        self._file: IO[bytes] | None = None
        self.n_bytes = 0
        if partial is not None:
            handle = open_partial(partial.path, os.O_RDWR, partial.n_bytes)
            self._file, self.n_bytes = os.fdopen(handle, "r+b", 0), partial.n_bytes

    def reserve(self, n_bytes: int) -> int:
        """Return the offset of the next `n_bytes` bytes of the file; one thread at a time."""
        if self._file is None:
            try:
                self._file = tempfile.TemporaryFile(dir=self.directory, buffering=0)  # noqa: SIM115
            except OSError as error:
                raise output_error(self.directory, error) from error
        offset = self.n_bytes
        self.n_bytes += n_bytes
        return offset

    def write(self, data: np.ndarray, offset: int) -> None:
        """Write bytes at a reserved offset; any thread."""
        view = data.data
        try:
            while view:
                n = os.pwrite(self.fileno(), view, offset)
                view, offset = view[n:], offset + n
        except OSError as error:
            raise OutputError(
                f"{self.directory}: writing the temporary file of the sort failed after "
                f"{self.n_bytes / 1e9:.1f} GB: {error.strerror}; free some space, name another "
                f"directory ({option('tmp_dir')}), or give more {option('memory')}"
            ) from error

    def fileno(self) -> int:
        """Return the descriptor of a file that has been written to."""
        assert self._file is not None
        return self._file.fileno()

    def later_sync(self) -> Callable[[], None]:
        """Return a function that waits until what has been written is on disk."""
        return later_sync(self.fileno())

    def read(self, offset: int, out: np.ndarray) -> None:
        """Fill an array with the bytes from an offset on; any thread."""
        view = out.data
        try:
            while view:
                n = os.preadv(self.fileno(), [view], offset)
                if n == 0:
                    raise self.damaged("it is too short")
                view, offset = view[n:], offset + n
        except OSError as error:
            raise OutputError(
                f"{self.directory}: reading the temporary file of the sort failed: {error.strerror}"
            ) from error

    def read_parts(self, parts: np.ndarray, out: np.ndarray) -> None:
        """Fill an array with parts of the file, one behind another; any thread.

        Parameters
        ----------
        parts
            Offset and bytes of each: int64, shape (n, 2).
        """
        if not numba.config.DISABLE_JIT and _read_parts(self.fileno(), parts, out):
            return
        at = 0  # once more, for the error if there was one
        for offset, n_bytes in parts.tolist():
            self.read(offset, out[at : at + n_bytes])
            at += n_bytes

    def release(self, parts: Sequence[tuple[int, int]]) -> None:
        """Give the room of parts of the file, offset and bytes of each, back to the disk.

        They read as zeros then. Whether the file system can do that does not matter.
        """
        if self._file is None or _fallocate is None:
            return
        for offset, n_bytes in parts:
            if _fallocate(self.fileno(), _PUNCH_HOLE, offset, n_bytes) != 0:
                return

    def damaged(self, why: object) -> OutputError:
        """Return the error of a damaged temporary file."""
        return OutputError(
            f"{self.directory}: the temporary file of the sort is damaged: {why}; run again, with "
            f"{option('tmp_dir')} on another disk if it happens again"
        )

    def close(self) -> None:
        """Close the file, which removes one without a name."""
        if self._file is not None:
            self._file.close()
            self._file = None
