"""Keys that one thread sorts, and that lanes sort together."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mapper.jit import sorting
from mapper.jit.accelerate import driver
from mapper.jit.lanes import ONE_LANE, THREAD_LANE, Lanes

SIZES = [0, 1, 2, 3, 5, 8, 31, 32, 33, 64, 65, 100, 128, 129, 257, 600]


@driver
def _sort(keys, n, lanes, spare):
    sorting.sort_descending(keys, n, lanes, spare)


def some_keys(n: int) -> np.ndarray:
    """Return `n` different keys, and five that are not to be touched."""
    return np.random.default_rng(n).permutation(np.arange(n + 5, dtype=np.int64) - n // 2) << 40


@pytest.mark.parametrize("lanes", [ONE_LANE, THREAD_LANE], ids=["CPU", "thread of a device"])
@pytest.mark.parametrize("has_spare", [True, False])
@pytest.mark.parametrize("n", SIZES)
def test_one_lane_sorts(n: int, has_spare: bool, lanes: Lanes) -> None:
    keys = some_keys(n)
    expected = [*sorted(keys[:n].tolist(), reverse=True), *keys[n:].tolist()]
    _sort(keys, n, lanes, np.empty(n, np.int64) if has_spare else None)
    assert keys.tolist() == expected


@pytest.mark.parametrize("n_lanes", [1, 2, 3, 8])
@pytest.mark.parametrize("n", SIZES)
def test_lanes_sort_together(n: int, n_lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads in the place of lanes: what they do between two barriers concerns different keys."""
    barrier = threading.Barrier(n_lanes, timeout=60)
    monkeypatch.setattr(sorting, "lanes_meet", lambda _: barrier.wait())
    network = getattr(sorting._sort_by_network, "py_func", sorting._sort_by_network)
    keys = some_keys(n)
    expected = [*sorted(keys[:n].tolist(), reverse=True), *keys[n:].tolist()]
    with ThreadPoolExecutor(n_lanes) as threads:
        lanes = [Lanes(lane, n_lanes, False) for lane in range(n_lanes)]
        list(threads.map(lambda lane: network(keys, n, lane), lanes))
    assert keys.tolist() == expected
