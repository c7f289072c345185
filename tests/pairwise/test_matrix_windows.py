"""How all-with-all is cut into windows for devices: by cells, within limits, each pair once."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mapper.pairwise import all_pairs, matrix_engine
from mapper.pairwise.matrix_engine import MatrixEngine
from mapper.pairwise.matrix_scoring import check_scoring

SCORING = check_scoring((1, -1), (1, 1), "global", False, 1 << 30)
MOST = 10**12


def engine(n_devices: int, most: int = MOST) -> MatrixEngine:
    """An engine with three workers of each of some devices that do not exist."""
    made = MatrixEngine(SCORING, "cpu", None)
    made._workers = [SimpleNamespace(most_cells=most)] * (3 * n_devices)  # type: ignore[list-item]
    made._n_devices = n_devices
    return made


def coded(lengths: np.ndarray) -> all_pairs._CodedSet:
    end = np.cumsum(lengths)
    return all_pairs._CodedSet(np.zeros(int(end[-1]), np.uint8), end - lengths, end)


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("n_devices", [1, 4])
def test_windows_grow_and_shrink(n_devices: int, within: bool, monkeypatch) -> None:
    monkeypatch.setattr(matrix_engine, "_FEW_CELLS", 1)
    rng = np.random.default_rng(1)
    own, other = coded(rng.integers(50, 150, 500)), coded(rng.integers(50, 150, 300))
    other = own if within else other
    made = list(all_pairs._windows(own, other, within, 1 << 20, engine(n_devices)))
    query, ref = (np.concatenate([window[i] for window in made]) for i in (0, 1))
    expected = np.triu_indices(500, 1) if within else np.divmod(np.arange(500 * 300), 300)
    assert (query == expected[0]).all() and (ref == expected[1]).all()
    for first, second, pairs in made:
        assert (pairs.query_start == own.start[first]).all()
        assert (pairs.query_end == own.end[first]).all()
        assert (pairs.ref_start == other.start[second]).all()
        assert (pairs.ref_end == other.end[second]).all()
    cells = np.array([int(pairs.cells().sum()) for _, _, pairs in made])
    share = cells.sum() / (3 * n_devices)
    a_pair = 150 * 150
    assert (cells[:n_devices] <= share / 8).all()  # every device has work soon
    assert (cells <= share).all()
    assert cells.max() > share / 2
    assert (cells[-3 * n_devices :] <= share / 4 + a_pair).all()  # and all end together


def test_windows_are_no_larger_than_memory_allows(monkeypatch) -> None:
    monkeypatch.setattr(matrix_engine, "_FEW_CELLS", 1)
    own = coded(np.full(60, 100))
    made = list(all_pairs._windows(own, own, True, 1 << 20, engine(1, most=45_000)))
    sizes = [len(pairs.query_start) for _, _, pairs in made]
    assert max(sizes) == 4 and sum(sizes) == 60 * 59 // 2
    alone = list(all_pairs._windows(own, own, True, 1 << 20, engine(1, most=1)))
    assert {len(pairs.query_start) for _, _, pairs in alone} == {1}
