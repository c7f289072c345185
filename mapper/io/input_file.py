"""Open a file, gzip file or standard input as one stream of plain bytes.

:class:`ByteSource` recognises the format and decompresses; :class:`ReadAhead` reads pipes in a
dedicated thread.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import queue
import stat
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Protocol

from isal import igzip, isal_zlib

from mapper.errors import InputFormatError
from mapper.io.bgzf_reader import READ_BYTES, BlockStream, NoBlockError, Step, is_bgzf
from mapper.io.gzip_members import MOST_PACKED, MemberStream, largest_member
from mapper.io.position import START, FilePosition, Place
from mapper.parallel.pool import start_daemon, thread_pool

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
_GZIP_MEMBER = 31  # wbits of zlib for a member with header and trailer
_SKIPPED_AT_ONCE = 1 << 20
_LARGEST_REREAD = 1 << 30
_LARGEST_PLAIN = 1 << 22

# --- pipes ---

CHUNK_BYTES = 1 << 16
"""Largest read of a pipe on Linux."""

_CHUNKS_AHEAD = 64
_STOP_CHECK_S = 0.2


class StoppedError(Exception):
    """Reading was stopped by :meth:`ReadAhead.close`."""


class ReadAhead(io.RawIOBase):
    """A pipe (or terminal, or socket) that a dedicated thread reads some chunks ahead.

    One program may write two pipes of mates alternately: both must be read, whichever is waited
    for. Moreover a read of an idle pipe cannot be interrupted, and a read of this can. The thread
    only copies bytes.

    Parameters
    ----------
    raw
        The pipe; the thread closes it.
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
            If the pipe cannot be read further, after all bytes that could be read.
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
        """End the thread, and ``readinto`` in other threads, without waiting for them."""
        self._stopped.set()
        super().close()

    def _next_item(self) -> bytes | BaseException:
        # The writer of a pipe may be idle for ever, and a stopped run must not wait for it.
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
        except BaseException as error:  # raised again by readinto
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


# --- byte sources ---


class BrokenStreamError(Exception):
    """A stream that cannot be read further; the message gives the user the reason."""


class PlainBytes(Protocol):
    """The interface of a stream of plain bytes, such as :class:`ByteSource`."""

    name: str

    def readinto(self, buffer: memoryview) -> int: ...

    def begin(self, buffer: memoryview) -> Step: ...

    def read_again(self, place: Place) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


class _WithHead(io.RawIOBase):
    """A raw file preceded by the bytes that were read to recognise it.

    Pipes cannot seek, and ``BufferedReader.peek`` may return less than was asked for.
    """

    def __init__(self, raw: Any, head: bytes) -> None:
        self._raw = raw
        self._head = head
        self.n_read = 0
        """Bytes that have been read."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._head:
            n = min(len(self._head), len(buffer))
            buffer[:n] = self._head[:n]
            self._head = self._head[n:]
        else:
            n = self._raw.readinto(buffer) or 0
        self.n_read += n
        return n

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def put_back(self, rest: bytes) -> None:
        """Let the last bytes that were read be read again."""
        self._head = rest + self._head
        self.n_read -= len(rest)

    def go_to(self, offset: int) -> None:
        """Go on reading at an offset of the file."""
        self._raw.seek(offset)
        self._head = b""
        self.n_read = offset

    def close(self) -> None:
        self._raw.close()
        super().close()


def _gzip_stream(raw: Any) -> Any:
    """Return the decompressed stream of an unbuffered gzip file, with ``readinto``.

    ``IGzipFile.readinto`` copies from a buffer; the private reader under it does not. IGzipFile is
    used, slower, with a version of isal that has no such reader.
    """
    reader = getattr(isal_zlib, "_GzipReader", None)
    if reader is None:
        return igzip.IGzipFile(fileobj=raw, mode="rb")
    return reader(raw, igzip.READ_BUFFER_SIZE)


def source_name(path: str) -> str:
    """Return the name of an input in messages."""
    return "standard input" if path == STDIN else path


class ByteSource:
    """Plain bytes of a file, decompressed if it is gzip (any number of members) or BGZF.

    The calling thread decompresses. Pipes and devices are read by a further thread
    (:class:`ReadAhead`).

    Parameters
    ----------
    path
        File name, or ``-`` for standard input.
    executor
        Its threads help to decompress BGZF.
    read_bytes
        Compressed bytes of one read of BGZF or gzip members: less where many files are open.
    finds_members
        Threads of `executor` also decompress gzip members (:mod:`mapper.io.gzip_members`), if the
        file begins with such that are found; worth while with more threads than files.

    Raises
    ------
    InputFormatError
        If there is no such file, it cannot be read, is a directory, or is compressed
        by another format than gzip.
    """

    def __init__(
        self, path: str, executor: Executor | None = None, read_bytes: int = READ_BYTES, *,
        finds_members: bool = False,
    ) -> None:  # fmt: skip
        name = source_name(path)
        self._begin(_open_raw(path, name), path, name, executor, read_bytes, finds_members)

    @classmethod
    def of_stream(cls, raw: Any, name: str) -> ByteSource:
        """Return the plain bytes of an open binary stream."""
        source = cls.__new__(cls)
        source._begin(raw, "", name, None, READ_BYTES, False)
        return source

    def _begin(
        self, raw: Any, path: str, name: str, executor: Executor | None, read_bytes: int,
        finds_members: bool,
    ) -> None:  # fmt: skip
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
        self.n_bytes = 0
        """Bytes of the file; 0 if it is a pipe or a device."""
        if path:
            found = os.fstat(raw.fileno())
            if stat.S_ISREG(found.st_mode):
                self.n_bytes = found.st_size
            else:
                raw = self._pipe = ReadAhead(raw, name)
        self._raw = _WithHead(raw, head)
        self._executor, self._read_bytes = executor, read_bytes
        self._counts_lines = self._keeps_places = False
        self._blocks: BlockStream | None = None
        self._places: deque[Place] | None = None  # of blocks; None for a file without such
        self._end_of_places: float = math.inf  # those behind it are wrong
        self._stopped = False
        self.n_plain = 0
        """Plain bytes that have been read."""
        self._largest_member = 0  # plain bytes; 0 if no members are looked for
        self._ahead = memoryview(b"")
        self._error: BrokenStreamError | None = None
        self._stream: Any = self._raw
        if is_bgzf(head):
            self._open_blocks(START)
        elif head.startswith(GZIP_MAGIC):
            # Members are looked for when reading begins: it takes time, and files may be many.
            # Standard input may be a file that has been read in part.
            is_file = self.n_bytes > 0 and path != STDIN
            opens_later = finds_members and executor is not None and is_file
            self._stream = None if opens_later else _gzip_stream(self._raw)

    def _open_stream(self) -> None:
        """Open the stream if that has been left to the first use."""
        if self._stream is not None:
            return
        with suppress(OSError):  # which reading will find again
            self._largest_member = largest_member(os.pread(self._raw.fileno(), MOST_PACKED, 0))
        if self._largest_member:
            self._open_blocks(START)
        else:
            self._stream = _gzip_stream(self._raw)

    def _open_blocks(self, place: Place) -> None:
        """Read blocks from a place on, at which the file stands."""
        kind = BlockStream if is_bgzf(self.raw_head) else MemberStream
        self._stream = self._blocks = kind(self._raw, self._executor, self._read_bytes, place)
        self._blocks.count_lines = self._counts_lines
        if self._keeps_places:
            self._places = self._blocks.places = deque([place])

    @property
    def n_read(self) -> int:
        """Bytes of the file that have been read, of ``n_bytes``."""
        return self._raw.n_read

    @property
    def is_bgzf(self) -> bool:
        """True if the file is BGZF, as far as it has been read."""
        return self._blocks is not None and not isinstance(self._blocks, MemberStream)

    @property
    def is_serial_gzip(self) -> bool:
        """True if one thread decompresses the file."""
        self._open_stream()
        return self._blocks is None and self.raw_head.startswith(GZIP_MAGIC)

    @property
    def member_bytes(self) -> int:
        """Plain bytes of the largest of the first gzip members that several threads decompress.

        A member that a buffer has no room for is decompressed by one thread. 0 for other files.
        """
        self._open_stream()
        return self._largest_member

    def read_serially(self) -> None:
        """Let one thread decompress gzip members; to be called before any read."""
        if self.member_bytes:
            self._largest_member = 0
            self._blocks = self._places = None
            self._stream = _gzip_stream(self._raw)

    @property
    def ends_with_eof_block(self) -> bool:
        """True if the last block read is empty, as at the end of a complete BGZF file."""
        return self._blocks is not None and self._blocks.last_block_empty

    def count_lines(self) -> None:
        """Count line ends of blocks in the threads that decompress them."""
        self._counts_lines = True
        if self._blocks is not None:
            self._blocks.count_lines = True

    def keep_places(self) -> None:
        """Note blocks, where reading can begin, for :meth:`position`; before any read."""
        self._keeps_places = True
        if self._blocks is not None:
            self._places = self._blocks.places = deque([START])

    def position(self, n_plain: int) -> FilePosition:
        """Return the position after `n_plain` plain bytes, which never become fewer."""
        place = START
        if self._places is not None:
            known = min(n_plain, self._end_of_places)
            while len(self._places) > 1 and self._places[1].plain <= known:
                self._places.popleft()
            place = self._places[0]
        elif self._stream is self._raw:
            place = Place(n_plain, n_plain)
        return FilePosition(n_plain, place)

    def go_to(self, position: FilePosition) -> None:
        """Move forward to a position of the same file.

        Raises
        ------
        BrokenStreamError
            If the file ends before, cannot be read, or :meth:`stop` was called meanwhile.
        """
        self._open_stream()
        if position.place.plain > self.n_plain:
            self._raw.go_to(position.place.packed)
            self._ahead = memoryview(b"")
            self.n_plain = position.place.plain
            if self._blocks is not None or is_bgzf(self.raw_head):
                self._open_blocks(position.place)
            elif self._stream is not self._raw:
                self._stream = _gzip_stream(self._raw)
        skip(self, position.n_plain - self.n_plain, lambda: self._stopped)

    def peek(self, n: int) -> bytes:
        """Return the first `n` plain bytes (fewer if there are no more) without consuming them.

        To be called before any read. A broken stream raises its error when it is read.
        """
        if self._stream is None:
            return _first_of_gzip(self.path, n)
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
            If the gzip data are cut off or damaged, or the file cannot be read further.
        """
        if self._ahead:
            n = min(len(self._ahead), len(buffer))
            buffer[:n] = self._ahead[:n]
            self._ahead = self._ahead[n:]
        elif self._error is not None:
            raise self._error
        else:
            self._open_stream()
            n = self._read_plain(buffer)
        self.n_plain += n
        return n

    def begin(self, buffer: memoryview) -> Step:
        """Begin to fill the start of `buffer` as ``readinto`` does, leaving parts to be done later.

        The next step may begin before they are done. Errors of parts are BrokenStreamError, too,
        or ReadAgainError: the bytes of later steps are useless then, and :meth:`read_again` goes
        back.
        """
        self._open_stream()
        if self._blocks is None or self._ahead or self._error is not None:
            return Step(self.readinto(buffer))
        try:
            step = self._blocks.begin(buffer)
        except NoBlockError as found:
            self._go_on_as_gzip(found)
            return Step(self.readinto(buffer))
        except _READ_ERRORS as error:
            raise _broken(error) from error
        self.n_plain += step.n_bytes
        return step._replace(parts=[replace(part, explain=_broken) for part in step.parts])

    def read_again(self, place: Place) -> None:
        """Read on from a place by one thread, as a part of a step has asked (ReadAgainError).

        Raises
        ------
        BrokenStreamError
            If the file cannot be read there.
        """
        try:
            self._raw.go_to(place.packed)
        except OSError as error:
            raise _broken(error) from error
        self._blocks = None
        self._stream = _gzip_stream(self._raw)
        self.n_plain = place.plain
        self._end_of_places = place.plain

    def _read_plain(self, buffer: memoryview) -> int:
        try:
            return int(self._stream.readinto(buffer))
        except NoBlockError as found:
            self._go_on_as_gzip(found)
            return self._read_plain(buffer)
        except EOFError as error:
            if self.path and self._pipe is None and _has_bytes_behind(self.path):
                raise _bytes_behind() from error
            raise _broken(error) from error
        except _READ_ERRORS as error:
            raise _broken(error) from error

    def _go_on_as_gzip(self, found: NoBlockError) -> None:
        """Continue with a member of any size or kind after blocks, as `cat` joins them."""
        if not found.rest.startswith(GZIP_MAGIC[: len(found.rest)]):
            raise _bytes_behind() from found
        self._blocks = None
        self._raw.put_back(found.rest)
        self._stream = _gzip_stream(self._raw)

    def stop(self) -> None:
        """End ``readinto`` of a pipe, and ``go_to``, in other threads: they find it broken."""
        self._stopped = True
        if self._pipe is not None:
            self._pipe.close()

    def close(self) -> None:
        """Close the file (not standard input); no thread may read it."""
        if self._stream is not None:
            self._stream.close()
        self._raw.close()  # a gzip stream leaves its file open


def _first_of_gzip(path: str, n: int) -> bytes:
    """Return the first `n` plain bytes of a gzip file, as far as it can be read."""
    buffer = bytearray(n)
    filled = 0
    with suppress(*_READ_ERRORS), io.FileIO(path) as raw:
        stream = _gzip_stream(raw)
        while filled < n and (got := stream.readinto(memoryview(buffer)[filled:])):
            filled += got
    return bytes(buffer[:filled])


def skip(source: PlainBytes, n_bytes: int, stopped: Callable[[], bool]) -> None:
    """Read plain bytes off a stream.

    Raises
    ------
    BrokenStreamError
        If there are fewer, they cannot be read, or `stopped()`.
    """
    buffer = memoryview(bytearray(min(n_bytes, _SKIPPED_AT_ONCE)))
    while n_bytes:
        n = 0 if stopped() else source.readinto(buffer[:n_bytes])
        if n == 0:
            raise BrokenStreamError("the file ends before the place where its reading is to go on")
        n_bytes -= n


def go_to_all(sources: Sequence[ByteSource], positions: Sequence[FilePosition]) -> None:
    """Move several files to positions in them at a time, each in a thread of its own.

    Raises
    ------
    InputFormatError
        If a file cannot be read up to its position.
    """
    with thread_pool(len(sources)) as pool:
        moving = [
            pool.submit(source.go_to, position)
            for source, position in zip(sources, positions, strict=True)
        ]
        try:
            for source, moved in zip(sources, moving, strict=True):
                try:
                    moved.result()
                except BrokenStreamError as error:
                    raise InputFormatError(f"{source.name}: {error}") from error
        except BaseException:
            for source in sources:
                source.stop()
            raise


_DAMAGED: Any = (gzip.BadGzipFile, isal_zlib.error)
_READ_ERRORS: Any = (EOFError, OSError, isal_zlib.error, StoppedError)


def _broken(error: Exception) -> BrokenStreamError:
    """Return the reason, for the user, why a stream cannot be read further."""
    if isinstance(error, EOFError):
        return BrokenStreamError(
            "the gzip data end early: the file is truncated; copy or download it again"
        )
    if isinstance(error, gzip.BadGzipFile) and str(error).startswith("Not a gzipped file"):
        return _bytes_behind()
    if isinstance(error, _DAMAGED):
        return BrokenStreamError(
            f"the gzip data are damaged ({error}); copy or download the file again"
        )
    if isinstance(error, OSError):
        return BrokenStreamError(f"reading failed ({error.strerror or error})")
    return BrokenStreamError(str(error))


def _bytes_behind() -> BrokenStreamError:
    return BrokenStreamError(
        "other bytes follow the end of the gzip data (a line end? a damaged member?); copy or "
        "download the file again, or cut them off"
    )


def _has_bytes_behind(path: str) -> bool:
    """Return True if a gzip file ends with bytes that belong to no member.

    The decompressor tells a few of them, less than a header, not from a truncated member. So the
    file is read once more, unless it is a large one: a run that has failed should end.
    """
    try:
        with Path(path).open("rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST_REREAD:
                return False
            return _ends_behind_member(file)
    except (OSError, EOFError, isal_zlib.error):  # type: ignore[misc]
        return False


def _ends_behind_member(file: IO[bytes]) -> bool:
    data = b""
    while data := data or file.read(CHUNK_BYTES):
        data = data.lstrip(b"\0")  # padding between members
        if not data:
            continue
        if not data.startswith(GZIP_MAGIC[: len(data)]):
            return True
        member = isal_zlib.decompressobj(_GZIP_MEMBER)
        while not member.eof:
            if not data and not (data := file.read(CHUNK_BYTES)):
                return False
            member.decompress(data, _LARGEST_PLAIN)
            data = member.unused_data if member.eof else member.unconsumed_tail
    return False


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
        # Only the bytes needed: a pipe may have no more yet.
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
    """Return True if two paths name one file (or both standard input)."""
    if STDIN in (a, b):
        return a == b
    try:
        return Path(a).samefile(b)
    except OSError:
        return False
