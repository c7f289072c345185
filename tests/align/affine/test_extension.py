"""Extension with soft clip: against the full matrix, and what the CIGARs say."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align.affine.api import align_extension
from mapper.align.result import HEURISTIC, NO_MEMORY, OK
from mapper.errors import MapperError
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited, random_pairs
from tests.naive.gotoh import Scoring, best_extension, replay
from tests.naive.x_drop import extension_with_x_drop

SCORES = [(1, 4, 6, 1), (2, 3, 5, 2), (1, 1, 0, 1), (3, 2, 1, 4)]


def check(pairs, scores, x_drop=None):
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    options = {"scores": scores, "x_drop": x_drop}
    found = align_extension(queries, refs, **options, threads=1, cigar=True)
    alone = align_extension(queries, refs, **options, threads=2, cigar=False)
    assert all((found[i] == alone[i]).all() for i in range(6))
    scoring = Scoring(*scores, end_bonus=0)
    for i, (query, ref) in enumerate(pairs):
        one = found.pair(i)
        if x_drop is None:
            assert (one.score, one.status) == (best_extension(query, ref, scoring), "ok"), pairs[i]
        else:
            score, dropped = extension_with_x_drop(query, ref, scoring, x_drop)
            assert (one.score, one.status) == (score, "heuristic" if dropped else "ok"), pairs[i]
        assert one.cigar is not None
        clipped = len(query) - one.query_end
        clip = f"{clipped}S" if clipped else ""
        assert one.cigar.endswith(clip)
        told = replay(one.cigar.removesuffix(clip), query, ref, scoring)
        assert told[0] == one.score
        assert told[2:] == (one.query_end, one.ref_end)
        assert (one.query_start, one.ref_start) == (0, 0)
    return found


@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_score_is_that_of_the_full_matrix(scores) -> None:
    rng = np.random.default_rng(1)
    pairs = [*random_pairs(rng, 40, 40), *random_pairs(rng, 10, 40, "ACGTN"), ("", ""), ("A", "")]
    for _ in range(10):  # a common beginning, then nothing in common
        common = random_letters(rng, 30)
        pairs.append((edited(rng, common, 0.05) + random_letters(rng, 20),
                      common + random_letters(rng, 40)))  # fmt: skip
    check(pairs, scores)


@pytest.mark.parametrize("scores", SCORES, ids=str)
@pytest.mark.parametrize("x_drop", [0, 3, 12, 1000])
def test_x_drop_drops_the_cells_of_the_oracle(scores, x_drop: int) -> None:
    rng = np.random.default_rng(5)
    pairs = [*random_pairs(rng, 15, 25), *random_pairs(rng, 8, 25, "ACGTN"), ("", ""), ("A", "")]
    for _ in range(8):  # two common stretches with one between that costs
        common, behind = random_letters(rng, 15), random_letters(rng, 15)
        pairs.append((common + random_letters(rng, 4) + behind,
                      common + random_letters(rng, 5) + behind))  # fmt: skip
    found = check(pairs, scores, x_drop)
    if x_drop in (0, 3):
        assert (found.status == HEURISTIC).any()
    exact = align_extension([q for q, _ in pairs], [r for _, r in pairs], scores=scores)
    assert (found.score <= exact.score).all()
    if x_drop == 1000:
        assert (found.score == exact.score).all()


def test_x_drop_stops_early_in_unlike_sequences() -> None:
    """Exact extension would take some 10^9 cells here, more than the path's memory."""
    rng = np.random.default_rng(6)
    common = random_letters(rng, 100)
    query, ref = (common + random_letters(rng, 30_000) for _ in range(2))
    found = align_extension([query], [ref], x_drop=50, cigar=True, memory=1 << 20)
    assert found.status[0] == HEURISTIC
    assert 100 <= found.score[0] < 120
    assert align_extension([query], [ref], cigar=True, memory=1 << 20).status[0] == NO_MEMORY


def test_longer_pairs_and_little_memory() -> None:
    rng = np.random.default_rng(2)
    common = random_letters(rng, 400)
    pairs = [(edited(rng, common, 0.1) + random_letters(rng, 50), common + random_letters(rng, 50))]
    check(pairs, (1, 4, 6, 1))
    found = align_extension(
        [pairs[0][0], "ACGT"], [pairs[0][1], "ACGT"], memory=1 << 16, cigar=True
    )
    assert found.status.tolist() == [NO_MEMORY, OK]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": (0, 4, 6, 1)}, "from 1"),
        ({"scores": (1, 4, 6)}, "four whole numbers"),
        ({"scores": (1, 4, 6, 300)}, "up to 200"),
        ({"memory": 1}, "memory 1"),
        ({"x_drop": -1}, "x_drop -1"),
        ({"x_drop": 2.5}, "x_drop 2.5"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message: str) -> None:
    with pytest.raises(MapperError, match=message):
        align_extension(["A"], ["A"], **options)
