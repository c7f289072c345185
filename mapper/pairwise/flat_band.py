"""CUDA kernel of gap-affine alignment in an adaptive band: a group of lanes a pair.

Rows are bounded, trimmed and cut as ``wavefront_affine`` does it, for the same cells and so the
same, perhaps not optimal, result. The lanes of a group share out the diagonals of a row; of a band
of usual width a group of eight leaves few idle. The groups of a warp begin their pairs together and
are at the same row, so that the warp stays in step. Rows of offsets are rings in shared memory
(``flat_ring.py``), 16 bits a cell; where cells came from goes to global memory, a byte a cell, the
bytes of a row side by side. One lane traces the path. Warps take pairs from a list, the next as
soon as they have ended some.

References
----------
Aguado-Puig et al. (2023), doi:10.1093/bioinformatics/btad061, section 3.5.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from mapper.device.memory import Workspace, multiprocessors, total_bytes
from mapper.device.seam import SHARED_BYTES, cuda, device_function, kernel
from mapper.pairwise.affine_origins import (
    DELETION_OPENED,
    INSERTION_OPENED,
    Origins,
    gap_origin,
    match_origin,
)
from mapper.pairwise.cuda_batch import CUT, DONE, LEFT
from mapper.pairwise.flat_block_affine import write_listed_path
from mapper.pairwise.flat_kernels import strings_of, two_bits
from mapper.pairwise.flat_ring import FAR, NULL_16, has_none, offset_on, row_back
from mapper.pairwise.flat_warp import (
    GROUP_BLOCK,
    WARP,
    any_lane,
    blocks_by_shared,
    lanes_of_warp_meet,
)
from mapper.pairwise.strip import slide
from mapper.pairwise.wavefront_affine import (
    AffinePenalties,
    Band,
    highest_bound,
    kept_diagonals,
    next_deletion,
    next_insertion,
    next_match,
    symbols_left,
)
from mapper.pairwise.wavefront_edit import EXCEEDED, FINISHED, GOING, NO_ROOM

LARGE_BOUND = -int(NULL_16) // 2
"""Greatest (divided) penalty of a band."""

_MOST_BLOCKS = 8
"""Of a multiprocessor, by the registers of a thread."""

# What a group keeps in shared memory before its rows, in words of 32 bits: the pair that its warp
# takes next, the fewest symbols left of two rows, and the bounds of every row of M's ring.
_NEXT, _FEWEST, _BOUNDS = 0, 1, 3


class BandSpace(NamedTuple):
    """Where the origins and events of all groups of a launch lie."""

    cells: Any  # uint8 (n_groups * cells of a group,)
    at: Any  # int32 (n_groups * (bound + 1),): where a row's origin of diagonal 0 would lie
    events: Any  # uint32 (n_groups * (bound + 1),)
    zeros: Any  # int64 (bound + 1,)


class BandShape(NamedTuple):
    """How the lanes and the shared memory of a block are dealt to groups."""

    log_lanes: int  # of a group
    groups: int  # of a block; threads beyond them have nothing to do
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


def band_shape(penalties: AffinePenalties, band: Band, bound: int, lanes: int) -> BandShape:
    """Return the shape for penalties up to `bound` and groups of `lanes`, or more in wide bands."""
    # After a cut rows grow by a diagonal on each side for every gap symbol.
    grown = band.width + 2 * (band.interval // penalties.gap_extend + 2)
    width = max(64, 1 << (grown - 1).bit_length())
    opening = penalties.gap_open + penalties.gap_extend
    n_match, n_gap = max(penalties.mismatch, opening) + 1, penalties.gap_extend + 1
    words = _BOUNDS + n_match + (n_match + 2 * n_gap) * width // 2
    stride = 8 * (-(-words // 8) | 1)  # an odd multiple of 8: groups of a warp differ in banks
    lanes = min(WARP, max(lanes, width // 8))  # so that rows take as much of a warp's room
    of_warp = WARP // lanes
    n_warps = min(GROUP_BLOCK // WARP, SHARED_BYTES // (4 * stride * of_warp))
    return BandShape(
        log_lanes=lanes.bit_length() - 1,
        groups=max(1, n_warps) * of_warp,
        bound=bound,
        width=width,
        n_match=n_match,
        n_gap=n_gap,
        stride=stride,
        cells=bound * grown,
    )


def band_space(
    space: Workspace, name: str, shape: BandShape, n_pairs: int, want_path: bool
) -> tuple[int, BandSpace]:
    """Return how many blocks to launch for up to `n_pairs`, and their work space."""
    cells, rows = (shape.cells, shape.bound + 1) if want_path else (1, 1)
    n_blocks = min(
        -(-n_pairs // shape.groups),
        multiprocessors() * blocks_by_shared(shape.shared_bytes, _MOST_BLOCKS),
        max(1, (total_bytes() >> 5) // (shape.groups * (cells + 8 * rows))),
    )
    n_groups = n_blocks * shape.groups
    return n_blocks, BandSpace(
        space.device(f"{name} cells", n_groups * cells, np.uint8),
        space.device(f"{name} at", n_groups * rows, np.int32),
        space.device(f"{name} events", n_groups * rows, np.uint32),
        space.upload(f"{name} zeros", np.zeros(rows, np.int64)),
    )


@device_function
def _bounds_from(state, before):
    """The lowest diagonal and the number of cells of a row of M's ring."""
    both = np.int32(state[np.uint32(before)])
    return np.int32(both >> np.int32(16)), np.int32(both & np.int32(0xFFFF))


@device_function
def _note_bounds(state, row, lo, hi):
    """Write what :func:`_bounds_from` reads; no cells where `lo` is above `hi`."""
    n = np.int32(hi - lo + np.int32(1))
    state[np.uint32(row)] = np.int32(lo << np.int32(16)) | n if n > 0 else np.int32(0)


@device_function
def _fewest_left(strings, rows, match_at, mask, lo, hi, lane, lanes):
    """Of a lane's cells of M the fewest symbols left, and on which diagonal from `lo` on."""
    fewest = FAR
    k = np.int32(lo + lane)
    while k <= hi:
        h = np.int32(rows[np.uint32(match_at + (k & mask))])
        if h >= 0:
            left = np.int32(symbols_left(strings, h, k))
            # Of equals the lowest diagonal; a row has fewer than 2^14.
            fewest = min(fewest, np.int32((left << np.int32(14)) | np.int32(k - lo)))
        k = np.int32(k + lanes)
    return fewest


@device_function
def search_in_band(strings, penalties, band, limit, shape, state, rows, own, cells, at, keep, lane,
                   lanes, running):  # fmt: skip
    """Search the end, row after row; called by all lanes of a warp together.

    Parameters
    ----------
    limit
        Penalties above it are of no interest.
    state, rows
        Shared memory, as int32 and int16; `own` is the word at which the group's begins. All lanes
        of a group write the same bounds of rows, and read what they wrote themselves.
    cells, at
        As those of :class:`BandSpace`, of the group.
    keep
        Whether to note where cells came from.
    running
        Whether the group has a pair.

    Returns
    -------
    status, s, cut
        FINISHED and the penalty, EXCEEDED or NO_ROOM; whether the band has cut cells off.
    """
    strings = two_bits(strings)
    x, extend = np.int32(penalties.mismatch), np.int32(penalties.gap_extend)
    opening = np.int32(np.int32(penalties.gap_open) + extend)
    n_match, n_gap, width = np.int32(shape.n_match), np.int32(shape.n_gap), np.int32(shape.width)
    mask = np.int32(width - np.int32(1))
    most_s, most_cells = np.int32(shape.bound), np.int32(shape.cells)
    band_width, interval = np.int32(band.width), np.int32(band.interval)
    bounds = np.int32(own + np.int32(_BOUNDS))
    matches = np.int32(np.int32(2) * np.int32(bounds + n_match))
    insertions = np.int32(matches + n_match * width)
    deletions = np.int32(insertions + n_gap * width)
    goal = np.int32(strings.ref_len - strings.query_len)
    bound = np.int32(limit)
    for other in range(n_match):
        state[np.uint32(bounds + np.int32(other))] = 0
    fewest_at = np.int32(own + np.int32(_FEWEST))
    if lane < 2:
        state[np.uint32(fewest_at + lane)] = FAR
    # These are the same of all groups of the warp.
    s, row, gap_row, to_cut = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
    turn = np.int32(0)
    lo, hi, n, end = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
    cell_at = np.int32(0)
    cut = False
    status = np.int32(GOING if running else EXCEEDED)
    lanes_of_warp_meet()
    while any_lane(status == GOING):
        match_at = np.int32(matches + row * width)
        insertion_at = np.int32(insertions + gap_row * width)
        deletion_at = np.int32(deletions + gap_row * width)
        if status == GOING:
            from_x, from_oe = row_back(row, x, n_match), row_back(row, opening, n_match)
            lo_x, n_x = _bounds_from(state, np.int32(bounds + from_x))
            lo_oe, n_oe = _bounds_from(state, np.int32(bounds + from_oe))
            lo_e, n_e = _bounds_from(state, np.int32(bounds + row_back(row, extend, n_match)))
            lo, hi = FAR, np.int32(-FAR)
            if s == 0:
                lo, hi = np.int32(0), np.int32(0)
            if n_x > 0:
                lo, hi = lo_x, np.int32(lo_x + n_x - np.int32(1))
            if n_oe > 0:
                lo = min(lo, np.int32(lo_oe - np.int32(1)))
                hi = max(hi, np.int32(lo_oe + n_oe))
            if n_e > 0:
                lo = min(lo, np.int32(lo_e - np.int32(1)))
                hi = max(hi, np.int32(lo_e + n_e))
            slack = np.int32(bound - s)
            if extend > 1:
                slack = np.int32(slack // extend)
            lo, hi = max(lo, np.int32(goal - slack)), min(hi, np.int32(goal + slack))
            n = max(np.int32(hi - lo + np.int32(1)), np.int32(0))
            if s > bound:
                status = np.int32(EXCEEDED)
            elif s > most_s or n > width or (keep and cell_at + n > most_cells):
                status = np.int32(NO_ROOM)
            else:
                if keep and lane == 0:
                    at[np.uint32(s)] = np.int32(cell_at - lo)
                gap_from = np.int32(row_back(gap_row, extend, n_gap) * width)
                insertion_from = np.int32(insertions + gap_from)
                deletion_from = np.int32(deletions + gap_from)
                match_x = np.int32(matches + from_x * width)
                match_oe = np.int32(matches + from_oe * width)
                before = np.int32(-1) if s == 0 else NULL_16  # row 0 comes from a mismatch
                k = np.int32(lo + lane)
                while k <= hi:
                    above, below = np.int32(k + np.int32(1)), np.int32(k - np.int32(1))
                    opened_i = offset_on(rows, match_oe, above, mask, lo_oe, n_oe, NULL_16)
                    opened_d = offset_on(rows, match_oe, below, mask, lo_oe, n_oe, NULL_16)
                    extended_i = offset_on(rows, insertion_from, above, mask, lo_e, n_e, NULL_16)
                    extended_d = offset_on(rows, deletion_from, below, mask, lo_e, n_e, NULL_16)
                    mismatch = offset_on(rows, match_x, k, mask, lo_x, n_x, before)
                    insertion = np.int32(
                        next_insertion(opened_i, extended_i, np.int32(strings.query_len + k))
                    )
                    deletion = np.int32(next_deletion(opened_d, extended_d, strings.ref_len))
                    h = np.int32(next_match(mismatch, insertion, deletion))
                    if keep:
                        origin = gap_origin(opened_i, extended_i, INSERTION_OPENED)
                        origin |= gap_origin(opened_d, extended_d, DELETION_OPENED)
                        origin |= match_origin(
                            np.int32(mismatch + np.int32(1)), insertion, deletion
                        )
                        cells[np.uint32(cell_at + np.int32(k - lo))] = origin
                    column = np.int32(k & mask)
                    rows[np.uint32(match_at + column)] = np.int16(slide(strings, h, k, NULL_16))
                    rows[np.uint32(insertion_at + column)] = np.int16(max(insertion, NULL_16))
                    rows[np.uint32(deletion_at + column)] = np.int16(max(deletion, NULL_16))
                    k = np.int32(k + lanes)
                cell_at = np.int32(cell_at + n)
        # The only wait of most rows: what follows reads this row, and writes none that is read yet.
        lanes_of_warp_meet()
        at_goal = np.int32(-1)
        if status == GOING:
            at_goal = offset_on(rows, match_at, goal, mask, lo, n, NULL_16)
            if at_goal == strings.ref_len:
                status, end = np.int32(FINISHED), s
            while lo <= hi and has_none(rows, match_at, insertion_at, deletion_at, lo & mask):
                lo = np.int32(lo + np.int32(1))
            while lo <= hi and has_none(rows, match_at, insertion_at, deletion_at, hi & mask):
                hi = np.int32(hi - np.int32(1))
        if to_cut == 0:
            to_cut = interval
            is_wide = status == GOING and np.int32(hi - lo) >= band_width
            if any_lane(is_wide):
                word = np.int32(fewest_at + turn)
                turn = np.int32(np.int32(1) - turn)
                if is_wide:
                    fewest = _fewest_left(strings, rows, match_at, mask, lo, hi, lane, lanes)
                    cuda.atomic.min(state, np.uint32(word), fewest)
                if lane == 0:
                    state[np.uint32(fewest_at + turn)] = FAR  # was last read before the row's wait
                lanes_of_warp_meet()
                if is_wide:
                    fewest = np.int32(state[np.uint32(word)])
                    best_k = lo
                    if fewest != FAR:
                        best_k = np.int32(lo + (fewest & np.int32(0x3FFF)))
                    first, last = kept_diagonals(best_k, lo, hi, band_width)
                    lo, hi = np.int32(first), np.int32(last)
                    cut = True
                    for other in range(n_match):
                        word = np.int32(bounds + np.int32(other))
                        its_lo, its_n = _bounds_from(state, word)
                        its_hi = np.int32(its_lo + its_n - np.int32(1))
                        _note_bounds(state, word, max(its_lo, lo), min(its_hi, hi))
        _note_bounds(state, np.int32(bounds + row), lo, hi)
        if at_goal >= 0 and lo <= goal <= hi:
            # Mismatches to the end of both sequences would cost so much.
            bound = min(bound, np.int32(s + x * np.int32(strings.ref_len - at_goal)))
        s = np.int32(s + np.int32(1))
        row = np.int32(row + 1) if row + 1 < n_match else np.int32(0)
        gap_row = np.int32(gap_row + 1) if gap_row + 1 < n_gap else np.int32(0)
        to_cut = np.int32(to_cut - np.int32(1))
    lanes_of_warp_meet()  # rows and state are free for another search
    return status, end, cut


@device_function
def _take_pairs(left, state, word, n):
    """Take the next n pairs of the list, by all lanes of a warp; return the first.

    `word`: of the warp, in `state`; it is written.
    """
    if np.int32(cuda.threadIdx.x) % np.int32(WARP) == 0:
        state[word] = cuda.atomic.add(left.counts, 1, np.int32(n))
    lanes_of_warp_meet()
    j = np.int32(state[word])
    lanes_of_warp_meet()
    return j


@kernel(GROUP_BLOCK)
def band_affine_kernel(staged, n, penalties, scale, max_penalty, band, shape, want_path, space,
                       left, slot, out):  # fmt: skip
    """Find global gap-affine alignments of the listed pairs in a band.

    Operations are written first one first.
    """
    state = cuda.shared.array(0, types.int32)
    rows = cuda.shared.array(0, types.int16)
    log_lanes = np.int32(shape.log_lanes)
    lanes = np.int32(np.int32(1) << log_lanes)
    thread = np.int32(cuda.threadIdx.x)
    group, lane = np.int32(thread >> log_lanes), np.int32(thread & np.int32(lanes - np.int32(1)))
    of_warp = np.int32(np.int32(WARP) >> log_lanes)  # its groups
    in_warp = np.int32(group & np.int32(of_warp - np.int32(1)))
    stride = np.int32(shape.stride)
    own, first_of_warp = np.int32(group * stride), np.int32(np.int32(group - in_warp) * stride)
    if group >= shape.groups:
        return
    worker = np.int64(cuda.blockIdx.x) * shape.groups + group
    n_rows = np.int64(shape.bound) + 1
    if not want_path:
        worker = np.int64(0)
    cells = space.cells[worker * shape.cells :]
    at, events = space.at[worker * n_rows :], space.events[worker * n_rows :]
    while True:
        first = _take_pairs(left, state, np.uint32(first_of_warp + np.int32(_NEXT)), of_warp)
        n_listed = np.int32(left.counts[0])
        if first >= n_listed:
            break
        running = np.int32(first + in_warp) < n_listed
        i = np.int64(left.pairs[np.int32(first + in_warp) if running else first])
        strings = strings_of(staged, n, i)
        most = min(max_penalty, highest_bound(strings, penalties))
        # Cuts follow from what rows hold, so the room must not bound them.
        status, s, cut = search_in_band(
            strings, penalties, band, most, shape, state, rows, own, cells, at,
            np.int32(want_path), lane, lanes, running,
        )  # fmt: skip
        if running and lane == 0:
            found = np.int32(LEFT)
            n_ops = np.int64(0)
            if status == FINISHED:
                found = np.int32(CUT if cut else DONE)
                if want_path:
                    n_ops = write_listed_path(
                        staged, strings, penalties, s, Origins(cells, at, space.zeros), events, i,
                        slot, left, out,
                    )  # fmt: skip
                    if n_ops < 0:
                        found = np.int32(LEFT)
            elif status == EXCEEDED and not cut:
                found = np.int32(DONE)  # above the limit, and nothing cut off might not be
            is_found = status == FINISHED and found != LEFT
            out.score[i] = np.int64(s) * scale if is_found else -1
            out.n_ops[i] = n_ops if is_found else 0
            out.status[i] = found
        lanes_of_warp_meet()
