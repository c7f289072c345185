"""Collinear chains: the recurrence against all pairs, and what chaining makes of anchors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mapper.batch import AnchorBatch, ChainBatch
from mapper.chain.collinear import Items, gap_cost, link_items, log2_units, take_chains
from mapper.chain.cpu import chain_anchors
from mapper.jit.accelerate import driver
from mapper.jit.lanes import ONE_LANE
from mapper.params import ChainParams
from tests.naive import chains as naive


@driver
def _link(items, band, max_gap, lookback, score, parent):
    link_items(items, len(score), band, max_gap, lookback, score, parent, ONE_LANE)


@driver
def _take(order, score, parent, weight, least, used, members, ends, chain_score):
    return take_chains(
        order, len(score), score, parent, weight, least, used, members, ends, chain_score
    )


@driver
def _costs(lengths, out):
    for i in range(len(lengths)):
        out[i] = gap_cost(lengths[i])


@driver
def _logs(numbers, out):
    for i in range(len(numbers)):
        out[i] = log2_units(numbers[i])


def test_costs_are_those_of_the_definition() -> None:
    lengths = np.arange(5000)
    out = np.empty(5000, np.int64)
    _costs(lengths, out)
    assert out.tolist() == [naive.cost(n) for n in range(5000)]
    _logs(lengths[1:], out)
    assert np.abs(out[:-1] / naive.UNITS - np.log2(lengths[1:])).max() < 0.11


@st.composite
def item_lists(draw: st.DrawFn) -> list[naive.Item]:
    items = []
    for _ in range(draw(st.integers(0, 30))):
        group = draw(st.integers(0, 1))
        query, text = draw(st.integers(0, 200)), draw(st.integers(0, 300))
        length = draw(st.integers(1, 40))
        items.append(
            naive.Item(group, query, query + length, text, text + length, naive.UNITS * length)
        )
    return sorted(set(items), key=lambda item: (item.group, item.text_end, item.query_end))


@given(item_lists(), st.sampled_from([(5, 30), (50, 300), (300, 20)]))
def test_scores_are_those_of_all_pairs(items: list[naive.Item], limits: tuple[int, int]) -> None:
    band, max_gap = limits
    table = np.array(items, np.int64).reshape(-1, 6)
    columns = Items(*(np.ascontiguousarray(column) for column in table.T))
    score, parent = np.empty(len(items), np.int64), np.empty(len(items), np.int64)
    _link(columns, band, max_gap, 1000, score, parent)
    assert score.tolist() == naive.best_scores(items, band, max_gap)
    for i, j in enumerate(parent.tolist()):
        if j < 0:
            assert score[i] == items[i].weight
        else:
            assert naive.follows(items[j], items[i], band, max_gap)
            assert score[i] == score[j] + naive.gained(items[j], items[i])
    order = np.argsort(-score, kind="stable")
    n = len(items)
    members, ends, chain_score = (np.zeros(n, np.int64) for _ in range(3))
    n_chains = _take(
        order, score, parent, columns.weight, 10 * naive.UNITS, np.zeros(n, bool), members, ends,
        chain_score,
    )  # fmt: skip
    taken = members[: ends[n_chains - 1] if n_chains else 0].tolist()
    assert len(set(taken)) == len(taken)
    expected = naive.take(items, score.tolist(), parent.tolist(), 10 * naive.UNITS)
    found = []
    for chain in range(n_chains):
        rows = members[ends[chain - 1] if chain else 0 : ends[chain]][::-1].tolist()
        gains = [naive.gained(items[a], items[b]) for a, b in pairwise(rows)]
        assert chain_score[chain] == items[rows[0]].weight + sum(gains) >= 10 * naive.UNITS
        found.append(rows)
    assert found == expected
    if n_chains:
        assert chain_score[0] == score.max()


def anchors_of(rows: list[tuple[int, int, int, int]]) -> AnchorBatch:
    """Anchors of one read from (strand, query_start, text_pos, length)."""
    rows = sorted(rows, key=lambda r: (r[0], r[2] + r[3], r[1] + r[3]))
    strand, query, text, length = zip(*rows, strict=True)
    return AnchorBatch(
        np.array([0, len(rows)]), np.array(strand, np.uint8), np.array(query, np.int32),
        np.array(text), np.array(length, np.int32), np.zeros(1, np.int32),
    )  # fmt: skip


def chains_of(rows: list[tuple[int, int, int, int]]) -> ChainBatch:
    return chain_anchors(anchors_of(rows), np.array([0, 100_000]), ChainParams())


def test_a_chain_does_not_pay_for_a_link_to_a_better_one() -> None:
    """Behind a deletion whose gap costs more than the bases there: the right part is kept."""
    left = [(0, 100 * i, 1000 + 100 * i, 90) for i in range(50)]
    right = [(0, 5000 + 100 * i, 22_000 + 100 * i, 90) for i in range(20)]
    assert naive.cost(16_000) > naive.UNITS * 90 * 20
    chains = chains_of(left + right)
    assert chains.score.tolist() == [4500, 1800]
    assert chains.query_start[50:].tolist() == [5000 + 100 * i for i in range(20)]


def test_long_gaps_are_joined_and_contigs_are_not() -> None:
    first = [(0, 100 * i, 1000 + 100 * i, 90) for i in range(50)]
    deletion = [(0, 5000 + 100 * i, 16_000 + 100 * i, 90) for i in range(50)]
    other = [(0, 100 * i, 99_000 + 2000 + 100 * i, 30) for i in range(50)]
    chains = chains_of(first + deletion + other)
    assert chains.chain_offsets.tolist() == [0, 2]
    assert chains.ref_id.tolist() == [0, 1]
    assert np.diff(chains.anchor_offsets).tolist() == [100, 50]
    assert chains.query_start[:100].tolist() == [100 * i for i in range(100)]
    assert chains.text_pos[99] == 16_000 + 4900
    assert chains.score[0] == (naive.UNITS * 9000 - naive.cost(10_000)) // naive.UNITS
    assert chains.score[1] == 1500


def test_strands_are_apart_and_weak_chains_are_dropped() -> None:
    chains = chains_of([(0, 10, 500, 30), (1, 10, 500, 45), (0, 50, 560, 30), (0, 90, 9000, 39)])
    assert chains.strand.tolist() == [0, 1]
    assert np.diff(chains.anchor_offsets).tolist() == [2, 1]


def test_reads_without_anchors() -> None:
    empty = AnchorBatch(
        np.zeros(3, np.int64), np.zeros(0, np.uint8), np.zeros(0, np.int32), np.zeros(0, np.int64),
        np.zeros(0, np.int32), np.zeros(2, np.int32),
    )  # fmt: skip
    chains = chain_anchors(empty, np.zeros(1, np.int64), ChainParams())
    assert chains.chain_offsets.tolist() == [0, 0, 0]
