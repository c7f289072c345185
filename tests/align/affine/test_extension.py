"""Extension with soft clip: against the full matrix, and what the CIGARs say."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align.affine.api import align_extension
from mapper.align.result import NO_MEMORY, OK
from mapper.errors import MapperError
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited, random_pairs
from tests.naive.gotoh import Scoring, best_extension, replay

SCORES = [(1, 4, 6, 1), (2, 3, 5, 2), (1, 1, 0, 1), (3, 2, 1, 4)]


def check(pairs, scores) -> None:
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    found = align_extension(queries, refs, scores=scores, threads=1, cigar=True)
    alone = align_extension(queries, refs, scores=scores, threads=2, cigar=False)
    assert all((found[i] == alone[i]).all() for i in range(6))
    scoring = Scoring(*scores, end_bonus=0)
    for i, (query, ref) in enumerate(pairs):
        one = found.pair(i)
        assert one.score == best_extension(query, ref, scoring), pairs[i]
        assert one.cigar is not None
        clipped = len(query) - one.query_end
        clip = f"{clipped}S" if clipped else ""
        assert one.cigar.endswith(clip)
        told = replay(one.cigar.removesuffix(clip), query, ref, scoring)
        assert told[0] == one.score
        assert told[2:] == (one.query_end, one.ref_end)
        assert (one.query_start, one.ref_start) == (0, 0)


@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_score_is_that_of_the_full_matrix(scores) -> None:
    rng = np.random.default_rng(1)
    pairs = [*random_pairs(rng, 40, 40), *random_pairs(rng, 10, 40, "ACGTN"), ("", ""), ("A", "")]
    for _ in range(10):  # a common beginning, then nothing in common
        common = random_letters(rng, 30)
        pairs.append((edited(rng, common, 0.05) + random_letters(rng, 20),
                      common + random_letters(rng, 40)))  # fmt: skip
    check(pairs, scores)


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
    ],
)
def test_what_cannot_be_meant_is_refused(options, message: str) -> None:
    with pytest.raises(MapperError, match=message):
        align_extension(["A"], ["A"], **options)
