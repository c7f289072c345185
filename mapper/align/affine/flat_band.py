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

import numpy as np
from numba import types

from mapper.align.affine.affine_origins import Origins
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
from mapper.align.affine.flat_affine_space import GROUP_BOUNDS, GROUP_FEWEST, GROUP_NEXT
from mapper.align.affine.flat_cut import fewest_left, kept_around
from mapper.align.affine.wavefront_affine import highest_bound
from mapper.align.cuda.cooperative import GROUP_BLOCK, WARP, any_lane, lanes_of_warp_meet
from mapper.align.cuda.kernels import strings_of, two_bits
from mapper.align.cuda.retry import CUT, DONE, LEFT
from mapper.align.edit.wavefront import EXCEEDED, FINISHED, GOING, NO_ROOM
from mapper.cuda.api import cuda, device_function, kernel


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
        As those of ``BandSpace``, of the group.
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
    ring = ring_of(penalties, shape, np.int32(own + np.int32(GROUP_BOUNDS)))
    most_s, most_cells = np.int32(shape.bound), np.int32(shape.cells)
    band_width, interval = np.int32(band.width), np.int32(band.interval)
    goal = np.int32(strings.ref_len - strings.query_len)
    bound = np.int32(limit)
    for other in range(ring.n_match):
        state[np.uint32(ring.bounds + np.int32(other))] = 0
    fewest_at = np.int32(own + np.int32(GROUP_FEWEST))
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
        here = row_at(ring, row, gap_row)
        if status == GOING:
            before = rows_before(state, ring, s, row, gap_row)
            lo, hi = diagonals_of(before, ring, s, goal, bound)
            n = max(np.int32(hi - lo + np.int32(1)), np.int32(0))
            if s > bound:
                status = np.int32(EXCEEDED)
            elif s > most_s or n > ring.width or (keep and cell_at + n > most_cells):
                status = np.int32(NO_ROOM)
            else:
                if keep and lane == 0:
                    at[np.uint32(s)] = np.int32(cell_at - lo)
                k = np.int32(lo + lane)
                while k <= hi:
                    origin = write_cell(strings, rows, ring, before, here, k)
                    if keep:
                        cells[np.uint32(cell_at + np.int32(k - lo))] = origin
                    k = np.int32(k + lanes)
                cell_at = np.int32(cell_at + n)
        # The only wait of most rows: what follows reads this row, and writes none that is read yet.
        lanes_of_warp_meet()
        at_goal = np.int32(-1)
        if status == GOING:
            at_goal = offset_on(rows, here.match, goal, ring.mask, lo, n, NULL_16)
            if at_goal == strings.ref_len:
                status, end = np.int32(FINISHED), s
            lo, hi = trimmed(rows, ring, here, lo, hi)
        if to_cut == 0:
            to_cut = interval
            is_wide = status == GOING and np.int32(hi - lo) >= band_width
            if any_lane(is_wide):
                word = np.int32(fewest_at + turn)
                turn = np.int32(np.int32(1) - turn)
                if is_wide:
                    fewest = fewest_left(strings, rows, ring, here, lo, hi, lane, lanes)
                    cuda.atomic.min(state, np.uint32(word), fewest)
                if lane == 0:
                    state[np.uint32(fewest_at + turn)] = FAR  # was last read before the row's wait
                lanes_of_warp_meet()
                if is_wide:
                    fewest = np.int32(state[np.uint32(word)])
                    lo, hi = kept_around(fewest, lo, hi, band_width)
                    cut_bounds(state, ring, lo, hi)
                    cut = True
        note_bounds(state, np.int32(ring.bounds + row), lo, hi)
        if at_goal >= 0 and lo <= goal <= hi:
            # Mismatches to the end of both sequences would cost so much.
            bound = min(bound, np.int32(s + ring.mismatch * np.int32(strings.ref_len - at_goal)))
        s = np.int32(s + np.int32(1))
        row, gap_row = row_after(row, ring.n_match), row_after(gap_row, ring.n_gap)
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
        first = _take_pairs(left, state, np.uint32(first_of_warp + np.int32(GROUP_NEXT)), of_warp)
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
