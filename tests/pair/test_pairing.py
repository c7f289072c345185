"""Best pairs and pair values, against an oracle that tries all pairs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mapper.jit.lanes import ONE_LANE
from mapper.pair.insert_size import InsertSizeModel, assumed_model, model_from
from mapper.pair.pairing import FEW_PAIRS, NO_PAIR, best_pair_score, name_key, score_pairs
from mapper.pair.placement import _set_unpaired_values
from tests.helpers.placements import base_offsets_of, batch_of_placed, naive_model, random_read
from tests.naive.pairing import Placed, best_pairs, values

MOST = 60
"""Alignments of a mate; those of a pair make more than FEW_PAIRS."""

MODELS = {
    "assumed": assumed_model(),
    "FR": model_from(400.0, 60.0, 150, 700, 1000),
    "RF": model_from(-500.0, 90.0, -900, -100, 1000),
}
ENDS = np.empty(MOST, np.int64)
NONE_HIDDEN = np.zeros(0, np.bool_)
CASES = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def key_of(name: str) -> np.uint64:
    # Python callers get a plain int, which numba would take for a signed one.
    return np.uint64(name_key(np.frombuffer(name.encode(), np.uint8), 0, len(name)))


def chosen(reads: list[list[Placed]], model: InsertSizeModel, key: np.uint64):
    """Score, and the rows within each mate."""
    score, a, b = score_pairs(
        base_offsets_of(reads),
        batch_of_placed(reads),
        0,
        model,
        key,
        NONE_HIDDEN,
        ENDS,
        np.zeros((2, MOST), np.int64),
        ONE_LANE,
    )
    return int(score), int(a), int(b) - len(reads[0])


@CASES
def test_the_best_pair_is_one_of_the_best(model: InsertSizeModel) -> None:
    rng = np.random.default_rng(1)
    n_paired = n_tied = 0
    for i in range(200):
        reads = [random_read(rng, int(n), (70, 80, 84)) for n in rng.integers(0, 9, 2)]
        score, a, b = chosen(reads, model, key_of(f"read{i}"))
        best, rows = best_pairs(*reads, naive_model(model))
        if best is None:
            assert score == NO_PAIR and a < 0
        else:
            assert score == best and (a, b) in rows
            n_paired += 1
            n_tied += len(rows) > 1
    assert n_paired > 80
    assert n_tied > 3 or model.n_pairs


@CASES
def test_ties_do_not_depend_on_the_order_found(model: InsertSizeModel) -> None:
    rng = np.random.default_rng(2)
    for i in range(60):
        reads = [random_read(rng, 7, (80,)) for _ in range(2)]
        score, a, b = chosen(reads, model, key_of(f"r{i}"))
        for _ in range(3):
            order = [rng.permutation(7) for _ in range(2)]
            shuffled = [[read[j] for j in o] for read, o in zip(reads, order, strict=True)]
            again, c, d = chosen(shuffled, model, key_of(f"r{i}"))
            assert again == score
            if a >= 0:
                assert (shuffled[0][c], shuffled[1][d]) == (reads[0][a], reads[1][b])


@CASES
def test_many_alignments_make_the_same_pairs(model: InsertSizeModel) -> None:
    rng = np.random.default_rng(4)
    n_paired = 0
    for i in range(20):
        reads = [random_read(rng, int(n), (70, 80, 84)) for n in rng.integers(35, MOST + 1, 2)]
        assert len(reads[0]) * len(reads[1]) > FEW_PAIRS
        out = np.full((2, MOST), -1, np.int64)
        score, a, b = score_pairs(
            base_offsets_of(reads), batch_of_placed(reads), 0, model, key_of(f"r{i}"), NONE_HIDDEN,
            ENDS, out, ONE_LANE,
        )  # fmt: skip
        best, rows = best_pairs(*reads, naive_model(model))
        if best is None:
            assert score == NO_PAIR and a < 0
        else:
            assert score == best and (a, b - len(reads[0])) in rows
            n_paired += 1
        for mate in range(2):
            of_pairs = values(reads[mate], reads[1 - mate], naive_model(model), 10**6)
            expected = [max(value, -1) for value in of_pairs]
            assert out[mate, : len(expected)].tolist() == expected
    assert n_paired > 15


@CASES
@pytest.mark.parametrize("numbers", [(0, 9), (35, MOST + 1)], ids=["few", "many"])
def test_the_score_of_the_best_pair_alone(model: InsertSizeModel, numbers) -> None:
    rng = np.random.default_rng(5)
    n_paired = 0
    for _ in range(40):
        reads = [random_read(rng, int(n), (70, 80, 84)) for n in rng.integers(*numbers, 2)]
        for read in reads:
            read.sort(key=lambda placed: -placed.score)
        score = best_pair_score(
            base_offsets_of(reads), batch_of_placed(reads), 0, model, ENDS, ONE_LANE
        )
        best, _ = best_pairs(*reads, naive_model(model))
        assert score == (NO_PAIR if best is None else best)
        n_paired += best is not None
    assert n_paired > 10


def test_ties_spread_over_the_places() -> None:
    def at(strand: int, start: int) -> Placed:
        return Placed(strand, 0, start, start + 100, 0, 100, 90, 100)

    copies = [2000 * i for i in range(5)]
    reads = [[at(0, pos) for pos in copies], [at(1, pos + 250) for pos in copies]]
    picked = Counter(chosen(reads, assumed_model(), key_of(f"name{i}"))[1:] for i in range(1000))
    assert set(picked) == {(i, i) for i in range(5)}
    assert min(picked.values()) > 130


@CASES
@pytest.mark.parametrize("penalty", [0, 17])
def test_pair_values(model: InsertSizeModel, penalty: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        reads = [random_read(rng, int(n), (40, 70, 80, 84)) for n in rng.integers(0, 7, 2)]
        out = np.full((2, 8), -1, np.int64)
        batch = batch_of_placed(reads)
        offsets = batch.alignment_offsets
        for mate in range(2):
            partner = int(offsets[1 - mate]) if reads[1 - mate] else -1  # the best comes first
            first, end = offsets[mate], offsets[mate + 1]
            _set_unpaired_values(batch, first, end, partner, penalty, out[mate], ONE_LANE)
        score_pairs(
            base_offsets_of(reads), batch, 0, model, np.uint64(1), NONE_HIDDEN, ENDS, out, ONE_LANE
        )
        for mate in range(2):
            expected = values(reads[mate], reads[1 - mate], naive_model(model), penalty)
            assert out[mate, : len(expected)].tolist() == expected
            assert (out[mate, len(expected) :] == -1).all()


def test_names_have_keys_of_their_own() -> None:
    names = ["", "a", "b", "ab", "ba", *(f"read{i}" for i in range(500))]
    assert len({int(key_of(name)) for name in names}) == len(names)
    both = np.frombuffer(b"xreadyy", np.uint8)
    assert name_key(both, 1, 5) == key_of("read")
