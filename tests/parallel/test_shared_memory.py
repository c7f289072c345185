"""Segments of shared memory, and objects whose arrays lie there: two tables of one process."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mapper.parallel.shared_memory import INLINE_BYTES, Key, Place, SharedMemory

LARGE = 4 * INLINE_BYTES


class Batch(NamedTuple):
    numbers: np.ndarray
    flags: np.ndarray
    name: str


class Owner:
    pass


@pytest.fixture
def both() -> tuple[SharedMemory, SharedMemory]:
    """Two tables that tell each other of their segments."""

    def told(key: Key, n_bytes: int, descriptor: int) -> None:
        tables[1 - key.owner].attach(key, n_bytes, descriptor)

    def freed(keys) -> None:
        for key in keys:
            tables[1 - key.owner].detach(key)

    tables = [SharedMemory(i, told, freed) for i in range(2)]
    return tables[0], tables[1]


def sent(thing, source: SharedMemory, target: SharedMemory, owner: object = None):
    packed, kept = source.pack(thing)
    return target.unpack(packed, (owner, kept))


def test_arrays_of_a_segment_are_not_copied(both) -> None:
    one, other = both
    memory = one.allocate(100_000)
    array = memory[800:80_800].view(np.int64)
    array[:] = np.arange(10_000)
    there = sent({"a": array, "b": array[5_000:6_000]}, one, other)
    array[5_000] = -7
    assert there["a"].tolist() == array.tolist()
    assert there["b"][0] == -7
    there["b"][1] = -8  # and the other way round
    assert array[5_001] == -8
    assert other.place_of(there["b"]) == Place(Key(0, 0), 800 + 40_000, 8_000)
    back = sent(there["b"], other, one)  # into the memory that it came from
    back[2] = -9
    assert array[5_002] == -9


def test_other_arrays_are_copied(both) -> None:
    one, other = both
    table = np.arange(LARGE, dtype=np.int32).reshape(-1, 4)
    given = [
        table, table[:, 1], np.asfortranarray(table), np.empty((0, 3), np.float32),
        np.zeros(LARGE, np.bool_), np.arange(5, dtype=np.uint16), np.array(3.5),
    ]  # fmt: skip
    found = sent((given, Batch(given[0], given[4], "x")), one, other)
    for ours, theirs in zip([*found[0], *found[1][:2]], [*given, given[0], given[4]], strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert np.array_equal(ours, theirs)
    assert type(found[1]) is Batch
    assert found[1].numbers is found[0][0]  # one array, as it was
    assert other.place_of(found[0][0]) is not None
    assert other.place_of(found[0][5]) is None  # went with the pickle
    found[0][5][0] = 9  # and can be changed
    table[0, 0] = 77
    assert found[0][0][0, 0] == 0


def test_a_slice_beyond_a_segment_has_no_place(both) -> None:
    one, _ = both
    first = one.allocate(8192)
    assert one.place_of(np.zeros(LARGE, np.uint8)) is None
    assert one.place_of(first) == Place(Key(0, 0), 0, 8192)
    assert one.place_of(first[8191:]) == Place(Key(0, 0), 8191, 1)


def test_the_last_array_of_an_object_lets_its_owner_go(both) -> None:
    one, other = both
    owner = Owner()
    gone = weakref.ref(owner)
    memory = one.allocate(2 * LARGE)
    found = sent([memory[:LARGE], memory[LARGE:]], one, other, owner)
    part = found[1].view(np.int32)[3:]
    del owner, found
    gc.collect()
    assert gone() is not None
    del part
    gc.collect()
    assert gone() is None


def test_freed_segments_are_withdrawn(both) -> None:
    one, other = both
    memory = one.allocate(LARGE)
    memory[:] = 5
    there = other.unpack(one.pack(memory)[0], None)
    del memory
    gc.collect()
    one.forget_freed()
    assert other._foreign == {}
    assert other.place_of(there) is None
    assert set(there.tolist()) == {5}  # which it keeps for itself
    # Another segment may get the place of the first.
    for i in range(20):
        again = one.allocate(LARGE)
        assert one.place_of(again) == Place(Key(0, i + 1), 0, LARGE)
        del again


def test_an_object_can_be_moved_to_shared_memory(both) -> None:
    one, other = both
    batch = Batch(np.arange(LARGE), np.zeros(3, np.bool_), "x")
    there = one.shared(batch)
    assert one.place_of(there.numbers) is not None
    assert np.array_equal(there.numbers, batch.numbers)
    found = other.unpack(one.pack(there)[0], None)
    there.numbers[7] = -1
    assert found.numbers[7] == -1  # it is not copied again
    copied = one.allocate(LARGE)  # nor is its memory used for anything else
    one.shared(np.ones(LARGE))
    assert there.numbers[8] == 8
    del copied


def test_a_segment_that_cannot_be_mapped_is_an_error(both) -> None:
    one, _ = both
    with pytest.raises(OSError, match="Bad file descriptor"):
        one.attach(Key(1, 0), LARGE, -1)
    gc.collect()  # pytest fails if what was never mapped is unmapped
    assert one._foreign == {}


def test_segments_keep_no_descriptors(both) -> None:
    one, other = both
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    kept = [one.allocate(LARGE) for _ in range(50)]
    assert len(list(descriptors.iterdir())) == before
    assert len(other._foreign) == len(kept)


def test_columns_of_one_object_share_a_segment(both) -> None:
    one, other = both
    columns = [np.full(LARGE + i, i, np.int16) for i in range(20)]
    found = sent(columns, one, other)
    assert one._n_made == 1
    for i, column in enumerate(found):
        assert (len(column), set(column.tolist())) == (LARGE + i, {i})


def test_copies_use_their_memory_again(both) -> None:
    one, other = both
    for i in range(5):
        found = sent(np.full(100_000, i), one, other)
        assert found[0] == i
        del found
    assert one._n_made == 1
