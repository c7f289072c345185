"""Matrix alignment on CUDA: what its kernels share, and the walk back along the paths.

:mod:`mapper.pairwise.matrix_fill_cuda` computes the matrices. The path is walked by a second
kernel, one thread a pair, and a third puts the operations in order.

References
----------
Blazewicz et al. (2011), BMC Bioinformatics 12:181 (second kernel for the backtrace).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mapper.device.seam import SIMULATED, cuda, kernel
from mapper.pairwise.dp_matrix import (
    trace_matrix,
)
from mapper.pairwise.origins import StripOrigins

LANES = 1 if SIMULATED else 8
"""Lanes of a group: a strip of up to 512 rows, a delay of 15 columns from its first to its last."""

GROUPS = 1 if SIMULATED else 4
BLOCK = LANES * GROUPS
"""One warp: its groups meet without a barrier. The simulator knows no warps."""

SHARED_BYTES = 48 << 10
"""What every device gives a block without being asked."""


class MatrixPairs(NamedTuple):
    """A batch on the device; all columns but the codes have a row for each pair."""

    query_codes: Any  # uint8
    query_start: Any  # int64
    query_len: Any  # int64
    ref_codes: Any  # uint8
    ref_start: Any  # int64
    ref_len: Any  # int64
    halves: Any  # int32, of its shape
    rows: Any  # int32
    boundary_start: Any  # int64, as in matrix_plan.Plan
    origin_start: Any
    ops_start: Any


class MatrixResults(NamedTuple):
    """Rows of results, one a pair."""

    score: Any  # int64
    query_start: Any  # int64
    query_end: Any
    ref_start: Any
    ref_end: Any
    n_ops: Any


@kernel(64)
def trace_kernel(pairs, scores, gaps, mode, slots, origins, ops, out):
    """Walk the path of each pair back: its operations, last first, from ``ops_start`` on."""
    x = cuda.grid(1)
    if x < len(slots) and slots[x] >= 0:
        pair = slots[x]
        n, m = pairs.query_len[pair], pairs.ref_len[pair]
        halves, rows = pairs.halves[pair], pairs.rows[pair]
        a_strip = LANES * halves * rows
        n_strips = (n + a_strip - 1) // a_strip
        own = StripOrigins(
            origins, pairs.origin_start[pair], m + LANES * halves - 1, n_strips * a_strip - n,
            LANES, halves, rows,
        )  # fmt: skip
        query_at, ref_at, at = pairs.query_start[pair], pairs.ref_start[pair], pairs.ops_start[pair]
        n_ops, query_start, ref_start = trace_matrix(
            pairs.query_codes[query_at : query_at + n], pairs.ref_codes[ref_at : ref_at + m],
            scores, gaps, own, mode, out.score[pair], out.query_end[pair], out.ref_end[pair],
            ops[at : at + n + m + 2],
        )  # fmt: skip
        out.n_ops[pair] = n_ops
        out.query_start[pair] = query_start
        out.ref_start[pair] = ref_start


@kernel(BLOCK)
def gather_kernel(ops, ops_start, offsets, flat):
    """Copy the operations of a pair, first one first, to where its offset says."""
    pair = cuda.blockIdx.x
    begin, end = offsets[pair], offsets[pair + 1]
    from_last = ops_start[pair] + end - begin - 1
    for x in range(cuda.threadIdx.x, end - begin, BLOCK):
        flat[begin + x] = ops[from_last - x]
