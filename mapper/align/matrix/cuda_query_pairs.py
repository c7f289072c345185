"""CUDA kernels that align two queries with one reference at a time, and trace their paths.

If many queries are aligned with the same references, two queries make a *query pair*
(inter-sequence SIMD): each has one half of every register, and both are compared with the same
letter of the reference, so that one load from a query profile in shared memory brings the scores
of four rows of both, ready to be added. A group of lanes sweeps the matrices of a query pair and a
reference in strips, as in ``cuda_fill.py``; here both halves are in the same column. Rows come in
units of four; the first strip has the units that do not fill a strip, and the rows by which a
query is shorter than all strips lie above its first row.

All blocks are launched at once, the most expensive first, so that all multiprocessors are busy
until nearly the end.

References
----------
Blazewicz et al. (2011), BMC Bioinformatics 12:181 (strips, four bits a cell, a second kernel for
the traceback).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import types

from mapper.align.matrix.cells import exceeds, higher, plus
from mapper.align.matrix.cuda_cells import number_of, word_of
from mapper.align.matrix.cuda_fill import (
    N_OPS,
    QUERY_BEGIN,
    QUERY_END,
    REF_BEGIN,
    REF_END,
    SCORE,
    start_border,
)
from mapper.align.matrix.dp import (
    GLOBAL,
    LOCAL,
    NEVER,
    SEMIGLOBAL,
    QueryPairOrigins,
    border,
    is_better,
    next_cell,
    trace_matrix,
)
from mapper.align.matrix.plan_query_pairs import (
    HIGH_AT,
    HIGH_LEN,
    LOW,
    LOW_AT,
    LOW_LEN,
    REF_AT,
    REF_SIZE,
    TURN,
    UNIT,
)
from mapper.align.matrix.scoring import bias_of
from mapper.cuda.api import SIMULATED, Kernel, cuda, kernel
from mapper.cuda.warp import WARP, any_in_warp, four_words, from_lane, sync_warp
from mapper.jit.accelerate import core


@core
def _score_word(low, high):
    """Return two scores as a word for :func:`mapper.align.matrix.cells.plus`."""
    return np.uint32((np.int64(low) + np.int64(high) * 65536) & np.int64(0xFFFFFFFF))


@core
def joined_words(score, gap):
    """Return two words of a row between strips as one word of 64 bits."""
    return np.uint64(score) | (np.uint64(gap) << np.uint64(32))


@core
def score_of(over):
    """Return the first of two joined words."""
    return np.uint32(over & np.uint64(0xFFFFFFFF))


@core
def in_query(row, k):
    """Return 0xFFFF if row ``row + k`` is in the query, else 0."""
    return np.uint32(0xFFFF) if np.int32(row + k) >= 0 else np.uint32(0)


@core
def fill_profile(words, scores, codes, low, high, strip_row, units, thread, n_threads, lanes,
                 most_units):  # fmt: skip
    """Write the query profile of a strip: the scores of its rows with each letter.

    A letter has ``4 * lanes * most_units`` words: for each unit of rows, four of every lane.
    A strip of fewer units uses the last ones.

    Parameters
    ----------
    low, high
        Of each query: the start of its codes, and the number of rows above its first.
    """
    n_letters = np.int32(scores.shape[0])
    rows = np.int32(UNIT * units)
    skipped = np.int32(most_units - units) * np.int32(UNIT * lanes)
    for place in range(thread, rows * lanes, n_threads):
        lane = np.int32((place // UNIT) % lanes)
        row = np.int32(strip_row + lane * rows + place // (UNIT * lanes) * UNIT + place % UNIT)
        low_code, high_code = np.uint32(n_letters - 1), np.uint32(n_letters - 1)
        if row >= low[1]:
            low_code = np.uint32(codes[np.uint64(low[0] + row - low[1])])
        if row >= high[1]:
            high_code = np.uint32(codes[np.uint64(high[0] + row - high[1])])
        at = np.uint32(skipped + place)
        for letter in range(n_letters):
            words[at] = _score_word(
                scores[low_code, np.uint32(letter)], scores[high_code, np.uint32(letter)]
            )
            at = np.uint32(at + np.uint32(UNIT * lanes * most_units))


@core
def next_unit(words, at, unit, lanes, diagonal, insertion, highest, scores_of_row, deletions,
              mode, cells):  # fmt: skip
    """Compute a column of a lane's unit of rows; replace their scores and deletions.

    Parameters
    ----------
    words, at
        A profile, and the first of its words for the letter and the lane.
    diagonal, insertion
        H of the row above in the previous column; I of the first row.
    highest
        Highest score so far; used for local alignments only.

    Returns
    -------
    The same for the next unit (the diagonal is the last row's), and the bits of all rows.
    """
    substitutions = four_words(words, at, np.uint32(unit * UNIT * lanes))
    bits = np.uint32(0)
    for x in range(UNIT):
        k = unit * UNIT + x
        matched = plus(diagonal, substitutions[x], cells)
        diagonal = scores_of_row[k]
        score, insertion, deletion, origin = next_cell(
            matched, insertion, deletions[k], mode == LOCAL, cells
        )
        scores_of_row[k] = score
        deletions[k] = deletion
        if mode == LOCAL:
            highest = higher(highest, score, cells)
        bits = np.uint32(bits * np.uint32(16) + origin)
    return diagonal, insertion, highest, bits


LANES = 1 if SIMULATED else 8
GROUPS = 2 if SIMULATED else 16
BLOCK = LANES * GROUPS
UNITS = 2 if SIMULATED else 8
"""Units of four rows that a lane has in a strip."""

WORDS_BEFORE = UNITS * LANES
"""Unused words before the first origins: a lane numbers its units as in a full strip."""

BLOCKS_A_MULTIPROCESSOR = 4
"""Allows 128 registers for a thread."""

LETTER_WORDS = UNITS * UNIT * LANES
"""Words of a letter in a profile: for each unit of rows, four of every lane."""


def shared_bytes(n_letters: int) -> int:
    """Return the shared memory of a block in bytes, for a matrix of `n_letters` letters."""
    return 4 * (n_letters + 1) * LETTER_WORDS


def boundary_words(longest: int) -> int:
    """Return the words of a row between strips of a group, for references up to `longest`."""
    return longest + 2 * LANES + 2


@cache
def query_pairs_kernel(mode: int, want_path: bool) -> Kernel:
    """Return the kernel that computes the matrices of query pairs."""
    most_rows = UNIT * UNITS
    last = LANES - 1

    def fill(tasks, origin_starts, blocks, query_codes, ref_codes, scores, gaps, cells, stride,
             boundary, origins, out):  # fmt: skip
        """Compute all matrices: scores, ends, and the origins of cells."""
        thread = np.int32(cuda.threadIdx.x)
        lane = np.int32(thread % LANES)
        group = np.int32(thread // LANES)
        before = np.int32(thread - 1)
        words = cuda.shared.array(0, types.uint32)
        scores_of_row = cuda.local.array(most_rows, np.uint32)
        deletions = cuda.local.array(most_rows, np.uint32)
        best = cuda.local.array(2, np.int32)
        best_i = cuda.local.array(2, np.int32)
        best_j = cuda.local.array(2, np.int32)
        best_column = cuda.local.array(2, np.int32)
        lengths = cuda.local.array(2, np.int32)
        above = cuda.local.array(2, np.int32)

        none = np.uint32(scores.shape[0] - 1)
        over_at = np.uint64(cuda.blockIdx.x * GROUPS + group) * np.uint64(stride)
        block = blocks[TURN, cuda.blockIdx.x]
        slot = block * GROUPS + group
        ref_at = np.uint64(tasks[REF_AT, slot])
        m = np.int32(tasks[REF_SIZE, slot])
        lengths[0] = np.int32(blocks[LOW_LEN, block])
        lengths[1] = np.int32(blocks[HIGH_LEN, block])
        longest = max(lengths[0], lengths[1])
        all_units = np.int32((longest + UNIT * LANES - 1) // (UNIT * LANES))
        n_strips = np.int32((all_units + UNITS - 1) // UNITS)
        first_units = np.int32(all_units - (n_strips - 1) * UNITS)
        for half in range(2):
            above[half] = all_units * (UNIT * LANES) - lengths[half]
            best[half] = np.int32(0) if mode == LOCAL else NEVER
            best_i[half] = 0
            best_j[half] = 0
        bias = np.int32(bias_of(longest, m, gaps, mode, LANES))
        floor = np.int32(0) if mode == LOCAL else np.int32(-bias)
        n_steps = np.int32(m + LANES - 1) if m > 0 else np.int32(0)
        warp_steps = n_steps
        other = LANES
        while other < WARP:
            warp_steps = max(warp_steps, np.int32(from_lane(warp_steps, thread ^ other)))
            other *= 2
        # The row above the first, as if a strip had written it.
        for column in range(lane, warp_steps + 1, LANES):
            over = np.int32(border(np.int64(column + 1), gaps, mode) + bias)
            score = word_of(over, over, cells)
            gap = higher(plus(score, cells.opening, cells), cells.floor, cells)
            boundary[over_at + np.uint64(LANES + column)] = joined_words(score, gap)

        lowest = word_of(bias, bias, cells)
        highest = lowest
        for strip in range(n_strips):
            units = np.int32(UNITS) if strip > 0 else first_units
            rows = np.int32(UNIT * units)
            units_before = np.int32(0)
            if strip > 0:
                units_before = np.int32(first_units + (strip - 1) * UNITS)
            strip_row = np.int32(units_before * (UNIT * LANES))
            cuda.syncthreads()
            fill_profile(
                words, scores, query_codes, (blocks[LOW_AT, block], above[0]),
                (blocks[HIGH_AT, block], above[1]), strip_row, units, thread,
                BLOCK, LANES, UNITS,
            )  # fmt: skip
            cuda.syncthreads()
            # A strip of fewer units uses the last ones: row k is row + k.
            skipped = np.int32(UNITS - units)
            row = np.int32(strip_row + lane * rows - UNIT * skipped)
            low_row, high_row = np.int32(row - above[0]), np.int32(row - above[1])
            for k in range(most_rows):
                low = np.int32(border(max(np.int32(low_row + k + 1), 0), gaps, mode))
                high = np.int32(border(max(np.int32(high_row + k + 1), 0), gaps, mode))
                scores_of_row[k] = word_of(np.int32(low + bias), np.int32(high + bias), cells)
                deletions[k] = plus(scores_of_row[k], cells.opening, cells)
            low, gap_low = start_border(np.int32(low_row + most_rows), gaps, mode, floor)
            high, gap_high = start_border(np.int32(high_row + most_rows), gaps, mode, floor)
            bottom = word_of(low + bias, high + bias, cells)
            gap_bottom = word_of(gap_low + bias, gap_high + bias, cells)
            first_row = np.int32(UNIT * skipped)
            low, _ = start_border(np.int32(low_row + first_row), gaps, mode, floor)
            high, _ = start_border(np.int32(high_row + first_row), gaps, mode, floor)
            top = word_of(low + bias, high + bias, cells)
            # Equal scores of this strip count too: they may end in an earlier column.
            highest = higher(np.uint32(highest - np.uint32(0x10001)), lowest, cells)
            found, found_rows = lowest, np.uint32(0)
            best_column[0] = 0
            best_column[1] = 0
            origin_at = np.uint64(lane)
            if want_path:
                origin_at += np.uint64(origin_starts[slot])
                origin_at += np.uint64(units_before) * np.uint64(n_steps) * np.uint64(LANES)
                origin_at += np.uint64(LANES * units)  # of the words before, less the skipped

            # Inputs of the next step are loaded one step ahead.
            column = np.int32(-lane)
            letter = none
            if column == 0 and m > 0:
                letter = np.uint32(ref_codes[ref_at])
            over_read = np.uint64(over_at + np.uint64(LANES))
            over_write = np.uint64(over_at)
            over = boundary[over_read]
            for step in range(warp_steps):
                at = np.uint32(letter * np.uint32(LETTER_WORDS) + np.uint32(UNIT * lane))
                column = np.int32(column + 1)
                letter = none
                if np.uint32(column) < np.uint32(m):
                    letter = np.uint32(ref_codes[ref_at + np.uint64(np.uint32(column))])
                diagonal = top
                top = np.uint32(from_lane(bottom, before))
                insertion = np.uint32(from_lane(gap_bottom, before))
                if lane == 0:
                    top, insertion = score_of(over), np.uint32(over >> np.uint64(32))
                over_read += np.uint64(1)
                over_write += np.uint64(1)
                over = boundary[over_read]

                step_highest = highest
                # Two copies of one loop, by measurement: full strips take less time without the
                # test of each unit. With a path there are not enough registers for both copies.
                if skipped == 0 and not want_path:
                    for unit in range(UNITS):
                        diagonal, insertion, step_highest, _ = next_unit(
                            words, at, unit, LANES, diagonal, insertion, step_highest,
                            scores_of_row, deletions, mode, cells,
                        )  # fmt: skip
                else:
                    for unit in range(UNITS):
                        if unit >= skipped:
                            diagonal, insertion, step_highest, bits = next_unit(
                                words, at, unit, LANES, diagonal, insertion, step_highest,
                                scores_of_row, deletions, mode, cells,
                            )  # fmt: skip
                            if want_path and step < n_steps:
                                origins[origin_at + np.uint64(unit * LANES)] = bits
                bottom, gap_bottom = scores_of_row[most_rows - 1], insertion
                if want_path:
                    origin_at += np.uint64(units * LANES)
                if lane == last:
                    boundary[over_write] = joined_words(bottom, gap_bottom)

                if mode == LOCAL and any_in_warp(step_highest != highest):
                    rises = exceeds(step_highest, highest, cells)
                    here = np.uint32(0)
                    for x in range(most_rows):
                        k = np.uint32(most_rows - 1 - x)
                        other_rows = exceeds(step_highest, scores_of_row[k], cells)
                        mask = np.uint32(other_rows * np.uint32(0xFFFF))
                        both = np.uint32(k * np.uint32(0x10001))
                        here = np.uint32((here & mask) | (both & ~mask))
                    mask = np.uint32(rises * np.uint32(0xFFFF))
                    found = np.uint32((found & ~mask) | (step_highest & mask))
                    found_rows = np.uint32((found_rows & ~mask) | (here & mask))
                    if mask & np.uint32(0xFFFF) != 0:
                        best_column[0] = column
                    if mask >> np.uint32(16) != 0:
                        best_column[1] = column
                    # The other lanes of the group need not record lower scores, either.
                    highest = step_highest
                    other = 1
                    while other < LANES:
                        there = np.uint32(from_lane(step_highest, thread ^ other))
                        step_highest = higher(step_highest, there, cells)
                        other *= 2
                    highest = higher(highest, np.uint32(step_highest - np.uint32(0x10001)), cells)
                if mode == SEMIGLOBAL and column == m and m > 0:
                    found = np.uint32(0)
                    # 0, but the compiler must not know: it would compute all masks in advance.
                    late = np.int32(np.int32(step + 1) - lane - m)
                    for x in range(most_rows):
                        k = np.int32(most_rows - 1 - x)
                        mask = in_query(np.int32(low_row + late), k)
                        mask |= in_query(np.int32(high_row + late), k) << np.uint32(16)
                        score = np.uint32(scores_of_row[k] & mask)
                        if k >= first_row:
                            found = higher(found, score, cells)
                            others = exceeds(found, score, cells)
                            mask = np.uint32(others * np.uint32(0xFFFF))
                            both = np.uint32(np.uint32(k) * np.uint32(0x10001))
                            found_rows = np.uint32((found_rows & mask) | (both & ~mask))
                    best_column[0] = m
                    best_column[1] = m
            if mode != GLOBAL:
                for half in range(2):
                    value = np.int32(number_of(found, half, cells) - bias)
                    i = np.int32(row - above[half] + number_of(found_rows, half, cells) + 1)
                    j = best_column[half]
                    if (
                        j > 0
                        and i > 0
                        and is_better(value, i, j, best[half], best_i[half], best_j[half])
                    ):
                        best[half] = value
                        best_i[half] = i
                        best_j[half] = j
        sync_warp()

        # The last row is in the memory from which a strip below would read it.
        if mode == SEMIGLOBAL:
            for column in range(lane, m, LANES):
                over = boundary[over_at + np.uint64(LANES + column)]
                for half in range(2):
                    value = np.int32(number_of(score_of(over), half, cells) - bias)
                    j = np.int32(column + 1)
                    if is_better(value, lengths[half], j, best[half], best_i[half], best_j[half]):
                        best[half] = value
                        best_i[half] = lengths[half]
                        best_j[half] = j
        if mode != GLOBAL:
            other = 1
            while other < LANES:
                for half in range(2):
                    value = np.int32(from_lane(best[half], thread ^ other))
                    i = np.int32(from_lane(best_i[half], thread ^ other))
                    j = np.int32(from_lane(best_j[half], thread ^ other))
                    if is_better(value, i, j, best[half], best_i[half], best_j[half]):
                        best[half] = value
                        best_i[half] = i
                        best_j[half] = j
                other *= 2
        if lane == last and m > 0:
            if mode == GLOBAL:
                over = boundary[over_at + np.uint64(LANES + m - 1)]
                for half in range(2):
                    best[half] = np.int32(number_of(score_of(over), half, cells) - bias)
                    best_i[half] = lengths[half]
                    best_j[half] = m
            for half in range(2):
                pair = tasks[LOW + half, slot]
                if pair >= 0:
                    out[SCORE, pair] = best[half]
                    out[QUERY_END, pair] = best_i[half]
                    out[REF_END, pair] = best_j[half]

    return kernel(BLOCK, blocks_per_sm=BLOCKS_A_MULTIPROCESSOR)(fill)


@kernel(64)
def trace_query_pairs(tasks, origin_starts, blocks, query_codes, ref_codes, scores, gaps, mode,
                      origins, ops_start, ops, out):  # fmt: skip
    """Trace the path of each pair: write its operations, last first, from ``ops_start`` on."""
    x = cuda.grid(1)
    slot, half = x // 2, x % 2
    if slot < tasks.shape[1] and tasks[LOW + half, slot] >= 0:
        lanes = LANES
        pair = tasks[LOW + half, slot]
        block = slot // GROUPS
        longest = max(blocks[LOW_LEN, block], blocks[HIGH_LEN, block])
        n = blocks[HIGH_LEN if half else LOW_LEN, block]
        m = tasks[REF_SIZE, slot]
        units = (longest + UNIT * lanes - 1) // (UNIT * lanes)
        own = QueryPairOrigins(
            origins, origin_starts[slot] + WORDS_BEFORE, m + lanes - 1,
            (units - 1) % UNITS + 1, UNITS,
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
