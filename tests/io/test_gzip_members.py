"""Files of many gzip members are read as gzip reads them, by several threads where they are found.

The members are found by their headers. Whatever is not found, one thread reads.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.io.bgzf_reader import DEVICE_BLOCK_BYTES, BlocksPart, Done, SharedInflating, Step
from mapper.io.fastq import FastqReader
from mapper.io.gzip_members import (
    HEADER_BYTES,
    MOST_PLAIN,
    MemberStream,
    body_start,
    largest_member,
)
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import BrokenStreamError, ByteSource

ODD = 77
LETTERS = np.frombuffer(b"ACGT\n", np.uint8)
TEXT = np.random.default_rng(5).choice(LETTERS, 4_000_000).tobytes()


def member(
    text: bytes, *, time: int = 0, level: int = 1, extra: bytes | None = None,
    name: bytes | None = None, comment: bytes | None = None, check: bool = False,
    system: int = 255,
) -> bytes:  # fmt: skip
    """Return a gzip member with any of a header's fields.

    One of an unknown `system` is valid, but not found, so that it is taken for a part of the member
    before it.
    """
    flags = 2 * check + 4 * (extra is not None) + 8 * (name is not None)
    flags += 16 * (comment is not None)
    header = struct.pack("<BBBBIBB", 31, 139, 8, flags, time, 0, system)
    if extra is not None:
        header += struct.pack("<H", len(extra)) + extra
    for field in (name, comment):
        header += b"" if field is None else field + b"\0"
    if check:
        header += struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return (
        header + packer.compress(text) + packer.flush()
        + struct.pack("<II", zlib.crc32(text), len(text))
    )  # fmt: skip


def members(text: bytes, size: int, **fields: Any) -> bytes:
    return b"".join(member(text[at : at + size], **fields) for at in range(0, len(text), size))


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(3) as threads:
        yield threads


def read_all(path: Path, executor: Executor | None, size: int = 100_000) -> bytes:
    source = ByteSource(str(path), executor, finds_members=True)
    data, buffer = b"", bytearray(size)
    try:
        while n := source.readinto(memoryview(buffer)):
            data += buffer[:n]
    finally:
        source.close()
    return data


KINDS = {
    "plain": {}, "stored": {"level": 0}, "later": {"time": 1 << 30}, "named": {"name": b"reads.fq"},
    "odd": {"system": ODD},
}  # fmt: skip


@given(
    st.lists(
        st.tuples(st.sampled_from([*["plain"] * 6, *KINDS, "zeros"]), st.integers(0, 90_000)),
        max_size=20,
    ),
    st.sampled_from([999, 70_000, 1 << 20]),
)
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_members(tmp_path, pool, parts, size):
    """Draw members with different headers, and zeros between them."""
    packed, at = members(TEXT[:3000], 1000), 3000
    for kind, n in parts:
        if kind == "zeros":
            packed += bytes(n % 600)
        else:
            packed += member(TEXT[at : at + n], **KINDS[kind])
            at += n
    path = tmp_path / "x.gz"
    path.write_bytes(packed)
    assert read_all(path, pool, size) == gzip.decompress(packed)


FIELDS = [
    dict(zip(("extra", "name", "comment", "check"), drawn, strict=True))
    for drawn in product(
        (None, b"", b"XY\2\0ab"), (None, b"", b"a.fq"), (None, b"c"), (False, True)
    )
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_any_header(tmp_path, pool, fields):
    text = TEXT[:50_000]
    packed = members(text, 5000, **fields)
    assert largest_member(packed) == 5000
    whole = len(member(b"", **fields)) - len(member(b"")) + HEADER_BYTES
    data = np.frombuffer(packed, np.uint8)
    assert body_start(data, 0, len(data)) == whole
    assert not any(body_start(data, 0, end) for end in range(whole))
    path = tmp_path / "x.gz"
    path.write_bytes(packed)
    assert read_all(path, pool) == text


@pytest.mark.parametrize(
    "packed",
    [
        b"", b"\x1f", b"\x1f\x8b\x08", b"@r\nACGT\n+\nIIII\n", member(TEXT[:1000]),
        member(TEXT[:1000]) + member(TEXT[:10], system=ODD), member(b"")[:-1] + b"\1",
        member(bytes(MOST_PLAIN + 1)) + member(b"A") * 2,
    ],
    ids=["empty", "byte", "start", "text", "one", "other", "size", "large"],
)  # fmt: skip
def test_what_is_no_such_file(packed):
    assert largest_member(packed) == 0


def test_threads_decompress(tmp_path, pool):
    path = tmp_path / "x.gz"
    for packed, executor, kind in (
        (members(TEXT, 300_000), pool, MemberStream),
        (members(TEXT, 300_000), None, type(None)),
        (member(TEXT), pool, type(None)),
    ):
        path.write_bytes(packed)
        source = ByteSource(str(path), executor, finds_members=True)
        buffer = memoryview(bytearray(len(TEXT)))
        step = source.begin(buffer)
        assert type(source._blocks) is kind
        assert not source.is_bgzf
        assert len(step.parts) == (1 if kind is MemberStream else 0)
        source.close()


@pytest.mark.parametrize("batch_bases", [4000, 2000])
def test_members_are_no_larger_than_a_batch(tmp_path, pool, batch_bases):
    """With little memory batches are small, and members may not take more."""
    records = [b"@r%d\nACGTACGTAC\n+\nIIIIIIIIII\n" % i for i in range(3000)]
    path = tmp_path / "x.fq.gz"
    path.write_bytes(b"".join(member(b"".join(records[i : i + 200])) for i in range(0, 3000, 200)))
    source = ByteSource(str(path), pool, finds_members=True)
    source.keep_places()
    assert 4000 < source.member_bytes < 8000
    reader = FastqReader([source], False, batch_bases, 6000, executor=pool)
    n_reads = 0
    while (batch := reader.next_batch()) is not None:
        n_reads += batch.n_reads
    assert n_reads == 3000
    place = source.position(source.n_plain).place
    assert (place.packed > 0) == (batch_bases == 4000)
    reader.close()


def test_a_large_member_between_small_ones(tmp_path, pool):
    text = bytes(MOST_PLAIN + 1)
    packed = members(TEXT[:9000], 1000) + member(text) + members(TEXT[:9000], 1000)
    path = tmp_path / "x.gz"
    path.write_bytes(packed)
    assert read_all(path, pool, 1 << 20) == TEXT[:9000] + text + TEXT[:9000]


def read_with_error(path: Path, executor: Executor | None) -> tuple[bytes, str]:
    """Return the bytes of a file, and why it cannot be read further."""
    source = ByteSource(str(path), executor, finds_members=True)
    buffer, got, why = bytearray(300), b"", ""
    try:
        while n := source.readinto(memoryview(buffer)):
            got += buffer[:n]
    except BrokenStreamError as error:
        why = str(error)
    source.close()
    return got, why


def test_every_damaged_byte(tmp_path, pool):
    """What is handed out, and the error, are those of one thread."""
    whole = members(TEXT[:4000], 1000)
    second = len(members(TEXT[:1000], 1000))
    path = tmp_path / "x.gz"
    n_errors = 0
    for i in range(second, 2 * second):
        data = bytearray(whole)
        data[i] ^= 0x55
        path.write_bytes(data)
        got, why = read_with_error(path, pool)
        expected = read_with_error(path, None)
        assert why == expected[1]
        # What is read at a time may differ, and with it how much comes before the error.
        assert got.startswith(expected[0]) or (why and expected[0].startswith(got))
        n_errors += bool(why)
    assert n_errors > 0.9 * second


def test_every_truncation(tmp_path, pool):
    whole = members(TEXT[:500], 100)
    ends = [len(members(TEXT[:n], 100)) for n in range(100, 500, 100)]
    path = tmp_path / "x.gz"
    for n in range(ends[0] + 1, len(whole)):
        path.write_bytes(whole[:n])
        if n in ends:
            assert read_all(path, pool) == TEXT[: 100 * (1 + ends.index(n))]
            continue
        with pytest.raises(BrokenStreamError, match="end early"):
            read_all(path, pool)


def test_a_header_inside_a_member(tmp_path, pool):
    """A stored block may hold the bytes of a header, behind such of a possible size."""
    inside = struct.pack("<II", 1, 60) + member(b"x")[:HEADER_BYTES]
    text = TEXT[:60] + inside + TEXT[:40]
    path = tmp_path / "x.gz"
    path.write_bytes(member(text, level=0) + members(TEXT[:3000], 1000))
    source = ByteSource(str(path), pool, finds_members=True)
    assert source.member_bytes == 1000
    source.close()
    assert read_all(path, pool) == text + TEXT[:3000]


def test_no_member_is_skipped(tmp_path, pool):
    """What stands between a member and the next header may end as the member does."""
    path = tmp_path / "x.gz"
    one = member(TEXT[:5000])
    path.write_bytes(one + member(TEXT[:5000], system=ODD) + members(TEXT[:9000], 1000))
    assert read_all(path, pool) == TEXT[:5000] * 2 + TEXT[:9000]
    path.write_bytes(one + one[-500:] + members(TEXT[:9000], 1000))
    for executor in (None, pool):
        got, why = read_with_error(path, executor)
        assert "other bytes follow" in why
        assert TEXT[:5000].startswith(got)


def test_a_file_that_stands_elsewhere(tmp_path, pool, monkeypatch):
    """Standard input may be a file of which another program has read a part."""
    path = tmp_path / "x.gz"
    first = member(TEXT[:7000])
    odd = member(TEXT[20_000:21_000], system=ODD)
    path.write_bytes(
        first + members(TEXT[7000:20_000], 1000) + odd + members(TEXT[21_000:90_000], 1000)
    )
    with path.open("rb", buffering=0) as file:
        file.seek(len(first))
        monkeypatch.setattr("mapper.io.input_file._open_raw", lambda *_: file)
        source = ByteSource("-", pool, finds_members=True)
        assert source.peek(4) == TEXT[7000:7004]
        assert source.member_bytes == 0
        data, buffer = b"", bytearray(5000)
        while n := source.readinto(memoryview(buffer)):
            data += buffer[:n]
    assert data == TEXT[7000:90_000]


def test_looking_at_the_start_reads_little(tmp_path, pool):
    path = tmp_path / "x.gz"
    for packed in (member(b"@") * 3 + members(TEXT, 300_000), member(b"@r")[:-9], b"\x1f\x8b"):
        path.write_bytes(packed)
        source = ByteSource(str(path), pool, finds_members=True)
        assert source.peek(4) == read_with_error(path, None)[0][:4]
        assert source._stream is None
        source.close()


@pytest.mark.parametrize("n_plain", [0, 1, 999_999, 2_000_000, len(TEXT)])
def test_reading_goes_on_at_a_member(tmp_path, pool, n_plain):
    path = tmp_path / "x.gz"
    path.write_bytes(members(TEXT, 300_000))
    first = ByteSource(str(path), pool, finds_members=True)
    first.keep_places()
    buffer = memoryview(bytearray(500_000))
    while first.n_plain < n_plain:
        first.readinto(buffer[: n_plain - first.n_plain])
    position = first.position(n_plain)
    first.close()
    assert n_plain - 500_000 - 300_000 <= position.place.plain <= n_plain
    second = ByteSource(str(path), pool, finds_members=True)
    second.keep_places()
    second.peek(4)
    second.go_to(position)
    assert second._places is not None
    assert second._places[0] == position.place
    rest = b""
    while n := second.readinto(buffer):
        rest += buffer[:n]
    second.close()
    assert rest == TEXT[n_plain:]


class Device:
    """Threads in the place of a device that decompresses blocks."""

    def __init__(self, executor: Executor, most_blocks: int) -> None:
        self.executor = executor
        self.most_blocks, self.blocks_ahead = most_blocks, 2 * most_blocks
        self.n_done = 0

    def memory(self, n_bytes: int) -> np.ndarray:
        return np.empty(n_bytes, np.uint8)

    def decompress(self, parts: Sequence[BlocksPart]) -> list[Done]:
        assert 0 < sum(part.n_device_blocks for part in parts) <= self.most_blocks
        done = [part() for part in parts]
        self.n_done += len(parts)
        return done


class AtOnce(Executor):
    def submit(self, function, /, *args, **kwargs):
        function(*args, **kwargs)


def read_buffer(
    path: Path,
    pool: Executor,
    executor: Executor | None,
    inflating: SharedInflating | None = None,
    ahead: int = 200_000,
) -> tuple[bytes, int, str]:
    """Return the bytes of a file by steps, its line ends, and why it cannot be read further."""
    source = ByteSource(str(path), pool, finds_members=True)
    source.count_lines()
    buffer = InputBuffer(source, 20_000, executor, ahead, inflating)
    got, n_lines, ended = b"", 0, False
    while not ended:
        view, ended = buffer.unread(30_000)
        view = view if ended else view[:30_000]
        n_lines += buffer.line_ends(view)
        got += buffer.take(len(view)).tobytes()
    why = "" if buffer.broken is None else str(buffer.broken)
    buffer.close()
    return got, n_lines, why


def faulty_file(path: Path, rng: np.random.Generator) -> tuple[bytes, bool]:
    """Write 100 members, with an odd one between them or a damaged bit; return their text."""
    parts = [member(TEXT[i : i + 7000]) for i in range(0, 700_000, 7000)]
    place, odd = int(rng.integers(100)), bool(rng.integers(2))
    text = TEXT[:700_000]
    if odd:
        inserted = TEXT[: rng.integers(8000)]
        parts.insert(place, member(inserted, system=ODD))
        text = text[: 7000 * place] + inserted + text[7000 * place :]
    else:
        broken = bytearray(parts[place])
        broken[rng.integers(20, len(broken))] ^= 0x10
        parts[place] = bytes(broken)
    path.write_bytes(b"".join(parts))
    return text, odd


@pytest.mark.parametrize("ahead", [None, 200_000, 1 << 22])
def test_steps_go_back_to_a_member_that_is_none(tmp_path, pool, ahead):
    """With the largest number the last member, which only one thread reads, has been begun."""
    path = tmp_path / "x.gz"
    rng = np.random.default_rng(11)
    n_odd = 0
    for _ in range(40):
        text, odd = faulty_file(path, rng)
        n_odd += odd
        executor = None if ahead is None else pool
        got, n_lines, why = read_buffer(path, pool, executor, ahead=ahead or 0)
        assert why == read_with_error(path, None)[1]
        assert bool(why) != odd
        assert n_lines == got.count(b"\n")
        assert why or got == text
    assert 10 < n_odd < 30


class Delayed(Executor):
    """Tasks that a test runs when it likes."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], object]] = []

    def submit(self, function, /, *args, **kwargs):
        self.tasks.append(function)


@pytest.mark.parametrize("seed", range(8))
def test_going_back_between_any_two_steps_loses_nothing(tmp_path, pool, monkeypatch, seed):
    """Other threads finish parts after a thread was to begin a step, and while it gets memory."""
    rng = np.random.default_rng(seed)
    tasks = Delayed()
    n_met = 0

    class Raced(InputBuffer):
        def _begin_step(self) -> None:
            self.of_others()
            super()._begin_step()

        def of_others(self) -> None:
            nonlocal n_met
            before = self._n_again
            for _ in range(rng.integers(8) if rng.random() < 0.3 else 0):
                self._do_part()
            n_met += self._n_again != before

    def memory(n_bytes: int) -> np.ndarray:
        if raced:
            raced[0].of_others()
        return np.empty(n_bytes, np.uint8)

    path = tmp_path / "x.gz"
    for _ in range(40):
        raced: list[Raced] = []
        text, odd = faulty_file(path, rng)
        source = ByteSource(str(path), pool, finds_members=True)
        source.count_lines()
        source.keep_places()
        buffer = Raced(source, 20_000, tasks, 60_000, memory=memory)
        raced.append(buffer)
        got, ended, half, earlier = b"", False, b"", source.position(0)
        while not ended:
            for task in tasks.tasks[:]:
                if rng.random() < 0.5:
                    tasks.tasks.remove(task)
                    task()
            view, ended = buffer.unread(30_000)
            n = len(view) if ended else int(rng.integers(1, len(view) + 1))
            assert buffer.line_ends(view[:n]) == view[:n].tobytes().count(b"\n")
            got += buffer.take(n).tobytes()
            position = source.position(len(got))
            assert position.place.plain <= len(got)
            if len(got) < len(text) // 2:
                earlier, half = position, got
        why = "" if buffer.broken is None else str(buffer.broken)
        assert why == read_with_error(path, None)[1]
        assert got == text if odd else why
        buffer.close()
        tasks.tasks.clear()
        if odd:
            again = ByteSource(str(path), pool, finds_members=True)
            again.go_to(earlier)
            room = memoryview(bytearray(len(text)))
            while n := again.readinto(room):
                half += room[:n]
            again.close()
            assert half == text
    assert n_met > 0


def test_a_device_leaves_large_members_to_threads(tmp_path, pool):
    path = tmp_path / "x.gz"
    text, sizes = TEXT * 3, [50_000] * 80 + [2 * DEVICE_BLOCK_BYTES] * 2
    data, at = b"", 0
    for size in sizes * 3:
        data += member(text[at : at + size])
        at += size
    path.write_bytes(data + member(text[at:]))
    device = Device(AtOnce(), 64)
    found = read_buffer(path, pool, AtOnce(), SharedInflating(device, pool))
    assert found == (text, text.count(b"\n"), "")
    assert device.n_done > 0


def test_every_member_has_room(tmp_path, pool):
    """None is decompressed by the thread that begins a step, but for the last."""
    path = tmp_path / "x.gz"
    path.write_bytes(members(TEXT, 190_000))
    n_inline = 0

    class Counting(ByteSource):
        def begin(self, buffer: memoryview) -> Step:
            nonlocal n_inline
            step = super().begin(buffer)
            n_inline += step.n_bytes * (not step.parts)
            return step

    source = Counting(str(path), pool, finds_members=True)
    buffer = InputBuffer(source, 200_000, pool, 500_000, None, least_step=source.member_bytes)
    got, ended = b"", False
    while not ended:
        view, ended = buffer.unread(30_000)
        got += buffer.take(len(view) if ended else 30_000).tobytes()
    buffer.close()
    assert got == TEXT
    assert n_inline == len(TEXT) % 190_000


def test_a_late_part_of_a_dropped_step_spoils_nothing(tmp_path, pool):
    text = TEXT[:100_000]
    path = tmp_path / "x.gz"
    path.write_bytes(
        members(text[:21_000], 7000) + member(text[21_000:22_000], system=ODD)
        + members(text[22_000:], 7000)
    )  # fmt: skip
    source = ByteSource(str(path), pool, finds_members=True)
    buffer = InputBuffer(source, 20_000, Delayed(), 400_000)
    for _ in range(5):
        buffer._is_beginning = True
        buffer._begin_step()
    step, part = buffer._parts.pop()
    while not buffer._n_again:
        buffer._do_part()
    view, _ = buffer.unread(70_000)
    step.part_done(part())
    assert view.tobytes() == text[: len(view)]
    while not (found := buffer.unread(100_001))[1]:
        pass
    assert found[0].tobytes() == text
    buffer.close()


@pytest.mark.parametrize("order", [1, -1])
def test_two_parts_that_fail_at_one_place(tmp_path, pool, order):
    """The first of them counts, whichever is done first: an empty member, then one that is none."""
    wrong = bytearray(member(b""))
    wrong[-8] ^= 1  # the checksum
    path = tmp_path / "x.gz"
    path.write_bytes(
        members(TEXT[:63_000], 1000) + wrong + member(TEXT[:1000])
        + member(TEXT[:500], system=ODD) + members(TEXT[:9000], 1000)
    )  # fmt: skip
    source = ByteSource(str(path), pool, finds_members=True)
    buffer = InputBuffer(source, 1 << 20, Delayed())
    buffer._is_beginning = True
    buffer._begin_step()
    assert len(buffer._parts) == 2
    buffer._parts.rotate(order == -1)
    got, ended = b"", False
    while not ended:
        view, ended = buffer.unread(1)
        got += buffer.take(len(view)).tobytes()
    assert got == TEXT[:63_000]
    assert str(buffer.broken) == read_with_error(path, None)[1]
    buffer.close()


@pytest.mark.parametrize("size", [50_000, DEVICE_BLOCK_BYTES, DEVICE_BLOCK_BYTES + 1])
def test_a_device_takes_members_that_are_not_large(tmp_path, pool, size):
    path = tmp_path / "x.gz"
    text = TEXT * 3
    path.write_bytes(members(text, size))
    device = Device(AtOnce(), 64)
    found = read_buffer(path, pool, AtOnce(), SharedInflating(device, pool))
    assert found == (text, text.count(b"\n"), "")
    assert (device.n_done > 0) == (size <= DEVICE_BLOCK_BYTES)
