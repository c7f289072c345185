"""Read BGZF: find blocks by their sizes and decompress them by several threads.

A block gives its compressed and its plain size. So the position of each in the caller's buffer is
known before any is decompressed, and threads write there without waiting for each other. Members
of other gzip files are blocks, too, where they can be found (:mod:`mapper.io.gzip_members`).
"""

from __future__ import annotations

import gzip
import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from isal import isal_zlib

from mapper.errors import DeviceError
from mapper.io import isal
from mapper.io.position import START as FILE_START
from mapper.io.position import Place
from mapper.io.record_ends import line_ends
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import get16, get32
from mapper.parallel.buffers import RECYCLER
from mapper.parallel.pool import fork_join

log = logging.getLogger(__name__)

READ_BYTES = 1 << 22
"""Compressed bytes of one read of a file that is read alone."""

BLOCKS_PER_TASK = 64
"""As many as a step of a file mostly has: the thread that begins the step then decompresses it,
without a further task that would wait for the GIL."""

HEAD_BYTES = 18
"""Bytes of a block's header without other extra fields."""

MAX_PLAIN = 1 << 16
"""Plain bytes of a block at most."""

DEVICE_BLOCK_BYTES = 4 * MAX_PLAIN
"""Plain bytes of a block that a device decompresses, at most. An H200 takes 11 ms for that many, at
23 MB/s, however few or many blocks there are up to some thousand: in memory for some hundred blocks
of BGZF it has enough of these, and with a few large members it would be slower than a thread."""

_TASK_BYTES = BLOCKS_PER_TASK * MAX_PLAIN
_MAX_PLANNED = 1 << 12  # blocks
_MAGIC = b"\x1f\x8b\x08\x04"
_FIXED_HEADER = 12
_TRAILER = struct.Struct("<II")
TRAILER_BYTES = _TRAILER.size
"""Of a block: checksum and plain size."""

_B, _C = b"BC"

FOUND, MORE, NO_BLOCK, BAD_LENGTH = range(4)
"""Why the search for blocks ended: room or table are full; the bytes end; no block follows; its
plain size is impossible."""

START, BODY, END, PLAIN_START, PLAIN_END, N_LINES = range(6)
"""Columns of a table of blocks: start of each in the compressed bytes, of its body there, and its
end; bounds in the plain bytes; its line ends, if they are counted."""


class NoBlockError(Exception):
    """No block follows in the stream; ``rest`` holds the bytes read behind the last block."""

    def __init__(self, rest: bytes) -> None:
        super().__init__("no block")
        self.rest = rest


class ReadAgainError(Exception):
    """What was taken for blocks from ``place`` on is none: one thread has to read on from there."""

    def __init__(self, place: Place) -> None:
        super().__init__("no blocks")
        self.place = place


class Done(NamedTuple):
    """The result of a part of a step."""

    plain_end: int  # end of the correct bytes of this part, in the step's buffer
    error: Exception | None  # why the bytes after it are not correct
    blocks: np.ndarray | None = None  # table of the blocks, if their line ends were counted


@dataclass(frozen=True)
class BlocksPart:
    """Consecutive blocks to decompress: a part of a step that a device can do, too."""

    data: np.ndarray  # uint8, that the blocks lie in
    blocks: np.ndarray  # table
    buffer: memoryview  # of the step
    count_lines: bool
    explain: Callable[[Exception], Exception] = lambda error: error
    """Returns the user's error for one of BLOCK_ERRORS."""
    origin: Place | None = None
    """Of the first bytes of `data` and of `buffer`, if what was found may be no blocks; an error
    then is ReadAgainError."""

    @cached_property
    def n_device_blocks(self) -> int:
        """Blocks of BGZF, at most, that take as much memory; 0 if a block is too large for devices.

        See :data:`DEVICE_BLOCK_BYTES`.
        """
        bounds = self.blocks[:, PLAIN_END] - self.blocks[:, PLAIN_START]
        if bounds.max() > DEVICE_BLOCK_BYTES:
            return 0
        packed = int(self.blocks[-1, END] - self.blocks[0, START])
        return max(len(self.blocks), -(-max(int(bounds.sum()), packed) // MAX_PLAIN))

    def __call__(self) -> Done:
        whole = self.origin is not None
        done = _decompress(self.data, self.blocks, self.buffer, self.count_lines, whole)
        if done.error is None:
            return done
        if self.origin is None:
            return done._replace(error=self.explain(done.error))
        row = int(np.searchsorted(self.blocks[:, PLAIN_START], done.plain_end))
        packed = self.origin.packed + int(self.blocks[row, START])
        place = Place(self.origin.plain + done.plain_end, packed)
        return done._replace(error=ReadAgainError(place))


class Inflater(Protocol):
    """The interface of a device that decompresses parts of steps."""

    executor: Executor
    """Its threads call :meth:`decompress`."""
    most_blocks: int
    """Blocks of a call at most."""
    blocks_ahead: int
    """Blocks to have in work so that none of the threads waits."""

    def memory(self, n_bytes: int) -> np.ndarray:
        """Return memory (uint8) that the device writes to without the host's help."""

    def decompress(self, parts: Sequence[BlocksPart]) -> list[Done]:
        """Do parts; return what came of each."""

    def decompress_if_idle(self, parts: Sequence[BlocksPart]) -> list[Done] | None:
        """Do parts in any thread, or return None at once while all streams are busy."""


class SharedInflating(NamedTuple):
    """Blocks are decompressed by a device and by threads that have nothing else to do."""

    device: Inflater
    idle: Executor


class Step(NamedTuple):
    """A step of reading that has begun, with the parts that are still to be done."""

    n_bytes: int
    """Plain bytes at the start of the buffer; 0 only at the end of the stream."""
    parts: Sequence[BlocksPart] = ()
    """Each writes a part of the bytes, in their order; any thread may call it, once."""


BLOCK_ERRORS: Any = (gzip.BadGzipFile, isal_zlib.error)
"""Of a damaged block."""


@core
def block_size(data, at, end):
    """Return the size of the BGZF block at `at`, where bytes are known up to `end`.

    Returns
    -------
    Its bytes, with header and trailer; 0 if more bytes must be known; -1 if it is no BGZF block.
    """
    for i in range(min(end - at, len(_MAGIC))):
        if data[at + i] != _MAGIC[i]:
            return -1
    if end - at < _FIXED_HEADER:
        return 0
    extra_end = at + _FIXED_HEADER + get16(data, at + 10)
    if extra_end > end:
        return 0
    field = at + _FIXED_HEADER
    while field + 4 <= extra_end:
        length = get16(data, field + 2)
        if data[field] == _B and data[field + 1] == _C and length == 2:
            if field + 6 > extra_end:
                return -1
            size = get16(data, field + 4) + 1
            return size if size > extra_end - at + TRAILER_BYTES else -1
        field += 4 + length
    return -1


@core
def put_block(row, start, body, end, plain, n_plain):
    """Write a row of a table of blocks (:func:`block_table`), but for N_LINES."""
    row[START], row[BODY], row[END] = start, body, end
    row[PLAIN_START], row[PLAIN_END] = plain, plain + n_plain


@driver
def find_blocks(data, at, end, room, blocks):
    """Find consecutive whole BGZF blocks and the positions of their plain bytes.

    Parameters
    ----------
    data, at, end
        uint8; the blocks begin at `at`, and bytes are known up to `end`.
    room
        Limit of plain bytes; the first block may exceed it.
    blocks
        Table to be written (:func:`block_table`), but for N_LINES.

    Returns
    -------
    Number of blocks found; FOUND, MORE, NO_BLOCK or BAD_LENGTH.
    """
    n = 0
    plain = np.int64(0)
    while n < len(blocks):
        size = block_size(data, at, end)
        if size < 0:
            return n, NO_BLOCK
        if size == 0 or at + size > end:
            return n, MORE
        length = get32(data, at + size - 4) & 0xFFFFFFFF
        if length > MAX_PLAIN:
            return n, BAD_LENGTH
        if n > 0 and plain + length > room:
            return n, FOUND
        body = at + _FIXED_HEADER + get16(data, at + 10)
        put_block(blocks[n], at, body, at + size, plain, length)
        n += 1
        at += size
        plain += length
    return n, FOUND


@driver
def find_bodies(data, blocks):
    """Return where the compressed bodies of blocks lie, and what they must give.

    Returns
    -------
    int64 (n, 4): start of each body, its bytes, the CRC-32 and the number of its plain bytes.
    """
    bodies = np.empty((len(blocks), 4), np.int64)
    for i in range(len(blocks)):
        body, end = blocks[i, BODY], blocks[i, END]
        bodies[i, 0], bodies[i, 1] = body, end - TRAILER_BYTES - body
        bodies[i, 2] = get32(data, end - TRAILER_BYTES) & 0xFFFFFFFF
        bodies[i, 3] = blocks[i, PLAIN_END] - blocks[i, PLAIN_START]
    return bodies


def is_bgzf(head: bytes) -> bool:
    """Return True if a file that begins with `head` (18 bytes) is BGZF."""
    if not head.startswith(_MAGIC) or len(head) < HEAD_BYTES:
        return False
    data = np.frombuffer(bytearray(head), np.uint8)
    _, why = find_blocks(data, 0, len(data), 0, block_table(1))
    return bool(why == MORE) and head[10] + 256 * head[11] <= HEAD_BYTES - _FIXED_HEADER


def decompress_blocks(
    data: np.ndarray, n_blocks: int, out: np.ndarray, device: Inflater | None = None
) -> None:
    """Decompress whole BGZF blocks into an array that they fill.

    Parameters
    ----------
    data
        The blocks (uint8), one behind another, `n_blocks` at most.
    device
        Does it if it is idle.

    Raises
    ------
    BLOCK_ERRORS
        If a block is damaged, or the blocks do not fill the array.
    """
    blocks = block_table(n_blocks)
    n, _ = find_blocks(data, 0, len(data), len(out), blocks)
    # The first one may say that it holds more than the array.
    if n == 0 or blocks[n - 1, PLAIN_END] > len(out):
        filled = 0
    else:
        part = BlocksPart(data, blocks[:n], out.data, count_lines=False)
        of_device = None
        if device is not None and n <= device.most_blocks:
            try:
                of_device = device.decompress_if_idle([part])
            except DeviceError as error:
                log.warning("%s; the host decompresses these blocks", error)
        done = part() if of_device is None else of_device[0]
        if done.error is not None:
            raise done.error
        filled = done.plain_end
    if filled < len(out) or (n and blocks[n - 1, END] != len(data)):
        raise gzip.BadGzipFile("blocks are missing, or there are too many")


def block_table(n: int) -> np.ndarray:
    """Return a table with room for ``n`` blocks (int64), to be filled by :func:`find_blocks`."""
    return np.empty((n, 6), np.int64)


def _bounds_of_tasks(blocks: np.ndarray) -> list[int]:
    """Return the bounds of the rows that a task decompresses: as many bytes as BLOCKS_PER_TASK."""
    ends = blocks[:, PLAIN_END]
    bounds = [0]
    while bounds[-1] < len(blocks):
        first = bounds[-1]
        of_bytes = int(np.searchsorted(ends, blocks[first, PLAIN_START] + _TASK_BYTES, "right"))
        bounds.append(max(min(of_bytes, first + BLOCKS_PER_TASK), first + 1))
    return bounds


def _decompress(
    data: np.ndarray, blocks: np.ndarray, buffer: memoryview, count_lines: bool, whole: bool
) -> Done:
    """Decompress blocks into the buffer, up to the first that is damaged.

    With `whole`, a block whose body holds more than one stream is, too.
    """
    if isal.usable():
        out = np.frombuffer(buffer, np.uint8)
        n = _decompress_compiled(data, blocks, out, isal.workspace(), count_lines, whole)
        if n == len(blocks):
            return Done(int(blocks[-1, PLAIN_END]), None, blocks if count_lines else None)
        blocks = blocks[n:]  # the first of them is damaged: decompress it again for the error
    return _decompress_singly(data.data, blocks[:, :N_LINES].tolist(), buffer, whole)


@driver
def _decompress_compiled(data, blocks, out, work, count_lines, whole):
    """Decompress blocks into `out`; return how many come before the first damaged one."""
    for i in range(len(blocks)):
        body, end = blocks[i, BODY], blocks[i, END]
        plain_start, plain_end = blocks[i, PLAIN_START], blocks[i, PLAIN_END]
        n_bytes = end - TRAILER_BYTES - body
        plain, n_plain = out.ctypes.data + plain_start, plain_end - plain_start
        if not isal.inflate(data.ctypes.data + body, n_bytes, work, plain, n_plain, whole):
            return i
        if isal.crc32(plain, n_plain) != get32(data, end - TRAILER_BYTES) & 0xFFFFFFFF:
            return i
        if count_lines:
            blocks[i, N_LINES] = line_ends(out[plain_start:plain_end])
    return len(blocks)


def _decompress_singly(
    data: memoryview, blocks: list[list[int]], buffer: memoryview, whole: bool
) -> Done:
    """Decompress blocks by isal's Python functions, which name the damage."""
    for _, body, end, plain_start, plain_end in blocks:
        crc, length = _TRAILER.unpack_from(data, end - _TRAILER.size)
        try:
            packed = data[body : end - _TRAILER.size]
            if whole:
                unpacker = isal_zlib.decompressobj(-15)
                plain = unpacker.decompress(packed, length + 1)
                if not unpacker.eof or unpacker.unused_data:
                    raise gzip.BadGzipFile("the body is not one stream of this length")
            else:
                plain = isal_zlib.decompress(packed, -15, length or 1)
            if len(plain) != length:
                raise gzip.BadGzipFile("the length of a block differs")
            if isal_zlib.crc32(plain) != crc:
                raise gzip.BadGzipFile("CRC check failed")
        except BLOCK_ERRORS as error:
            return Done(plain_start, error)
        buffer[plain_start:plain_end] = plain
    return Done(blocks[-1][PLAIN_END], None)


class BlockStream:
    """The plain bytes of a stream of blocks: BGZF, or gzip members, by the derived class.

    Parameters
    ----------
    raw
        Unbuffered binary file.
    executor
        Its threads help to decompress; None: only the calling thread does.
    read_bytes
        Compressed bytes of one read.
    start
        Place of the file at which `raw` stands.
    """

    are_guesses = False
    """True if bytes that are no blocks may be taken for such; parts raise ReadAgainError then."""

    def __init__(
        self, raw: Any, executor: Executor | None = None, read_bytes: int = READ_BYTES,
        start: Place = FILE_START,
    ) -> None:  # fmt: skip
        self._raw = raw
        self._read_bytes = read_bytes
        self._executor = executor
        self._packed = np.empty(0, np.uint8)
        self._at = self._end = 0  # self._packed[at:end] was read and is in no step yet
        self._raw_ended = False
        self._plain = memoryview(b"")  # of a block that did not fit into the buffer
        self._error: Exception | None = None
        self._packed_at = start.packed  # of self._packed[0], in the file
        self._n_planned = start.plain  # plain bytes of the blocks planned so far
        self.places: deque[Place] | None = None
        """Takes the first block of each step, if it is set; the reader drops those it is past."""
        self.last_block_empty = False
        self.count_lines = False
        """True to count the line ends of decompressed blocks."""

    def readinto(self, buffer: memoryview) -> int:
        """Fill the start of `buffer` and return how many bytes; 0 only at the end.

        Raises
        ------
        EOFError
            If the stream ends inside a block.
        gzip.BadGzipFile, isal_zlib.error
            If a block is damaged.
        NoBlockError
            If something else follows, as another kind of gzip member; none of its bytes have been
            returned.
        """
        step = self.begin(buffer)
        return self._finish(step) if step.parts else step.n_bytes

    def begin(self, buffer: memoryview) -> Step:
        """Begin to fill the start of `buffer`, as :meth:`readinto` does.

        The next step may begin before the parts of this one are done. If one of them finds a
        damaged block, the bytes of later steps are useless.
        """
        while not self._plain:
            if self._error is not None:
                raise self._error
            blocks = self._plan(len(buffer))
            if not len(blocks):
                return Step(0)
            n_plain = int(blocks[-1, PLAIN_END])
            if 0 < n_plain <= len(buffer):
                return Step(n_plain, self._parts(blocks, buffer))
            # Empty blocks, which do not end the stream, or one block that does not fit.
            room = memoryview(bytearray(n_plain))
            self._plain = room[: self._finish(Step(n_plain, self._parts(blocks, room)))]
        n = min(len(self._plain), len(buffer))
        buffer[:n] = self._plain[:n]
        self._plain = self._plain[n:]
        return Step(n)

    def close(self) -> None:
        """Drop the bytes that have been read."""
        self._at = self._end = 0

    def _parts(self, blocks: np.ndarray, buffer: memoryview) -> list[BlocksPart]:
        """Return the parts that decompress planned blocks, and move past these."""
        # Of several places with the same plain bytes before them the first is right in any case.
        places = self.places
        if places is not None and not (places and places[-1].plain == self._n_planned):
            places.append(Place(self._n_planned, self._packed_at + int(blocks[0, START])))
        origin = Place(self._n_planned, self._packed_at) if self.are_guesses else None
        self._n_planned += int(blocks[-1, PLAIN_END])
        self._at = int(blocks[-1, END])
        self.last_block_empty = bool(blocks[-1, PLAIN_START] == blocks[-1, PLAIN_END])
        return [
            BlocksPart(self._packed, blocks[first:last], buffer, self.count_lines, origin=origin)
            for first, last in pairwise(_bounds_of_tasks(blocks))
        ]

    def _finish(self, step: Step) -> int:
        """Do the parts of a step; return the number of correct bytes, raise if there are none."""
        for part in fork_join(step.parts, self._executor):
            if part.error is not None:
                self._error = part.error
                if isinstance(part.error, ReadAgainError):
                    first = part.error.place.packed - self._packed_at
                    self._error = NoBlockError(self._packed[first : self._end].tobytes())
                self.last_block_empty = False
                if part.plain_end == 0:
                    raise self._error
                return part.plain_end
        return step.n_bytes

    def _plan(self, room: int) -> np.ndarray:
        """Return the next blocks that fit into `room` bytes, at least one except at the end."""
        blocks = block_table(_MAX_PLANNED)
        while True:
            n, why = self._find(room, blocks)
            if n:
                return blocks[:n]
            if why == MORE and not self._raw_ended:
                self._read_raw()
            elif self._at == self._end:
                return blocks[:0]
            elif why == NO_BLOCK:
                raise NoBlockError(self._packed[self._at : self._end].tobytes())
            elif why == BAD_LENGTH:
                raise gzip.BadGzipFile("impossible length of a block")
            else:
                raise EOFError("the stream ends inside a block")

    def _find(self, room: int, blocks: np.ndarray) -> tuple[int, int]:
        """Find the next blocks among the bytes that have been read; see :func:`find_blocks`."""
        n, why = find_blocks(self._packed, self._at, self._end, room, blocks)
        return int(n), int(why)

    def _read_raw(self) -> None:
        """Read further bytes after the present ones, which are less than a block.

        They go to new memory, as unfinished parts still read from the old.
        """
        rest = self._packed[self._at : self._end]
        self._packed = RECYCLER.empty(len(rest) + self._read_bytes)
        self._packed[: len(rest)] = rest
        self._packed_at += self._at
        self._at, self._end = 0, len(rest)
        n = self._raw.readinto(self._packed[self._end :].data)
        self._raw_ended = n == 0
        self._end += n
