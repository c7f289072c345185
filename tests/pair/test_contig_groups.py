"""Groups of contigs: ALT contigs as bwa has them, and copies that say nothing of one another."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.batch import AlignmentBatch
from mapper.index.reference import ALT, NO_GROUPS, UNGROUPED, make_contigs
from mapper.pair.contig_groups import is_apart
from mapper.pair.insert_size import assumed_model, confident_inserts
from mapper.pair.mapq import PRIMARY, SECONDARY, SUPPLEMENTARY
from mapper.pair.placement import PlacementBatch
from mapper.pair.records import make_names, make_records
from mapper.params import ExtendParams, RecordParams
from tests.helpers.placements import base_offsets_of, batch_of_placed, no_seeds, place
from tests.helpers.read_batches import reads_of
from tests.naive.alt_rule import Hit, lines
from tests.naive.pairing import Placed

MAIN, MAIN_2, ALT_1, ALT_2 = range(4)
WITH_ALT = np.array([UNGROUPED, UNGROUPED, ALT, ALT], np.int32)
HAPLOTYPES = np.array([1, 1, 2, UNGROUPED], np.int32)
HAP_1, HAP_1B, HAP_2, SHARED = range(4)
WHOLE, HALVES = ((5, 95),), ((5, 48), (52, 95))


Parts = tuple[tuple[int, int], ...]


def hit(
    contig: int, score: int, start: int = 0, *, strand: int = 0, query: tuple[int, int] = (5, 95)
) -> Placed:
    start += 10_000 * contig
    return Placed(strand, contig, start, start + query[1] - query[0], *query, score, 100)


def placed(
    reads: list[list[Placed]], groups: np.ndarray = NO_GROUPS, *, paired: bool = False,
    name: str = "read",
) -> tuple[AlignmentBatch, PlacementBatch]:  # fmt: skip
    reads = [sorted(read, key=lambda p: (-p.score, p.strand, p.start)) for read in reads]
    names = [f"{name}{i // 2 if paired else i}" for i in range(len(reads))]
    batch = reads_of(["A" * 100] * len(reads), paired=paired, names=names)
    alignments = batch_of_placed(reads)
    found = place(batch, no_seeds(len(reads)), alignments, assumed_model(), groups)
    return alignments, found


def random_hits(
    rng: np.random.Generator, n: int, *, contigs: int = 4, parts: Parts = WHOLE
) -> list[Placed]:
    """Return hits of different scores, in order, each of one of the parts of the read."""
    scores = sorted(rng.choice(np.arange(40, 90), n, replace=False).tolist(), reverse=True)
    return [
        hit(int(rng.integers(contigs)), score, 600 * i, query=parts[rng.integers(len(parts))])
        for i, score in enumerate(scores)
    ]


def test_records_of_reads_with_alt_hits_are_those_of_bwa() -> None:
    rng = np.random.default_rng(1)
    reads = [
        random_hits(rng, int(n), parts=(WHOLE, HALVES)[n % 2]) for n in rng.integers(1, 7, 600)
    ]
    alignments, found = placed(reads, WITH_ALT)
    n_better = n_alt_only = 0
    for i, read in enumerate(reads):
        first = int(alignments.alignment_offsets[i])
        role = found.role[first : first + len(read)]
        rival = found.rival[first : first + len(read)]
        hits = [Hit(p.query_start, p.query_end, p.score, p.ref_id >= ALT_1) for p in read]
        expected = lines(hits)
        assert int(found.primary[i]) - first == expected.primary
        assert set(np.flatnonzero(role == SUPPLEMENTARY).tolist()) == expected.supplementary
        heads = [expected.primary, *expected.supplementary]
        better = {
            j: int(rival[j]) - first for j in heads if rival[j] >= 0 and rival[j] != first + j
        }
        assert better == expected.better
        n_better += bool(better)
        n_alt_only += all(h.is_alt for h in hits)
    assert n_better > 100 and n_alt_only > 20


@pytest.mark.parametrize("paired", [False, True])
def test_alt_hits_change_nothing_on_the_primary_assembly(paired: bool) -> None:
    rng = np.random.default_rng(2)
    reads = []
    for i in range(400):
        read = random_hits(rng, int(rng.integers(1, 5)), contigs=2, parts=WHOLE + HALVES)
        hits_on_alt = random_hits(rng, int(rng.integers(0, 5)), parts=WHOLE + HALVES)
        read += [p for p in hits_on_alt if p.ref_id >= ALT_1]
        reads.append([p._replace(strand=i % 2) for p in read])
    without = [[p for p in read if p.ref_id < ALT_1] for read in reads]
    alignments, found = placed(reads, WITH_ALT, paired=paired)
    alone, expected = placed(without, paired=paired)
    assert found.proper.tolist() == expected.proper.tolist()
    for i in range(len(reads)):
        row, row_alone = int(found.primary[i]), int(expected.primary[i])
        assert alignments.text_start[row] == alone.text_start[row_alone]
        assert found.mapq[row] == expected.mapq[row_alone]
        assert found.sub_score[row] == expected.sub_score[row_alone]


def test_an_equal_or_lower_alt_hit_is_secondary_and_counts_for_nothing() -> None:
    for score in (90, 80):
        _, found = placed([[hit(MAIN, 90), hit(ALT_1, score)]], WITH_ALT)
        assert found.role.tolist() == [PRIMARY, SECONDARY]
        assert found.mapq[0] == 60 and found.sub_score[0] == 0
        assert found.head.tolist() == [0, 0] and found.rival.tolist() == [0, -1]


def test_a_better_alt_hit_is_supplementary_with_a_quality_of_its_own() -> None:
    _, found = placed([[hit(ALT_1, 90), hit(MAIN, 80), hit(MAIN_2, 80)]], WITH_ALT)
    assert found.role.tolist()[0] == SUPPLEMENTARY
    assert sorted(found.role.tolist()[1:]) == [PRIMARY, SECONDARY]
    assert found.mapq[found.primary[0]] == 0  # two places on the primary assembly
    assert found.mapq[0] > 0 and found.sub_score[0] == 80
    _, surer = placed([[hit(ALT_1, 90), hit(MAIN, 50)]], WITH_ALT)
    assert surer.mapq[0] > found.mapq[0]
    _, torn = placed([[hit(ALT_1, 90), hit(ALT_2, 90), hit(MAIN, 80)]], WITH_ALT)
    assert torn.mapq[:2].tolist() == [0, 0] and torn.mapq[2] == 60
    for part in (30, 40, 50):  # however little of the read the primary assembly has
        _, found = placed([[hit(ALT_1, 90), hit(MAIN, part, query=(5, 5 + part))]], WITH_ALT)
        assert found.role.tolist() == [SUPPLEMENTARY, PRIMARY] and found.mapq[0] == 60


def test_a_read_that_only_alt_contigs_hold_maps_there() -> None:
    low = ExtendParams().min_score - 5
    for elsewhere in ([], [hit(MAIN, low)]):
        alignments, found = placed([[hit(ALT_1, 90), *elsewhere]], WITH_ALT)
        assert alignments.ref_id[found.primary[0]] == ALT_1
        assert found.mapq[found.primary[0]] == 60
    _, found = placed([[hit(ALT_1, 90), hit(ALT_2, 90)]], WITH_ALT)
    assert found.mapq[found.primary[0]] == 0


def test_pairs_are_formed_on_the_primary_assembly() -> None:
    mates = [
        [hit(MAIN, 80), hit(ALT_1, 90)],
        [hit(MAIN, 80, 200, strand=1), hit(ALT_1, 90, 200, strand=1)],
    ]
    alignments, found = placed(mates, WITH_ALT, paired=True)
    assert found.proper.all()
    assert alignments.ref_id[found.primary].tolist() == [MAIN, MAIN]
    mates[1] = mates[1][1:]  # nothing but the ALT contig for the second
    alignments, found = placed(mates, WITH_ALT, paired=True)
    assert not found.proper.any()
    assert alignments.ref_id[found.primary].tolist() == [MAIN, ALT_1]
    mates[0] = mates[0][1:]
    alignments, found = placed(mates, WITH_ALT, paired=True)
    assert found.proper.all()
    assert alignments.ref_id[found.primary].tolist() == [ALT_1, ALT_1]


@pytest.mark.parametrize("paired", [False, True])
def test_haplotypes_do_not_lower_each_others_quality(paired: bool) -> None:
    """The quality is that of a reference of the read's own haplotype and the shared contigs."""
    rng = np.random.default_rng(3)
    reads = [
        [p._replace(strand=i % 2) for p in random_hits(rng, int(rng.integers(1, 6)))]
        for i in range(400)
    ]
    alignments, found = placed(reads, HAPLOTYPES, paired=paired)
    n_compared = 0
    for i in range(0, len(reads), 1 + paired):
        chosen = [int(found.primary[j]) for j in range(i, i + 1 + paired)]
        own = {int(HAPLOTYPES[alignments.ref_id[row]]) for row in chosen}
        if len(own) > 1:
            continue
        (group,) = own
        apart = {1: {HAP_2}, 2: {HAP_1, HAP_1B}, UNGROUPED: set()}[group]
        pair = reads[i : i + len(chosen)]
        part = [[p for p in read if p.ref_id not in apart] for read in pair]
        if [read[0] for read in part] != [read[0] for read in pair]:
            continue  # a mate alone would lie on the other haplotype
        n_compared += sum(map(len, part)) < sum(map(len, pair))
        alone, expected = placed(part, paired=paired, name="other")
        for mate, row in enumerate(chosen):
            row_alone = int(expected.primary[mate])
            assert alone.text_start[row_alone] == alignments.text_start[row]
            assert found.mapq[row] == expected.mapq[row_alone]
            assert found.sub_score[row] == expected.sub_score[row_alone]
    assert n_compared > 20


def test_copies_on_two_haplotypes_are_sure_and_listed() -> None:
    _, found = placed([[hit(HAP_1, 90), hit(HAP_2, 90)]], HAPLOTYPES)
    primary = int(found.primary[0])
    assert found.mapq[primary] == 60 and found.sub_score[primary] == 0
    assert found.role[1 - primary] == SECONDARY and found.head[1 - primary] == primary
    _, found = placed([[hit(HAP_1, 90), hit(SHARED, 90)]], HAPLOTYPES)
    assert found.mapq[found.primary[0]] == 0


def test_parts_of_a_read_stay_on_one_haplotype() -> None:
    halves = [
        hit(contig, score, 3000 * part, query=query)
        for part, (score, query) in enumerate([(43, (5, 48)), (42, (52, 95))])
        for contig in (HAP_1, HAP_2)
    ]
    seen = set()
    for i in range(20):
        alignments, found = placed([halves], HAPLOTYPES, name=f"read{i}.")
        primary = int(found.primary[0])
        (other,) = np.flatnonzero(found.role == SUPPLEMENTARY)
        assert alignments.ref_id[primary] == alignments.ref_id[other]
        assert found.head[found.head == other].tolist() == [other, other]
        assert found.mapq[other] > 0
        seen.add(int(alignments.ref_id[primary]))
    assert seen == {HAP_1, HAP_2}


def test_which_groups_are_apart() -> None:
    groups = np.array([UNGROUPED, 1, 2, ALT], np.int32)
    alignments = batch_of_placed([[hit(contig, 90) for contig in range(4)]])
    apart = [[bool(is_apart(groups, alignments, i, j)) for j in range(4)] for i in range(4)]
    assert apart == [
        [False, False, False, True],
        [False, False, True, True],
        [False, True, False, True],
        [False, False, False, False],
    ]
    assert not is_apart(NO_GROUPS, alignments, 1, 2)


def test_haplotypes_do_not_hide_the_insert_size() -> None:
    mates = [
        [hit(HAP_1, 90), hit(HAP_2, 90), hit(HAP_1B, 70)],
        [hit(HAP_1, 90, 300, strand=1), hit(HAP_2, 90, 300, strand=1)],
    ]
    offsets, batch = base_offsets_of(mates), batch_of_placed(mates)
    assert confident_inserts(offsets, batch, ExtendParams()).tolist() == [0]
    assert confident_inserts(offsets, batch, ExtendParams(), HAPLOTYPES).tolist() == [400]


def xa_of(groups: np.ndarray, contigs: list[int], max_xa: int) -> int:
    """Return how many hits XA lists of a read with hits on contigs, best first."""
    read = [hit(contigs[0], 90), *(hit(c, 89, 200 * (i + 1)) for i, c in enumerate(contigs[1:]))]
    alignments, found = placed([read], groups)
    layout = make_contigs(["a", "b", "c", "d"], ["*"] * 4, [9_999] * 4)._replace(groups=groups)
    params = RecordParams(max_xa=max_xa, max_xa_of_groups=4)
    records = make_records(
        reads_of(["A" * 100]), alignments, found, make_names(layout, ""),
        np.zeros((700, 3), np.uint64), params,
    )  # fmt: skip
    return bytes(records.tags).count(b";")


def test_many_hits_are_listed_where_some_are_on_alt_contigs_or_in_other_groups() -> None:
    equal = [MAIN, MAIN, MAIN]
    for max_xa, few_rivals in ((2, 2), (1, 0)):
        assert xa_of(NO_GROUPS, equal, max_xa) == few_rivals
        assert xa_of(WITH_ALT, equal, max_xa) == few_rivals
        assert xa_of(WITH_ALT, [*equal, ALT_1], max_xa) == 3
        assert xa_of(WITH_ALT, [*equal, ALT_1, ALT_1, ALT_1], max_xa) == 0
    assert xa_of(HAPLOTYPES, [HAP_1, HAP_1, HAP_2, HAP_2], 1) == 3
    assert xa_of(HAPLOTYPES, [HAP_1, HAP_1, HAP_1, HAP_2], 1) == 0
    assert xa_of(HAPLOTYPES, [HAP_1, *[HAP_2] * 5], 1) == 0
