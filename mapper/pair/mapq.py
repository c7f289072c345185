"""Core: mapping quality, from the lead of a placement over its best alternative.

A mapping is wrong when differences between the read and its true position happen to favour
another one. Each mismatch needed for that makes it about ten times less likely on simulated reads
(``docs/accuracy.md``). So the quality grows in proportion to the lead, counted in matches, and
shrinks with the number of alternatives and with the differences of the placement itself, for the
read alone and for the pair. A read that speaks for itself is less sure where its alignments explain
little of it. Only places that were found count: where seeds may have missed one that matters, the
read has been seeded again (``extend/doubt.py``); a pair that is in doubt even then is less sure.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.intrinsics import rounded_product, trailing_zeros
from mapper.jit.lanes import lane_mask, lane_max, lane_sum
from mapper.pair.insert_size import SCALE

MAX_MAPQ = 60
PAIR_BOOST = 40
"""Most that a pair can add to the quality from a mate's own alignments."""


MOST_RIVALS = 4096
"""More alternatives about as good as the best of them count as so many."""


@functools.cache
def cost_of_rivals(per_tenfold: float) -> np.ndarray:
    """Return by how much alternatives lower the quality, for each number of them.

    A table, because a device's logarithm may differ from the host's in the last bit.

    Parameters
    ----------
    per_tenfold
        ``PairParams.quality_of_rivals``.

    Returns
    -------
    float64, shape (MOST_RIVALS + 1,).
    """
    costs = np.array([per_tenfold * math.log10(max(n, 1)) for n in range(MOST_RIVALS + 1)])
    costs.flags.writeable = False
    return costs


_LEAST_DB, _MOST_DB = -10, 20
"""Odds, in decibels, below which the quality is 0 and from which on it is as high as they are, to
the nearest unit."""

_STEPS = 8  # of a decibel


def _quality(decibels: float) -> float:
    """Return the quality of a placement ``10**(decibels / 10)`` times as likely as all others."""
    return 10.0 * math.log10(1.0 + 10.0 ** (decibels / 10.0))


_QUALITIES = np.array(
    [_quality(_LEAST_DB + (step + 0.5) / _STEPS) for step in range((_MOST_DB - _LEAST_DB) * _STEPS)]
)
"""By steps of the odds: a table for the reason of :func:`cost_of_rivals`."""


@core
def quality_of_odds(decibels):
    """Return the quality of a placement from its odds against all others.

    A hundred rivals that are a hundred times less likely each leave even odds, 0 decibels, of which
    half are right: a quality of 3.
    """
    if decibels >= _MOST_DB:
        return min(decibels, np.float64(MAX_MAPQ))
    step = np.int64((max(decibels, np.float64(_LEAST_DB)) - _LEAST_DB) * _STEPS)
    return _QUALITIES[step]


@core
def lead_quality(lead, per_score, n_alternatives, rivals_cost, identity):
    """Return the quality of a placement whose score leads the best alternative by `lead` matches.

    Parameters
    ----------
    per_score
        ``PairParams.quality_in_pair`` or ``quality_alone``.
    n_alternatives, rivals_cost
        How many alternatives as good as the best of them weigh as much as all;
        :func:`cost_of_rivals`.
    identity
        Share of the aligned bases that match.
    """
    if lead <= 0:
        return 0.0
    quality = rounded_product(per_score * lead * identity, identity)
    return quality_of_odds(quality - rivals_cost[min(n_alternatives, MOST_RIVALS)])


@core
def chance_cap(score, log10_text):
    """Return the highest quality of an alignment of this score, which chance may reach.

    The expected number of positions in the text (both strands) that match `score` bases by
    chance is ``2 n / 4**score``; `log10_text` is ``log10(2 n)``.
    """
    return max(0.0, 10.0 * (rounded_product(score, 0.6020599913279624) - log10_text))


UNUSED, PRIMARY, SUPPLEMENTARY, SECONDARY = range(4)

UNSEEN_SCORE = 19
"""Score, in matches, of an alternative that is always assumed (half the read's length for shorter
reads): no lead exceeds the placement's score minus this."""

FEW_SEEDS, FEW_SEEDS_QUALITY = 1, 30
"""A read in a repeat of which so few disjoint seeds could be located has at most this quality by
itself (``docs/accuracy.md``)."""


EXPLAINED = 0.55
"""A read by itself is less sure in proportion if its alignments reach less than this share of the
score of a perfect one: so divergent a read may have a place as good that no seed shows, or be of
none (``benchmarks/results/accuracy.md``)."""

TENTHS_IN_DOUBT = 8
"""Mapping qualities of a pair that is in doubt after its third look (``extend/doubt.py``) are
multiplied by this many tenths: a place that was not located may be better."""

_UNIT = 256
_WEIGHTS = np.array([256, 205, 154, 102, 51, 21, 9, 4, 2, 1, 0])
"""Weights of alternatives, in 1 / _UNIT, by how many matches they are behind the best of them. One
that is less than a mismatch behind differs by a clip in place of a mismatch near an end, and is
about as likely; from there on weights fall as ``PairParams.quality_alone`` says. Nowhere do they
fall faster, so that a better rival makes no placement surer."""


@core
def unseen_score(read_len, match):
    """Return the score of the alternative that is always assumed."""
    return match * min(np.int64(UNSEEN_SCORE), np.int64(read_len) // 2)


@core
def _head_quality(alignments, first, end, chosen, values, head, unseen, scores, log10_text,
                  per_score, rivals_cost, lanes):  # fmt: skip
    """Return the quality of a head from `values` (1 / SCALE score units) of the read's alignments.

    `unseen` is the score of the alternative that is always assumed.
    """
    score = np.int64(alignments.score[chosen])
    second = values[chosen - first] - SCALE * max(score - unseen, np.int64(0))
    for i in range(first + lanes.lane, end, lanes.n_lanes):
        if i != chosen and head[i] == chosen:
            second = max(second, values[i - first])
    second = lane_max(second, lanes)
    weight, one_match = np.int64(0), SCALE * scores.match
    for i in range(first + lanes.lane, end, lanes.n_lanes):
        if i != chosen and head[i] == chosen:
            # Not by a division, for which a device would call a function.
            behind, matches = second - values[i - first], 0
            while matches < len(_WEIGHTS) - 1 and behind >= one_match:
                behind -= one_match
                matches += 1
            weight += _WEIGHTS[matches]
    weight = lane_sum(weight, lanes)
    aligned = alignments.query_end[chosen] - alignments.query_start[chosen]
    identity = max(0.0, 1.0 - alignments.edit_distance[chosen] / aligned)
    quality = lead_quality(
        (values[chosen - first] - second) / one_match, per_score,
        (weight + _UNIT // 2) // _UNIT, rivals_cost, identity,
    )  # fmt: skip
    return min(quality, chance_cap(score / scores.match, log10_text))


@core
def _score_of_parts(alignments, first, end, head, role, lanes):
    """Return the score of a read's parts together, without places on ALT contigs."""
    score = np.int64(0)
    for i in range(first + lanes.lane, end, lanes.n_lanes):
        if role[i] == PRIMARY or (role[i] == SUPPLEMENTARY and head[i] >= 0):
            score += np.int64(alignments.score[i])
    return lane_sum(score, lanes)


@core
def _explained(score, read_len, match):
    """Return by what the quality of a read by itself is multiplied (EXPLAINED)."""
    return min(1.0, score / (EXPLAINED * np.float64(match * read_len)))


@core
def assign_mapq(alignments, first, end, primary, values, alone, head, role, read_len, unseen,
                paired_unseen, few_seeds, scores, params, log10_text, rivals_cost, proper, mapq,
                lanes):  # fmt: skip
    """Set the quality of each head of a read, in `mapq`, of its alignments first:end.

    `values` are scores with the mate, `alone` the read's own scores. An alternative that seeding
    missed does not lie near the mate, where rescue has searched: it breaks the pair, or the mate
    has an alternative near it that seeding missed too. Hence `paired_unseen` is below `unseen`.
    A pair adds PAIR_BOOST at most to a mate's own quality; supplementary heads have only their
    own, up to that of the primary. `few_seeds`: the read's own quality is FEW_SEEDS_QUALITY at
    most. `head` is the column ``PlacementBatch.rival``, -1 for a head on an ALT contig: that is
    another place for the read rather than a part of it, and may be surer. `lanes` share the
    alternatives.
    """
    most = np.float64(FEW_SEEDS_QUALITY if few_seeds else MAX_MAPQ)
    # By itself, then with its mate; one text, as kernels with two wait for their code.
    own = paired = 0.0
    for turn in range(2):
        given, assumed, per_score = alone, unseen, params.quality_alone
        if turn == 1:
            given, assumed = values, paired_unseen
            if proper:
                per_score = params.quality_in_pair
        own = paired  # of the turn before
        paired = _head_quality(
            alignments, first, end, primary, given, head, assumed, scores, log10_text, per_score,
            rivals_cost, lanes,
        )  # fmt: skip
    explained = _explained(
        _score_of_parts(alignments, first, end, head, role, lanes), read_len, scores.match
    )
    if not proper:
        paired = min(rounded_product(paired, explained), most)
    own = rounded_product(own, explained)
    quality = min(paired, min(own, most) + PAIR_BOOST)
    mapq[primary - first] = np.uint8(quality + 0.5)
    for at in range(first, end, lanes.n_lanes):
        is_part = at + lanes.lane < end and role[min(at + lanes.lane, end - 1)] == SUPPLEMENTARY
        parts = np.uint64(lane_mask(is_part, lanes))
        while parts != 0:
            i = at + trailing_zeros(parts)
            parts &= parts - np.uint64(1)
            own = _head_quality(
                alignments, first, end, i, alone, head, unseen, scores, log10_text,
                params.quality_alone, rivals_cost, lanes,
            )  # fmt: skip
            of_parts, share = quality, explained
            if head[i] < 0:
                of_parts = np.float64(MAX_MAPQ)
                share = _explained(np.int64(alignments.score[i]), read_len, scores.match)
            own = rounded_product(own, share)
            mapq[i - first] = np.uint8(min(min(own, most), of_parts) + 0.5)


@core
def cap_of_overlap(alignments, a, b, sub_score, match, per_score):
    """Return the highest quality of a proper pair whose mates may show one difference twice.

    A variant of the sample that makes it more like another place is one event, and not twice as
    unlikely where both mates lie on it. Of what both mates lead by, so much counts once as they
    overlap.

    Parameters
    ----------
    a, b
        The mates' alignments.
    sub_score
        Score of each one's best alternative; 0 without one.
    per_score
        ``PairParams.quality_in_pair``.
    """
    overlap = min(alignments.text_end[a], alignments.text_end[b]) - max(
        alignments.text_start[a], alignments.text_start[b]
    )
    lead_a = np.int64(alignments.score[a]) - sub_score[a]
    lead_b = np.int64(alignments.score[b]) - sub_score[b]
    both = min(lead_a, lead_b)
    if overlap <= 0 or both <= 0 or min(sub_score[a], sub_score[b]) <= 0:
        return np.int64(MAX_MAPQ)
    span = min(
        alignments.text_end[a] - alignments.text_start[a],
        alignments.text_end[b] - alignments.text_start[b],
    )
    # Of 32 bits: for a division of 64 a device calls a function.
    shared = np.int64(np.uint32(both * overlap) // np.uint32(span))
    quality = rounded_product(per_score, (lead_a + lead_b - shared) / match)
    return np.int64(min(quality, np.float64(MAX_MAPQ)))
