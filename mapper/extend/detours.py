"""Leave anchors out of chains that cost an alignment more than they bring.

A chain takes an anchor off its diagonal if the anchor has more bases than a small share of the way
there and back (:mod:`mapper.chain.collinear`): such as a match by chance in a tandem repeat, for
which the alignment would have two gaps instead of a few mismatches. By alignment scores, anchors
between two gaps are left out if all their matches are worth less than what both gaps cost more
than the one gap that remains; those beyond the first or the last gap, if they are worth less than
it. As in scores, no gap counts as longer than LONG_GAP.

Nothing is lost by that: the piece without them is aligned whole, and through them if that is best.
"""

from __future__ import annotations

import numpy as np

from mapper.batch import ChainBatch
from mapper.extend.pieces import LONG_GAP
from mapper.jit.accelerate import core, driver
from mapper.params import TwoPieceScoring
from mapper.two_piece_band import gap_cost


@core
def _shift(chains, i, j):
    """Return by how many diagonals anchor j lies beside anchor i."""
    at_i = chains.text_pos[i] - chains.query_start[i]
    return abs(chains.text_pos[j] - chains.query_start[j] - at_i)


@core
def _cost(shift, scoring):
    """Return the cost of a gap, as in scores."""
    return gap_cost(min(shift, np.int64(LONG_GAP)), scoring)


@core
def _end_of_detour(chains, last, first, end, scoring):
    """Return behind the anchors from `first` on that are to be left out; `first` if none are.

    `last` is the anchor before them, or -1.
    """
    before = _cost(_shift(chains, last, first), scoring) if last >= 0 else np.int64(0)
    if last >= 0 and before == 0:
        return np.int64(first)
    most = 2 * _cost(np.int64(LONG_GAP), scoring)
    worth = np.int64(0)
    for i in range(first, end):
        worth += scoring.match * np.int64(chains.length[i])
        if i + 1 == end:  # a chain does not consist of its end
            return np.int64(end) if last >= 0 and worth < before else np.int64(first)
        behind = _cost(_shift(chains, i, i + 1), scoring)
        direct = _cost(_shift(chains, last, i + 1), scoring) if last >= 0 else np.int64(0)
        if worth < before + behind - direct:
            return np.int64(i) + 1
        worth -= behind
        if worth >= most:
            break
    return np.int64(first)


@driver
def _drop_detours(chains, scoring, columns, anchor_offsets):
    query_start, text_pos, length = columns
    n = np.int64(0)
    anchor_offsets[0] = 0
    for chain in range(len(chains.strand)):
        i, end = chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1]
        last = np.int64(-1)
        while i < end:
            following = _end_of_detour(chains, last, i, end, scoring)
            if following == i:
                query_start[n] = chains.query_start[i]
                text_pos[n] = chains.text_pos[i]
                length[n] = chains.length[i]
                n += 1
                last = np.int64(i)
                following += 1
            i = following
        anchor_offsets[chain + 1] = n
    return n


def drop_detours(chains: ChainBatch, scoring: TwoPieceScoring) -> ChainBatch:
    """Return the chains without anchors that are not worth the gaps around them.

    Notes
    -----
    Of several ways to leave anchors out, the first and shortest from the left is taken.
    """
    most = len(chains.length)
    columns = (np.empty(most, np.int32), np.empty(most, np.int64), np.empty(most, np.int32))
    anchor_offsets = np.empty(len(chains.strand) + 1, np.int64)
    n = _drop_detours(chains, scoring, columns, anchor_offsets)
    query_start, text_pos, length = (column[:n].copy() for column in columns)
    return chains._replace(
        anchor_offsets=anchor_offsets, query_start=query_start, text_pos=text_pos, length=length
    )
