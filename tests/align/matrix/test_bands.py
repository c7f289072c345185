"""Bands of the matrix: the same alignments as by the whole matrix, from a part of its cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.align.matrix.dp import (
    _NO_BOUND,
    BLOCK,
    ByteOrigins,
    FillSpace,
    Gaps,
    fill_best,
    fill_matrix,
    row_items,
    trace_matrix,
    write_potentials,
)
from mapper.align.matrix.scoring import check_scoring, numbers_for
from mapper.jit.accelerate import driver
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited

SPANS = ["global", "semiglobal", "local"]
UNTOUCHED = 255  # not the bits of any cell


@driver
def filled(query, ref, scores, gap_open, gap_extend, mode, numbers, origins, is_whole):
    """Fill the matrix, whole or as far as it takes; return score, spans and operations."""
    gaps = Gaps(gap_open, gap_extend)
    rows = np.empty((4, row_items(len(ref))), numbers.dtype)
    profile = np.empty((len(scores), row_items(len(ref))), numbers.dtype)
    space = FillSpace(rows[0], rows[1], rows[2], rows[3], profile, np.empty(len(scores), np.bool_))
    potential = np.empty(len(scores), np.int64)
    write_potentials(scores, potential)
    if is_whole:
        score, end_i, end_j = fill_matrix(
            query, ref, scores, gaps, mode, space, origins, max(len(query), len(ref)), _NO_BOUND,
            potential, np.int64(0),
        )  # fmt: skip
    else:
        score, end_i, end_j, _ = fill_best(
            query, ref, scores, gaps, mode, space, origins, potential, True
        )
    ops = np.empty(2 * (len(query) + len(ref) + 2), np.uint32)
    n_ops, start_i, start_j = trace_matrix(
        query, ref, scores, gaps, ByteOrigins(origins, len(ref)), mode, score, end_i, end_j, ops
    )
    return score, start_i, end_i, start_j, end_j, ops[:n_ops].copy()


def both(query: str, ref: str, matrix, gaps: tuple[int, int], span: str) -> float:
    """Assert that both ways find the same; return the share of cells that the band computed."""
    scoring = check_scoring(matrix, gaps, span, True, 1 << 30)
    coded = [
        scoring.table.code_of[np.frombuffer(letters.encode(), np.uint8)] for letters in (query, ref)
    ]
    numbers = numbers_for(len(query) + len(ref), scoring)
    results, shares = [], []
    for is_whole in (True, False):
        origins = np.full(len(query) * len(ref) + BLOCK, UNTOUCHED, np.uint8)
        results.append(
            filled(*coded, scoring.scores, *scoring.gaps, scoring.mode, numbers, origins, is_whole)
        )
        n_cells = len(query) * len(ref)
        shares.append(np.count_nonzero(origins[:n_cells] != UNTOUCHED) / max(n_cells, 1))
    (*one, ops), (*other, other_ops) = results
    assert one == other, (query, ref)
    assert ops.tolist() == other_ops.tolist(), (query, ref)
    assert shares[0] == (n_cells > 0)
    return shares[1]


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("gaps", [(10, 1), (4, 2), (0, 0), (0, 3), (5, 0)], ids=str)
def test_similar_sequences_take_a_band(span: str, gaps: tuple[int, int]) -> None:
    rng = np.random.default_rng(11)
    for length, rate, most in ((150, 0.03, 0.7), (600, 0.03, 0.45), (600, 0.05, 0.75)):
        shares = []
        for _ in range(6):
            ref = random_letters(rng, length)
            shares.append(both(edited(rng, ref, rate), ref, (5, -4), gaps, span))
        # Without costs for gaps, sequences that differ may be aligned anywhere.
        if gaps != (0, 0):
            assert min(shares) < most, (length, rate, shares)


@pytest.mark.parametrize("span", SPANS)
def test_other_sequences_take_the_whole_matrix(span: str) -> None:
    rng = np.random.default_rng(12)
    for length in (150, 400):
        query, ref = random_letters(rng, length), random_letters(rng, length)
        assert both(query, ref, (5, -4), (10, 1), span) == 1


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("matrix", ["NUC.4.4", "BLOSUM62"])
def test_letters_that_score_nothing(span: str, matrix: str) -> None:
    """N scores -1 with itself, so that a row of it brings nothing; proteins' rows differ."""
    rng = np.random.default_rng(13)
    letters = "ACGT" if matrix == "NUC.4.4" else "ARNDCQEGHILKMFPSTWYV"
    masked = "N" if matrix == "NUC.4.4" else "X"
    for share in (0, 0.02, 0.3, 1):
        for _ in range(4):
            ref = random_letters(rng, int(rng.integers(130, 400)), letters)
            query = list(edited(rng, ref, 0.04, letters))
            for i in np.flatnonzero(rng.random(len(query)) < share):
                query[i] = masked
            both("".join(query), ref, matrix, (10, 1), span)


@pytest.mark.parametrize("span", SPANS)
def test_lengths_that_differ_and_repeats_that_tie(span: str) -> None:
    rng = np.random.default_rng(14)
    text = random_letters(rng, 420)
    unit = random_letters(rng, 7)
    pairs = [
        (text[:200], text[:180]), (text[20:200], text[:200]), (text[:150], text),
        (text, text[200:]), (text[:128] + text[170:], text), (text, text[:128] + text[170:]),
        ("A" * 300, "A" * 310), ("A" * 310, "A" * 300), (unit * 40, unit * 40),
        (unit * 40, unit * 38), (unit * 30 + text[:60], text[:60] + unit * 30),
        (text[:129], text[:127]), ("A" * 128, ""), ("", "A" * 128), ("A", "A" * 200),
    ]  # fmt: skip
    for query, ref in pairs:
        for gaps in ((10, 1), (0, 1), (0, 0)):
            both(query, ref, (1, -1), gaps, span)
            both(query, ref, (40, -60), (40 * gaps[0], 40 * gaps[1]), span)


@settings(max_examples=150)
@given(
    st.integers(0, 2**32), st.integers(120, 260), st.sampled_from([0.0, 0.02, 0.05, 0.12, 0.25]),
    st.sampled_from(["A", "AC", "ACGT"]), st.integers(0, 40), st.sampled_from(SPANS),
    st.sampled_from([(1, -1), (2, -3), (5, -4), (1, 0)]),
    st.sampled_from([(10, 1), (1, 1), (0, 2), (3, 0), (0, 0)]),
)  # fmt: skip
def test_bands_change_nothing(seed, length, rate, letters, cut, span, matrix, gaps) -> None:
    rng = np.random.default_rng(seed)
    ref = random_letters(rng, length, letters)
    query = edited(rng, ref, rate, letters)
    both(query[cut:], ref[: length - cut // 3], matrix, gaps, span)
