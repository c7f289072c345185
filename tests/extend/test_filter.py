"""Alignments that can change no record are dropped: against the rule in plain words, and placed."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.extend.filter import (
    FEW_COMPARED,
    keep_counting,
    keep_distinct,
    keep_distinct_by_place,
)
from mapper.extend.read import FOUND_TYPES, Found
from mapper.jit.lanes import ONE_LANE, THREAD_LANE
from mapper.pair.insert_size import model_from
from mapper.pair.mapq import SECONDARY
from mapper.params import KEEP_ALL, KeepParams, MapParams, PairParams, RecordParams
from tests.helpers.placements import batch_of_placed, no_seeds, place
from tests.helpers.read_batches import reads_of
from tests.naive.pairing import Placed

KEEP = MapParams().keep
FR = model_from(400.0, 60.0, 150, 700, 1000)
READ_LEN = 150
SURE = 40
"""Quality that a lead of KEEP_MARGIN has alone, over a dozen alternatives."""


def given_span(p: Placed) -> range:
    """Bases of the read as given."""
    if p.strand == 0:
        return range(p.query_start, p.query_end)
    return range(p.read_len - p.query_end, p.read_len - p.query_start)


def competes(a: Placed, span: set[int], longest: int) -> bool:
    bases = given_span(a)
    return len(span.intersection(bases)) >= 0.5 * min(len(bases), longest)


def expected(read: list[Placed], params: KeepParams) -> list[Placed]:
    """Return what stays of the alignments of a read, which come best first."""
    if not read:
        return []
    lowest = read[0].score - params.placed
    placed = [p for p in read if p.score >= lowest]
    common = set.intersection(*(set(given_span(p)) for p in placed))
    longest = max(len(given_span(p)) for p in placed)
    bar = min(read[0].score - params.margin, lowest * params.listed_share // 1024)
    staying, n_competing = [], 0
    for p in read:
        competing = competes(p, common, longest)
        if not competing or n_competing < 2 or p.score >= bar:
            staying.append(p)
        n_competing += competing
    return staying


def kept_by_core(read: list[Placed], params: KeepParams, unit: int = 1) -> list[Placed]:
    found = Found(*(np.zeros(max(len(read), 1), np.dtype(t)) for t in FOUND_TYPES))
    order = np.random.default_rng(len(read)).permutation(len(read)).astype(np.int32)
    for p, row in zip(read, order, strict=True):
        found.strand[row] = p.strand
        found.query_start[row], found.query_end[row] = p.query_start, p.query_end
        found.score[row] = unit * p.score
    kept = order.copy()
    n = keep_counting(found, kept, len(read), READ_LEN, unit, params, ONE_LANE)
    place_of = {int(row): i for i, row in enumerate(order)}
    return [read[place_of[int(row)]] for row in kept[:n]]


def random_read(rng: np.random.Generator, most: int) -> list[Placed]:
    """Return alignments best first, of one, two or three pieces of a read, and of its copies."""
    pieces = [(0, READ_LEN), (0, 90), (70, READ_LEN), (40, 100)]
    pieces = [pieces[i] for i in rng.choice(4, rng.integers(1, 4), replace=False)]
    read = []
    for _ in range(rng.integers(0, most)):
        strand = int(rng.integers(2))
        start, end = pieces[rng.integers(len(pieces))]
        start, end = start + int(rng.integers(0, 9)), end - int(rng.integers(0, 9))
        if strand:
            start, end = READ_LEN - end, READ_LEN - start
        lost = int(rng.choice([0, 5, 10, 40, 50, 60, 80])) + int(rng.integers(0, 3))
        place = int(rng.integers(0, 2_000)) + 10_000 * int(rng.integers(0, 3))
        score = max(19, end - start - lost)
        read.append(Placed(strand, 0, place, place + end - start, start, end, score, READ_LEN))
    return sorted(read, key=lambda p: (-p.score, p.strand, p.start))


def found_at_random(rng: np.random.Generator, n: int, span: int) -> Found:
    """Return alignments within `span` bases of the text, many of them more or less the same."""
    found = Found(*(np.zeros(n, np.dtype(t)) for t in FOUND_TYPES))
    found.strand[:] = rng.integers(0, 2, n)
    found.ref_id[:] = rng.integers(0, 2, n)
    found.query_start[:] = rng.choice([0, 3, 50], n)
    found.query_end[:] = rng.choice([90, 145, 150], n)
    found.text_start[:] = rng.integers(0, span, n)
    gaps = rng.choice([-5, 0, 0, 0, 40], n)
    found.text_end[:] = found.text_start + found.query_end - found.query_start + gaps
    found.score[:] = rng.integers(30, 30 + rng.integers(1, 100), n)
    return found


@pytest.mark.parametrize("span", [40, 1000, 10**12])
def test_distinct_ones_are_found_by_their_places(span: int) -> None:
    rng = np.random.default_rng(span)
    n_dropped = 0
    for n in (0, 1, FEW_COMPARED, *range(FEW_COMPARED + 1, FEW_COMPARED + 40), 300, 301):
        found = found_at_random(rng, n, span)
        rows = np.arange(n, dtype=np.int32)
        n_kept = keep_distinct(found, rows, n)
        kept = np.arange(n, dtype=np.int32)
        spare, keys = np.empty(n, np.int32), np.empty(3 * n, np.int64)
        for lanes in (ONE_LANE, THREAD_LANE):
            kept[:] = np.arange(n)
            assert keep_distinct_by_place(found, kept, n, spare, keys, lanes) == n_kept
            assert kept[:n_kept].tolist() == rows[:n_kept].tolist()
        n_dropped += n - n_kept
    assert (n_dropped > 100) == (span < 10**12)


def test_what_stays_is_what_the_rule_says() -> None:
    rng = np.random.default_rng(1)
    n_dropped = n_kept = 0
    for _ in range(400):
        read = random_read(rng, 30)
        staying = expected(read, KEEP)
        assert kept_by_core(read, KEEP) == staying
        assert kept_by_core(read, KEEP, unit=2) == staying
        assert kept_by_core(read, KEEP_ALL) == read
        n_dropped += len(read) - len(staying)
        n_kept += len(staying)
    assert n_dropped > 500 and n_kept > 500


def test_what_is_wanted_and_allowed_decides_what_can_matter() -> None:
    assert MapParams(record=RecordParams(all_alignments=True)).keep == KEEP_ALL
    rng = np.random.default_rng(2)
    reads = [random_read(rng, 30) for _ in range(100)]
    for params in (
        MapParams(pair=PairParams(unpaired_penalty=1000)),
        MapParams(record=RecordParams(xa_ratio=0.0)),
    ):
        assert [kept_by_core(read, params.keep) for read in reads] == reads


@pytest.mark.parametrize("paired", [True, False])
def test_nothing_that_is_dropped_is_missed(paired: bool) -> None:
    """Placements, roles and listed alternatives, with all alignments and with those kept."""
    rng = np.random.default_rng(3)
    reads = [random_read(rng, 24) for _ in range(1200)]
    fewer = [kept_by_core(read, KEEP) for read in reads]
    sequences = ["A" * READ_LEN] * len(reads)
    batch = reads_of(sequences, paired=paired)
    found = [place(batch, no_seeds(len(reads)), batch_of_placed(r), FR) for r in (reads, fewer)]
    assert found[0].proper.tolist() == found[1].proper.tolist()
    assert found[0].proper.any() == paired
    record = RecordParams()
    rows = [0, 0]
    n_listed = 0
    for pair in zip(reads, fewer, strict=True):
        seen = []
        for side, read in enumerate(pair):
            first, placements = rows[side], found[side]
            rows[side] += len(read)
            roles = placements.role[first : rows[side]].tolist()
            heads = placements.head[first : rows[side]] - first
            lines = []
            for i, p in enumerate(read):
                if not 0 < roles[i] != SECONDARY:
                    continue
                listed = [
                    read[j] for j in range(len(read))
                    if roles[j] == SECONDARY and heads[j] == i
                    and read[j].score >= record.xa_ratio * p.score
                ]  # fmt: skip
                if len(listed) > record.max_xa:
                    listed = []
                n_listed += len(listed)
                lines.append((p, roles[i], int(placements.sub_score[first + i]), listed))
            seen.append((lines, [int(m) for m in placements.mapq[first : rows[side]]]))
        assert seen[0][0] == seen[1][0]
        # Only how many far alternatives there are is not counted any more.
        qualities = [
            [q for q, r in zip(mapq, read, strict=True) if any(r == line[0] for line in lines)]
            for read, (lines, mapq) in zip(pair, seen, strict=True)
        ]
        for before, after in zip(*qualities, strict=True):
            assert before == after or SURE <= before < after
    assert n_listed > 100
