"""Call ISA-L from compiled code, with the same result as isal's Python functions."""

from __future__ import annotations

import gzip
import io
import itertools
import zlib

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isal import isal_zlib

from mapper.io import bgzf, bgzf_reader, isal
from mapper.io.input_file import BrokenStreamError, ByteSource

RNG = np.random.default_rng(17)
TEXTS = [
    RNG.bytes(70_000),  # grows when it is compressed
    RNG.integers(65, 69, 70_000).astype(np.uint8).tobytes(),
    bytes(70_000),
]

SLOTS = 1 << 13  # of ISA-L's hash table, level 1

needs_isa_l = pytest.mark.skipif(not isal.AVAILABLE, reason="isal without ISA-L's functions")


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(data), np.uint8)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")
def test_the_wheel_of_isal_has_the_functions():
    """Without them everything works, but slower; where the tests run they must exist."""
    assert isal.AVAILABLE
    assert isal.usable()


@needs_isa_l
def test_functions_that_do_something_else_are_not_used(monkeypatch, caplog):
    isal.usable.cache_clear()
    for name, spoilt in (("deflate", lambda *_: -1), ("inflate", lambda *_: False)):
        with monkeypatch.context() as patch:
            patch.setattr(isal, name, spoilt)
            assert not isal.usable()
        isal.usable.cache_clear()
    assert "unknown version" in caplog.text
    assert isal.usable()


@needs_isa_l
@given(st.integers(0, 2), st.integers(0, 65_536), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_deflate_and_inflate_are_inverse(kind, n, level):
    data = array(TEXTS[kind][:n])
    packed, plain = np.empty(70_000, np.uint8), np.full(n + 8, 7, np.uint8)
    work = isal.workspace()
    size = isal.deflate(data.ctypes.data, n, level, work, packed, 0, len(packed))
    assert zlib.decompress(packed[:size].tobytes(), -15) == data.tobytes()
    assert isal.inflate(packed.ctypes.data, size, work, plain.ctypes.data, n)
    assert plain.tobytes() == data.tobytes() + b"\7" * 8
    assert isal.crc32(data.ctypes.data, n) == zlib.crc32(data)


def crc32c(word: int) -> int:
    """Return the CRC-32C of 4 bytes, from 0, not inverted: x86's instruction, bit by bit."""
    for _ in range(32):
        word = word >> 1 ^ (0x82F63B78 if word & 1 else 0)
    return word


@needs_isa_l
@pytest.mark.parametrize("position", range(3))
def test_a_stream_does_not_depend_on_the_address_of_the_workspace(position):
    """ISA-L hashes the state's address to the slot of one of the first positions."""
    region = np.empty((2 << 16) + isal.WORKSPACE_BYTES, np.uint8)
    slot = crc32c(region.ctypes.data >> 16 & 0xFFFFFFFF) % SLOTS
    start = RNG.bytes(12)
    while crc32c(int.from_bytes(start[position : position + 4], "little")) % SLOTS != slot:
        start = RNG.bytes(12)
    data = array(start + TEXTS[1][:2000] + start[position:] + TEXTS[1][:2000])
    assert len(streams_by_address(region, data)) == 1


@needs_isa_l
@pytest.mark.parametrize("position", [1 << 15, (1 << 15) + 2])
def test_nor_do_words_that_begin_32_kb_into_it(position):
    """The third position's entry stands for the one 32 kB further on, if that has no other."""
    region = np.empty((2 << 16) + isal.WORKSPACE_BYTES, np.uint8)
    slot = crc32c(region.ctypes.data >> 16 & 0xFFFFFFFF) % SLOTS
    word = b""
    while crc32c(int.from_bytes(word, "little")) % SLOTS != slot:
        one, other = RNG.bytes(20), RNG.bytes(20)
        word = one[-2:] + other[:2]
    data = np.zeros(40_000, np.uint8)
    data[:8] = array(RNG.bytes(8))
    data[1000:1020], data[2000:2020] = array(one), array(other)
    # Across the bounds of two matches: ISA-L makes no entry for it.
    data[position - 18 : position + 22] = array(one + other)
    data[35_000:35_004] = array(word)
    assert len(streams_by_address(region, data)) == 1


def streams_by_address(region: np.ndarray, data: np.ndarray) -> set[bytes]:
    """Return the streams of data by workspaces at three addresses of a region."""
    streams = set()
    for at in (0, 1 << 16, 2 << 16):
        packed = np.empty(70_000, np.uint8)
        work = region[at : at + isal.WORKSPACE_BYTES]
        size = isal.deflate(data.ctypes.data, len(data), 1, work, packed, 0, len(packed))
        streams.add(packed[:size].tobytes())
        assert zlib.decompress(packed[:size].tobytes(), -15) == data.tobytes()
    return streams


@needs_isa_l
@pytest.mark.parametrize("n", [8, 40, 100, 126, 300, 1000, 5000])
def test_short_streams_do_not_depend_on_it_either(n):
    """ISA-L's table has as few slots as a short input has bytes: any address may share one."""
    unit = RNG.bytes(n // 3)
    data = array((unit * 4)[:n])
    region = np.empty((600 << 16) + isal.WORKSPACE_BYTES, np.uint8)
    streams = set()
    for at in range(0, 600 << 16, 1 << 16):
        packed = np.empty(70_000, np.uint8)
        work = region[at : at + isal.WORKSPACE_BYTES]
        size = isal.deflate(data.ctypes.data, n, 1, work, packed, 0, len(packed))
        streams.add(packed[:size].tobytes())
    assert len(streams) == 1
    assert zlib.decompress(streams.pop(), -15) == data.tobytes()


@needs_isa_l
def test_no_byte_is_written_beyond_the_room():
    data, work = array(TEXTS[1][:60_000]), isal.workspace()
    packed = np.full(70_000, 7, np.uint8)
    size = isal.deflate(data.ctypes.data, len(data), 1, work, packed, 100, 50_000)
    assert (packed[:100] == 7).all()
    assert (packed[50_000:] == 7).all()
    for room in (0, 1, 8, 100, size - 1):
        out = np.full(70_000, 7, np.uint8)
        assert isal.deflate(data.ctypes.data, len(data), 1, work, out, 0, room) == -1
        assert (out[room:] == 7).all()
    stream = packed[100 : 100 + size].copy()
    for n in (0, 1, 59_999, 60_001):
        out = np.full(70_000, 7, np.uint8)
        assert not isal.inflate(stream.ctypes.data, size, work, out.ctypes.data, n)
        assert (out[n:] == 7).all()


@needs_isa_l
def test_damaged_streams_stay_in_their_place():
    data, work = array(TEXTS[1][:3_000]), isal.workspace()
    packed = np.frombuffer(bytearray(isal_zlib.compress(data, 1, -15)), np.uint8)
    refused = 0
    for i in range(len(packed)):
        damaged = packed.copy()
        damaged[i] ^= RNG.integers(1, 256)
        out = np.full(4_000, 7, np.uint8)
        ok = isal.inflate(damaged.ctypes.data, len(damaged), work, out.ctypes.data, len(data))
        refused += not ok
        assert (out[len(data) :] == 7).all()
    assert refused > 50  # that it is no longer the same data, the check sum tells


@pytest.mark.parametrize("usable", [True, False])
def test_pieces_by_their_addresses(monkeypatch, usable):
    if not usable:
        monkeypatch.setattr(isal, "usable", lambda: False)
    data, bounds = TEXTS[1], np.array([0, 100, 100, 70_000])
    pieces = [memoryview(data)[first:end] for first, end in itertools.pairwise(bounds)]
    compress = bgzf.compressor(1)
    spans = bgzf.Spans([(np.frombuffer(data, np.uint8), bounds)])
    assert bytes(compress(spans)) == bytes(compress(pieces))


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("n", [1, 65_280, 65_281, 200_000])
def test_blocks_without_them(monkeypatch, tmp_path, level, n):
    """isal's Python functions give the same plain bytes and the same errors."""
    data = (TEXTS[level % 3] * 3)[:n]
    compiled = bytes(bgzf.compressor(level)([memoryview(data)]))
    path = tmp_path / "x.gz"
    path.write_bytes(compiled)
    monkeypatch.setattr(isal, "usable", lambda: False)
    plainly = bytes(bgzf.compressor(level)([memoryview(data)]))
    assert gzip.decompress(plainly) == gzip.decompress(compiled) == data
    assert block_lengths(plainly) == block_lengths(compiled)
    source, buffer = ByteSource(str(path)), bytearray(300_000)
    got = source.readinto(memoryview(buffer))
    source.close()
    assert buffer[:got] == data
    damaged = bytearray(compiled)
    damaged[-5] ^= 1  # the length of the last block
    path.write_bytes(damaged)
    for available in (False, True):
        used = available and not numba.config.DISABLE_JIT
        monkeypatch.setattr(isal, "usable", lambda used=used: used)
        source = ByteSource(str(path))
        with pytest.raises(BrokenStreamError):
            while source.readinto(memoryview(buffer)):
                pass
        source.close()


def block_lengths(packed: bytes) -> list[int]:
    data, blocks = array(packed), bgzf_reader.block_table(100)
    n, why = bgzf_reader.find_blocks(data, 0, len(data), 1 << 30, blocks)
    assert why == bgzf_reader.MORE
    assert blocks[n - 1, bgzf_reader.END] == len(packed)
    return list(np.diff(blocks[:n, [bgzf_reader.PLAIN_START, bgzf_reader.PLAIN_END]]).ravel())


@pytest.mark.parametrize("buffer_bytes", [7, 1 << 16])
@pytest.mark.parametrize("cut_off", [0, 9])
def test_gzip_is_read_the_same_without_isals_own_reader(monkeypatch, buffer_bytes, cut_off):
    """Members, one of them empty, followed by zeros; or the last member cut off."""
    zipped = b"".join(gzip.compress(text) for text in (TEXTS[1], b"", TEXTS[2]))
    zipped = zipped[:-cut_off] if cut_off else zipped + bytes(20)

    def read() -> tuple[bytes, str]:
        source = ByteSource.of_stream(io.BytesIO(zipped), "x")
        found, buffer = b"", bytearray(buffer_bytes)
        try:
            while n := source.readinto(memoryview(buffer)):
                found += buffer[:n]
        except BrokenStreamError as error:
            return found, str(error)
        return found, ""

    # Where it is missing reading is slower: here that must not pass unseen.
    assert hasattr(isal_zlib, "_GzipReader")
    text, error = read()
    monkeypatch.delattr(isal_zlib, "_GzipReader")
    other_text, other_error = read()
    assert error == other_error
    assert bool(error) == bool(cut_off)
    # Of what comes before the end of a broken file, the one may give more than the other.
    plain = TEXTS[1] + TEXTS[2]
    assert plain.startswith(text) and plain.startswith(other_text)
    assert cut_off or text == other_text == plain
