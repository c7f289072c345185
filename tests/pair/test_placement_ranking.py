"""Ranking scores of placements: end bonuses, and mismatches at bases of low quality."""

from __future__ import annotations

import math

import numpy as np

from mapper.batch import NO_QUALITY
from mapper.pair.insert_size import assumed_model
from mapper.pair.placement import DIFFERENCE_RATE, mismatch_refunds, with_ranking_scores
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


def test_ranking_scores_of_random_alignments() -> None:
    rng = np.random.default_rng(1)
    refunds = mismatch_refunds(SCORES.match, SCORES.mismatch).tolist()
    read_len = 60
    reads, quals, expected = [], [], []
    for _ in range(150):
        quality = rng.choice([2, 11, 20, 37, NO_QUALITY], read_len).tolist()
        found = []
        for row in range(rng.integers(0, 4)):
            start, end = int(rng.integers(0, 5)), read_len - int(rng.integers(0, 5))
            letters = rng.choice(list("=X=I="), end - start).tolist()
            strand = int(rng.integers(2))
            cigar = "".join(f"1{letter}" + "3D" * (letter == "I") for letter in letters)
            score = int(rng.integers(20, 60))
            found.append(Aligned(strand, 0, 500 * row, 500 * row + 90, start, end, score, 0,
                                 cigar))  # fmt: skip
            oriented = quality[::-1] if strand else quality
            expected.append(
                score + SCORES.end_bonus * ((start == 0) + (end == read_len))
                + sum(refunds[oriented[start + i]] for i, x in enumerate(letters) if x == "X")
            )  # fmt: skip
        reads.append(found)
        quals.append(quality)
    batch = reads_of(["A" * read_len] * len(reads), quals=quals)
    alignments = batch_of(reads)
    assert with_ranking_scores(batch, alignments, SCORES).score.tolist() == expected


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
