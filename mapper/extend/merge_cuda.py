"""CUDA kernels that join the alignments of rescued loci with those found before (``merge.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mapper.batch import AlignmentBatch
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace
from mapper.cuda.warp import WARP, WarpLanes
from mapper.extend.cuda import DeviceAlignments, NewOffsets
from mapper.extend.merge import (
    MergeSpace,
    copy_in_order,
    copy_rows,
    merge_space,
    merged_order,
    merged_order_of_many,
)
from mapper.jit.accelerate import core
from mapper.jit.lanes import THREAD_LANE

FEW_ROWS = 16
"""Rows of a read, of both batches, that one thread orders and copies; a warp does more."""

MERGING_WARPS = 4096
"""Warps that take such reads in turn; the device holds so many at a time."""


@core
def _n_rows(before, rescued, read):
    """Return the number of a read's rows in both batches."""
    old, new = before.alignment_offsets, rescued.alignment_offsets
    return old[read + 1] - old[read] + new[read + 1] - new[read]


@kernel(128)
def _order(before, rescued, n_reads, marks, new_marks, order, n_kept, n_ops, listed, n_listed):
    """Order the rows of one read a thread, where the later batch has some.

    Reads with many rows are for warps: ``n_listed[0]``, from the start of the list, to be ordered
    and copied; ``n_listed[1]``, from its end, to be copied.
    """
    read = cuda.grid(1)
    if read >= n_reads:
        return
    has_new = rescued.alignment_offsets[read] < rescued.alignment_offsets[read + 1]
    is_long = _n_rows(before, rescued, read) > FEW_ROWS
    if is_long and has_new:
        listed[cuda.atomic.add(n_listed, 0, 1)] = read
    elif is_long:
        listed[n_reads - 1 - cuda.atomic.add(n_listed, 1, 1)] = read
    if not has_new:
        first, end = before.alignment_offsets[read], before.alignment_offsets[read + 1]
        n_kept[read] = end - first
        n_ops[read] = before.cigar_offsets[end] - before.cigar_offsets[first]
    elif not is_long:
        first, end = before.alignment_offsets[read], before.alignment_offsets[read + 1]
        new_first, new_end = rescued.alignment_offsets[read], rescued.alignment_offsets[read + 1]
        n_kept[read], n_ops[read] = merged_order(
            before, first, end, rescued, new_first, new_end, marks[first:], new_marks[new_first:],
            order[first + new_first :],
        )  # fmt: skip


@kernel(128)
def _order_by_warp(before, rescued, n_warps, space, order, n_kept, n_ops, listed, n_listed):
    """Do what `_order` does for the reads of its list, one a warp at a time.

    `space` has an item for each row of both batches, and a read the part that `order` has for it.
    """
    thread = cuda.grid(1)
    warp = thread // WARP
    if warp >= n_warps:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    for item in range(warp, n_listed[0], n_warps):
        read = listed[item]
        first, end = before.alignment_offsets[read], before.alignment_offsets[read + 1]
        new_first, new_end = rescued.alignment_offsets[read], rescued.alignment_offsets[read + 1]
        at = first + new_first
        own = MergeSpace(
            space.strand[at:], space.ref_id[at:], space.text_start[at:], space.text_end[at:],
            space.query_start[at:], space.query_end[at:], space.score[at:], space.kept[at:],
            space.spare[at:], space.keys[2 * at :],
        )  # fmt: skip
        kept, ops = merged_order_of_many(
            before, first, end, rescued, new_first, new_end, own, order[at:], lanes
        )
        if lanes.lane == 0:
            n_kept[read], n_ops[read] = kept, ops


@core
def _copy_read(before, rescued, read, order, op_offsets, out, lanes):
    """Copy the rows of a read to their place."""
    first, end = before.alignment_offsets[read], before.alignment_offsets[read + 1]
    new_first, new_end = rescued.alignment_offsets[read], rescued.alignment_offsets[read + 1]
    row, op = out.alignment_offsets[read], op_offsets[read]
    if new_first == new_end:
        copy_rows(before, first, end, out, row, op, lanes)
    else:
        n_rows = out.alignment_offsets[read + 1] - row
        copy_in_order(before, rescued, order[first + new_first :], n_rows, out, row, op, lanes)


@kernel(128)
def _copy(before, rescued, n_reads, order, op_offsets, out):
    """Copy the rows of a read with few of them, one read a thread."""
    read = cuda.grid(1)
    if read >= n_reads:
        return
    if read == 0:
        out.cigar_offsets[0] = 0
    if _n_rows(before, rescued, read) <= FEW_ROWS:
        _copy_read(before, rescued, read, order, op_offsets, out, THREAD_LANE)


@kernel(128)
def _copy_by_warp(before, rescued, n_warps, n_reads, order, op_offsets, out, listed, n_listed):
    """Copy the rows of the listed reads, one a warp at a time."""
    thread = cuda.grid(1)
    warp = thread // WARP
    if warp >= n_warps:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    for item in range(warp, n_listed[0] + n_listed[1], n_warps):
        at = item if item < n_listed[0] else n_reads - 1 - (item - n_listed[0])
        _copy_read(before, rescued, listed[at], order, op_offsets, out, lanes)


def merge_on_device(
    space: Workspace, before: DeviceAlignments, rescued: DeviceAlignments, name: str
) -> DeviceAlignments:
    """Join two batches on the device: :func:`mapper.extend.merge.merge_alignments`.

    Parameters
    ----------
    name
        Of the result in the workspace, another than those of the two batches.

    Returns
    -------
    Arrays that hold until `space` is used for other alignments of that name. Waits for the
    stream.
    """
    n_reads = len(before.batch.alignment_offsets) - 1
    n_rows = before.n_rows + rescued.n_rows
    order = space.device("merge.order", n_rows, np.int32)
    n_kept = space.device("merge.n_kept", n_reads, np.int32)
    n_ops = space.device("merge.n_ops", n_reads, np.int32)
    both: tuple[AlignmentBatch, Any] = (before.batch, rescued.batch)
    marks = space.device("merge.marks", before.n_rows, np.uint8)
    new_marks = space.device("merge.new_marks", rescued.n_rows, np.uint8)
    listed = space.device("merge.listed", n_reads, np.int32)
    n_listed = space.upload("merge.n_listed", np.zeros(2, np.int64))
    ordering = (order, n_kept, n_ops, listed, n_listed)
    n_warps = min(n_reads, MERGING_WARPS)
    _order.launch(n_reads, space.stream, *both, n_reads, marks, new_marks, *ordering)
    of_warps = merge_space(n_rows, lambda name, n, dtype: space.device(f"merge.{name}", n, dtype))
    _order_by_warp.launch(WARP * n_warps, space.stream, *both, n_warps, of_warps, *ordering)
    offsets = NewOffsets(space, name, n_kept, n_ops)
    space.synchronize()
    merged = offsets.make_room()
    copying = (n_reads, order, offsets.ops, merged.batch)
    _copy.launch(n_reads, space.stream, *both, *copying)
    _copy_by_warp.launch(WARP * n_warps, space.stream, *both, n_warps, *copying, listed, n_listed)
    return merged
