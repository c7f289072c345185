"""The scores by which placements of a read are compared.

They are alignment scores and two things more. A clipped end speaks against a place as more
than a mismatch does: of two copies of a repeat, the one in which the read reaches its end with
a mismatch near it is the likelier; hence the end bonuses, as in extension. And a mismatch at a
base that the sequencer doubts speaks less against a place than one at a base it is sure of.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from mapper.batch import NO_QUALITY, AlignmentBatch, ReadBatch
from mapper.cigar import D, X
from mapper.jit.accelerate import core, driver
from mapper.params import ExtendParams

DIFFERENCE_RATE = 0.001
"""Bases at which a sample is expected to differ from its reference."""


@functools.cache
def forgiven_scores(match: int, mismatch: int) -> np.ndarray:
    """Return what is given back of the score of a mismatch, for each base quality.

    A base of error rate e differs from its true place with the probability e + v, v being
    DIFFERENCE_RATE; to have become this very base, it had a third of the e. A mismatch lowers
    the likelihood of a place by ``(1 - e) / (e / 3 + v)``, at most by ``1 / v``; the score
    takes the logarithms' share of what it costs to mismatch instead of to match, rounded to
    the severer side in matches. Nothing is given back without qualities.

    Returns
    -------
    int32, shape (256,), by Phred quality.
    """
    forgiven = np.zeros(256, np.int32)
    most = math.log(1 / DIFFERENCE_RATE)
    for quality in range(NO_QUALITY):
        error = min(10 ** (-quality / 10), 0.75)
        evidence = math.log((1 - error) / (error / 3 + DIFFERENCE_RATE))
        share = min(max(evidence / most, 0.0), 1.0)
        forgiven[quality] = match * math.floor((match + mismatch) / match * (1 - share))
    forgiven.flags.writeable = False
    return forgiven


@core
def forgiven_score(alignments, i, quals, read_start, read_end, forgiven):
    """What is given back for the mismatches of an alignment.

    ``quals[read_start:read_end]`` are the qualities of the read as given.
    """
    total = np.int64(0)
    step = np.int64(1)
    base = np.int64(read_start) + alignments.query_start[i]
    if alignments.strand[i]:
        step = np.int64(-1)
        base = np.int64(read_end) - 1 - alignments.query_start[i]
    for j in range(alignments.cigar_offsets[i], alignments.cigar_offsets[i + 1]):
        op = alignments.cigar_ops[j] & 15
        length = np.int64(alignments.cigar_ops[j] >> 4)
        if op == X:
            for _ in range(length):
                total += forgiven[quals[base]]
                base += step
        elif op != D:
            base += step * length
    return total


@driver
def _ranking_scores(base_offsets, quals, alignments, end_bonus, forgiven):
    offsets = alignments.alignment_offsets
    ranking = np.empty(len(alignments.score), np.int32)
    for read in range(len(offsets) - 1):
        start, end = base_offsets[read], base_offsets[read + 1]
        for i in range(offsets[read], offsets[read + 1]):
            score = np.int64(alignments.score[i])
            if alignments.query_start[i] == 0:
                score += end_bonus
            if alignments.query_end[i] == end - start:
                score += end_bonus
            ranking[i] = score + forgiven_score(alignments, i, quals, start, end, forgiven)
    return ranking


def with_ranking_scores(
    reads: ReadBatch, alignments: AlignmentBatch, scores: ExtendParams
) -> AlignmentBatch:
    """Return the alignments with the scores by which placement compares them."""
    forgiven = forgiven_scores(scores.match, scores.mismatch)
    ranking = _ranking_scores(
        reads.base_offsets, reads.quals, alignments, scores.end_bonus, forgiven
    )
    return alignments._replace(score=ranking)
