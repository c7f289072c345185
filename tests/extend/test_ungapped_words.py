"""Ungapped alignments by words of mismatches, against those from one mismatch to the next."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.batch import LocusBatch
from mapper.extend.read import align_row, locus_key, order_loci
from mapper.extend.ungapped_words import LONGEST, align_row_by_words, new_word_scratch
from mapper.jit.accelerate import driver
from mapper.jit.lanes import ONE_LANE, THREAD_LANE
from tests.helpers.extension_sides import SCORINGS, params_of
from tests.helpers.read_batches import mutated, packed_reads, random_letters, text_planes


@driver
def _rows(text_planes, planes, word_offsets, base_offsets, loci, params, positions, out):
    for i in range(len(base_offsets) - 1):
        align_row(
            text_planes, planes, word_offsets[i], base_offsets[i + 1] - base_offsets[i], loci, i,
            params, positions, out[i],
        )  # fmt: skip


@driver
def _rows_by_words(text_planes, planes, word_offsets, base_offsets, loci, params, positions, words,
                   out):  # fmt: skip
    for i in range(len(base_offsets) - 1):
        align_row_by_words(
            text_planes, planes, word_offsets[i], base_offsets[i + 1] - base_offsets[i], loci, i,
            params, positions, words, out[i],
        )  # fmt: skip


LENGTHS = (1, 2, 7, 8, 9, 30, 63, 64, 65, 100, 128, 150, 192, 250, 255, 256, 257, 400)


@pytest.mark.parametrize("scoring", SCORINGS)
def test_rows_are_the_same(scoring) -> None:
    """Of all lengths around those of words, near and far from the text, cut off by their contig."""
    params = params_of(scoring)
    rng = np.random.default_rng(3)
    text = random_letters(rng, 3000, "ACGTACGTACGTACGTN")
    reads, diagonals, windows = [], [], []
    for length in LENGTHS:
        for share in (0, 0.01, 0.05, 0.15, 0.3, 0.75):
            for _ in range(8):
                at = int(rng.integers(0, len(text) - length))
                letters = mutated(rng, text[at : at + length], share)
                unlike = str.maketrans("ACGTN", "CGTAA")
                kind = rng.integers(12)
                if kind == 0:  # no match at all
                    letters = text[at : at + length].translate(unlike)
                elif kind == 1:  # a run behind nothing, or the other way round
                    cut = int(rng.integers(0, length + 1))
                    letters = letters[:cut] + text[at + cut : at + length].translate(unlike)
                overhang = kind == 2
                window_start = at + (int(rng.integers(0, length)) if overhang else 0)
                window_end = at + length
                if overhang:
                    window_end = int(rng.integers(window_start, window_end + 1))
                reads.append(letters)
                diagonals.append(at)
                windows.append((window_start, window_end))
    batch, packed = packed_reads(reads)
    n = len(reads)
    starts, ends = np.array(windows).T
    loci = LocusBatch(
        np.arange(n + 1), np.zeros(n, np.uint8), np.array(diagonals), np.zeros(n, np.int32),
        starts.copy(), ends.copy(),
    )  # fmt: skip
    planes = text_planes(text)
    arguments = planes, packed.planes, packed.word_offsets, batch.base_offsets, loci, params
    positions = np.empty(max(LENGTHS) + 1, np.int32)
    expected, found = np.zeros((2, n, 8), np.int32)
    _rows(*arguments, positions, expected)
    _rows_by_words(*arguments, positions, new_word_scratch(params), found)
    assert max(LENGTHS) > LONGEST
    for i, (row, other) in enumerate(zip(found.tolist(), expected.tolist(), strict=True)):
        assert row == other, (reads[i], diagonals[i], windows[i])


@driver
def _order(ungapped, match, keys, order, lanes):
    n = len(ungapped)
    for i in range(n):
        keys[i] = locus_key(ungapped[i], i, match)
    order_loci(keys, order, n, lanes)


@given(st.lists(st.integers(0, 5), max_size=60))
def test_loci_come_by_objective_and_equals_as_given(lefts: list[int]) -> None:
    ungapped = np.zeros((len(lefts), 8), np.int32)
    ungapped[:, 4] = lefts
    keys, order = np.empty(2 * len(lefts), np.int64), np.empty(len(lefts), np.int32)
    for lanes in (ONE_LANE, THREAD_LANE):
        _order(ungapped, 1, keys, order, lanes)
        assert order.tolist() == sorted(range(len(lefts)), key=lambda i: (-lefts[i], i))
