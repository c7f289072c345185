"""CUDA kernel of gap-affine alignment of short pairs: a group of lanes a pair.

The lanes of a group share out the diagonals of a row. Only as many rows of offsets are held as
the recurrence looks back, in shared memory, 16 bits a cell; where cells came from goes to global
memory, a byte a cell, the bytes of a row side by side. One lane traces the path.

All groups of a warp begin their pairs together and are at the same row, so that the warp stays in
step; it takes new pairs when all of them have ended. A row goes as far as the recurrence and as
the end can be reached from within the greatest penalty; ``wavefront_affine`` leaves out some cells
more, which lie on no path of lowest penalty, and so the result is the same.

References
----------
Aguado-Puig et al. (2023), doi:10.1093/bioinformatics/btad061, section 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from mapper.align.affine.affine_origins import (
    DELETION_OPENED,
    INSERTION_OPENED,
    Origins,
    gap_origin,
    match_origin,
    replay,
    trace_back,
)
from mapper.align.affine.wavefront_affine import (
    AffinePenalties,
    highest_bound,
    next_deletion,
    next_insertion,
    next_match,
)
from mapper.align.cuda.cooperative import (
    GROUP_BLOCK,
    any_lane,
    blocks_by_shared,
    lanes_of_warp_meet,
)
from mapper.align.cuda.kernels import UNFIT, pair_of, strings_of, two_bits
from mapper.align.cuda.retry import DONE, LEFT
from mapper.align.edit.strip import slide
from mapper.cuda.api import cuda, device_function, kernel
from mapper.cuda.memory import Workspace, multiprocessors, total_bytes

_MOST_BLOCKS = 8
"""Of a multiprocessor, by the registers of a thread."""

_MOST_CELLS = 1 << 31
"""Of all groups, so that they are numbered by 32 bits."""

_NULL = np.int32(-(2**15))


class GroupSpace(NamedTuple):
    """Where the origins and events of all groups of a launch lie, and the rows of each."""

    cells: Any  # uint8 (n_groups * cells of a group,)
    events: Any  # uint32 (n_groups * (bound + 1),)
    at: Any  # int64 (bound + 2,): where a row's origins begin
    lo: Any  # int64 (bound + 2,): its lowest diagonal


class GroupShape(NamedTuple):
    """How the lanes and the shared memory of a block are dealt to groups."""

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
        """Blocks that a multiprocessor holds, or somewhat fewer."""
        return blocks_by_shared(self.shared_bytes, _MOST_BLOCKS)


def group_shape(penalties: AffinePenalties, bound: int, lanes: int) -> GroupShape:
    """Return the shape for penalties up to `bound` and groups of so many lanes."""
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
    """Return where the origins of rows up to `bound` begin, and their lowest diagonals."""
    reach = np.maximum(np.arange(bound + 2) - penalties.gap_open, 0) // penalties.gap_extend
    at = np.concatenate([[0], np.cumsum(2 * reach + 1)[:-1]])
    return at.astype(np.int64), -reach.astype(np.int64)


def group_space(
    space: Workspace, name: str, penalties: AffinePenalties, shape: GroupShape, n_pairs: int,
    want_path: bool,
) -> tuple[int, GroupSpace]:  # fmt: skip
    """Return how many blocks to launch for up to `n_pairs`, and their work space."""
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
    """Compute the cells from lo to hi of a row that are a lane's.

    `..._at`: where diagonal 0 of a row lies; `keep`: whether to note where cells came from.
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
        insertion = np.int32(next_insertion(opened_i, extended_i, most))
        deletion = np.int32(next_deletion(opened_d, extended_d, strings.ref_len))
        h = np.int32(next_match(mismatch, insertion, deletion))
        if keep:
            origin = gap_origin(opened_i, extended_i, INSERTION_OPENED)
            origin |= gap_origin(opened_d, extended_d, DELETION_OPENED)
            origin |= match_origin(np.int32(mismatch + np.int32(1)), insertion, deletion)
            cells[np.uint32(cell_at + k)] = origin
        rows[np.uint32(match_at + k)] = np.int16(slide(strings, h, k, _NULL))
        rows[np.uint32(insertion_at + k)] = np.int16(max(insertion, _NULL))
        rows[np.uint32(deletion_at + k)] = np.int16(max(deletion, _NULL))
        k = np.int32(k + lanes)


@device_function
def _back(at, by, n):
    """The row of a ring of n that was written `by` rows before row `at`."""
    row = np.int32(at - by)
    return np.int32(row + n) if row < 0 else row


@device_function
def _write_path(staged, strings, penalties, s, goal, origins, events, ops):
    """Write the operations of a path that has been found; return how many."""
    n_events, _ = trace_back(origins, penalties, np.int64(s), np.int64(goal), events)
    pair = pair_of(staged, strings)
    return replay(pair, events, n_events, 0, 0, pair.ref_len, ops)


@kernel(GROUP_BLOCK)
def group_affine_kernel(staged, n, penalties, scale, max_penalty, shape, is_first, want_path, space,
                        slot, out):  # fmt: skip
    """Find global gap-affine alignments up to a (divided) penalty; groups stride over pairs.

    The first launch looks at every pair; others do those that are left. Operations are written
    first one first.
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
            status = np.int32(LEFT)
            if not is_first:
                status = np.int32(out.status[i])
            elif columns[2 * n + i] < 0:
                status = np.int32(UNFIT)
        running = status == LEFT
        if not is_first and not any_lane(running):
            continue
        strings = strings_of(staged, n, i if running else np.int64(0))
        most = min(max_penalty, highest_bound(strings, penalties))
        last = np.int32(min(most, np.int64(shape.bound)))
        goal = np.int32(strings.ref_len - strings.query_len)
        # Diagonals -1 to 1 of every row; others when a row first looks at them.
        other = lane
        while other < n_rows:
            at = np.int32(matches + other * width)
            rows[np.uint32(at - np.int32(1))] = np.int16(_NULL)
            # Row 0 comes from a mismatch before it, which no other row sees.
            rows[np.uint32(at)] = np.int16(-1 if other == _back(np.int32(0), x, n_match) else _NULL)
            rows[np.uint32(at + np.int32(1))] = np.int16(_NULL)
            other = np.int32(other + lanes)
        s, reach, to_wider = np.int32(0), np.int32(0), opening
        row, gap_row = np.int32(0), np.int32(0)
        # Diagonals farther than this from the end do not get there within the bound.
        slack = np.int32(last // extend)
        to_closer = np.int32(last - slack * extend)
        found = False
        row_cell = np.int32(np.uint32(worker * n_cells))
        lanes_of_warp_meet()
        while any_lane(running):
            match_at = np.int32(matches + row * width)
            if running:
                gap_from = _back(gap_row, extend, n_gap)
                _write_row(
                    strings, max(np.int32(-reach), np.int32(goal - slack)),
                    min(reach, np.int32(goal + slack)), rows, match_at,
                    np.int32(matches + _back(row, x, n_match) * width),
                    np.int32(matches + _back(row, opening, n_match) * width),
                    np.int32(insertions + gap_row * width), np.int32(deletions + gap_row * width),
                    np.int32(insertions + gap_from * width),
                    np.int32(deletions + gap_from * width), lane, lanes, space.cells,
                    np.int32(row_cell + reach), keep,
                )  # fmt: skip
                other = lane if to_wider == 1 and reach < shape.most_reach else n_rows
                while other < n_rows:
                    at = np.int32(matches + other * width)
                    rows[np.uint32(at + reach + np.int32(2))] = np.int16(_NULL)
                    rows[np.uint32(at - reach - np.int32(2))] = np.int16(_NULL)
                    other = np.int32(other + lanes)
            lanes_of_warp_meet()
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
        if lane == 0 and i < n and (is_first or status == LEFT):
            n_ops = np.int64(0)
            if found and want_path:
                cells = space.cells[worker * n_cells : (worker + 1) * n_cells]
                n_ops = _write_path(
                    staged, strings, penalties, s, goal, Origins(cells, space.at, space.lo),
                    space.events[worker * (shape.bound + 1) :], out.slots[i * slot :],
                )  # fmt: skip
            out.n_ops[i] = n_ops
            out.score[i] = s * scale if found else -1
            # Above the limit, if the room did not lower it.
            if status == LEFT:
                status = np.int32(DONE if found or most <= shape.bound else LEFT)
            out.status[i] = status
        lanes_of_warp_meet()
