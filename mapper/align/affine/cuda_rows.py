"""Rows of gap-affine offsets in shared memory, for groups of threads: ring buffers, sizes, band.

Diagonal k of a row lies in column ``k mod width``, so that a narrow row may drift over any range of
diagonals. The rows themselves form ring buffers of as many as the recurrence looks back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.affine.wavefront import (
    AffinePenalties,
    Band,
    affine_cell,
    cell_origin,
    kept_diagonals,
    symbols_left,
)
from mapper.align.cuda.cooperative import GROUP_BLOCK, WARP
from mapper.align.cuda.worklist import WIDE_BLOCK, resident_blocks
from mapper.align.matches import NULL_16, slide
from mapper.cuda.api import SHARED_BYTES, device_function
from mapper.cuda.memory import Workspace

FAR = np.int32(2**30)
"""Beyond all diagonals, and more symbols than can be left."""


class Ring(NamedTuple):
    """Layout of the rows of a pair (all int32), in items of 16 bits of shared memory."""

    mismatch: int  # rows that the recurrence looks back
    opening: int
    extend: int
    n_match: int  # rows of M
    n_gap: int  # rows of I, and of D
    width: int  # columns, a power of two
    mask: int  # of the bits of a column
    bounds: int  # word of 32 bits: bounds of M's first row, then of its others, then the rows
    matches: int  # first row of M
    insertions: int
    deletions: int


class Row(NamedTuple):
    """First item of a row of each state."""

    match: int
    insertion: int
    deletion: int


class RowsBefore(NamedTuple):
    """The rows that a row looks back to: first items, lowest diagonals and numbers of cells."""

    match_x: int
    lo_x: int
    n_x: int
    outside_x: int  # offset of its diagonals without cells
    match_oe: int
    lo_oe: int
    n_oe: int
    insertion: int
    deletion: int
    lo_e: int
    n_e: int


@device_function
def ring_of(penalties, shape, bounds):
    """Return the rings of a pair whose bounds begin at word `bounds`."""
    extend = np.int32(penalties.gap_extend)
    n_match, n_gap, width = np.int32(shape.n_match), np.int32(shape.n_gap), np.int32(shape.width)
    matches = np.int32(np.int32(2) * np.int32(bounds + n_match))
    insertions = np.int32(matches + n_match * width)
    deletions = np.int32(insertions + n_gap * width)
    return Ring(
        np.int32(penalties.mismatch), np.int32(np.int32(penalties.gap_open) + extend), extend,
        n_match, n_gap, width, np.int32(width - np.int32(1)), bounds, matches, insertions,
        deletions,
    )  # fmt: skip


@device_function
def row_back(at, by, n):
    """Return the row of a ring of n written `by` rows before row `at`."""
    row = np.int32(at - by)
    return np.int32(row + n) if row < 0 else row


@device_function
def row_after(at, n):
    """Return the row of a ring of n written after row `at`."""
    row = np.int32(at + np.int32(1))
    return row if row < n else np.int32(0)


@device_function
def row_at(ring, row, gap_row):
    """Return the first items of row `row` of M and of row `gap_row` of I and D."""
    gap_at = np.int32(gap_row * ring.width)
    return Row(
        np.int32(ring.matches + row * ring.width), np.int32(ring.insertions + gap_at),
        np.int32(ring.deletions + gap_at),
    )  # fmt: skip


@device_function
def rows_before(state, ring, s, row, gap_row):
    """Return the rows that row s looks back to."""
    from_x, from_oe = (
        row_back(row, ring.mismatch, ring.n_match),
        row_back(row, ring.opening, ring.n_match),
    )
    lo_x, n_x = bounds_from(state, np.int32(ring.bounds + from_x))
    lo_oe, n_oe = bounds_from(state, np.int32(ring.bounds + from_oe))
    lo_e, n_e = bounds_from(state, np.int32(ring.bounds + row_back(row, ring.extend, ring.n_match)))
    gap_from = np.int32(row_back(gap_row, ring.extend, ring.n_gap) * ring.width)
    return RowsBefore(
        np.int32(ring.matches + from_x * ring.width), lo_x, n_x,
        np.int32(-1) if s == 0 else NULL_16,  # row 0 comes from a mismatch
        np.int32(ring.matches + from_oe * ring.width), lo_oe, n_oe,
        np.int32(ring.insertions + gap_from), np.int32(ring.deletions + gap_from), lo_e, n_e,
    )  # fmt: skip


@device_function
def diagonals_of(before, ring, s, goal, bound):
    """Return the lowest and highest diagonal of row s that can have cells and lead to the end."""
    lo, hi = FAR, np.int32(-FAR)
    if s == 0:
        lo, hi = np.int32(0), np.int32(0)
    if before.n_x > 0:
        lo, hi = before.lo_x, np.int32(before.lo_x + before.n_x - np.int32(1))
    if before.n_oe > 0:
        lo = min(lo, np.int32(before.lo_oe - np.int32(1)))
        hi = max(hi, np.int32(before.lo_oe + before.n_oe))
    if before.n_e > 0:
        lo = min(lo, np.int32(before.lo_e - np.int32(1)))
        hi = max(hi, np.int32(before.lo_e + before.n_e))
    slack = np.int32(bound - s)
    if ring.extend > 1:
        slack = np.int32(slack // ring.extend)
    return max(lo, np.int32(goal - slack)), min(hi, np.int32(goal + slack))


@device_function
def offset_on(rows, row_at, k, mask, lo, n, outside):
    """Return the offset on diagonal k of a row of n cells from `lo` on, `outside` elsewhere."""
    # Loaded in any case, so that no branch keeps loads from being under way together. One
    # comparison for both ends: below `lo` the difference wraps to a great number.
    offset = np.int32(rows[np.uint32(row_at + (k & mask))])
    return offset if np.uint32(np.int32(k - lo)) < np.uint32(n) else outside


@device_function
def write_cell(strings, rows, ring, before, row, k):
    """Compute the cell on diagonal k of a row, all states; return its origin."""
    mask, lo_oe, n_oe, lo_e, n_e = ring.mask, before.lo_oe, before.n_oe, before.lo_e, before.n_e
    above, below = np.int32(k + np.int32(1)), np.int32(k - np.int32(1))
    opened_i = offset_on(rows, before.match_oe, above, mask, lo_oe, n_oe, NULL_16)
    opened_d = offset_on(rows, before.match_oe, below, mask, lo_oe, n_oe, NULL_16)
    extended_i = offset_on(rows, before.insertion, above, mask, lo_e, n_e, NULL_16)
    extended_d = offset_on(rows, before.deletion, below, mask, lo_e, n_e, NULL_16)
    mismatch = offset_on(rows, before.match_x, k, mask, before.lo_x, before.n_x, before.outside_x)
    insertion, deletion, h = affine_cell(
        mismatch, opened_i, extended_i, opened_d, extended_d, np.int32(strings.query_len + k),
        strings.ref_len,
    )  # fmt: skip
    column = np.int32(k & ring.mask)
    rows[np.uint32(row.match + column)] = np.int16(slide(strings, h, k, NULL_16))
    rows[np.uint32(row.insertion + column)] = np.int16(max(insertion, NULL_16))
    rows[np.uint32(row.deletion + column)] = np.int16(max(deletion, NULL_16))
    return cell_origin(mismatch, opened_i, extended_i, opened_d, extended_d, insertion, deletion)


@device_function
def _has_none(rows, row, column):
    """Return True if a column of a row has no offset in any state."""
    # Mostly M has one, and the others need not be loaded.
    if rows[np.uint32(row.match + column)] >= 0:
        return False
    return max(rows[np.uint32(row.insertion + column)], rows[np.uint32(row.deletion + column)]) < 0


@device_function
def trimmed(rows, ring, row, lo, hi):
    """Drop diagonals without any offset from both ends of a row; return its new bounds."""
    while lo <= hi and _has_none(rows, row, lo & ring.mask):
        lo = np.int32(lo + np.int32(1))
    while lo <= hi and _has_none(rows, row, hi & ring.mask):
        hi = np.int32(hi - np.int32(1))
    return lo, hi


@device_function
def bounds_from(state, word):
    """Unpack the lowest diagonal and the number of cells of a row from a word of `state`."""
    both = np.int32(state[np.uint32(word)])
    return np.int32(both >> np.int32(16)), np.int32(both & np.int32(0xFFFF))


@device_function
def note_bounds(state, word, lo, hi):
    """Pack the bounds of a row for :func:`bounds_from`; without cells where `lo` is above `hi`."""
    n = np.int32(hi - lo + np.int32(1))
    state[np.uint32(word)] = np.int32(lo << np.int32(16)) | n if n > 0 else np.int32(0)


@device_function
def cut_bounds(state, ring, lo, hi):
    """Drop the cells outside `lo` to `hi` from all rows of the ring; called by all threads."""
    for other in range(ring.n_match):
        word = np.int32(ring.bounds + np.int32(other))
        its_lo, its_n = bounds_from(state, word)
        its_hi = np.int32(its_lo + its_n - np.int32(1))
        note_bounds(state, word, max(its_lo, lo), min(its_hi, hi))


LARGE_BOUND = -int(NULL_16) // 2
"""Greatest (divided) penalty of a band."""

MOST_BAND_BLOCKS, MOST_WIDE_BLOCKS = 8, 16
"""Blocks of a multiprocessor by the registers of a thread: in a band, and a block a pair."""

# Words of 32 bits of a group in shared memory, before its rows of offsets: the next pair of the
# worklist, the fewest symbols left of two rows, and the bounds of every row of M's ring.
NEXT_PAIR, FEWEST, BOUNDS = 0, 1, 3


class SearchSpace(NamedTuple):
    """Workspace of the tracebacks of all groups of a launch."""

    cells: Any  # uint8 (n_groups * cells of a group,)
    at: Any  # int32 (n_groups * (bound + 1),): where a row's origin of diagonal 0 would lie
    events: Any  # uint32 (n_groups * (bound + 1),)
    zeros: Any  # int64 (bound + 1,)


class SearchShape(NamedTuple):
    """Threads and shared memory of the groups of a block."""

    log_lanes: int  # of a group
    groups: int  # of a block; further threads are idle
    bound: int  # greatest (divided) penalty
    width: int  # columns of a row, a power of two
    n_match: int  # rows of M that are held
    n_gap: int  # rows of I, and of D
    stride: int  # words of 32 bits of a group
    cells: int  # origins of a pair

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * self.groups * self.stride


def _rows_held(penalties: AffinePenalties, width: int) -> tuple[int, int, int]:
    """Return the numbers of rows of M and of each gap state, and the words of a group."""
    opening = penalties.gap_open + penalties.gap_extend
    n_match, n_gap = max(penalties.mismatch, opening) + 1, penalties.gap_extend + 1
    return n_match, n_gap, BOUNDS + n_match + (n_match + 2 * n_gap) * width // 2


def block_shape(penalties: AffinePenalties, width: int) -> SearchShape:
    """Return the shape for exact alignment by a block, in rows of `width` cells, a power of two."""
    n_match, n_gap, words = _rows_held(penalties, width)
    # A diamond is widest where half of the penalty is spent; never mind what opens a gap.
    bound = min(width * penalties.gap_extend, -int(NULL_16) // 2)
    return SearchShape(
        log_lanes=WIDE_BLOCK.bit_length() - 1,
        groups=1,
        bound=bound,
        width=width,
        n_match=n_match,
        n_gap=n_gap,
        stride=words,
        cells=width * bound // 2 + 4 * bound,
    )


def band_shape(penalties: AffinePenalties, band: Band, bound: int, lanes: int) -> SearchShape:
    """Return the shape for penalties up to `bound` and groups of `lanes`, or more in wide bands."""
    # After a cut rows grow by a diagonal on each side for every gap symbol.
    grown = band.width + 2 * (band.interval // penalties.gap_extend + 2)
    width = max(64, 1 << (grown - 1).bit_length())
    n_match, n_gap, words = _rows_held(penalties, width)
    stride = 8 * (-(-words // 8) | 1)  # an odd multiple of 8: groups of a warp differ in banks
    lanes = min(WARP, max(lanes, width // 8))  # so that rows take as much of a warp's room
    of_warp = WARP // lanes
    n_warps = min(GROUP_BLOCK // WARP, SHARED_BYTES // (4 * stride * of_warp))
    return SearchShape(
        log_lanes=lanes.bit_length() - 1,
        groups=max(1, n_warps) * of_warp,
        bound=bound,
        width=width,
        n_match=n_match,
        n_gap=n_gap,
        stride=stride,
        cells=bound * grown,
    )


def search_space(
    space: Workspace, name: str, shape: SearchShape, n_pairs: int, most_resident: int,
    want_path: bool,
) -> tuple[int, SearchSpace]:  # fmt: skip
    """Return how many blocks to launch for up to `n_pairs`, and their workspace.

    `most_resident`: blocks of a multiprocessor by the registers of a thread.
    """
    cells, rows = (shape.cells, shape.bound + 1) if want_path else (1, 1)
    n_blocks = resident_blocks(
        -(-n_pairs // shape.groups), shape.shared_bytes, most_resident,
        shape.groups * (cells + 8 * rows),
    )  # fmt: skip
    n_groups = n_blocks * shape.groups
    return n_blocks, SearchSpace(
        space.device(f"{name} cells", n_groups * cells, np.uint8),
        space.device(f"{name} at", n_groups * rows, np.int32),
        space.device(f"{name} events", n_groups * rows, np.uint32),
        space.upload(f"{name} zeros", np.zeros(rows, np.int64)),
    )


# --- adaptive band ---

_BITS = np.int32(14)
"""Bits of a cell's index in its row, below the symbols left: no row has so many cells."""

_CELL = np.int32((1 << 14) - 1)


@device_function
def fewest_left(group, strings, rows, ring, row, lo, hi):
    """Return the fewest symbols left of a thread's cells of M, with the diagonal; FAR without."""
    fewest = FAR
    k = np.int32(lo + group.lane)
    while k <= hi:
        h = np.int32(rows[np.uint32(row.match + (k & ring.mask))])
        if h >= 0:
            left = np.int32(symbols_left(strings, h, k))
            # Of equals the lowest diagonal.
            fewest = min(fewest, np.int32((left << _BITS) | np.int32(k - lo)))
        k = np.int32(k + group.n_lanes)
    return fewest


@device_function
def kept_around(fewest, lo, hi, width):
    """Return the diagonals that the band keeps, by the minimum of :func:`fewest_left`."""
    best_k = lo
    if fewest != FAR:
        best_k = np.int32(lo + (fewest & _CELL))
    first, last = kept_diagonals(best_k, lo, hi, width)
    return np.int32(first), np.int32(last)
