"""Ranking scores of placements: end bonuses, and mismatches at bases of low quality."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mapper.batch import NO_QUALITY
from mapper.pair.insert_size import assumed_model, model_from
from mapper.pair.mapq import MAX_MAPQ, PAIR_BOOST
from mapper.pair.placement import (
    DIFFERENCE_RATE,
    DOUBT_SHIFT,
    match_discounts,
    mismatch_refunds,
    with_ranking_scores,
)
from mapper.params import ExtendParams
from tests.helpers.alignment_views import Aligned, batch_of
from tests.helpers.placements import no_seeds, place
from tests.helpers.read_batches import reads_of

SCORES = ExtendParams()


def test_a_mismatch_costs_as_much_as_it_says() -> None:
    refunds = mismatch_refunds(SCORES.match, SCORES.mismatch)
    assert refunds[NO_QUALITY] == 0
    assert refunds.tolist() == [*sorted(refunds[:NO_QUALITY].tolist(), reverse=True), 0]
    # Illumina's bins; with no error at all a mismatch is a difference of the sample.
    assert refunds[[2, 11, 25, 37]].tolist() == [4, 2, 0, 0]
    assert (mismatch_refunds(2, 8) == 2 * refunds).all()
    for quality in (2, 11, 20):
        error = 10 ** (-quality / 10)
        ratio = math.log((1 - error) / (error / 3 + DIFFERENCE_RATE)) / -math.log(DIFFERENCE_RATE)
        cost = SCORES.match + SCORES.mismatch
        assert 0 <= cost * (1 - ratio) - refunds[quality] < 1


def test_a_match_scores_its_probability_over_that_of_a_random_base() -> None:
    discounts = match_discounts()
    unit = 1 << DOUBT_SHIFT
    assert discounts[NO_QUALITY] == 0
    assert discounts[11:].max() == 0
    assert discounts[:2].tolist() == [unit, unit]  # no evidence at all
    for quality in (2, 3, 5, 10):
        worth = math.log((1 - 10 ** (-quality / 10)) / 0.25, 4)
        assert 0 <= unit * (1 - worth) - discounts[quality] < 1


def test_ranking_scores_of_random_alignments() -> None:
    rng = np.random.default_rng(1)
    refunds = mismatch_refunds(SCORES.match, SCORES.mismatch).tolist()
    discounts = match_discounts().tolist()
    read_len = 60
    reads, quals, plain, ranked, doubted = [], [], [], [], []

    for _ in range(150):
        quality = rng.choice([2, 5, 11, 20, 37, NO_QUALITY], read_len).tolist()
        found, corrections = [], []
        n_found = int(rng.integers(0, 4))
        for row in range(n_found):
            start, end = int(rng.integers(0, 5)), read_len - int(rng.integers(0, 5))
            letters = rng.choice(list("=X=I="), end - start).tolist()
            strand = int(rng.integers(2))
            cigar = "".join(f"1{letter}" + "3D" * (letter == "I") for letter in letters)
            score = int(rng.integers(20, 60))
            found.append(Aligned(strand, 0, 500 * row, 500 * row + 90, start, end, score, 0,
                                 cigar))  # fmt: skip
            oriented = quality[::-1] if strand else quality
            aligned = oriented[start:end]
            correction = sum(refunds[q] for x, q in zip(letters, aligned, strict=True) if x == "X")
            correction -= math.ceil(sum(discounts[q] for q in aligned) / (1 << DOUBT_SHIFT))
            if n_found == 1:
                correction = 0  # nothing to compare it with
            plain.append(score + SCORES.end_bonus * ((start == 0) + (end == read_len)))
            ranked.append(plain[-1] + correction)
            corrections.append(correction)
        doubted.append(len(set(corrections)) > 1)
        reads.append(found)
        quals.append(quality)
    batch = reads_of(["A" * read_len] * len(reads), quals=quals)
    found = with_ranking_scores(batch, batch_of(reads), SCORES)
    assert found.plain.score.tolist() == plain
    assert found.ranked.score.tolist() == ranked
    assert found.doubted.tolist() == doubted
    assert 20 < sum(doubted) < 130


def test_a_place_that_misses_doubtful_bases_is_chosen() -> None:
    names = [f"read{i}" for i in range(40)]

    def chosen(doubtful: int, cigars: tuple[str, str], scores: tuple[int, int]) -> set[int]:
        quality = [37] * 100
        quality[20] = quality[30] = doubtful
        read = [
            Aligned(0, 0, 1000 * (i + 1), 1000 * (i + 1) + 100, 0, 100, score, 1, cigar)
            for i, (cigar, score) in enumerate(zip(cigars, scores, strict=True))
        ]
        batch = reads_of(["A" * 100] * 40, quals=[quality] * 40, names=names)
        found = place(batch, no_seeds(40), batch_of([read] * 40), assumed_model())
        return set((found.primary - 2 * np.arange(40)).tolist())

    one_each = ("70=1X29=", "20=1X79="), (95, 95)
    one_against_two = ("70=1X29=", "20=1X9=1X69="), (95, 90)
    assert chosen(37, *one_each) == {0, 1}
    assert chosen(11, *one_each) == {1}
    assert chosen(11, *one_against_two) == {0}
    assert chosen(2, *one_against_two) == {1}


READ_LEN = 101
TAIL = 55
"""Bases of quality 2 at the end of the noisy mate."""


def noisy_pair(mismatches: int) -> tuple[list[Aligned], list[Aligned]]:
    """A mate at one place, and one at two: all of it with mismatches in the tail, or its head."""
    head = READ_LEN - TAIL
    first = [Aligned(0, 0, 1000, 1000 + READ_LEN, 0, READ_LEN, READ_LEN, 0, f"{READ_LEN}=")]
    step = TAIL // mismatches
    tail = f"{step - 1}=1X" * mismatches + f"{TAIL - step * mismatches}="
    tail = tail.removesuffix("0=")
    score = READ_LEN - (SCORES.match + SCORES.mismatch) * mismatches
    noisy = [
        Aligned(1, 0, 1340, 1340 + head, TAIL, READ_LEN, head, 0, f"{head}="),
        Aligned(1, 0, 1300, 1300 + READ_LEN, 0, READ_LEN, score, mismatches, f"{tail}{head}="),
    ]
    return first, noisy if score <= head else noisy[::-1]


@pytest.mark.parametrize("mismatches", [12, 13, 14])
def test_a_noisy_tail_does_not_make_a_place_sure(mismatches) -> None:
    """As of three real pairs, which lay with AS 41 to 58, XS 47 to 64 and a quality of 60."""
    first, noisy = noisy_pair(mismatches)
    assert noisy[0].score > noisy[1].score
    quality = [37] * (READ_LEN - TAIL) + [2] * TAIL
    batch = reads_of(
        ["A" * READ_LEN] * 2, quals=[[37] * READ_LEN, quality], names=["a", "a"], paired=True
    )
    model = model_from(400.0, 36.0, 250, 550, 1000)
    found = place(batch, no_seeds(2), batch_of([first, noisy]), model)
    assert found.proper.all()
    head = int(found.primary[1])
    assert found.sub_score[head] == noisy[2 - head].score
    assert found.mapq[head] < 30
    clear = place(batch, no_seeds(2), batch_of([first, noisy[:1]]), model)
    assert clear.mapq[1] == MAX_MAPQ


def test_base_qualities_choose_a_place_and_make_it_no_surer() -> None:
    """Two places, each with one mismatch: only the base qualities speak for the second."""
    places = [("70=1X29=", 95), ("20=1X79=", 95)]
    read = [
        Aligned(0, 0, 1000 * i, 1000 * i + 100, 0, 100, score, 1, cigar)
        for i, (cigar, score) in enumerate(places, 1)
    ]
    quality = [37] * 100
    quality[20] = 2
    batch = reads_of(["A" * 100], quals=[quality])
    found = place(batch, no_seeds(1), batch_of([read]), assumed_model())
    assert found.primary[0] == 1
    assert found.mapq[1] == 0


def test_no_quality_above_40_where_the_alternative_scores_more() -> None:
    rng = np.random.default_rng(8)
    reads, quals = [], []
    for _ in range(600):
        found = []
        for row in range(rng.integers(1, 4)):
            at = int(rng.integers(0, 3)) * 10_000 + 100 * row
            start, end = int(rng.choice([0, 0, 40])), int(rng.choice([60, 100, 100]))
            n_mismatches = int(rng.integers(0, 6))
            letters = rng.permutation(list("X" * n_mismatches + "=" * (end - start - n_mismatches)))
            score = end - start - 5 * n_mismatches
            cigar = "".join(f"1{letter}" for letter in letters)
            found.append(Aligned(row % 2, 0, at, at + end - start, start, end, score,
                                 n_mismatches, cigar))  # fmt: skip
        reads.append(sorted(found, key=lambda a: -a.score))
        quals.append(rng.choice([2, 5, 11, 37], 100).tolist())
    batch = reads_of(["A" * 100] * len(reads), quals=quals, paired=True)
    alignments = batch_of(reads)
    found = place(batch, no_seeds(len(reads)), alignments, model_from(100.0, 90.0, 1, 400, 1000))
    heads = found.primary[found.primary >= 0]
    behind = heads[found.sub_score[heads] > alignments.score[heads]]
    assert len(behind) > 15 and found.mapq[behind].max() <= PAIR_BOOST
    assert (found.mapq[heads] > PAIR_BOOST).sum() > 20
