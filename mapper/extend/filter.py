"""Core: the order of a read's alignments, and which of them are one alignment found twice."""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.lanes import lane_mask, lanes_meet

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
    """Whether row a of `found` and row b of `others` are the same alignment found twice.

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
def keep_distinct(found, kept, n_found, lanes):
    """Order the alignments of a read and drop redundant ones; return how many stay.

    `kept` has the rows of `found` in the order found, and is given those that stay, best first.
    Lanes share it: they shift rows, and compare with them, side by side.
    """
    for i in range(1, n_found):
        row = kept[i]
        # Where it belongs among those before, behind equals; mostly at the end.
        to, end = np.int64(i), np.int64(i)
        if comes_before(found, row, found, kept[i - 1]):
            to = np.int64(0)
        while to < end:
            middle = (to + end) >> 1
            if comes_before(found, row, found, kept[middle]):
                end = middle
            else:
                to = middle + 1
        n_behind = i - to
        done = np.int64(0)
        while done < n_behind:  # the last ones first, as many at a time as there are lanes
            j = i - done - lanes.lane
            moved = kept[j - 1] if j > to else row
            lanes_meet(lanes)
            if j > to:
                kept[j] = moved
            lanes_meet(lanes)
            done += lanes.n_lanes
        if lanes.lane == 0:
            kept[to] = row
        lanes_meet(lanes)
    n_kept = np.int64(0)
    for i in range(n_found):
        candidate = kept[i]
        redundant = False
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
