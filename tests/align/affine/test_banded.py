"""A band of the matrix in differences of bytes: exact, and with the paths of wavefronts."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align.affine.banded import (
    BLOCK,
    NARROW,
    WIDEST_GUESS,
    BandSpace,
    dp_align,
    fill_band,
    fits_bytes,
    new_dp_space,
    rows_for,
)
from mapper.align.affine.low_memory import Problem, path_in_stretches
from mapper.align.affine.wavefront import AffinePenalties, Band
from mapper.align.edit.wavefront import Ends
from mapper.align.matches import letters_of, no_letters, pair_at, run_to_fence
from mapper.align.matrix.cells import ByteCell, OneCell
from mapper.align.matrix.dp import next_cell
from mapper.align.packing import pack_pairs
from mapper.align.pairs import batch_of
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited, random_pairs
from tests.naive.pairwise import RULES, lowest_penalty

ANY = 2**60
# The last two are the highest that fit bytes: by the mismatch, and by the opening.
PENALTIES = [(2, 3, 1), (1, 0, 1), (5, 3, 2), (1, 9, 1), (3, 1, 4), (7, 0, 3), (64, 57, 3),
             (1, 62, 1)]  # fmt: skip


def packed_of(pairs, symbols="dna"):
    return pack_pairs(batch_of([q for q, _ in pairs], [r for _, r in pairs]), symbols)


def in_band(pair, penalties: AffinePenalties, n_rows: int) -> int:
    """Return the lowest penalty within the band of so many rows around both ends."""
    n, m = pair.query_len, pair.ref_len
    letters = letters_of(pair, no_letters())
    query = np.zeros(n + n_rows + 1, np.uint8)
    query[1 : n + 1] = letters.query[:n]
    ref = np.zeros(m + 2 * n_rows, np.uint8)
    ref[n_rows : m + n_rows] = letters.ref[:m][::-1]
    # What work space holds before is of no effect.
    by_row = np.full((2, n + n_rows + 1), 77, np.int8)
    by_column = np.full((2, m + 2 * n_rows), -99, np.int8)
    space = BandSpace(query, ref, *by_row, *by_column)
    highest = (m - n + 2 * n_rows - 1) >> 1
    return fill_band(space, n, m, highest, n_rows, penalties, None)


def naive_in_band(query: str, ref: str, penalties, lowest: int, highest: int) -> int:
    """Return the lowest penalty of alignments on diagonals j - i from lowest to highest."""
    x, o, e = penalties
    never = 10**9
    best = {(0, 0): (0, never, never)}
    for i in range(len(query) + 1):
        for j in range(max(0, i + lowest), min(len(ref), i + highest) + 1):
            if i == j == 0:
                continue
            h, _, up = best.get((i - 1, j), (never,) * 3)
            insertion = min(h + o + e, up + e)
            h, left, _ = best.get((i, j - 1), (never,) * 3)
            deletion = min(h + o + e, left + e)
            h = best.get((i - 1, j - 1), (never,) * 3)[0]
            if i and j:
                h += 0 if query[i - 1] == ref[j - 1] else x
            best[i, j] = (min(h, insertion, deletion), deletion, insertion)
    return best[len(query), len(ref)][0]


@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
def test_a_band_finds_the_best_within_it(penalties) -> None:
    assert fits_bytes(AffinePenalties(*penalties))
    rng = np.random.default_rng(1)
    for length in (1, 2, 31, 90, 150):
        ref = random_letters(rng, length)
        pair = (edited(rng, ref, 0.3) or "A", ref)
        packed = pair_at(packed_of([pair]), 0)
        goal = len(ref) - len(pair[0])
        for n_rows in (BLOCK, 3 * BLOCK):
            highest = (goal + 2 * n_rows - 1) >> 1
            expected = naive_in_band(*pair, penalties, highest - 2 * n_rows + 1, highest)
            assert in_band(packed, AffinePenalties(*penalties), n_rows) == expected


def test_what_does_not_fit_bytes_is_told() -> None:
    for penalties in ((65, 57, 3), (64, 57, 4), (1, 63, 1)):
        assert not fits_bytes(AffinePenalties(*penalties))


def test_a_band_that_is_too_narrow_is_told_by_its_penalty() -> None:
    """Two gaps of 100 lead beyond 64 diagonals: the band around the ends finds worse."""
    rng = np.random.default_rng(2)
    penalties = AffinePenalties(2, 3, 1)
    ref, gap = random_letters(rng, 300), random_letters(rng, 100)
    query = ref[:100] + gap + ref[100:200]
    pair = pair_at(packed_of([(query, ref)]), 0)
    narrow, best = in_band(pair, penalties, BLOCK), in_band(pair, penalties, 128)
    assert best == lowest_penalty(query, ref, RULES["dna"], (2, 3, 1)) <= 206 < narrow
    assert rows_for(narrow, penalties) > BLOCK
    # An alignment of one row's penalty less stays in it.
    assert rows_for(2 * 3 + 2 * BLOCK - 1, penalties) == BLOCK
    assert rows_for(2 * 3 + 2 * BLOCK, penalties) == 2 * BLOCK


@pytest.mark.parametrize("symbols", ["dna", "bytes"])
@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
def test_paths_are_those_of_wavefronts(penalties, symbols: str) -> None:
    """Of equal paths the same, whatever is guessed."""
    rng = np.random.default_rng(3)
    pairs = random_pairs(rng, 16, 80, "AC") + random_pairs(rng, 8, 60, "ACGTN")
    for rate in (0.1, 0.3, 0.6):
        ref = random_letters(rng, 260)
        pairs += [(edited(rng, ref, rate), ref), (edited(rng, ref[:60] + ref[160:], rate), ref)]
    ref = "A" * 150 + "C" * 70
    pairs += [(edited(rng, ref, 0.2), ref), ("AC" * 90, "CA" * 95)]
    pairs = [(q, r) for q, r in pairs if q and r]
    packed = packed_of(pairs, symbols)
    space, letters = new_dp_space(1, 1, 1), no_letters()
    given = AffinePenalties(*penalties)
    wavefronts = Problem(Ends(0, 0, 0, 0), given, 1, Band(0, 1), ANY, 1 << 22)
    for i in range(len(pairs)):
        pair = pair_at(packed, i)
        found = path_in_stretches(pair, wavefronts)
        letters = letters_of(pair, letters)
        for guess in (0, found.score, 10**6):
            penalty, n_ops, space = dp_align(
                pair, letters, given, guess, ANY, ANY, np.int64(1), space
            )
            assert penalty == found.score
            assert space.ops[:n_ops][::-1].tolist() == found.ops.tolist()


def test_limits_of_penalty_and_memory() -> None:
    rng = np.random.default_rng(4)
    ref = random_letters(rng, 400)
    pair = pair_at(packed_of([(edited(rng, ref, 0.5), ref)]), 0)
    letters, space = letters_of(pair, no_letters()), new_dp_space(1, 1, 1)
    penalties = AffinePenalties(2, 3, 1)
    best, n_ops, space = dp_align(pair, letters, penalties, 0, ANY, ANY, np.int64(1), space)
    assert n_ops > 0
    assert rows_for(best, penalties) > NARROW
    for bound, memory, want_path in ((best, 1000, 1), (best, ANY, 0), (best - 1, ANY, 1)):
        for guess in (0, best, 20 * WIDEST_GUESS):
            penalty, n_ops, space = dp_align(
                pair, letters, penalties, guess, bound, memory, np.int64(want_path), space
            )
            assert n_ops == -1
            assert penalty == best if bound == best else penalty > bound


@pytest.mark.parametrize("symbols", ["dna", "iupac"])
def test_runs_end_at_the_fence(symbols: str) -> None:
    rng = np.random.default_rng(5)
    letters = no_letters()
    for length in (0, 1, 7, 8, 31, 32, 33, 64, 200):
        for alphabet in ("ACGT", "ACGTN"):
            ref = random_letters(rng, length, alphabet)
            query = ref + "T" * 40 if length % 2 else ref[: length // 2]
            pair = pair_at(packed_of([(query, ref)], symbols), 0)
            letters = letters_of(pair, letters)
            assert letters.fenced
            for v in (0, len(query) // 3, len(query)):
                for h in (0, min(len(query) // 3, length), length):
                    run = 0
                    while v + run < len(query) and h + run < length and RULES[symbols](
                        query[v + run], ref[h + run]
                    ):  # fmt: skip
                        run += 1
                    assert run_to_fence(letters, v, h) == run
    assert not letters_of(pair_at(packed_of([("A", "A")], "bytes"), 0), letters).fenced


def test_bytes_are_small_numbers() -> None:
    """The same cell in int8 and in int32, compiled and not."""
    rng = np.random.default_rng(6)
    one = OneCell(np.int32(-8), np.int32(-2), np.int32(-(2**30)), np.int32(-2))
    byte = ByteCell(np.int8(-8), np.int8(-2), np.int8(0), np.int8(-2))
    for numbers in rng.integers(-40, 40, (200, 3)):
        expected = next_cell(*numbers.astype(np.int32), False, one)
        assert next_cell(*numbers.astype(np.int8), False, byte) == expected
        python = getattr(next_cell, "py_func", next_cell)
        assert python(*numbers.astype(np.int8), False, byte) == expected
