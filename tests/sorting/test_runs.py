"""Sort runs in memory and in the temporary file: always the order of a plain stable sort."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from random import random
from threading import Event
from time import sleep

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.errors import OutputError
from mapper.io import bgzf
from mapper.io.bgzf_reader import BlocksPart, Done
from mapper.sorting import runs
from mapper.sorting.merge import SPARE_BYTES
from mapper.sorting.ranges import LEAST_RANGE_BYTES, RANGE_BYTES, range_bytes
from mapper.sorting.record_order import stable_order
from mapper.sorting.runs import RecordSorter, run_of_bytes
from mapper.sorting.spill_file import SpillFile


def record(ref: int, pos: int, reverse: int, number: int) -> bytes:
    """Return a BAM record without bases, of a size that varies."""
    name = f"r{number}".encode() + b"\0"
    flag = 16 * reverse
    fields = (ref, pos, len(name), 0, 0, 0, flag, 0, -1, -1, 0)
    body = struct.pack("<iiBBHHHiiii", *fields) + name + bytes(number * 7 % 50)
    return struct.pack("<i", len(body)) + body


def plain_key(data: bytes) -> tuple[int, int, int]:
    ref, pos = struct.unpack_from("<ii", data, 4)
    (flag,) = struct.unpack_from("<H", data, 18)
    return ref if ref >= 0 else 1 << 31, pos, flag >> 4 & 1


@st.composite
def batches(draw: st.DrawFn) -> list[list[bytes]]:
    seed = draw(st.integers(0, 1 << 32))
    most_pos = draw(st.sampled_from([1, 3, 50, 1 << 28]))
    rng = np.random.default_rng(seed)
    number = 0
    result = []
    for size in draw(st.lists(st.integers(0, 150), max_size=9)):
        part = []
        for _ in range(size):
            ref = int(rng.integers(-1, 3))
            pos = -1 if ref < 0 else int(rng.integers(0, most_pos))
            part.append(record(ref, pos, int(rng.integers(0, 2)), number))
            number += 1
        result.append(part)
    return result


class SlowWrites(ThreadPoolExecutor):
    """Waits now and then before it writes to the temporary file."""

    def submit(self, fn, /, *args, **kwargs):
        if isinstance(fn, partial) and getattr(fn.func, "__func__", None) is SpillFile.write:
            return super().submit(lambda: (sleep(random() / 100), fn())[1])
        return super().submit(fn, *args, **kwargs)


class Device:
    """Compresses small groups of blocks, and decompresses when it is idle, every second time."""

    blocks_per_task, least_pending, level = 3, 2, 1
    most_blocks = 50

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._compress = bgzf.compressor(1)
        self.n_asked = 0

    def compress(self, pieces: Sequence[memoryview]) -> bytes | memoryview:
        assert sum(-(-len(piece) // bgzf.BLOCK_BYTES) for piece in pieces) <= self.blocks_per_task
        return self._compress(pieces)

    def memory(self, n_bytes: int) -> np.ndarray:
        return np.empty(n_bytes, np.uint8)

    def decompress(self, parts: Sequence[BlocksPart]) -> list[Done]:
        return [part() for part in parts]

    def decompress_if_idle(self, parts: Sequence[BlocksPart]) -> list[Done] | None:
        assert sum(len(part.blocks) for part in parts) <= self.most_blocks
        self.n_asked += 1
        return self.decompress(parts) if self.n_asked % 2 else None


class Store:
    """Room for some bytes of records, in the place of a device's."""

    def __init__(self, n_bytes: int) -> None:
        self._records = np.zeros(n_bytes, np.uint8)
        self.n_bytes = n_bytes

    def write(self, data: np.ndarray, offset: int) -> None:
        assert offset + len(data) <= self.n_bytes
        assert not self._records[offset : offset + len(data)].any()
        self._records[offset : offset + len(data)] = data

    def gather(self, offsets: np.ndarray, starts: np.ndarray) -> np.ndarray:
        found = np.empty(int(starts[-1]), np.uint8)
        for offset, first, end in zip(offsets, starts[:-1], starts[1:], strict=True):
            found[first:end] = self._records[offset : offset + end - first]
        return found


@given(
    batches(), st.sampled_from([1, 20_000, 1 << 30]), st.integers(1, 30_000),
    st.sampled_from([1, 300, 1 << 16]), st.sampled_from([1, 7, 128]),
    st.sampled_from([None, 0, 10_000, 1 << 20]), st.integers(0, 1 << 32),
)  # fmt: skip
@settings(deadline=None, max_examples=250)
def test_merged_order_is_that_of_a_stable_sort(parts, memory, target, block, sampled, stored, seed):
    expected = b"".join(sorted((r for part in parts for r in part), key=plain_key))
    with (
        pytest.MonkeyPatch.context() as patch,
        (SlowWrites if seed % 2 else ThreadPoolExecutor)(2) as executor,
    ):
        patch.setattr(runs, "BLOCK_BYTES", block)
        patch.setattr(runs, "SPILL_RANGE_BYTES", target)
        patch.setattr(runs, "SAMPLED", sampled)
        file = SpillFile(Path("/tmp"))
        device = Device(executor) if seed % 3 else None
        open_store = None if stored is None else lambda: Store(stored)
        sorter = RecordSorter(file, executor, 2, memory, device, open_store)
        for part in parts:
            sorter.add(run_of_bytes(np.frombuffer(b"".join(part), np.uint8)))
        merged = sorter.finish(lambda: device)
        assert merged.n_bytes == len(expected)
        ranges = merged.ranges(target)
        found = []
        for number, one in enumerate(ranges, 1):
            found.append(one.load().data.tobytes())
            if seed % 5:
                file.release(merged.to_release(number))
        file.close()
    assert b"".join(found) == expected
    # Places of ranges bound their records from below, as partitions of duplicates need.
    for one, data in zip(ranges, found, strict=True):
        if data:
            ref, pos = struct.unpack_from("<ii", data, 4)
            assert one.place <= ((ref if ref >= 0 else (1 << 30) - 1) << 32 | (pos + 1))


def numbered(first: int, n: int) -> np.ndarray:
    """Return records of contig 0, one at each position."""
    return np.frombuffer(b"".join(record(0, pos, 0, first + pos) for pos in range(n)), np.uint8)


def test_a_sort_that_is_given_up_drops_what_has_not_begun(tmp_path, monkeypatch):
    begun, go_on = Event(), Event()
    sorted_ranges: list[object] = []
    monkeypatch.setattr(runs, "_sort_range", lambda *args: sorted_ranges.append(args))
    with closing(SpillFile(tmp_path)) as file, ThreadPoolExecutor(1) as executor:
        executor.submit(lambda: (begun.set(), go_on.wait()))
        begun.wait()
        sorter = RecordSorter(file, executor, 1, 2)
        for batch in range(2):
            sorter.add(run_of_bytes(numbered(50 * batch, 50)))
        sorter.cancel()
        go_on.set()
        executor.submit(int).result()  # behind what would have been sorted
        assert not sorted_ranges


def test_an_error_of_a_write_ends_the_sort(tmp_path, monkeypatch):
    def no_room(*_: object) -> None:
        raise OutputError("no room")

    monkeypatch.setattr(SpillFile, "write", no_room)
    with closing(SpillFile(tmp_path)) as file, ThreadPoolExecutor(2) as executor:
        sorter = RecordSorter(file, executor, 2, 2)
        with pytest.raises(OutputError, match="no room"):
            for batch in range(3):
                sorter.add(run_of_bytes(numbered(50 * batch, 50)))
        sorter.cancel()


def punches_holes(folder: Path) -> bool:
    with closing(SpillFile(folder)) as file:
        file.write(np.ones(1 << 16, np.uint8), file.reserve(1 << 16))
        file.release([(0, 1 << 16)])
        return os.fstat(file.fileno()).st_blocks == 0


def test_room_of_the_temporary_file_is_given_back_while_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "BLOCK_BYTES", 300)
    with closing(SpillFile(tmp_path)) as file, ThreadPoolExecutor(2) as executor:
        sorter = RecordSorter(file, executor, 2, 2)
        for batch in range(4):
            sorter.add(run_of_bytes(numbered(40_000 * batch, 40_000)))
        merged = sorter.finish()
        ranges = merged.ranges(500_000)
        sizes = []
        for number, one in enumerate(ranges, 1):
            assert len(one.load().starts) > 0
            file.release(merged.to_release(number))
            sizes.append(os.fstat(file.fileno()).st_blocks)
    if not punches_holes(tmp_path):
        pytest.skip("this file system does not punch holes")
    assert sizes[-2] < sizes[0] / 4, sizes


@pytest.mark.parametrize("where", [20, 200])
def test_a_damaged_temporary_file(tmp_path, where):
    with closing(SpillFile(tmp_path)) as file, ThreadPoolExecutor(1) as executor:
        sorter = RecordSorter(file, executor, 1, 2)
        for batch in range(3):  # the second is kept until the first is in the file
            sorter.add(run_of_bytes(numbered(50 * batch, 50)))
        ranges = sorter.finish().ranges()
        byte = np.zeros(1, np.uint8)
        file.read(where, byte)
        file.write(byte ^ 255, where)
        with pytest.raises(
            OutputError, match=r"temporary file of the sort is damaged: .* run again"
        ):
            for one in ranges:
                one.load()


@given(st.lists(st.integers(0, (1 << 62) - 1), max_size=300), st.integers(1, 1 << 62))
def test_stable_order(values, modulus):
    keys = np.array([value % modulus for value in values], np.int64)
    assert np.array_equal(stable_order(keys), np.argsort(keys, kind="stable"))


@pytest.mark.parametrize("n_threads", [1, 2, 16])
def test_large_ranges_where_memory_is_plenty(n_threads: int):
    """A thread has six under way."""
    enough = 6 * n_threads * RANGE_BYTES
    assert range_bytes(n_threads) == range_bytes(n_threads, enough - 1) == RANGE_BYTES
    assert range_bytes(n_threads, enough) == 2 * RANGE_BYTES


@pytest.mark.parametrize("n_threads", [1, 2, 16])
def test_ranges_of_few_records_take_little_memory(n_threads: int):
    """A thread has six ranges under way."""
    for total in (0, 1 << 20, 200 << 20, 1 << 30, 1 << 40):
        found = range_bytes(n_threads, 1 << 40, total)
        assert LEAST_RANGE_BYTES <= found <= 2 * RANGE_BYTES
        assert found == LEAST_RANGE_BYTES or 96 * found <= total
    assert range_bytes(n_threads, 1 << 40, 1 << 40) == 2 * RANGE_BYTES


def test_merging_has_large_ranges_for_few_threads():
    wanted = {1: 2, 4: 2, 5: 1, 16: 1}
    found = {n: range_bytes(n, SPARE_BYTES) // RANGE_BYTES for n in wanted}
    assert found == wanted
