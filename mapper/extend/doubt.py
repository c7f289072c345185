"""The second and the third look: which reads are seeded again, with more seeds and more hits.

The first seeds of a read are few, and those in repeats are lengthened or left out. That is enough
for most reads: a place that differs from the read in fewer substitutions than it has located
disjoint seeds has been found (``SeedBatch.guarantee``). A read whose best alignment has about as
many differences may have a better place that shares no such seed with it: these are looked at a
second time, with overlapping seeds, higher limits and hence many more places. They are few of the
reads of a sample close to its reference, and many where it is far.

In arrays of repeats even the second look misses copies. Where both mates have several places about
as good, the insert size chooses the pair, and it chooses wrongly if the true pair was not located.
Such pairs are seeded a third time. If places may still be missing, the mapping quality is lowered
(``TENTHS_IN_DOUBT`` in ``pair/mapq.py``).
"""

from __future__ import annotations

import numpy as np

from mapper.batch import AlignmentBatch, ReadBatch, SeedSummary
from mapper.cigar import EQUAL, I, X
from mapper.jit.accelerate import core, driver
from mapper.params import ExtendParams

DOUBTFUL_LEAD, DOUBTFUL_LEAD_OF_MATES = 1, 0
"""A read is in doubt whose best alignment leads the places that its seeds may have missed by at
most so many mismatches. For mates the limit is lower, because each confirms the other's place."""

DOUBTFUL_LEAD_OF_PAIRS, DOUBTFUL_LEAD_OVER_NEXT = 1, 2
"""A pair is in doubt whose mates lead, together, the places that their seeds may have missed by at
most so many mismatches, and their own next best alignments by at most so many."""


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
def lead_over_hidden(base_offsets, alignments, guarantee, read, scores):
    """Return by how much the best alignment of a read, which has one, leads what seeds missed."""
    read_len = base_offsets[read + 1] - base_offsets[read]
    hidden = hidden_score(read_len, guarantee[read], scores.match, scores.mismatch)
    first = alignments.alignment_offsets[read]
    return score_by_differences(alignments, first, scores.match, scores.mismatch) - hidden


@core
def is_doubtful(base_offsets, alignments, guarantee, read, paired, scores):
    """Return True if places that seeds have missed may come close to the best of the read."""
    if alignments.alignment_offsets[read] == alignments.alignment_offsets[read + 1]:
        return False
    lead = DOUBTFUL_LEAD_OF_MATES if paired else DOUBTFUL_LEAD
    most = lead * (scores.match + scores.mismatch)
    return lead_over_hidden(base_offsets, alignments, guarantee, read, scores) <= most


@core
def is_doubtful_pair(base_offsets, alignments, guarantee, thinned, first_mate, scores):
    """Return True if a pair of places that seeds have missed may come close to the best pair.

    That is so if seeds of both mates were lengthened or left out, and neither mate can tell its
    place from others by itself.
    """
    over_hidden = over_next = np.int64(0)
    for read in range(first_mate, first_mate + 2):
        first, end = alignments.alignment_offsets[read], alignments.alignment_offsets[read + 1]
        if first == end or not thinned[read]:
            return False
        over_hidden += lead_over_hidden(base_offsets, alignments, guarantee, read, scores)
        over_next += np.int64(alignments.score[first])
        if first + 1 < end:
            over_next -= np.int64(alignments.score[first + 1])
    one = scores.match + scores.mismatch
    return (
        over_hidden <= DOUBTFUL_LEAD_OF_PAIRS * one and over_next <= DOUBTFUL_LEAD_OVER_NEXT * one
    )


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


@driver
def _doubtful_pairs(base_offsets, alignments, guarantee, thinned, scores):
    doubtful = np.empty(len(base_offsets) - 1, np.bool_)
    for read in range(0, len(doubtful), 2):
        found = is_doubtful_pair(base_offsets, alignments, guarantee, thinned, read, scores)
        doubtful[read] = doubtful[read + 1] = found
    return doubtful


def mates_of_doubtful_pairs(
    reads: ReadBatch, seeds: SeedSummary, alignments: AlignmentBatch, scores: ExtendParams
) -> np.ndarray:
    """Return which mates, bool (n_reads,), are to be looked at a third time."""
    return _doubtful_pairs(reads.base_offsets, alignments, seeds.guarantee, seeds.thinned, scores)
