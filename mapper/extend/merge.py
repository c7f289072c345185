"""Join the alignments of rescued loci with those found before, read by read.

Few reads have any: the rows of all others are copied in one piece from one such read to the next.
"""

from __future__ import annotations

import numpy as np

from mapper.accelerate import core, driver
from mapper.batch import AlignmentBatch
from mapper.extend.read import comes_before, is_redundant


@core
def _copy_rows(source, first, end, target, row):
    """Copy rows first:end, with their operations, to `row` and on; return the row behind."""
    shift = row - first
    op = target.cigar_offsets[row]
    op_shift = op - source.cigar_offsets[first]
    for i in range(first, end):
        target.strand[i + shift] = source.strand[i]
        target.ref_id[i + shift] = source.ref_id[i]
        target.text_start[i + shift] = source.text_start[i]
        target.text_end[i + shift] = source.text_end[i]
        target.query_start[i + shift] = source.query_start[i]
        target.query_end[i + shift] = source.query_end[i]
        target.score[i + shift] = source.score[i]
        target.edit_distance[i + shift] = source.edit_distance[i]
        target.cigar_offsets[i + shift + 1] = source.cigar_offsets[i + 1] + op_shift
    for i in range(source.cigar_offsets[first], source.cigar_offsets[end]):
        target.cigar_ops[i + op_shift] = source.cigar_ops[i]
    return end + shift


@core
def _merge_read(before, first, end, rescued, new_first, new_end, held, order, out, row):
    """Merge one read's rows into `out` from `row` on; return the row behind.

    Parameters
    ----------
    held, order
        Work space for the rows of a read: an AlignmentBatch, and integers.
    """
    n_old = end - first
    held.cigar_offsets[0] = 0
    n_held = _copy_rows(before, first, end, held, 0)
    n_held = _copy_rows(rescued, new_first, new_end, held, n_held)
    old, new = np.int64(0), n_old
    n_kept = 0
    while old < n_old or new < n_held:
        if new == n_held or (old < n_old and not comes_before(held, new, old)):
            candidate = old
            old += 1
        else:
            candidate = new
            new += 1
        redundant = False
        for i in range(n_kept):
            if is_redundant(held, order[i], candidate):
                redundant = True
                break
        if not redundant:
            order[n_kept] = candidate
            n_kept += 1
    for i in range(n_kept):
        row = _copy_rows(held, order[i], order[i] + 1, out, row)
    return row


@driver
def _merge(before, rescued, held, order, out):
    """Fill `out`, which has room for the rows of both; return how many rows it has."""
    old, new = before.alignment_offsets, rescued.alignment_offsets
    n_reads = len(old) - 1
    out.alignment_offsets[0] = 0
    out.cigar_offsets[0] = 0
    row = np.int64(0)
    read = 0
    while read < n_reads:
        first_of_run = read
        shift = row - old[read]
        while read < n_reads and new[read] == new[read + 1]:
            read += 1
            out.alignment_offsets[read] = old[read] + shift
        row = _copy_rows(before, old[first_of_run], old[read], out, row)
        if read < n_reads:
            row = _merge_read(
                before, old[read], old[read + 1], rescued, new[read], new[read + 1], held, order,
                out, row,
            )  # fmt: skip
            read += 1
            out.alignment_offsets[read] = row
    return row


def merge_alignments(before: AlignmentBatch, rescued: AlignmentBatch) -> AlignmentBatch:
    """Return the alignments of both batches, which describe the same reads, best first.

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
    held = _room(before, most, n_ops)
    n = _merge(before, rescued, held, np.empty(most, np.int64), out)
    columns = [column[:n] for column in out[1:9]]
    ends = out.cigar_offsets[: n + 1]
    return AlignmentBatch._make((out.alignment_offsets, *columns, ends, out.cigar_ops[: ends[-1]]))


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
