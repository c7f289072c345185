"""Placements: the primary alignment, the roles of the others, and mapping quality."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from mapper.index.reference import NO_GROUPS
from mapper.pair.insert_size import InsertSizeModel, assumed_model, model_from
from mapper.pair.mapq import (
    EXPLAINED,
    FEW_SEEDS,
    FEW_SEEDS_QUALITY,
    MAX_MAPQ,
    PAIR_BOOST,
    PRIMARY,
    SECONDARY,
    SUPPLEMENTARY,
    TENTHS_IN_DOUBT,
    chance_cap,
    cost_of_rivals,
    lead_quality,
    quality_of_odds,
    unseen_score,
)
from mapper.pair.placement import PlacementBatch
from mapper.params import ExtendParams, PairParams
from tests.helpers.placements import batch_of_placed, naive_model, no_seeds, place, random_read
from tests.helpers.read_batches import reads_of
from tests.naive.pairing import QUARTERS, Placed, best_pairs

PARAMS = PairParams()
SCORES = ExtendParams()
FR = model_from(400.0, 60.0, 150, 700, 1000)


def placed(
    reads: list[list[Placed]],
    model: InsertSizeModel | None = None,
    *,
    edit_distance: int = 0,
    names: list[str] | None = None,
) -> PlacementBatch:
    """Place reads; as pairs if a model is given."""
    lengths = [read[0].read_len if read else 100 for read in reads]
    batch = reads_of(["A" * n for n in lengths], paired=model is not None, names=names)
    return place(
        batch, no_seeds(len(reads)), batch_of_placed(reads, edit_distance),
        model or assumed_model(),
    )  # fmt: skip


def at(start: int, score: int, *, strand: int = 0, query: tuple[int, int] = (0, 100)) -> Placed:
    return Placed(strand, 0, start, start + query[1] - query[0], *query, score, 100)


def ranked(read: list[Placed]) -> list[Placed]:
    """Return alignments with the scores by which they are chosen: with end bonuses."""
    bonus = SCORES.end_bonus
    return [
        p._replace(score=p.score + bonus * ((p.query_start == 0) + (p.query_end == p.read_len)))
        for p in read
    ]


def test_a_pair_is_proper_where_that_pays() -> None:
    rng = np.random.default_rng(1)
    reads = [random_read(rng, int(n), (60, 70, 80, 90)) for n in rng.integers(0, 7, 600)]
    found = placed(reads, FR)
    firsts = np.concatenate([[0], np.cumsum([len(read) for read in reads])])
    n_proper = n_apart = 0
    for i in range(0, len(reads), 2):
        mates = [ranked(read) for read in reads[i : i + 2]]
        rows = tuple(int(found.primary[j]) - int(firsts[j]) if reads[j] else -1 for j in (i, i + 1))
        best, pairs = best_pairs(*mates, naive_model(FR))
        tops = [max((p.score for p in mate), default=None) for mate in mates]
        proper = best is not None and best >= QUARTERS * (sum(tops) - PARAMS.unpaired_penalty)
        assert found.proper[i] == found.proper[i + 1] == proper
        if proper:
            assert rows in pairs
            n_proper += 1
            continue
        n_apart += all(mates)
        for mate, row, top in zip(mates, rows, tops, strict=True):
            assert (row == -1) if not mate else (mate[row].score == top)
    assert n_proper > 50 and n_apart > 50
    unmapped = [j for j, read in enumerate(reads) if not read]
    assert (found.primary[unmapped] == -1).all()


@pytest.mark.parametrize("paired", [False, True])
def test_the_choice_among_equals_does_not_depend_on_their_order(paired: bool) -> None:
    rng = np.random.default_rng(2)
    reads = [random_read(rng, 6, (80,)) for _ in range(80)]
    model = assumed_model() if paired else None
    found = placed(reads, model)
    order = [rng.permutation(6) for _ in reads]
    shuffled = [[read[j] for j in o] for read, o in zip(reads, order, strict=True)]
    again = placed(shuffled, model)
    for i in range(len(reads)):
        one = reads[i][found.primary[i] - 6 * i]
        assert shuffled[i][again.primary[i] - 6 * i] == one
        assert found.mapq[found.primary[i]] == again.mapq[again.primary[i]]
    assert found.proper.tolist() == again.proper.tolist()


SHORT = SCORES.min_score - 5  # score of alignments that only a proper pair makes worth reporting


def test_short_alignments_are_reported_in_a_proper_pair_only() -> None:
    mates = [[at(1000, SHORT)], [at(1200, SHORT, strand=1)]]
    together = placed(mates, FR)
    assert together.proper.all() and together.primary.tolist() == [0, 1]
    apart = placed([mates[0], [at(8000, SHORT, strand=1)]], FR)
    assert not apart.proper.any() and apart.primary.tolist() == [-1, -1]
    assert not apart.role.any()
    assert placed(mates).primary.tolist() == [-1, -1]  # as single reads


def test_the_mate_of_a_read_that_is_not_reported_keeps_its_place() -> None:
    found = placed([[at(1000, 95)], [at(8000, SHORT, strand=1)]], FR)
    assert found.primary.tolist() == [0, -1] and not found.proper.any()
    assert found.mapq[0] == MAX_MAPQ


def test_short_alternatives_compete_but_are_not_reported() -> None:
    over, beside = (0, 60), (60, 100)
    read = [at(1000, 35, query=over), at(5000, SHORT, query=over), at(7000, SHORT, query=beside)]
    found = placed([read])
    assert found.role.tolist() == [PRIMARY, 0, 0]
    assert found.head.tolist() == [0, 0, -1]
    assert found.sub_score[0] == SHORT
    assert 0 < found.mapq[0] < placed([read[:1]]).mapq[0]


def test_equals_spread_over_their_places_by_name() -> None:
    copies = [at(3000 * i, 95) for i in range(4)]
    n = 800
    found = placed([copies] * n, names=[f"name{i}" for i in range(n)])
    picked = Counter((found.primary - 4 * np.arange(n)).tolist())
    assert set(picked) == {0, 1, 2, 3}
    assert min(picked.values()) > 130
    same = placed([copies] * n, names=["one"] * n)
    assert len(set((same.primary - 4 * np.arange(n)).tolist())) == 1


def test_an_end_that_is_reached_counts() -> None:
    """Three bases clipped cost more than a mismatch among them."""
    read = [at(1000, 97, query=(3, 100)), at(5000, 95)]
    found = placed([read])
    assert found.primary.tolist() == [1] and found.sub_score[1] == 97
    mates = [read, [at(1200, 100, strand=1), at(5200, 100, strand=1)]]
    assert placed(mates, assumed_model()).primary.tolist() == [1, 3]


def test_exact_ties_have_no_quality() -> None:
    found = placed([[at(1000, 90), at(3000, 90)], [at(1000, 90), at(3000, 90, strand=1)]])
    assert found.mapq[found.primary].tolist() == [0, 0]
    pair = [[at(1000, 90), at(3000, 90)], [at(1300, 90, strand=1), at(3300, 90, strand=1)]]
    found = placed(pair, assumed_model())
    assert found.proper.all()
    assert found.mapq[found.primary].tolist() == [0, 0]


def test_a_unique_mate_lifts_its_partner() -> None:
    pair = [[at(1000, 90), at(3000, 90)], [at(3300, 90, strand=1)]]
    found = placed(pair, assumed_model())
    assert found.primary.tolist() == [1, 2]
    alone = placed(pair)
    assert alone.mapq[alone.primary[0]] == 0
    assert 0 < found.mapq[1] <= MAX_MAPQ


def test_what_overlapping_mates_both_show_counts_once() -> None:
    """A variant that makes the sample more like another place is one event, in both mates."""

    def quality(apart: int, alternatives: tuple[int, int]) -> int:
        first = [at(1000, 100), at(50_000, alternatives[0])]
        second = [
            at(1000 + apart, 100, strand=1), at(50_000 + apart, alternatives[1], strand=1)
        ]  # fmt: skip
        found = placed([first, second], FR)
        assert found.proper.all()
        assert found.primary.tolist() == [0, 2]
        assert found.mapq[0] == found.mapq[2]
        return int(found.mapq[0])

    far = quality(300, (96, 96))
    assert far == round(8 * PARAMS.quality_in_pair / SCORES.match)
    assert quality(100, (96, 96)) == far  # side by side
    overlapping = [quality(apart, (96, 96)) for apart in (90, 75, 60)]
    assert sorted(overlapping, reverse=True) == overlapping
    # 40 of 100 bases are shared, and so is 1 of the 4 by which each mate leads.
    assert overlapping[-1] == 7 * PARAMS.quality_in_pair / SCORES.match < far
    # Where one mate has all the lead, nothing is counted twice.
    assert quality(60, (96, 100)) == quality(300, (96, 100)) > 0
    # No alternative, no evidence that both could share.
    assert placed([[at(1000, 100)], [at(1060, 100, strand=1)]], FR).mapq.tolist() == [60, 60]


@pytest.mark.parametrize("paired", [False, True])
def test_quality_grows_with_the_lead(paired: bool) -> None:
    reads = []
    for lead in range(41):
        reads.append([at(1000, 95), at(3000, 95 - lead)])
        if paired:
            reads.append([at(1300, 95, strand=1), at(3300, 95 - lead, strand=1)])
    found = placed(reads, FR if paired else None)
    best = found.mapq[found.primary[:: 2 if paired else 1]].astype(int)
    assert best[0] == 0
    assert (np.diff(best) >= 0).all()
    assert best[-1] >= 55
    assert best.max() <= MAX_MAPQ


def test_differences_and_short_alignments_make_less_sure() -> None:
    lead = [[at(1000, 95), at(3000, 85)]]
    assert placed(lead).mapq[0] > placed(lead, edit_distance=20).mapq[0] > 0
    short = placed([[at(1000, 11, query=(0, 11))]])
    assert short.mapq[0] == 0


def test_parts_of_a_split_read_are_heads_and_the_rest_is_theirs() -> None:
    read = [
        at(1000, 60, query=(0, 60)),
        at(9000, 55, query=(2, 60)),
        at(5000, 40, query=(60, 100)),
        at(7000, 38, query=(62, 100)),
        at(8000, 37, query=(20, 60)),
    ]
    found = placed([read])
    assert found.role.tolist() == [PRIMARY, SECONDARY, SUPPLEMENTARY, SECONDARY, SECONDARY]
    assert found.head.tolist() == [0, 0, 2, 2, 0]
    assert found.sub_score.tolist() == [55, 0, 38, 0, 0]
    assert found.mapq[2] <= found.mapq[0]


def test_alignments_to_both_strands_compete_for_the_bases_they_share() -> None:
    # Positions count on the strand: 0:60 of one are 40:100 of the other.
    first = at(1000, 60, query=(0, 60))
    for query, role in (((40, 100), SECONDARY), ((0, 60), SUPPLEMENTARY)):
        other = at(5000, 55, strand=1, query=query)
        for read in ([first, other], [first._replace(strand=1), other._replace(strand=0)]):
            found = placed([read])
            assert found.role.tolist() == [PRIMARY, role]
    assert placed([[first, at(5000, 60, strand=1, query=(40, 100))]]).mapq.max() == 0


def test_roles_of_random_reads() -> None:
    rng = np.random.default_rng(3)
    reads = []
    for _ in range(200):
        read = []
        for _ in range(rng.integers(0, 8)):
            start = int(rng.integers(0, 70))
            end = int(rng.integers(start + 20, 101))
            read.append(at(int(rng.integers(0, 10**6)), int(rng.integers(20, 90)),
                           strand=int(rng.integers(2)), query=(start, end)))  # fmt: skip
        reads.append(sorted(read, key=lambda p: -p.score))
    found = placed(reads)
    first = 0
    for i, read in enumerate(reads):
        rows = range(first, first + len(read))
        first += len(read)
        if not read or read[0].score < SCORES.min_score:
            assert found.primary[i] == -1 and not found.role[rows.start : rows.stop].any()
            continue
        assert [r for r in rows if found.role[r] == PRIMARY] == [found.primary[i]]
        heads = [r for r in rows if found.role[r] in (PRIMARY, SUPPLEMENTARY)]

        def competes(a: int, b: int, read: list[Placed] = read, base: int = rows[0]) -> bool:
            p, q = (
                {x if r.strand == 0 else 99 - x for x in range(r.query_start, r.query_end)}
                for r in (read[a - base], read[b - base])
            )
            return len(p & q) >= PARAMS.secondary_overlap * min(len(p), len(q))

        for r in rows:
            reported = read[r - rows[0]].score >= SCORES.min_score
            assert (found.role[r] in (PRIMARY, SUPPLEMENTARY, SECONDARY)) == reported
            if r in heads:
                assert found.head[r] == r
                assert not any(competes(r, other) for other in heads if other != r)
                under = [read[s - rows[0]].score for s in rows
                         if s != r and found.head[s] == r]  # fmt: skip
                assert found.sub_score[r] == max(under, default=0)
            else:
                rivals = [h for h in heads if competes(h, r)]
                assert rivals or not reported
                first_rival = min(rivals, key=lambda h: (found.role[h] != PRIMARY, h), default=-1)
                assert found.head[r] == first_rival


def test_no_lead_exceeds_that_over_a_place_of_few_bases() -> None:
    assert [unseen_score(n, 2) for n in (10, 20, 100, 150)] == [10, 20, 38, 38]
    short, long = placed([[at(1000, 30)]]), placed([[at(1000, 60)]])
    assert 0 < short.mapq[0] < long.mapq[0] == MAX_MAPQ


def test_a_read_of_few_seeds_is_not_sure_by_itself() -> None:
    def qualities(
        thinned: bool, guarantee: list[int], reads: list[list[Placed]], proper: bool = True
    ) -> list[int]:
        seeds = no_seeds(len(reads))._replace(guarantee=np.array(guarantee, np.int32))
        seeds.thinned[:] = thinned
        batch = reads_of(["A" * 100] * len(reads), paired=len(reads) == 2)
        found = place(batch, seeds, batch_of_placed(reads), FR)
        assert found.proper.tolist() == [proper and len(reads) == 2] * len(reads)
        return found.mapq[found.primary].tolist()

    single, pair = [[at(1000, 95)]], [[at(1000, 95)], [at(1300, 95, strand=1)]]
    apart = [[at(1000, 95)], [at(91300, 95, strand=1)]]
    assert qualities(True, [FEW_SEEDS], single) == [FEW_SEEDS_QUALITY]
    assert qualities(True, [FEW_SEEDS + 1], single) == [MAX_MAPQ]
    assert qualities(False, [0], single) == [MAX_MAPQ]
    assert qualities(True, [0, 0], pair) == [MAX_MAPQ, MAX_MAPQ]  # each vouches for the other
    assert qualities(True, [0, 7], apart, False) == [FEW_SEEDS_QUALITY, MAX_MAPQ]


def test_a_pair_that_is_still_in_doubt_is_less_sure() -> None:
    def qualities(
        guarantee: int, thinned: list[bool], *others: Placed, groups: np.ndarray = NO_GROUPS
    ) -> list[int]:
        reads = [[at(1000, 95), *others], [at(1300, 95, strand=1), at(81000, 95, strand=1)]]
        seeds = no_seeds(2)._replace(guarantee=np.full(2, guarantee, np.int32))
        seeds.thinned[:] = thinned
        batch = reads_of(["A" * 100] * 2, paired=True)
        found = place(batch, seeds, batch_of_placed(reads), FR, groups)
        assert found.proper.all()
        return found.mapq[found.primary].tolist()

    tie = at(70000, 95)
    sure = qualities(9, [True, True], tie)  # nothing can be hidden
    assert min(sure) >= PAIR_BOOST // 2
    assert qualities(0, [True, False], tie) == sure
    assert qualities(0, [True, True], tie) == [q * TENTHS_IN_DOUBT // 10 for q in sure]
    # The first mate can tell its place by itself.
    assert qualities(0, [True, True]) == qualities(9, [True, True])
    # With groups of contigs the next best may be no rival.
    assert qualities(0, [True, True], tie, groups=np.zeros(1, np.int32)) == sure


def test_a_read_that_is_little_explained_is_less_sure() -> None:
    def quality(*read: Placed) -> int:
        found = place(reads_of(["A" * 100]), no_seeds(1), batch_of_placed([list(read)]), FR)
        return int(found.mapq[found.primary[0]])

    part = at(1000, 40, query=(0, 40))
    assert quality(part) == round(MAX_MAPQ * 40 / (EXPLAINED * 100))
    assert quality(part, at(9000, 45, query=(50, 100))) == MAX_MAPQ  # its rest is explained
    assert quality(part, at(1000, 15, query=(50, 65))) < MAX_MAPQ

    found = place(
        reads_of(["A" * 100]), no_seeds(1),
        batch_of_placed([[part, at(9000, 20, query=(60, 80))]]), FR,
    )  # fmt: skip
    assert found.mapq.tolist() == [quality(part), 0]  # the second is not reported
    pair = batch_of_placed([[part, at(8000, 35, query=(0, 40))], [at(1300, 95, strand=1)]])
    found = place(reads_of(["A" * 100] * 2, paired=True), no_seeds(2), pair, FR)
    own = PARAMS.quality_alone * 5 * 40 / (EXPLAINED * 100)  # its mate adds 40
    assert found.mapq[found.primary].tolist() == [round(own + PAIR_BOOST), MAX_MAPQ]


def test_alternatives_weigh_less_the_farther_they_are_behind() -> None:
    def quality(*scores: int) -> int:
        read = [at(3000 * i, score) for i, score in enumerate(scores)]
        found = place(reads_of(["A" * 100]), no_seeds(1), batch_of_placed([read]), FR)
        return int(found.mapq[found.primary[0]])

    one = quality(100, 90)
    assert one == quality(100, 90, *[80] * 99)
    assert one - quality(100, 90, *[90] * 99) == 20  # 100 for 1
    by_distance = [quality(100, 90, *[score] * 99) for score in range(79, 91)]
    assert by_distance == sorted(by_distance, reverse=True)
    assert all(a - b <= 4 for a, b in pairwise(by_distance))
    # A better best of the others makes no placement surer, whatever the rest.
    by_best = [quality(100, score, *[86] * 99) for score in range(86, 100)]
    assert by_best == sorted(by_best, reverse=True)


def test_quality_of_odds() -> None:
    ratios = np.arange(-40, 80, 1 / 64)
    found = np.array([quality_of_odds(ratio) for ratio in ratios])
    expected = np.minimum(10 * np.log10(1 + 10 ** (ratios / 10)), MAX_MAPQ)
    inside = ratios >= -10
    assert np.abs(found - expected)[inside].max() < 1 / 14
    assert 0 < found[~inside].max() < 0.5  # a quality of 0
    assert (np.diff(found) >= 0).all()


def test_lead_quality_and_chance() -> None:
    costs = cost_of_rivals(10.0)
    leads = [
        lead_quality(lead / 4, PARAMS.quality_in_pair, 1, costs, 1.0) for lead in range(-20, 200)
    ]
    assert all(b >= a for a, b in pairwise(leads))
    assert leads[0] == leads[20] == 0 < leads[21] and max(leads) == MAX_MAPQ
    assert lead_quality(8, PARAMS.quality_in_pair, 1, costs, 1.0) > lead_quality(
        8, PARAMS.quality_in_pair, 10, costs, 1.0
    )
    assert lead_quality(8, PARAMS.quality_in_pair, 1, costs, 1.0) > lead_quality(
        8, PARAMS.quality_in_pair, 1, costs, 0.9
    )
    alone = lead_quality(8, PARAMS.quality_alone, 1, costs, 1.0)
    assert 0 < alone < lead_quality(8, PARAMS.quality_in_pair, 1, costs, 1.0)
    assert chance_cap(10, 7.0) == 0 < chance_cap(13, 7.0) < chance_cap(30, 7.0)
