"""Records that a device keeps come back in any order, whatever their sizes and the threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs the package numba-cuda")

from mapper.cuda.api import SIMULATED, cuda
from mapper.sorting import runs_cuda
from mapper.sorting.runs_cuda import DeviceStore, device_store

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not SIMULATED and not cuda.is_available(), reason="no CUDA device"),
]


def gathered(data: np.ndarray, offsets: np.ndarray, sizes: np.ndarray) -> bytes:
    return b"".join(data[a : a + n].tobytes() for a, n in zip(offsets, sizes, strict=True))


@pytest.mark.parametrize("range_bytes", [runs_cuda.RANGE_BYTES, 400])
def test_records_come_back_in_any_order(monkeypatch, range_bytes: int):
    """Also of ranges for which there is no room at first."""
    monkeypatch.setattr(runs_cuda, "_STAGED_BYTES", 1000)  # a run goes up in several pieces
    monkeypatch.setattr(runs_cuda, "RANGE_BYTES", range_bytes)
    rng = np.random.default_rng(5)
    n_bytes = 3000 if SIMULATED else 3_000_000
    store = DeviceStore(0, 2, 3 * n_bytes)
    data = rng.integers(0, 256, (3, n_bytes), np.uint8)
    offsets = [0, n_bytes, 2 * n_bytes]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(store.write, data, offsets))

        def gather(seed: int) -> bool:
            wanted = np.random.default_rng(seed)
            sizes = wanted.integers(0, 200, 20 if SIMULATED else 5000)
            at = wanted.integers(0, 3 * n_bytes - 200, len(sizes))
            starts = np.concatenate([[0], np.cumsum(sizes)])
            found = store.gather(at, starts)
            return found.tobytes() == gathered(data.reshape(-1), at, sizes)

        assert all(threads.map(gather, range(9)))
    none = store.gather(np.empty(0, np.int64), np.zeros(1, np.int64))
    assert len(none) == 0
    store.close()


@pytest.mark.skipif(SIMULATED, reason="the simulator's device has no bound of memory")
def test_room_is_most_of_what_is_free_and_is_given_back():
    for _ in range(2):
        with device_store(0, 1) as store:
            assert store is not None
            assert store.n_bytes >= runs_cuda.LEAST_BYTES


def test_code_is_compiled_by_sorting_a_record(tmp_path):
    runs_cuda.compile_store(0, tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_memory_there_is_no_store(monkeypatch):
    monkeypatch.setattr(runs_cuda, "free_share", lambda: runs_cuda.LEAST_BYTES // 2)
    monkeypatch.setattr(runs_cuda, "total_bytes", lambda: runs_cuda.LEAST_BYTES)
    with device_store(0, 1) as store:
        assert store is None
