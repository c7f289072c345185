"""Vector code of edit distance: the same scores and paths as the plain wavefronts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mapper import edit_distance
from mapper.align.edit import cpu


def edited(rng: random.Random, text: str, n_edits: int) -> str:
    letters = list(text)
    for _ in range(n_edits):
        kind, at = rng.randrange(3), rng.randrange(len(letters) + 1)
        if kind == 0:
            letters[at : at + 1] = rng.choice("ACGT")
        elif kind == 1:
            letters[at:at] = rng.choices("ACGT", k=rng.choice([1, 1, 1, 12]))
        else:
            del letters[at : at + rng.choice([1, 1, 1, 12])]
    return "".join(letters)


def pairs_of(seed: int, n: int, most: int) -> tuple[list[str], list[str]]:
    """Return alike and unlike pairs, repeats among them."""
    rng = random.Random(seed)
    queries, refs = [], []
    for _ in range(n):
        length = rng.choice([0, 1, 5, 16, 40, most // 2, most])
        ref = "".join(rng.choices("ACGT", k=length))
        if rng.random() < 0.3:
            ref = (ref[: rng.randint(1, 7)] * most)[:length]
        queries.append(edited(rng, ref, int(length * rng.choice([0, 0.02, 0.1, 0.5]))))
        refs.append(ref if rng.random() < 0.9 else "".join(rng.choices("ACGT", k=most)))
    return queries, refs


@pytest.mark.parametrize(("seed", "n", "most"), [(1, 3000, 60), (2, 1000, 300), (3, 60, 2500)])
@pytest.mark.parametrize("limit", [None, 9, 40])
def test_scores_and_paths_are_those_of_plain_wavefronts(
    seed: int, n: int, most: int, limit: int | None
) -> None:
    queries, refs = pairs_of(seed, n, most)
    options = {"max_distance": limit, "device": "cpu", "threads": 1}
    found = edit_distance(queries, refs, cigar=True, **options)  # type: ignore[arg-type]
    # Symbols of bytes have no fence, and go the other way.
    plain = edit_distance(queries, refs, cigar=True, symbols="bytes", **options)  # type: ignore[arg-type]
    for name, own, expected in zip(found._fields, found, plain, strict=True):
        assert np.array_equal(own, expected), name
    scores = edit_distance(queries, refs, **options)  # type: ignore[arg-type]
    assert np.array_equal(scores.score, found.score)


def test_distances_at_the_limit_of_the_workspace() -> None:
    rng = random.Random(5)
    edges = [cpu.LEAF_DISTANCE + by for by in (-1, 0, 1)]
    queries = ["A" * 1100 for _ in edges] + ["".join(rng.choices("ACGT", k=1900))]
    refs = ["A" * (1100 - n) + "C" * n for n in edges] + ["".join(rng.choices("ACGT", k=1800))]
    found = edit_distance(queries, refs, cigar=True, device="cpu")
    plain = edit_distance(queries, refs, cigar=True, symbols="bytes", device="cpu")
    assert found.score[:3].tolist() == edges
    for own, expected in zip(found, plain, strict=True):
        assert np.array_equal(own, expected)
