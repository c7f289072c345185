"""Launch plans of batches: every pair once, longest first, within all limits."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align.matrix.cuda_plan import (
    BOUNDARY_START,
    HALVES,
    ONE_CELL,
    ORIGIN_START,
    ROWS,
    plan_batch,
)
from mapper.align.matrix.dp import GLOBAL, LOCAL, SEMIGLOBAL, Gaps
from mapper.align.matrix.scoring import (
    GREATEST_HALF,
    bias_of,
    fits_halves,
    halves_possible,
    padded_scores,
)
from tests.naive.matrix import best_score

SCORES = np.array([[5, -4], [-4, 5]], np.int32)
MACHINE = {"lanes": 8, "groups": 4, "shared_bytes": 48 << 10}


def plan(n, m, starts, mode=GLOBAL, scores=SCORES, has_halves=True, want_path=True):
    return plan_batch(
        np.asarray(n, np.int64), np.asarray(m, np.int64), np.asarray(starts, np.int64),
        np.asarray(starts, np.int64), scores,
        Gaps(10, 1), mode, has_halves=has_halves, want_path=want_path, **MACHINE,
    )  # fmt: skip


def check(found, n, m) -> None:
    """Every pair has one group; its strips, block and workspace are large enough."""
    assert sorted(found.slots[found.slots >= 0].tolist()) == list(range(len(n)))
    blocks = found.slots.reshape(-1, 4)
    at = 0
    for shape, first, n_blocks in sorted(found.launches, key=lambda launch: launch.first_block):
        assert first == at
        at += n_blocks
        for block in range(first, first + n_blocks):
            for pair in blocks[block][blocks[block] >= 0]:
                assert (found.table[HALVES, pair], found.table[ROWS, pair]) == (
                    shape.halves,
                    shape.rows,
                )
                strips = -(-n[pair] // (8 * shape.halves * shape.rows)) if m[pair] else 0
                steps = m[pair] + 8 * shape.halves - 1
                assert strips <= found.most[0, block] and steps <= found.most[1, block]
                if found.sizes[1]:
                    words = size_of(found, ORIGIN_START, 1)[pair]
                    assert words == strips * steps * 8 * shape.origin_words()
                assert size_of(found, BOUNDARY_START, 0)[pair] == (m[pair] if strips > 1 else 0)
    assert at == found.most.shape[1] == len(blocks)


def size_of(found, row: int, size: int) -> np.ndarray:
    """Room of each pair, from where it begins to where the next does."""
    return np.diff(found.table[row], append=found.sizes[size])


@pytest.mark.parametrize("want_path", [False, True])
def test_lists_of_pairs(want_path: bool) -> None:
    rng = np.random.default_rng(1)
    n, m = rng.integers(0, 1500, (2, 333))
    starts = np.concatenate([[0], np.cumsum(n)[:-1]])
    found = plan(n, m, starts, want_path=want_path)
    check(found, n, m)
    assert not found.shared
    for _, first, n_blocks in found.launches:
        strips = found.most[0, first : first + n_blocks]
        assert (np.diff(strips) <= 0).all()
    check(plan([], [], []), [], [])


def test_blocks_share_a_query() -> None:
    rng = np.random.default_rng(2)
    lengths = rng.integers(0, 900, 24)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    query, ref = np.triu_indices(24, 1)
    n, m = lengths[query], lengths[ref]
    found = plan(n, m, starts[query])
    check(found, n, m)
    assert found.shared
    for block in found.slots.reshape(-1, 4):
        assert block[0] >= 0
        assert len(set(query[block[block >= 0]])) == 1
        assert (np.diff(m[block[block >= 0]]) <= 0).all()


def test_one_cell_where_two_do_not_fit() -> None:
    n = m = np.array([100, 3000, 8000])
    starts = np.array([0, 100, 3100])
    assert plan(n, m, starts, mode=LOCAL).table[HALVES].tolist() == [2, 2, 1]
    assert plan(n, m, starts, mode=GLOBAL).table[HALVES].tolist() == [2, 2, 1]
    assert plan(n, m, starts, has_halves=False).table[HALVES].tolist() == [1, 1, 1]
    wide = plan(n, m, starts, scores=SCORES * 40)
    assert {launch.shape for launch in wide.launches} == {ONE_CELL}
    assert not halves_possible(SCORES, Gaps(120, 8)) and halves_possible(SCORES, Gaps(120, 7))


@pytest.mark.parametrize("mode", [GLOBAL, SEMIGLOBAL, LOCAL])
def test_all_scores_of_what_fits_are_within_16_bits(mode: int) -> None:
    """By the highest and the lowest score that any pair of these lengths can have."""
    name = {GLOBAL: "global", SEMIGLOBAL: "semiglobal", LOCAL: "local"}[mode]
    for n, m in ((6, 6), (9, 2), (1, 12)):
        for gaps in (Gaps(3, 1), Gaps(0, 2), Gaps(5, 0)):
            bias = bias_of(n, m, gaps, mode, 8)
            equal = best_score("A" * n, "A" * m, lambda a, b: 7, gaps, name)
            worst = best_score("A" * n, "C" * m, lambda a, b: -90, gaps, name)
            assert bias + equal <= bias + (min(n, m) + 1) * 7
            # A gap is opened from the lowest cell.
            assert bias + worst - sum(gaps) >= 0 or mode == LOCAL
            assert fits_halves(n, m, (GREATEST_HALF - bias) // (min(n, m) + 1), gaps, mode, 8)
            assert not fits_halves(n, m, GREATEST_HALF, gaps, mode, 8)


def test_padded_scores() -> None:
    for mode, halves, pad in ((GLOBAL, 2, -128), (LOCAL, 1, -32767), (SEMIGLOBAL, 2, 0)):
        padded = padded_scores(SCORES, mode, halves)
        assert (padded[:2, :2] == SCORES).all() and padded[2, 2] == 0
        assert (padded[2, :2] == pad).all() and (padded[:2, 2] == pad).all()
