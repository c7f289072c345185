"""Placement: choose primary, supplementary and secondary alignments, and assign mapping qualities.

A read's alignments compete where they overlap on the read. Its *heads* do not overlap:
the first is the primary, the others become supplementary records (a split read). Every
other alignment is secondary to the first head it overlaps. (Groups of contigs, ALT contigs above
all, add to that: :mod:`mapper.pair.contig_groups`.)

Placements are compared by *ranking scores*: alignment scores with two corrections. A clipped end is
stronger evidence against a position than a mismatch: of two copies of a repeat, the likelier is the
one in which the read reaches its end with a mismatch near it; hence the end bonuses, as in
extension. And a base of low quality is weak evidence: its mismatch speaks less against a position,
and its match less for it.

Base qualities choose between places, but never raise the mapping quality above what the scores
without them allow.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from mapper.batch import (
    IS_MAPPED,
    IS_PROPER,
    IS_RECORDED,
    IS_SURE,
    NO_QUALITY,
    AlignmentBatch,
    EncodedBatch,
    ReadBatch,
    SeedSummary,
)
from mapper.cigar import D, X
from mapper.extend.doubt import is_doubtful_pair
from mapper.extend.filter import as_given, overlap
from mapper.extend.ungapped import lowest_score
from mapper.index.reference import NO_GROUPS
from mapper.jit.accelerate import core, driver
from mapper.jit.intrinsics import popcount, trailing_zeros
from mapper.jit.lanes import ONE_LANE, lane_least, lane_mask, lane_max, lane_sum, lanes_meet
from mapper.pair.contig_groups import hide_alt, is_apart, is_hidden, set_rivals
from mapper.pair.insert_size import SCALE, InsertSizeModel
from mapper.pair.mapq import (
    FEW_SEEDS,
    MAX_MAPQ,
    PAIR_BOOST,
    PRIMARY,
    SECONDARY,
    SUPPLEMENTARY,
    TENTHS_IN_DOUBT,
    UNUSED,
    assign_mapq,
    cap_of_overlap,
    cost_of_rivals,
    unseen_score,
)
from mapper.pair.pairing import NO_PAIR, NO_ROW, name_key, place_hash, score_pairs
from mapper.params import ExtendParams, PairParams

DIFFERENCE_RATE = 0.001
"""Bases at which a sample is expected to differ from its reference."""

DOUBT_SHIFT = 4
"""What is withheld from matches adds up in 1 / 2**DOUBT_SHIFT of a match's score."""


@functools.cache
def mismatch_refunds(match: int, mismatch: int) -> np.ndarray:
    """Return how much of a mismatch's cost is refunded, for each base quality.

    A base of error rate e differs from its true position with the probability e + v, v being
    DIFFERENCE_RATE; an error produces this very base with the probability e / 3. A mismatch lowers
    the likelihood of a position by ``(1 - e) / (e / 3 + v)``, at most by ``1 / v``. It costs the
    ratio of the two logarithms, times the cost of a mismatch instead of a match; the refund is
    rounded down to whole matches. Without qualities it is 0.

    Returns
    -------
    int32, shape (256,), by Phred quality.
    """
    refunds = np.zeros(256, np.int32)
    most = math.log(1 / DIFFERENCE_RATE)
    for quality in range(NO_QUALITY):
        error = min(10 ** (-quality / 10), 0.75)
        evidence = math.log((1 - error) / (error / 3 + DIFFERENCE_RATE))
        share = min(max(evidence / most, 0.0), 1.0)
        refunds[quality] = match * math.floor((match + mismatch) / match * (1 - share))
    refunds.flags.writeable = False
    return refunds


@functools.cache
def match_discounts() -> np.ndarray:
    """Return how much of a match's score is withheld from an aligned base, for each base quality.

    A match scores the logarithm of its probability at the true position, 1, over that of a random
    base, 1 / 4. A base of error rate e matches with the probability 1 - e: so much less is a base
    worth that is aligned, whether it matches or not, than one that is clipped
    (:func:`mismatch_refunds` has the difference between a match and a mismatch). Rounded down, so
    that nothing is withheld from qualities of 11 and more. Without qualities it is 0.

    Returns
    -------
    int32, shape (256,), by Phred quality, in 1 / 2**DOUBT_SHIFT of a match's score.
    """
    discounts = np.zeros(256, np.int32)
    for quality in range(NO_QUALITY):
        error = min(10 ** (-quality / 10), 0.75)
        discounts[quality] = math.floor(-math.log(1 - error, 4) * (1 << DOUBT_SHIFT))
    discounts.flags.writeable = False
    return discounts


class BaseWeights(NamedTuple):
    """Corrections of scores by base qualities, and the scores that they are added to."""

    refunds: np.ndarray  # int32 (256,): :func:`mismatch_refunds`
    discounts: np.ndarray  # int32 (256,): :func:`match_discounts`
    match: int
    end_bonus: int


@core
def _has_discount(quals, start, end, discounts):
    """Return True if the score of any base of a read is withheld in part.

    The lower the quality, the more is withheld: the lowest decides.
    """
    lowest = np.uint8(NO_QUALITY)
    for quality in quals[start:end]:  # unlike a look-up of each, eight or more at a time
        lowest = min(lowest, quality)
    return discounts[lowest] != 0


@core
def _correction(alignments, i, quals, read_start, read_end, weights, has_discount):
    """Return the refunds for mismatches of an alignment, less what is withheld from its bases.

    ``quals[read_start:read_end]`` are the qualities in the order of the input.
    """
    refunds, discounts = np.int64(0), np.int64(0)
    step = np.int64(1)
    base = np.int64(read_start) + alignments.query_start[i]
    if alignments.strand[i]:
        step = np.int64(-1)
        base = np.int64(read_end) - 1 - alignments.query_start[i]
    if has_discount:
        for j in range(alignments.query_end[i] - alignments.query_start[i]):
            discounts += weights.discounts[quals[base + step * j]]
    for j in range(alignments.cigar_offsets[i], alignments.cigar_offsets[i + 1]):
        op = alignments.cigar_ops[j] & 15
        length = np.int64(alignments.cigar_ops[j] >> 4)
        if op == X:
            for _ in range(length):
                refunds += weights.refunds[quals[base]]
                base += step
        elif op != D:
            base += step * length
    withheld = (discounts + (1 << DOUBT_SHIFT) - 1) >> DOUBT_SHIFT  # rounded up to whole matches
    return refunds - weights.match * withheld


_NO_CORRECTION = 1 << 40  # beyond any


@core
def rank_read(base_offsets, quals, alignments, read, weights, plain, ranking, lanes):
    """Set both scores of a read's alignments; return True if corrections change a lead.

    Parameters
    ----------
    plain, ranking
        int32 (n_alignments,): scores with end bonuses; those with corrections, too.
    lanes
        Share the alignments (:mod:`mapper.jit.lanes`).
    """
    start, end = base_offsets[read], base_offsets[read + 1]
    first, behind = alignments.alignment_offsets[read], alignments.alignment_offsets[read + 1]
    # One that is alone leads by as much without corrections.
    is_compared = first + 1 < behind
    has_discount = is_compared and _has_discount(quals, start, end, weights.discounts)
    lowest, highest = np.int64(_NO_CORRECTION), np.int64(-_NO_CORRECTION)
    for i in range(first + lanes.lane, behind, lanes.n_lanes):
        plain[i] = alignments.score[i]
        if alignments.query_start[i] == 0:
            plain[i] += weights.end_bonus
        if alignments.query_end[i] == end - start:
            plain[i] += weights.end_bonus
        ranking[i] = plain[i]
        if is_compared:
            correction = np.int64(
                _correction(alignments, i, quals, start, end, weights, has_discount)
            )
            ranking[i] += correction
            lowest, highest = min(lowest, correction), max(highest, correction)
    lanes_meet(lanes)
    # Corrections that are all the same change no lead.
    return lane_max(highest, lanes) > -lane_max(-lowest, lanes)


@driver
def _ranking_scores(base_offsets, quals, alignments, weights):
    n_reads = len(base_offsets) - 1
    plain = np.empty(len(alignments.score), np.int32)
    ranking = np.empty(len(alignments.score), np.int32)
    doubted = np.zeros(n_reads, np.bool_)
    for read in range(n_reads):
        doubted[read] = rank_read(
            base_offsets, quals, alignments, read, weights, plain, ranking, ONE_LANE
        )
    return plain, ranking, doubted


class RankedAlignments(NamedTuple):
    """Alignments with the scores by which placement compares them."""

    ranked: AlignmentBatch
    """With end bonuses and, of reads that have several, corrections for base qualities."""
    plain: AlignmentBatch  # with end bonuses
    doubted: np.ndarray  # bool (n_reads,): corrections differ between the read's alignments


def base_weights(scores: ExtendParams) -> BaseWeights:
    """Return the corrections of scores by base qualities."""
    return BaseWeights(
        mismatch_refunds(scores.match, scores.mismatch), match_discounts(), scores.match,
        scores.end_bonus,
    )  # fmt: skip


def with_ranking_scores(
    reads: ReadBatch, alignments: AlignmentBatch, scores: ExtendParams
) -> RankedAlignments:
    """Return the alignments with the scores by which placement compares them."""
    weights = base_weights(scores)
    plain, ranking, doubted = _ranking_scores(reads.base_offsets, reads.quals, alignments, weights)
    return RankedAlignments(
        alignments._replace(score=ranking), alignments._replace(score=plain), doubted
    )


class PlacementBatch(NamedTuple):
    """The placement of each read, and the role and quality of each alignment."""

    primary: np.ndarray  # int64 (n_reads,): row of the AlignmentBatch, -1 if unmapped
    proper: np.ndarray  # bool (n_reads,): member of a proper pair
    role: np.ndarray  # uint8 (n_alignments,): UNUSED, PRIMARY, SUPPLEMENTARY or SECONDARY
    head: np.ndarray  # int64 (n_alignments,): the head it competes with (a head: itself)
    mapq: np.ndarray  # uint8 (n_alignments,): of heads
    sub_score: np.ndarray  # int32 (n_alignments,): of heads, best score that rivals it, or 0
    rival: np.ndarray
    """int64 (n_alignments,): the head that the alignment makes less sure, or -1; a head itself,
    or the ALT head that is better. Without groups of contigs it is the column `head`."""


@core
def _competes(alignments, a, b, read_len, share):
    """Return True if two alignments overlap, on the read, by `share` of the shorter one."""
    a_start, a_end = as_given(
        alignments.query_start[a], alignments.query_end[a], alignments.strand[a], read_len
    )
    b_start, b_end = as_given(
        alignments.query_start[b], alignments.query_end[b], alignments.strand[b], read_len
    )
    common = overlap(a_start, a_end, b_start, b_end)
    return common >= share * min(a_end - a_start, b_end - b_start)


@core
def best_alone(alignments, first, end, key, hidden, lanes):
    """Return the best-scoring alignment in first:end, ties by hash, or -1 if there is none."""
    best = np.int64(-1)
    for i in range(first + lanes.lane, end, lanes.n_lanes):
        if is_hidden(hidden, i):
            continue
        if (
            best < 0
            or alignments.score[i] > alignments.score[best]
            or (
                alignments.score[i] == alignments.score[best]
                and place_hash(alignments, i, key) < place_hash(alignments, best, key)
            )
        ):
            best = np.int64(i)
    if lanes.n_lanes > 1:
        score, tie = np.int64(NO_PAIR), ~np.uint64(0)
        if best >= 0:
            score = np.int64(alignments.score[best])
        highest = lane_max(score, lanes)
        if best >= 0 and score == highest:
            tie = place_hash(alignments, best, key)
        lowest = lane_least(tie, lanes)
        if score != highest or tie != lowest:
            best = np.int64(NO_ROW)
        best = -lane_max(-best, lanes)  # the first of them
        if best == NO_ROW:
            best = np.int64(-1)
    return best


@core
def assign_roles(alignments, first, end, primary, read_len, lowest, share, hidden, role, head,
                  sub_score, lanes):  # fmt: skip
    """Make `primary` the first head; sort the read's other alignments under heads.

    Alignments that score below `lowest` compete, but get no role: they are not reported.
    Hidden ones are left out. Lanes share the alignments that compete with `primary`, nearly all;
    the others are taken one by one.
    """
    if lanes.lane == 0:
        role[primary] = PRIMARY
        head[primary] = primary
    best, n_apart = np.int32(0), np.int64(0)
    for i in range(first + lanes.lane, end, lanes.n_lanes):
        if i == primary or is_hidden(hidden, i):
            continue
        if not _competes(alignments, primary, i, read_len, share):
            n_apart += 1
            continue
        if alignments.score[i] >= lowest:
            role[i] = SECONDARY
        head[i] = primary
        best = max(best, np.int32(alignments.score[i]))
    sub_score[primary] = lane_max(np.int64(best), lanes)
    n_apart = lane_sum(n_apart, lanes)
    lanes_meet(lanes)
    at = np.int64(first)
    while n_apart > 0 and at < end:
        own = at + lanes.lane
        is_apart = own < end and head[own] != primary and not is_hidden(hidden, own)
        apart = np.uint64(lane_mask(is_apart, lanes))
        n_apart -= np.int64(popcount(apart))
        while apart != 0:
            i = at + trailing_zeros(apart)
            apart &= apart - np.uint64(1)
            rival = np.int64(NO_ROW)
            for j in range(first + lanes.lane, i, lanes.n_lanes):
                if role[j] == SUPPLEMENTARY and _competes(alignments, j, i, read_len, share):
                    rival = np.int64(j)
                    break
            rival = -lane_max(-rival, lanes)
            reported = alignments.score[i] >= lowest
            if lanes.lane == 0 and rival < NO_ROW:
                if reported:
                    role[i] = SECONDARY
                head[i] = rival
                sub_score[rival] = max(sub_score[rival], alignments.score[i])
            elif lanes.lane == 0 and reported:
                role[i] = SUPPLEMENTARY
                head[i] = i
            lanes_meet(lanes)
        at += lanes.n_lanes


@core
def keep_to_group(alignments, first, end, primary, groups, role, head):
    """Move supplementary heads to the group of the primary, where an equal alignment lies there.

    Parts of a read lie on one haplotype rather than on two.
    """
    for i in range(first, end):
        if role[i] != SUPPLEMENTARY or not is_apart(groups, alignments, primary, i):
            continue
        for j in range(first, end):
            if (
                role[j] == SECONDARY
                and head[j] == i
                and alignments.score[j] == alignments.score[i]
                and not is_apart(groups, alignments, primary, j)
            ):
                role[i], role[j] = SECONDARY, SUPPLEMENTARY
                for other in range(first, end):
                    if head[other] == i:
                        head[other] = j
                break


@core
def assign_alt_roles(alignments, first, end, read_len, lowest, share, hidden, role, head,
                      rival, sub_score):  # fmt: skip
    """Give the hidden alignments of a read their roles, once all others have theirs.

    One that scores more than every head it competes with becomes a supplementary head; others are
    secondary to the first of these heads, in order of score. A head of the primary assembly that
    scores less than an ALT head becomes its rival, and stays its own head.

    Parameters
    ----------
    share
        As for :func:`_competes`.
    rival
        As of :func:`set_rivals`, of the others. ALT heads get -1.
    """
    for i in range(first, end):
        if not hidden[i]:
            continue
        better = np.int64(-1)
        for j in range(first, end):
            is_head = role[j] == PRIMARY or role[j] == SUPPLEMENTARY
            if (
                is_head
                and alignments.score[j] >= alignments.score[i]
                and _competes(alignments, j, i, read_len, share)
            ):
                better = np.int64(j)
                break
        reported = alignments.score[i] >= lowest
        head[i] = better
        rival[i] = -1
        if better >= 0:
            if reported:
                role[i] = SECONDARY
            if hidden[better]:
                rival[i] = better
                sub_score[better] = max(sub_score[better], alignments.score[i])
        elif reported:
            role[i] = SUPPLEMENTARY
            head[i] = i
            for j in range(first, end):
                if rival[j] == j and _competes(alignments, j, i, read_len, share):
                    sub_score[i] = max(sub_score[i], alignments.score[j])
                    rival[j] = i


@core
def _set_unpaired_values(alignments, first, end, partner, unpaired_penalty, values, lanes):
    """Set the value of each alignment in first:end with the mate's best, as an improper pair.

    In 1 / SCALE score units. Without an alignment of the mate (`partner` -1), without penalty.
    """
    other = np.int64(0)
    if partner >= 0:
        other = np.int64(alignments.score[partner]) - unpaired_penalty
    for i in range(first + lanes.lane, end, lanes.n_lanes):
        values[i - first] = SCALE * (np.int64(alignments.score[i]) + other)
    lanes_meet(lanes)


@core
def clear_roles(first, end, role, head, mapq, sub_score, lanes):
    """Reset the columns of alignments first:end to no role."""
    for i in range(first + lanes.lane, end, lanes.n_lanes):
        role[i] = UNUSED
        head[i] = -1
        mapq[i] = 0
        sub_score[i] = 0
    lanes_meet(lanes)


@core
def _pair_values(base_offsets, scored, first_read, best, model, penalty, key, hidden, ends,
                 values, lanes):  # fmt: skip
    """Set the values of both mates' alignments; return the best proper pair as `score_pairs`.

    `best` are the mates' best alignments by themselves, or -1; `ends` is a workspace.
    """
    offsets = scored.alignment_offsets
    for mate in range(2):
        _set_unpaired_values(
            scored, offsets[first_read + mate], offsets[first_read + mate + 1], best[1 - mate],
            penalty, values[mate], lanes,
        )  # fmt: skip
    if best[0] < 0 or best[1] < 0:
        return np.int64(NO_PAIR), np.int64(-1), np.int64(-1)
    return score_pairs(base_offsets, scored, first_read, model, key, hidden, ends, values, lanes)


@core
def _set_alone(scored, first, end, alone, lanes):
    """Set the value of each alignment in first:end by itself, in 1 / SCALE score units."""
    for i in range(first + lanes.lane, end, lanes.n_lanes):
        alone[i - first] = SCALE * np.int64(scored.score[i])
    lanes_meet(lanes)


@core
def _limit_mapq(alignments, first, end, sub_score, plain_mapq, mapq, lanes):
    """Lower the qualities of a read's heads to what its scores allow.

    `plain_mapq` are those of the scores without corrections for base qualities. A read whose best
    alternative scores more than its own alignment owes its place to its mate or to base qualities.
    """
    for i in range(first + lanes.lane, end, lanes.n_lanes):
        most = min(np.int64(mapq[i]), np.int64(plain_mapq[i - first]))
        if sub_score[i] > alignments.score[i]:
            most = min(most, np.int64(PAIR_BOOST))
        mapq[i] = np.uint8(most)
    lanes_meet(lanes)


class PlacingSpace(NamedTuple):
    """Workspace of :func:`place_template`, with room for all alignments of either mate."""

    values: np.ndarray  # int64 (2, room): of each mate's alignments as a pair
    plain_values: np.ndarray  # the same without corrections
    alone: np.ndarray  # int64 (room,): by itself
    plain_mapq: np.ndarray  # uint8 (room,)


class PlacingParams(NamedTuple):
    """Model, parameters and tables by which the reads of a run are placed."""

    model: InsertSizeModel
    """Used for pairs."""
    pair: PairParams
    scores: ExtendParams
    log10_text: float
    """Of twice the length of the indexed text."""
    rivals_cost: np.ndarray
    """float64: see :func:`mapper.pair.mapq.cost_of_rivals`."""
    groups: np.ndarray
    """int32: of the contigs (:class:`mapper.index.reference.Contigs`); empty if all compete."""


@core
def place_template(names, name_offsets, base_offsets, seeds, alignments, rankings, read, paired,
                   settings, hidden, space, placements, lanes):  # fmt: skip
    """Place a pair, whose first mate is `read`, or a single read: fill its rows of `placements`.

    Parameters
    ----------
    rankings
        :class:`RankedAlignments`.
    settings
        :class:`PlacingParams`.
    hidden
        Workspace: bool (n_alignments,), or empty without groups of contigs.
    lanes
        Share the alignments.
    """
    ranked, plain, doubted = rankings
    model, params, scores, log10_text, rivals_cost, groups = settings
    values, plain_values, alone, plain_mapq = space
    primary, proper, role, head, mapq, sub_score, rival = placements
    offsets = alignments.alignment_offsets
    step = 2 if paired else 1
    penalty = params.unpaired_penalty
    key = np.uint64(0)  # breaks ties, which need two alignments of a read
    if offsets[read + 1] - offsets[read] > 1 or offsets[read + step] - offsets[read + 1] > 1:
        key = name_key(names, name_offsets[read], name_offsets[read + 1])
    clear_roles(offsets[read], offsets[read + step], role, head, mapq, sub_score, lanes)
    is_doubted = False
    for mate in range(step):
        proper[read + mate] = False
        is_doubted |= doubted[read + mate]
        if len(groups):
            first, end = offsets[read + mate], offsets[read + mate + 1]
            read_len = base_offsets[read + mate + 1] - base_offsets[read + mate]
            if lanes.lane == 0:
                lowest = lowest_score(read_len, scores)
                hide_alt(alignments, first, end, lowest, groups, hidden)
            lanes_meet(lanes)
    # With corrections, then without; one text, as kernels with two wait for their code.
    for turn in range(2 if paired and is_doubted else 1):
        scored, pair_values = ranked, values
        if turn == 1:
            scored, pair_values = plain, plain_values
        best = np.int64(-1), np.int64(-1)
        for mate in range(step):
            first, end = offsets[read + mate], offsets[read + mate + 1]
            this = best_alone(scored, first, end, key + np.uint64(mate), hidden, lanes)
            best = best[1], this
            if turn == 0:
                primary[read + mate] = this
        if paired:
            score, pair_a, pair_b = _pair_values(
                base_offsets, scored, read, best, model, penalty, key, hidden, alone, pair_values,
                lanes,
            )  # fmt: skip
            if turn == 0 and score != NO_PAIR:
                apart = np.int64(scored.score[best[0]]) + np.int64(scored.score[best[1]])
                if score >= SCALE * (apart - penalty):
                    primary[read], primary[read + 1] = pair_a, pair_b
                    proper[read] = proper[read + 1] = True
    for mate in range(step):
        chosen = primary[read + mate]
        lanes_meet(lanes)  # all have it before it is replaced
        if chosen < 0:
            continue
        read_len = base_offsets[read + mate + 1] - base_offsets[read + mate]
        lowest = lowest_score(read_len, scores)
        if alignments.score[chosen] < lowest and not proper[read + mate]:
            primary[read + mate] = -1
            continue
        first, end = offsets[read + mate], offsets[read + mate + 1]
        assign_roles(
            alignments, first, end, chosen, read_len, lowest, params.secondary_overlap, hidden,
            role, head, sub_score, lanes,
        )  # fmt: skip
        if len(groups):
            if lanes.lane == 0:
                keep_to_group(alignments, first, end, chosen, groups, role, head)
                set_rivals(alignments, first, end, groups, head, rival, sub_score)
                assign_alt_roles(
                    alignments, first, end, read_len, lowest, params.secondary_overlap, hidden,
                    role, head, rival, sub_score,
                )  # fmt: skip
            lanes_meet(lanes)
        unseen = unseen_score(read_len, scores.match)
        paired_unseen = unseen
        if proper[read + mate]:
            # A missed position either breaks the pair or implies a missed one of the mate.
            other = read + 1 - mate
            other_len = base_offsets[other + 1] - base_offsets[other]
            mate_lead = np.int64(alignments.score[primary[other]]) - unseen_score(
                other_len, scores.match
            )
            paired_unseen -= min(np.int64(penalty), max(mate_lead, np.int64(0)))
        few_seeds = seeds.thinned[read + mate] and seeds.guarantee[read + mate] <= FEW_SEEDS
        for i in range(lanes.lane, end - first, lanes.n_lanes):
            plain_mapq[i] = MAX_MAPQ
        for turn in range(2 if is_doubted else 1):
            scored, own_values, qualities = ranked, values[mate], mapq[first:end]
            if turn == 1:
                scored, own_values, qualities = plain, plain_values[mate], plain_mapq
            lanes_meet(lanes)  # all have read what is replaced now
            _set_alone(scored, first, end, alone, lanes)
            if not paired:
                _set_alone(scored, first, end, own_values, lanes)
            assign_mapq(
                alignments, first, end, chosen, own_values, alone, rival, role, read_len, unseen,
                paired_unseen, few_seeds, scores, params, log10_text, rivals_cost,
                proper[read + mate], qualities, lanes,
            )  # fmt: skip
        lanes_meet(lanes)
        _limit_mapq(alignments, first, end, sub_score, plain_mapq, mapq, lanes)
    if paired and proper[read]:
        a, b = primary[read], primary[read + 1]
        most = cap_of_overlap(alignments, a, b, sub_score, scores.match, params.quality_in_pair)
        if lanes.lane == 0:
            mapq[a] = np.uint8(min(np.int64(mapq[a]), most))
            mapq[b] = np.uint8(min(np.int64(mapq[b]), most))
        lanes_meet(lanes)
    if (
        paired
        and proper[read]
        and not len(groups)  # places in other groups, as on ALT contigs, are no rivals
        and is_doubtful_pair(base_offsets, alignments, seeds.guarantee, seeds.thinned, read, scores)
    ):
        for i in range(offsets[read] + lanes.lane, offsets[read + 2], lanes.n_lanes):
            mapq[i] = np.uint8(np.int64(mapq[i]) * TENTHS_IN_DOUBT // 10)


@driver
def _place(names, name_offsets, base_offsets, seeds, alignments, rankings, paired, settings,
           placements):  # fmt: skip
    offsets = alignments.alignment_offsets
    n_reads = len(offsets) - 1
    most = np.int64(1)
    for read in range(n_reads):
        most = max(most, offsets[read + 1] - offsets[read])
    space = PlacingSpace(
        np.zeros((2, most), np.int64), np.zeros((2, most), np.int64), np.zeros(most, np.int64),
        np.zeros(most, np.uint8),
    )  # fmt: skip
    hidden = np.zeros(len(placements.head) if len(settings.groups) else 0, np.bool_)
    for read in range(0, n_reads, 2 if paired else 1):
        place_template(
            names, name_offsets, base_offsets, seeds, alignments, rankings, read, paired, settings,
            hidden, space, placements, ONE_LANE,
        )  # fmt: skip


def placing_params(
    model: InsertSizeModel, params: PairParams, scores: ExtendParams, text_len: int,
    groups: np.ndarray,
) -> PlacingParams:  # fmt: skip
    """Return the settings of placement, from arguments of :func:`place_reads`."""
    return PlacingParams(
        model, params, scores, math.log10(2 * text_len), cost_of_rivals(params.quality_of_rivals),
        groups,
    )  # fmt: skip


def new_placements(n_reads: int, n_alignments: int, groups: np.ndarray) -> PlacementBatch:
    """Allocate placements, to be filled; ``rival`` is ``head`` unless there are `groups`."""
    head = np.empty(n_alignments, np.int64)
    return PlacementBatch(
        primary=np.empty(n_reads, np.int64),
        proper=np.empty(n_reads, np.bool_),
        role=np.empty(n_alignments, np.uint8),
        head=head,
        mapq=np.empty(n_alignments, np.uint8),
        sub_score=np.empty(n_alignments, np.int32),
        rival=np.full(n_alignments, -1, np.int64) if len(groups) else head,
    )


def place_reads(
    reads: ReadBatch,
    seeds: SeedSummary,
    alignments: AlignmentBatch,
    model: InsertSizeModel,
    params: PairParams,
    scores: ExtendParams,
    text_len: int,
    groups: np.ndarray = NO_GROUPS,
) -> PlacementBatch:
    """Choose the placement of each read and assign its mapping quality.

    Parameters
    ----------
    model
        Insert-size model; used if ``reads.paired``.
    text_len
        Length of the indexed text, for what chance alone would match.
    groups
        Of the contigs (:class:`mapper.index.reference.Contigs`); int32, empty if all compete.
    """
    placements = new_placements(reads.n_reads, len(alignments.strand), groups)
    settings = placing_params(model, params, scores, text_len, groups)
    _place(
        reads.names, reads.name_offsets, reads.base_offsets, seeds, alignments,
        with_ranking_scores(reads, alignments, scores), reads.paired, settings, placements,
    )  # fmt: skip
    return placements


SURE_MAPQ = 30
"""Quality from which a placement counts as sure in the statistics."""


class Tally(NamedTuple):
    """Counts of a batch of reads."""

    mapped: int
    proper: int
    sure: int
    """Primary alignments of quality SURE_MAPQ and more."""


@driver
def _tally(placements):
    mapped = proper = sure = 0
    for read in range(len(placements.primary)):
        primary = placements.primary[read]
        proper += placements.proper[read]
        if primary >= 0:
            mapped += 1
            sure += placements.mapq[primary] >= SURE_MAPQ
    return mapped, proper, sure


def tally(placements: PlacementBatch) -> Tally:
    """Count the reads of a batch that are placed, in proper pairs, and surely placed."""
    return Tally._make(_tally(placements))


@driver
def _count_set(state, bit):
    n = 0
    for bits in state:
        n += (bits & bit) != 0
    return n


def n_recorded(encoded: EncodedBatch) -> int:
    """Return the number of reads that have one primary record."""
    return int(_count_set(encoded.state, IS_RECORDED))


@driver
def _tally_states(state):
    mapped = proper = sure = 0
    for bits in state:
        mapped += (bits & IS_MAPPED) != 0
        proper += (bits & IS_PROPER) != 0
        sure += (bits & IS_SURE) != 0
    return mapped, proper, sure


def tally_encoded(encoded: EncodedBatch) -> Tally:
    """Count the reads of a batch that a device has placed, as :func:`tally`."""
    return Tally._make(int(n) for n in _tally_states(encoded.state))
