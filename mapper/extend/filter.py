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
from mapper.jit.lanes import lane_mask, lane_max, lane_sum, lanes_meet, takes_vectors
from mapper.jit.sorting import sort_descending
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


FEW_COMPARED = 12
"""So few alignments of a read are compared each with every other."""

_RANK_BITS = 22  # beside them, in an int64, a place in 2**41 bases
_RANK = (1 << _RANK_BITS) - 1
_SCORES = 1 << 31  # added to a score, it is no lower than 0


@core
def _order_by_place(found, kept, n_found, spare, by_place, by_rank, spare_keys, lanes):
    """Order the alignments of a read as :func:`keep_distinct` does, and by place.

    ``by_place`` gets the start in the text and the rank, in one number, of each, the last start
    first; ``by_rank`` where in ``by_place`` each of ``kept`` is. Returns the length of the longest
    in the text.
    """
    longest = np.int64(0)
    for i in range(lanes.lane, n_found, lanes.n_lanes):
        row = kept[i]
        by_place[i] = np.int64(found.text_start[row]) << _RANK_BITS | i
        longest = max(longest, found.text_end[row] - found.text_start[row])
    longest = lane_max(longest, lanes)
    lanes_meet(lanes)
    sort_descending(by_place, n_found, lanes, by_rank)
    for i in range(lanes.lane, n_found, lanes.n_lanes):
        row = kept[by_place[i] & _RANK]
        order = (_SCORES + np.int64(found.score[row])) << 1 | (1 - np.int64(found.strand[row]))
        # Ties go to the higher i: it starts earlier in the text or, at one start, was found first.
        by_rank[i] = order << _RANK_BITS | i
    lanes_meet(lanes)
    sort_descending(by_rank, n_found, lanes, spare_keys)
    for rank in range(lanes.lane, n_found, lanes.n_lanes):
        here = by_rank[rank] & _RANK
        spare[rank] = kept[by_place[here] & _RANK]
        by_rank[rank] = here
        by_place[here] = by_place[here] >> _RANK_BITS << _RANK_BITS | rank
    lanes_meet(lanes)
    for rank in range(lanes.lane, n_found, lanes.n_lanes):
        kept[rank] = spare[rank]
        spare[rank] = 1
    lanes_meet(lanes)
    return longest


@core
def _is_found_before(found, kept, n_found, rank, here, longest, stays, by_place):
    """Return True if one that comes before an alignment, and stays, is the same found twice.

    `here` is its item of `by_place`; only what may overlap it in the text is looked at.
    """
    row = kept[rank]
    i = here - 1
    while i >= 0 and by_place[i] >> _RANK_BITS < found.text_end[row]:
        other = by_place[i] & _RANK
        if other < rank and stays[other] and is_redundant(found, kept[other], found, row):
            return True
        i -= 1
    reach = found.text_start[row] - longest
    i = here + 1
    while i < n_found and by_place[i] >> _RANK_BITS > reach:
        other = by_place[i] & _RANK
        if other < rank and stays[other] and is_redundant(found, kept[other], found, row):
            return True
        i += 1
    return False


@core
def keep_distinct_by_place(found, kept, n_found, spare, keys, lanes):
    """Do what :func:`keep_distinct` does, but compare only alignments that overlap in the text.

    Reads of repeats have hundreds of alignments, hardly two of which lie at the same place.

    Parameters
    ----------
    spare, keys
        Workspace: int32 for `n_found` items, int64 for twice as many, on the CPU three times.
    lanes
        Share the alignments (:mod:`mapper.jit.lanes`).
    """
    if takes_vectors(lanes) and n_found <= FEW_COMPARED:
        return keep_distinct(found, kept, n_found)
    by_place, by_rank = keys[:n_found], keys[n_found : 2 * n_found]
    longest = _order_by_place(
        found, kept, n_found, spare, by_place, by_rank, keys[2 * n_found :], lanes
    )
    n_doubted = np.int64(0)
    for rank in range(lanes.lane, n_found, lanes.n_lanes):
        if _is_found_before(found, kept, n_found, rank, by_rank[rank], longest, spare, by_place):
            by_rank[rank] = ~by_rank[rank]
            n_doubted += 1
    lanes_meet(lanes)
    if lane_sum(n_doubted, lanes) == 0:
        return np.int64(n_found)
    # What comes before these may itself be left out: one after another, by every lane.
    for rank in range(n_found):
        if by_rank[rank] < 0:
            spare[rank] = not _is_found_before(
                found, kept, n_found, rank, ~by_rank[rank], longest, spare, by_place
            )
    n_kept = np.int64(0)
    for first in range(0, n_found, lanes.n_lanes):
        rank = first + lanes.lane
        row = kept[min(rank, n_found - 1)]
        stays = rank < n_found and spare[rank] != 0
        staying = np.uint64(lane_mask(stays, lanes))
        before = (np.uint64(1) << np.uint64(lanes.lane)) - np.uint64(1)
        if stays:  # not behind what any lane has read
            kept[n_kept + np.int64(popcount(staying & before))] = row
        n_kept += np.int64(popcount(staying))
    lanes_meet(lanes)
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
