"""Byte sources: a file, gzip file or standard input as one stream of plain bytes.

Reading a pipe ahead of the decoder, by a thread that only waits for it.
"""

from __future__ import annotations

import gzip
import io
import os
import queue
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from isal import igzip, isal_zlib

from mapper.errors import InputFormatError
from mapper.io.bgzf_reader import BgzfStream, Done, NotBgzfError, Step, is_bgzf
from mapper.parallel.pool import start_daemon

CHUNK_BYTES = 1 << 16
"""What a pipe gives at a time, at most, on Linux."""

_CHUNKS_AHEAD = 64
_STOP_CHECK_S = 0.2


class StoppedError(Exception):
    """Reading was ended by :meth:`ReadAhead.close`."""


class ReadAhead(io.RawIOBase):
    """A pipe (or terminal, or socket) that a thread of its own reads, some chunks ahead.

    Two pipes of mates may be written by one program, in turns: both must be read, whichever
    of them is waited for. And who waits for an idle pipe cannot be stopped; who waits for
    this can. The thread copies bytes and computes nothing.

    Parameters
    ----------
    raw
        What to read; the thread closes it.
    name
        For the thread.
    """

    def __init__(self, raw: Any, name: str) -> None:
        self._raw = raw
        self._ready: queue.Queue[bytes | BaseException] = queue.Queue(_CHUNKS_AHEAD)
        self._rest = memoryview(b"")
        self._end: BaseException | None = None
        self._ended = False
        self._stopped = threading.Event()
        # A daemon, because a thread that waits for an idle pipe cannot be ended otherwise.
        start_daemon(self._run, f"read {name}")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the start of `buffer` and return how many bytes; 0 only at the end.

        Raises
        ------
        OSError
            If the pipe cannot be read on, when all that could be read has been handed out.
        StoppedError
            After :meth:`close`.
        """
        if not self._rest and not self._ended:
            item = self._next_item()
            if isinstance(item, BaseException):
                raise item
            self._rest = memoryview(item)
            self._ended = len(item) == 0
        n = min(len(self._rest), len(buffer))
        buffer[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n

    def close(self) -> None:
        """Let the thread end, and whoever waits in ``readinto``; does not wait for them."""
        self._stopped.set()
        super().close()

    def _next_item(self) -> bytes | BaseException:
        # Whoever writes to a pipe may be idle for ever: a run that is stopped must not wait.
        while True:
            try:
                return self._ready.get(timeout=_STOP_CHECK_S)
            except queue.Empty:
                if self._stopped.is_set():
                    return StoppedError("reading was stopped")

    def _run(self) -> None:
        buffer = bytearray(CHUNK_BYTES)
        try:
            while not self._stopped.is_set():
                n = self._raw.readinto(buffer)
                self._put(bytes(memoryview(buffer)[:n]))
                if n == 0:
                    break
        except BaseException as error:  # whatever it is, it is raised where the bytes are missed
            self._put(error)
        finally:
            self._raw.close()

    def _put(self, item: bytes | BaseException) -> None:
        while not self._stopped.is_set():
            try:
                self._ready.put(item, timeout=_STOP_CHECK_S)
                return
            except queue.Full:
                continue


STDIN = "-"

GZIP_MAGIC = b"\x1f\x8b"
_FOREIGN_COMPRESSION = {
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
}
_HEAD_BYTES = 8
_GZIP_HEAD_BYTES = 18  # a BGZF header; no gzip file is shorter


class BrokenStreamError(Exception):
    """A stream that cannot be read on; the message is the reason, for a user to read."""


class PlainBytes(Protocol):
    """A stream of plain bytes, as :class:`ByteSource` is one."""

    name: str

    def readinto(self, buffer: memoryview) -> int: ...

    def begin(self, buffer: memoryview) -> Step: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


class _WithHead(io.RawIOBase):
    """A raw file with the bytes that were read to recognise it put back in front.

    Pipes cannot seek, and ``BufferedReader.peek`` may return less than was asked for.
    """

    def __init__(self, raw: Any, head: bytes) -> None:
        self._raw = raw
        self._head = head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._head:
            n = min(len(self._head), len(buffer))
            buffer[:n] = self._head[:n]
            self._head = self._head[n:]
            return n
        return self._raw.readinto(buffer) or 0

    def close(self) -> None:
        self._raw.close()
        super().close()


def _gzip_stream(raw: Any) -> Any:
    """Return a stream, with ``readinto``, of what an unbuffered gzip file holds.

    IGzipFile inherits a ``readinto`` that reads into bytes of its own and copies these. The reader
    under it writes where it is told; where isal has no such reader, the file does the same, slower.
    """
    reader = getattr(isal_zlib, "_GzipReader", None)
    if reader is None:
        return igzip.IGzipFile(fileobj=raw, mode="rb")
    return reader(raw, igzip.READ_BUFFER_SIZE)


def source_name(path: str) -> str:
    """Return what messages call an input."""
    return "standard input" if path == STDIN else path


class ByteSource:
    """Plain bytes of a file, decompressed where it is gzip (any number of members, BGZF).

    The calling thread decompresses. What is no regular file has a thread besides, which
    waits for it (:class:`ReadAhead`).

    Parameters
    ----------
    path
        File name, or ``-`` for standard input.
    executor
        Its threads help to decompress BGZF; other gzip cannot be decompressed by more than
        one.

    Raises
    ------
    InputFormatError
        If there is no such file, it cannot be read, is a directory, or is compressed
        with something else than gzip.
    """

    def __init__(self, path: str, executor: Executor | None = None) -> None:
        name = source_name(path)
        self._begin(_open_raw(path, name), path, name, executor)

    @classmethod
    def of_stream(cls, raw: Any, name: str) -> ByteSource:
        """Return the plain bytes of an open binary stream."""
        source = cls.__new__(cls)
        source._begin(raw, "", name, None)
        return source

    def _begin(self, raw: Any, path: str, name: str, executor: Executor | None) -> None:
        self.name = name
        self.path = path
        head = _read_head(raw, self.name)
        for magic, kind in _FOREIGN_COMPRESSION.items():
            if head.startswith(magic):
                raw.close()
                raise InputFormatError(
                    f"{self.name}: compressed with {kind}, which is not read; decompress it, "
                    "or compress it with gzip or bgzip"
                )
        self.raw_head = head
        self._pipe: ReadAhead | None = None
        if path and not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raw = self._pipe = ReadAhead(raw, name)
        self._raw = _WithHead(raw, head)
        self._bgzf: BgzfStream | None = None
        self._stream: Any = self._raw
        self._ahead = memoryview(b"")
        self._error: BrokenStreamError | None = None
        if is_bgzf(head):
            self._stream = self._bgzf = BgzfStream(self._raw, executor)
        elif head.startswith(GZIP_MAGIC):
            self._stream = _gzip_stream(self._raw)

    @property
    def is_bgzf(self) -> bool:
        """Whether the file is BGZF, as far as it has been read."""
        return self._bgzf is not None

    @property
    def ends_with_eof_block(self) -> bool:
        """Whether the last block read is empty, as at the end of a complete BGZF file."""
        return self._bgzf is not None and self._bgzf.last_block_empty

    def count_lines(self) -> None:
        """Have line ends counted where bytes are inflated, if others than the reader do that."""
        if self._bgzf is not None:
            self._bgzf.count_lines = True

    def peek(self, n: int) -> bytes:
        """Return the first `n` plain bytes (fewer if there are no more), without taking them.

        To be called before anything was read. A broken stream shows when it is read.
        """
        buffer = bytearray(n)
        filled = 0
        try:
            while filled < n and (got := self._read_plain(memoryview(buffer)[filled:])):
                filled += got
        except BrokenStreamError as error:
            self._error = error
        self._ahead = memoryview(bytes(buffer[:filled]))
        return bytes(self._ahead)

    def readinto(self, buffer: memoryview) -> int:
        """Fill the start of `buffer` and return how many bytes; 0 only at the end.

        Raises
        ------
        BrokenStreamError
            If the gzip data are cut off or damaged, or the file cannot be read on.
        """
        if self._ahead:
            n = min(len(self._ahead), len(buffer))
            buffer[:n] = self._ahead[:n]
            self._ahead = self._ahead[n:]
            return n
        if self._error is not None:
            raise self._error
        return self._read_plain(buffer)

    def begin(self, buffer: memoryview) -> Step:
        """Begin to fill the start of `buffer`: as ``readinto``, but what can be done later is.

        The next step may begin before that. Errors of its parts are BrokenStreamError, too.
        """
        if self._bgzf is None or self._ahead or self._error is not None:
            return Step(self.readinto(buffer))
        try:
            step = self._bgzf.begin(buffer)
        except NotBgzfError as found:
            self._go_on_as_gzip(found)
            return Step(self._read_plain(buffer))
        except _READ_ERRORS as error:
            raise _broken(error) from error
        return step._replace(parts=[partial(_explained, part) for part in step.parts])

    def _read_plain(self, buffer: memoryview) -> int:
        try:
            return int(self._stream.readinto(buffer))
        except NotBgzfError as found:
            self._go_on_as_gzip(found)
            return self._read_plain(buffer)
        except _READ_ERRORS as error:
            raise _broken(error) from error

    def _go_on_as_gzip(self, found: NotBgzfError) -> None:
        """Read on in a gzip member of another kind behind BGZF blocks, as `cat` makes them."""
        self._bgzf = None
        self._stream = _gzip_stream(_WithHead(self._raw, found.rest))

    def stop(self) -> None:
        """Let whoever waits in ``readinto``, in another thread, find the stream broken."""
        if self._pipe is not None:
            self._pipe.close()

    def close(self) -> None:
        """Close the file (not standard input), which nobody reads any more."""
        self._stream.close()
        self._raw.close()  # a gzip stream leaves its file open


_DAMAGED: Any = (gzip.BadGzipFile, isal_zlib.error)
_READ_ERRORS: Any = (EOFError, OSError, isal_zlib.error, StoppedError)


def _broken(error: Exception) -> BrokenStreamError:
    """Return the reason why a stream cannot be read on, for a user to read."""
    if isinstance(error, EOFError):
        return BrokenStreamError(
            "the gzip data end early: the file is truncated; copy or download it again"
        )
    if isinstance(error, _DAMAGED):
        return BrokenStreamError(
            f"the gzip data are damaged ({error}); copy or download the file again"
        )
    if isinstance(error, OSError):
        return BrokenStreamError(f"reading failed ({error.strerror or error})")
    return BrokenStreamError(str(error))


def _explained(part: Callable[[], Done]) -> Done:
    """Do a part of a step; its error is for a user to read."""
    done = part()
    return done if done.error is None else done._replace(error=_broken(done.error))


def _open_raw(path: str, name: str) -> io.FileIO:
    try:
        if path == STDIN:
            return io.FileIO(0, closefd=False)
        return io.FileIO(path)
    except FileNotFoundError as error:
        raise InputFormatError(f"{name}: no such file; check the path") from error
    except IsADirectoryError as error:
        raise InputFormatError(f"{name}: is a directory; name a file in it") from error
    except OSError as error:
        raise InputFormatError(f"{name}: cannot be opened ({error.strerror})") from error


def _read_head(raw: Any, name: str) -> bytes:
    head = b""
    try:
        # No more than is needed: a pipe may have nothing else to give yet.
        for wanted in (_HEAD_BYTES, _GZIP_HEAD_BYTES):
            if wanted > _HEAD_BYTES and not head.startswith(GZIP_MAGIC):
                break
            while len(head) < wanted and (more := raw.read(wanted - len(head))):
                head += more
    except OSError as error:
        raw.close()
        raise InputFormatError(f"{name}: cannot be read ({error.strerror})") from error
    return head


def same_file(a: str, b: str) -> bool:
    """Say whether two paths name one file (or both standard input)."""
    if STDIN in (a, b):
        return a == b
    try:
        return Path(a).samefile(b)
    except OSError:
        return False
