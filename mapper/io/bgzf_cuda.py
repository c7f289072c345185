"""BGZF on a device: blocks are compressed and decompressed by nvCOMP, in threads of their own.

A block's DEFLATE stream and CRC-32 are nvCOMP's (:mod:`mapper.cuda.nvcomp`). What makes a block of
them, and finds them in one, are the kernels here. A group of some hundred blocks passes a stream at
a time: up, through the kernels, and down into page-locked memory. Several streams overlap
the copies of one group with the kernels of another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from mapper.cuda.api import (
    cuda,
    device_context,
    kernel,
    knowing_its_device,
    sleeping_event,
    stay_on,
)
from mapper.cuda.arguments import address_of
from mapper.cuda.launch import BoundKernel, Calls, find_page_locked
from mapper.cuda.memory import (
    Workspace,
    copy_in,
    copy_out,
    free_share,
    page_locked,
    priority_stream,
)
from mapper.cuda.nvcomp import Nvcomp
from mapper.errors import DeviceError, DeviceMemoryError
from mapper.io.bgzf import (
    BLOCK_BYTES,
    HEADER_BYTES,
    HEADER_FIELDS,
    MAX_BLOCK,
    TRAILER_BYTES,
    Pieces,
    Spans,
    compress_blocks,
    copy_spans,
    deflater,
    spans_of,
)
from mapper.io.bgzf_reader import (
    DEVICE_BLOCK_BYTES,
    END,
    N_LINES,
    PLAIN_END,
    PLAIN_START,
    START,
    BlocksPart,
    Done,
    block_table,
    find_blocks,
    find_bodies,
)
from mapper.parallel.map import map_in_threads
from mapper.parallel.pool import thread_pool

log = logging.getLogger(__name__)


class Streams(NamedTuple):
    """Streams of a device, and what each does at a time."""

    n: int
    n_blocks: int  # of a group at most


DEFLATING = Streams(4, 1024)
"""A block takes nvCOMP's compressor 10 ms: a few thousand must be under way. In fewer, larger
groups, as a group's thread waits for the GIL a dozen times."""

INFLATING = Streams(3, 256)
"""For reads: groups of 17 MB of plain bytes."""

INFLATING_RANGES = Streams(8, 512)
"""For ranges of the temporary file of a sort: a group holds one of 16 MB. Threads that find all
streams busy decompress themselves."""

MEMORY_SHARE = 0.1
"""Share of a device's free memory for blocks, each way; with less, groups are smaller."""

_LEAST_BLOCKS = 64
"""With memory for fewer blocks than these, the device is of little use, and the host compresses."""

_STORED_BYTES = 5
"""Of the header of a stored block of DEFLATE: last block and kind, length, and its complement."""

_LEAST_FETCHED = 1 << 20
"""Bytes from which a device fetches a piece itself: for a small one, asking the driver and queueing
the copy take longer than to copy it."""

_LINE_END = np.uint8(ord("\n"))
_ALIGNMENT = 4  # of a compressed body


# --- kernels ---


@kernel(256)
def _assemble(header, data, addresses, first_address, sizes, slots, slot_bytes, packed, checksums,
              starts, blocks):  # fmt: skip
    """Write a BGZF block for each group of threads: header, body and trailer.

    A body that would make the block too long is stored. `packed` holds the bytes of each body in
    its slot; `starts` those of the blocks, which allow for storing (see :func:`block_bytes`).
    """
    block = cuda.blockIdx.x
    lane, n_lanes = cuda.threadIdx.x, cuda.blockDim.x
    start, end = starts[block], starts[block + 1]
    n_plain = sizes[block]
    body = start + HEADER_BYTES
    n_body = end - body - TRAILER_BYTES
    if n_body == packed[block]:
        slot = block * slot_bytes
        for i in range(lane, n_body, n_lanes):
            blocks[body + i] = slots[slot + i]
    else:
        plain = addresses[block] - first_address
        for i in range(lane, n_plain, n_lanes):
            blocks[body + _STORED_BYTES + i] = data[plain + i]
        if lane == 0:
            blocks[body] = 1
            for i in range(2):
                length = n_plain >> (8 * i)
                blocks[body + 1 + i] = length & 0xFF
                blocks[body + 3 + i] = ~length & 0xFF
    if lane < HEADER_BYTES - 2:
        blocks[start + lane] = header[lane]
    if lane < 2:
        blocks[body - 2 + lane] = ((end - start - 1) >> (8 * lane)) & 0xFF
    if lane < 4:
        blocks[end - TRAILER_BYTES + lane] = (np.int64(checksums[block]) >> (8 * lane)) & 0xFF
        blocks[end - 4 + lane] = (n_plain >> (8 * lane)) & 0xFF


@kernel(256)
def _align(data, bodies, sizes, starts, aligned):
    """Copy the body of a block for each group of threads to its aligned place."""
    block = cuda.blockIdx.x
    source, target = bodies[block], starts[block]
    for i in range(cuda.threadIdx.x, sizes[block], cuda.blockDim.x):
        aligned[target + i] = data[source + i]


@kernel(256)
def _count_lines(plain, starts, sizes, n_lines):
    """Count the line ends of a block for each group of threads."""
    block = cuda.blockIdx.x
    start = starts[block]
    n = 0
    for i in range(cuda.threadIdx.x, sizes[block], cuda.blockDim.x):
        if plain[start + i] == _LINE_END:
            n += 1
    cuda.atomic.add(n_lines, block, n)


def block_bytes(packed: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the bytes of BGZF blocks (int64), given those of their bodies and their plain ones.

    A block that would be longer than BGZF allows is stored.
    """
    around = HEADER_BYTES + TRAILER_BYTES
    compressed = packed + around
    return np.where(compressed > MAX_BLOCK, sizes + _STORED_BYTES + around, compressed)


# --- streams ---


class _Lane:
    """A stream with the arrays of a group of blocks, kept from group to group."""

    def __init__(self, ordinal: int, codec: Nvcomp) -> None:
        self.ordinal = ordinal
        self._codec = codec
        # Between the blocks of long kernels of mapping a group would wait for a tenth of a second.
        # The short kernels that bring records back for compression must not wait for its long ones.
        self._space = Workspace(sleeps=True, stream=priority_stream(below=1))

    def _array(self, name: str, n: int, dtype: Any) -> Any:
        return self._space.device(name, n, dtype)

    def _reserve(self, n: int, *names: str) -> None:
        """Allocate arrays of up to ``n`` numbers: while reads are mapped, no memory may be left."""
        for name in names:
            self._array(name, n, np.int64)


class _Deflating(_Lane):
    def __init__(self, ordinal: int, codec: Nvcomp, most_blocks: int, level: int) -> None:
        super().__init__(ordinal, codec)
        self._level = level
        work, self._slot_bytes = codec.deflate_sizes(most_blocks, BLOCK_BYTES, level)
        most = most_blocks * BLOCK_BYTES
        space = self._space
        self._most_bytes = most
        self._ordinary = np.empty(0, np.uint8)  # where no pages can be locked
        self._data = self._array("data", most, np.uint8)
        slots = self._array("slots", most_blocks * self._slot_bytes, np.uint8)
        self._blocks = self._array("blocks", most_blocks * MAX_BLOCK, np.uint8)
        self._work = self._array("work", max(work, 8), np.uint8)
        # Of each block, in one array for one copy: its address, then its size.
        self._host_spans = space.pinned("spans", 2 * most_blocks, np.int64)
        self._spans = self._array("spans", 2 * most_blocks, np.int64)
        self._addresses, self._sizes = self._spans[:most_blocks], self._spans[most_blocks:]
        self._packed = self._array("packed", most_blocks, np.int64)
        self._statuses = self._array("statuses", most_blocks, np.int32)
        self._host_packed = space.pinned("packed", most_blocks, np.int64)
        self._host_statuses = space.pinned("statuses", most_blocks, np.int32)
        self._checksums = self._array("checksums", most_blocks, np.uint32)
        self._starts = self._array("starts", most_blocks + 1, np.int64)
        self._host_starts = space.pinned("starts", most_blocks + 1, np.int64)
        header = space.upload("header", HEADER_FIELDS)
        addresses = address_of(slots) + np.arange(most_blocks, dtype=np.int64) * self._slot_bytes
        self._slot_addresses = space.upload("slot addresses", addresses)
        self._calls = Calls(space.stream, sleeping_event())
        self._assemble = BoundKernel(
            _assemble, space.stream, header, self._data, self._addresses, address_of(self._data),
            self._sizes, slots, self._slot_bytes, self._packed, self._checksums, self._starts,
            self._blocks,
        )  # fmt: skip
        self.run([memoryview(b"\n")])  # the driver loads the kernels, which takes memory too

    def _upload(self, pieces: Pieces) -> tuple[int, np.ndarray]:
        """Record the copy of pieces to the device; return the number of blocks and their sizes.

        The device fetches large pieces itself where their memory is page-locked.
        """
        most = len(self._sizes)
        spans = spans_of(pieces)
        at_once = np.zeros(len(spans), np.bool_)
        if not isinstance(pieces, Spans):
            find_page_locked(spans, _LEAST_FETCHED, at_once)
        # Memory is locked when the first large group needs it: runs begin sooner.
        is_small = int(spans[:, 1].sum()) <= _LEAST_FETCHED
        n_staged = _LEAST_FETCHED if is_small else self._most_bytes
        staged = self._ordinary
        if n_staged > len(staged):
            try:
                staged = self._space.pinned("plain", n_staged, np.uint8)
            except DeviceMemoryError as error:
                log.debug("%s; data for compression goes through ordinary memory", error)
                staged = self._ordinary = np.empty(n_staged, np.uint8)
        starts = np.empty(most + 1, np.int64)
        n = int(copy_spans(spans, at_once, staged, starts))
        sizes = np.diff(starts[: n + 1])
        np.add(starts[:n], address_of(self._data), out=self._host_spans[:n])
        self._host_spans[most : most + n] = sizes
        self._calls.copy_in(self._spans, 0, self._host_spans)
        if at_once.any():
            at = 0
            for piece, is_fetched in zip(pieces, at_once.tolist(), strict=True):
                end = at + len(piece)
                source = np.frombuffer(piece, np.uint8) if is_fetched else staged[at:end]
                self._calls.copy_in(self._data, at, source)
                at = end
        else:
            self._calls.copy_in(self._data, 0, staged[: starts[n]])
        return n, sizes

    def run(self, pieces: Pieces) -> memoryview:
        """Return the BGZF blocks of pieces of data."""
        calls, stream = self._calls, self._space.stream
        n, sizes = self._upload(pieces)
        calls.make()
        self._codec.deflate(
            n, BLOCK_BYTES, self._level, self._addresses, self._sizes, self._work,
            self._slot_addresses, self._packed, self._statuses, stream,
        )  # fmt: skip
        self._codec.crc32(n, BLOCK_BYTES, self._addresses, self._sizes, self._checksums, stream)
        packed, statuses = self._host_packed[:n], self._host_statuses[:n]
        calls.copy_out(packed, self._packed)
        calls.copy_out(statuses, self._statuses)
        calls.wait()
        if statuses.any():
            raise DeviceError(
                f"nvCOMP could not compress a block: {self._codec.describe(int(statuses.max()))}; "
                "compress on the host"
            )
        starts = self._host_starts[: n + 1]
        starts[0] = 0
        np.cumsum(block_bytes(packed, sizes), out=starts[1:])
        out = page_locked(int(starts[n]), np.dtype(np.uint8))
        calls.copy_in(self._starts, 0, starts)
        calls.launch(self._assemble, n, {})
        calls.copy_out(out, self._blocks)
        calls.wait()
        return out.data


class _Inflating(_Lane):
    def __init__(self, ordinal: int, codec: Nvcomp, most_blocks: int) -> None:
        super().__init__(ordinal, codec)
        most = most_blocks * MAX_BLOCK
        self._packed = self._space.pinned("packed", most, np.uint8)
        self._data = self._array("data", most, np.uint8)
        # A damaged body may be read beyond its end.
        self._aligned = self._array("aligned", most + DEVICE_BLOCK_BYTES, np.uint8)
        self._plain = self._array("plain", most, np.uint8)
        work = codec.inflate_bytes(most_blocks, DEVICE_BLOCK_BYTES)
        self._work = self._array("work", max(work, 8), np.uint8)
        self._reserve(
            most_blocks, "sizes", "starts", "places", "rooms", "found sizes", "statuses",
            "checksums", "plain starts", "bodies", "n_lines", "plain at",
        )  # fmt: skip
        self.run([_one_block()])

    def run(self, parts: Sequence[BlocksPart]) -> list[Done]:
        """Decompress parts; the host does those with damaged or empty blocks."""
        space = self._space
        packed_at = 0
        columns = []
        for part in parts:
            first, last = int(part.blocks[0, START]), int(part.blocks[-1, END])
            self._packed[packed_at : packed_at + last - first] = part.data[first:last]
            bodies = find_bodies(part.data, part.blocks)
            bodies[:, 0] += packed_at - first
            columns.append(bodies)
            packed_at += last - first
        starts, sizes, checksums, n_plain = (
            np.ascontiguousarray(column) for column in np.concatenate(columns).T
        )
        n = len(starts)
        copy_in(self._data, self._packed, packed_at, space.stream)
        places = np.append(0, np.cumsum(-(-sizes // _ALIGNMENT) * _ALIGNMENT))[:-1]
        plain_starts = np.append(0, np.cumsum(n_plain))[:-1]
        body_sizes = space.upload("sizes", sizes)
        _align.launch_blocks(
            n, space.stream, self._data, space.upload("starts", starts), body_sizes,
            space.upload("places", places), self._aligned,
        )  # fmt: skip
        rooms = space.upload("rooms", n_plain)
        found_sizes = self._array("found sizes", n, np.int64)
        statuses = self._array("statuses", n, np.int32)
        found_checksums = self._array("checksums", n, np.uint32)
        plain = space.upload("plain starts", plain_starts + address_of(self._plain))
        self._codec.inflate(
            n, space.upload("bodies", places + address_of(self._aligned)), body_sizes, self._work,
            plain, rooms, found_sizes, statuses, space.stream,
        )  # fmt: skip
        self._codec.crc32(n, int(n_plain.max()), plain, rooms, found_checksums, space.stream)
        n_lines = None
        if any(part.count_lines for part in parts):
            counts = space.upload("n_lines", np.zeros(n, np.int64))
            _count_lines.launch_blocks(
                n, space.stream, self._plain, space.upload("plain at", plain_starts), rooms, counts
            )
            n_lines = space.download("n_lines", counts)
        at = 0
        for part in parts:
            first, last = int(part.blocks[0, PLAIN_START]), int(part.blocks[-1, PLAIN_END])
            target = np.frombuffer(part.buffer, np.uint8)[first:last]
            copy_out(target, self._plain[at : at + last - first], last - first, space.stream)
            at += last - first
        found = [
            space.download(*pair)
            for pair in (("found sizes", found_sizes), ("statuses", statuses),
                         ("checksums", found_checksums))
        ]  # fmt: skip
        space.synchronize()
        good = (found[0] == n_plain) & (found[1] == 0) & (found[2] == checksums) & (n_plain > 0)
        done = []
        at = 0
        for part in parts:
            end = at + len(part.blocks)
            if good[at:end].all():
                blocks = None
                if part.count_lines and n_lines is not None:
                    part.blocks[:, N_LINES] = n_lines[at:end]
                    blocks = part.blocks
                done.append(Done(int(part.blocks[-1, PLAIN_END]), None, blocks))
            else:
                done.append(part())
            at = end
        return done


def _one_block() -> BlocksPart:
    """Return a part that has a block of one byte."""
    data = np.frombuffer(compress_blocks(memoryview(b"\n"), deflater(1)), np.uint8)
    table = block_table(1)
    find_blocks(data, 0, len(data), MAX_BLOCK, table)
    return BlocksPart(data, table, memoryview(bytearray(1)), count_lines=True)


LaneKind = TypeVar("LaneKind", bound=_Lane)


class _Lanes(Generic[LaneKind]):
    """Streams of one kind, each for one thread at a time."""

    def __init__(self, executor: Executor, lanes: Sequence[LaneKind]) -> None:
        self.executor = executor
        """Its threads wait for devices: as many as there are streams."""
        self._idle: SimpleQueue[LaneKind] = SimpleQueue()
        for lane in lanes:
            self._idle.put(lane)


class DeviceDeflater(_Lanes[_Deflating]):
    """Compresses groups of BGZF blocks; see :class:`mapper.io.bgzf.Compressor`."""

    def __init__(
        self, executor: Executor, lanes: Sequence[_Deflating], n_blocks: int, level: int
    ) -> None:
        super().__init__(executor, lanes)
        self.level = level
        self.blocks_per_task = n_blocks
        self.n_lanes = len(lanes)
        self.least_pending = 2 * self.n_lanes

    def compress(self, pieces: Pieces) -> memoryview:
        """Return the blocks of data."""
        lane = self._idle.get()
        try:
            stay_on(lane.ordinal)
            return lane.run(pieces)
        finally:
            self._idle.put(lane)


class DeviceInflater(_Lanes[_Inflating]):
    """Decompresses parts of steps of BGZF files; see :class:`mapper.io.bgzf_reader.Inflater`."""

    def __init__(self, executor: Executor, lanes: Sequence[_Inflating], n_blocks: int) -> None:
        super().__init__(executor, lanes)
        self._ordinal = lanes[0].ordinal
        self.most_blocks = n_blocks
        self.blocks_ahead = len(lanes) * n_blocks

    def memory(self, n_bytes: int) -> np.ndarray:
        """Return page-locked memory (uint8)."""
        with device_context(self._ordinal):
            return page_locked(n_bytes, np.dtype(np.uint8))

    def decompress(self, parts: Sequence[BlocksPart]) -> list[Done]:
        """Decompress parts of at most ``most_blocks`` ``n_device_blocks``; see the protocol."""
        return self._run_on(self._idle.get(), parts)

    def decompress_if_idle(self, parts: Sequence[BlocksPart]) -> list[Done] | None:
        """Decompress parts as :meth:`decompress`; return None if no stream is idle."""
        try:
            lane = self._idle.get_nowait()
        except Empty:
            return None
        return self._run_on(lane, parts)

    def _run_on(self, lane: _Inflating, parts: Sequence[BlocksPart]) -> list[Done]:
        try:
            with device_context(lane.ordinal):
                done: list[Done] = knowing_its_device(lane.run)(parts)
                return done
        finally:
            self._idle.put(lane)


def _blocks_that_fit(ordinal: int, n_streams: int, most: int, bytes_per_block: int) -> int:
    """Return how many blocks a group may have, 0 if it is not worth while."""
    with device_context(ordinal):
        room = int(MEMORY_SHARE * free_share())
    fitting = min(most, room // (n_streams * bytes_per_block))
    return fitting if fitting >= _LEAST_BLOCKS else 0


def _open_lanes(ordinal: int, n_streams: int, lane: Callable[[], LaneKind]) -> list[LaneKind]:
    """Open streams of a device; none if others have taken the memory meanwhile.

    Each locks much memory of the host, so they are opened together.
    """

    def opened(_: int) -> LaneKind:
        with device_context(ordinal):
            return lane()

    try:
        return map_in_threads(opened, range(n_streams), n_streams) if n_streams else []
    except DeviceMemoryError as error:
        log.debug("%s; the host does this work", error)
        return []


@contextmanager
def device_deflater(
    codec: Nvcomp, ordinal: int, level: int, streams: Streams = DEFLATING
) -> Iterator[DeviceDeflater | None]:
    """Open streams that compress on a device; None if its memory is too small."""
    work, slot = codec.deflate_sizes(streams.n_blocks, BLOCK_BYTES, level)
    bytes_per_block = work // streams.n_blocks + slot + BLOCK_BYTES + MAX_BLOCK
    for n_streams in (streams.n, streams.n // 2):
        n = _blocks_that_fit(ordinal, n_streams, streams.n_blocks, bytes_per_block)
        if n:
            break
    lanes = _open_lanes(
        ordinal, n_streams if n else 0, lambda: _Deflating(ordinal, codec, n, level)
    )
    if not lanes:
        yield None
        return
    with thread_pool(len(lanes)) as executor:
        yield DeviceDeflater(executor, lanes, n, level)


@contextmanager
def device_inflater(
    codec: Nvcomp, ordinal: int, streams: Streams = INFLATING
) -> Iterator[DeviceInflater | None]:
    """Open streams that decompress on a device; None if its memory is too small."""
    # Rather fewer streams than smaller groups: a range that does not fit is left to the host.
    n_streams = streams.n
    n = _blocks_that_fit(ordinal, n_streams, streams.n_blocks, 3 * MAX_BLOCK)
    while n < streams.n_blocks and n_streams > INFLATING.n:
        n_streams = max(n_streams // 2, INFLATING.n)
        n = _blocks_that_fit(ordinal, n_streams, streams.n_blocks, 3 * MAX_BLOCK)
    lanes = _open_lanes(ordinal, n_streams if n else 0, partial(_Inflating, ordinal, codec, n))
    if not lanes:
        yield None
        return
    with thread_pool(len(lanes)) as executor:
        yield DeviceInflater(executor, lanes, n)
