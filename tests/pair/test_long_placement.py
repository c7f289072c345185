"""Mapping quality of long reads: what raises it and what lowers it."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.jit.accelerate import driver
from mapper.pair.long_placement import long_quality

SURE = {
    "read_len": 10_000, "score": 9000, "second": 0, "n_near": 0, "chain_score": 8000,
    "second_chain": 40, "identity": 0.99, "unique": 1.0, "match": 1, "mismatch": 4,
}  # fmt: skip


@driver
def _quality(
    read_len, score, second, n_near, chain_score, second_chain, identity, unique, match, mismatch
):
    return long_quality(
        read_len, score, second, n_near, chain_score, second_chain, identity, unique, match,
        mismatch,
    )  # fmt: skip


def quality(**changes: float) -> float:
    values = SURE | changes
    return float(
        _quality(*(value if isinstance(value, float) else np.int64(value) for value in
                   values.values()))
    )  # fmt: skip


def test_a_read_without_competitors_is_sure() -> None:
    assert quality() == 60.0


@pytest.mark.parametrize(
    "changes",
    [
        {"second": 9000, "second_chain": 8000, "n_near": 1},
        {"score": 0},
        {"unique": 0.0},
        {"chain_score": 0},
    ],
)
def test_no_quality(changes: dict[str, float]) -> None:
    assert quality(**changes) == 0.0


def test_quality_grows_with_the_lead() -> None:
    leads = [quality(second=9000 - lead, second_chain=7990) for lead in range(0, 200, 5)]
    assert leads[0] == 0.0
    assert leads == sorted(leads)
    assert leads[1] < 10 and leads[-1] == 60.0


def test_a_lead_of_one_match_is_none() -> None:
    assert quality(second=8999, second_chain=40) == 0.0
    assert quality(second=8998, second_chain=40) > 0.0
    assert quality(match=2, mismatch=8, second=8998, second_chain=40) == 0.0


def test_less_than_two_differences_may_be_errors() -> None:
    """Even where the second chain is far behind."""
    least, most = (quality(second=9000 - lead, second_chain=40, n_near=0) for lead in (4, 9))
    assert least == most < 6
    assert quality(second=8990, second_chain=40, n_near=0) > 20


def test_short_chains_and_frequent_seeds_are_less_sure() -> None:
    assert quality(chain_score=60, score=80) < 30
    assert 0 < quality(unique=0.05) < quality(unique=0.1) <= 60


def test_a_near_competitor_costs_more_than_a_far_one() -> None:
    assert quality(second=8990, second_chain=7990, n_near=3) < quality(
        second=8990, second_chain=7990, n_near=1
    )
    assert quality(second_chain=4000) >= quality(second_chain=7800)


def test_a_lead_says_less_the_longer_the_read_is() -> None:
    def of_length(read_len: int) -> float:
        return quality(read_len=read_len, second=8990, second_chain=7990, identity=1.0)

    # Two differences: 20 each as for short reads, 5 each for long ones.
    assert of_length(50) == of_length(100) == 40.0
    assert of_length(2000) == pytest.approx(25.0)
    assert of_length(1_000_000) == pytest.approx(10.0)
    lengths = [of_length(read_len) for read_len in range(100, 20_000, 100)]
    assert lengths == sorted(lengths, reverse=True)
