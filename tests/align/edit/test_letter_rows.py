"""Vector code of edit distance: the same scores and paths as the plain wavefronts."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from mapper import edit_distance
from mapper.align.edit import cpu
from mapper.align.edit.letter_rows import (
    BLOCK,
    block_by_vectors,
    block_one_by_one,
    new_letterwise,
)
from mapper.align.matches import NULL, QUERY_FENCE, REF_FENCE
from mapper.jit.accelerate import driver


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


@driver
def one_by_one(query, ref, space, before, after, lo, query_len, ref_len):
    return block_one_by_one(query, ref, space, before, after, lo, query_len, ref_len)


@driver
def by_vectors(query, ref, space, before, after, lo, query_len, ref_len):
    return block_by_vectors(query, ref, space, before, after, lo, query_len, ref_len)


@pytest.mark.parametrize("block", [one_by_one, by_vectors])
def test_blocks_are_the_recurrence(block: Any) -> None:
    """Whichever of the two this CPU does not use, too."""
    rng = np.random.default_rng(7)
    space = new_letterwise()
    for _ in range(300):
        n, m = (int(x) for x in rng.integers(1, 60, 2))
        ref = rng.integers(0, 2, m).astype(np.uint8)
        query = np.resize(ref, n) if rng.random() < 0.7 else rng.integers(0, 2, n).astype(np.uint8)
        fenced = [
            np.concatenate((codes, [fence], np.zeros(100, np.uint8))).astype(np.uint8)
            for codes, fence in ((query, QUERY_FENCE), (ref, REF_FENCE))
        ]
        lo = int(rng.integers(-n, m + 1))
        before = rng.integers(0, m + 1, BLOCK + 2).astype(np.int32)
        before[rng.random(BLOCK + 2) < 0.2] = NULL
        after = np.full(BLOCK, -1, np.int32)
        more = int(block(*fenced, space, before, after, np.int32(lo), np.int32(n), np.int32(m)))
        for i in range(BLOCK):
            k = lo + i
            h = min(max(int(max(before[i], before[i + 1])) + 1, int(before[i + 2])), n + k, m)
            if h < 0 or h - k < 0 or k > m:
                continue  # no cell; what a block makes of it is not read or stays below 0
            run = 0
            while h + run < m and h - k + run < n and ref[h + run] == query[h - k + run]:
                run += 1
            found = int(after[i]) - h
            assert found == run if not more >> i & 1 else found in (4, 8) and found <= run
