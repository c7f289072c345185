"""Core: the best ungapped alignment on one diagonal, from its mismatches.

The whole read is compared with the reference 64 bases at a time. Its longest run of
matches is the anchor; each side is then cut where the objective (score plus end bonus) is
highest. On a side with so few mismatches that a single gap costs more, this is optimal
and no gapped search is needed.
"""

from __future__ import annotations

import numpy as np

from mapper.dna import mismatch_word
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import trailing_zeros

LEAST_MATCHES = 12
"""Matches that are always asked for, also of a mate: as many as the shortest seed of a read alone.
Fewer match by chance somewhere within reach of the other mate."""


@core
def lowest_score(read_len, params):
    """Score an alignment of a read must reach to be reported outside a proper pair.

    ``min_score``, or, for a read too short for that, the score of one mismatch inside it.
    """
    return min(params.min_score, params.match * (read_len - 1) - params.mismatch)


@core
def lowest_mate_score(read_len, params):
    """Score an alignment of a read must reach to be reported in a proper pair."""
    lowest = min(lowest_score(read_len, params), params.match * params.min_mate_score)
    return max(lowest, params.match * LEAST_MATCHES)


@core
def lowest_ungapped(read_len, params):
    """Score an ungapped alignment must reach for gaps to be sought from there."""
    return min(lowest_mate_score(read_len, params), params.match * params.min_ungapped)


@core
def find_mismatches(read_planes, read_word, text_planes, diagonal, start, end, positions):
    """Write the positions (in the oriented read) of mismatches in start:end.

    Returns
    -------
    n_mismatches, run_start, run_end, n_before
        The longest run without a mismatch, the leftmost of equals, and how many mismatches lie
        before it.
    """
    n = n_before = np.int32(0)
    pos, end = np.int32(start), np.int32(end)
    matched = best_start = best_end = pos  # bases match from `matched` on
    while pos < end:
        differ = mismatch_word(read_planes, read_word, pos, text_planes, 0, diagonal + pos)
        left = np.int32(end - pos)
        if left < 64:
            differ &= (np.uint64(1) << np.uint64(left)) - np.uint64(1)
        while differ:
            mismatch = np.int32(pos + trailing_zeros(differ))
            if mismatch - matched > best_end - best_start:
                best_start, best_end, n_before = matched, mismatch, n
            matched = np.int32(mismatch + 1)
            positions[np.uint32(n)] = mismatch
            n = np.int32(n + 1)
            differ &= differ - np.uint64(1)
        pos = np.int32(pos + 64)
    if end - matched > best_end - best_start:
        best_start, best_end, n_before = matched, end, n
    return n, np.int64(best_start), np.int64(best_end), np.int64(n_before)


@core
def trim_right(positions, first, n_mismatches, corner, end, read_len, match, mismatch, end_bonus):
    """Best ungapped extension of an anchor to the right of `corner`.

    Parameters
    ----------
    first
        Index of the first mismatch at or after `corner`.
    end
        Where the contig ends, or the read's end.

    Returns
    -------
    objective, cut
        Doubled score plus bonus; where the extension ends. The shorter of equals wins.
    """
    best = np.int64(0)
    cut = corner
    doubled = np.int64(0)
    if corner == read_len:
        return np.int64(2 * end_bonus), cut
    for i in range(first, n_mismatches):
        next_end = np.int64(positions[i + 1]) if i + 1 < n_mismatches else end
        doubled += 2 * (match * (next_end - positions[i] - 1) - mismatch)
        objective = doubled + (2 * end_bonus if next_end == read_len else 0)
        if objective > best:
            best = objective
            cut = next_end
        if doubled + 2 * (match * (end - next_end) + end_bonus) <= best:
            break  # not even a perfect rest is better
    return best, cut


@core
def trim_left(positions, n_before, corner, start, match, mismatch, end_bonus):
    """Best ungapped extension of an anchor to the left of `corner`; as :func:`trim_right`.

    `n_before` mismatches lie before `corner`; `start` is where the contig starts, or 0.
    """
    best = np.int64(0)
    cut = corner
    doubled = np.int64(0)
    if corner == 0:
        return np.int64(2 * end_bonus), cut
    for i in range(n_before - 1, -1, -1):
        next_start = np.int64(positions[i - 1]) + 1 if i > 0 else start
        doubled += 2 * (match * (positions[i] - next_start) - mismatch)
        objective = doubled + (2 * end_bonus if next_start == 0 else 0)
        if objective > best:
            best = objective
            cut = next_start
        if doubled + 2 * (match * (next_start - start) + end_bonus) <= best:
            break
    return best, cut


@core
def ungapped_score(ungapped, read_len, params):
    """Doubled score of an ungapped alignment, without bonuses for ends of the read."""
    doubled = 2 * params.match * (ungapped.anchor_end - ungapped.anchor_start)
    doubled += ungapped.left + ungapped.right
    if ungapped.start == 0:
        doubled -= 2 * params.end_bonus
    if ungapped.end == read_len:
        doubled -= 2 * params.end_bonus
    return doubled
