"""Sort runs in memory and in the temporary file: always the order of a plain stable sort."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.sorting import runs
from mapper.sorting.record_order import stable_order
from mapper.sorting.runs import RecordSorter, run_of_bytes, sorted_bytes
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


@given(
    batches(), st.sampled_from([1, 20_000, 1 << 30]), st.integers(1, 30_000),
    st.sampled_from([1, 300, 1 << 16]), st.sampled_from([1, 7, 128]),
)  # fmt: skip
@settings(deadline=None, max_examples=150)
def test_merged_order_is_that_of_a_stable_sort(parts, memory, target, block, sampled):
    expected = b"".join(sorted((r for part in parts for r in part), key=plain_key))
    with (
        pytest.MonkeyPatch.context() as patch,
        ThreadPoolExecutor(2) as executor,
    ):
        patch.setattr(runs, "BLOCK_BYTES", block)
        patch.setattr(runs, "SAMPLED", sampled)
        file = SpillFile(Path("/tmp"))
        sorter = RecordSorter(file, executor, 2, memory)
        for part in parts:
            sorter.add(run_of_bytes(np.frombuffer(b"".join(part), np.uint8)))
        ranges = sorter.finish().ranges(target)
        found = [sorted_bytes(one.load()).tobytes() for one in ranges]
        file.close()
    assert b"".join(found) == expected
    # Places of ranges bound their records from below, as partitions of duplicates need.
    for one, data in zip(ranges, found, strict=True):
        if data:
            ref, pos = struct.unpack_from("<ii", data, 4)
            assert one.place <= ((ref if ref >= 0 else (1 << 30) - 1) << 32 | (pos + 1))


@given(st.lists(st.integers(0, (1 << 62) - 1), max_size=300), st.integers(1, 1 << 62))
def test_stable_order(values, modulus):
    keys = np.array([value % modulus for value in values], np.int64)
    assert np.array_equal(stable_order(keys), np.argsort(keys, kind="stable"))
