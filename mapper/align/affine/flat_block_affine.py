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

import numpy as np
from numba import types

from mapper.align.affine.affine_origins import (
    Origins,
)
from mapper.align.affine.cuda_rows import (
    FAR,
    NULL_16,
    cut_bounds,
    diagonals_of,
    note_bounds,
    offset_on,
    ring_of,
    row_after,
    row_at,
    rows_before,
    trimmed,
    write_cell,
)
from mapper.align.affine.flat_affine_path import write_listed_path
from mapper.align.affine.flat_affine_space import BLOCK_BOUNDS, BLOCK_FEWEST
from mapper.align.affine.flat_cut import fewest_left, kept_around
from mapper.align.affine.wavefront_affine import (
    Band,
    highest_bound,
)
from mapper.align.cuda.kernels import strings_of, two_bits
from mapper.align.cuda.retry import DONE, LEFT
from mapper.align.cuda.worklist import WIDE_BLOCK, take_left
from mapper.align.edit.wavefront import EXCEEDED, FINISHED, GOING, NO_ROOM
from mapper.cuda.api import cuda, device_function, kernel

PROBE = Band(32, 16)
"""Band of the search for a penalty to stay within."""


@device_function
def _search(strings, penalties, band_width, interval, bound, shape, state, rows, cells, at, lows,
            keep, lane):  # fmt: skip
    """Search the end, row after row; called by all threads of a block alike.

    Parameters
    ----------
    band_width, interval
        The band; a width of 0 for none.
    state
        int32, shared. All threads write the same bounds of rows there, and read what they wrote
        themselves.
    keep
        Whether to note where cells came from.

    Returns
    -------
    status, s
        FINISHED and the penalty, EXCEEDED or NO_ROOM.
    """
    strings = two_bits(strings)
    lanes = np.int32(WIDE_BLOCK)
    ring = ring_of(penalties, shape, np.int32(BLOCK_BOUNDS))
    goal = np.int32(strings.ref_len - strings.query_len)
    bound = np.int32(bound)
    r = lane
    while r < ring.n_match:
        state[np.uint32(ring.bounds + r)] = 0
        r = np.int32(r + lanes)
    if lane < 2:
        state[BLOCK_FEWEST + lane] = FAR
    cuda.syncthreads()
    s, row, gap_row = np.int32(0), np.int32(0), np.int32(0)
    to_cut, turn = np.int32(0), np.int32(0)
    cell_at = np.int64(0)
    status = np.int32(GOING)
    while status == GOING:
        if s > bound:
            status = np.int32(EXCEEDED)
            break
        before = rows_before(state, ring, s, row, gap_row)
        lo, hi = diagonals_of(before, ring, s, goal, bound)
        n = max(np.int32(hi - lo + np.int32(1)), np.int32(0))
        if s > shape.bound or n > ring.width or (keep and cell_at + n > shape.cells):
            status = np.int32(NO_ROOM)
            break
        if keep and lane == 0:
            at[s] = cell_at
            lows[s] = lo
        here = row_at(ring, row, gap_row)
        k = np.int32(lo + lane)
        while k <= hi:
            origin = write_cell(strings, rows, ring, before, here, k)
            if keep:
                cells[np.uint64(cell_at + np.int32(k - lo))] = origin
            k = np.int32(k + lanes)
        # The only wait of a row: what follows reads this row, and writes none that is read yet.
        cuda.syncthreads()
        cell_at += n
        at_goal = offset_on(rows, here.match, goal, ring.mask, lo, n, NULL_16)
        if at_goal == strings.ref_len:
            status = np.int32(FINISHED)
            break
        if band_width > 0:
            lo, hi = trimmed(rows, ring, here, lo, hi)
            if to_cut == 0 and np.int32(hi - lo) >= band_width:
                fewest = fewest_left(strings, rows, ring, here, lo, hi, lane, lanes)
                cuda.atomic.min(state, BLOCK_FEWEST + turn, fewest)
                turn = np.int32(np.int32(1) - turn)
                if lane == 0:
                    state[BLOCK_FEWEST + turn] = FAR  # was last read before the row's wait
                cuda.syncthreads()
                fewest = np.int32(state[BLOCK_FEWEST + np.int32(1) - turn])
                lo, hi = kept_around(fewest, lo, hi, band_width)
                cut_bounds(state, ring, lo, hi)
            to_cut = np.int32(interval - np.int32(1)) if to_cut == 0 else np.int32(to_cut - 1)
        note_bounds(state, np.int32(ring.bounds + row), lo, hi)
        if at_goal >= 0 and lo <= goal <= hi:
            # Mismatches to the end of both sequences would cost so much.
            bound = min(bound, np.int32(s + ring.mismatch * np.int32(strings.ref_len - at_goal)))
        s = np.int32(s + np.int32(1))
        row, gap_row = row_after(row, ring.n_match), row_after(gap_row, ring.n_gap)
    cuda.syncthreads()  # rows and state are free for another search
    return status, s


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
