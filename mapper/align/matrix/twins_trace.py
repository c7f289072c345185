"""CUDA kernel that walks back along the paths of twins, one thread a pair.

References
----------
Blazewicz et al. (2011), BMC Bioinformatics 12:181 (second kernel for the backtrace).
"""

from __future__ import annotations

from mapper.align.matrix import cuda_query_pairs
from mapper.align.matrix.dp import trace_matrix
from mapper.align.matrix.matrix_cuda import N_OPS, QUERY_BEGIN, QUERY_END, REF_BEGIN, REF_END, SCORE
from mapper.align.matrix.origins import TwinOrigins
from mapper.align.matrix.plan_query_pairs import (
    HIGH_AT,
    HIGH_LEN,
    LOW,
    LOW_AT,
    LOW_LEN,
    REF_AT,
    REF_SIZE,
    UNIT,
)
from mapper.cuda.api import cuda, kernel


@kernel(64)
def trace_twins(tasks, origin_starts, blocks, query_codes, ref_codes, scores, gaps, mode, origins,
                ops_start, ops, out):  # fmt: skip
    """Walk the path of each pair back: its operations, last first, from ``ops_start`` on."""
    x = cuda.grid(1)
    slot, half = x // 2, x % 2
    if slot < tasks.shape[1] and tasks[LOW + half, slot] >= 0:
        lanes = cuda_query_pairs.LANES
        pair = tasks[LOW + half, slot]
        block = slot // cuda_query_pairs.GROUPS
        longest = max(blocks[LOW_LEN, block], blocks[HIGH_LEN, block])
        n = blocks[HIGH_LEN if half else LOW_LEN, block]
        m = tasks[REF_SIZE, slot]
        units = (longest + UNIT * lanes - 1) // (UNIT * lanes)
        own = TwinOrigins(
            origins, origin_starts[slot] + cuda_query_pairs.WORDS_BEFORE, m + lanes - 1,
            (units - 1) % cuda_query_pairs.UNITS + 1, cuda_query_pairs.UNITS,
            units * UNIT * lanes - n, lanes, half,
        )  # fmt: skip
        query_at, ref_at = blocks[HIGH_AT if half else LOW_AT, block], tasks[REF_AT, slot]
        at = ops_start[pair]
        n_ops, query_start, ref_start = trace_matrix(
            query_codes[query_at : query_at + n], ref_codes[ref_at : ref_at + m],
            scores, gaps, own, mode, out[SCORE, pair], out[QUERY_END, pair], out[REF_END, pair],
            ops[at : at + n + m + 2],
        )  # fmt: skip
        out[N_OPS, pair] = n_ops
        out[QUERY_BEGIN, pair] = query_start
        out[REF_BEGIN, pair] = ref_start
