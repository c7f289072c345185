"""The best ungapped alignment on a diagonal, against trying every pair of ends."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.extend.locus import align_ungapped
from mapper.extend.ungapped import find_mismatches, trim_left, trim_right
from tests.helpers.extension_sides import SCORINGS, params_of
from tests.helpers.read_batches import mutated, packed_reads, random_letters, text_planes
from tests.naive.gotoh import Scoring, same


def score_of(read: str, ref: str, scoring: Scoring) -> int:
    return sum(
        scoring.match if same(a, b) else -scoring.mismatch for a, b in zip(read, ref, strict=True)
    )


def best_right(read: str, ref: str, corner: int, end: int, scoring: Scoring) -> tuple[int, int]:
    """Best score plus bonus of corner:cut over every cut up to `end`; the first such cut."""
    options = [
        (score_of(read[corner:cut], ref[corner:cut], scoring)
         + (scoring.end_bonus if cut == len(read) else 0), -cut)
        for cut in range(corner, end + 1)
    ]  # fmt: skip
    objective, cut = max(options)
    return objective, -cut


def best_left(read: str, ref: str, corner: int, start: int, scoring: Scoring) -> tuple[int, int]:
    objective, cut = best_right(
        read[::-1], ref[::-1], len(read) - corner, len(read) - start, scoring
    )
    return objective, len(read) - cut


def mismatches_of(read: str, ref: str, start: int, end: int) -> list[int]:
    return [i for i in range(start, end) if not same(read[i], ref[i])]


def pair_of(rng: np.random.Generator) -> tuple[str, str]:
    ref = random_letters(rng, int(rng.integers(1, 150)), "ACGTACGTACGTN")
    return mutated(rng, ref, rng.choice([0, 0.02, 0.2, 0.7])), ref


def test_mismatches_and_longest_run() -> None:
    rng = np.random.default_rng(1)
    for _ in range(150):
        read, ref = pair_of(rng)
        _, packed = packed_reads([read])
        start = int(rng.integers(0, len(read)))
        end = int(rng.integers(start, len(read) + 1))
        positions = np.full(len(read) + 1, -1, np.int32)
        n, run_start, run_end, n_before = find_mismatches(
            packed.planes, 0, text_planes("GA" + ref), 2, start, end, positions
        )
        expected = mismatches_of(read, ref, start, end)
        assert positions[:n].tolist() == expected
        runs = [(b - a - 1, -(a + 1)) for a, b in
                zip([start - 1, *expected], [*expected, end], strict=True)]  # fmt: skip
        length, negative_start = max(runs)
        assert run_end - run_start == length
        assert n_before == sum(p < run_start for p in expected)
        if length:
            assert run_start == -negative_start


@pytest.mark.parametrize("scoring", SCORINGS, ids=str)
def test_trims_are_the_best_of_all_cuts(scoring: Scoring) -> None:
    rng = np.random.default_rng(2)
    for _ in range(80):
        read, ref = pair_of(rng)
        start = int(rng.choice([0, rng.integers(0, len(read))]))
        end = int(rng.choice([len(read), rng.integers(start, len(read) + 1)]))
        _, packed = packed_reads([read])
        positions = np.empty(len(read) + 1, np.int32)
        n, left, right, n_before = find_mismatches(
            packed.planes, 0, text_planes("GA" + ref), 2, start, end, positions
        )
        if left == right:
            continue
        found = trim_right(
            positions, n_before, n, right, end, len(read), scoring.match, scoring.mismatch,
            scoring.end_bonus,
        )  # fmt: skip
        objective, cut = best_right(read, ref, right, end, scoring)
        assert found == (2 * objective, cut)
        found = trim_left(
            positions, n_before, left, start, scoring.match, scoring.mismatch, scoring.end_bonus
        )
        objective, cut = best_left(read, ref, left, start, scoring)
        assert found == (2 * objective, cut)


def test_a_read_that_overhangs_its_contig_is_cut_there() -> None:
    rng = np.random.default_rng(3)
    params = params_of(Scoring())
    for _ in range(100):
        contig = random_letters(rng, 80)
        read_len, shift = int(rng.integers(20, 70)), int(rng.integers(-15, 60))
        # What lies beyond the contig would match the read.
        text = random_letters(rng, 60) + contig + random_letters(rng, 60)
        read = mutated(rng, text[60 + shift : 60 + shift + read_len], 0.05)
        _, packed = packed_reads([read])
        positions = np.zeros(read_len + 1, np.int32)
        u = align_ungapped(
            packed.planes, 0, read_len, text_planes(text), 60 + shift, 60, 140, params, positions
        )
        low, high = max(0, -shift), min(read_len, 80 - shift)
        assert low <= u.start <= u.anchor_start <= u.anchor_end <= u.end <= high
        ref = text[60 + shift : 60 + shift + read_len]
        wrong = mismatches_of(read, ref, low, high)
        assert u.n_left == sum(p < u.anchor_start for p in wrong)
        assert u.n_right == sum(p >= u.anchor_end for p in wrong)
        assert (u.left, u.start) == tuple(
            a * b for a, b in zip((2, 1), best_left(read, ref, u.anchor_start, low, Scoring()),
                                  strict=True))  # fmt: skip
        assert (u.right, u.end) == tuple(
            a * b for a, b in zip((2, 1), best_right(read, ref, u.anchor_end, high, Scoring()),
                                  strict=True))  # fmt: skip
