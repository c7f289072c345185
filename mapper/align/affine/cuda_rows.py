"""Rows of gap-affine offsets in shared memory, as rings: what the kernels that use them share.

Diagonal k of a row lies in column ``k mod width``, so that narrow rows may wander as far as they
like. The rows themselves are rings, too, of as many as the recurrence looks back.

Room of gap-affine alignment on CUDA devices: by blocks of threads, and by groups in a band.

Which diagonals an adaptive band keeps, found by threads together, for rows of ``flat_ring``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.affine.wavefront import (
    AffinePenalties,
    Band,
    affine_cell,
    kept_diagonals,
    symbols_left,
)
from mapper.align.cuda.cooperative import GROUP_BLOCK, WARP
from mapper.align.cuda.worklist import WIDE_BLOCK, resident_blocks
from mapper.align.matches import slide
from mapper.cuda.api import SHARED_BYTES, device_function
from mapper.cuda.memory import Workspace

NULL_16 = np.int32(-(2**15))
"""Offset of a cell that does not exist, where a cell takes 16 bits."""

FAR = np.int32(2**30)
"""Beyond all diagonals, and more symbols than can be left."""


class Ring(NamedTuple):
    """The rows of a pair, all int32: items of 16 bits from some shared memory's start on."""

    mismatch: int  # rows that the recurrence looks back
    opening: int
    extend: int
    n_match: int  # rows of M
    n_gap: int  # rows of I, and of D
    width: int  # columns, a power of two
    mask: int  # of the bits of a column
    bounds: int  # word of 32 bits with the bounds of M's first row; then its others', then rows
    matches: int  # first row of M
    insertions: int
    deletions: int


class Row(NamedTuple):
    """Where a row of each state lies."""

    match: int
    insertion: int
    deletion: int


class RowsBefore(NamedTuple):
    """The rows that a row looks back to: where they lie, their lowest diagonals, and cells."""

    match_x: int
    lo_x: int
    n_x: int
    beside_x: int  # what is found where it has no cells
    match_oe: int
    lo_oe: int
    n_oe: int
    insertion: int
    deletion: int
    lo_e: int
    n_e: int


@device_function
def ring_of(penalties, shape, bounds):
    """The ring of a pair whose words begin with `bounds`."""
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
    """The row of a ring of n that was written `by` rows before row `at`."""
    row = np.int32(at - by)
    return np.int32(row + n) if row < 0 else row


@device_function
def row_after(at, n):
    """The row of a ring of n that is written after row `at`."""
    row = np.int32(at + np.int32(1))
    return row if row < n else np.int32(0)


@device_function
def row_at(ring, row, gap_row):
    """The rows of M's ring and of the others'."""
    gap_at = np.int32(gap_row * ring.width)
    return Row(
        np.int32(ring.matches + row * ring.width), np.int32(ring.insertions + gap_at),
        np.int32(ring.deletions + gap_at),
    )  # fmt: skip


@device_function
def rows_before(state, ring, s, row, gap_row):
    """What row s looks back to."""
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
    """Lowest and highest diagonal of row s: there may be cells, and the end within the bound."""
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
def offset_on(rows, row_at, k, mask, lo, n, beside):
    """The offset on diagonal k of a row of n cells from `lo` on; `beside` them, what is given."""
    # Loaded in any case, so that no branch keeps loads from being under way together. One
    # comparison for both ends: below `lo` the difference wraps to a great number.
    offset = np.int32(rows[np.uint32(row_at + (k & mask))])
    return offset if np.uint32(np.int32(k - lo)) < np.uint32(n) else beside


@device_function
def write_cell(strings, rows, ring, before, row, k):
    """Compute the cell on diagonal k of a row, all states; return where it came from."""
    mask, lo_oe, n_oe, lo_e, n_e = ring.mask, before.lo_oe, before.n_oe, before.lo_e, before.n_e
    above, below = np.int32(k + np.int32(1)), np.int32(k - np.int32(1))
    opened_i = offset_on(rows, before.match_oe, above, mask, lo_oe, n_oe, NULL_16)
    opened_d = offset_on(rows, before.match_oe, below, mask, lo_oe, n_oe, NULL_16)
    extended_i = offset_on(rows, before.insertion, above, mask, lo_e, n_e, NULL_16)
    extended_d = offset_on(rows, before.deletion, below, mask, lo_e, n_e, NULL_16)
    mismatch = offset_on(rows, before.match_x, k, mask, before.lo_x, before.n_x, before.beside_x)
    insertion, deletion, h, origin = affine_cell(
        mismatch, opened_i, extended_i, opened_d, extended_d, np.int32(strings.query_len + k),
        strings.ref_len,
    )  # fmt: skip
    column = np.int32(k & ring.mask)
    rows[np.uint32(row.match + column)] = np.int16(slide(strings, h, k, NULL_16))
    rows[np.uint32(row.insertion + column)] = np.int16(max(insertion, NULL_16))
    rows[np.uint32(row.deletion + column)] = np.int16(max(deletion, NULL_16))
    return origin


@device_function
def _has_none(rows, row, column):
    """Whether a column of a row holds no offset in any state."""
    # Mostly M has one, and the others need not be loaded.
    if rows[np.uint32(row.match + column)] >= 0:
        return False
    return max(rows[np.uint32(row.insertion + column)], rows[np.uint32(row.deletion + column)]) < 0


@device_function
def trimmed(rows, ring, row, lo, hi):
    """Take columns without any offset off both sides of a row; return its lowest and highest."""
    while lo <= hi and _has_none(rows, row, lo & ring.mask):
        lo = np.int32(lo + np.int32(1))
    while lo <= hi and _has_none(rows, row, hi & ring.mask):
        hi = np.int32(hi - np.int32(1))
    return lo, hi


@device_function
def bounds_from(state, word):
    """The lowest diagonal and the number of cells of a row, which a word of `state` tells."""
    both = np.int32(state[np.uint32(word)])
    return np.int32(both >> np.int32(16)), np.int32(both & np.int32(0xFFFF))


@device_function
def note_bounds(state, word, lo, hi):
    """Write what :func:`bounds_from` reads; no cells where `lo` is above `hi`."""
    n = np.int32(hi - lo + np.int32(1))
    state[np.uint32(word)] = np.int32(lo << np.int32(16)) | n if n > 0 else np.int32(0)


@device_function
def cut_bounds(state, ring, lo, hi):
    """Leave all rows of the ring the cells from `lo` to `hi` only; by all threads alike."""
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
"""Of the number of a cell in its row, below the symbols left: no row has so many cells."""

_CELL = np.int32((1 << 14) - 1)


@device_function
def fewest_left(group, strings, rows, ring, row, lo, hi):
    """Of a lane's cells of M the fewest symbols left, and on which diagonal; FAR without cells."""
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
    """The diagonals that are kept, by the least of what :func:`fewest_left` returned."""
    best_k = lo
    if fewest != FAR:
        best_k = np.int32(lo + (fewest & _CELL))
    first, last = kept_diagonals(best_k, lo, hi, width)
    return np.int32(first), np.int32(last)
