"""Core for the CPU: how far gaps can bring the extension of a side, before any path is sought.

Few searches with gaps beat the alignment without: most end with a proof that nothing does. The
wavefront (``wavefront_affine.py``) takes a cell at a time for that, with a lookup in every cell of
what is still to be lost. This is the same recurrence as a banded matrix, without paths: cells of an
antidiagonal do not depend on each other, so that a processor's vectors take 32 at a time
(``antidiagonals.py``). It finds the highest objective, and the wavefront is asked only where that
exceeds the floor, and then for nothing less: what it finds does not depend on the floor that it
exceeds. It is the wavefront that says what an alignment is; this second text of the recurrence
changes no result, it only spares searches, and devices, which have no use for it, do without.

A cell (v, h) counts, in score units, what is lost of the matches of its v bases of the read::

    I(v, h) = min(H(v-1, h) + o + e + a, I(v-1, h) + e + a)
    D(v, h) = min(H(v, h-1) + o + e, D(v, h-1) + e)
    H(v, h) = min(H(v-1, h-1) + (a + b if the bases differ), I(v, h), D(v, h))

with match a, mismatch -b, and a gap of n bases -(o + n e). Losses only grow on the way, so that
nothing has to be known of cells that have lost too much: bytes that stay at 255 are enough where
less than that can be lost.

References
----------
Gotoh (1982), doi:10.1016/0022-2836(82)90398-9: the recurrence. Wozniak (1997),
doi:10.1093/bioinformatics/13.2.145: by antidiagonals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.bits import reversed_bits
from mapper.dna import plane_word
from mapper.extend.antidiagonals import LOST, STATES, ByteLosses, advance, spread

UNKNOWN = 2**30
"""Objective that :func:`most_reached` gives where it does not look."""

_NARROW, _MIDDLE, _WIDE = 32, 64, 128  # columns; each has two diagonals
_PAIRS = 8  # antidiagonals, by two, between looks at whether any cell is alive

# No two of these are equal, nor equal to a base.
_AMBIGUOUS_BIT, _OUTSIDE = 2, 4  # of the read
_REF_AMBIGUOUS_BIT, _REF_OUTSIDE = 3, 8


class Reach(NamedTuple):
    """Work space; all uint8."""

    query: np.ndarray
    bars: np.ndarray
    ref: np.ndarray
    narrow: np.ndarray  # (STATES, 32)
    middle: np.ndarray  # (STATES, 64)
    wide: np.ndarray  # (STATES, 128)


def new_reach(max_read_len: int) -> Reach:
    """Allocate work space for any side of a read up to `max_read_len`."""
    n = max_read_len + 4 * _WIDE + 2 * _PAIRS
    query, bars, ref = (np.empty(n, np.uint8) for _ in range(3))
    bands = (np.empty((STATES, width), np.uint8) for width in (_NARROW, _MIDDLE, _WIDE))
    return Reach(query, bars, ref, *bands)


@core
def _write_codes(planes, word, start, n, descending, shift, codes, at):
    """Write the codes of n bases from `start` on, or of those before the n-th, the last first.

    What is written behind them, up to a word, means nothing.
    """
    for done in range(0, n, 64):
        pos = start + n - 64 - done if descending else start + done
        before = np.uint64(max(-pos, np.int64(0)))  # bases before the first of the planes
        pos = max(pos, np.int64(0))
        low = plane_word(planes, word, pos, 0) << before
        high = plane_word(planes, word, pos, 1) << before
        ambiguous = plane_word(planes, word, pos, 2) << before
        if descending:
            low, high = reversed_bits(low), reversed_bits(high)
            ambiguous = reversed_bits(ambiguous)
        spread(low, high, ambiguous, shift, codes, at + done)


@core
def _fill(codes, start, end, code):
    for i in range(start, end):
        codes[i] = code


@core
def _losses_of(params):
    """What differences lose of a read's matches."""
    most = np.int64(LOST)
    opened = np.int64(params.gap_open + params.gap_extend)
    return ByteLosses(
        np.uint8(min(most, np.int64(params.match + params.mismatch))),
        np.uint8(min(most, opened + params.match)),
        np.uint8(min(most, np.int64(params.gap_extend + params.match))),
        np.uint8(min(most, opened)),
        np.uint8(min(most, np.int64(params.gap_extend))),
    )


@core
def _search(query_planes, text_planes, side, params, floor, insertions, deletions, space, band):
    """:func:`most_reached` on a band that is wide enough."""
    room = np.int64(side.query_room)
    n = band.shape[1]
    # Column j of the even diagonals is diagonal lowest + 2 j; lowest is even.
    lowest = -2 * ((insertions + 1) >> 1)
    # What row v compares, and its bar, lie in item first_row - v; column h in item h + n.
    first_row = room + n + _PAIRS
    _write_codes(
        query_planes, side.query_word, side.query_pos if side.forward else side.query_pos - room,
        room, side.forward, _AMBIGUOUS_BIT, space.query, first_row - room,
    )  # fmt: skip
    _fill(space.query, 0, first_row - room, _OUTSIDE)
    _fill(space.query, first_row, first_row + n, _OUTSIDE)
    text_room = min(np.int64(side.text_room), room + deletions)
    _write_codes(
        text_planes, 0, side.text_pos if side.forward else side.text_pos - text_room, text_room,
        not side.forward, _REF_AMBIGUOUS_BIT, space.ref, n + 1,
    )  # fmt: skip
    _fill(space.ref, 0, n + 1, _REF_OUTSIDE)
    _fill(space.ref, n + 1 + text_room, room + 3 * n + 2 * _PAIRS, _REF_OUTSIDE)
    # A cell that loses less than its bar exceeds the floor: it ends in row v, or at the read's end.
    worth = floor >> 1
    slack = params.match * room + params.end_bonus - worth
    _fill(space.bars, 0, first_row + n, 0)
    for v in range(worth // params.match + 1, room):
        space.bars[first_row - v] = params.match * v - worth
    space.bars[first_row - room] = slack
    for state in range(STATES):
        for column in range(n):
            band[state, column] = 0 if state == STATES - 1 else LOST
    # The corner; of the antidiagonal behind it, column 0 is row -lowest / 2, too.
    row = -lowest >> 1
    band[0, row] = 0
    band[STATES - 1, row] = space.bars[first_row]
    losses = _losses_of(params)
    done = np.int64(0)
    alive = True
    while alive and done <= room + (deletions >> 1):
        alive = advance(
            band, space.query, space.bars, first_row - row - done, space.ref,
            n + 1 - row + done, np.int64(_PAIRS), losses, slack,
        )  # fmt: skip
        done += _PAIRS
    most = np.int64(0)
    for column in range(n):
        most = max(most, np.int64(band[STATES - 1, column]))
    return 2 * (worth + most)


@core
def most_reached(query_planes, text_planes, side, params, floor, insertions, deletions, space):
    """Bound the objective of a side's extensions, where bytes are enough for that.

    Parameters
    ----------
    side, floor, insertions, deletions
        As for :func:`mapper.extend.wavefront_affine.extend_side`.
    space
        A :class:`Reach`, or None: then nothing is known.

    Returns
    -------
    Doubled objective: no extension exceeds both it and `floor`, and one reaches it if it exceeds
    `floor`, unless that one strays from the band, leaves the contig, or loses all on its way. Or
    UNKNOWN.
    """
    if space is None:
        return np.int64(UNKNOWN)
    slack = params.match * side.query_room + params.end_bonus - (floor >> 1)
    n_columns = ((insertions + 1) >> 1) + (deletions >> 1) + 1
    if slack > LOST or n_columns > _WIDE:
        return np.int64(UNKNOWN)
    band = space.wide
    if n_columns <= _NARROW:
        band = space.narrow
    elif n_columns <= _MIDDLE:
        band = space.middle
    return _search(
        query_planes, text_planes, side, params, floor, insertions, deletions, space, band
    )
