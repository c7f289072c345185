"""Write BGZF (gzip in blocks) by several threads, with bytes that depend on the data only."""

from __future__ import annotations

import struct
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from isal import isal_zlib

from mapper.errors import UsageError
from mapper.io import isal
from mapper.jit.accelerate import driver
from mapper.jit.simd import copy_from_address, get16, put16, put32
from mapper.parallel.buffers import RECYCLER

BLOCK_BYTES = 65_280
"""Uncompressed bytes of a block, as in htslib."""

BLOCKS_PER_TASK = 64
"""Of the host. Enough that threads rarely wait for the GIL: 16 threads that reacquire it after each
megabyte do so ten thousand times a second."""

_MAX_READY = 8
"""Groups of blocks that wait to be written at most, when compressed, before the next is taken."""

MAX_LEVEL = 9
_MAX_ISAL_LEVEL = 3
EOF_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")

_HEADER = struct.Struct("<12sBBHH")
_HEADER_START = bytes.fromhex("1f8b08040000000000ff0600")
_TRAILER = struct.Struct("<II")
HEADER_BYTES, TRAILER_BYTES = _HEADER.size, _TRAILER.size  # for compiled code
_SIZE_AT = HEADER_BYTES - 2  # of a block, less one: 16 bits
MAX_BLOCK = 1 << 16

HEADER_FIELDS = np.frombuffer(_HEADER_START + b"BC\2\0", np.uint8).copy()
"""The header but for its last two bytes, which hold the block's size."""

Deflate = Callable[[memoryview], bytes]


class Spans:
    """Pieces of arrays, hundreds of which cost no Python object each.

    Parameters
    ----------
    arrays
        uint8, and where its pieces begin, and the last one ends: int64, of each array.
    """

    def __init__(self, arrays: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        self._arrays = arrays
        starts = [bounds[:-1] + data.ctypes.data for data, bounds in arrays]
        sizes = [np.diff(bounds) for _, bounds in arrays]
        self.table = np.stack([np.concatenate(starts), np.concatenate(sizes)], axis=1)
        """Address and bytes of each piece: int64, shape (n, 2)."""

    def __iter__(self) -> Iterator[memoryview]:
        for data, bounds in self._arrays:
            for first, end in pairwise(bounds.tolist()):
                yield data.data[first:end]


Pieces = Sequence[memoryview] | Spans
"""Data in pieces, each of whole blocks but for its last."""

Compress = Callable[[Pieces], "bytes | memoryview"]
"""Return the blocks of data."""


class Compressor(Protocol):
    """The interface of what compresses groups of blocks: threads of the host, or a device."""

    executor: Executor
    """Its threads call :meth:`compress`."""
    blocks_per_task: int
    """Blocks of a group."""
    least_pending: int
    """Groups to have in work so that none of the threads waits."""
    level: int
    """Compression level, see :func:`deflater`."""

    def compress(self, pieces: Pieces) -> bytes | memoryview:
        """Return the blocks of data."""


class Sink(Protocol):
    """The interface of an output for bytes."""

    def write(self, data: bytes | memoryview) -> object: ...


def deflater(level: int) -> Deflate:
    """Return a function that makes a raw deflate stream at a compression level.

    Levels 0 to 3 are ISA-L's: 0 is the fastest (but compressed), 1 the best value. Levels 4 to 9
    are zlib's, several times slower and a little smaller.
    """
    if not 0 <= level <= MAX_LEVEL:
        raise UsageError(f"compression level {level}; choose 0 (fastest) to {MAX_LEVEL}")
    if level <= _MAX_ISAL_LEVEL:
        return lambda data: isal_zlib.compress(data, level, -15)

    def deflate(data: memoryview) -> bytes:
        stream = zlib.compressobj(level, zlib.DEFLATED, -15)
        return stream.compress(data) + stream.flush()

    return deflate


def grouped(pieces: Iterable[memoryview], most_blocks: int) -> Iterator[list[memoryview]]:
    """Yield pieces of data in groups of at most so many blocks; larger pieces are cut."""
    group: list[memoryview] = []
    room = most_blocks
    for piece in pieces:
        at = 0
        while at < len(piece):
            part = piece[at : at + room * BLOCK_BYTES]
            group.append(part)
            room -= -(-len(part) // BLOCK_BYTES)
            at += len(part)
            if room == 0:
                yield group
                group, room = [], most_blocks
    if group:
        yield group


def compressor(level: int) -> Compress:
    """Return a function that makes the BGZF blocks of data at a compression level."""
    deflate = deflater(level)
    if level <= _MAX_ISAL_LEVEL and isal.usable():
        return partial(_compress_compiled, level=level)
    return lambda pieces: b"".join([compress_blocks(piece, deflate) for piece in pieces])


class HostCompressor:
    """Compresses blocks in the threads of an executor, with bytes that depend on the level only."""

    def __init__(self, executor: Executor, level: int) -> None:
        self.executor = executor
        self.blocks_per_task = BLOCKS_PER_TASK
        self.least_pending = 0
        self.level = level
        self.compress = compressor(level)


def compress_block(data: memoryview, deflate: Deflate) -> bytes:
    """Return one BGZF block of at most BLOCK_BYTES bytes of data."""
    return b"".join(_parts_of_block(data, deflate))


def compress_blocks(data: memoryview, deflate: Deflate) -> bytes:
    """Return the BGZF blocks of `data`."""
    parts: list[bytes | memoryview] = []
    for at in range(0, len(data), BLOCK_BYTES):
        parts += _parts_of_block(data[at : at + BLOCK_BYTES], deflate)
    return b"".join(parts)


def _parts_of_block(data: memoryview, deflate: Deflate) -> list[bytes | memoryview]:
    """Return header, body and trailer; the caller joins all blocks, to copy them only once."""
    body: list[bytes | memoryview] = [deflate(data)]
    size = _HEADER.size + len(body[0]) + _TRAILER.size
    if size > MAX_BLOCK:
        # Stored: one final block without compression always fits.
        body = [b"\x01" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF), data]
        size = _HEADER.size + len(body[0]) + len(data) + _TRAILER.size
    header = _HEADER.pack(_HEADER_START, ord("B"), ord("C"), 2, size - 1)
    return [header, *body, _TRAILER.pack(isal_zlib.crc32(data), len(data))]


def _compress_compiled(pieces: Pieces, level: int) -> memoryview:
    """Return the BGZF blocks of `pieces`, of ISA-L's level `level`, in one call without the GIL."""
    spans = spans_of(pieces)
    n_blocks = int((-(-spans[:, 1] // BLOCK_BYTES)).sum())
    out = RECYCLER.empty(n_blocks * MAX_BLOCK)
    end = _fill_blocks(spans, level, isal.workspace(), out)
    if end < 0:
        raise RuntimeError("ISA-L finds no room for a block of BGZF")
    return out[:end].data


def spans_of(pieces: Pieces) -> np.ndarray:
    """Return address and bytes of each piece: int64, shape (n, 2); the caller keeps the pieces."""
    if isinstance(pieces, Spans):
        return pieces.table
    return np.array(
        [(np.frombuffer(piece, np.uint8).ctypes.data, len(piece)) for piece in pieces], np.int64
    ).reshape(-1, 2)


@driver
def copy_spans(spans, skipped, out, starts):
    """Copy pieces of data behind each other, in one call: a group may have hundreds.

    Parameters
    ----------
    spans
        See :func:`spans_of`.
    skipped
        bool: True for a piece that only gets its place.
    starts
        To be written, int64: where each block begins in `out`, and last the end. Pieces are of
        whole blocks but for their last.

    Returns
    -------
    The number of blocks.
    """
    n = 0
    at = np.int64(0)
    for piece in range(len(spans)):
        address, n_bytes = spans[piece]
        if not skipped[piece]:
            copy_from_address(address, out, at, n_bytes)
        for first in range(0, n_bytes, BLOCK_BYTES):
            starts[n] = at + first
            n += 1
        at += n_bytes
    starts[n] = at
    return n


@driver
def _fill_blocks(spans, level, work, out):
    """Write the blocks of pieces of data; return their end, or -1 (never seen).

    Parameters
    ----------
    spans
        Address of each piece, and its bytes: int64, shape (n, 2).
    level, work
        See :func:`mapper.io.isal.deflate`.
    out
        uint8, with room for blocks of the largest size.
    """
    at = np.int64(0)
    for piece in range(len(spans)):
        data, n_bytes = spans[piece]
        for first in range(0, n_bytes, BLOCK_BYTES):
            n = min(BLOCK_BYTES, n_bytes - first)
            body = at + HEADER_BYTES
            # ISA-L stores what deflate would make larger, so there is room.
            size = isal.deflate(
                data + first, n, level, work, out, body, at + MAX_BLOCK - TRAILER_BYTES
            )
            if size < 0:
                return size
            end = body + size
            for i in range(len(HEADER_FIELDS)):
                out[at + i] = HEADER_FIELDS[i]
            put16(out, body - 2, end + TRAILER_BYTES - at - 1)
            put32(out, end, np.int64(isal.crc32(data + first, n)))
            put32(out, end + 4, n)
            at = end + TRAILER_BYTES
    return at


@driver
def _find_starts(blocks):
    n = np.int64(0)
    at = np.int64(0)
    while at < len(blocks):
        at += get16(blocks, at + _SIZE_AT) + 1
        n += 1
    starts = np.empty(n + 1, np.int64)
    at = np.int64(0)
    for i in range(n):
        starts[i] = at
        at += get16(blocks, at + _SIZE_AT) + 1
    starts[n] = at
    return starts


def block_starts(blocks: bytes | memoryview) -> np.ndarray:
    """Return the offsets of the blocks that a compressor has made, and last their end: int64."""
    return np.asarray(_find_starts(np.frombuffer(blocks, np.uint8)))


class _Group(NamedTuple):
    """Blocks of one task."""

    blocks: bytes | memoryview
    starts: np.ndarray  # int64, of each in `blocks`, and their end


class BgzfWriter:
    """Writer of a BGZF stream whose bytes depend on nothing but the data and the compressor.

    Blocks end at fixed positions of the data, however it is cut into calls. Groups of them are
    compressed at a time.

    Parameters
    ----------
    sink
        Where the compressed bytes go, in order, by one thread at a time.
    executor
        Its threads write in the background, and compress unless `compressor` does; the calling
        thread waits for them and must not be one of them.
    compressor
        Compresses groups of blocks; None for level 1 on the host.
    max_pending
        Limit of groups of BLOCKS_PER_TASK blocks (4 MB each) in memory, or what the compressor
        needs. Threads that do nothing but compress need two for each of them: the oldest is waited
        for while the others go on.
    in_background
        Write by the executor, while the calling thread goes on: for files. A thread that waits for
        the reader of a pipe could not be stopped, unlike the calling one.
    """

    def __init__(
        self, sink: Sink, executor: Executor, compressor: Compressor | None = None,
        max_pending: int = 16, *, in_background: bool = False,
    ) -> None:  # fmt: skip
        self._sink = sink
        self._executor = executor
        self._compressor = compressor or HostCompressor(executor, 1)
        self._group_size = self._compressor.blocks_per_task
        n_groups = max_pending * BLOCKS_PER_TASK // self._group_size
        self._max_pending = max(n_groups, self._compressor.least_pending)
        self._in_background = in_background
        self.n_blocks = 0
        """Blocks that are complete, so the number of the block of the next byte."""
        self._pending: deque[Future[_Group]] = deque()
        self._ready: list[bytes | memoryview] = []  # compressed, to be written in the background
        self._writing: Future[None] | None = None
        self._group: list[memoryview] = []  # pieces of the group that is not complete yet
        self._group_blocks = 0  # in it
        self._rest = bytearray()  # less than a block, after it
        self._offsets = array("q", [0])  # in the file: of the blocks compressed, and behind them

    @property
    def block_offsets(self) -> np.ndarray:
        """Offsets in the file of the blocks compressed, and last the offset behind them: int64.

        After :meth:`finish` these are all blocks, and the end-of-file block begins at the last.
        """
        return np.array(self._offsets)

    def append(self, data: bytes | memoryview) -> None:
        """Add bytes to the stream. They must not be changed afterwards."""
        view = memoryview(data)
        if self._rest:
            missing = BLOCK_BYTES - len(self._rest)
            self._rest += view[:missing]
            view = view[missing:]
            if len(self._rest) == BLOCK_BYTES:
                self._add_rest()
        if not self._rest:
            whole = len(view) // BLOCK_BYTES * BLOCK_BYTES
            at = 0
            while at < whole:
                end = min(at + (self._group_size - self._group_blocks) * BLOCK_BYTES, whole)
                self._add(view[at:end], (end - at) // BLOCK_BYTES)
                at = end
            self._rest += view[whole:]

    def end_block(self) -> None:
        """End the block here, so that the next bytes begin a new one."""
        if self._rest:
            self._add_rest()

    def flush(self) -> bytes:
        """Write all blocks that are complete; return the data after them, less than a block."""
        if self._group:
            self._submit()
        while self._pending:
            self._write_oldest()
        while self._writing is not None:
            self._begin_writing()
        return bytes(self._rest)

    def finish(self) -> None:
        """Write all data and the end-of-file block."""
        self.end_block()
        self.flush()
        self._sink.write(EOF_BLOCK)

    def cancel(self) -> None:
        """Drop what has not been compressed or written yet; then no thread uses the sink."""
        for future in self._pending:
            future.cancel()
        self._pending.clear()
        if self._writing is not None and not self._writing.cancel():
            wait([self._writing])
        self._writing = None

    def _add_rest(self) -> None:
        self._add(memoryview(self._rest), 1)
        self._rest = bytearray()

    def _add(self, piece: memoryview, n_blocks: int) -> None:
        self._group.append(piece)
        self._group_blocks += n_blocks
        self.n_blocks += n_blocks
        if self._group_blocks == self._group_size:
            self._submit()

    def _submit(self) -> None:
        self._pending.append(self._compressor.executor.submit(self._compress_group, self._group))
        self._group, self._group_blocks = [], 0
        while self._pending and (len(self._pending) > self._max_pending or self._pending[0].done()):
            self._write_oldest()

    def _compress_group(self, group: list[memoryview]) -> _Group:
        blocks = self._compressor.compress(group)
        return _Group(blocks, block_starts(blocks))

    def _write_oldest(self) -> None:
        group = self._pending.popleft().result()
        self._offsets.frombytes((self._offsets[-1] + group.starts[1:]).tobytes())
        if not self._in_background:
            self._sink.write(group.blocks)
            return
        self._ready.append(group.blocks)
        if self._writing is None or self._writing.done() or len(self._ready) > _MAX_READY:
            self._begin_writing()

    def _begin_writing(self) -> None:
        """Have what is ready written when the last write has ended."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None
        if self._ready:
            self._writing = self._executor.submit(self._write, self._ready)
            self._ready = []

    def _write(self, groups: list[bytes | memoryview]) -> None:
        for blocks in groups:
            self._sink.write(blocks)
