"""Core: order and filter the alignments of a read: drop duplicates, and those that cannot matter.

A read from a repeat comes with dozens of alignments, most of them remains of old copies that
score far below its best. Those that compete with it for the same bases change no record, and
they are dropped before they cost anything more, on a device before their CIGARs are
written, gathered and copied. What can be said of an alignment that :func:`keep_counting` drops:

- It is not placed: neither alone nor in a pair may a placement lose so much
  (``KeepParams.placed``), nor is a mate looked for near it.
- It is not reported: whatever is placed instead, it competes with that, so that it is no
  supplementary alignment, and scores too low for XA. Where all secondary alignments are
  wanted, none is dropped.
- It is not the best alternative: two stay that are better and compete with what is placed.
- As one of many alternatives it has no say where the lead of the placement is
  ``KeepParams.margin``. (Heuristic: far behind, the quality counts the best alternative only,
  not how many there are. Beyond such a lead the quality is high in any case.)
"""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.intrinsics import popcount
from mapper.jit.lanes import lane_mask, lanes_meet
from mapper.params import SHARES

REDUNDANT_OVERLAP = 0.9
"""Two alignments that share more than this part of the shorter one's read and reference
bases are one alignment found twice; the lower-scoring is dropped."""


@core
def overlap(a_start, a_end, b_start, b_end):
    """Bases that two half-open ranges share."""
    return max(np.int64(0), min(a_end, b_end) - max(a_start, b_start))


@core
def as_given(start, end, strand, read_len):
    """Return start:end of the oriented read (``query_*``) in bases of the read as given."""
    if strand == 0:
        return np.int64(start), np.int64(end)
    return np.int64(read_len) - end, np.int64(read_len) - start


@core
def is_redundant(found, a, others, b):
    """Return True if row a of `found` and row b of `others` are one alignment found twice.

    Both have the columns of an AlignmentBatch that say where an alignment lies.
    """
    # Most pairs lie apart: what tells that first.
    if found.text_start[a] >= others.text_end[b] or others.text_start[b] >= found.text_end[a]:
        return False
    if found.strand[a] != others.strand[b] or found.ref_id[a] != others.ref_id[b]:
        return False
    query = overlap(
        found.query_start[a], found.query_end[a], others.query_start[b], others.query_end[b]
    )
    text = overlap(found.text_start[a], found.text_end[a], others.text_start[b], others.text_end[b])
    return query > REDUNDANT_OVERLAP * min(
        found.query_end[a] - found.query_start[a], others.query_end[b] - others.query_start[b]
    ) and text > REDUNDANT_OVERLAP * min(
        found.text_end[a] - found.text_start[a], others.text_end[b] - others.text_start[b]
    )


@core
def comes_before(found, a, others, b):
    """Order of a read's alignments, row a of `found` and b of `others`: score, strand, place."""
    if found.score[a] != others.score[b]:
        return found.score[a] > others.score[b]
    if found.strand[a] != others.strand[b]:
        return found.strand[a] < others.strand[b]
    return found.text_start[a] < others.text_start[b]


@core
def keep_distinct(found, kept, n_found):
    """Order the alignments of a read and drop redundant ones; return how many stay.

    `kept` has the rows of `found` in the order found, and is given those that stay, best first.
    """
    for i in range(1, n_found):
        row = kept[i]
        # Behind equals; mostly at the end.
        j = np.int64(i)
        while j > 0 and comes_before(found, row, found, kept[j - 1]):
            kept[j] = kept[j - 1]
            j -= 1
        kept[j] = row
    n_kept = np.int64(0)
    for i in range(n_found):
        candidate = kept[i]
        redundant = False
        for j in range(n_kept):
            if is_redundant(found, kept[j], found, candidate):
                redundant = True
                break
        if not redundant:
            kept[n_kept] = candidate
            n_kept += 1
    return n_kept


@core
def keep_distinct_by_rank(found, kept, n_found, spare, lanes):
    """Do what :func:`keep_distinct` does, on a device, for reads with many alignments.

    Lanes count how many come before each, and find out which have an alignment before them that is
    like them. Only these wait until it is known which of the earlier ones stay.

    Parameters
    ----------
    spare
        int32 workspace for `n_found` items.
    """
    for i in range(lanes.lane, n_found, lanes.n_lanes):
        row = kept[i]
        rank = np.int64(0)
        for j in range(n_found):
            other = kept[j]
            if j < i:
                rank += not comes_before(found, row, found, other)
            elif j > i:
                rank += comes_before(found, other, found, row)
        spare[rank] = row
    lanes_meet(lanes)
    for i in range(lanes.lane, n_found, lanes.n_lanes):
        kept[i] = spare[i]
    lanes_meet(lanes)
    for i in range(lanes.lane, n_found, lanes.n_lanes):
        row, has_like = kept[i], False
        for j in range(i):
            if is_redundant(found, kept[j], found, row):
                has_like = True
                break
        spare[i] = has_like
    lanes_meet(lanes)
    n_kept = np.int64(0)
    for i in range(n_found):
        candidate = kept[i]
        redundant = False
        if spare[i]:
            for j in range(lanes.lane, n_kept, lanes.n_lanes):
                if is_redundant(found, kept[j], found, candidate):
                    redundant = True
                    break
        if lane_mask(redundant, lanes) == 0:
            if lanes.lane == 0:
                kept[n_kept] = candidate
            n_kept += 1
        lanes_meet(lanes)
    return n_kept


@core
def sort_descending(keys, n):
    """Sort the first `n` keys (int64), which are distinct, the highest first (Shell's sort)."""
    gap = np.int64(1)
    while 3 * gap + 1 < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            key = keys[i]
            j = np.int64(i)
            while j >= gap and keys[j - gap] < key:
                keys[j] = keys[j - gap]
                j -= gap
            keys[j] = key
        gap //= 3


@core
def _sort_best_first(found, kept, n_found, spare):
    """Sort rows as :func:`keep_distinct` does, equals in the order found, by merging."""
    width = np.int64(1)
    while width < n_found:
        first = np.int64(0)
        while first + width < n_found:
            middle, end = first + width, min(first + 2 * width, np.int64(n_found))
            if comes_before(found, kept[middle], found, kept[middle - 1]):
                for i in range(width):
                    spare[i] = kept[first + i]
                left, right, to = np.int64(0), middle, first
                while left < width and right < end:
                    if comes_before(found, kept[right], found, spare[left]):
                        kept[to] = kept[right]
                        right += 1
                    else:
                        kept[to] = spare[left]
                        left += 1
                    to += 1
                while left < width:
                    kept[to] = spare[left]
                    left += 1
                    to += 1
            first = end
        width *= 2


FEW_COMPARED = 12
"""So few alignments of a read are compared each with every other."""

_RANK_BITS = 20
_MOST_RANKS = 1 << _RANK_BITS


@core
def keep_distinct_by_place(found, kept, n_found, spare, places):
    """Do what :func:`keep_distinct` does, on the CPU: compare only alignments that overlap.

    Reads of repeats have hundreds of alignments, hardly two of which lie at the same place.

    Parameters
    ----------
    spare, places
        int32 and int64 workspace for `n_found` items each.
    """
    if n_found <= FEW_COMPARED or n_found > _MOST_RANKS:
        return keep_distinct(found, kept, n_found)
    _sort_best_first(found, kept, n_found, spare)
    # An item of places: the start of an alignment, its rank among all, and whether it stays.
    longest = np.int64(0)
    for rank in range(n_found):
        row = kept[rank]
        places[rank] = ((found.text_start[row] << _RANK_BITS) | rank) << 1
        longest = max(longest, found.text_end[row] - found.text_start[row])
    sort_descending(places, n_found)
    rank_mask = np.int64(_MOST_RANKS - 1)
    for i in range(n_found):
        spare[(places[i] >> 1) & rank_mask] = i
    n_redundant = np.int64(0)
    for rank in range(n_found):
        row = kept[rank]
        here = np.int64(spare[rank])
        redundant = False
        # Kept alignments that start at or behind its start, up to its end.
        i = here - 1
        while not redundant and i >= 0:
            if places[i] >> (_RANK_BITS + 1) >= found.text_end[row]:
                break
            if places[i] & 1:
                redundant = is_redundant(found, kept[(places[i] >> 1) & rank_mask], found, row)
            i -= 1
        # Kept alignments that start at or before its start, back to the longest that can overlap.
        reach = found.text_start[row] - longest
        i = here + 1
        while not redundant and i < n_found:
            if places[i] >> (_RANK_BITS + 1) <= reach:
                break
            if places[i] & 1:
                redundant = is_redundant(found, kept[(places[i] >> 1) & rank_mask], found, row)
            i += 1
        places[here] |= np.int64(not redundant)
        n_redundant += redundant
    n_kept = np.int64(n_found)
    if n_redundant > 0:
        n_kept = np.int64(0)
        for rank in range(n_found):
            if places[spare[rank]] & 1:
                kept[n_kept] = kept[rank]
                n_kept += 1
    return n_kept


@core
def _common_bases(found, kept, n_kept, bar, read_len):
    """What all alignments of a read that score `bar` or more cover: start, end; their longest.

    In bases of the read as given. The range is empty, its end below its start, where they
    have none in common. Few score so much: every lane looks at them.
    """
    start, end, longest = np.int64(0), np.int64(read_len), np.int64(0)
    for i in range(n_kept):
        row = kept[i]
        if found.score[row] < bar:
            break
        first, last = as_given(
            found.query_start[row], found.query_end[row], found.strand[row], read_len
        )
        start, end, longest = max(start, first), min(end, last), max(longest, last - first)
    return start, end, longest


@core
def keep_counting(found, kept, n_kept, read_len, unit, params, lanes):
    """Drop the alignments of a read that change no record; return how many stay.

    Parameters
    ----------
    found, kept, n_kept
        Distinct alignments: ``kept[:n_kept]`` are rows of `found`, best first, and is given
        those that stay, in the same order.
    unit
        What a score unit is in ``found.score``: 1, or 2 for doubled scores.
    params
        A :class:`mapper.params.KeepParams`.
    lanes
        Share the alignments (:mod:`mapper.jit.lanes`).
    """
    if n_kept <= 2:
        return n_kept
    best = np.int64(found.score[kept[0]]) // unit
    placed = best - params.placed
    bar = unit * min(best - params.margin, placed * params.listed_share // SHARES)
    if found.score[kept[n_kept - 1]] >= bar:
        return n_kept
    start, end, longest = _common_bases(found, kept, n_kept, unit * placed, read_len)
    n_staying = n_competing = np.int64(0)
    first = np.int64(0)
    while first < n_kept:
        i = first + lanes.lane
        row = kept[min(i, n_kept - 1)]
        this_start, this_end = as_given(
            found.query_start[row], found.query_end[row], found.strand[row], read_len
        )
        competes = i < n_kept and SHARES * overlap(
            this_start, this_end, start, end
        ) >= params.competing_share * min(this_end - this_start, longest)
        competing = np.uint64(lane_mask(competes, lanes))
        before = (np.uint64(1) << np.uint64(lanes.lane)) - np.uint64(1)
        rank = n_competing + np.int64(popcount(competing & before))
        stays = i < n_kept and (not competes or rank < 2 or found.score[row] >= bar)
        staying = np.uint64(lane_mask(stays, lanes))
        if stays:  # not behind what any lane has read
            kept[n_staying + np.int64(popcount(staying & before))] = row
        n_staying += np.int64(popcount(staying))
        n_competing += np.int64(popcount(competing))
        first += lanes.n_lanes
    lanes_meet(lanes)
    return n_staying
