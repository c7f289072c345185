"""CPU driver of matrix alignment, for one thread."""

from __future__ import annotations

import numpy as np

from mapper.align.matrix.dp import (
    GLOBAL,
    ByteOrigins,
    FillSpace,
    Gaps,
    fill_matrix,
    trace_matrix,
)
from mapper.align.matrix.scoring import NO_LETTER
from mapper.align.result import NO_MEMORY, OK
from mapper.align.single import BAD, N_OPS, STATUS, columns_of_row
from mapper.jit.accelerate import driver, grown


@driver
def align_matrix_pairs(queries, query_start, query_end, refs, ref_start, ref_end, first, last,
                       scores, gaps, mode, max_cells, want_path, columns,
                       cigar_counts):  # fmt: skip
    """Align pairs first:last, and write their rows of `columns` and `cigar_counts`.

    Returns
    -------
    The operations of all these pairs (uint32), in order.
    """
    longest = 0
    for i in range(first, last):
        longest = max(longest, ref_end[i] - ref_start[i])
    rows = np.empty((5, longest + 1), np.int32)
    space = FillSpace(rows[0], rows[1], rows[2], rows[3], rows[4])
    origins = np.empty(1 << 16 if want_path else 1, np.uint8)
    ops = np.empty(256, np.uint32)
    all_ops = np.empty(8 * (last - first) + 16 if want_path else 0, np.uint32)
    n_all = 0
    for i in range(first, last):
        query = queries[query_start[i] : query_end[i]]
        ref = refs[ref_start[i] : ref_end[i]]
        n_cells = len(query) * len(ref)
        cigar_counts[i] = 0
        if want_path and n_cells > max_cells:
            columns.status[i] = NO_MEMORY
            continue
        if want_path and n_cells > len(origins):
            origins = np.empty(n_cells, np.uint8)
        if want_path:
            score, end_i, end_j = fill_matrix(query, ref, scores, gaps, mode, space, origins)
        else:
            score, end_i, end_j = fill_matrix(query, ref, scores, gaps, mode, space, None)
        columns.score[i] = score
        columns.status[i] = OK
        columns.query_end[i] = end_i
        columns.ref_end[i] = end_j
        if not want_path:
            if mode == GLOBAL:
                columns.query_start[i] = 0
                columns.ref_start[i] = 0
            continue
        if end_i + end_j + 2 > len(ops):
            ops = np.empty(2 * (end_i + end_j + 2), np.uint32)
        n_ops, start_i, start_j = trace_matrix(
            query, ref, scores, gaps, ByteOrigins(origins, len(ref)), mode, score, end_i, end_j,
            ops,
        )  # fmt: skip
        columns.query_start[i] = start_i
        columns.ref_start[i] = start_j
        cigar_counts[i] = n_ops
        if n_all + n_ops > len(all_ops):
            all_ops = grown(all_ops, 2 * (n_all + n_ops))
        for j in range(n_ops):
            all_ops[n_all + j] = ops[n_ops - 1 - j]
        n_all += n_ops
    return all_ops[:n_all].copy()


@driver
def align_one_matrix(letters, n_query, code_of, scores, gap_open, gap_extend, mode, max_cells,
                     want_path, row):  # fmt: skip
    """Align two strings (``single.py``), given the code of each byte (uint8), or NO_LETTER."""
    codes = np.empty(len(letters), np.uint8)
    row[BAD] = -1
    for i in range(len(letters)):
        codes[i] = code_of[letters[i]]
        if codes[i] == NO_LETTER:
            row[BAD] = i
            return np.empty(0, np.uint32)
    columns = columns_of_row(row)
    bounds = np.empty((3, 1), np.int64)
    bounds[0, 0], bounds[1, 0], bounds[2, 0] = 0, n_query, len(letters)
    ops = align_matrix_pairs(
        codes, bounds[0], bounds[1], codes, bounds[1], bounds[2], 0, 1, scores,
        Gaps(gap_open, gap_extend), mode, max_cells, want_path, columns, row[N_OPS : N_OPS + 1],
    )  # fmt: skip
    row[STATUS] = columns.status[0]
    return ops
