"""CUDA kernels that join the alignments of rescued loci with those found before (``merge.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mapper.batch import AlignmentBatch
from mapper.batch_ops import offsets_of
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace
from mapper.extend.cuda import DeviceAlignments, new_alignments
from mapper.extend.merge import copy_in_order, copy_rows, merged_order


@kernel(128)
def _order(before, rescued, n_reads, order, n_kept, n_ops):
    """Order the rows of one read a thread, where rescue has found something."""
    read = cuda.grid(1)
    if read >= n_reads:
        return
    first, end = before.alignment_offsets[read], before.alignment_offsets[read + 1]
    new_first, new_end = rescued.alignment_offsets[read], rescued.alignment_offsets[read + 1]
    if new_first == new_end:
        n_kept[read] = end - first
        n_ops[read] = before.cigar_offsets[end] - before.cigar_offsets[first]
    else:
        kept, ops = merged_order(
            before, first, end, rescued, new_first, new_end, order[first + new_first :]
        )
        n_kept[read] = kept
        n_ops[read] = ops


@kernel(128)
def _copy(before, rescued, n_reads, order, op_offsets, out):
    """Copy the rows of one read a thread to their place."""
    read = cuda.grid(1)
    if read >= n_reads:
        return
    if read == 0:
        out.cigar_offsets[0] = 0
    first, end = before.alignment_offsets[read], before.alignment_offsets[read + 1]
    new_first, new_end = rescued.alignment_offsets[read], rescued.alignment_offsets[read + 1]
    row, op = out.alignment_offsets[read], op_offsets[read]
    if new_first == new_end:
        copy_rows(before, first, end, out, row, op)
    else:
        n_rows = out.alignment_offsets[read + 1] - row
        copy_in_order(before, rescued, order[first + new_first :], n_rows, out, row, op)


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
    n_reads = len(before.host_offsets) - 1
    order = space.device("merge.order", before.n_rows + rescued.n_rows, np.int32)
    n_kept = space.device("merge.n_kept", n_reads, np.int32)
    n_ops = space.device("merge.n_ops", n_reads, np.int32)
    both: tuple[AlignmentBatch, Any] = (before.batch, rescued.batch)
    _order.launch(n_reads, space.stream, *both, n_reads, order, n_kept, n_ops)
    kept_counts = space.download("merge.n_kept", n_kept)
    op_counts = space.download("merge.n_ops", n_ops)
    space.synchronize()
    merged, op_offsets = new_alignments(space, name, kept_counts, offsets_of(op_counts))
    _copy.launch(n_reads, space.stream, *both, n_reads, order, op_offsets, merged.batch)
    return merged
