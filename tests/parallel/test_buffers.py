"""Memory that is used again, and never while anybody looks at it."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.parallel.buffers import LEAST_BYTES, Recycler


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
