"""CUDA kernel of edit distance of short pairs: a group of lanes a pair.

The lanes of a group share out the diagonals of a row. All rows lie in shared memory, laid out as in
``small_rows.py``; one lane traces the path, into shared memory too, and all lanes copy it. As in
``flat_affine.py`` the groups of a warp are at the same row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from mapper.align.cuda.cooperative import (
    GROUP_BLOCK,
    any_lane,
    blocks_by_shared,
    lanes_of_warp_meet,
)
from mapper.align.cuda.kernels import strings_of, two_bits
from mapper.align.cuda.retry import DONE
from mapper.align.cuda.stages import hand_on, is_idle, source_of
from mapper.align.edit.strip import slide
from mapper.align.edit.wavefront import Rows, next_offset, trace_edit
from mapper.cuda.api import cuda, device_function, kernel

_MOST_BLOCKS = 12
"""Of a multiprocessor, by the registers of a thread."""

_NULL = np.int32(-(2**15))


class EditShape(NamedTuple):
    """How the lanes and the shared memory of a block are dealt to groups."""

    log_lanes: int  # of a group
    groups: int  # of a block
    bound: int  # greatest distance
    words: int  # of 32 bits, of a group: cells, and behind them operations
    cell_words: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * self.groups * self.words

    @property
    def blocks(self) -> int:
        """Blocks that a multiprocessor holds, or somewhat fewer."""
        return blocks_by_shared(self.shared_bytes, _MOST_BLOCKS)


def edit_shape(bound: int, lanes: int) -> EditShape:
    """Return the shape for distances up to `bound` and groups of so many lanes."""
    cell_words = ((bound + 1) ** 2 + 1) // 2
    return EditShape(
        log_lanes=lanes.bit_length() - 1,
        groups=GROUP_BLOCK // lanes,
        bound=bound,
        words=cell_words + 2 * bound + 2,
        cell_words=cell_words,
    )


@device_function
def _write_row(strings, s, lo, hi, cells, first_cell, lane, lanes):
    """Compute the cells from lo to hi of row s that are a lane's."""
    before = np.int32(first_cell + (s - np.int32(1)) * s)  # diagonal 0 of the row before
    here = np.int32(first_cell + s * s + s)
    strings = two_bits(strings)
    k = np.int32(lo + lane)
    while k <= hi:
        left, middle, right = _NULL, _NULL, _NULL
        # Unsigned, as an index that may be negative would be checked for that.
        if k > np.int32(1) - s:
            left = np.int32(cells[np.uint32(before + k - np.int32(1))])
        if k > -s and k < s:
            middle = np.int32(cells[np.uint32(before + k)])
        if k < s - np.int32(1):
            right = np.int32(cells[np.uint32(before + k + np.int32(1))])
        h = np.int32(0) if s == 0 else np.int32(next_offset(left, middle, right))
        cells[np.uint32(here + k)] = np.int16(slide(strings, h, k, _NULL))
        k = np.int32(k + lanes)


@kernel(GROUP_BLOCK)
def group_edit_kernel(staged, n, max_distance, shape, number, want_path, layout, stages, slot, out):
    """Find global edit distances, and paths, as stage `number`; groups stride over pairs.

    `layout` is that of ``small_rows.small_layout``; its cells are not used. Operations are written
    last one first.
    """
    cells = cuda.shared.array(0, types.int16)
    words = cuda.shared.array(0, types.uint32)
    lanes = np.int32(np.int32(1) << np.int32(shape.log_lanes))
    group = np.int32(np.int32(cuda.threadIdx.x) >> np.int32(shape.log_lanes))
    lane = np.int32(np.int32(cuda.threadIdx.x) & np.int32(lanes - np.int32(1)))
    worker = np.int32(np.int32(cuda.blockIdx.x) * np.int32(shape.groups) + group)
    n_workers = np.int32(np.int32(cuda.gridDim.x) * np.int32(shape.groups))
    first_word = np.int32(group * np.int32(shape.words))
    first_cell = np.int32(first_word + first_word)
    first_op = np.int32(first_word + np.int32(shape.cell_words))
    source = source_of(stages, number)
    n_pairs = np.int32(0) if is_idle(stages, number) else np.int32(stages.counts[source])
    first = np.int32(0)
    while first < n_pairs:
        x = np.int32(first + worker)
        first = np.int32(first + n_workers)
        running = x < n_pairs
        todo = running
        i = np.int64(stages.pairs[source - 1, x if running else np.int32(0)])
        strings = strings_of(staged, n, i)
        most = min(max_distance, np.int64(max(strings.query_len, strings.ref_len)))
        last = np.int32(min(most, np.int64(shape.bound)))
        goal = np.int32(strings.ref_len - strings.query_len)
        s = np.int32(0)
        found = False
        while any_lane(running):
            if running:
                # What is farther from the end cannot get there within the bound.
                slack = np.int32(last - s)
                lo = max(np.int32(-s), np.int32(goal - slack))
                hi = min(s, np.int32(goal + slack))
                _write_row(strings, s, lo, hi, cells, first_cell, lane, lanes)
            lanes_of_warp_meet()
            if running:
                here = np.int32(first_cell + s * s + s)
                if -s <= goal <= s and cells[np.uint32(here + goal)] == strings.ref_len:
                    found = True
                    running = False
                else:
                    s = np.int32(s + np.int32(1))
                    running = s <= last
        if todo and lane == 0:
            n_ops = np.int64(0)
            if found and want_path:
                rows = Rows(cells[first_cell:], layout.at, layout.lo, layout.hi)
                n_ops, _ = trace_edit(
                    rows, np.int64(s), np.int64(goal), np.int64(strings.ref_len),
                    words[first_op:], 0,
                )  # fmt: skip
            out.score[i] = s if found else -1
            out.n_ops[i] = n_ops
            if found or most <= shape.bound:  # above the limit if the room did not lower it
                out.status[i] = DONE
            else:
                hand_on(stages, number, i)
        lanes_of_warp_meet()
        if todo and found and want_path:
            n_ops = np.int64(out.n_ops[i])
            j = np.int64(lane)
            while j < n_ops:
                out.slots[i * slot + j] = words[np.uint32(first_op + j)]
                j += lanes
        lanes_of_warp_meet()
