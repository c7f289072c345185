"""Join the alignments of rescued loci with those found before, read by read."""

from __future__ import annotations

import numpy as np

from mapper.accelerate import driver
from mapper.batch import AlignmentBatch
from mapper.extend.read import comes_before, is_redundant


@driver
def _merge_order(all_offsets, new_offsets, columns, order, offsets):
    """Order rows of the concatenated batches by read and score, without redundant ones."""
    n_old = all_offsets[-1]
    total = 0
    for read in range(len(all_offsets) - 1):
        start = total
        old, old_end = all_offsets[read], all_offsets[read + 1]
        new, new_end = n_old + new_offsets[read], n_old + new_offsets[read + 1]
        while old < old_end or new < new_end:
            if new == new_end or (old < old_end and not comes_before(columns, new, old)):
                row = old
                old += 1
            else:
                row = new
                new += 1
            redundant = False
            for i in range(start, total):
                if is_redundant(columns, order[i], row):
                    redundant = True
                    break
            if not redundant:
                order[total] = row
                total += 1
        offsets[read + 1] = total
    return total


@driver
def _gather_cigars(order, cigar_offsets, cigar_ops, out_offsets, out_ops):
    total = 0
    for i in range(len(order)):
        for j in range(cigar_offsets[order[i]], cigar_offsets[order[i] + 1]):
            out_ops[total] = cigar_ops[j]
            total += 1
        out_offsets[i + 1] = total
    return total


def merge_alignments(before: AlignmentBatch, rescued: AlignmentBatch) -> AlignmentBatch:
    """Return the alignments of both batches, which describe the same reads, best first.

    Raises
    ------
    ValueError
        If the batches have different numbers of reads.
    """
    if len(before.alignment_offsets) != len(rescued.alignment_offsets):
        raise ValueError("the batches hold different reads")
    columns = (np.concatenate(pair) for pair in zip(before[1:9], rescued[1:9], strict=True))
    ends = np.concatenate(
        (before.cigar_offsets, before.cigar_offsets[-1] + rescued.cigar_offsets[1:])
    )
    ops = np.concatenate((before.cigar_ops, rescued.cigar_ops))
    both = AlignmentBatch._make((before.alignment_offsets, *columns, ends, ops))
    order = np.empty(len(both.strand), np.int64)
    offsets = np.zeros_like(before.alignment_offsets)
    total = _merge_order(before.alignment_offsets, rescued.alignment_offsets, both, order, offsets)
    order = order[:total]
    cigar_offsets = np.zeros(total + 1, np.int64)
    cigar_ops = np.empty(len(both.cigar_ops), np.uint32)
    n_ops = _gather_cigars(order, both.cigar_offsets, both.cigar_ops, cigar_offsets, cigar_ops)
    columns = (column[order] for column in both[1:9])
    return AlignmentBatch._make((offsets, *columns, cigar_offsets, cigar_ops[:n_ops]))
