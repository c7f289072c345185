"""Write files that appear under their name only when they are complete."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import json
import mmap
import os
import select
import shutil
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from mapper.errors import OutputError

STDOUT = "-"

WINDOW_BYTES = 32 << 20
"""Written bytes after which a file's writing to disk begins: the sync of all of a file at its end
took 0.6 s of 9 for 2 GB, while all threads waited."""

CACHED_BYTES = 256 << 20
"""The end of a large file that stays in the system's memory while it is written. All of it would
take memory that a job may lack, and on a virtual machine, which gets its memory when it is first
touched, made writing five times as slow."""

_START_WRITING = 2  # SYNC_FILE_RANGE_WRITE of linux/fs.h
_WRITE_AND_WAIT = 7  # with SYNC_FILE_RANGE_WAIT_BEFORE and SYNC_FILE_RANGE_WAIT_AFTER


def temporary_name(path: Path) -> Path:
    """Return the temporary name of `path` for this process, in the same directory."""
    return path.with_name(f".{path.name}.fmwave-{os.getpid()}.tmp")


def output_error(name: str | Path, error: OSError) -> OutputError:
    """Return the error, with advice for the user, of a failed write."""
    advice = {
        errno.ENOSPC: "free some space or write elsewhere",
        errno.EDQUOT: "free some of your quota or write elsewhere",
        errno.EPIPE: "the program that reads the output ended early",
    }.get(error.errno or 0, "nothing was left under the final name")
    return OutputError(f"{name}: writing failed: {error.strerror or error}; {advice}")


def sync_and_rename(temporary: Path, final: Path, *, stale: Iterable[Path] = ()) -> None:
    """Sync a complete file to disk, then give it its final name.

    Files in `stale`, which describe an older file of that name, are removed just before: if the
    run is killed between, the older file has lost its index, but no file has the index of another.
    """
    try:
        sync_to_disk(temporary)
        for path in stale:
            if not path.is_dir():
                _remove_stale(path)
        temporary.replace(final)
        sync_to_disk(final.parent)
    except OSError as error:
        raise output_error(final, error) from error


def _remove_stale(path: Path) -> None:
    """Remove a file that describes an older output, if there is one."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            f"{path}: of an older output, and cannot be removed: {error.strerror}; remove it, or "
            "write elsewhere"
        ) from error


def sync_to_disk(path: Path) -> None:
    """Sync a file's bytes, or a directory's names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def later_sync(handle: int) -> Callable[[], None]:
    """Return a function that syncs an open file to disk, even if it has been closed meanwhile.

    It is to be called once, by any thread.
    """
    own = os.dup(handle)

    def sync() -> None:
        try:
            os.fsync(own)
        finally:
            os.close(own)

    return sync


def system_call(name: str, *kinds: type) -> Callable[..., int] | None:
    """Return a function of the C library with arguments of some kinds; None where there is none."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    function.argtypes = kinds
    return function


# Of a handle: offset, bytes and flags.
_sync_file_range = system_call(
    "sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
)


class WriteBehind:
    """Has a file go to disk, and out of the system's memory, while it is written in order.

    Whether that fails does not matter: the sync at the end tells. Without Linux it does nothing.
    """

    def __init__(self, handle: int, n_bytes: int = 0) -> None:
        self._handle = handle
        self._n_written = self._n_begun = self._n_dropped = n_bytes  # of the file

    def wrote(self, n_bytes: int) -> None:
        """Take note of the next bytes of the file, after they have been written."""
        self._n_written += n_bytes
        new = self._n_written - self._n_begun
        if new < WINDOW_BYTES or _sync_file_range is None:
            return
        _sync_file_range(self._handle, self._n_begun, new, _START_WRITING)
        self._n_begun += new
        old = self._n_written - CACHED_BYTES - self._n_dropped
        if old > 0:
            # Memory can be given back when it is on disk, and by whole pages.
            old = old // mmap.PAGESIZE * mmap.PAGESIZE
            _sync_file_range(self._handle, self._n_dropped, old, _WRITE_AND_WAIT)
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._handle, self._n_dropped, old, os.POSIX_FADV_DONTNEED)
            self._n_dropped += old


def remove_quietly(path: Path) -> None:
    """Remove a file if it exists and can be removed."""
    with contextlib.suppress(OSError):
        path.unlink()


_unfinished: set[Path] = set()
"""Temporary files of this process's outputs that are neither complete nor removed."""


def remove_unfinished() -> None:
    """Remove the temporary files that are left as the process ends.

    A signal may end a run when a file has just been made and no ``with`` knows of it yet, or just
    as the block's end begins.
    """
    for path in list(_unfinished):
        remove_quietly(path)


atexit.register(remove_unfinished)


def remove_directory(directory: Path) -> None:
    """Remove a directory if it exists, even if a signal arrives meanwhile."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def check_writable(path: Path) -> None:
    """Raise OutputError unless a file of this name could be created or replaced."""
    if stat.S_ISDIR(_mode(path)):
        raise OutputError(f"{path}: is a directory; name a file")
    if is_special(path):
        # A rename would replace the device by a file; root could do that to /dev/null.
        raise OutputError(f"{path}: is a device or a pipe; name a file")
    check_directory_of(path)


def check_directory_of(path: Path) -> None:
    """Raise OutputError unless the directory of an output exists and is writable."""
    directory = path.parent
    try:
        path.lstat()  # fails as creation would: name too long, no permission
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise OutputError(f"{path}: {directory} is no directory; write elsewhere") from None
    except OSError as error:
        raise output_error(path, error) from error
    if not directory.is_dir():
        raise OutputError(f"{path}: directory {directory} does not exist; make it first")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: no permission to write in {directory}; write elsewhere")


def check_output(path: str) -> None:
    """Raise OutputError if :class:`OutputFile` could not open `path`."""
    if path != STDOUT and not is_special(Path(path)):
        check_writable(Path(path).resolve())


class Partial(NamedTuple):
    """A temporary file that another process can go on with: it stays after a failure."""

    path: Path  # in the file system of the output
    n_bytes: int = 0
    """Bytes after which writing goes on; what follows them is dropped."""


class OutputFile:
    """A file to write, or standard output: complete on success, absent after a failure.

    A context manager: at its end the temporary file is renamed to `path` (replacing an older file);
    after an exception it is removed. Standard output, pipes and devices are written directly.

    Parameters
    ----------
    path
        File name, or ``-`` for standard output. A symbolic link is followed.
    stale
        Files that describe an older file of that name, such as its index. They are removed when
        the new one is complete.
    partial
        The temporary file, of which some bytes may be written already; None for one of its own.

    Raises
    ------
    OutputError
        At once, if no file can be created there; later, if writing fails.
    """

    def __init__(
        self, path: str, *, stale: Iterable[Path] = (), partial: Partial | None = None
    ) -> None:
        self._stale = stale
        self.name = "standard output" if path == STDOUT else path
        self._temporary: Path | None = None
        self._keeps = partial is not None
        self._final = Path(path).resolve()
        self._behind: WriteBehind | None = None  # of a regular file
        if path == STDOUT:
            sys.stdout.flush()
            self._handle = os.dup(1)
            return
        try:
            if is_special(Path(path)):
                self._handle = os.open(path, os.O_WRONLY)
                return
            check_writable(self._final)
            n_bytes = 0
            if partial is None:
                self._temporary = temporary_name(self._final)
                remove_quietly(self._temporary)
                _unfinished.add(self._temporary)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                self._handle = os.open(self._temporary, flags, 0o666)
            else:
                self._temporary, n_bytes = partial
                self._handle = open_partial(self._temporary, os.O_WRONLY, n_bytes)
            self._behind = WriteBehind(self._handle, n_bytes)
        except OSError as error:
            raise output_error(self.name, error) from error

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._handle, view) :]
        except OSError as error:
            raise output_error(self.name, error) from error
        if self._behind is not None:
            self._behind.wrote(len(data))

    @property
    def n_bytes(self) -> int:
        """Bytes of a regular file that have been written."""
        return os.lseek(self._handle, 0, os.SEEK_CUR)

    @property
    def is_regular(self) -> bool:
        """True for a file, False for standard output, a pipe or a device."""
        return self._temporary is not None

    def fileno(self) -> int:
        """Return the descriptor, for another process to write to."""
        return self._handle

    def has_no_reader(self) -> bool:
        """Return True for a pipe whose reader has closed it."""
        poll = select.poll()
        poll.register(self._handle, 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._close()
            if self._temporary and kind is None:
                sync_and_rename(self._temporary, self._final, stale=self._stale)
        finally:
            if self._temporary and not self._keeps:
                remove_quietly(self._temporary)  # after a rename there is none
                _unfinished.discard(self._temporary)

    def _close(self) -> None:
        # Network file systems report a full disk as late as here.
        try:
            os.close(self._handle)
        except OSError as error:
            raise output_error(self.name, error) from error


def open_partial(path: Path, flags: int, n_bytes: int) -> int:
    """Open a file, made if it is not there, at the end of its first bytes, and drop the others.

    Raises
    ------
    OutputError
        If it has fewer.
    OSError
        If it cannot be opened.
    """
    handle = os.open(path, flags | os.O_CREAT, 0o666)
    found = os.fstat(handle).st_size
    if found < n_bytes:
        os.close(handle)
        raise OutputError(f"{path}: has {found} bytes, and {n_bytes} were written")
    os.ftruncate(handle, n_bytes)
    os.lseek(handle, n_bytes, os.SEEK_SET)
    return handle


def write_json(path: str, value: object) -> None:
    """Write a value as JSON; the file appears when complete. ``-`` is standard output."""
    with OutputFile(path) as file:
        file.write(f"{json.dumps(value, indent=2)}\n".encode())


def is_special(path: Path) -> bool:
    """Return True for a device, pipe or socket: not replaced by a rename, and read only once."""
    mode = _mode(path)
    return mode != 0 and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _mode(path: Path) -> int:
    """Return the ``st_mode`` of `path`; 0 if it cannot be read (opening it gives the reason)."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0
