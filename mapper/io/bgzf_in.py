"""Reading BGZF: blocks are found by their sizes and decompressed by several threads."""

from __future__ import annotations

import gzip
import struct
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from isal import isal_zlib

RUN_BYTES = 1 << 18
"""Compressed bytes that one task decompresses, at least, if there are so many."""

_MAX_BLOCK = 1 << 16
_FIXED_HEADER = 12
_TRAILER = struct.Struct("<II")


class NotBgzfError(Exception):
    """What follows in the stream is not a BGZF block; ``rest`` holds the bytes read of it."""

    def __init__(self, rest: bytes) -> None:
        super().__init__("not a BGZF block")
        self.rest = rest


class _Run(NamedTuple):
    """Decompressed blocks, and what ended them."""

    data: bytes
    last_empty: bool
    error: Exception | None


def block_size(data: bytes | bytearray, at: int) -> int | None:
    """Return the size of the BGZF block at `at`.

    Returns
    -------
    Its bytes, header and trailer included; 0 if more of `data` is needed to tell; None if
    this is no BGZF block.
    """
    head = bytes(data[at : at + _FIXED_HEADER])
    if len(head) < _FIXED_HEADER:
        return 0 if b"\x1f\x8b\x08\x04".startswith(head[:4]) else None
    if not head.startswith(b"\x1f\x8b\x08\x04"):
        return None
    least = _FIXED_HEADER + int.from_bytes(head[10:12], "little") + _TRAILER.size
    extra_end = at + least - _TRAILER.size
    if extra_end > len(data):
        return 0
    at += _FIXED_HEADER
    while at + 4 <= extra_end:
        length = int.from_bytes(data[at + 2 : at + 4], "little")
        if data[at : at + 2] == b"BC" and length == 2:
            size = int.from_bytes(data[at + 4 : at + 6], "little") + 1
            return size if size > least else None
        at += 4 + length
    return None


def is_bgzf(head: bytes) -> bool:
    """Say whether a file that begins with `head` (18 bytes) is BGZF."""
    return bool(block_size(head, 0))


def decompress_blocks(data: bytes) -> _Run:
    """Decompress whole blocks; on an error return what came before it, too."""
    parts = []
    at = 0
    last_empty = False
    try:
        while at < len(data):
            size = block_size(data, at)
            assert size  # the caller has cut the data at blocks
            body = at + _FIXED_HEADER + int.from_bytes(data[at + 10 : at + 12], "little")
            end = at + size
            crc, length = _TRAILER.unpack_from(data, end - _TRAILER.size)
            if length > _MAX_BLOCK:
                raise gzip.BadGzipFile("impossible length of a block")
            plain = isal_zlib.decompress(data[body : end - _TRAILER.size], -15, length or 1)
            if len(plain) != length:
                raise gzip.BadGzipFile("the length of a block differs")
            if isal_zlib.crc32(plain) != crc:
                raise gzip.BadGzipFile("CRC check failed")
            parts.append(plain)
            last_empty = length == 0
            at = end
    except (gzip.BadGzipFile, isal_zlib.error) as error:  # type: ignore[misc]
        return _Run(b"".join(parts), False, error)
    return _Run(b"".join(parts), last_empty, None)


class BgzfStream:
    """The plain bytes of a BGZF stream.

    Parameters
    ----------
    raw
        Unbuffered binary file.
    threads
        Threads that decompress, a few runs of blocks ahead; with 1 the calling thread does.
    """

    def __init__(self, raw: Any, threads: int = 1) -> None:
        self._raw = raw
        self._executor = ThreadPoolExecutor(threads, "inflate") if threads > 1 else None
        self._max_pending = 2 * threads if threads > 1 else 1
        self._pending: deque[Future[_Run]] = deque()
        self._rest = bytearray()  # compressed, not yet handed to a thread
        self._raw_ended = False
        self._plain = memoryview(b"")
        self._error: Exception | None = None
        self.last_block_empty = False

    def readinto(self, buffer: memoryview) -> int:
        """Fill the start of `buffer` and return how many bytes; 0 only at the end.

        Raises
        ------
        EOFError
            If the stream ends inside a block.
        gzip.BadGzipFile, isal_zlib.error
            If a block is damaged.
        NotBgzfError
            If another kind of gzip member follows; nothing of it has been handed out.
        """
        while not self._plain:
            if self._error is not None:
                raise self._error
            self._look_ahead()
            if not self._pending:
                return 0
            run = self._pending.popleft().result()
            self._plain = memoryview(run.data)
            self._error = run.error
            self.last_block_empty = run.last_empty
        n = min(len(self._plain), len(buffer))
        buffer[:n] = self._plain[:n]
        self._plain = self._plain[n:]
        return n

    def close(self) -> None:
        """Let the threads end."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _look_ahead(self) -> None:
        """Hand out runs of blocks until enough are under way or the file ends."""
        while len(self._pending) < self._max_pending:
            run = self._next_run()
            if run is None:
                return
            future: Future[_Run]
            if self._executor is not None:
                future = self._executor.submit(decompress_blocks, run)
            else:
                future = Future()
                future.set_result(decompress_blocks(run))
            self._pending.append(future)

    def _next_run(self) -> bytes | None:
        """Return whole blocks, or None at the end; raise only when nothing is pending."""
        while True:
            end = 0
            size: int | None = 0
            while end < len(self._rest):
                size = block_size(self._rest, end)
                if not size or end + size > len(self._rest):
                    break
                end += size
            if end and (end >= RUN_BYTES or self._raw_ended or size is None):
                run = bytes(self._rest[:end])
                del self._rest[:end]
                return run
            if self._raw_ended or size is None:
                break
            self._read_raw()
        if not self._rest or self._pending:
            return None
        if size is None:
            raise NotBgzfError(bytes(self._rest))
        raise EOFError("the stream ends inside a block")

    def _read_raw(self) -> None:
        chunk = bytearray(RUN_BYTES)
        n = self._raw.readinto(chunk)
        self._raw_ended = n == 0
        self._rest += memoryview(chunk)[:n]
