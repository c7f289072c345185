"""Core of chaining: collinear chains of anchors, by the recurrence of minimap2 in integers.

*Items* are anchors or, in a second pass that joins over long gaps, chains. Those of a read lie in
the order of ``group`` (strand and contig), end in the text, end on the read. The best chain that
ends with item i scores

    f(i) = max(w(i), max over j before i of f(j) + w(i) - overlap(j, i) - cost(j, i))

where w is an item's weight (its matched bases), the overlap counts bases that both items cover on
the read or in the text, and the cost is that of a gap as long as their diagonals differ. The
maximum is taken over the last ``lookback`` items that lie near enough, all of them: the result
depends on nothing but the items.

Scores are in 1 / UNITS of a matched base.

References
----------
Li (2018), doi:10.1093/bioinformatics/bty191, section 2.1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.index.reference import find_contig
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import leading_zeros
from mapper.jit.lanes import lane_max

UNITS = 64
"""Score units of a matched base."""

_GAP_BASE = 10
"""Units for each base of a gap: 0.01 * 0.8 of a seed of 19 bases, as in minimap2."""


class Items(NamedTuple):
    """Anchors or chains of one read. The types are those of the CPU."""

    group: np.ndarray  # int64: strand and contig
    query_start: np.ndarray  # int64
    query_end: np.ndarray  # int64
    text_start: np.ndarray  # int64
    text_end: np.ndarray  # int64
    weight: np.ndarray  # int64, in units


def new_items(n: int) -> Items:
    """Allocate `n` items."""
    return Items(*(np.empty(n, np.int64) for _ in Items._fields))


@core
def log2_units(x):
    """Return log2(x), x > 0, in units: linear between powers of 2, in integers."""
    whole = np.int64(63) - np.int64(leading_zeros(np.uint64(x)))
    return UNITS * whole + ((UNITS * (np.int64(x) - (np.int64(1) << whole))) >> whole)


@core
def gap_cost(length):
    """Return the cost of a gap, in units."""
    if length == 0:
        return np.int64(0)
    return _GAP_BASE * length + (log2_units(length + 1) >> 1)


_DISTANCE_BITS = 16
"""Of the distance to a predecessor, in items: lookbacks are shorter than 2**16."""

_MOST_DISTANCE = (1 << _DISTANCE_BITS) - 1


@core
def group_of(contig_starts, strand, text_pos):
    """Return the number of a strand and of the contig of a text position."""
    return len(contig_starts) * np.int64(strand) + np.int64(find_contig(contig_starts, text_pos))


@core
def fill_items(anchors, first, end, contig_starts, items, lanes):
    """Make items of the anchors first:end, the anchors of a read."""
    for row in range(first + lanes.lane, end, lanes.n_lanes):
        i = row - first
        text_pos, length = anchors.text_pos[row], np.int64(anchors.length[row])
        query_start = np.int64(anchors.query_start[row])
        items.group[i] = group_of(contig_starts, anchors.strand[row], text_pos)
        items.query_start[i] = query_start
        items.query_end[i] = query_start + length
        items.text_start[i] = text_pos
        items.text_end[i] = text_pos + length
        items.weight[i] = UNITS * length


@core
def link_items(items, n, band, max_gap, lookback, score, parent, lanes):
    """Find the best chain that ends with each item.

    Parameters
    ----------
    band, max_gap
        Largest difference of diagonals, and largest gap on the read and in the text, of two
        neighbours in a chain.
    score, parent
        int64, get f(i), and the item before i in its chain, or -1. Of equal predecessors the
        nearest.
    lanes
        Share the predecessors of an item (:mod:`mapper.jit.lanes`).
    """
    for i in range(n):
        best, before = np.int64(items.weight[i]), np.int64(-1)
        query_start, text_start = items.query_start[i], items.text_start[i]
        stop = max(np.int64(i) - 1 - lookback, np.int64(-1))
        for j in range(np.int64(i) - 1 - lanes.lane, stop, -lanes.n_lanes):
            if items.group[j] != items.group[i] or items.text_end[j] < text_start - max_gap:
                break
            gap_on_query = query_start - items.query_end[j]
            gap_in_text = text_start - items.text_end[j]
            shift = abs(gap_in_text - gap_on_query)
            if (
                gap_on_query > max_gap
                or shift > band
                or items.query_start[j] >= query_start
                or items.text_start[j] >= text_start
                or items.query_end[j] >= items.query_end[i]
                or items.text_end[j] >= items.text_end[i]
            ):
                continue
            common = max(np.int64(0), -min(gap_on_query, gap_in_text))
            reached = score[j] + items.weight[i] - UNITS * common - gap_cost(shift)
            if reached > best:
                best, before = reached, np.int64(j)
        # The best of all lanes as one number: of equal scores that without a predecessor is the
        # highest, then that of the nearest. Scores of a read of 2**27 bases have 33 bits.
        distance = np.int64(0) if before < 0 else np.int64(i) - before
        found = lane_max((best << _DISTANCE_BITS) | (_MOST_DISTANCE - distance), lanes)
        distance = _MOST_DISTANCE - (found & _MOST_DISTANCE)
        score[i] = found >> _DISTANCE_BITS
        parent[i] = np.int64(i) - distance if distance else np.int64(-1)


@core
def take_chains(order, n, score, parent, weight, least, used, members, ends, chain_score):
    """Take the chains from the best on; each item belongs to one of them.

    A chain that would run into a better one begins at the item from which on it scores most, which
    is seldom the one behind the better chain: what the link to that costs is not for it to pay.
    Items before its first are left for other chains.

    Parameters
    ----------
    order
        Items by falling score.
    weight
        Of :class:`Items`.
    least
        Lowest score of a chain that is kept.
    used
        bool (n,), false.
    members, ends, chain_score
        int64, get the items of all chains, last item first; behind the last item of each chain; its
        score.

    Returns
    -------
    The number of chains.
    """
    n_chains = n_members = np.int64(0)
    for rank in range(n):
        i = np.int64(order[rank])
        if used[i]:
            continue
        last = i
        n_taken = n_walked = gained = np.int64(0)
        while i >= 0 and not used[i]:
            members[n_members + n_walked] = i
            n_walked += 1
            from_here = score[last] - score[i] + weight[i]
            if from_here >= gained:
                gained, n_taken = from_here, n_walked
            i = parent[i]
        for row in range(n_members, n_members + n_taken):
            used[members[row]] = True
        if gained < least:
            continue
        n_members += n_taken
        ends[n_chains] = n_members
        chain_score[n_chains] = gained
        n_chains += 1
    return n_chains
