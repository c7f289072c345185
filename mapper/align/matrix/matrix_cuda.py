"""Matrix alignment on CUDA: what its kernels share, and the walk back along the paths.

:mod:`mapper.align.matrix.cuda_fill` computes the matrices. The path is walked by a second
kernel, one thread a pair, and a third puts the operations in order.

References
----------
Blazewicz et al. (2011), BMC Bioinformatics 12:181 (second kernel for the backtrace).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.matrix.cuda_plan import (
    HALVES,
    ORIGIN_START,
    PAIR,
    QUERY_LEN,
    QUERY_START,
    REF_LEN,
    REF_START,
    ROWS,
)
from mapper.align.matrix.dp import (
    GLOBAL,
    border,
    trace_matrix,
)
from mapper.align.matrix.origins import StripOrigins
from mapper.cuda.api import SIMULATED, cuda, kernel
from mapper.jit.accelerate import core

LANES = 1 if SIMULATED else 8
"""Lanes of a group: a strip of up to 512 rows, a delay of 15 columns from its first to its last."""

GROUPS = 1 if SIMULATED else 4
BLOCK = LANES * GROUPS
"""One warp: its groups meet without a barrier. The simulator knows no warps."""


class MatrixPairs(NamedTuple):
    """A batch on the device."""

    query_codes: Any  # uint8
    ref_codes: Any  # uint8
    table: Any  # int64 (FIELDS, n_pairs), as in matrix_plan.Plan


SCORE, QUERY_END, REF_END, QUERY_BEGIN, REF_BEGIN, N_OPS = range(6)
RESULTS, SCORE_RESULTS = 6, 3
"""Rows of the results, int64 (RESULTS, n_pairs); the first are there without a path, too."""


_ALL = 0xFFFFFFFF


if SIMULATED:

    def from_lane(value, lane):
        """The value of another lane of the warp; the simulator has one."""
        return value

    def any_lane(flag):
        """Whether a flag is set in any lane of the warp."""
        return flag

    def meet():
        """Wait for all lanes of the warp."""

else:

    @core
    def meet():
        """Wait for all lanes of the warp; what they wrote before, all of them see after."""
        cuda.syncwarp(_ALL)

    @core
    def from_lane(value, lane):
        """The value of another lane of the warp."""
        return cuda.shfl_sync(_ALL, np.int32(value), lane)

    @core
    def any_lane(flag):
        """Whether a flag is set in any lane of the warp."""
        return cuda.any_sync(_ALL, flag)


@core
def start_border(i, gaps, mode, floor):
    """H(i, 0), and I(i+1, 0) as a column before the first yields it; 0 for rows above."""
    first = border(max(i, 0), gaps, mode)
    below = first - (gaps.gap_open + gaps.gap_extend)
    if mode == GLOBAL and i >= 0:
        below = border(i + 1, gaps, mode)
    return first, max(below, floor)


@kernel(64, blocks_per_sm=16)  # untold, the compiler leaves room for more, and spills
def trace_kernel(pairs, scores, gaps, mode, slots, origins, ops_start, ops, out):
    """Walk the path of each pair back: its operations, last first, from ``ops_start`` on."""
    x = cuda.grid(1)
    if x < len(slots) and slots[x] >= 0:
        pair = slots[x]
        table = pairs.table
        n, m = table[QUERY_LEN, pair], table[REF_LEN, pair]
        halves, rows = table[HALVES, pair], table[ROWS, pair]
        a_strip = LANES * halves * rows
        n_strips = (n + a_strip - 1) // a_strip
        own = StripOrigins(
            origins, table[ORIGIN_START, pair], m + LANES * halves - 1, n_strips * a_strip - n,
            LANES, halves, rows,
        )  # fmt: skip
        query_at, ref_at = table[QUERY_START, pair], table[REF_START, pair]
        number = table[PAIR, pair]
        at = ops_start[number]
        n_ops, query_start, ref_start = trace_matrix(
            pairs.query_codes[query_at : query_at + n], pairs.ref_codes[ref_at : ref_at + m],
            scores, gaps, own, mode, out[SCORE, number], out[QUERY_END, number],
            out[REF_END, number], ops[at : at + n + m + 2],
        )  # fmt: skip
        out[N_OPS, number] = n_ops
        out[QUERY_BEGIN, number] = query_start
        out[REF_BEGIN, number] = ref_start


@kernel(BLOCK)
def gather_kernel(ops, ops_start, offsets, flat):
    """Copy the operations of a pair, first one first, to where its offset says."""
    pair = cuda.blockIdx.x
    begin, end = offsets[pair], offsets[pair + 1]
    from_last = ops_start[pair] + end - begin - 1
    for x in range(cuda.threadIdx.x, end - begin, BLOCK):
        flat[begin + x] = ops[from_last - x]
