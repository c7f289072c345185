"""Leased memory is used again, but never while a view of it exists."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest

from mapper.parallel.buffers import LEAST_BYTES, Recycler, spanning


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_memory_comes_back_when_the_last_view_is_gone() -> None:
    recycler = Recycler()
    first = recycler.empty(LEAST_BYTES + 5000)
    first[:] = 7
    where, view = address(first), memoryview(first[10:20])
    del first
    other = recycler.empty(LEAST_BYTES + 5000)
    assert address(other) != where
    assert bytes(view) == b"\7" * 10
    view.release()
    again = recycler.empty(LEAST_BYTES + 6000)
    assert address(again) == where
    assert again.dtype == np.uint8
    again[:] = 1  # and may be written to


@pytest.mark.parametrize(
    "n_bytes", [0, 1, LEAST_BYTES - 1, LEAST_BYTES, 3 * LEAST_BYTES + 1, 10**7]
)
def test_any_size(n_bytes: int) -> None:
    recycler = Recycler()
    assert recycler.empty(n_bytes).shape == (n_bytes,)


def test_cleared_memory_is_not_handed_out() -> None:
    recycler = Recycler()
    kept = recycler.empty(LEAST_BYTES)
    del kept
    assert sum(map(len, recycler._free.values())) == 1
    recycler.clear()
    assert sum(map(len, recycler._free.values())) == 0


def test_memory_of_a_kind_serves_any_smaller_number_of_bytes() -> None:
    recycler = Recycler()
    first = recycler.empty(1000, "results")
    where = address(first)
    other = recycler.empty(10, "results")
    assert address(other) != where
    del first
    assert address(recycler.empty(1125, "other")) != where
    again = recycler.empty(1125, "results")  # with an eighth more room
    assert (address(again), len(again)) == (where, 1125)


def test_memory_of_a_kind_that_is_too_small_is_replaced() -> None:
    made: list[int] = []

    def allocate(n_bytes: int) -> np.ndarray:
        made.append(n_bytes)
        return np.empty(n_bytes, np.uint8)

    freeing = threading.Lock()
    recycler = Recycler(allocate, freeing=freeing)
    del_me = recycler.empty(1000, "results")
    del del_me
    assert len(recycler.empty(5000, "results")) == 5000
    assert len(recycler.empty(5000, "results")) == 5000
    assert made == [1128, 5632]
    assert recycler._unused() == 5632


def test_leases_that_outlive_a_clearing_are_not_kept() -> None:
    recycler = Recycler()
    arrays = [recycler.empty(LEAST_BYTES), recycler.empty(LEAST_BYTES, "results")]
    recycler.clear()
    arrays.clear()
    assert recycler._unused() == 0


def test_one_array_over_several():
    """It keeps them, and empty ones among them do not matter."""
    arrays = [np.full(n, n % 251, np.uint8) for n in (3, 0, 100_000, 7)]
    whole, offsets = spanning(arrays)
    expected = [array.tobytes() for array in arrays]
    sizes = [len(array) for array in arrays]
    large = weakref.ref(arrays[2])
    del arrays
    assert large() is not None
    found = [
        whole[offset : offset + size].tobytes() if size else b""
        for offset, size in zip(offsets.tolist(), sizes, strict=True)
    ]
    assert found == expected
    del whole
    assert large() is None
    assert [len(array) for array in spanning([])] == [0, 0]
    assert len(spanning([np.empty(0, np.uint8)])[0]) == 0
