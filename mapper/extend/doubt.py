"""The second look: which reads are seeded again, with more seeds and more of their hits.

The first seeds of a read are few, and those in repeats are lengthened or left out. That is enough
for most reads: a place that differs from the read in fewer substitutions than it has located
disjoint seeds has been found (``SeedBatch.guarantee``). A read whose best alignment has about as
many differences may have a better place that shares no such seed with it: these are looked at a
second time, with overlapping seeds, higher limits and hence many more places. They are few of the
reads of a sample close to its reference, and many where it is far.
"""

from __future__ import annotations

import numpy as np

from mapper.batch import AlignmentBatch, ReadBatch
from mapper.cigar import EQUAL, I, X
from mapper.jit.accelerate import core, driver
from mapper.params import ExtendParams

DOUBTFUL_LEAD, DOUBTFUL_LEAD_OF_MATES = 1, 0
"""A read is in doubt whose best alignment leads the places that its seeds may have missed by at
most so many mismatches. For mates the limit is lower, because each confirms the other's place."""


@core
def hidden_score(read_len, guarantee, match, mismatch):
    """Return the highest score of a place that shares no located seed with the read.

    It differs from the read in `guarantee` substitutions or more.
    """
    return match * np.int64(read_len) - (match + mismatch) * np.int64(guarantee)


@core
def score_by_differences(alignments, i, match, mismatch):
    """Return the score of an alignment if a gap cost two mismatches, whatever its length.

    It is compared with :func:`hidden_score`, which counts differences: one long gap is one rare
    event, not one for each of its bases. Never below the score itself.
    """
    score = np.int64(0)
    for j in range(alignments.cigar_offsets[i], alignments.cigar_offsets[i + 1]):
        op = alignments.cigar_ops[j] & 15
        length = np.int64(alignments.cigar_ops[j] >> 4)
        if op == EQUAL or op == I:
            score += match * length
        if op == X:
            score -= mismatch * length
        elif op != EQUAL:
            score -= 2 * (match + mismatch)
    return max(score, np.int64(alignments.score[i]))


@core
def is_doubtful(base_offsets, alignments, guarantee, read, paired, scores):
    """Return True if places that seeds have missed may come close to the best of the read."""
    first = alignments.alignment_offsets[read]
    if first == alignments.alignment_offsets[read + 1]:
        return False
    read_len = base_offsets[read + 1] - base_offsets[read]
    hidden = hidden_score(read_len, guarantee[read], scores.match, scores.mismatch)
    best = score_by_differences(alignments, first, scores.match, scores.mismatch)
    lead = DOUBTFUL_LEAD_OF_MATES if paired else DOUBTFUL_LEAD
    return best - hidden <= lead * (scores.match + scores.mismatch)


@driver
def _doubtful(base_offsets, alignments, guarantee, paired, scores):
    n_reads = len(base_offsets) - 1
    doubtful = np.empty(n_reads, np.bool_)
    for read in range(n_reads):
        doubtful[read] = is_doubtful(base_offsets, alignments, guarantee, read, paired, scores)
    return doubtful


def doubtful_reads(
    reads: ReadBatch, guarantee: np.ndarray, alignments: AlignmentBatch, scores: ExtendParams
) -> np.ndarray:
    """Return which reads, bool (n_reads,), are to be looked at again.

    `guarantee` is the column of their :class:`mapper.batch.SeedBatch`.
    """
    return _doubtful(reads.base_offsets, alignments, guarantee, reads.paired, scores)
