"""CUDA kernels of gap-affine alignment, in which a group of threads aligns a pair.

- :func:`group_affine_kernel`: short pairs, exactly, by 8 or 32 lanes of a warp each.
- :func:`band_affine_kernel`: pairs in an adaptive band, by 8 to 32 lanes each.
- :func:`wide_affine_kernel`: long pairs, exactly, by a block each. It searches a pair twice: first
  in a narrow band, for a penalty that some alignment has, which is mostly the lowest already; then
  exactly, without the cells from which the end cannot be reached within that penalty. Of the square
  of cells that leaves half.

The threads of a group share out the diagonals of a wavefront. Only the rows of offsets that the
recurrence looks back to are held, in shared memory, 16 bits a cell; origins go to global memory, a
byte a cell, the bytes of a row contiguous. One thread traces the path back. The groups of a warp
begin their pairs together and are at the same row, so that the warp stays in step.

The last two kernels search by :func:`search_by_lanes` and :func:`search_by_block`: rows are ring
buffers (``cuda_rows.py``), bounded, trimmed and cut as in ``wavefront.py``, for the same cells and
so the same result, which may not be optimal in a band. Groups take pairs from a worklist as soon as
they have finished some. The first kernel has a search of its own, whose rows have fixed bounds,
those of the greatest penalty: it computes cells that lie on no path of lowest penalty, but looks up
and writes no bounds. By :func:`search_by_lanes` without a band its loop over cells would have 234
instructions in place of 217, of which 105 only follow long runs of matches, and each of its rows,
which hold few cells, a dozen more accesses to shared memory (compiled for sm_90; not timed).

References
----------
Aguado-Puig et al. (2023), doi:10.1093/bioinformatics/btad061, sections 3.2 to 3.5.
Castells-Rufas (2023), Parallel Computing, 103019, section 3 (the diamond of cells that can be on a
path).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from mapper.align.affine.cuda_rows import (
    BOUNDS,
    FAR,
    FEWEST,
    NEXT_PAIR,
    cut_bounds,
    diagonals_of,
    fewest_left,
    kept_around,
    note_bounds,
    offset_on,
    ring_of,
    row_after,
    row_at,
    row_back,
    rows_before,
    trimmed,
    write_cell,
)
from mapper.align.affine.wavefront import (
    AffinePenalties,
    Band,
    Origins,
    affine_cell,
    cell_origin,
    highest_bound,
    replay,
    trace_back,
)
from mapper.align.cuda.cooperative import (
    GROUP_BLOCK,
    WARP,
    Group,
    any_lane,
    blocks_by_shared,
    sync_lanes,
)
from mapper.align.cuda.kernels import UNFIT, pair_of, strings_of, two_bits
from mapper.align.cuda.retry import CUT, DONE, UNSOLVED
from mapper.align.cuda.worklist import (
    IN_SLOT,
    NO_SPACE,
    WIDE_BLOCK,
    allocate_path,
    move_path,
    take_pair,
)
from mapper.align.edit.wavefront import EXCEEDED, FINISHED, GOING, NO_ROOM
from mapper.align.matches import NULL_16, slide
from mapper.cuda.api import cuda, device_function, kernel
from mapper.cuda.memory import Workspace, multiprocessors, total_bytes

_MOST_BLOCKS = 8
"""Blocks of a multiprocessor, by the registers of a thread."""

_MOST_CELLS = 1 << 31
"""Origins of all groups of a launch: their indices have 32 bits."""


class GroupSpace(NamedTuple):
    """Workspace of the tracebacks of all groups of a launch."""

    cells: Any  # uint8 (n_groups * cells of a group,)
    events: Any  # uint32 (n_groups * (bound + 1),)
    at: Any  # int64 (bound + 2,): where a row's origins begin
    lo: Any  # int64 (bound + 2,): its lowest diagonal


class GroupShape(NamedTuple):
    """Threads and shared memory of the groups of a block."""

    log_lanes: int  # of a group
    groups: int  # of a block
    bound: int  # greatest (divided) penalty
    most_reach: int  # greatest diagonal of a row
    width: int  # cells of a row, with one on each side
    n_match: int  # rows of M that are held
    n_gap: int  # rows of I, and of D

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 2 * self.groups * (self.n_match + 2 * self.n_gap) * self.width

    @property
    def blocks(self) -> int:
        """Resident blocks of a multiprocessor, or a few less."""
        return blocks_by_shared(self.shared_bytes, _MOST_BLOCKS)


def group_shape(penalties: AffinePenalties, bound: int, lanes: int) -> GroupShape:
    """Return the shape for penalties up to `bound` and groups of `lanes` threads."""
    reach = max(bound - penalties.gap_open, 0) // penalties.gap_extend
    opening = penalties.gap_open + penalties.gap_extend
    return GroupShape(
        log_lanes=lanes.bit_length() - 1,
        groups=GROUP_BLOCK // lanes,
        bound=bound,
        most_reach=reach,
        width=2 * reach + 3,
        n_match=max(penalties.mismatch, opening) + 1,
        n_gap=penalties.gap_extend + 1,
    )


def row_bounds(penalties: AffinePenalties, bound: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first origin and the lowest diagonal of every row up to `bound`."""
    reach = np.maximum(np.arange(bound + 2) - penalties.gap_open, 0) // penalties.gap_extend
    at = np.concatenate([[0], np.cumsum(2 * reach + 1)[:-1]])
    return at.astype(np.int64), -reach.astype(np.int64)


def group_space(
    space: Workspace, name: str, penalties: AffinePenalties, shape: GroupShape, n_pairs: int,
    want_path: bool,
) -> tuple[int, GroupSpace]:  # fmt: skip
    """Return how many blocks to launch for up to `n_pairs`, and their workspace."""
    at, lo = row_bounds(penalties, shape.bound)
    n_cells, n_events = (int(at[-1]), shape.bound + 1) if want_path else (1, 1)
    n_blocks = min(
        (n_pairs + shape.groups - 1) // shape.groups,
        multiprocessors() * shape.blocks,
        max(1, (total_bytes() >> 7) // (shape.groups * (n_cells + 4 * n_events))),
        max(1, _MOST_CELLS // (shape.groups * n_cells)),
    )
    n_groups = n_blocks * shape.groups
    return n_blocks, GroupSpace(
        space.device(f"{name} cells", n_groups * n_cells, np.uint8),
        space.device(f"{name} events", n_groups * n_events, np.uint32),
        space.upload(f"{name} at", at), space.upload(f"{name} lo", lo),
    )  # fmt: skip


@device_function
def _write_row(strings, lo, hi, rows, match_at, mismatch_at, opened_at, insertion_at, deletion_at,
               insertion_from, deletion_from, lane, lanes, cells, cell_at, keep):  # fmt: skip
    """Compute a lane's share of the cells from lo to hi of a row.

    `..._at`, `..._from`: index of diagonal 0 of a row. `keep`: nonzero to write origins.
    """
    strings = two_bits(strings)
    k = np.int32(lo + lane)
    while k <= hi:
        # Unsigned, as an index that may be negative would be checked for that.
        above = np.uint32(opened_at + k + np.int32(1))
        below = np.uint32(opened_at + k - np.int32(1))
        opened_i, opened_d = np.int32(rows[above]), np.int32(rows[below])
        extended_i = np.int32(rows[np.uint32(insertion_from + k + np.int32(1))])
        extended_d = np.int32(rows[np.uint32(deletion_from + k - np.int32(1))])
        mismatch = np.int32(rows[np.uint32(mismatch_at + k)])
        most = np.int32(strings.query_len + k)
        insertion, deletion, h = affine_cell(
            mismatch, opened_i, extended_i, opened_d, extended_d, most, strings.ref_len
        )
        if keep:
            cells[np.uint32(cell_at + k)] = cell_origin(
                mismatch, opened_i, extended_i, opened_d, extended_d, insertion, deletion
            )
        rows[np.uint32(match_at + k)] = np.int16(slide(strings, h, k, NULL_16))
        rows[np.uint32(insertion_at + k)] = np.int16(max(insertion, NULL_16))
        rows[np.uint32(deletion_at + k)] = np.int16(max(deletion, NULL_16))
        k = np.int32(k + lanes)


@device_function
def _write_path(staged, strings, penalties, s, goal, origins, events, ops):
    """Trace a path back and write its operations; return how many."""
    n_events, _ = trace_back(origins, penalties, np.int64(s), np.int64(goal), events)
    pair = pair_of(staged, strings)
    return replay(pair, events, n_events, 0, 0, pair.ref_len, ops)


@kernel(GROUP_BLOCK)
def group_affine_kernel(staged, n, penalties, scale, max_penalty, shape, is_first, want_path, space,
                        slot, out):  # fmt: skip
    """Find global gap-affine alignments up to a (divided) penalty; groups stride over pairs.

    The first launch looks at every pair, later ones at those that are unsolved. Operations are
    written from the first to the last.
    """
    rows = cuda.shared.array(0, types.int16)
    lanes = np.int32(np.int32(1) << np.int32(shape.log_lanes))
    group = np.int32(np.int32(cuda.threadIdx.x) >> np.int32(shape.log_lanes))
    lane = np.int32(np.int32(cuda.threadIdx.x) & np.int32(lanes - np.int32(1)))
    worker = np.int64(cuda.blockIdx.x) * shape.groups + group
    n_workers = np.int64(cuda.gridDim.x) * shape.groups
    x, extend = np.int32(penalties.mismatch), np.int32(penalties.gap_extend)
    opening = np.int32(np.int32(penalties.gap_open) + extend)
    n_match, n_gap, width = np.int32(shape.n_match), np.int32(shape.n_gap), np.int32(shape.width)
    n_rows = np.int32(n_match + n_gap + n_gap)
    # Diagonal 0 of the first row of each state.
    matches = np.int32(group * n_rows * width + np.int32(shape.most_reach) + np.int32(1))
    insertions = np.int32(matches + n_match * width)
    deletions = np.int32(insertions + n_gap * width)
    n_cells = space.at[shape.bound + 1]
    keep = np.int32(want_path)
    columns = staged.view(np.int32)
    first = np.int64(0)
    while first < n:
        i = first + worker
        first += n_workers
        status = np.int32(DONE)
        if i < n:
            status = np.int32(UNSOLVED)
            if not is_first:
                status = np.int32(out.status[i])
            elif columns[2 * n + i] < 0:
                status = np.int32(UNFIT)
        running = status == UNSOLVED
        if not is_first and not any_lane(running):
            continue
        strings = strings_of(staged, n, i if running else np.int64(0))
        most = min(max_penalty, highest_bound(strings, penalties))
        last = np.int32(min(most, np.int64(shape.bound)))
        goal = np.int32(strings.ref_len - strings.query_len)
        # Diagonals -1 to 1 of every row; others are set when a row first reads them.
        other = lane
        while other < n_rows:
            at = np.int32(matches + other * width)
            rows[np.uint32(at - np.int32(1))] = np.int16(NULL_16)
            # Row 0 comes from a mismatch before it, which no other row sees.
            rows[np.uint32(at)] = np.int16(
                -1 if other == row_back(np.int32(0), x, n_match) else NULL_16
            )
            rows[np.uint32(at + np.int32(1))] = np.int16(NULL_16)
            other = np.int32(other + lanes)
        s, reach, to_wider = np.int32(0), np.int32(0), opening
        row, gap_row = np.int32(0), np.int32(0)
        # Diagonals farther than this from the end do not get there within the bound.
        slack = np.int32(last // extend)
        to_closer = np.int32(last - slack * extend)
        found = False
        row_cell = np.int32(np.uint32(worker * n_cells))
        sync_lanes()
        while any_lane(running):
            match_at = np.int32(matches + row * width)
            if running:
                gap_from = row_back(gap_row, extend, n_gap)
                _write_row(
                    strings, max(np.int32(-reach), np.int32(goal - slack)),
                    min(reach, np.int32(goal + slack)), rows, match_at,
                    np.int32(matches + row_back(row, x, n_match) * width),
                    np.int32(matches + row_back(row, opening, n_match) * width),
                    np.int32(insertions + gap_row * width), np.int32(deletions + gap_row * width),
                    np.int32(insertions + gap_from * width),
                    np.int32(deletions + gap_from * width), lane, lanes, space.cells,
                    np.int32(row_cell + reach), keep,
                )  # fmt: skip
                other = lane if to_wider == 1 and reach < shape.most_reach else n_rows
                while other < n_rows:
                    at = np.int32(matches + other * width)
                    rows[np.uint32(at + reach + np.int32(2))] = np.int16(NULL_16)
                    rows[np.uint32(at - reach - np.int32(2))] = np.int16(NULL_16)
                    other = np.int32(other + lanes)
            sync_lanes()
            if running:
                if -reach <= goal <= reach and rows[np.uint32(match_at + goal)] == strings.ref_len:
                    found = True
                    running = False
                else:
                    row_cell = np.int32(row_cell + np.int32(reach + reach + np.int32(1)))
                    s = np.int32(s + np.int32(1))
                    running = s <= last
                    row = np.int32(row + 1) if row + 1 < n_match else np.int32(0)
                    gap_row = np.int32(gap_row + 1) if gap_row + 1 < n_gap else np.int32(0)
                    to_closer = np.int32(to_closer - np.int32(1))
                    if to_closer < 0:
                        to_closer = np.int32(extend - np.int32(1))
                        slack = np.int32(slack - np.int32(1))
                    to_wider = np.int32(to_wider - np.int32(1))
                    if to_wider == 0:
                        to_wider = extend
                        reach = np.int32(reach + np.int32(1))
        if lane == 0 and i < n and (is_first or status == UNSOLVED):
            n_ops = np.int64(0)
            if found and want_path:
                cells = space.cells[worker * n_cells : (worker + 1) * n_cells]
                n_ops = _write_path(
                    staged, strings, penalties, s, goal, Origins(cells, space.at, space.lo),
                    space.events[worker * (shape.bound + 1) :], out.slots[i * slot :],
                )  # fmt: skip
            out.n_ops[i] = n_ops
            out.score[i] = s * scale if found else -1
            # Without a path the penalty is above the limit, unless shape.bound lowered that.
            if status == UNSOLVED:
                status = np.int32(DONE if found or most <= shape.bound else UNSOLVED)
            out.status[i] = status
        sync_lanes()


@device_function
def write_listed_path(staged, strings, penalties, s, origins, events, i, slot, worklist, out):
    """Trace a path back and write its operations, in its slot or in ``long_ops``.

    Returns
    -------
    Number of operations; -1 if there is no space for them.
    """
    goal = np.int64(strings.ref_len - strings.query_len)
    n_events, _ = trace_back(origins, penalties, np.int64(s), goal, events)
    pair = pair_of(staged, strings)
    first = allocate_path(worklist, out, slot, np.int64(2 * n_events + 1))
    if first == NO_SPACE:
        return np.int64(-1)
    if first == IN_SLOT:
        return replay(pair, events, n_events, 0, 0, pair.ref_len, out.slots[i * slot :])
    n_ops = replay(pair, events, n_events, 0, 0, pair.ref_len, out.long_ops[first:])
    move_path(out, i, slot, first, n_ops)
    return n_ops


@device_function
def write_result(staged, strings, penalties, scale, status, s, origins, events, want_path, i, slot,
                 worklist, out):  # fmt: skip
    """Write the row of pair i of the worklist, and its path; UNSOLVED if the path has no space.

    `status`: CUT or DONE and the penalty s, or DONE or UNSOLVED and -1.
    """
    n_ops = np.int64(0)
    if s >= 0 and want_path:
        n_ops = write_listed_path(
            staged, strings, penalties, s, origins, events, i, slot, worklist, out
        )
        if n_ops < 0:
            status, s, n_ops = np.int32(UNSOLVED), np.int32(-1), np.int64(0)
    out.score[i] = np.int64(s) * scale if s >= 0 else -1
    out.n_ops[i] = n_ops
    out.status[i] = status


@device_function
def search_by_lanes(group, strings, penalties, band_width, interval, limit, shape, state, rows, own,
                cells, at, keep, running):  # fmt: skip
    """Search the end, row after row; called by all lanes of a warp together.

    Parameters
    ----------
    group
        The thread in its group, whose threads share out the diagonals.
    band_width, interval
        The adaptive band; a width of 0 for none: then rows are not trimmed either.
    limit
        Penalties above it are of no interest.
    state, rows
        Shared memory, as int32 and int16; `own` is the word at which the group's begins. All
        threads of a group write the same bounds of rows, and read what they wrote themselves.
    cells, at
        As those of ``SearchSpace``, of the group.
    keep
        Nonzero to write origins.
    running
        False for a group of a warp that has no pair.

    Returns
    -------
    status, s, cut
        FINISHED and the penalty, EXCEEDED or NO_ROOM; True if the band has cut cells off.
    """
    strings = two_bits(strings)
    ring = ring_of(penalties, shape, np.int32(own + np.int32(BOUNDS)))
    most_s, most_cells = np.int32(shape.bound), np.int32(shape.cells)
    goal = np.int32(strings.ref_len - strings.query_len)
    bound = np.int32(limit)
    r = group.lane
    while r < ring.n_match:
        state[np.uint32(ring.bounds + r)] = 0
        r = np.int32(r + group.n_lanes)
    fewest_at = np.int32(own + np.int32(FEWEST))
    if group.lane < 2:
        state[np.uint32(fewest_at + group.lane)] = FAR
    # All groups of a warp are at the same row.
    s, row, gap_row, to_cut = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
    turn = np.int32(0)
    lo, hi, n, end = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
    cell_at = np.int32(0)
    cut = False
    status = np.int32(GOING if running else EXCEEDED)
    sync_lanes()
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
                if keep and group.lane == 0:
                    at[np.uint32(s)] = np.int32(cell_at - lo)
                k = np.int32(lo + group.lane)
                while k <= hi:
                    origin = write_cell(strings, rows, ring, before, here, k)
                    if keep:
                        cells[np.uint32(cell_at + np.int32(k - lo))] = origin
                    k = np.int32(k + group.n_lanes)
                cell_at = np.int32(cell_at + n)
        # The only wait of most rows: the code below reads this row, and writes none still read.
        sync_lanes()
        at_goal = np.int32(-1)
        if status == GOING:
            at_goal = offset_on(rows, here.match, goal, ring.mask, lo, n, NULL_16)
            if at_goal == strings.ref_len:
                status, end = np.int32(FINISHED), s
        if band_width > 0:
            if status == GOING:
                lo, hi = trimmed(rows, ring, here, lo, hi)
            if to_cut == 0:
                to_cut = interval
                is_wide = status == GOING and np.int32(hi - lo) >= band_width
                if any_lane(is_wide):
                    word = np.int32(fewest_at + turn)
                    turn = np.int32(np.int32(1) - turn)
                    if is_wide:
                        fewest = fewest_left(group, strings, rows, ring, here, lo, hi)
                        cuda.atomic.min(state, np.uint32(word), fewest)
                    if group.lane == 0:
                        state[np.uint32(fewest_at + turn)] = FAR  # last read before the row's wait
                    sync_lanes()
                    if is_wide:
                        fewest = np.int32(state[np.uint32(word)])
                        lo, hi = kept_around(fewest, lo, hi, band_width)
                        cut_bounds(state, ring, lo, hi)
                        cut = True
            to_cut = np.int32(to_cut - np.int32(1))
        note_bounds(state, np.int32(ring.bounds + row), lo, hi)
        if at_goal >= 0 and lo <= goal <= hi:
            # The cost of mismatches from here to the end of both sequences.
            bound = min(bound, np.int32(s + ring.mismatch * np.int32(strings.ref_len - at_goal)))
        s = np.int32(s + np.int32(1))
        row, gap_row = row_after(row, ring.n_match), row_after(gap_row, ring.n_gap)
    sync_lanes()  # another search may now write rows and state
    return status, end, cut


@device_function
def _take_pairs(worklist, state, word, n):
    """Take n pairs of the worklist for a warp; return the index of the first.

    Called by all lanes together. `word`: an item of `state` of the warp; it is overwritten.
    """
    if np.int32(cuda.threadIdx.x) % np.int32(WARP) == 0:
        state[word] = cuda.atomic.add(worklist.counts, 1, np.int32(n))
    sync_lanes()
    j = np.int32(state[word])
    sync_lanes()
    return j


@kernel(GROUP_BLOCK)
def band_affine_kernel(staged, n, penalties, scale, max_penalty, band, shape, want_path, space,
                       worklist, slot, out):  # fmt: skip
    """Align the listed pairs globally in a band, by a group of lanes each.

    Operations are written from the first to the last.
    """
    state = cuda.shared.array(0, types.int32)
    rows = cuda.shared.array(0, types.int16)
    log_lanes = np.int32(shape.log_lanes)
    lanes = np.int32(np.int32(1) << log_lanes)
    thread = np.int32(cuda.threadIdx.x)
    group = np.int32(thread >> log_lanes)
    lane = np.int32(thread & np.int32(lanes - np.int32(1)))
    of_warp = np.int32(np.int32(WARP) >> log_lanes)  # its groups
    in_warp = np.int32(group & np.int32(of_warp - np.int32(1)))
    stride = np.int32(shape.stride)
    own = np.int32(group * stride)
    next_word = np.uint32(np.int32(np.int32(group - in_warp) * stride) + np.int32(NEXT_PAIR))
    if group >= shape.groups:
        return
    worker = np.int64(cuda.blockIdx.x) * shape.groups + group
    n_rows = np.int64(shape.bound) + 1
    if not want_path:
        worker = np.int64(0)
    cells = space.cells[worker * shape.cells :]
    at, events = space.at[worker * n_rows :], space.events[worker * n_rows :]
    while True:
        first = _take_pairs(worklist, state, next_word, of_warp)
        n_listed = np.int32(worklist.counts[0])
        if first >= n_listed:
            break
        running = np.int32(first + in_warp) < n_listed
        i = np.int64(worklist.pairs[np.int32(first + in_warp) if running else first])
        strings = strings_of(staged, n, i)
        most = min(max_penalty, highest_bound(strings, penalties))
        # Cuts depend on the cells of rows, so that shape.bound must not limit those.
        status, s, cut = search_by_lanes(
            Group(lane, lanes), strings, penalties, np.int32(band.width),
            np.int32(band.interval), most, shape, state, rows, own, cells, at,
            np.int32(want_path), running,
        )  # fmt: skip
        if running and lane == 0:
            solved = np.int32(UNSOLVED)
            if status == FINISHED:
                solved = np.int32(CUT if cut else DONE)
            elif status == EXCEEDED and not cut:
                solved = np.int32(DONE)  # above the limit: no cell was cut off
            write_result(
                staged, strings, penalties, scale, solved,
                s if status == FINISHED else np.int32(-1), Origins(cells, at, space.zeros), events,
                want_path, i, slot, worklist, out,
            )  # fmt: skip
        sync_lanes()


@device_function
def search_by_block(strings, penalties, band_width, interval, limit, shape, state, rows, cells, at,
                  keep, lane):  # fmt: skip
    """Search the end of a pair, row after row; called by all threads of a block together.

    The same search as :func:`search_by_lanes`, whose parameters it has, without lanes that wait for
    other pairs. One text for both took 12 to 16 % of the rate of pairs of 10,000 bases
    (benchmarks/results/house_on_gpu.md).

    Returns
    -------
    status, s
        FINISHED and the penalty, EXCEEDED or NO_ROOM.
    """
    strings = two_bits(strings)
    lanes = np.int32(WIDE_BLOCK)
    ring = ring_of(penalties, shape, np.int32(BOUNDS))
    own = Group(lane, lanes)
    goal = np.int32(strings.ref_len - strings.query_len)
    bound = np.int32(limit)
    r = lane
    while r < ring.n_match:
        state[np.uint32(ring.bounds + r)] = 0
        r = np.int32(r + lanes)
    if lane < 2:
        state[FEWEST + lane] = FAR
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
            at[s] = np.int32(cell_at - lo)
        here = row_at(ring, row, gap_row)
        k = np.int32(lo + lane)
        while k <= hi:
            origin = write_cell(strings, rows, ring, before, here, k)
            if keep:
                cells[np.uint64(cell_at + np.int32(k - lo))] = origin
            k = np.int32(k + lanes)
        cuda.syncthreads()
        cell_at += n
        at_goal = offset_on(rows, here.match, goal, ring.mask, lo, n, NULL_16)
        if at_goal == strings.ref_len:
            status = np.int32(FINISHED)
            break
        if band_width > 0:
            lo, hi = trimmed(rows, ring, here, lo, hi)
            if to_cut == 0 and np.int32(hi - lo) >= band_width:
                fewest = fewest_left(own, strings, rows, ring, here, lo, hi)
                cuda.atomic.min(state, FEWEST + turn, fewest)
                turn = np.int32(np.int32(1) - turn)
                if lane == 0:
                    state[FEWEST + turn] = FAR
                cuda.syncthreads()
                fewest = np.int32(state[FEWEST + np.int32(1) - turn])
                lo, hi = kept_around(fewest, lo, hi, band_width)
                cut_bounds(state, ring, lo, hi)
            to_cut = np.int32(interval - np.int32(1)) if to_cut == 0 else np.int32(to_cut - 1)
        note_bounds(state, np.int32(ring.bounds + row), lo, hi)
        if at_goal >= 0 and lo <= goal <= hi:
            bound = min(bound, np.int32(s + ring.mismatch * np.int32(strings.ref_len - at_goal)))
        s = np.int32(s + np.int32(1))
        row, gap_row = row_after(row, ring.n_match), row_after(gap_row, ring.n_gap)
    cuda.syncthreads()
    return status, s


PROBE = Band(32, 16)
"""Band of the first search of a long pair."""


@kernel(WIDE_BLOCK)
def wide_affine_kernel(staged, n, penalties, scale, max_penalty, shape, want_path, space, worklist,
                       slot, out):  # fmt: skip
    """Align the listed pairs globally, by WIDE_BLOCK threads each."""
    state = cuda.shared.array(0, types.int32)
    rows = cuda.shared.array(0, types.int16)
    lane = np.int32(cuda.threadIdx.x)
    cells = space.cells[np.int64(cuda.blockIdx.x) * shape.cells :]
    first_row = np.int64(cuda.blockIdx.x) * (shape.bound + 1)
    if not want_path:
        first_row = np.int64(0)
    at, events = space.at[first_row:], space.events[first_row:]
    while True:
        i = take_pair(worklist, state, lane)
        if i < 0:
            break
        strings = strings_of(staged, n, i)
        most = min(max_penalty, highest_bound(strings, penalties))
        # Rows above shape.bound do not fit.
        limit = min(most, np.int64(shape.bound))
        probes = True
        status, s = np.int32(GOING), np.int32(0)
        while status == GOING:
            width, keep = np.int32(PROBE.width), np.int32(0)
            if not probes:
                width, keep = np.int32(0), np.int32(want_path)
            status, s = search_by_block(
                strings, penalties, width, np.int32(PROBE.interval), limit, shape, state, rows,
                cells, at, keep, lane,
            )  # fmt: skip
            if probes:
                if status == FINISHED:
                    limit = np.int64(s)
                    status = np.int32(GOING)
                elif most <= shape.bound:
                    status = np.int32(GOING)  # the band may have cut off all paths
                probes = False
        if lane == 0:
            solved = np.int32(UNSOLVED)
            if status == FINISHED or (status == EXCEEDED and most <= shape.bound):
                solved = np.int32(DONE)  # or above the limit, which shape.bound has not lowered
            write_result(
                staged, strings, penalties, scale, solved,
                s if status == FINISHED else np.int32(-1), Origins(cells, at, space.zeros), events,
                want_path, i, slot, worklist, out,
            )  # fmt: skip
