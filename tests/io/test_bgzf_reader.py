"""Read BGZF streams like gzip, for any blocks, threads and reads."""

from __future__ import annotations

import gzip
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.io.bgzf import EOF_BLOCK, compress_block, deflater
from mapper.io.bgzf_reader import BLOCK_ERRORS, decompress_blocks, is_bgzf
from mapper.io.input_file import BrokenStreamError, ByteSource

DATA = np.random.default_rng(3).integers(65, 75, 700_000).astype(np.uint8).tobytes()


def block(data: bytes) -> bytes:
    return compress_block(memoryview(data), deflater(1))


@pytest.fixture(scope="module")
def executors():
    """Yield None, and pools that include the reader's own thread."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(3) as three:
        yield None, one, three


def read_all(path: Path, executor: Executor | None = None, size: int = 100_000) -> bytes:
    def read() -> bytes:
        source = ByteSource(str(path), executor)
        data = b""
        buffer = bytearray(size)
        while n := source.readinto(memoryview(buffer)):
            data += buffer[:n]
        source.close()
        return data

    return read() if executor is None else executor.submit(read).result()


@given(
    st.lists(st.tuples(st.sampled_from("bbbbgez"), st.integers(0, 65_280)), max_size=40),
    st.integers(0, 2),
    st.sampled_from([1, 999, 70_000, 1 << 20]),
)
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_members(tmp_path, executors, members, threads, size):
    """Draw BGZF blocks mixed with other gzip members and empty blocks."""
    at = 0
    packed = block(b"start")
    for kind, n in members:
        part = DATA[at : at + n] if size > 1 else DATA[at : at + n % 50]
        at = (at + n) % 600_000
        packed += {
            "b": block, "g": gzip.compress, "e": lambda _: EOF_BLOCK,
            "z": lambda data: gzip.compress(data, 0),
        }[kind](part)  # fmt: skip
    path = tmp_path / "x.gz"
    path.write_bytes(packed)
    assert read_all(path, executors[threads], size) == gzip.decompress(packed)


def test_a_block_larger_than_the_array_is_refused():
    packed = np.frombuffer(block(DATA[:5000]), np.uint8)
    memory = np.zeros(6000, np.uint8)
    decompress_blocks(packed, 1, memory[:5000])
    assert memory[:5000].tobytes() == DATA[:5000]
    memory[:] = 0
    with pytest.raises(BLOCK_ERRORS):
        decompress_blocks(packed, 1, memory[:1000])
    assert not memory[1000:].any()


def test_last_block(tmp_path):
    path = tmp_path / "x.gz"
    for end, empty in ((EOF_BLOCK, True), (b"", False), (block(b"x"), False)):
        path.write_bytes(block(b"a") * 5 + end)
        source = ByteSource(str(path))
        while source.readinto(memoryview(bytearray(100))):
            pass
        assert source.is_bgzf
        assert source.ends_with_eof_block == empty
        source.close()


def test_broken_blocks(tmp_path):
    """The bytes before the error are right, whichever byte is damaged."""
    whole = block(DATA[:1000]) + block(DATA[1000:2000]) + EOF_BLOCK
    path = tmp_path / "x.gz"
    for i in [*range(0, 60), *range(len(whole) - 90, len(whole))]:
        data = bytearray(whole)
        data[i] ^= 0x55
        path.write_bytes(data)
        got = b""
        try:
            source = ByteSource(str(path))
            buffer = bytearray(300)
            while n := source.readinto(memoryview(buffer)):
                got += buffer[:n]
            # The bits of a gzip header that say nothing of the data, or no gzip at all.
            assert got == DATA[:2000] or bytes(data[:2]) != b"\x1f\x8b"
        except BrokenStreamError as error:
            assert "gzip data" in str(error)
            assert DATA[:2000].startswith(got)
        source.close()


def test_what_stands_before_a_broken_block_is_handed_out(tmp_path, executors, monkeypatch):
    """One damaged block among those of several tasks."""
    monkeypatch.setattr("mapper.io.bgzf_reader.BLOCKS_PER_TASK", 16)
    blocks = [block(DATA[i : i + 5000]) for i in range(0, 300_000, 5000)]
    damaged = bytearray(blocks[40])
    damaged[-6] ^= 1  # the check sum
    path = tmp_path / "x.gz"
    path.write_bytes(b"".join([*blocks[:40], damaged, *blocks[41:]]))
    for executor in (None, *executors[1:]):
        source = ByteSource(str(path), executor)
        buffer = bytearray(1 << 20)
        n = source.readinto(memoryview(buffer))
        assert buffer[:n] == DATA[: 40 * 5000]
        with pytest.raises(BrokenStreamError, match="CRC"):
            source.readinto(memoryview(buffer))
        source.close()


def test_every_truncation(tmp_path):
    whole = block(DATA[:100]) + block(DATA[100:200])
    first = len(block(DATA[:100]))
    path = tmp_path / "x.gz"
    for n in range(18, len(whole)):
        path.write_bytes(whole[:n])
        if n == first:
            assert read_all(path) == DATA[:100]
            continue
        with pytest.raises(BrokenStreamError, match="end early"):
            read_all(path)


def test_peek_takes_nothing(tmp_path):
    path = tmp_path / "x"
    for data in (block(b"abcdef"), b"abcdef", gzip.compress(b"abcdef")):
        path.write_bytes(data)
        for n in (1, 4, 6, 100):
            source = ByteSource(str(path))
            assert source.peek(n) == b"abcdef"[:n]
            buffer = bytearray(10)
            got = b""
            while k := source.readinto(memoryview(buffer)):
                got += buffer[:k]
            assert got == b"abcdef"
            source.close()


def test_is_bgzf():
    assert is_bgzf(EOF_BLOCK[:18])
    assert is_bgzf(block(b"x")[:18])
    assert not is_bgzf(gzip.compress(b"x")[:18])
    assert not is_bgzf(b"")
    # Another extra field, of the same length.
    assert not is_bgzf(EOF_BLOCK[:12] + b"XX" + EOF_BLOCK[14:18])
