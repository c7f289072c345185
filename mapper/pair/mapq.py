"""Core: mapping quality, from the lead of a placement over its best alternative.

A mapping is wrong when differences between the read and its true position happen to favour
another one. Each mismatch needed for that makes it about ten times less likely on simulated reads
(``docs/accuracy.md``). So the quality grows in proportion to the lead, counted in matches, and
shrinks with the number of alternatives, with the share of the read in seeds too frequent to be
located, and with the differences of the placement itself. The best alternative is one that was
found or one that seeds may have missed, for the read alone and for the pair.
"""

from __future__ import annotations

import math

import numpy as np

from mapper.cigar import EQUAL, I, X
from mapper.jit.accelerate import core
from mapper.pair.insert_size import SCALE

MAX_MAPQ = 60
PAIR_BOOST = 40
"""Most that a pair can add to the quality from a mate's own alignments."""


@core
def lead_quality(lead, per_score, n_alternatives, per_tenfold, identity, repeat_fraction):
    """Return the quality of a placement whose score leads the best alternative by `lead` matches.

    Parameters
    ----------
    per_score
        ``PairParams.quality_in_pair`` or ``quality_alone``.
    n_alternatives, per_tenfold
        Alternatives about as good as the best of them, and ``PairParams.quality_of_rivals``.
    identity
        Share of the aligned bases that match.
    repeat_fraction
        Share of the read's bases in seeds that were too frequent to be located.
    """
    if lead <= 0:
        return 0.0
    quality = per_score * lead * identity * identity
    if n_alternatives > 1:
        quality -= per_tenfold * math.log10(n_alternatives)
    quality *= 1.0 - repeat_fraction
    return min(max(quality, 0.0), np.float64(MAX_MAPQ))


@core
def chance_cap(score, log10_text):
    """Return the highest quality of an alignment of this score, which chance may reach.

    The expected number of positions in the text (both strands) that match `score` bases by
    chance is ``2 n / 4**score``; `log10_text` is ``log10(2 n)``.
    """
    return max(0.0, 10.0 * (score * 0.6020599913279624 - log10_text))


UNUSED, PRIMARY, SUPPLEMENTARY, SECONDARY = range(4)

NEAR_SCORE = 5
"""Alternatives count as about as good as the best up to this many matches below it."""

UNSEEN_SCORE = 19
"""Score, in matches, that an alternative missed by seeding is assumed to reach (half the read's
length for shorter reads): no lead exceeds the placement's score minus this."""


@core
def unseen_score(read_len, guarantee, thinned, match, mismatch):
    """Return the highest score of a position that seeding may have missed.

    Where seeds were lengthened or left out, it may miss copies of a repeat that have `guarantee`
    substitutions or more.
    """
    score = match * min(np.int64(UNSEEN_SCORE), read_len // 2)
    if thinned:
        score = max(score, match * read_len - (match + mismatch) * np.int64(guarantee))
    return score


@core
def score_by_differences(alignments, i, match, mismatch):
    """Return the score of an alignment if a gap cost two mismatches, whatever its length.

    It is compared with :func:`unseen_score`, which counts differences: one long gap is one rare
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
def lead_over(alignments, chosen, unseen, scores):
    """Return the lead of an alignment over a position of score `unseen` that seeding missed."""
    score = score_by_differences(alignments, chosen, scores.match, scores.mismatch)
    return max(score - unseen, np.int64(0))


@core
def _head_quality(alignments, first, end, chosen, values, head, read_len, unseen, repeat_bases,
                  scores, log10_text, per_score, per_tenfold):  # fmt: skip
    """Return the quality of a head from `values` (1 / SCALE score units) of the read's alignments.

    `unseen` is the highest score of an alternative that seeding may have missed.
    """
    score = np.int64(alignments.score[chosen])
    second = values[chosen - first] - SCALE * lead_over(alignments, chosen, unseen, scores)
    for i in range(first, end):
        if i != chosen and head[i] == chosen:
            second = max(second, values[i - first])
    n_near = 0
    for i in range(first, end):
        near = values[i - first] >= second - SCALE * NEAR_SCORE * scores.match
        n_near += near and i != chosen and head[i] == chosen
    aligned = alignments.query_end[chosen] - alignments.query_start[chosen]
    identity = max(0.0, 1.0 - alignments.edit_distance[chosen] / aligned)
    quality = lead_quality(
        (values[chosen - first] - second) / (SCALE * scores.match), per_score, n_near, per_tenfold,
        identity, min(1.0, repeat_bases / read_len),
    )  # fmt: skip
    return min(quality, chance_cap(score / scores.match, log10_text))


@core
def assign_mapq(alignments, first, end, primary, values, alone, head, role, read_len, unseen,
                paired_unseen, repeat_bases, scores, params, log10_text, proper, mapq):  # fmt: skip
    """Set the quality of each head of a read, in `mapq`, of its alignments first:end.

    `values` are scores with the mate, `alone` the read's own scores. An alternative that seeding
    missed does not lie near the mate, where rescue has searched: it breaks the pair, or the mate
    has an alternative near it that seeding missed too. Hence `paired_unseen` is below `unseen`.
    A pair adds PAIR_BOOST at most to a mate's own quality; supplementary heads have only their
    own, up to that of the primary. `head` is the column ``PlacementBatch.rival``, -1 for a head on
    an ALT contig: that is another place for the read rather than a part of it, and may be surer.
    """
    own = _head_quality(
        alignments, first, end, primary, alone, head, read_len, unseen, repeat_bases, scores,
        log10_text, params.quality_alone, params.quality_of_rivals,
    )  # fmt: skip
    paired = _head_quality(
        alignments, first, end, primary, values, head, read_len, paired_unseen, repeat_bases,
        scores, log10_text, params.quality_in_pair if proper else params.quality_alone,
        params.quality_of_rivals,
    )  # fmt: skip
    quality = min(paired, own + PAIR_BOOST)
    mapq[primary - first] = np.uint8(quality + 0.5)
    for i in range(first, end):
        if role[i] == SUPPLEMENTARY:
            own = _head_quality(
                alignments, first, end, i, alone, head, read_len, unseen, repeat_bases, scores,
                log10_text, params.quality_alone, params.quality_of_rivals,
            )  # fmt: skip
            most = quality if head[i] >= 0 else np.float64(MAX_MAPQ)
            mapq[i - first] = np.uint8(min(own, most) + 0.5)
