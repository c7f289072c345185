"""CUDA kernels of matrix alignment: a group of lanes computes the matrix of a pair.

``cuda_plan.py`` cuts a matrix in strips. At a step each lane computes a column of its rows, whose
neighbours are in registers: the values that leave its last row go to the next lane by a shuffle,
and from the last lane to memory, where the next strip reads them. Scores of letters come from a
query profile in shared memory, whose 64-bit words hold several rows. A second kernel traces the
paths, one thread for each pair, and a third puts the operations in order.

References
----------
Blazewicz et al. (2011), BMC Bioinformatics 12:181 (strips, four bits a cell, a second kernel for
the traceback).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from mapper.align.matrix.cells import higher, sum_or
from mapper.align.matrix.cuda_cells import handed_on, number_of, row_scores, with_first, word_of
from mapper.align.matrix.cuda_plan import (
    BOUNDARY_START,
    HALVES,
    ORIGIN_START,
    PAIR,
    QUERY_LEN,
    QUERY_START,
    REF_LEN,
    REF_START,
    ROWS,
    Shape,
)
from mapper.align.matrix.dp import (
    GLOBAL,
    LOCAL,
    NEVER,
    SEMIGLOBAL,
    StripOrigins,
    border,
    is_better,
    next_cell,
    trace_matrix,
)
from mapper.align.matrix.scoring import bias_of
from mapper.cuda.api import SIMULATED, Kernel, cuda, kernel
from mapper.cuda.warp import from_lane, sync_warp
from mapper.jit.accelerate import core

LANES = 1 if SIMULATED else 8
"""Lanes of a group: a strip of up to 512 rows, a delay of 15 columns from its first to its last."""

GROUPS = 1 if SIMULATED else 4
BLOCK = LANES * GROUPS
"""Threads of a block: one warp, whose groups need no barrier. The simulator knows no warps."""


class MatrixPairs(NamedTuple):
    """A batch on the device."""

    query_codes: Any  # uint8
    ref_codes: Any  # uint8
    table: Any  # int64 (FIELDS, n_pairs), as in cuda_plan.Plan


SCORE, QUERY_END, REF_END, QUERY_BEGIN, REF_BEGIN, N_OPS = range(6)
RESULTS, SCORE_RESULTS = 6, 3
"""Rows of the results, int64 (RESULTS, n_pairs).

The first SCORE_RESULTS are written without a path, too.."""


@core
def start_border(i, gaps, mode, floor):
    """Return H(i, 0), and I(i+1, 0) as a column before the first yields it; 0 for rows above."""
    first = border(max(i, 0), gaps, mode)
    below = first - (gaps.gap_open + gaps.gap_extend)
    if mode == GLOBAL and i >= 0:
        below = border(i + 1, gaps, mode)
    return first, max(below, floor)


@kernel(64, blocks_per_sm=16)  # without it, the compiler allows for more blocks, and spills
def trace_kernel(pairs, scores, gaps, mode, slots, origins, ops_start, ops, out):
    """Trace the path of each pair: write its operations, last first, from ``ops_start`` on."""
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
    """Copy the operations of a pair, first one first, to its offset."""
    pair = cuda.blockIdx.x
    begin, end = offsets[pair], offsets[pair + 1]
    from_last = ops_start[pair] + end - begin - 1
    for x in range(cuda.threadIdx.x, end - begin, BLOCK):
        flat[begin + x] = ops[from_last - x]


@core
def _fill_profile(items, first_item, first_letter, every, scores, codes, start, row, lane, halves,
                  rows, a_word):  # fmt: skip
    """Write the query profile of a lane's rows; rows below 0 are the extra letter.

    Indices are unsigned: the test of signed ones for negative values costs more than the rest.
    """
    n_letters = np.uint32(scores.shape[0])
    per_half = (rows + a_word - 1) // a_word
    a_letter = np.uint32(halves * per_half * LANES * a_word)
    for half in range(halves):
        for x in range(rows):
            r = row + half * rows + x
            code = n_letters - np.uint32(1)
            if r >= 0:
                code = np.uint32(codes[np.uint64(start + r)])
            word = (half * per_half + x // a_word) * LANES + lane
            at = np.uint32(first_item + word * a_word + x % a_word) + first_letter * a_letter
            letter = first_letter
            while letter < n_letters:
                items[np.uint32(at)] = scores[code, letter]
                at = np.uint32(at + every * a_letter)
                letter = np.uint32(letter + every)


@cache
def fill_kernel(shape: Shape, mode: int, want_path: bool) -> Kernel:
    """Return the kernel that computes matrices of a shape."""
    halves, rows, a_word = shape.halves, shape.rows, shape.items_a_word()
    per_half = -(-rows // a_word)
    cells_a_word = 8 // halves
    words = shape.origin_words()
    register = np.uint32 if halves == 2 else np.int32
    item = types.int8 if halves == 2 else types.int16
    last = LANES - 1
    lines = LANES * halves  # of a strip: each is one column behind the previous one

    def fill(pairs, scores, gaps, cells, first_block, slots, most, shared, boundary, origins,
             out):  # fmt: skip
        """Compute the matrices of a block's pairs: scores, ends, and the origins of cells."""
        lane = np.int32(cuda.threadIdx.x % LANES)
        group = np.int32(cuda.threadIdx.x // LANES)
        before = np.int32(cuda.threadIdx.x - 1)
        profile = cuda.shared.array(0, types.uint64)
        items = cuda.shared.array(0, item)
        scores_of_row = cuda.local.array(rows, register)
        deletions = cuda.local.array(rows, register)
        best_of_half = cuda.local.array(halves, np.int32)
        column_of_half = cuda.local.array(halves, np.int32)
        row_of_half = cuda.local.array(halves, np.int32)

        n_letters = scores.shape[0]
        letter_words = np.uint32(halves * per_half * LANES)
        own_words = np.uint32(0) if shared else np.uint32(group * n_letters * letter_words)
        block = np.int64(first_block + cuda.blockIdx.x)
        table = pairs.table
        pair = slots[block * GROUPS + group]
        # In a block of one query, groups without a pair help to write its profile.
        of_query = max(slots[block * GROUPS] if shared else pair, 0)
        n = np.int32(table[QUERY_LEN, of_query])
        m = np.int32(table[REF_LEN, pair]) if pair >= 0 else np.int32(0)
        query_at = table[QUERY_START, of_query]
        ref_at = np.uint64(table[REF_START, max(pair, 0)])
        boundary_at = np.uint64(table[BOUNDARY_START, max(pair, 0)])
        origin_at = np.uint64(table[ORIGIN_START, max(pair, 0)])
        n_strips = np.int32((n + lines * rows - 1) // (lines * rows))
        above = np.int32(n_strips * lines * rows - n)
        n_steps = np.int32(m + lines - 1)
        bias = np.int32(bias_of(n, m, gaps, mode, LANES)) if halves == 2 else np.int32(0)
        floor = np.int64(0)
        if mode != LOCAL:
            floor = np.int64(NEVER) if halves == 1 else np.int64(-bias)
        none = np.int32(n_letters - 1)

        best = np.int32(0) if mode == LOCAL else NEVER
        best_i = np.int32(0)
        best_j = np.int32(0)
        for strip in range(most[0, block]):
            first_row = np.int32(strip * lines * rows + lane * halves * rows - above)
            own = strip < n_strips and m > 0
            if own or (shared and strip < n_strips):
                _fill_profile(
                    items, np.int64(own_words) * a_word, np.uint32(group if shared else 0),
                    np.uint32(GROUPS if shared else 1), scores, pairs.query_codes, query_at,
                    np.int64(first_row), np.int64(lane), halves, rows, a_word,
                )  # fmt: skip
            sync_warp()
            for k in range(rows):
                low, _ = start_border(np.int64(first_row + k + 1), gaps, mode, floor)
                high, _ = start_border(np.int64(first_row + rows + k + 1), gaps, mode, floor)
                opening = gaps.gap_open + gaps.gap_extend
                scores_of_row[k] = word_of(low + bias, high + bias, cells)
                deletions[k] = word_of(
                    max(low - opening, floor) + bias, max(high - opening, floor) + bias, cells
                )
            low, gap_low = start_border(np.int64(first_row + rows), gaps, mode, floor)
            high, gap_high = start_border(np.int64(first_row + 2 * rows), gaps, mode, floor)
            bottom = word_of(low + bias, high + bias, cells)
            gap_bottom = word_of(gap_low + bias, gap_high + bias, cells)
            low, _ = start_border(np.int64(first_row), gaps, mode, floor)
            high, _ = start_border(np.int64(first_row + rows), gaps, mode, floor)
            top = word_of(low + bias, high + bias, cells)
            letters = word_of(none, none, cells)
            highest = word_of(bias, bias, cells)
            for half in range(halves):
                best_of_half[half] = NEVER
                column_of_half[half] = 0
                row_of_half[half] = 0

            # Inputs of the first row's lane are loaded one step ahead.
            next_letter = np.int32(pairs.ref_codes[ref_at]) if own else none
            next_top, next_gap = np.int32(0), np.int32(0)
            if strip > 0:
                next_top = np.int32(boundary[0, boundary_at])
                next_gap = np.int32(boundary[1, boundary_at])
            for t in range(most[1, block]):
                step = np.int32(t)
                letters = handed_on(register(from_lane(letters, before)), letters, cells)
                diagonal = top
                top = handed_on(register(from_lane(bottom, before)), bottom, cells)
                insertion = handed_on(register(from_lane(gap_bottom, before)), gap_bottom, cells)
                new_letter, new_top, new_gap = next_letter, next_top, next_gap
                ahead = np.int32(step + 1)
                next_letter = none
                if ahead < m:
                    next_letter = np.int32(pairs.ref_codes[ref_at + np.uint64(ahead)])
                if strip > 0:
                    if ahead < m:
                        next_top = np.int32(boundary[0, boundary_at + np.uint64(ahead)])
                        next_gap = np.int32(boundary[1, boundary_at + np.uint64(ahead)])
                else:
                    over = border(np.int64(ahead), gaps, mode)
                    new_top = np.int32(over + bias)
                    new_gap = np.int32(max(over - (gaps.gap_open + gaps.gap_extend), floor) + bias)
                if lane == 0:
                    letters = with_first(letters, new_letter, cells)
                    top = with_first(top, new_top, cells)
                    insertion = with_first(insertion, new_gap, cells)

                at_low = own_words + np.uint32(number_of(letters, 0, cells)) * letter_words
                at_high = own_words + np.uint32(letter_words // halves * (halves - 1))
                at_high += np.uint32(number_of(letters, halves - 1, cells)) * letter_words
                at_low += np.uint32(lane)
                at_high += np.uint32(lane)
                bits = np.uint32(0)
                step_highest = highest
                score = top
                write = own and step < n_steps
                at_origin = (np.uint64(strip) * np.uint64(n_steps) + np.uint64(step)) * np.uint64(
                    words * LANES
                ) + (origin_at + np.uint64(lane))
                word_low, word_high = profile[at_low], profile[at_high]
                substitution = row_scores(word_low, word_high, 0, cells)
                matched = sum_or(diagonal, substitution, cells.floor, cells)
                for k in range(rows):
                    # The last use of a row's score comes before the next score takes its register.
                    following = matched
                    if k + 1 < rows:
                        if (k + 1) % a_word == 0:
                            word_low = profile[at_low + np.uint32((k + 1) // a_word * LANES)]
                            word_high = profile[at_high + np.uint32((k + 1) // a_word * LANES)]
                        substitution = row_scores(word_low, word_high, (k + 1) % a_word, cells)
                        following = sum_or(scores_of_row[k], substitution, cells.floor, cells)
                    score, insertion, deletion, origin = next_cell(
                        matched, insertion, deletions[k], mode == LOCAL, cells
                    )
                    matched = following
                    scores_of_row[k] = score
                    deletions[k] = deletion
                    if mode == LOCAL:
                        step_highest = higher(step_highest, score, cells)
                    if want_path:
                        bits = np.uint32(bits * np.uint32(16) + origin)
                        if (k + 1) % cells_a_word == 0:
                            if write:
                                at = at_origin + np.uint64(k // cells_a_word * LANES)
                                origins[at] = bits
                            bits = np.uint32(0)
                bottom = score
                gap_bottom = insertion

                if mode == LOCAL and step_highest != highest:
                    for half in range(halves):
                        found = number_of(step_highest, half, cells)
                        if found > number_of(highest, half, cells):
                            for x in range(rows):
                                if number_of(scores_of_row[rows - 1 - x], half, cells) == found:
                                    row_of_half[half] = rows - 1 - x
                            best_of_half[half] = found
                            column_of_half[half] = step - (lane * halves + half)
                    highest = step_highest
                if mode == SEMIGLOBAL:
                    for half in range(halves):
                        if step - (lane * halves + half) == m - 1 and own:
                            for k in range(rows):
                                found = number_of(scores_of_row[k], half, cells)
                                row = first_row + half * rows + k
                                if row >= 0 and found > best_of_half[half]:
                                    best_of_half[half] = found
                                    row_of_half[half] = k
                            column_of_half[half] = m - 1
                column = np.int32(step - (lines - 1))
                if lane == last and own and column >= 0 and column < m:
                    found = number_of(bottom, halves - 1, cells)
                    if strip + 1 < n_strips:
                        at = boundary_at + np.uint64(column)
                        boundary[0, at] = found
                        boundary[1, at] = number_of(gap_bottom, halves - 1, cells)
                    elif mode == GLOBAL and column == m - 1:
                        best, best_i, best_j = np.int32(found - bias), n, m
                    elif mode == SEMIGLOBAL:
                        j = np.int32(column + 1)
                        if is_better(found - bias, n, j, best, best_i, best_j):
                            best, best_i, best_j = np.int32(found - bias), n, j

            if mode != GLOBAL and own:
                for half in range(halves):
                    found = best_of_half[half]
                    if found != NEVER:
                        i = np.int32(first_row + half * rows + row_of_half[half] + 1)
                        j = np.int32(column_of_half[half] + 1)
                        if is_better(found - bias, i, j, best, best_i, best_j):
                            best, best_i, best_j = np.int32(found - bias), i, j
            sync_warp()

        if mode != GLOBAL:
            other = 1
            while other < LANES:
                thread = np.int32(cuda.threadIdx.x ^ other)
                score_there = np.int32(from_lane(best, thread))
                i, j = np.int32(from_lane(best_i, thread)), np.int32(from_lane(best_j, thread))
                if is_better(score_there, i, j, best, best_i, best_j):
                    best, best_i, best_j = score_there, i, j
                other *= 2
        if pair >= 0 and lane == last:
            if n == 0 or m == 0:
                whole = mode == GLOBAL
                best = np.int32(border(np.int64(n + m), gaps, mode))
                best_i = n if whole else np.int32(0)
                best_j = m if whole else np.int32(0)
            if mode == LOCAL and best == 0:
                best_i, best_j = np.int32(0), np.int32(0)
            number = table[PAIR, pair]
            out[SCORE, number] = best
            out[QUERY_END, number] = best_i
            out[REF_END, number] = best_j

    return kernel(BLOCK)(fill)
