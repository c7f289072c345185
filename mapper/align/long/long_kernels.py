"""CUDA kernels of very long strings: both searches of ``middle.py``, by the whole device.

Rows are advanced in *batches* of BATCH_ROWS. A warp takes a tile of diagonals that overlaps its
neighbours by so many cells on each side that it needs nothing of them during a batch: its
lanes pass cells to each other by shuffles and write the row at the batch's end (tiles as in
Castells-Rufas 2023, section 3.5, with registers and shuffles in place of local memory and
barriers). Between batches the grid waits for all its blocks, so that one launch does as many
batches as the host asks for, whatever the distance.

After each batch the rows of both searches are looked at for an overlap. It is found up to a
batch too late; as cells do not fall from row to row (``strip.py``), it is not missed, and the
rows before the batch are still there for the host to find the first two rows that overlap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.edit.strip import WIDTH, Strings, next_strip
from mapper.align.edit.wavefront import EXCEEDED, FINISHED, GOING, NULL
from mapper.cuda.api import SIMULATED, cuda, device_function, kernel
from mapper.cuda.warp import WARP, WarpLanes
from mapper.jit.intrinsics import reversed_bits
from mapper.jit.lanes import lane_before, lane_behind, lane_max

BLOCK = 2 if SIMULATED else 128

BLOCKS_PER_SM = 4
"""With up to 128 registers a thread. Faster than 5 blocks, as are 16 rows than 24 or 32
(``benchmarks/results/pairwise_long_variants.md``)."""

BATCH_ROWS = 2 if SIMULATED else 16
"""Rows of a batch: with twice as many, a quarter of a tile would be done for the neighbours."""

TILE = WARP * WIDTH - 2 * BATCH_ROWS
"""Diagonals that a warp writes."""

# Fields of the state (int64): rows done, the rows' place among the two, their diagonals, the
# greatest distance of interest, what came of it, the diagonals that overlap, and the symbols
# that the rows of three batches consumed at most, from either end.
ROW, PLACE, LO, HI, BOUND, STATUS, FOUND_LO, FOUND_HI, REACH = range(9)
N_STATE = REACH + 6


class Sides(NamedTuple):
    """The pair as seen from the start, and, in the reversed words, from the end."""

    query: Any  # uint32, the words and behind them the reversed words
    ref: Any  # uint32
    query_at: Any  # uint32 (2,): symbols where the query starts, as seen from each end
    ref_at: Any  # uint32 (2,)
    query_len: int
    ref_len: int
    shift: int


@kernel(256)
def reverse_kernel(words, reversed_words):
    """Reverse an array of uint64 bit by bit."""
    i = cuda.grid(1)
    if i < len(words):
        reversed_words[len(words) - 1 - i] = reversed_bits(words[i])


@kernel(BLOCK, blocks_per_sm=BLOCKS_PER_SM)
def meet_kernel(sides, cells, lowest, state, n_batches):
    """Advance both searches by up to `n_batches` batches; all blocks must be resident.

    Parameters
    ----------
    cells
        int32 (2, 2, n): rows before and after a batch (by turns), of both ends; diagonal
        k in column ``k - lowest``.
    state
        int64 (N_STATE,). Afterwards its status is GOING; FINISHED: the batch behind ROW
        leads to an overlap; or EXCEEDED.
    """
    grid = cuda.cg.this_grid()
    thread = cuda.threadIdx.x
    # Neighbouring tiles on different multiprocessors: there may be fewer tiles than warps.
    warp = thread // WARP * cuda.gridDim.x + cuda.blockIdx.x
    n_warps = cuda.gridDim.x * (BLOCK // WARP)
    lanes = WarpLanes(thread % WARP, WARP)
    n, m = sides.query_len, sides.ref_len
    goal = m - n
    row, place = state[ROW], state[PLACE]
    lo, hi, bound = state[LO], state[HI], state[BOUND]
    slot = np.int64(0)
    status = np.int64(GOING)
    for _ in range(n_batches):
        # What the bound leaves before the batch, not cut further in it: see above.
        new_lo = max(max(-(row + BATCH_ROWS), -n), goal - (bound - row))
        new_hi = min(min(row + BATCH_ROWS, m), goal + (bound - row))
        if 2 * row >= bound or new_lo > new_hi:
            status = np.int64(EXCEEDED)
            break
        reach = REACH + 2 * slot
        slot = slot + 1 if slot < 2 else np.int64(0)
        if warp == 0 and lanes.lane == 0:
            state[REACH + 2 * slot] = 0
            state[REACH + 2 * slot + 1] = 0
        n_tiles = (new_hi - new_lo + TILE) // TILE
        for end in range(2):
            most = np.int64(0)
            strings = Strings(
                sides.query, sides.ref, sides.query_at[end], sides.ref_at[end],
                np.int32(n), np.int32(m), np.int32(sides.shift),
            )  # fmt: skip
            first = (warp + n_warps - end * n_tiles % n_warps) % n_warps
            for tile in range(first, n_tiles, n_warps):
                start = new_lo + tile * TILE
                most = max(most, _advance(
                    strings, cells[place, end], cells[1 - place, end], lowest, lo, hi, start,
                    min(start + TILE - 1, new_hi), lanes,
                ))  # fmt: skip
            most = lane_max(most, lanes)
            if most > 0 and lanes.lane == 0:
                cuda.atomic.max(state, reach + end, most)
        grid.sync()
        if state[reach] + state[reach + 1] >= n + m:
            _note_overlap(
                cells[1 - place, 0], cells[1 - place, 1], lowest, new_lo, new_hi, goal, m, state
            )
            grid.sync()
            if state[FOUND_LO] <= state[FOUND_HI]:
                status = np.int64(FINISHED)
                break
        row += BATCH_ROWS
        place = 1 - place
        lo, hi = new_lo, new_hi
        if lo <= goal <= hi:
            for end in range(2):
                offset = np.int64(cells[place, end, goal - lowest])
                if offset >= 0:
                    bound = min(bound, row + m - offset)
    grid.sync()
    if warp == 0 and lanes.lane == 0:
        state[ROW], state[PLACE], state[LO], state[HI] = row, place, lo, hi
        state[BOUND], state[STATUS] = bound, status


@device_function
def _cell(row, lowest, lo, hi, k):
    """Offset on diagonal k of a row that has the diagonals lo to hi."""
    return row[np.uint64(k - lowest)] if lo <= k <= hi else np.int32(NULL)


@device_function
def _keep(row, lowest, first, last, k, offset):
    """Write a cell if it is one of the diagonals first to last; return its symbols."""
    if k < first or k > last:
        return np.int64(0)
    row[np.uint64(k - lowest)] = offset
    return 2 * np.int64(offset) - k


@device_function
def _advance(strings, before, after, lowest, lo, hi, first, last, lanes):
    """Advance the diagonals first to last by a batch; return the most symbols consumed."""
    start = first - BATCH_ROWS + lanes.lane * WIDTH
    k = np.int32(start)
    strip = (
        _cell(before, lowest, lo, hi, start), _cell(before, lowest, lo, hi, start + 1),
        _cell(before, lowest, lo, hi, start + 2), _cell(before, lowest, lo, hi, start + 3),
        _cell(before, lowest, lo, hi, start + 4), _cell(before, lowest, lo, hi, start + 5),
        _cell(before, lowest, lo, hi, start + 6), _cell(before, lowest, lo, hi, start + 7),
    )  # fmt: skip
    for _ in range(BATCH_ROWS):
        # What the outermost lanes get from nowhere does not come as far as the cells kept.
        left, right = lane_before(strip[7], lanes), lane_behind(strip[0], lanes)
        strip = next_strip(strings, k, left, strip, right)
    most = _keep(after, lowest, first, last, start, strip[0])
    most = max(most, _keep(after, lowest, first, last, start + 1, strip[1]))
    most = max(most, _keep(after, lowest, first, last, start + 2, strip[2]))
    most = max(most, _keep(after, lowest, first, last, start + 3, strip[3]))
    most = max(most, _keep(after, lowest, first, last, start + 4, strip[4]))
    most = max(most, _keep(after, lowest, first, last, start + 5, strip[5]))
    most = max(most, _keep(after, lowest, first, last, start + 6, strip[6]))
    return max(most, _keep(after, lowest, first, last, start + 7, strip[7]))


@device_function
def _note_overlap(forward, backward, lowest, lo, hi, goal, ref_len, state):
    """Note the lowest and the highest diagonal on which the rows of both ends overlap."""
    least, greatest = np.int64(2**40), np.int64(-(2**40))
    for k in range(max(lo, goal - hi) + cuda.grid(1), min(hi, goal - lo) + 1, cuda.gridsize(1)):
        reached = np.int64(forward[k - lowest]) + np.int64(backward[goal - k - lowest])
        if reached >= ref_len:
            least = min(least, k)
            greatest = np.int64(k)
    if least <= greatest:
        cuda.atomic.min(state, FOUND_LO, least)
        cuda.atomic.max(state, FOUND_HI, greatest)
