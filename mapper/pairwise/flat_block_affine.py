"""CUDA kernels of gap-affine alignment of long pairs: a block of threads a pair.

The threads share out the diagonals of a row. Rows of offsets are rings in shared memory
(``flat_ring.py``), 16 bits a cell. Where cells came from goes to global memory, a byte a cell. One
thread traces the path. Blocks take pairs from a list, the next as soon as they have ended one.

A pair is searched twice: first in a band, for a penalty that some alignment has, which is mostly
the lowest already; then exactly, where every cell from which the end cannot be reached within that
penalty is left out. Of the square of cells that leaves half.

References
----------
Aguado-Puig et al. (2023), doi:10.1093/bioinformatics/btad061, sections 3.2, 3.5. Castells-Rufas
(2023), Parallel Computing, 103019, section 3 (the diamond of cells that can be on a path).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from mapper.device.memory import Workspace
from mapper.device.seam import cuda, device_function, kernel
from mapper.pairwise.affine_origins import (
    DELETION_OPENED,
    INSERTION_OPENED,
    Origins,
    gap_origin,
    match_origin,
    replay,
    trace_back,
)
from mapper.pairwise.cuda_batch import DONE, LEFT
from mapper.pairwise.flat_kernels import pair_of, strings_of, two_bits
from mapper.pairwise.flat_left import (
    IN_SLOT,
    NO_PLACE,
    WIDE_BLOCK,
    blocks_with_room,
    note_place,
    place_of_path,
    take_left,
)
from mapper.pairwise.flat_ring import FAR, NULL_16, has_none, offset_on, row_back
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

PROBE = Band(32, 16)
"""Band of the search for a penalty to stay within."""

# What a block keeps in shared memory beside its rows, behind a word for `take_left`.
_BEST, _STATE = 1, 4


class BlockSpace(NamedTuple):
    """Where the origins and events of all blocks lie."""

    cells: Any  # uint8 (n_blocks * cells of a block,)
    at: Any  # int64 (n_blocks * (bound + 2),)
    lo: Any  # int64, likewise
    events: Any  # uint32 (n_blocks * (bound + 1),)


class BlockShape(NamedTuple):
    """The room of a block."""

    bound: int  # greatest (divided) penalty
    width: int  # columns of a row, a power of two
    n_match: int  # rows of M that are held
    n_gap: int  # rows of I, and of D
    cells: int  # origins of a pair

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        rows = self.n_match + 2 * self.n_gap
        return 4 * (_STATE + 2 * self.n_match) + 2 * rows * self.width


def block_shape(penalties: AffinePenalties, width: int) -> BlockShape:
    """Return the room for exact alignment in rows of up to `width` cells, a power of two."""
    opening = penalties.gap_open + penalties.gap_extend
    # A diamond is widest where half of the penalty is spent; never mind what opens a gap.
    bound = min(width * penalties.gap_extend, -int(NULL_16) // 2)
    return BlockShape(
        bound, width, max(penalties.mismatch, opening) + 1, penalties.gap_extend + 1,
        width * bound // 2 + 4 * bound,
    )  # fmt: skip


def block_space(
    space: Workspace, name: str, shape: BlockShape, n_pairs: int, want_path: bool
) -> tuple[int, BlockSpace]:
    """Return how many blocks to launch for up to `n_pairs`, and their work space."""
    cells, rows = (shape.cells, shape.bound + 2) if want_path else (1, 1)
    n_blocks = blocks_with_room(n_pairs, shape.shared_bytes, 16, cells + 20 * rows)
    return n_blocks, BlockSpace(
        space.device(f"{name} cells", n_blocks * cells, np.uint8),
        space.device(f"{name} at", n_blocks * rows, np.int64),
        space.device(f"{name} lo", n_blocks * rows, np.int64),
        space.device(f"{name} events", n_blocks * rows, np.uint32),
    )  # fmt: skip


@device_function
def _search(strings, penalties, band_width, interval, bound, shape, state, rows, cells, at, lows,
            keep, lane):  # fmt: skip
    """Search the end, row after row; called by all threads of a block alike.

    Parameters
    ----------
    band_width, interval
        The band; a width of 0 for none.
    state
        int32, shared: from `_STATE` on the lowest diagonal and the number of cells of every row
        of M's ring. All threads write the same there, and read what they wrote themselves.
    keep
        Whether to note where cells came from.

    Returns
    -------
    status, s
        FINISHED and the penalty, EXCEEDED or NO_ROOM.
    """
    strings = two_bits(strings)
    lanes = np.int32(WIDE_BLOCK)
    x, extend = np.int32(penalties.mismatch), np.int32(penalties.gap_extend)
    opening = np.int32(np.int32(penalties.gap_open) + extend)
    n_match, n_gap, width = np.int32(shape.n_match), np.int32(shape.n_gap), np.int32(shape.width)
    mask = np.int32(width - np.int32(1))
    matches = np.int32(np.int32(2 * _STATE) + np.int32(4) * n_match)
    insertions = np.int32(matches + n_match * width)
    deletions = np.int32(insertions + n_gap * width)
    goal = np.int32(strings.ref_len - strings.query_len)
    bound = np.int32(bound)
    r = lane
    while r < n_match:
        state[_STATE + 2 * r + 1] = 0
        r = np.int32(r + lanes)
    if lane < 2:
        state[_BEST + lane] = FAR
    cuda.syncthreads()
    s, row, gap_row = np.int32(0), np.int32(0), np.int32(0)
    to_cut, turn = np.int32(0), np.int32(0)
    cell_at = np.int64(0)
    status = np.int32(GOING)
    while status == GOING:
        if s > bound:
            status = np.int32(EXCEEDED)
            break
        from_x = row_back(row, x, n_match)
        from_oe, from_e = row_back(row, opening, n_match), row_back(row, extend, n_match)
        lo_x, n_x = np.int32(state[_STATE + 2 * from_x]), np.int32(state[_STATE + 2 * from_x + 1])
        lo_oe = np.int32(state[_STATE + 2 * from_oe])
        n_oe = np.int32(state[_STATE + 2 * from_oe + 1])
        lo_e, n_e = np.int32(state[_STATE + 2 * from_e]), np.int32(state[_STATE + 2 * from_e + 1])
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
        if s > shape.bound or n > width or (keep and cell_at + n > shape.cells):
            status = np.int32(NO_ROOM)
            break
        if keep and lane == 0:
            at[s] = cell_at
            lows[s] = lo
        match_at = np.int32(matches + row * width)
        insertion_at = np.int32(insertions + gap_row * width)
        deletion_at = np.int32(deletions + gap_row * width)
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
                origin |= match_origin(np.int32(mismatch + np.int32(1)), insertion, deletion)
                cells[np.uint64(cell_at + np.int32(k - lo))] = origin
            column = np.int32(k & mask)
            rows[np.uint32(match_at + column)] = np.int16(slide(strings, h, k, NULL_16))
            rows[np.uint32(insertion_at + column)] = np.int16(max(insertion, NULL_16))
            rows[np.uint32(deletion_at + column)] = np.int16(max(deletion, NULL_16))
            k = np.int32(k + lanes)
        # The only wait of a row: what follows reads this row, and writes none that is read yet.
        cuda.syncthreads()
        cell_at += n
        at_goal = offset_on(rows, match_at, goal, mask, lo, n, NULL_16)
        if at_goal == strings.ref_len:
            status = np.int32(FINISHED)
            break
        if band_width > 0:
            while lo <= hi and has_none(rows, match_at, insertion_at, deletion_at, lo & mask):
                lo = np.int32(lo + np.int32(1))
            while lo <= hi and has_none(rows, match_at, insertion_at, deletion_at, hi & mask):
                hi = np.int32(hi - np.int32(1))
            if to_cut == 0 and np.int32(hi - lo) >= band_width:
                best = FAR
                k = np.int32(lo + lane)
                while k <= hi:
                    h = np.int32(rows[np.uint32(match_at + (k & mask))])
                    if h >= 0:
                        left = np.int32(symbols_left(strings, h, k))
                        # Of equals the lowest diagonal; a row has fewer than 2^14.
                        best = min(best, np.int32((left << np.int32(14)) | np.int32(k - lo)))
                    k = np.int32(k + lanes)
                cuda.atomic.min(state, _BEST + turn, best)
                turn = np.int32(np.int32(1) - turn)
                if lane == 0:
                    state[_BEST + turn] = FAR  # was last read before the row's wait
                cuda.syncthreads()
                best = np.int32(state[_BEST + np.int32(1) - turn])
                best_k = lo
                if best != FAR:
                    best_k = np.int32(lo + (best & np.int32(0x3FFF)))
                first, last = kept_diagonals(best_k, lo, hi, band_width)
                lo, hi = np.int32(first), np.int32(last)
                for other in range(n_match):
                    first = np.int32(state[_STATE + 2 * other])
                    last = np.int32(first + state[_STATE + 2 * other + 1] - np.int32(1))
                    first, last = max(first, lo), min(last, hi)
                    state[_STATE + 2 * other] = first
                    state[_STATE + 2 * other + 1] = max(np.int32(last - first + 1), np.int32(0))
            to_cut = np.int32(interval - np.int32(1)) if to_cut == 0 else np.int32(to_cut - 1)
        n = max(np.int32(hi - lo + np.int32(1)), np.int32(0))
        state[_STATE + 2 * row] = lo
        state[_STATE + 2 * row + 1] = n
        if at_goal >= 0 and lo <= goal <= hi:
            # Mismatches to the end of both sequences would cost so much.
            bound = min(bound, np.int32(s + x * np.int32(strings.ref_len - at_goal)))
        s = np.int32(s + np.int32(1))
        row = np.int32(row + 1) if row + 1 < n_match else np.int32(0)
        gap_row = np.int32(gap_row + 1) if gap_row + 1 < n_gap else np.int32(0)
    cuda.syncthreads()  # rows and state are free for another search
    return status, s


@device_function
def write_listed_path(staged, strings, penalties, s, origins, events, i, slot, left, out):
    """Write the operations of a path that has been found, where ``FlatResults`` says.

    Returns
    -------
    Number of operations; -1 if there is no room for them.
    """
    goal = np.int64(strings.ref_len - strings.query_len)
    n_events, _ = trace_back(origins, penalties, np.int64(s), goal, events)
    pair = pair_of(staged, strings)
    first = place_of_path(left, out, slot, np.int64(2 * n_events + 1))
    if first == NO_PLACE:
        return np.int64(-1)
    if first == IN_SLOT:
        return replay(pair, events, n_events, 0, 0, pair.ref_len, out.slots[i * slot :])
    n_ops = replay(pair, events, n_events, 0, 0, pair.ref_len, out.long_ops[first:])
    note_place(out, i, slot, first, n_ops)
    return n_ops


@kernel(WIDE_BLOCK)
def wide_affine_kernel(staged, n, penalties, scale, max_penalty, shape, want_path, space, left,
                       slot, out):  # fmt: skip
    """Find global gap-affine alignments of the listed pairs, by WIDE_BLOCK threads each."""
    state = cuda.shared.array(0, types.int32)
    rows = cuda.shared.array(0, types.int16)
    lane = np.int32(cuda.threadIdx.x)
    cells = space.cells[np.int64(cuda.blockIdx.x) * shape.cells :]
    first_row = np.int64(cuda.blockIdx.x) * (shape.bound + 2)
    if not want_path:
        first_row = np.int64(0)
    at, lows, events = space.at[first_row:], space.lo[first_row:], space.events[first_row:]
    while True:
        i = take_left(left, state, lane)
        if i < 0:
            break
        strings = strings_of(staged, n, i)
        most = min(max_penalty, highest_bound(strings, penalties))
        # Rows that do not fit are not begun: the room bounds what is of interest.
        limit = min(most, np.int64(shape.bound))
        probes = True
        status, s = np.int32(GOING), np.int32(0)
        while status == GOING:
            width, interval = np.int32(PROBE.width), np.int32(PROBE.interval)
            keep = np.int32(0)
            if not probes:
                width, keep = np.int32(0), np.int32(want_path)
            status, s = _search(
                strings, penalties, width, interval, limit, shape, state, rows, cells, at, lows,
                keep, lane,
            )  # fmt: skip
            if probes:
                if status == FINISHED:
                    limit = np.int64(s)
                    status = np.int32(GOING)
                elif most <= shape.bound:
                    status = np.int32(GOING)  # the band may have lost what there is
                probes = False
        if lane == 0:
            found = np.int32(LEFT)
            n_ops = np.int64(0)
            if status == FINISHED:
                found = np.int32(DONE)
                if want_path:
                    n_ops = write_listed_path(
                        staged, strings, penalties, s, Origins(cells, at, lows), events, i, slot,
                        left, out,
                    )  # fmt: skip
                    if n_ops < 0:
                        found = np.int32(LEFT)
            elif status == EXCEEDED and most <= shape.bound:
                found = np.int32(DONE)  # above the limit, which the room has not lowered
            is_found = status == FINISHED and found != LEFT
            out.score[i] = np.int64(s) * scale if is_found else -1
            out.n_ops[i] = n_ops if is_found else 0
            out.status[i] = found
