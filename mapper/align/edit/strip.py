"""Core: a strip of eight neighbouring cells of an edit wavefront, advanced row after row.

Where the rows of one long pair are computed by many threads, a thread holds eight cells in
registers and advances them for some rows, together with its neighbours, before anything is
written. Two things differ from ``wavefront_edit.extend_row``, neither seen in a result:

- A cell that passes the end of a sequence stays at that end; there it is dropped. What
  stands at the end is reached with as many edits or fewer, so cells never fall from row to
  row, and two rows that overlap on a diagonal still do some rows later.
- All eight cells are compared by a first look of 32 bits without a branch; only those whose
  look was not enough go on.

The search of the other end is this one on the reversed sequences. Reversing all bits of the
words does that: it turns the bits of each symbol about too, in both sequences alike, so that
equal symbols stay equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.edit.wavefront import next_offset
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import trailing_zeros, trailing_zeros_32

WIDTH = 8
"""Cells of a strip."""


class Strings(NamedTuple):
    """Both packed sequences of a part, in the direction of a search.

    At least one word lies before a part and six behind it.
    """

    query: np.ndarray  # uint32
    ref: np.ndarray  # uint32
    query_at: int  # uint32: symbol of `query` where the part starts
    ref_at: int  # uint32
    query_len: int  # int32, symbols
    ref_len: int  # int32
    shift: int  # int32: log2 of the bits of a symbol: 1, 2 or 3


@core
def window(words, symbol, shift):
    """The 32 bits from a symbol (uint32) on."""
    # Unsigned, as an index that may be negative would be checked for that.
    at = np.uint64(np.uint32(symbol >> np.uint32(np.int32(5) - shift)))
    low = np.uint64(words[at])
    high = np.uint64(words[at + np.uint64(1)])
    bits = np.uint64(np.uint32(symbol << np.uint32(shift)) & np.uint32(31))
    return np.uint32(((high << np.uint64(32)) | low) >> bits)


@core
def _window_64(words, symbol, shift):
    """The 64 bits from a symbol (uint32) on."""
    low = np.uint64(window(words, symbol, shift))
    behind = np.uint32(symbol + np.uint32(np.int32(32) >> shift))
    return (np.uint64(window(words, behind, shift)) << np.uint64(32)) | low


@core
def farthest(k, query_len, ref_len):
    """Greatest offset on diagonal k."""
    return np.int32(min(np.int32(query_len + k), ref_len))


@core
def look(strings, h, k):
    """Matches at offset h of diagonal k as far as 32 bits show, ends not regarded.

    A cell that does not exist (h < 0) looks at the start of the part.
    """
    v = np.uint32(max(np.int32(h - k), np.int32(0)))
    at_query = window(strings.query, np.uint32(strings.query_at + v), strings.shift)
    at = np.uint32(max(h, np.int32(0)))
    at_ref = window(strings.ref, np.uint32(strings.ref_at + at), strings.shift)
    return np.int32(trailing_zeros_32(np.uint32(at_query ^ at_ref)) >> strings.shift)


@core
def follow(strings, h, k, limit):
    """Go on from offset h of diagonal k along matches, 128 bits at a time."""
    step = np.uint32(np.int32(64) >> strings.shift)
    while h < limit:
        at_query = np.uint32(strings.query_at + np.uint32(h - k))
        at_ref = np.uint32(strings.ref_at + np.uint32(h))
        near = _window_64(strings.query, at_query, strings.shift)
        near ^= _window_64(strings.ref, at_ref, strings.shift)
        far = _window_64(strings.query, np.uint32(at_query + step), strings.shift)
        far ^= _window_64(strings.ref, np.uint32(at_ref + step), strings.shift)
        bits = trailing_zeros(near) if near != 0 else 64 + trailing_zeros(far)
        h = np.int32(h + (bits >> strings.shift))
        if bits < 128:
            break
    return np.int32(min(h, limit))


@core
def slide(strings, h, k, null):
    """Follow the matches from offset h of diagonal k on.

    Returns
    -------
    The offset behind them; `null` for a cell that does not exist or lies beyond an end.
    """
    limit = farthest(k, strings.query_len, strings.ref_len)
    if h < 0 or h > limit:
        return null
    run = look(strings, h, k)
    h = np.int32(min(np.int32(h + run), limit))
    if run == np.int32(32) >> strings.shift and h < limit:
        h = follow(strings, h, k, limit)
    return h


@core
def _first_look(strings, k, left, here, right):
    """Return the next cell as far as the first look shows, and whether to go on from it."""
    limit = farthest(k, strings.query_len, strings.ref_len)
    h = np.int32(min(next_offset(left, here, right), limit))
    run = look(strings, h, k)
    return np.int32(min(np.int32(h + run), limit)), run == np.int32(32) >> strings.shift


@core
def _rest(strings, k, h):
    """Return the cell that a first look did not show the end of."""
    if h < 0:
        return h
    return follow(strings, h, k, farthest(k, strings.query_len, strings.ref_len))


@core
def next_strip(strings, k, before, strip, behind):
    """Return the next row of the cells on the diagonals k to k + 7.

    Parameters
    ----------
    k
        int32.
    before, behind
        Offsets on the diagonals k - 1 and k + 8 of the row that `strip` is of.
    strip
        Eight offsets (int32); below 0 where there is no cell.
    """
    c0, c1, c2, c3, c4, c5, c6, c7 = strip
    k1, k2, k3, k4 = np.int32(k + 1), np.int32(k + 2), np.int32(k + 3), np.int32(k + 4)
    k5, k6, k7 = np.int32(k + 5), np.int32(k + 6), np.int32(k + 7)
    h0, more0 = _first_look(strings, k, before, c0, c1)
    h1, more1 = _first_look(strings, k1, c0, c1, c2)
    h2, more2 = _first_look(strings, k2, c1, c2, c3)
    h3, more3 = _first_look(strings, k3, c2, c3, c4)
    h4, more4 = _first_look(strings, k4, c3, c4, c5)
    h5, more5 = _first_look(strings, k5, c4, c5, c6)
    h6, more6 = _first_look(strings, k6, c5, c6, c7)
    h7, more7 = _first_look(strings, k7, c6, c7, behind)
    if more0 | more1 | more2 | more3 | more4 | more5 | more6 | more7:
        if more0:
            h0 = _rest(strings, k, h0)
        if more1:
            h1 = _rest(strings, k1, h1)
        if more2:
            h2 = _rest(strings, k2, h2)
        if more3:
            h3 = _rest(strings, k3, h3)
        if more4:
            h4 = _rest(strings, k4, h4)
        if more5:
            h5 = _rest(strings, k5, h5)
        if more6:
            h6 = _rest(strings, k6, h6)
        if more7:
            h7 = _rest(strings, k7, h7)
    return h0, h1, h2, h3, h4, h5, h6, h7
