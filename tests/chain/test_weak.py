"""Reads that are seeded again: which they are, and that each keeps the chains of its own look."""

from __future__ import annotations

import numpy as np

from mapper.batch import ChainBatch
from mapper.chain.weak import choose_chains, weak_reads
from tests.helpers.read_batches import offsets_of


def chains_of(reads: list[list[list[int]]]) -> ChainBatch:
    """Chains of reads: of each read a list of chains, of each chain the places of its anchors."""
    chains = [chain for read in reads for chain in read]
    places = [place for chain in chains for place in chain]
    return ChainBatch(
        chain_offsets=offsets_of([len(read) for read in reads]),
        strand=np.array([chain[0] & 1 for chain in chains], np.uint8),
        ref_id=np.array([chain[0] % 3 for chain in chains], np.int32),
        score=np.array([sum(chain) for chain in chains], np.int32),
        anchor_offsets=offsets_of([len(chain) for chain in chains]),
        query_start=np.array(places, np.int32),
        text_pos=np.array([100 + place for place in places], np.int64),
        length=np.array([place % 7 for place in places], np.int32),
    )


def test_reads_without_a_good_chain_are_weak() -> None:
    chains = chains_of([[[60], [50]], [], [[9]], []])
    found = weak_reads(offsets_of([600, 600, 100, 0]), chains, 0.1)
    assert found.tolist() == [False, True, True, False]


def test_each_read_has_the_chains_of_its_look() -> None:
    rng = np.random.default_rng(1)
    first, second = (
        [
            [rng.integers(1, 50, rng.integers(1, 5)).tolist() for _ in range(rng.integers(0, 4))]
            for _ in range(50)
        ]
        for _ in range(2)
    )
    is_second = rng.random(50) < 0.5
    wanted = [b if again else a for a, b, again in zip(first, second, is_second, strict=True)]
    found = choose_chains(chains_of(first), chains_of(second), is_second)
    for column, expected in zip(found, chains_of(wanted), strict=True):
        assert column.dtype == expected.dtype
        assert column.tolist() == expected.tolist()
