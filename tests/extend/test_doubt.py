"""Which reads are looked at a second and a third time, and what that finds."""

from __future__ import annotations

import numpy as np

from mapper.batch import SeedSummary
from mapper.extend.doubt import (
    doubtful_reads,
    hidden_score,
    mates_of_doubtful_pairs,
    score_by_differences,
)
from mapper.mapping.stages import align_reads
from mapper.mapping.stats import RunStats
from mapper.params import ExtendParams, MapParams
from mapper.seed.exact import resolve_all
from tests.helpers.alignment_views import Aligned, batch_of
from tests.helpers.read_batches import genome_of, random_letters, reads_of
from tests.helpers.stage_batches import index_of

SCORES = ExtendParams()


def doubted(
    alignments: list[list[Aligned]], guarantee: list[int], paired: bool = False
) -> list[bool]:
    reads = reads_of(["A" * 100] * len(alignments), paired=paired)
    return doubtful_reads(
        reads, np.array(guarantee, np.int32), batch_of(alignments), SCORES
    ).tolist()


def of_mismatches(n: int) -> Aligned:
    score = SCORES.match * (100 - n) - SCORES.mismatch * n
    return Aligned(0, 0, 1000, 1100, 0, 100, score, n, "3=1X" * n + f"{100 - 4 * n}=")


def test_a_read_is_in_doubt_whose_differences_come_near_its_located_seeds() -> None:
    for n in range(6):
        reads, guarantees = [[of_mismatches(n)]] * 10, list(range(10))
        assert doubted(reads, guarantees) == [guarantee <= n + 1 for guarantee in guarantees]
        assert doubted(reads, guarantees, paired=True) == [g <= n for g in guarantees]
    assert doubted([[], [of_mismatches(0)]], [0, 9]) == [False, False]


def doubted_pairs(
    pairs: list[tuple[list[Aligned], list[Aligned]]], guarantee: int, thinned: list[bool]
) -> list[bool]:
    mates = [mate for pair in pairs for mate in pair]
    reads = reads_of(["A" * 100] * len(mates), paired=True)
    seeds = SeedSummary(np.full(len(mates), guarantee, np.int32), np.array(thinned))
    doubtful = mates_of_doubtful_pairs(reads, seeds, batch_of(mates), SCORES).tolist()
    assert doubtful[::2] == doubtful[1::2]
    return doubtful[::2]


def test_a_pair_is_in_doubt_whose_mates_both_have_other_places_seen_and_hidden() -> None:
    """By the sum of differences: a hidden place of each mate has `guarantee` substitutions."""
    for n in range(4):
        for m in range(4):
            worse = [of_mismatches(n), of_mismatches(n + 1)], [of_mismatches(m)] * 2
            for guarantee in range(6):
                found = doubted_pairs([worse], guarantee, [True, True])
                assert found == [2 * guarantee - n - m <= 1]
            assert doubted_pairs([worse] * 2, 0, [True, False, False, True]) == [False, False]
            for lead_a, lead_b in ((0, 2), (1, 1), (0, 3), (2, 1), (4, 0)):
                pair = (
                    [of_mismatches(n), of_mismatches(n + lead_a)],
                    [of_mismatches(m), of_mismatches(m + lead_b)],
                )
                assert doubted_pairs([pair], 0, [True, True]) == [lead_a + lead_b <= 2]
    tie = [of_mismatches(0)] * 2
    assert doubted_pairs([(tie, [of_mismatches(0)]), (tie, []), ([], [])], 0, [True] * 6) == [
        False, False, False,
    ]  # fmt: skip


def test_a_long_gap_is_few_differences() -> None:
    score = SCORES.match * 75 - (SCORES.gap_open + 25 * SCORES.gap_extend)
    gapped = Aligned(0, 0, 1000, 1075, 0, 100, score, 25, "40=25I35=")
    found = batch_of([[gapped]])
    assert score < hidden_score(100, 6, SCORES.match, SCORES.mismatch)  # by its score alone
    assert score_by_differences(found, 0, SCORES.match, SCORES.mismatch) == 100 - 2 * 5
    assert doubted([[gapped]], [4]) == [False]
    assert doubted([[gapped._replace(text_end=1100, cigar="40=25X35=")]], [4]) == [True]


def test_the_second_look_finds_the_copy_that_the_first_has_missed() -> None:
    """A read that shares no seed of the first look with its place, but two with a worse copy."""
    rng = np.random.default_rng(5)
    template = random_letters(rng, 100)
    params = resolve_all(MapParams(), 4000)
    length = params.seed.seed_len

    def with_differences(letters: str, places: list[int]) -> str:
        changed = list(letters)
        for i in places:
            changed[i] = "CGTA"["ACGT".index(changed[i])]
        return "".join(changed)

    n_seeds = 100 // length
    starts = [i * (100 - length) // (n_seeds - 1) for i in range(n_seeds)]
    # One difference in each seed of the first look, at its end; and all but two of those seeds
    # full of them.
    near = with_differences(template, [start + length - 1 for start in starts])
    far = with_differences(template, [s + i for s in starts[2:] for i in (2, 6, 10)])
    contig = random_letters(rng, 1500) + near + random_letters(rng, 900) + far
    index = index_of(genome_of([contig + random_letters(rng, 1400)]))
    reads = reads_of([template])
    blind = params._replace(second_look=params.second_look._replace(max_occ=1, max_hits=0))
    for looks, place in ((params, 1500), (blind, 2500)):
        found = align_reads(index, reads, looks, RunStats()).alignments
        assert found.text_start[0] - found.query_start[0] == place


def test_the_third_look_finds_the_pair_of_copies_that_the_second_has_missed() -> None:
    """In an array of copies that differ in a base each, of which the second look locates a few."""
    rng = np.random.default_rng(11)
    unit = random_letters(rng, 300)
    n_copies = 60

    def copy(number: int) -> str:
        at = 20 + 4 * number
        return unit[:at] + "CGTA"["ACGT".index(unit[at])] + unit[at + 1 :]

    before, after = random_letters(rng, 1000), random_letters(rng, 1000)
    index = index_of(genome_of([before + "".join(map(copy, range(n_copies))) + after]))
    params = resolve_all(MapParams(), index.fm.n_rows - 1)
    few = params.second_look._replace(extend_over=4, max_occ=8, max_hits=8)
    params = params._replace(second_look=few)
    blind = params._replace(third_look=few)
    # The difference of copy 30 lies in neither mate.
    place = 1000 + 30 * 300
    template = copy(30)
    mates = template[:100], template[180:280][::-1].translate(str.maketrans("ACGT", "TGCA"))
    pairs = reads_of(list(mates), paired=True)

    def places(looks: MapParams) -> list[set[int]]:
        found = align_reads(index, pairs, looks, RunStats()).alignments
        offsets = found.alignment_offsets
        return [set(found.text_start[offsets[i] : offsets[i + 1]].tolist()) for i in range(2)]

    assert not (place in places(blind)[0] and place + 180 in places(blind)[1])
    assert place in places(params)[0] and place + 180 in places(params)[1]
