"""Core: find the best pair among the alignments of two mates.

A pair of alignments is *proper* if they lie on one contig, on opposite strands, at an
insert size that the model allows. Its score is the sum of both minus the insert size's
cost, in 1 / SCALE score units. Ties are broken by a hash of the read's name and of the
positions, never by the order in which alignments were found: multi-mapping reads are spread over
their positions, the same way in every run.
"""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.hashing import splitmix64
from mapper.jit.lanes import lane_least, lane_max, lanes_meet, raise_to
from mapper.jit.sorting import sort_descending
from mapper.pair.contig_groups import is_hidden
from mapper.pair.insert_size import SCALE, five_prime, insert_size

NO_PAIR = -(2**40)
"""Score of a pair that does not exist."""

NO_ROW = 2**62
"""A row behind all alignments."""


@core
def name_key(names, start, end):
    """Hash a read's name (64-bit FNV-1a)."""
    key = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        key = (key ^ np.uint64(names[i])) * np.uint64(0x100000001B3)
    return key


@core
def place_hash(alignments, i, key):
    """Tie-breaker of an alignment; lower wins. Does not depend on the order found."""
    return splitmix64(alignments.text_start[i] * 2 + np.int64(alignments.strand[i]), key)


@core
def pair_score(alignments, a, a_len, b, b_len, model):
    """Score of two mates' alignments as a proper pair, or NO_PAIR."""
    if alignments.ref_id[a] != alignments.ref_id[b]:
        return np.int64(NO_PAIR)
    if alignments.strand[a] == alignments.strand[b]:
        return np.int64(NO_PAIR)
    insert = insert_size(alignments, a, a_len, b, b_len)
    if insert < model.low or insert > model.high:
        return np.int64(NO_PAIR)
    total = np.int64(alignments.score[a]) + np.int64(alignments.score[b])
    return SCALE * total - np.int64(model.penalty[insert - model.low])


@core
def signed_end(alignments, i, read_len):
    """5' end, negative on the forward strand: of opposite strands the sum is the insert size."""
    end = five_prime(alignments, i, read_len)
    return end if alignments.strand[i] else -end


FEW_PAIRS = 1024
"""So few pairs of alignments of both mates are looked at each."""

_ROW_BITS = 22  # beside them, in an int64, a place in 2**40 bases
_ROW = (1 << _ROW_BITS) - 1
_HIDDEN_END = 1 << 40
"""Of an alignment that makes no pair: farther from every other than any insert size."""


@core
def _place_ends(base_offsets, alignments, read, hidden, ends, lanes):
    """Set `ends` to the 5' end of each of a read's alignments, and which it is, in one number."""
    first, end = alignments.alignment_offsets[read], alignments.alignment_offsets[read + 1]
    read_len = base_offsets[read + 1] - base_offsets[read]
    for i in range(lanes.lane, end - first, lanes.n_lanes):
        at = np.int64(_HIDDEN_END)
        if not is_hidden(hidden, first + i):
            at = np.int64(signed_end(alignments, first + i, read_len))
        ends[i] = at << _ROW_BITS | i
    lanes_meet(lanes)


@core
def _first_below(ends, n, bound):
    """Return the first of `n` ends, the highest first, that is below a bound; `n` without any."""
    low, high = np.int64(0), np.int64(n)
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] < bound:
            high = middle
        else:
            low = middle + 1
    return low


@core
def _mates(base_offsets, alignments, first_read):
    """Return the first rows of two mates, the rows of the second, and the length of each mate."""
    offsets = alignments.alignment_offsets
    first, second = offsets[first_read], offsets[first_read + 1]
    return (
        first, second, offsets[first_read + 2] - second,
        base_offsets[first_read + 1] - base_offsets[first_read],
        base_offsets[first_read + 2] - base_offsets[first_read + 1],
    )  # fmt: skip


@core
def _ends_of_mates(alignments, a, a_len, model):
    """Bound the ends, as of :func:`_place_ends`, with which an alignment makes a proper pair.

    Returns
    -------
    The lowest, and what is behind the highest.
    """
    lowest = (model.low - signed_end(alignments, a, a_len)) << _ROW_BITS
    return lowest, lowest + ((model.high - model.low + 1) << _ROW_BITS)


@core
def best_pair_score(base_offsets, alignments, first_read, model, ends, lanes):
    """Score of the best proper pair of the mates `first_read` and the next, or NO_PAIR.

    Parameters
    ----------
    ends
        Workspace: int64, one item or more for each alignment of the second mate.
    lanes
        Share the first mate's alignments (:mod:`mapper.jit.lanes`).
    """
    a_first, b_first, n_second, a_len, b_len = _mates(base_offsets, alignments, first_read)
    best = np.int64(NO_PAIR)
    is_many = (b_first - a_first) * n_second > FEW_PAIRS
    if is_many:
        none_hidden = alignments.strand[:0]
        _place_ends(base_offsets, alignments, first_read + 1, none_hidden, ends, lanes)
        sort_descending(ends, n_second, lanes, None)
    for a in range(a_first + lanes.lane, b_first, lanes.n_lanes):
        item, lowest = np.int64(0), np.int64(0)
        if is_many:
            lowest, highest = _ends_of_mates(alignments, a, a_len, model)
            item = _first_below(ends, n_second, highest)
        while item < n_second:
            b = b_first + item
            if is_many:
                if ends[item] < lowest:
                    break
                b = b_first + (ends[item] & _ROW)
            # Alignments come best first, and an insert size only costs.
            elif SCALE * (np.int64(alignments.score[a]) + alignments.score[b]) <= best:
                break
            best = max(best, pair_score(alignments, a, a_len, b, b_len, model))
            item += 1
    best = lane_max(best, lanes)
    lanes_meet(lanes)  # before the ends are replaced
    return best


@core
def score_pairs(base_offsets, alignments, first_read, model, key, hidden, ends, values,
                lanes):  # fmt: skip
    """Score all proper pairs of the mates `first_read` and the next; return the best.

    Parameters
    ----------
    hidden
        As of :func:`mapper.pair.contig_groups.hide_alt`: these alignments make no pair.
    ends
        Workspace: int64, one item or more for each alignment of the second mate.
    values
        int64; ``values[0]`` has an item for each alignment of the first mate, ``values[1]`` of
        the second. Raised to the best score of the proper pairs that hold the alignment.
    lanes
        Share the first mate's alignments where there are many, else the second's.

    Returns
    -------
    score, a, b
        ``score`` is NO_PAIR if there is none; a and b are rows of the AlignmentBatch.
    """
    a_first, b_first, n_second, a_len, b_len = _mates(base_offsets, alignments, first_read)
    best = np.int64(NO_PAIR)
    best_a = best_b = np.int64(-1)
    best_hash = np.uint64(0)
    _place_ends(base_offsets, alignments, first_read + 1, hidden, ends, lanes)
    is_many = (b_first - a_first) * n_second > FEW_PAIRS
    if is_many:
        sort_descending(ends, n_second, lanes, None)
    first_lane, n_lanes = (lanes.lane, lanes.n_lanes) if is_many else (0, 1)
    first_item, n_items = (0, 1) if is_many else (lanes.lane, lanes.n_lanes)
    for a in range(a_first + first_lane, b_first, n_lanes):
        if is_hidden(hidden, a):
            continue
        lowest, highest = _ends_of_mates(alignments, a, a_len, model)
        best_of_a = values[0, a - a_first]
        item = np.int64(first_item)
        if is_many:
            item = _first_below(ends, n_second, highest)
        while item < n_second:
            end = ends[item]
            item += n_items
            # Rules out nearly all improper pairs.
            if end < lowest or end >= highest:
                if is_many:
                    break
                continue
            i = end & _ROW
            b = b_first + i
            score = pair_score(alignments, a, a_len, b, b_len, model)
            if score == NO_PAIR:
                continue
            best_of_a = max(best_of_a, score)
            raise_to(values[1], i, score, lanes)
            if score < best:
                continue
            tie = place_hash(alignments, a, key) ^ (place_hash(alignments, b, key) >> np.uint64(1))
            if score > best or tie < best_hash or (tie == best_hash and a == best_a and b < best_b):
                best, best_a, best_b, best_hash = score, np.int64(a), np.int64(b), tie
        values[0, a - a_first] = best_of_a if is_many else lane_max(best_of_a, lanes)
    lanes_meet(lanes)
    if lanes.n_lanes > 1:
        highest = lane_max(best, lanes)
        if highest == NO_PAIR:
            return best, best_a, best_b
        if best != highest:
            best_hash = ~np.uint64(0)
        lowest_hash = lane_least(best_hash, lanes)
        # Of pairs with one hash, the first.
        if best != highest or best_hash != lowest_hash:
            best_a = np.int64(NO_ROW)
        first_a = -lane_max(-best_a, lanes)
        if best_a != first_a:
            best_b = np.int64(NO_ROW)
        best, best_a, best_b = highest, first_a, -lane_max(-best_b, lanes)
    return best, best_a, best_b
