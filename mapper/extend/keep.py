"""Core: which of a read's alignments the later stages have to see.

A read from a repeat comes with dozens of alignments, most of them remains of old copies that
score far below its best. Those that compete with it for the same bases change no record, and
they are dropped before they cost anything more, on a device before they are spelt out,
gathered and copied. What can be said of an alignment that :func:`keep_counting` drops:

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

from mapper.extend.filter import as_given, overlap
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import popcount
from mapper.jit.lanes import lane_mask, lanes_meet
from mapper.params import SHARES


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
