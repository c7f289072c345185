"""The insert-size model of synthetic libraries; cuts between batches do not matter."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.pair.insert_size import (
    CONFIDENT_GAP,
    MIN_PAIRS,
    assumed_model,
    confident_inserts,
    estimate,
    model_from,
)
from mapper.params import ExtendParams
from tests.helpers.placements import base_offsets_of, batch_of_placed, random_read
from tests.naive.pairing import Placed, insert

SCORES = ExtendParams()


def assert_same(a, b) -> None:
    assert a[:2] + a[3:] == b[:2] + b[3:]
    assert a.penalty.tolist() == b.penalty.tolist()


@pytest.mark.parametrize("sign", [1, -1], ids=["FR", "RF"])
@pytest.mark.parametrize(("mean", "std"), [(300, 40), (450, 5), (3000, 500)])
def test_a_library_is_recognised(sign: int, mean: int, std: int) -> None:
    rng = np.random.default_rng(1)
    inserts = sign * np.rint(rng.normal(mean, std, 4000)).astype(np.int64)
    inserts[:100] = rng.integers(-(10**6), 10**6, 100)  # chimeras
    model = estimate(inserts)
    assert abs(model.mean - sign * mean) < 0.2 * std
    assert abs(model.std - std) < 0.2 * std
    shortest, longest = (model.low, model.high) if sign > 0 else (model.high, model.low)
    assert shortest == sign
    assert mean + 4 * std <= sign * longest < mean + 7 * std
    inside = (inserts >= model.low) & (inserts <= model.high)
    assert inside[100:].mean() > 0.99
    assert len(model.penalty) == model.high - model.low + 1


@pytest.mark.parametrize("sign", [1, -1], ids=["FR", "RF"])
def test_penalties_grow_with_the_distance_from_the_mean(sign: int) -> None:
    """Towards short fragments up to four deviations."""
    model = model_from(sign * 350.5, 50.0, *sorted((sign * 10, sign * 700)), 1000)
    by_size = model.penalty[::sign]  # of 10 and on
    usual = slice(151 - 10, 551 - 10)
    order = np.argsort(np.abs(np.arange(151, 551) - 350.5), kind="stable")
    assert (np.diff(by_size[usual][order]) >= 0).all()
    assert (np.diff(by_size[550 - 10 :]) >= 0).all()
    assert set(by_size[: 150 - 10]) == {28}  # log4 of erfc(4 / sqrt 2), in quarters
    assert by_size.min() == 0
    assert by_size[-1] > 60
    assert not model.penalty.flags.writeable


def test_too_few_pairs_give_the_assumed_model() -> None:
    inserts = np.full(MIN_PAIRS - 1, 300)
    assert_same(estimate(inserts), assumed_model())
    assert_same(estimate(np.empty(0, np.int64)), assumed_model())
    assert_same(estimate(np.zeros(1000, np.int64)), assumed_model())
    assert estimate(np.append(inserts, 310)).n_pairs == MIN_PAIRS


@pytest.mark.parametrize("sign", [1, -1])
def test_pairs_without_an_insert_have_no_say(sign: int) -> None:
    rng = np.random.default_rng(2)
    inserts = sign * np.rint(rng.normal(300, 30, 500)).astype(np.int64)
    padded = np.concatenate([inserts, np.zeros(5000, np.int64)])
    assert_same(estimate(rng.permutation(padded)), estimate(inserts))


def test_order_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    inserts = np.rint(rng.normal(300, 30, 500)).astype(np.int64)
    assert_same(estimate(rng.permutation(inserts)), estimate(inserts))


def test_identical_inserts_leave_room() -> None:
    model = estimate(np.full(100, 400))
    assert model.low <= 400 <= model.high
    assert model.penalty[400 - model.low] == 0


def random_pairs(n: int) -> list[list[Placed]]:
    rng = np.random.default_rng(4)
    scores = (25, 60, 75, 90)
    return [random_read(rng, int(rng.integers(0, 3)), scores) for _ in range(2 * n)]


def naive_insert(first: list[Placed], second: list[Placed]) -> int:
    for mate in (first, second):
        if not mate or mate[0].score < SCORES.min_score:
            return 0
        if len(mate) > 1 and mate[0].score - mate[1].score < CONFIDENT_GAP:
            return 0
    return insert(first[0], second[0]) or 0


def test_confident_inserts_are_those_of_the_definition() -> None:
    reads = random_pairs(400)
    found = confident_inserts(base_offsets_of(reads), batch_of_placed(reads), SCORES)
    expected = [naive_insert(*reads[i : i + 2]) for i in range(0, len(reads), 2)]
    assert found.tolist() == expected
    assert 20 < np.count_nonzero(found) < 300
    assert (found > 0).any() and (found < 0).any()


def test_inserts_do_not_depend_on_batch_cuts() -> None:
    reads = random_pairs(100)
    whole = confident_inserts(base_offsets_of(reads), batch_of_placed(reads), SCORES)
    for size in (2, 14, 66):
        parts = [reads[i : i + size] for i in range(0, len(reads), size)]
        found = [confident_inserts(base_offsets_of(p), batch_of_placed(p), SCORES) for p in parts]
        assert np.concatenate(found).tolist() == whole.tolist()
