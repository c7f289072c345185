"""Edit-distance wavefronts of global alignments, by letters: vector code of the CPU.

The cells are those of ``wavefront.py``, with one difference that no path shows: a cell that passes
the end of a sequence stays at that end instead of becoming null. All that it leads to has been
reached before with fewer edits, so that it is on no shortest path. So no cell of a row has to be
tested: a block of neighbouring cells is computed at a time, and each is compared by four or eight
symbols. Only those whose symbols all agree are followed on. The first rows of short pairs come from
``short_rows.py``.

Before the rows get long, a narrow band of diagonals runs ahead and finds the distance of some
alignment, mostly the best one. That is a bound: of the cells after it only those are computed from
which the end can be reached within it, half of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.edit.short_rows import (
    LAST_ROW,
    LONGEST,
    close_row,
    diagonals_of_row,
    first_rows,
)
from mapper.align.edit.wavefront import EXCEEDED, FINISHED, GOING, NO_ROOM, PAD, next_offset
from mapper.align.matches import NULL, run_to_fence, unaligned_half, unaligned_word
from mapper.jit.accelerate import core, disjoint_core, driver
from mapper.jit.intrinsics import trailing_zeros, trailing_zeros_32
from mapper.jit.prebuilt import compiles_for

BLOCK = 16
"""Cells computed at a time; after the last of a row are as many more, which are never read."""

ROWS_BEFORE_BAND = 32
"""Rows before the band runs ahead: for a nearer end it would cost more than it saves."""

BAND_INTERVAL = 8
"""Rows after which the band is moved."""

_BAND_ROW = 2 * BLOCK
_BAND_AT = BLOCK // 2


class Letterwise(NamedTuple):
    """Workspace for a block of cells and for the band; arrays of BLOCK items but for `band`."""

    offsets: np.ndarray  # int32
    at_query: np.ndarray  # int32
    at_ref: np.ndarray  # int32
    band: np.ndarray  # int32: two rows, with nulls on both sides


@driver
def new_letterwise():
    """Allocate a workspace."""
    return Letterwise(
        np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int32),
        np.empty(2 * _BAND_ROW + BLOCK, np.int32),
    )  # fmt: skip


@core
def _offset(before, i, k, query_len, ref_len):
    """Return the offset of a cell on diagonal k, before its matches; `before` from k - i - 1 on."""
    h = next_offset(before[i], before[i + np.uint64(1)], before[i + np.uint64(2)])
    return min(h, min(np.int32(query_len + k), ref_len))


@core
def _places(h, k):
    """Return where to compare query and reference; of cells that do not exist, some symbols."""
    at_ref = max(h, np.int32(0))
    return max(np.int32(at_ref - k), np.int32(0)), at_ref


@disjoint_core
def _find_offsets(before, offsets, at_query, at_ref, lo, query_len, ref_len):
    """Compute BLOCK offsets, and where to compare.

    Parameters
    ----------
    before
        The previous row from diagonal ``lo - 1`` (int32) on.
    """
    for lane in range(BLOCK):
        i = np.uint64(lane)
        k = np.int32(lo + np.int32(lane))
        offsets[i] = h = _offset(before, i, k, query_len, ref_len)
        at_query[i], at_ref[i] = _places(h, k)


@disjoint_core
def _add_runs(query, ref, offsets, at_query, at_ref, after):
    """Write BLOCK cells, one after another: offsets and runs of up to eight matches.

    Returns
    -------
    At least 8 if there is a run of eight, which may go on.
    """
    any_run = np.uint64(0)
    for lane in range(BLOCK):
        i = np.uint64(lane)
        differ = unaligned_word(query, np.int64(at_query[i])) ^ unaligned_word(
            ref, np.int64(at_ref[i])
        )
        run = np.uint64(trailing_zeros(differ) >> 3)
        any_run |= run
        after[i] = np.int32(offsets[i] + np.int32(run))
    return any_run


@core
def block_one_by_one(query, ref, space, before, after, lo, query_len, ref_len):
    """Compute BLOCK cells; see :func:`block_by_vectors`."""
    _find_offsets(before, space.offsets, space.at_query, space.at_ref, lo, query_len, ref_len)
    any_run = _add_runs(query, ref, space.offsets, space.at_query, space.at_ref, after)
    more = np.uint64(0)
    if any_run >= np.uint64(8):
        # Compared again: to load together what has just been stored one by one takes longer.
        for lane in range(BLOCK):
            i = np.uint64(lane)
            differ = unaligned_word(query, np.int64(space.at_query[i])) ^ unaligned_word(
                ref, np.int64(space.at_ref[i])
            )
            more |= np.uint64(differ == 0) << i
    return more


@disjoint_core
def _find_cells(query, ref, before, after, lo, query_len, ref_len):
    more = np.int32(0)
    for lane in range(BLOCK):
        i = np.uint64(lane)
        k = np.int32(lo + np.int32(lane))
        h = _offset(before, i, k, query_len, ref_len)
        at_query, at_ref = _places(h, k)
        differ = np.uint32(
            unaligned_half(query, np.int64(at_query)) ^ unaligned_half(ref, np.int64(at_ref))
        )
        after[i] = np.int32(h + np.int32(trailing_zeros_32(differ) >> np.int32(3)))
        more |= np.int32(differ == np.uint32(0)) << np.int32(lane)
    return more


@core
def block_by_vectors(query, ref, space, before, after, lo, query_len, ref_len):
    """Compute BLOCK cells, from diagonal lo (int32) on.

    Parameters
    ----------
    query, ref
        Letters.
    before, after
        The previous row from diagonal ``lo - 1`` on, and the row from `lo` on.

    Returns
    -------
    A bit (of a uint64) for each cell that matches may continue from.
    """
    return np.uint64(_find_cells(query, ref, before, after, lo, query_len, ref_len))


_compute_block = block_by_vectors if compiles_for("avx512f") else block_one_by_one
"""AVX-512 fetches from many places at once, and counts the zeros of words in vectors. Without it
the compiler makes of such code what takes 1.3 to 2 times as long as one cell after another."""


@core
def _compute_row(letters, query_len, ref_len, space, cells, before, at, lo, n):
    """Compute n cells, from diagonal lo on.

    `before` and `at` are their places: of diagonal ``lo - 1`` in the previous row, of `lo` in the
    row.
    """
    for first in range(0, n, BLOCK):
        bits = _compute_block(
            letters.query, letters.ref, space, cells[np.uint64(before + first) :],
            cells[np.uint64(at + first) :], np.int32(lo + first), np.int32(query_len),
            np.int32(ref_len),
        )  # fmt: skip
        while bits != 0:
            i = first + trailing_zeros(bits)
            bits &= bits - np.uint64(1)
            h = np.int64(cells[np.uint64(at + i)])
            if h >= 0 and i < n:
                run = run_to_fence(letters, h - lo - i, h)
                cells[np.uint64(at + i)] = np.int32(h + run)


@core
def _rows_on(letters, query_len, ref_len, space, rows, s, last, bound):
    """Continue from row s, which is done, until the end is reached or row `last` is done.

    Returns
    -------
    status, s
        FINISHED and the distance; EXCEEDED if that is above the bound; NO_ROOM; or GOING.
    """
    cells = rows.cells
    at, lo, hi = rows.at[s], rows.lo[s], rows.hi[s]
    while s < last:
        s += 1
        first, behind = diagonals_of_row(s, lo, hi, query_len, ref_len, bound)
        n = behind - first
        start = at + hi - lo + 1 + 2 * PAD
        if n <= 0:
            return EXCEEDED, s
        if start + n + BLOCK + PAD > len(cells):
            return NO_ROOM, s
        _compute_row(
            letters, query_len, ref_len, space, cells, at + first - lo - 1, start, first, n
        )  # fmt: skip
        at, lo, hi = start, first, behind - 1
        if close_row(rows, s, at, lo, n, query_len, ref_len):
            return FINISHED, s
    return GOING, s


@core
def _farthest(cells, at, lo, n):
    """Return which of n cells from diagonal lo on has consumed most symbols."""
    farthest, most = np.int64(0), np.int64(-1)
    for i in range(n):
        symbols = 2 * np.int64(cells[np.uint64(at + i)]) - lo - i
        if symbols > most:
            farthest, most = np.int64(i), symbols
    return farthest


@core
def _move(band, at, by):
    """Move the cells of a band's row by some diagonals; new ones are null."""
    for j in range(BLOCK):
        i = j if by >= 0 else BLOCK - 1 - j
        band[at + i] = band[at + i + by] if 0 <= i + by < BLOCK else NULL


@core
def _bound_by_band(letters, query_len, ref_len, space, rows, s, bound):
    """Return the distance of the alignment that a band finds from row s on, else `bound`."""
    goal = ref_len - query_len
    lo, n = rows.lo[s], rows.hi[s] - rows.lo[s] + 1
    if n < BLOCK:
        return bound
    farthest = _farthest(rows.cells, rows.at[s], lo, n)
    skipped = max(np.int64(0), min(farthest - BLOCK // 2, n - BLOCK))
    band = space.band
    for i in range(len(band)):
        band[i] = NULL
    at = np.int64(_BAND_AT)
    for i in range(BLOCK):
        band[at + i] = rows.cells[rows.at[s] + skipped + i]
    lo += skipped
    while s < bound:
        s += 1
        before = at
        at = _BAND_ROW + 2 * _BAND_AT - before
        _compute_row(
            letters, query_len, ref_len, space, band, before - 1, at, lo, np.int64(BLOCK)
        )  # fmt: skip
        if lo <= goal < lo + BLOCK and band[at + goal - lo] == ref_len:
            return s
        if s % BAND_INTERVAL == 0:
            by = _farthest(band, at, lo, BLOCK) - BLOCK // 2
            by = max(-query_len, min(lo + by, ref_len - BLOCK + 1)) - lo
            _move(band, at, by)
            lo += by
    return bound


@core
def search_by_letters(letters, plain, query_len, ref_len, bound, rows, most, space, masks):
    """Search the end of a global alignment row by row, keeping all rows.

    Parameters
    ----------
    letters
        Fenced.
    plain
        True if their codes are 0 to 3.
    bound
        Greatest distance of interest.
    rows
        Workspace for ``most + 1`` rows.
    most
        Greatest distance that is searched for.
    space
        :func:`new_letterwise`.
    masks
        :func:`mapper.align.edit.short_rows.new_masks`.

    Returns
    -------
    status, s
        FINISHED and the distance; EXCEEDED; or NO_ROOM, where the distance may be above `most`.
    """
    goal = ref_len - query_len
    if abs(goal) > bound:
        return EXCEEDED, np.int64(0)
    cells = rows.cells
    last = min(min(bound, most), np.int64(ROWS_BEFORE_BAND))
    if plain and max(query_len, ref_len) <= LONGEST:
        status, s = first_rows(
            letters, query_len, ref_len, rows, min(last, np.int64(LAST_ROW)), bound, masks
        )  # fmt: skip
    else:
        rows.at[0], rows.lo[0], rows.hi[0] = PAD, 0, 0
        for i in range(2 * PAD + 1):
            cells[i] = NULL
        cells[PAD] = run_to_fence(letters, np.int64(0), np.int64(0))
        status, s = GOING, np.int64(0)
        if goal == 0 and cells[PAD] == ref_len:
            status = FINISHED
    if status == GOING:
        status, s = _rows_on(letters, query_len, ref_len, space, rows, s, last, bound)
    if status == GOING and s < bound:
        known = _bound_by_band(
            letters, query_len, ref_len, space, rows, s, min(bound, most + 1)
        )  # fmt: skip
        if known > most:
            return NO_ROOM, s
        status, s = _rows_on(letters, query_len, ref_len, space, rows, s, known, known)
    if status == GOING:
        status = EXCEEDED if s == bound else NO_ROOM
    return status, s
