"""Core: write the tags cs, ds and de, which say where an alignment differs from the reference.

``cs`` spells an alignment by runs of matches (``:12``, or ``=ACGT`` in the long form), mismatches
(``*ag``: reference, then read), insertions (``+acgt``) and deletions (``-acgt``). ``ds`` is the
same, but of a gap that could as well lie farther to the left or right it puts the bases that may
change sides into brackets: ``+[ac]gt[a]``. ``de`` is the share of mismatches and gaps, each gap
counted once. An ambiguous base is written as n.

References
----------
minimap2's manual, option ``--cs``; its release notes 2.28 for ``--ds``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.cigar import EQUAL, D, I, X, base_at, count_events
from mapper.dna import ASCII_OF_CODE, COMPLEMENT
from mapper.io.tags import put_int
from mapper.jit.accelerate import core
from mapper.pair.record_tags import put_share_tag, put_tag
from mapper.params import LONG_CS

_LOWER = 32  # distance of a small letter from its capital in ASCII


class AlignedBases(NamedTuple):
    """The bases of a read, and of the text, that an alignment covers."""

    bases: np.ndarray  # uint8: codes of reads as given, flat
    read_start: int
    read_end: int
    strand: int
    query_start: int  # on the oriented read
    query_end: int
    planes: np.ndarray  # bit planes of the text
    text_start: int
    text_end: int


@core
def _base(given, on_read, i):
    """Return the base at `i` of the oriented read, or of the text: 0 to 3, or 4."""
    if not on_read:
        return np.int64(base_at(given.planes, 0, i))
    if given.strand:
        return np.int64(min(COMPLEMENT[given.bases[given.read_end - 1 - i]], np.uint8(4)))
    return np.int64(min(given.bases[given.read_start + i], np.uint8(4)))


@core
def _put_bases(buffer, pos, given, on_read, start, end, case):
    """Write bases as letters; `case` is added to the capital's code."""
    for i in range(start, end):
        buffer[pos] = ASCII_OF_CODE[_base(given, on_read, i)] + case
        pos += 1
    return pos


@core
def _put_bracketed(buffer, pos, given, on_read, start, end):
    buffer[pos] = ord("[")
    pos = _put_bases(buffer, pos + 1, given, on_read, start, end, _LOWER)
    buffer[pos] = ord("]")
    return pos + 1


@core
def _put_gap(buffer, pos, given, on_read, start, length, bracketed):
    """Write the bases of a gap; `bracketed` puts brackets around those that could lie elsewhere."""
    end = start + length
    if not bracketed:
        return _put_bases(buffer, pos, given, on_read, start, end, _LOWER)
    lowest = given.query_start if on_read else given.text_start
    highest = given.query_end if on_read else given.text_end
    to_left = np.int64(0)
    while (
        to_left < length
        and start - to_left > lowest
        and _base(given, on_read, start - to_left - 1) == _base(given, on_read, end - to_left - 1)
    ):
        to_left += 1
    to_right = np.int64(0)
    while (
        to_right < length
        and end + to_right < highest
        and _base(given, on_read, start + to_right) == _base(given, on_read, end + to_right)
    ):
        to_right += 1
    if to_left + to_right >= length:
        return _put_bracketed(buffer, pos, given, on_read, start, end)
    # Moved to the right, a gap gives its first bases away; to the left, its last.
    if to_right:
        pos = _put_bracketed(buffer, pos, given, on_read, start, start + to_right)
    pos = _put_bases(buffer, pos, given, on_read, start + to_right, end - to_left, _LOWER)
    if to_left:
        pos = _put_bracketed(buffer, pos, given, on_read, end - to_left, end)
    return pos


@core
def put_differences(buffer, pos, first, ops, start, end, given, form, bracketed):
    """Write cs, or ds, of operations ``= X I D``, where `first` is the tag's first letter.

    Parameters
    ----------
    given
        :class:`AlignedBases`.
    form
        SHORT_CS or LONG_CS (:mod:`mapper.params`).
    bracketed
        As ds has gaps.
    """
    pos = put_tag(buffer, pos, first, ord("s"), ord("Z"))
    query, text = np.int64(given.query_start), np.int64(given.text_start)
    for i in range(start, end):
        code, length = np.int64(ops[i] & 15), np.int64(ops[i] >> 4)
        if code == EQUAL and form == LONG_CS:
            buffer[pos] = ord("=")
            pos = _put_bases(buffer, pos + 1, given, True, query, query + length, 0)
        elif code == EQUAL:
            buffer[pos] = ord(":")
            pos = put_int(buffer, pos + 1, length)
        elif code == X:
            for j in range(length):
                buffer[pos] = ord("*")
                pos = _put_bases(buffer, pos + 1, given, False, text + j, text + j + 1, _LOWER)
                pos = _put_bases(buffer, pos, given, True, query + j, query + j + 1, _LOWER)
        elif code == I:
            buffer[pos] = ord("+")
            pos = _put_gap(buffer, pos + 1, given, True, query, length, bracketed)
        else:
            buffer[pos] = ord("-")
            pos = _put_gap(buffer, pos + 1, given, False, text, length, bracketed)
        query += 0 if code == D else length
        text += 0 if code == I else length
    buffer[pos] = 0
    return pos + 1


@core
def put_divergence(buffer, pos, ops, start, end):
    """Write de of operations ``= X I D``, rounded to ten-thousandths as minimap2 does."""
    columns, differences = count_events(ops, start, end)
    return put_share_tag(buffer, pos, ord("d"), ord("e"), differences, columns, 10_000)
