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

from mapper.dna import plane_word
from mapper.extend.banded_screen import LOST, STATES, ByteLosses, advance, spread
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import reversed_bits
from mapper.params import ExtendParams

UNKNOWN = 2**30
"""Objective that :func:`most_reached` gives where it does not look."""

_NARROW, _MIDDLE, _WIDE = 32, 64, 128  # columns; each has two diagonals
_PAIRS = 8  # antidiagonals, by two, between looks at whether any cell is alive

_QUERY_BIT, _REF_BIT = 2, 3
"""Bits of the codes of ambiguous bases, which then differ from all others; so differs what lies
outside read or contig."""

_FRONT = _WIDE + _PAIRS
"""Items outside before those of the rows, and before those of the columns."""


class Reach(NamedTuple):
    """Work space, and what differences lose. Arrays are uint8."""

    query: np.ndarray
    bars: np.ndarray
    ref: np.ndarray
    narrow: np.ndarray  # (STATES * 32,)
    middle: np.ndarray  # (STATES * 64,)
    wide: np.ndarray  # (STATES * 128,)
    losses: ByteLosses


def new_reach(max_read_len: int, params: ExtendParams) -> Reach:
    """Allocate work space for any side of a read up to `max_read_len`."""
    n = _FRONT + max_read_len + 2 * _WIDE + _PAIRS + 64  # codes are written by words
    query, bars, ref = (np.zeros(n, np.uint8) for _ in range(3))
    query[:_FRONT], ref[:_FRONT] = 1 << _QUERY_BIT, 1 << _REF_BIT
    opened = params.gap_open + params.gap_extend
    lost = (
        params.match + params.mismatch, opened + params.match, params.gap_extend + params.match,
        opened, params.gap_extend,
    )  # fmt: skip
    losses = ByteLosses(*(np.uint8(min(loss, LOST)) for loss in lost))
    narrow, middle, wide = (np.empty(STATES * n, np.uint8) for n in (_NARROW, _MIDDLE, _WIDE))
    return Reach(query, bars, ref, narrow, middle, wide, losses)


@core
def _write_codes(planes, word, start, n, n_more, descending, bit, codes):
    """Write the codes of n bases from `start` on, or of those before the n-th, the last first.

    They go to item _FRONT and on, and at least `n_more` codes of what is outside behind them.
    """
    for done in range(0, n + n_more, 64):
        low = high = np.uint64(0)
        ambiguous = ~np.uint64(0)
        if done < n:
            pos = start + n - 64 - done if descending else start + done
            before = np.uint64(max(-pos, np.int64(0)))  # bases before the first of the planes
            pos = max(pos, np.int64(0))
            low = plane_word(planes, word, pos, 0) << before
            high = plane_word(planes, word, pos, 1) << before
            ambiguous = plane_word(planes, word, pos, 2) << before
            if descending:
                low, high = reversed_bits(low), reversed_bits(high)
                ambiguous = reversed_bits(ambiguous)
            if n - done < 64:
                ambiguous |= ~np.uint64(0) << np.uint64(n - done)
        spread(low, high, ambiguous, bit, codes, _FRONT + done)


@core
def most_reached(query_planes, text_planes, side, params, floor, insertions, deletions, space):
    """Bound the objective of a side's extensions, where bytes are enough for that.

    Parameters
    ----------
    side, floor, insertions, deletions
        As for :func:`mapper.extend.wavefront.extend_side`; `floor` is less than a perfect
        side brings.
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
    # A cell that loses less than its bar exceeds the floor if the alignment ends there.
    room, match, worth = np.int64(side.query_room), np.int64(params.match), floor >> 1
    slack = match * room + params.end_bonus - worth
    # Column j of the band is diagonal 2 (j - corner), and that behind it.
    corner = (insertions + 1) >> 1
    n = corner + (deletions >> 1) + 1
    if slack > LOST or n > _WIDE:
        return np.int64(UNKNOWN)
    band = space.wide
    if n <= _NARROW:
        n, band = np.int64(_NARROW), space.narrow
    elif n <= _MIDDLE:
        n, band = np.int64(_MIDDLE), space.middle
    else:
        n = np.int64(_WIDE)
    # What row v compares lies in item first_row - v, as its bar; column h in item h + _FRONT - 1.
    first_row = _FRONT + room
    query_start, text_start = side.query_pos, side.text_pos
    text_room = min(np.int64(side.text_room), room + deletions)
    if not side.forward:
        query_start, text_start = query_start - room, text_start - text_room
    _write_codes(
        query_planes, side.query_word, query_start, room, n, side.forward, _QUERY_BIT, space.query
    )
    _write_codes(
        text_planes, 0, text_start, text_room, room + 2 * n + _PAIRS - text_room,
        not side.forward, _REF_BIT, space.ref,
    )  # fmt: skip
    space.bars[_FRONT] = slack
    for v in range(1 - n, room):
        space.bars[first_row - v] = max(match * v - worth, 0)
    for i in range(STATES * n):
        band[i] = LOST if i < (STATES - 1) * n else 0
    band[corner] = 0
    band[(STATES - 1) * n + corner] = space.bars[first_row]
    done = np.int64(0)
    alive = True
    while alive and done <= room + (deletions >> 1):
        # Column 0 of the antidiagonal behind the corner is row `corner`, too.
        alive = advance(
            band, space.query, space.bars, first_row - corner - done, space.ref,
            _FRONT - corner + done, _PAIRS, space.losses, slack,
        )  # fmt: skip
        done += _PAIRS
    most = np.int64(0)
    for i in range((STATES - 1) * n, STATES * n):
        most = max(most, np.int64(band[i]))
    return 2 * (worth + most)
