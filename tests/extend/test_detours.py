"""Anchors that cost an alignment more than they bring are left out of chains; no others are."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.batch import ChainBatch
from mapper.extend.detours import drop_detours
from mapper.params import PRESETS

SCORING = PRESETS["ont"].scoring  # match 2, gaps min(4 + 2 l, 24 + l)
Anchor = tuple[int, int, int]  # query, text, length


def chains_of(*chains: list[Anchor]) -> ChainBatch:
    anchors = [anchor for chain in chains for anchor in chain]
    offsets = np.cumsum([0, *map(len, chains)])
    query, text, length = zip(*anchors, strict=True)
    n = len(chains)
    return ChainBatch(
        np.array([0, n]), np.zeros(n, np.uint8), np.zeros(n, np.int32), np.ones(n, np.int32),
        offsets, np.array(query, np.int32), np.array(text), np.array(length, np.int32),
    )  # fmt: skip


def kept(chain: list[Anchor]) -> list[Anchor]:
    """Drop the detours of a chain, which is the second of two."""
    whole = [(0, 100, 50), (60, 160, 50)]
    found = drop_detours(chains_of(whole, chain), SCORING)
    columns = found.query_start.tolist(), found.text_pos.tolist(), found.length.tolist()
    anchors = list(zip(*columns, strict=True))
    assert anchors[:2] == whole and found.anchor_offsets.tolist() == [0, 2, len(anchors)]
    return anchors[2:]


def along(*steps: tuple[int, int]) -> list[Anchor]:
    """Return anchors 300 bases apart; each step is a diagonal and a length."""
    return [(300 * i, 10_000 + 300 * i + diagonal, n) for i, (diagonal, n) in enumerate(steps)]


@pytest.mark.parametrize(
    ("steps", "left_out"),
    [
        (((0, 30), (0, 19), (0, 30)), set()),
        (((0, 30), (1, 19), (0, 30)), set()),  # two gaps of 6, for 38
        (((0, 30), (26, 20), (0, 30)), {1}),  # two gaps of 50
        (((0, 30), (26, 60), (0, 30)), set()),
        (((0, 30), (26, 20), (26, 20), (0, 30)), {1, 2}),
        (((0, 30), (26, 30), (27, 30), (0, 30)), set()),
        (((0, 90), (500, 40), (900, 90)), {1}),  # one gap of 124 remains
        (((0, 90), (500, 70), (900, 90)), set()),
        (((0, 90), (500, 61), (0, 90)), {1}),  # no gap costs more than 124
        (((0, 90), (500, 190), (0, 90)), set()),
        (((0, 90), (26, 24)), {1}),  # behind the last gap
        (((0, 90), (26, 26)), set()),
        (((0, 20), (0, 20), (300, 90)), {0, 1}),  # before the first
        (((0, 40), (0, 40), (300, 90)), set()),
    ],
)
def test_anchors_that_are_not_worth_their_gaps(
    steps: tuple[tuple[int, int], ...], left_out: set[int]
) -> None:
    chain = along(*steps)
    assert kept(chain) == [anchor for i, anchor in enumerate(chain) if i not in left_out]


def test_a_chain_keeps_an_anchor() -> None:
    assert kept(along((0, 19))) == along((0, 19))
    rng = np.random.default_rng(4)
    for _ in range(200):
        n = int(rng.integers(1, 12))
        chain = along(
            *zip(rng.integers(-40, 40, n).tolist(), rng.integers(19, 60, n).tolist(), strict=True)
        )
        found = kept(chain)
        assert found and set(found) <= set(chain) and found == sorted(found)
