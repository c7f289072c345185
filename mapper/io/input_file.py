"""Byte sources: a file, gzip file or standard input as one stream of plain bytes."""

from __future__ import annotations

import gzip
import io
import os
import stat
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from isal import igzip, isal_zlib

from mapper.errors import InputFormatError
from mapper.io.bgzf_reader import BgzfStream, Done, NotBgzfError, Step, is_bgzf
from mapper.io.read_ahead import ReadAhead, StoppedError

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
