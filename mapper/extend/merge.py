"""Join the alignments of rescued loci with those found before, read by read.

Few reads have any: the rows of all others are copied in one piece from one such read to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import AlignmentBatch
from mapper.extend.filter import comes_before, is_redundant, keep_distinct_by_place
from mapper.jit.accelerate import core, driver
from mapper.jit.lanes import ONE_LANE, lane_sum, lanes_meet

FEW_MERGED = 32
"""So few rows of a read, of both batches, are compared each with those of the other."""


@core
def copy_rows(source, first, end, target, row, op, lanes):
    """Copy rows first:end, with their operations, to `row` and `op` and on; return those behind.

    `lanes` share rows, and operations.
    """
    shift = row - first
    op_shift = op - source.cigar_offsets[first]
    for i in range(first + lanes.lane, end, lanes.n_lanes):
        target.strand[i + shift] = source.strand[i]
        target.ref_id[i + shift] = source.ref_id[i]
        target.text_start[i + shift] = source.text_start[i]
        target.text_end[i + shift] = source.text_end[i]
        target.query_start[i + shift] = source.query_start[i]
        target.query_end[i + shift] = source.query_end[i]
        target.score[i + shift] = source.score[i]
        target.edit_distance[i + shift] = source.edit_distance[i]
        target.cigar_offsets[i + shift + 1] = source.cigar_offsets[i + 1] + op_shift
    ops_end = source.cigar_offsets[end]
    for i in range(source.cigar_offsets[first] + lanes.lane, ops_end, lanes.n_lanes):
        target.cigar_ops[i + op_shift] = source.cigar_ops[i]
    return end + shift, ops_end + op_shift


_ALONE, _PAIRED, _STAYS = range(3)
"""Marks of a row: it is redundant with none of the other batch; it is, with some; so it is, and
stays."""


@core
def _mark_rows(source, first, end, others, others_first, others_end, marks):
    """Mark each of the rows first:end that is redundant with one of the others."""
    for i in range(first, end):
        mark = np.uint8(_ALONE)
        for j in range(others_first, others_end):
            if is_redundant(source, i, others, j):
                mark = np.uint8(_PAIRED)
                break
        marks[i - first] = mark


@core
def _stays(source, row, mark_row, marks, others, others_first, others_end, other_marks):
    """Return True if no row of others_first:others_end that stays is redundant with `row`."""
    if marks[mark_row] == _ALONE:
        return True
    for j in range(others_first, others_end):
        if other_marks[j - others_first] == _STAYS and is_redundant(source, row, others, j):
            return False
    marks[mark_row] = _STAYS
    return True


@core
def merged_order(before, first, end, rescued, new_first, new_end, marks, new_marks, order):
    """Order the rows of one read, best first, and drop what was found twice.

    Parameters
    ----------
    before, first, end; rescued, new_first, new_end
        Rows of the read in both batches. Each batch's own are ordered, and no two of them are
        redundant: only what comes from different batches has to be compared.
    marks, new_marks
        Workspace: uint8, an item or more for each row of either batch.
    order
        Gets the rows that stay: those of `before` as they are, of `rescued` as ``~row``.

    Returns
    -------
    n_kept, n_ops
        Rows that stay, and their operations.
    """
    _mark_rows(before, first, end, rescued, new_first, new_end, marks)
    _mark_rows(rescued, new_first, new_end, before, first, end, new_marks)
    old, new = np.int64(first), np.int64(new_first)
    n_kept = n_ops = np.int64(0)
    while old < end or new < new_end:
        if new < new_end and (old == end or comes_before(rescued, new, before, old)):
            stays = _stays(rescued, new, new - new_first, new_marks, before, first, old, marks)
            candidate = ~new
            length = rescued.cigar_offsets[new + 1] - rescued.cigar_offsets[new]
            new += 1
        else:
            stays = _stays(before, old, old - first, marks, rescued, new_first, new, new_marks)
            candidate = old
            length = before.cigar_offsets[old + 1] - before.cigar_offsets[old]
            old += 1
        if stays:
            order[n_kept] = candidate
            n_kept += 1
            n_ops += length
    return n_kept, n_ops


class MergeSpace(NamedTuple):
    """Workspace of :func:`merged_order_of_many`: a copy of the rows of one read of both batches.

    Its first columns are those of an AlignmentBatch that tell which alignment comes first and which
    two are one.
    """

    strand: Any  # uint8
    ref_id: Any  # int32
    text_start: Any  # int64
    text_end: Any  # int64
    query_start: Any  # int32
    query_end: Any  # int32
    score: Any  # int32
    kept: Any  # int32
    spare: Any  # int32
    keys: Any  # int64, for twice as many, on the CPU three times


_TYPES = ("u1", "i4", "i8", "i8", "i4", "i4", "i4", "i4", "i4", "i8")


def merge_space(n: int, make: Callable[[str, int, np.dtype], Any]) -> MergeSpace:
    """Return workspace for n rows of both batches; `make` makes a column of name, items, dtype."""
    return MergeSpace._make(
        make(name, 2 * n if name == "keys" else n, np.dtype(kind))
        for name, kind in zip(MergeSpace._fields, _TYPES, strict=True)
    )


@core
def _take_rows(source, first, end, space, to, lanes):
    """Copy rows first:end to `to` and on."""
    for i in range(lanes.lane, end - first, lanes.n_lanes):
        space.strand[to + i] = source.strand[first + i]
        space.ref_id[to + i] = source.ref_id[first + i]
        space.text_start[to + i] = source.text_start[first + i]
        space.text_end[to + i] = source.text_end[first + i]
        space.query_start[to + i] = source.query_start[first + i]
        space.query_end[to + i] = source.query_end[first + i]
        space.score[to + i] = source.score[first + i]


@core
def merged_order_of_many(before, first, end, rescued, new_first, new_end, space, order, lanes):
    """Do what :func:`merged_order` does, for reads with hundreds of rows.

    Rows of one batch are not redundant, so it is the order of all of them, `before` first.

    Parameters
    ----------
    space
        :class:`MergeSpace` with an item or more for each row of both batches.
    lanes
        Share the rows (:mod:`mapper.jit.lanes`).
    """
    n_old, n = end - first, end - first + new_end - new_first
    _take_rows(before, first, end, space, np.int64(0), lanes)
    _take_rows(rescued, new_first, new_end, space, n_old, lanes)
    for i in range(lanes.lane, n, lanes.n_lanes):
        space.kept[i] = i
    lanes_meet(lanes)
    n_kept = keep_distinct_by_place(space, space.kept, n, space.spare, space.keys, lanes)
    n_ops = np.int64(0)
    for i in range(lanes.lane, n_kept, lanes.n_lanes):
        row = np.int64(space.kept[i])
        if row < n_old:
            order[i] = first + row
            n_ops += before.cigar_offsets[first + row + 1] - before.cigar_offsets[first + row]
        else:
            row += new_first - n_old
            order[i] = ~row
            n_ops += rescued.cigar_offsets[row + 1] - rescued.cigar_offsets[row]
    lanes_meet(lanes)
    return n_kept, lane_sum(n_ops, lanes)


@core
def copy_in_order(before, rescued, order, n_rows, target, row, op, lanes):
    """Copy the rows that :func:`merged_order` has left; return what lies behind, as `copy_rows`."""
    for i in range(n_rows):
        taken = np.int64(order[i])
        if taken >= 0:
            row, op = copy_rows(before, taken, taken + 1, target, row, op, lanes)
        else:
            row, op = copy_rows(rescued, ~taken, ~taken + 1, target, row, op, lanes)
    return row, op


@driver
def _merge(before, rescued, space, marks, new_marks, order, out):
    """Fill `out`, which has room for the rows of both; return how many rows it has."""
    old, new = before.alignment_offsets, rescued.alignment_offsets
    n_reads = len(old) - 1
    out.alignment_offsets[0] = 0
    out.cigar_offsets[0] = 0
    row = op = np.int64(0)
    read = 0
    while read < n_reads:
        first_of_run = read
        shift = row - old[read]
        while read < n_reads and new[read] == new[read + 1]:
            read += 1
            out.alignment_offsets[read] = old[read] + shift
        row, op = copy_rows(before, old[first_of_run], old[read], out, row, op, ONE_LANE)
        if read < n_reads:
            first, end = old[read], old[read + 1]
            new_first, new_end = new[read], new[read + 1]
            if end - first + new_end - new_first > FEW_MERGED:
                n_kept, _ = merged_order_of_many(
                    before, first, end, rescued, new_first, new_end, space, order, ONE_LANE
                )
            else:
                n_kept, _ = merged_order(
                    before, first, end, rescued, new_first, new_end, marks, new_marks, order
                )
            row, op = copy_in_order(before, rescued, order, n_kept, out, row, op, ONE_LANE)
            read += 1
            out.alignment_offsets[read] = row
    return row


def merge_alignments(before: AlignmentBatch, rescued: AlignmentBatch) -> AlignmentBatch:
    """Return the alignments of both batches, which describe the same reads, best first.

    Parameters
    ----------
    before, rescued
        The distinct alignments of each read, best first.

    Raises
    ------
    ValueError
        If the batches have different numbers of reads.
    """
    if len(before.alignment_offsets) != len(rescued.alignment_offsets):
        raise ValueError("the batches hold different reads")
    most = int(
        (np.diff(before.alignment_offsets) + np.diff(rescued.alignment_offsets)).max(initial=0)
    )
    n_ops = len(before.cigar_ops) + len(rescued.cigar_ops)
    out = _room(before, len(before.strand) + len(rescued.strand), n_ops)
    space = merge_space(most, lambda _, n, dtype: np.empty(n, dtype))
    space = space._replace(keys=np.empty(3 * most, np.int64))
    marks, new_marks = np.empty((2, most), np.uint8)
    n = _merge(before, rescued, space, marks, new_marks, np.empty(most, np.int64), out)
    rows = [column[:n] for column in out[1:9]]
    ends = out.cigar_offsets[: n + 1]
    return AlignmentBatch._make((out.alignment_offsets, *rows, ends, out.cigar_ops[: ends[-1]]))


def _room(like: AlignmentBatch, n: int, n_ops: int) -> AlignmentBatch:
    """Return a batch with room for `n` alignments and `n_ops` operations; undefined content."""
    return AlignmentBatch._make(
        (
            np.empty_like(like.alignment_offsets),
            *(np.empty(n, column.dtype) for column in like[1:9]),
            np.empty(n + 1, np.int64),
            np.empty(n_ops, np.uint32),
        )
    )
