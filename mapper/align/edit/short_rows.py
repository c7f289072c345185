"""The first edit-distance wavefronts of short pairs, from masks of what differs: code of the CPU.

A nucleotide is two bits. The low bits of a sequence are one plane of a few words, its high bits
another. Planes of the query, moved by a diagonal, against those of the reference give the *mask* of
that diagonal: bit h is set where the symbols before offsets h + 1 differ, and at the farthest
offset, where a sequence ends. So the run of matches from an offset is a number of zeros, and no
symbol is compared twice, however many wavefronts pass it.

The rows are those of ``letter_rows.py``, cell by cell, which goes on from them.

References
----------
Baeza-Yates and Navarro (1999), Faster approximate string matching, Algorithmica 23:127, and Alser
et al. (2020), doi:10.1093/bioinformatics/btaa1015: a bit vector for each diagonal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.edit.wavefront import EXCEEDED, FINISHED, GOING, PAD, next_offset
from mapper.align.matches import NULL, unaligned_word
from mapper.jit.accelerate import core, disjoint_core, driver
from mapper.jit.intrinsics import bit_of_bytes, trailing_zeros

N_WORDS = 4
"""Words of 64 symbols a plane."""

LONGEST = 64 * N_WORDS - 1
"""Symbols of a sequence: the last bit of a mask is for the farthest offset."""

LAST_ROW = 15
"""Last row by masks. From about 18 edits on the code of ``letter_rows.py`` is faster: with 31 rows
pairs of 150 bases with 25 to 40 % substitutions took a fifth longer than with 15, those with 2 to
10 % as long. Diagonals are moved by less than a word, so it is below 64."""

_PLANE = N_WORDS + 2
"""Words of a plane with a zero on each side."""


class Masks(NamedTuple):
    """Workspace of a pair."""

    planes: np.ndarray  # uint64 (4, _PLANE): low and high bits of the query, then of the reference
    words: np.ndarray  # uint64: N_WORDS for each diagonal from -LAST_ROW on, and one more
    bytes: np.ndarray  # uint8: the same memory


@driver
def new_masks():
    """Allocate a workspace."""
    words = np.zeros((2 * LAST_ROW + 1) * N_WORDS + 1, np.uint64)
    return Masks(np.zeros((4, _PLANE), np.uint64), words, words.view(np.uint8))


@core
def _write_planes(codes, n, low, high):
    """Write the planes of n codes; up to 63 bytes behind them are read."""
    for w in range(N_WORDS):
        at = np.uint64(w + 1)
        low[at] = high[at] = np.uint64(0)
        if 64 * w < n:
            first, second = np.int64(64 * w), np.int64(64 * w + 32)
            half = np.uint64(32)
            low[at] = bit_of_bytes(codes, first, 0) | (bit_of_bytes(codes, second, 0) << half)
            high[at] = bit_of_bytes(codes, first, 1) | (bit_of_bytes(codes, second, 1) << half)


@disjoint_core
def _write_mask(low, high, ref_low, ref_high, k, mask):
    """Write the mask of diagonal k, without its end, from the planes of query and reference."""
    one, top = np.uint64(1), np.uint64(63)
    if k >= 0:
        by = np.uint64(k)
        for w in range(N_WORDS):
            at = np.uint64(w + 1)
            before = at - one
            # Two shifts, because a shift by 64 is undefined.
            own_low = (low[at] << by) | ((low[before] >> one) >> (top - by))
            own_high = (high[at] << by) | ((high[before] >> one) >> (top - by))
            mask[np.uint64(w)] = (own_low ^ ref_low[at]) | (own_high ^ ref_high[at])
    else:
        by = np.uint64(-k)
        for w in range(N_WORDS):
            at = np.uint64(w + 1)
            behind = at + one
            own_low = (low[at] >> by) | ((low[behind] << one) << (top - by))
            own_high = (high[at] >> by) | ((high[behind] << one) << (top - by))
            mask[np.uint64(w)] = (own_low ^ ref_low[at]) | (own_high ^ ref_high[at])


@core
def _add_diagonal(masks, query_len, ref_len, k):
    """Write the mask of diagonal k."""
    planes = masks.planes
    at = (k + LAST_ROW) * N_WORDS
    _write_mask(planes[0], planes[1], planes[2], planes[3], k, masks.words[at : at + N_WORDS])
    end = min(query_len + k, ref_len)
    masks.words[np.uint64(at + (end >> 6))] |= np.uint64(1) << np.uint64(end & 63)


@core
def _follow(masks, k, h):
    """Return the offset after the matches from offset h of diagonal k."""
    at = 8 * N_WORDS * (k + LAST_ROW)
    differ = unaligned_word(masks.bytes, at + (h >> 3)) >> np.uint64(h & 7)
    while differ == 0:
        h += 64 - (h & 7)
        differ = unaligned_word(masks.bytes, at + (h >> 3))
    return h + trailing_zeros(differ)


@core
def diagonals_of_row(s, lo, hi, query_len, ref_len, bound):
    """Return the first diagonal of row s and one behind its last, from those of the row before.

    Of others the end cannot be reached within the bound.
    """
    goal = ref_len - query_len
    first = max(lo - 1, max(goal - (bound - s), -query_len))
    return first, min(hi + 1, min(goal + (bound - s), ref_len)) + 1


@core
def close_row(rows, s, at, lo, n, query_len, ref_len):
    """Note where row s lies, with nulls on both sides; return True if the end is reached."""
    cells = rows.cells
    for i in range(PAD):
        cells[np.uint64(at - 1 - i)] = NULL
        cells[np.uint64(at + n + i)] = NULL
    row = np.uint64(s)
    rows.at[row], rows.lo[row], rows.hi[row] = at, lo, lo + n - 1
    behind = ref_len - query_len - lo
    return 0 <= behind < n and cells[np.uint64(at + behind)] == ref_len


@core
def first_rows(letters, query_len, ref_len, rows, last, bound, masks):
    """Compute rows until the end is reached or row `last` is done.

    Parameters
    ----------
    letters
        Codes 0 to 3, at most LONGEST a side.
    rows
        Workspace for ``last + 1`` rows.
    last
        At most LAST_ROW.

    Returns
    -------
    status, s
        FINISHED and the distance; EXCEEDED if that is above the bound; or GOING.
    """
    cells, planes = rows.cells, masks.planes
    _write_planes(letters.query, query_len, planes[0], planes[1])
    _write_planes(letters.ref, ref_len, planes[2], planes[3])
    low_mask = high_mask = np.int64(0)
    _add_diagonal(masks, query_len, ref_len, np.int64(0))
    at, lo, hi, s = np.int64(PAD), np.int64(0), np.int64(0), np.int64(0)
    for i in range(2 * PAD + 1):
        cells[i] = NULL
    cells[PAD] = _follow(masks, np.int64(0), np.int64(0))
    rows.at[0], rows.lo[0], rows.hi[0] = at, lo, hi
    if query_len == ref_len and cells[PAD] == ref_len:
        return FINISHED, s
    while s < last:
        s += 1
        first, behind = diagonals_of_row(s, lo, hi, query_len, ref_len, bound)
        n = behind - first
        start = at + hi - lo + 1 + 2 * PAD
        if n <= 0:
            return EXCEEDED, s
        if first < low_mask:
            _add_diagonal(masks, query_len, ref_len, first)
            low_mask = first
        if behind > high_mask + 1:
            high_mask = behind - 1
            _add_diagonal(masks, query_len, ref_len, high_mask)
        before = at + first - lo - 1
        for i in range(n):
            k = first + i
            cell = np.uint64(before + i)
            h = np.int64(
                next_offset(cells[cell], cells[cell + np.uint64(1)], cells[cell + np.uint64(2)])
            )
            h = min(h, min(query_len + k, ref_len))
            cells[np.uint64(start + i)] = np.int32(_follow(masks, k, h))
        at, lo, hi = start, first, behind - 1
        if close_row(rows, s, at, lo, n, query_len, ref_len):
            return FINISHED, s
    return GOING, s
