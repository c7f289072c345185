"""Distances and paths of bit vectors equal those of wavefronts."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align.edit.api import edit_distance
from mapper.align.edit.bit_vectors import search_columns, trace_columns
from mapper.align.matches import Strings
from mapper.jit.accelerate import driver
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import adversarial_pairs, edited, random_pairs


@driver
def _search(strings, last, width, moves, stride, ops):
    score = search_columns(strings, last, width, moves, np.int64(1), stride, True)
    alone = search_columns(strings, last, width, moves, np.int64(0), stride, False)
    if score != alone:
        return np.int32(-9), np.int32(0)
    if score < 0:
        return score, np.int32(0)
    return score, trace_columns(strings, width, moves, np.int64(1), stride, ops)


def strings_of(query: str, ref: str, before: int) -> Strings:
    """Pack both sequences in one array, at arbitrary symbols, between others."""
    codes = "ACTG"
    text = "G" * before + query + "T" * (before + 3) + ref + "A" * 160
    words = np.zeros(len(text) // 16 + 1, np.uint32)
    for i, letter in enumerate(text):
        words[i >> 4] |= np.uint32(codes.index(letter) << (2 * (i & 15)))
    at = np.uint32(before), np.uint32(2 * before + 3 + len(query))
    return Strings(words, words, *at, np.int32(len(query)), np.int32(len(ref)), np.int32(1))


def some_pairs(rng: np.random.Generator) -> list[tuple[str, str]]:
    pairs = random_pairs(rng, 200, 90)
    pairs += [pair for pair in adversarial_pairs(120) if "N" not in "".join(pair)]
    for length, rate in ((64, 0.4), (150, 0.1), (300, 0.1), (700, 0.05), (1000, 0.03)):
        for _ in range(40):
            ref = random_letters(rng, length)
            pairs.append((edited(rng, ref, rate), ref))
            gone = int(rng.integers(1, 40))  # one long gap, at either end or in the middle
            at = int(rng.choice([0, length // 3, length - gone]))
            pairs.append((ref[:at] + ref[at + gone :], edited(rng, ref, 0.02)))
            pairs.append(pairs[-1][::-1])
    for unit in ("A", "AC", "ACG"):  # many equal paths
        for _ in range(40):
            ref = unit * int(rng.integers(5, 40))
            pairs.append((edited(rng, ref, 0.2), edited(rng, ref, 0.1)))
    return pairs


@pytest.mark.parametrize("width", [32, 64])
def test_paths_are_those_of_wavefronts(width: int) -> None:
    rng = np.random.default_rng(61)
    pairs = some_pairs(rng)
    expected = edit_distance([q for q, _ in pairs], [r for _, r in pairs], cigar=True, device="cpu")
    kind = np.uint32 if width == 32 else np.uint64
    stride = 3
    moves = np.zeros(2 * stride * 1100, kind)
    ops = np.zeros(2 * width, np.uint32)
    n_found = 0
    for i, (query, ref) in enumerate(pairs):
        given = strings_of(query, ref, int(rng.integers(40)))
        last = int(rng.integers(width)) if i % 3 == 0 else width - 1
        score, n_ops = _search(given, np.int32(last), np.int32(width), moves, stride, ops)
        distance = expected.score[i]
        assert score == (distance if distance <= last else -1), (query, ref)
        if score >= 0:
            n_found += 1
            at, behind = expected.cigar_offsets[i : i + 2]
            assert n_ops == behind - at
            assert ops[:n_ops][::-1].tolist() == expected.cigar_ops[at:behind].tolist(), (
                query,
                ref,
            )
    assert n_found > len(pairs) // 3
