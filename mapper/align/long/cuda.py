"""Bidirectional search of a very long pair on a CUDA device, with the result of the CPU.

*Kernel.* Both searches of ``edit/wavefront.py`` are advanced by the whole device, in *batches* of
BATCH_ROWS wavefronts. A warp takes a tile of diagonals that overlaps its neighbours by that many
cells on each side, so that it needs no other tile during a batch: its lanes exchange cells by
shuffles and write the wavefront at the end of the batch (tiles as in Castells-Rufas 2023, section
3.5, with registers and shuffles in place of local memory and barriers). The grid synchronises
between batches, so one launch runs as many batches as the host requests, whatever the distance.

After each batch the wavefronts of both searches are compared for an overlap. It is found up to a
batch too late. It is not missed, because cells of strips do not fall (``next_strip``), and the
wavefronts from before the batch still exist for the host to find the first two that overlap.

*Host.* The first wavefronts, of a few cells each, and the last ones are the host's. At the end the
device reports the diagonals on which its wavefronts overlap, perhaps some wavefronts too late. From
those before that batch the host computes the few wavefronts to the first two that overlap, on these
diagonals and as many around them as can influence them. The core of the CPU decides, so the middle
is the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.edit.cpu import clear_rows, new_rows
from mapper.align.edit.wavefront import (
    BACK_REACH,
    EXCEEDED,
    FINISHED,
    GOING,
    PAD,
    REACH,
    WIDTH,
    R,
    Rows,
    S,
    next_strip,
)
from mapper.align.edit.wavefront import BOUND as SEARCH_BOUND
from mapper.align.long.search import Part, Search
from mapper.align.matches import NULL, Pair, Strings
from mapper.cuda.api import DRIVER, SIMULATED, cuda, device_context, device_function, kernel
from mapper.cuda.memory import device_memory
from mapper.cuda.warp import WARP, WarpLanes
from mapper.jit.intrinsics import reversed_bits
from mapper.jit.lanes import lane_before, lane_behind, lane_max

BLOCK = 2 if SIMULATED else 128

BLOCKS_PER_SM = 4
"""Resident blocks of a multiprocessor, with up to 128 registers a thread. 4 blocks are faster than
5, and 16 rows a batch faster than 24 or 32 (``benchmarks/results/align_cuda_variants.md``)."""

BATCH_ROWS = 2 if SIMULATED else 16
"""Rows of a batch: with twice as many, a quarter of a tile would overlap its neighbours."""

TILE = WARP * WIDTH - 2 * BATCH_ROWS
"""Diagonals of a tile without the overlap."""

# Fields of the state (int64): rows done, which of two buffers has the rows, their diagonals, the
# greatest distance of interest, the status, the range of diagonals that overlap, and the most
# symbols that the rows of three batches consumed, from either end.
ROW, BUFFER, LO, HI, BOUND, STATUS, FOUND_LO, FOUND_HI, TURN_REACH = range(9)
N_STATE = TURN_REACH + 6


class Sides(NamedTuple):
    """The pair from the start, and, in the reversed words, from the end."""

    query: Any  # uint32, the words, then the reversed words
    ref: Any  # uint32
    query_at: Any  # uint32 (2,): symbol where the query starts, from each end
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
        int32 (2, 2, n): rows before and after a batch (in turn), of both ends; diagonal k in
        column ``k - lowest``.
    state
        int64 (N_STATE,). Afterwards its status is GOING; FINISHED, if the batch after ROW leads
        to an overlap; or EXCEEDED.
    """
    grid = cuda.cg.this_grid()
    thread = cuda.threadIdx.x
    # Adjacent tiles go to different multiprocessors: there may be fewer tiles than warps.
    warp = thread // WARP * cuda.gridDim.x + cuda.blockIdx.x
    n_warps = cuda.gridDim.x * (BLOCK // WARP)
    lanes = WarpLanes(thread % WARP, WARP)
    n, m = sides.query_len, sides.ref_len
    goal = m - n
    row, buffer = state[ROW], state[BUFFER]
    lo, hi, bound = state[LO], state[HI], state[BOUND]
    turn = np.int64(0)
    status = np.int64(GOING)
    for _ in range(n_batches):
        # The diagonals within the bound before the batch; not narrowed during the batch.
        new_lo = max(max(-(row + BATCH_ROWS), -n), goal - (bound - row))
        new_hi = min(min(row + BATCH_ROWS, m), goal + (bound - row))
        if 2 * row >= bound or new_lo > new_hi:
            status = np.int64(EXCEEDED)
            break
        reach = TURN_REACH + 2 * turn
        turn = turn + 1 if turn < 2 else np.int64(0)
        if warp == 0 and lanes.lane == 0:
            state[TURN_REACH + 2 * turn] = 0
            state[TURN_REACH + 2 * turn + 1] = 0
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
                    strings, cells[buffer, end], cells[1 - buffer, end], lowest, lo, hi, start,
                    min(start + TILE - 1, new_hi), lanes,
                ))  # fmt: skip
            most = lane_max(most, lanes)
            if most > 0 and lanes.lane == 0:
                cuda.atomic.max(state, reach + end, most)
        grid.sync()
        if state[reach] + state[reach + 1] >= n + m:
            _note_overlap(
                cells[1 - buffer, 0], cells[1 - buffer, 1], lowest, new_lo, new_hi, goal, m, state
            )
            grid.sync()
            if state[FOUND_LO] <= state[FOUND_HI]:
                status = np.int64(FINISHED)
                break
        row += BATCH_ROWS
        buffer = 1 - buffer
        lo, hi = new_lo, new_hi
        if lo <= goal <= hi:
            for end in range(2):
                offset = np.int64(cells[buffer, end, goal - lowest])
                if offset >= 0:
                    bound = min(bound, row + m - offset)
    grid.sync()
    if warp == 0 and lanes.lane == 0:
        state[ROW], state[BUFFER], state[LO], state[HI] = row, buffer, lo, hi
        state[BOUND], state[STATUS] = bound, status


@device_function
def _cell(row, lowest, lo, hi, k):
    """Return the offset on diagonal k of a row of the diagonals lo to hi, or null."""
    return row[np.uint64(k - lowest)] if lo <= k <= hi else np.int32(NULL)


@device_function
def _keep(row, lowest, first, last, k, offset):
    """Write a cell on diagonals first to last; return the symbols that it consumed, else 0."""
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
        # The undefined neighbours of the outermost lanes do not influence the cells kept.
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
    """Store the lowest and the highest diagonal on which the rows of both ends overlap."""
    least, greatest = np.int64(2**40), np.int64(-(2**40))
    for k in range(max(lo, goal - hi) + cuda.grid(1), min(hi, goal - lo) + 1, cuda.gridsize(1)):
        reached = np.int64(forward[k - lowest]) + np.int64(backward[goal - k - lowest])
        if reached >= ref_len:
            least = min(least, k)
            greatest = np.int64(k)
    if least <= greatest:
        cuda.atomic.min(state, FOUND_LO, least)
        cuda.atomic.max(state, FOUND_HI, greatest)


# --- host ---

FIRST_ROWS = 64
"""Rows of each end that the host computes before the device takes over."""

FIRST_REACH = 1 << 16
"""Initial room of rows: diagonals on each side."""

SLICE_CELLS = 40_000_000_000
"""Cells of a slice: some tenths of a second."""

_MIN_BATCHES = 64
_BEFORE, _AFTER = 1, 3
"""Words of padding before and after the words of a sequence."""


class LongPair:
    """Both sequences of a pair on one device, forward and reversed.

    Raises
    ------
    DeviceMemoryError
        If they do not fit the device's memory.
    """

    def __init__(self, ordinal: int, pair: Pair) -> None:
        self.ordinal = ordinal
        self.shift = int(pair.shift)
        with device_context(ordinal):
            self._query = _both_ways(pair.query_words)
            self._ref = _both_ways(pair.ref_words)

    def sides(self, part: Pair) -> Sides:
        """Return a part of the pair for the kernel."""
        query_at = _starts(self._query, int(part.query_bit), int(part.query_len), self.shift)
        ref_at = _starts(self._ref, int(part.ref_bit), int(part.ref_len), self.shift)
        return Sides(
            self._query.view(np.uint32), self._ref.view(np.uint32), _uploaded(query_at),
            _uploaded(ref_at), int(part.query_len), int(part.ref_len), self.shift,
        )  # fmt: skip

    def search(self, pair: Pair, part: Part) -> DeviceSearch:
        """Return a search for the middle of a part."""
        return DeviceSearch(self, pair, part)


def _both_ways(words: np.ndarray) -> Any:
    """Return words on the device with padding, followed by the same reversed."""
    n = len(words) + _BEFORE + _AFTER
    padded = np.zeros(2 * n + _AFTER, np.uint64)
    padded[_BEFORE : _BEFORE + len(words)] = words
    both = _uploaded(padded)
    reverse_kernel.launch(n, 0, both[:n], both[n : 2 * n])
    return both


def _uploaded(column: np.ndarray) -> Any:
    """Return a copy on the current device."""
    with device_memory(f"an array of {column.nbytes / 1e6:.1f} MB"):
        array = cuda.device_array(column.shape, column.dtype)
    array.copy_to_device(column)
    return array


def _starts(both: Any, bit: int, length: int, shift: int) -> np.ndarray:
    """Return the symbols where a part starts in the words and in the reversed words."""
    n_bits = 64 * ((len(both) - _AFTER) // 2)
    start = bit + 64 * _BEFORE
    return np.array([start >> shift, (2 * n_bits - start - (length << shift)) >> shift], np.uint32)


class DeviceSearch(Search):
    """Search for the middle of one part by a device; first and last rows by the host."""

    def __init__(self, on_device: LongPair, pair: Pair, part: Part) -> None:
        super().__init__(pair, part)
        self._on_device = on_device
        self._cells: Any = None  # int32 (2, 2, 2 * reach + 1) on the device, once in use
        self._sides: Any = None
        self._reach = 0
        self._device_state = np.zeros(N_STATE, np.int64)  # as of the last launch
        self._state_on_device: Any = None

    def slice(self) -> int:
        """Advance the search by some rows; return the status."""
        if self._cells is None:
            # The device needs the same number of rows of both ends.
            n_steps = 2 * FIRST_ROWS - int(self.state[S] + self.state[R]) - 2
            if self.state[S] > self.state[R]:
                n_steps = max(n_steps, 1)
            if n_steps > 0:
                status = self.steps(n_steps)
                if status != GOING:
                    return status
        with device_context(self._on_device.ordinal):
            if self._cells is None:
                self._upload_rows()
            status = self._launch()
            return self._finish() if status == FINISHED else status

    def saved(self) -> list[np.ndarray]:
        """Return the arrays that :meth:`restore` needs, here or on a device."""
        if self._cells is not None:
            lo, hi = int(self._device_state[LO]), int(self._device_state[HI])
            with device_context(self._on_device.ordinal):
                self._take_rows(lo, hi, lo, hi)
        return super().saved()

    def restore(self, arrays: list[np.ndarray]) -> None:
        """Resume a saved search."""
        super().restore(arrays)
        self.release()

    def release(self) -> None:
        """Free the device memory of the search."""
        with DRIVER:
            self._cells = self._sides = self._state_on_device = None

    def _upload_rows(self) -> None:
        """Upload the host's rows to the device."""
        row = int(self.state[S])
        r = row & 1
        los = [int(rows.lo[r]) for rows in (self.rows, self.back_rows)]
        his = [int(rows.hi[r]) for rows in (self.rows, self.back_rows)]
        lo, hi = min(los), max(his)
        self._sides = self._on_device.sides(self.pair)
        self._cells, self._reach = None, 0
        # Rows reach half of the distance; if that is known, they get their final room at once.
        most = int(self.state[SEARCH_BOUND]) // 2 + 2 * BATCH_ROWS
        self._make_room(max(min(FIRST_REACH, most), hi, -lo))
        for end, rows in enumerate((self.rows, self.back_rows)):
            column = np.full(hi - lo + 1, NULL, np.int32)
            at, n = int(rows.at[r]), his[end] - los[end] + 1
            column[los[end] - lo : los[end] - lo + n] = rows.cells[at : at + n]
            self._cells[0, end][lo + self._reach : hi + self._reach + 1].copy_to_device(column)
        state = np.zeros(N_STATE, np.int64)
        state[ROW], state[LO], state[HI] = row, lo, hi
        state[BOUND] = self.state[SEARCH_BOUND]
        state[FOUND_LO], state[FOUND_HI] = 2**40, -(2**40)
        self._device_state = state
        self._state_on_device = _uploaded(state)

    def _make_room(self, reach: int) -> None:
        """Give rows room for the diagonals -reach to reach; keep their contents."""
        shape = (2, 2, 2 * reach + 1)
        with device_memory(f"rows of {2 * reach + 1} diagonals"):
            cells = cuda.device_array(shape, np.int32)
        if self._cells is not None:
            buffer, shifted = int(self._device_state[BUFFER]), reach - self._reach
            for end in range(2):
                held = self._cells[buffer, end]
                cells[buffer, end][shifted : shifted + len(held)].copy_to_device(held)
        with DRIVER:
            self._cells, self._reach = cells, reach

    def _launch(self) -> int:
        """Advance both searches for some batches; return the status."""
        state = self._device_state
        row = int(state[ROW])
        if row + 2 * BATCH_ROWS > self._reach:
            self._make_room(2 * self._reach + 2 * BATCH_ROWS)
        n_batches = max(SLICE_CELLS // (8 * BATCH_ROWS * (row + 1)), 1)
        n_batches = min(n_batches, row // BATCH_ROWS + _MIN_BATCHES)
        n_batches = min(n_batches, (self._reach - row) // BATCH_ROWS)
        arguments = (self._sides, self._cells, -self._reach, self._state_on_device, n_batches)
        n_tiles = 2 * (2 * (row + n_batches * BATCH_ROWS) // TILE + 1)
        n_blocks = min(meet_kernel.resident_blocks(*arguments), n_tiles)
        meet_kernel.launch_blocks(n_blocks, 0, *arguments)
        self._state_on_device.copy_to_host(state)
        self.state[S] = self.state[R] = state[ROW]
        self.state[SEARCH_BOUND] = state[BOUND]
        return int(state[STATUS])

    def _finish(self) -> int:
        """Find the first two rows that overlap, and the middle, from the rows before the batch."""
        state = self._device_state
        lo, hi = int(state[FOUND_LO]) - BATCH_ROWS, int(state[FOUND_HI]) + BATCH_ROWS
        goal = int(self.pair.ref_len - self.pair.query_len)
        self._take_rows(lo, hi, goal - hi, goal - lo)
        self.release()
        status = self.steps(2 * BATCH_ROWS)
        if status == GOING:
            raise RuntimeError("rows that overlap on the device do not on the host")
        return status

    def _take_rows(self, lo: int, hi: int, back_lo: int, back_hi: int) -> None:
        """Fetch the diagonals lo to hi, and back_lo to back_hi, of the rows of both ends."""
        self.rows, self.state[REACH] = self._taken(0, lo, hi)
        self.back_rows, self.state[BACK_REACH] = self._taken(1, back_lo, back_hi)

    def _taken(self, end: int, lo: int, hi: int) -> tuple[Rows, int]:
        """Return a row in the form of the host, and the most symbols that its cells consumed."""
        state = self._device_state
        lo, hi = max(lo, int(state[LO])), min(hi, int(state[HI]))
        r = int(state[ROW]) & 1
        n = max(hi - lo + 1, 0)
        rows: Rows = new_rows(2 * (n + 2 * BATCH_ROWS + 4 * PAD), 2)
        clear_rows(rows)
        rows.lo[r], rows.hi[r] = lo, hi
        if n == 0:
            return rows, 0
        cells = self._cells[int(state[BUFFER]), end]
        taken = cells[lo + self._reach : hi + self._reach + 1].copy_to_host()
        at = int(rows.at[r])
        rows.cells[at - PAD : at] = rows.cells[at + n : at + n + PAD] = NULL
        rows.cells[at : at + n] = taken
        consumed = 2 * taken.astype(np.int64) - np.arange(lo, hi + 1)
        return rows, max(int(consumed.max()), 0)
