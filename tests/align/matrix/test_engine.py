"""Windows of all-with-all comparisons: sized by cells, within limits, each pair once."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.align.matrix import api
from mapper.align.matrix import engine as matrix_engine
from mapper.align.matrix.engine import MatrixEngine
from mapper.align.matrix.scoring import CodedPairs, check_scoring
from mapper.align.threads import chunk_bounds

SCORING = check_scoring((1, -1), (1, 1), "global", False, 1 << 30)
MOST = 10**12


def engine(n_devices: int, most: int = MOST) -> MatrixEngine:
    """An engine with three workers of each of some devices that do not exist."""
    made = MatrixEngine(SCORING, "cpu", None)
    made._workers = [SimpleNamespace(most_cells=most)] * (3 * n_devices)  # type: ignore[list-item]
    made._n_devices = n_devices
    return made


def coded(lengths: np.ndarray) -> api._CodedSet:
    end = np.cumsum(lengths)
    return api._CodedSet(np.zeros(int(lengths.sum()), np.uint8), end - lengths, end)


def windows(own, other, within: bool, most_pairs: int, made: MatrixEngine) -> list:
    """Queries, references and pairs of all windows."""
    rows = list(api._windows(own, other, within, most_pairs, made))
    return [api._pairs(some, own, other, within) for some in rows]


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("n_devices", [1, 4])
def test_windows_grow_and_shrink(n_devices: int, within: bool, monkeypatch) -> None:
    monkeypatch.setattr(matrix_engine, "_FEW_CELLS", 1)
    rng = np.random.default_rng(1)
    own, other = coded(rng.integers(50, 150, 500)), coded(rng.integers(50, 150, 300))
    other = own if within else other
    made = windows(own, other, within, 1 << 20, engine(n_devices))
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
    made = windows(own, own, True, 1 << 20, engine(1, most=45_000))
    sizes = [len(pairs.query_start) for _, _, pairs in made]
    assert max(sizes) == 4 and sum(sizes) == 60 * 59 // 2
    alone = windows(own, own, True, 1 << 20, engine(1, most=1))
    assert {len(pairs.query_start) for _, _, pairs in alone} == {1}


@given(
    st.lists(st.integers(0, 9), max_size=7), st.lists(st.integers(0, 9), max_size=7) | st.none(),
    st.integers(1, 12), st.integers(1, 200),
)  # fmt: skip
@settings(deadline=None)
def test_windows_end_where_the_next_pair_would_be_too_much(
    lengths: list[int], others: list[int] | None, most_pairs: int, most: int
) -> None:
    """Compare with a plain loop over pairs."""
    own = coded(np.array(lengths, np.int64))
    other = own if others is None else coded(np.array(others, np.int64))
    references = lengths if others is None else others
    expected: list[list[tuple[int, int]]] = []
    cells = 0
    for i, n in enumerate(lengths):
        for j in range(i + 1 if others is None else 0, len(references)):
            a_pair = n * references[j]
            if not expected or len(expected[-1]) == most_pairs or cells + a_pair > most:
                expected.append([])
                cells = 0
            expected[-1].append((i, j))
            cells += a_pair
    with mock.patch.object(matrix_engine, "_FEW_CELLS", 1):
        always = engine(1)
        with mock.patch.object(always, "window_cells", lambda *_: most):
            made = windows(own, other, others is None, most_pairs, always)
    found = [list(zip(query.tolist(), ref.tolist(), strict=True)) for query, ref, _ in made]
    assert found == expected


@pytest.mark.parametrize("cigar", [False, True])
def test_results_of_batches_are_put_where_they_belong(cigar: bool, monkeypatch) -> None:
    """By several workers, in any order: as by one, at once."""
    scoring = check_scoring((1, -1), (1, 1), "semiglobal", cigar, 400)
    rng = np.random.default_rng(3)
    ends = np.cumsum(rng.integers(0, 30, 41))
    codes = rng.integers(0, 4, int(ends[-1]), np.uint8)
    pairs = CodedPairs(codes, ends[:20], ends[1:21], codes, ends[20:40], ends[21:41])
    expected = MatrixEngine(scoring, "cpu", 1).align(pairs)
    made = MatrixEngine(scoring, "cpu", 1)
    workers = [SimpleNamespace(most_cells=MOST, align=made._on_cpu) for _ in range(3)]
    monkeypatch.setattr(matrix_engine, "_FEW_CELLS", 500)
    monkeypatch.setattr(made, "_workers", workers)
    for found in (made.align(pairs), made.align(pairs.part(0, 0)), made.align(pairs.part(0, 1))):
        for column, wanted in zip(found, expected, strict=True):
            n = found.n_pairs
            if column is None or wanted is None:
                assert column is wanted
            elif column is found.cigar_offsets:
                assert column.tolist() == wanted[: n + 1].tolist()
            else:
                n = n if column is not found.cigar_ops else len(column)
                assert column.tolist() == wanted[:n].tolist()
    assert len(chunk_bounds(pairs.cells(), made.batch_cells(0), matrix_engine.BATCH_PAIRS)) > 6
