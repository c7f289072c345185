"""Pieces of slabs: apart from each other, used again, and not more memory than there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.cuda.slabs import PIECES_PER_SLAB, Slabs
from mapper.errors import DeviceMemoryError

SLAB = 1 << 14


class Memory:
    """A device of `free` bytes."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.allocated: list[int] = []

    def allocate(self, n_bytes: int) -> np.ndarray:
        if n_bytes > self.free:
            raise DeviceMemoryError(f"{n_bytes} bytes")
        self.free -= n_bytes
        self.allocated.append(n_bytes)
        return np.zeros(n_bytes, np.uint8)


@given(st.lists(st.tuples(st.integers(1, SLAB // PIECES_PER_SLAB), st.integers(0, 3)), max_size=60))
def test_pieces_are_apart(steps: list[tuple[int, int]]) -> None:
    memory = Memory(1 << 30)
    slabs = Slabs(memory.allocate, SLAB)
    held: list[tuple[np.ndarray, int]] = []
    for number, (n_bytes, dropped) in enumerate(steps, 1):
        piece = slabs.take(n_bytes)
        assert n_bytes <= len(piece) < n_bytes + 256
        assert slabs.holds(len(piece))
        piece[:] = number % 256
        held.append((piece, number % 256))
        for _ in range(min(dropped, len(held)) if number % 3 == 0 else 0):
            slabs.give_back(held.pop(0)[0])
    for piece, mark in held:
        assert (piece == mark).all()
    # A slab is taken only when no rest holds a piece: three quarters of those before are in use.
    assert len(memory.allocated) <= 1 + sum(n + 255 for n, _ in steps) // (3 * SLAB // 4)


def test_what_is_given_back_is_taken_first() -> None:
    memory = Memory(1 << 30)
    slabs = Slabs(memory.allocate, SLAB)
    pieces = [slabs.take(SLAB // PIECES_PER_SLAB) for _ in range(PIECES_PER_SLAB)]
    assert memory.allocated == [SLAB]
    slabs.give_back(pieces[1])
    again = slabs.take(100)
    assert np.shares_memory(again, pieces[1])
    assert len(again) == 256
    assert memory.allocated == [SLAB]
    slabs.take(SLAB // PIECES_PER_SLAB)  # there is no room for it any more
    assert memory.allocated == [SLAB, SLAB]


def test_the_smallest_rest_that_fits_is_taken() -> None:
    slabs = Slabs(Memory(1 << 30).allocate, SLAB)
    small, _, large, _ = (slabs.take(n) for n in (512, 256, 2048, SLAB // PIECES_PER_SLAB))
    for piece in (large, small):
        slabs.give_back(piece)
    assert np.shares_memory(slabs.take(400), small)
    assert np.shares_memory(slabs.take(600), large)


def test_less_memory_than_a_slab_is_enough_for_a_piece() -> None:
    memory = Memory(SLAB + 1024)
    slabs = Slabs(memory.allocate, SLAB)
    for _ in range(PIECES_PER_SLAB):
        slabs.take(SLAB // PIECES_PER_SLAB)
    assert len(slabs.take(1000)) == 1024
    assert memory.allocated == [SLAB, 1024]
    with pytest.raises(DeviceMemoryError):
        slabs.take(1)


@pytest.mark.parametrize("slab_bytes", [0, 1000, SLAB + 3])
def test_large_arrays_are_not_for_slabs(slab_bytes: int) -> None:
    slabs = Slabs(Memory(1 << 30).allocate, slab_bytes)
    most = slab_bytes // 1024 * 256
    assert slabs.holds(most) or most == 0
    assert not slabs.holds(most + 1)


@pytest.mark.gpu
def test_arrays_of_a_workspace_keep_apart_while_they_grow(device) -> None:
    from mapper.cuda.memory import Workspace

    space = Workspace(slab_bytes=1 << 20)
    rng = np.random.default_rng(1)
    expected: dict[str, np.ndarray] = {}
    for _ in range(60):
        name = f"column {rng.integers(6)}"
        n = int(rng.integers(1, 60_000))  # of which the largest have memory of their own
        expected[name] = rng.integers(0, 1 << 40, n)
        space.upload(name, expected[name])
        space.synchronize()
    for name, column in expected.items():
        there = space.device(name, len(column), np.int64)
        found = space.download(name, there)
        space.synchronize()
        assert np.array_equal(found, column)
    space.release()
