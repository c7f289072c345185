"""Reading BGZF: blocks are found by their sizes and decompressed by several threads.

A block says how long it is, packed and unpacked. So it is known where in the caller's buffer
each belongs before any is decompressed, and threads write there without waiting for each other.
"""

from __future__ import annotations

import gzip
import struct
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple

from isal import isal_zlib

from mapper.workers import do_all

READ_BYTES = 1 << 20
"""Compressed bytes that are read at a time."""

BLOCKS_PER_TASK = 8

_MAX_BLOCK = 1 << 16
_FIXED_HEADER = 12
_TRAILER = struct.Struct("<II")


class NotBgzfError(Exception):
    """What follows in the stream is not a BGZF block; ``rest`` holds the bytes read of it."""

    def __init__(self, rest: bytes) -> None:
        super().__init__("not a BGZF block")
        self.rest = rest


class _Block(NamedTuple):
    """Where a block lies, in the compressed bytes and in the buffer for the plain ones."""

    start: int
    end: int
    plain_start: int
    plain_end: int


class _Done(NamedTuple):
    """What came of a run of blocks."""

    plain_end: int  # of the last block that is whole
    error: Exception | None  # what is wrong with the next


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


def _decompress(data: memoryview, blocks: list[_Block], buffer: memoryview) -> _Done:
    """Decompress blocks into their places, up to the first that is damaged."""
    for block in blocks:
        extra = int.from_bytes(data[block.start + 10 : block.start + 12], "little")
        body = data[block.start + _FIXED_HEADER + extra : block.end - _TRAILER.size]
        crc, length = _TRAILER.unpack_from(data, block.end - _TRAILER.size)
        try:
            plain = isal_zlib.decompress(body, -15, length or 1)
            if len(plain) != length:
                raise gzip.BadGzipFile("the length of a block differs")
            if isal_zlib.crc32(plain) != crc:
                raise gzip.BadGzipFile("CRC check failed")
        except (gzip.BadGzipFile, isal_zlib.error) as error:  # type: ignore[misc]
            return _Done(block.plain_start, error)
        buffer[block.plain_start : block.plain_end] = plain
    return _Done(blocks[-1].plain_end, None)


class BgzfStream:
    """The plain bytes of a BGZF stream.

    Parameters
    ----------
    raw
        Unbuffered binary file.
    executor
        Its threads help to decompress; None: the calling thread does it alone.
    """

    def __init__(self, raw: Any, executor: Executor | None = None) -> None:
        self._raw = raw
        self._executor = executor
        self._packed = b""  # read, and not yet decompressed
        self._raw_ended = False
        self._plain = memoryview(b"")  # of a block for which a buffer had no room
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
        n = 0
        while n == 0 and not self._plain:
            if self._error is not None:
                raise self._error
            blocks = self._plan(len(buffer))
            if not blocks:
                return 0
            if blocks[-1].plain_end > len(buffer):  # one block, and no room for it
                room = memoryview(bytearray(blocks[-1].plain_end))
                self._plain = room[: self._take(blocks, room)]
            else:
                n = self._take(blocks, buffer)
        if self._plain:
            n = min(len(self._plain), len(buffer))
            buffer[:n] = self._plain[:n]
            self._plain = self._plain[n:]
        return n

    def close(self) -> None:
        """Drop what has been read."""
        self._packed = b""

    def _take(self, blocks: list[_Block], buffer: memoryview) -> int:
        """Decompress planned blocks; return how many bytes they gave."""
        data = memoryview(self._packed)
        runs = [blocks[i : i + BLOCKS_PER_TASK] for i in range(0, len(blocks), BLOCKS_PER_TASK)]
        done = do_all([partial(_decompress, data, run, buffer) for run in runs], self._executor)
        self._packed = self._packed[blocks[-1].end :]
        self.last_block_empty = blocks[-1].plain_start == blocks[-1].plain_end
        for part in done:
            if part.error is not None:
                self._error = part.error
                self.last_block_empty = False
                return part.plain_end
        return blocks[-1].plain_end

    def _plan(self, room: int) -> list[_Block]:
        """Return the next blocks that fit into `room` bytes, at least one; none at the end."""
        blocks: list[_Block] = []
        at = plain_at = 0
        while True:
            size = block_size(self._packed, at) if at < len(self._packed) else 0
            if size is None or (size == 0 or at + size > len(self._packed)):
                if size is not None and not self._raw_ended and not blocks:
                    self._read_raw()
                    continue
                if not blocks and self._packed:
                    if size is None:
                        raise NotBgzfError(self._packed)
                    raise EOFError("the stream ends inside a block")
                return blocks
            _, length = _TRAILER.unpack_from(self._packed, at + size - _TRAILER.size)
            if length > _MAX_BLOCK:
                if not blocks:
                    raise gzip.BadGzipFile("impossible length of a block")
                return blocks
            if blocks and plain_at + length > room:
                return blocks
            blocks.append(_Block(at, at + size, plain_at, plain_at + length))
            at += size
            plain_at += length

    def _read_raw(self) -> None:
        chunk = bytearray(READ_BYTES)
        n = self._raw.readinto(chunk)
        self._raw_ended = n == 0
        self._packed += memoryview(chunk)[:n]
