"""CPU driver of matrix alignment, for one thread."""

from __future__ import annotations

import numpy as np

from mapper.align.matrix.dp import (
    BLOCK,
    GLOBAL,
    ByteOrigins,
    FillSpace,
    Gaps,
    fill_best,
    row_items,
    trace_matrix,
    write_potentials,
)
from mapper.align.matrix.scoring import NO_LETTER
from mapper.align.result import NO_MEMORY, OK
from mapper.align.single import BAD, N_OPS, STATUS, cigar_text, columns_of_row
from mapper.jit.accelerate import driver, grown

_PROFILE_ITEMS = 1 << 18
"""Most items of a profile: with more, the scores of a row are looked up letter by letter."""

_MOST_WAIT = 31
"""Most pairs whose whole matrix is computed after a band did not help (``dp.fill_best``)."""


@driver
def _new_space(ref_len, n_letters, numbers):
    """Allocate the workspace for references of up to this length, of the type of `numbers`."""
    n_items = row_items(ref_len)
    n_profiles = n_letters if n_letters * n_items <= _PROFILE_ITEMS else 1
    rows = np.empty((4, n_items), numbers.dtype)
    profile = np.empty((n_profiles, n_items), numbers.dtype)
    return FillSpace(rows[0], rows[1], rows[2], rows[3], profile, np.empty(n_profiles, np.bool_))


@driver
def align_matrix_pairs(queries, query_start, query_end, refs, ref_start, ref_end, first, last,
                       scores, numbers, gaps, mode, max_cells, want_path, columns,
                       cigar_counts):  # fmt: skip
    """Align pairs first:last, and write their rows of `columns` and `cigar_counts`.

    `numbers`, an array without items, has the type of scores of cells (``scoring.py``).

    Returns
    -------
    The operations of all these pairs (uint32), in order.
    """
    longest = 0
    for i in range(first, last):
        longest = max(longest, ref_end[i] - ref_start[i])
    space = _new_space(longest, len(scores), numbers)
    potential = np.empty(len(scores), np.int64)
    write_potentials(scores, potential)
    origins = np.empty(1 << 16 if want_path else 1, np.uint8)
    ops = np.empty(256, np.uint32)
    all_ops = np.empty(8 * (last - first) + 16 if want_path else 0, np.uint32)
    n_all = 0
    n_whole = n_to_wait = 0
    for i in range(first, last):
        query = queries[query_start[i] : query_end[i]]
        ref = refs[ref_start[i] : ref_end[i]]
        n_cells = len(query) * len(ref)
        cigar_counts[i] = 0
        if want_path and n_cells > max_cells:
            columns.status[i] = NO_MEMORY
            continue
        if want_path and n_cells + BLOCK > len(origins):
            origins = np.empty(n_cells + BLOCK, np.uint8)
        # Where bands did not help, fewer and fewer of the next pairs try one.
        is_tried = n_whole >= n_to_wait
        if want_path:
            score, end_i, end_j, helped = fill_best(
                query, ref, scores, gaps, mode, space, origins, potential, is_tried
            )
        else:
            score, end_i, end_j, helped = fill_best(
                query, ref, scores, gaps, mode, space, None, potential, is_tried
            )
        n_whole += 1
        if is_tried:
            n_to_wait, n_whole = 0 if helped else min(2 * n_to_wait + 1, _MOST_WAIT), 0
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
def align_one_matrix(letters, n_query, code_of, scores, numbers, gap_open, gap_extend, mode,
                     max_cells, want_path, row):  # fmt: skip
    """Align two strings (``single.py``), given the code of each byte (uint8), or NO_LETTER."""
    codes = np.empty(len(letters), np.uint8)
    row[BAD] = -1
    for i in range(len(letters)):
        codes[i] = code_of[letters[i]]
        if codes[i] == NO_LETTER:
            row[BAD] = i
            return np.empty(0, np.uint8)
    columns = columns_of_row(row)
    bounds = np.empty((3, 1), np.int64)
    bounds[0, 0], bounds[1, 0], bounds[2, 0] = 0, n_query, len(letters)
    ops = align_matrix_pairs(
        codes, bounds[0], bounds[1], codes, bounds[1], bounds[2], 0, 1, scores,
        numbers, Gaps(gap_open, gap_extend), mode, max_cells, want_path, columns,
        row[N_OPS : N_OPS + 1],
    )  # fmt: skip
    row[STATUS] = columns.status[0]
    return cigar_text(ops)
