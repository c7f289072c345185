"""The numbers of a matrix alignment as kernels take them: costs, padded scores, and if they fit."""

from __future__ import annotations

import numpy as np

from mapper.align.matrix.cells import OneCell, TwoCells, joined_halves, words_of_scores
from mapper.align.matrix.dp import LOCAL, NEVER, SEMIGLOBAL, Gaps
from mapper.jit.accelerate import core

GREATEST_HALF, GREATEST_BYTE = 2**15 - 1, 127
PAD_OF_BYTE, PAD_OF_SHORT = -128, -(2**15) + 1
"""Score of the extra letter with any other; below every gap cost that the kernel takes."""


def costs_of(gaps: Gaps, mode: int, halves: int) -> OneCell | TwoCells:
    """Return the costs of gaps as the cells of a kernel take them."""
    opening, extend = -sum(gaps), -gaps.gap_extend
    if halves == 1:
        floor = 0 if mode == LOCAL else NEVER
        return OneCell(*(np.int32(cost) for cost in (opening, extend, floor, extend)))
    floor = int(bias_of(0, 0, gaps, mode, 0)) if mode == LOCAL else 0
    return TwoCells(
        words_of_scores(opening, opening), words_of_scores(extend, extend),
        words_of_scores(floor, floor), joined_halves(extend, extend),
    )  # fmt: skip


@core
def bias_of(n, m, gaps, mode, lanes):
    """What is added to scores in halves, so that no score less what may cost is below 0.

    That is the lowest score of a pair of letters, or a gap's first symbol.
    """
    lowest = 1 - PAD_OF_BYTE + gaps.gap_open + gaps.gap_extend
    if mode == LOCAL:
        return np.int64(lowest)
    return np.int64(lowest + 2 * gaps.gap_open + (n + m + 2 * lanes + 2) * gaps.gap_extend)


@core
def fits_halves(n, m, highest, gaps, mode, lanes):
    """Whether all scores of a matrix fit 16 bits; `highest`: of a pair of letters, or 0."""
    return bias_of(n, m, gaps, mode, lanes) + (min(n, m) + 1) * highest <= GREATEST_HALF


def halves_possible(scores: np.ndarray, gaps: Gaps) -> bool:
    """Say whether int32 scores fit a query profile's bytes, and gaps cost less than its padding."""
    return int(np.abs(scores).max()) <= GREATEST_BYTE and sum(gaps) < -PAD_OF_BYTE


def padded_scores(scores: np.ndarray, mode: int, halves: int) -> np.ndarray:
    """Return a matrix with a letter more, which makes the borders: int16.

    Rows above the query must hold the border's first row, columns before the reference its
    first column: where borders cost gaps, by the gap alone, and where they are free, by the
    diagonal.
    """
    n = len(scores)
    pad = PAD_OF_BYTE if halves == 2 else PAD_OF_SHORT
    padded = np.full((n + 1, n + 1), 0 if mode == SEMIGLOBAL else pad, np.int16)
    padded[:n, :n] = scores
    padded[n, n] = 0
    return padded
