"""BGZF on a device: the same bytes come out, damaged blocks are refused, whatever the group.

In numba's simulator, which has no nvCOMP, zlib stands for it, so the kernels around it are tested.
"""

from __future__ import annotations

import ctypes
import gzip
import itertools
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs the package numba-cuda")

from mapper.cuda import nvcomp
from mapper.cuda.api import SIMULATED, cuda, device_context
from mapper.cuda.memory import pinned_bytes
from mapper.errors import DeviceMemoryError
from mapper.io import bgzf, bgzf_cuda
from mapper.io.bgzf_cuda import (
    DeviceDeflater,
    DeviceInflater,
    Streams,
    device_deflater,
    device_inflater,
)
from mapper.io.bgzf_reader import (
    DEVICE_BLOCK_BYTES,
    N_LINES,
    PLAIN_END,
    BlocksPart,
    ReadAgainError,
    block_table,
    decompress_blocks,
    find_blocks,
)
from mapper.io.gzip_members import find_members
from mapper.io.position import Place
from mapper.io.record_ends import line_ends

pytestmark = pytest.mark.gpu


class Zlib:
    """zlib in the place of nvCOMP, in the simulator, whose device addresses are the host's."""

    def deflate_sizes(self, n: int, chunk_bytes: int, level: int) -> tuple[int, int]:
        return n, 2 * chunk_bytes

    def inflate_bytes(self, n: int, chunk_bytes: int) -> int:
        return 0

    def describe(self, status: int) -> str:
        return f"status {status}"

    def deflate(self, n: int, chunk_bytes: int, level: int, data: Any, sizes: Any, work: Any,
                out: Any, out_sizes: Any, statuses: Any, stream: Any) -> None:  # fmt: skip
        for i in range(n):
            stream = zlib.compressobj(level, zlib.DEFLATED, -15)
            plain = ctypes.string_at(int(data[i]), int(sizes[i]))
            # A body longer than BGZF allows, as nvCOMP's may be.
            noise = level == 0
            packed = stream.compress(plain) + stream.flush() + bytes(1000 if noise else 0)
            ctypes.memmove(int(out[i]), packed, len(packed))
            out_sizes[i], statuses[i] = len(packed), 0

    def inflate(self, n: int, data: Any, sizes: Any, work: Any, out: Any, rooms: Any,
                out_sizes: Any, statuses: Any, stream: Any) -> None:  # fmt: skip
        for i in range(n):
            assert int(data[i]) % 4 == int(data[0]) % 4
            statuses[i] = 0
            try:
                plain = zlib.decompress(ctypes.string_at(int(data[i]), int(sizes[i])), -15)
            except zlib.error:
                statuses[i], plain = 12, b""
            ctypes.memmove(int(out[i]), plain[: int(rooms[i])], min(len(plain), int(rooms[i])))
            out_sizes[i] = len(plain)

    def crc32(self, n: int, chunk_bytes: int, data: Any, sizes: Any, checksums: Any,
              stream: Any) -> None:  # fmt: skip
        for i in range(n):
            checksums[i] = zlib.crc32(ctypes.string_at(int(data[i]), int(sizes[i])))


@pytest.fixture(scope="module")
def codec() -> Any:
    if SIMULATED:
        return Zlib()
    if not cuda.is_available():
        pytest.skip("no CUDA device")
    found = nvcomp.load()
    if found is None:
        pytest.skip(f"nvCOMP is not installed: {nvcomp.INSTALL}")
    return found


@pytest.fixture(scope="module", params=[1, 6])
def deflater(codec: Any, request: pytest.FixtureRequest) -> Iterator[DeviceDeflater]:
    with device_deflater(codec, 0, request.param) as opened:
        assert opened is not None
        yield opened


@pytest.fixture(scope="module")
def inflater(codec: Any) -> Iterator[DeviceInflater]:
    with device_inflater(codec, 0) as opened:
        assert opened is not None
        yield opened


def text(n: int, seed: int = 1) -> bytes:
    """Return lines of letters, of which some repeat."""
    rng = np.random.default_rng(seed)
    letters = rng.choice(np.frombuffer(b"ACGT\n", np.uint8), n, p=[0.3, 0.3, 0.2, 0.19, 0.01])
    letters[n // 2 :] = letters[: n - n // 2]
    return letters.tobytes()


def noise(n: int) -> bytes:
    return np.random.default_rng(2).integers(0, 256, n, np.uint8).tobytes()


class Sink:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes | memoryview) -> None:
        self.data += data


def part_of(blocks: bytes, *, count_lines: bool = False) -> BlocksPart:
    """Return the part of a step that whole blocks make, into memory of its own."""
    data = np.frombuffer(b"xyz" + blocks, np.uint8)  # at no special address
    table = block_table(1000)
    n, _ = find_blocks(data, 3, len(data), 1 << 40, table)
    room = memoryview(bytearray(int(table[n - 1, PLAIN_END])))
    return BlocksPart(data, table[:n], room, count_lines)


BLOCK = bgzf.BLOCK_BYTES
PIECES = [
    pytest.param([b"A"], id="one byte"),
    pytest.param([text(BLOCK)], id="a block"),
    pytest.param([text(2 * BLOCK + 1)], id="two blocks and a byte"),
    pytest.param([text(100), text(BLOCK, 3), text(5)], id="blocks that end early"),
    pytest.param([noise(BLOCK), text(BLOCK), noise(BLOCK - 1)], id="what cannot be compressed"),
]


@pytest.mark.parametrize("pieces", PIECES)
def test_blocks_hold_the_data(deflater: DeviceDeflater, pieces: list[bytes]) -> None:
    blocks = bytes(deflater.compress([memoryview(piece) for piece in pieces]))
    assert gzip.decompress(blocks) == b"".join(pieces)
    sizes = [min(BLOCK, len(p) - at) for p in pieces for at in range(0, len(p), BLOCK)]
    starts = bgzf.block_starts(blocks)
    assert [len(gzip.decompress(blocks[a:b])) for a, b in itertools.pairwise(starts)] == sizes
    assert starts[-1] == len(blocks)


def test_large_pieces_in_page_locked_memory_are_fetched(
    deflater: DeviceDeflater, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between others, of which some are as large and some lie in ordinary memory."""
    monkeypatch.setattr(bgzf_cuda, "_LEAST_FETCHED", BLOCK)
    if SIMULATED:  # whose host has no page-locked memory

        def find_page_locked(spans: Any, least: int, found: Any) -> None:
            for i, (address, n) in enumerate(spans.tolist()):
                found[i] = n >= least and ctypes.string_at(address, 1) == b"A"

        monkeypatch.setattr(bgzf_cuda, "find_page_locked", find_page_locked)
    with device_context(0):
        locked = pinned_bytes(2 * BLOCK + 7)
    locked[:] = np.frombuffer(b"A" + text(2 * BLOCK + 6, 4), np.uint8)
    pieces = [memoryview(text(100)), locked.data, memoryview(text(BLOCK, 5)), locked[3:9].data]
    staged = []

    def copy_spans(spans: Any, skipped: Any, *args: Any) -> Any:
        staged.append((~skipped).tolist())
        return bgzf.copy_spans(spans, skipped, *args)

    monkeypatch.setattr(bgzf_cuda, "copy_spans", copy_spans)
    blocks = bytes(deflater.compress(pieces))
    assert gzip.decompress(blocks) == b"".join(pieces)
    assert staged == [[True, False, True, True]]


def test_body_that_grows_is_stored(codec: Any) -> None:
    """Noise takes more than a block of BGZF may have, at the level that makes it so."""
    plain = noise(BLOCK)
    with device_deflater(codec, 0, 0) as opened:
        assert opened is not None
        blocks = bytes(opened.compress([memoryview(plain)]))
    assert gzip.decompress(blocks) == plain
    assert len(blocks) <= 1 << 16


def test_no_memory_leaves_it_to_the_host(codec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little from the start, or taken by others before it is allocated."""
    monkeypatch.setattr(bgzf_cuda, "free_share", lambda: 10**8)
    with device_deflater(codec, 0, 1) as deflater, device_inflater(codec, 0) as inflater:
        assert deflater is None
        assert inflater is None

    def full(*_: object) -> None:
        raise DeviceMemoryError("full")

    monkeypatch.setattr(bgzf_cuda, "free_share", lambda: 10**11)
    monkeypatch.setattr(bgzf_cuda.Workspace, "pinned", full)
    with device_deflater(codec, 0, 1) as deflater, device_inflater(codec, 0) as inflater:
        assert deflater is None
        assert inflater is None


def test_pages_that_cannot_be_locked_any_more(codec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data go through ordinary memory, when a run is under way; locking is tried once a stream."""
    lock = bgzf_cuda.Workspace.pinned
    asked = []

    def few(self: Any, name: str, n: int, dtype: Any) -> np.ndarray:
        if name == "plain" and n > 1 << 20:
            asked.append(n)
            raise DeviceMemoryError("full")
        return lock(self, name, n, dtype)

    monkeypatch.setattr(bgzf_cuda.Workspace, "pinned", few)
    with device_deflater(codec, 0, 1, Streams(1, 100)) as opened:
        assert opened is not None
        for seed in (1, 2):
            plain = text(20 * BLOCK, seed)
            assert gzip.decompress(opened.compress([memoryview(plain)])) == plain
    assert len(asked) == 1


def test_little_memory_is_shared_by_fewer_streams(
    codec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = bgzf_cuda.DEFLATING.n_blocks
    work, slot = codec.deflate_sizes(most, BLOCK, 1)
    of_block = work // most + slot + BLOCK + bgzf.MAX_BLOCK
    streams = bgzf_cuda.DEFLATING.n // 2
    monkeypatch.setattr(bgzf_cuda, "free_share", lambda: 10 * 65 * streams * of_block)
    with device_deflater(codec, 0, 1) as opened:
        assert opened is not None
        assert (opened.least_pending, opened.blocks_per_task) == (2 * streams, 65)


def test_opened_streams_need_no_more_memory(codec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches may have taken what was left, as on a card of 12 GB."""
    plain = text(5 * BLOCK)
    monkeypatch.setattr(bgzf_cuda, "_LEAST_BLOCKS", 1)
    streams = Streams(3, 5)
    with (
        device_deflater(codec, 0, 1, streams) as deflater,
        device_inflater(codec, 0, streams) as inflater,
    ):
        assert deflater is not None
        assert inflater is not None

        def full(*_: object) -> None:
            raise DeviceMemoryError("full")

        monkeypatch.setattr(cuda, "device_array", full)
        blocks = bytes(deflater.compress([memoryview(plain)]))
        part = part_of(blocks, count_lines=True)
        (done,) = inflater.decompress([part])
    assert done.error is None
    assert bytes(part.buffer) == plain


def test_members_of_gzip(inflater: DeviceInflater) -> None:
    """As large as devices take them. What is found and is no member has to be read again."""
    plain = text(20 * DEVICE_BLOCK_BYTES + 5)
    sizes = [DEVICE_BLOCK_BYTES, 17, 90_000, DEVICE_BLOCK_BYTES, 2, DEVICE_BLOCK_BYTES, 1000]
    ends = np.cumsum([0, *sizes]).tolist()
    members = [gzip.compress(plain[a:b], 4, mtime=0) for a, b in itertools.pairwise(ends)]
    odd = bytearray(gzip.compress(plain[:250_000], 4))
    odd[9] = 77  # of an unknown system, which is not looked for
    for foreign in (b"", bytes(odd)):
        parts = [*members[:4], foreign, *members[4:]]
        data = np.frombuffer(b"".join(parts), np.uint8)
        table = block_table(20)
        n, _ = find_members(data, 0, len(data), 1 << 40, table)
        assert n == len(sizes) - 1  # not the last
        room = memoryview(bytearray(int(table[n - 1, PLAIN_END])))
        part = BlocksPart(data, table[:n], room, count_lines=True, origin=Place(3, 7))
        assert 0 < part.n_device_blocks <= inflater.most_blocks
        (done,) = inflater.decompress([part])
        whole = ends[3 if foreign else n]
        assert done.plain_end == whole
        assert bytes(room[:whole]) == plain[:whole]
        if foreign:
            assert isinstance(done.error, ReadAgainError)
            assert done.error.place == Place(3 + whole, 7 + sum(map(len, members[:3])))
        else:
            assert done.error is None
            assert done.blocks is not None
            assert done.blocks[:, N_LINES].sum() == plain[:whole].count(b"\n")


def test_many_small_pieces(deflater: DeviceDeflater) -> None:
    """As of the temporary file of a sort: each begins a block."""
    data = text(60_000)
    sizes = np.random.default_rng(3).integers(1, 900, 90)
    ends = np.cumsum(sizes).tolist()
    pieces = [memoryview(data)[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    spans = bgzf.Spans([(np.frombuffer(data, np.uint8), np.array([0, *ends]))])
    for cut in (pieces, spans):
        blocks = deflater.compress(cut)
        starts = bgzf.block_starts(blocks).tolist()
        found = [gzip.decompress(blocks[a:b]) for a, b in itertools.pairwise(starts)]
        assert found == [bytes(piece) for piece in pieces]


def test_busy_streams_leave_parts_to_the_caller(codec: Any) -> None:
    plain = text(2 * BLOCK)
    blocks = bgzf.compress_blocks(memoryview(plain), bgzf.deflater(1))
    with device_inflater(codec, 0) as opened:
        assert opened is not None
        part = part_of(blocks, count_lines=False)
        done = opened.decompress_if_idle([part])
        assert done is not None
        assert done[0].error is None
        assert bytes(part.buffer) == plain
        lanes = [opened._idle.get_nowait() for _ in range(bgzf_cuda.INFLATING.n)]
        assert opened.decompress_if_idle([part_of(blocks, count_lines=False)]) is None
        out = np.empty(len(plain), np.uint8)
        decompress_blocks(np.frombuffer(blocks, np.uint8), 4, out, opened)
        assert out.tobytes() == plain
        for lane in lanes:
            opened._idle.put(lane)


def test_writer_cuts_blocks_as_the_host_does(deflater: DeviceDeflater) -> None:
    data = text(7 * BLOCK + 12_345)
    offsets, plain = [], []
    with ThreadPoolExecutor(2) as executor:
        for compressor in (None, deflater):
            sink = Sink()
            writer = bgzf.BgzfWriter(sink, executor, compressor)
            writer.append(data[:1000])
            writer.end_block()
            writer.append(data[1000:])
            writer.finish()
            assert sink.data.endswith(bgzf.EOF_BLOCK)
            plain.append(gzip.decompress(sink.data))
            offsets.append(writer.block_offsets)
    assert plain[0] == plain[1] == data
    assert len(offsets[0]) == len(offsets[1])


@pytest.mark.parametrize("level", [0, 1, 6])
@pytest.mark.parametrize("count_lines", [True, False])
def test_parts_are_decompressed(inflater: DeviceInflater, level: int, count_lines: bool) -> None:
    plain = [text(3 * BLOCK + 5), noise(BLOCK), b"\n" * BLOCK + b"A", b"A"]
    deflate = bgzf.deflater(level)
    parts = [
        part_of(bgzf.compress_blocks(memoryview(data), deflate), count_lines=count_lines)
        for data in plain
    ]
    for part, data, done in zip(parts, plain, inflater.decompress(parts), strict=True):
        assert done.error is None
        assert bytes(part.buffer[: done.plain_end]) == data
        if count_lines:
            assert done.blocks is not None
            assert done.blocks[:, N_LINES].sum() == line_ends(np.frombuffer(data, np.uint8))
        else:
            assert done.blocks is None


def test_empty_block_is_left_to_the_host(inflater: DeviceInflater) -> None:
    part = part_of(bgzf.compress_blocks(memoryview(b"AC"), bgzf.deflater(1)) + bgzf.EOF_BLOCK)
    (done,) = inflater.decompress([part])
    assert done.error is None
    assert bytes(part.buffer) == b"AC"


@pytest.mark.parametrize("at", [20, 500, 5000, -8, -6])
def test_damage_is_reported_as_by_the_host(inflater: DeviceInflater, at: int) -> None:
    """A changed byte of a body, a checksum: the same error, and correct bytes before it."""
    good = bgzf.compress_blocks(memoryview(text(BLOCK)), bgzf.deflater(1))
    bad = bytearray(bgzf.compress_blocks(memoryview(text(BLOCK, 5)), bgzf.deflater(1)))
    bad[at] ^= 0x10
    parts = [part_of(good), part_of(good + bytes(bad)), part_of(good)]
    expected = part_of(good + bytes(bad))()
    first, second, third = inflater.decompress(parts)
    assert first.error is None
    assert third.error is None
    assert type(second.error) is type(expected.error)
    assert str(second.error) == str(expected.error)
    assert second.plain_end == expected.plain_end == BLOCK
