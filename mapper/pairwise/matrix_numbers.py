"""The numbers of a matrix alignment as kernels take them: costs, padded scores, and if they fit."""

from __future__ import annotations

import numpy as np

from mapper.accelerate import core
from mapper.pairwise.cells import OneCell, TwoCells
from mapper.pairwise.dp_matrix import LOCAL, NEVER, SEMIGLOBAL, Gaps

GREATEST_HALF, GREATEST_BYTE = 2**15 - 1, 127
PAD_OF_BYTE, PAD_OF_SHORT = -128, -(2**15) + 1
"""Score of the extra letter with any other; below every gap cost that the kernel takes."""


def costs_of(gaps: Gaps, mode: int, halves: int) -> OneCell | TwoCells:
    """Return the costs of gaps as the cells of a kernel take them."""
    opening, extend = -sum(gaps), -gaps.gap_extend
    if halves == 1:
        floor = 0 if mode == LOCAL else NEVER
        return OneCell(np.int32(opening), np.int32(extend), np.int32(floor))
    twice = [np.uint32((cost & 0xFFFF) * 0x10001) for cost in (opening, extend, 0)]
    return TwoCells(*twice)


@core
def bias_of(n, m, gaps, mode, lanes):
    """What is added to scores in halves, so that every cell is above 0 and no gap below.

    At 0 itself a mismatch would be cut off, and taken for one that leads to the score. A local
    alignment begins there, and asks no further.
    """
    if mode == LOCAL:
        return np.int64(0)
    return np.int64(1 + 3 * gaps.gap_open + (n + m + 2 * lanes + 2) * gaps.gap_extend)


@core
def fits_halves(n, m, highest, gaps, mode, lanes):
    """Whether all scores of a matrix fit 16 bits; `highest`: of a pair of letters, or 0."""
    return bias_of(n, m, gaps, mode, lanes) + (min(n, m) + 1) * highest <= GREATEST_HALF


def halves_possible(scores: np.ndarray, gaps: Gaps) -> bool:
    """Say whether scores fit the bytes of a query profile, and gaps cost less than its padding."""
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
