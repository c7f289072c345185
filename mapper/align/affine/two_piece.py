"""Gap-affine alignment of pairs with two-piece gap costs, on the CPU: driver and host side.

The search is a band of the matrix (:mod:`mapper.two_piece_band`), first a narrow one, then as wide
as the penalty found demands, until no alignment outside can cost as little: the result is exact.
Where free ends lead to any diagonal at no cost, the band is the whole matrix. Penalties alone take
memory of the order of the lengths, a path a byte for each cell of the band.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mapper.align.coding import code_one, coded_first
from mapper.align.dispatch import PairInput, cpu_only, pairs_on_cpu
from mapper.align.edit.wavefront import Ends, ends_within
from mapper.align.matches import codes_of, letters_in
from mapper.align.pairs import Sequences
from mapper.align.parts import CpuPairs, run_pairs
from mapper.align.result import NO_MEMORY, OK, OVER_LIMIT, PairAlignments
from mapper.align.single import (
    BAD,
    N_OPS,
    STATUS,
    PairResult,
    align_one,
    cigar_text,
    columns_of_row,
)
from mapper.cigar import D, I, append_op
from mapper.errors import UsageError
from mapper.jit.accelerate import core, driver, grown
from mapper.jit.lanes import ONE_LANE
from mapper.params import TwoPieceScoring
from mapper.two_piece_band import (
    BLOCK,
    BandSpace,
    band_around,
    band_symbols,
    costs_of,
    difference_type,
    free_ends_score,
    gap_cost,
    global_score,
    least_rows,
    trace_to_edge,
    whole_matrix,
)

_FIRST_SYMBOLS = 1 << 10
"""Of the workspace, which grows with the pairs."""

_FEW_CELLS = 1 << 22
"""A band of so many cells keeps their origins, even if a wider one may follow."""

_WIDER = 4
"""A band's rows grow at most by this factor at a time, as a wider band may find a lower penalty."""

_NOT_OUTSIDE = 2**62
"""Penalty of a diagonal that no matrix has."""


# --- width ---


@core
def _lowest_at(diagonal, sign, n, m, ends, scoring):
    """Return the lowest penalty of an alignment that reaches a diagonal ``j - i``.

    `sign` is 1 if the diagonal lies above where alignments begin and end, -1 if below.
    """
    zero = np.int64(0)
    if sign > 0:
        into = diagonal - ends.ref_begin
        back = diagonal - (m - n + ends.query_end)
        if diagonal > m:
            return np.int64(_NOT_OUTSIDE)
    else:
        into = -ends.query_begin - diagonal
        back = m - n - ends.ref_end - diagonal
        if diagonal < -n:
            return np.int64(_NOT_OUTSIDE)
    return gap_cost(max(into, zero), scoring) + gap_cost(max(back, zero), scoring)


@core
def _shape_of(n, m, n_rows):
    """Return the shape of a band with at least `n_rows` rows, the whole matrix if it has fewer."""
    if n_rows >= n:
        return whole_matrix(n, m)
    return band_around(n, m, n_rows)


@core
def _rows_for(n, m, penalty, ends, scoring):
    """Return the rows of a band that holds all alignments of a penalty, and of lower ones."""
    n_rows = least_rows(n, m)
    while n_rows < n:
        highest = band_around(n, m, n_rows).highest
        above = _lowest_at(highest + 1, 1, n, m, ends, scoring)
        below = _lowest_at(highest - 2 * n_rows, -1, n, m, ends, scoring)
        if min(above, below) > penalty:
            break
        n_rows += BLOCK
    return n_rows


# --- driver ---


@driver
def _new_space(n, differences):
    """Allocate workspace as ``new_band_space``, for differences of the type of those given."""
    kind = differences.dtype
    return BandSpace(
        np.empty(n, np.uint8), np.empty(n, np.uint8), np.empty(n, kind), np.empty(n, kind),
        np.empty(n, kind), np.empty(n, kind), np.empty(n, kind), np.empty(n, kind),
    )  # fmt: skip


@driver
def _with_room(space, shape):
    """Return workspace that a band fits: as it is, or a larger one."""
    n = band_symbols(shape)
    if n <= len(space.query):
        return space
    return _new_space(n + (n >> 1), space.left)


@driver
def _write_symbols(space, shape, letters):
    """Copy the symbols of a pair to where a band reads them."""
    for i in range(shape.query_len):
        space.query[i + 1] = letters.query[i]
    last = shape.ref_len + shape.n_rows - 1
    for j in range(shape.ref_len):
        space.ref[last - j] = letters.ref[j]


@driver
def _band_penalty(space, shape, ends, scoring, costs, cells):
    """Return the lowest penalty of a band, and the end of its alignment."""
    if ends.query_begin + ends.query_end + ends.ref_begin + ends.ref_end == 0:
        score = np.int64(global_score(space, shape, scoring, costs, cells, ONE_LANE))
        return -score, shape.query_len, shape.ref_len
    score, i, j = free_ends_score(space, shape, ends, scoring, costs, cells, ONE_LANE)
    return -score, i, j


@driver
def _align_pair(letters, n, m, ends, scoring, limit, max_cells, want_path, space, cells, ops):
    """Align a pair of two sequences that are not empty.

    Parameters
    ----------
    ends
        Symbols that may stay unaligned, limited to the lengths.
    limit
        Penalties above it are of no interest.
    max_cells
        Bytes that origins may take.

    Returns
    -------
    status, penalty, n_ops, query_start, query_end, ref_start, ref_end, space, cells
        The workspace may have been replaced; starts are those of a path. The operations, the last
        first, are in `ops`, which has n + m + 4 items.
    """
    zero = np.int64(0)
    costs = costs_of(scoring, False, space.left[0])
    n_rows = _rows_for(n, m, zero, ends, scoring)
    needed = _rows_for(n, m, limit, ends, scoring)
    is_last = False
    while True:
        shape = _shape_of(n, m, n_rows)
        n_cells = (n + m - 1) * shape.n_rows
        keeps = want_path and n_cells <= max_cells and (is_last or n_cells <= _FEW_CELLS)
        space = _with_room(space, shape)
        _write_symbols(space, shape, letters)
        if keeps:
            if n_cells > len(cells):
                cells = np.empty(n_cells + (n_cells >> 2), np.uint8)
            penalty, i, j = _band_penalty(space, shape, ends, scoring, costs, cells)
        else:
            penalty, i, j = _band_penalty(space, shape, ends, scoring, costs, None)
        needed = min(needed, _rows_for(n, m, min(penalty, limit), ends, scoring))
        if n_rows >= needed:
            if penalty > limit:
                return np.int8(OVER_LIMIT), penalty, zero, zero, i, zero, j, space, cells
            if not want_path:
                return np.int8(OK), penalty, zero, zero, i, zero, j, space, cells
            if keeps:
                break
            if n_cells > max_cells:
                return np.int8(NO_MEMORY), penalty, zero, zero, i, zero, j, space, cells
            is_last = True
        else:
            is_last = needed <= _WIDER * n_rows
            n_rows = min(needed, _WIDER * n_rows)
    n_ops, before_query, before_ref = trace_to_edge(
        space, shape, cells, zero, i, j, False, ops, zero
    )
    query_start = min(before_query, ends.query_begin)
    ref_start = min(before_ref, ends.ref_begin)
    n_ops = append_op(ops, n_ops, I, before_query - query_start)
    n_ops = np.int64(append_op(ops, n_ops, D, before_ref - ref_start))
    return np.int8(OK), penalty, n_ops, query_start, i, ref_start, j, space, cells


@driver
def _align_with_nothing(n, m, ends, scoring, ops):
    """Align a pair of which one sequence is empty; return as :func:`_align_pair`."""
    # Of equal ends that on the lowest diagonal: the farthest in the query, the first in the ref.
    i = max(n - ends.query_end, min(n, ends.query_begin))
    j = m - ends.ref_end
    query_start, ref_start = min(i, ends.query_begin), min(j, ends.ref_begin)
    n_ops = append_op(ops, np.int64(0), I, i - query_start)
    n_ops = np.int64(append_op(ops, n_ops, D, j - ref_start))
    penalty = gap_cost(i - query_start, scoring) + gap_cost(j - ref_start, scoring)
    return penalty, n_ops, query_start, i, ref_start, j


@driver
def align_two_piece_pairs(
    coded, free, scoring, scale, max_penalty, max_cells, want_path, differences, columns,
    cigar_counts,
):  # fmt: skip
    """Align the pairs of a part (``coding.py``), and fill its rows of the results.

    `free` is :class:`Ends`, of any pair. `columns` are without results, `cigar_counts` 0.
    `scoring`, whose matches are free, and `max_penalty` have been divided by `scale`, which
    penalties are multiplied by. `differences`, an array without items, has the type of differences.

    Returns
    -------
    The operations of all these pairs (uint32), in order.
    """
    codes = codes_of(coded)
    n_pairs = len(coded.shift)
    space = _new_space(_FIRST_SYMBOLS, differences)
    cells = np.empty(1 << 16 if want_path else 0, np.uint8)
    ops = np.empty(256, np.uint32)
    all_ops = np.empty(8 * n_pairs + 16 if want_path else 0, np.uint32)
    n_all = 0
    for i in range(n_pairs):
        n, m = np.int64(coded.query_len[i]), np.int64(coded.ref_len[i])
        if n + m + 4 > len(ops):
            ops = np.empty(2 * (n + m + 4), np.uint32)
        ends = ends_within(free, n, m)
        if n == 0 or m == 0:
            penalty, n_ops, query_start, query_end, ref_start, ref_end = _align_with_nothing(
                n, m, ends, scoring, ops
            )
            status = np.int8(OK if penalty <= max_penalty else OVER_LIMIT)
        else:
            (
                status, penalty, n_ops, query_start, query_end, ref_start, ref_end, space, cells,
            ) = _align_pair(
                letters_in(codes, coded, i), n, m, ends, scoring, max_penalty, max_cells,
                want_path, space, cells, ops,
            )  # fmt: skip
        columns.status[i] = status
        if status != OK:
            continue
        columns.score[i] = penalty * scale
        columns.query_end[i], columns.ref_end[i] = query_end, ref_end
        if want_path or ends.query_begin + ends.ref_begin == 0:
            columns.query_start[i], columns.ref_start[i] = query_start, ref_start
        if not want_path:
            continue
        if n_all + n_ops > len(all_ops):
            all_ops = grown(all_ops, 2 * (n_all + n_ops))
        for j in range(n_ops):
            all_ops[n_all + j] = ops[n_ops - 1 - j]
        cigar_counts[i] = n_ops
        n_all += n_ops
    return all_ops[:n_all]


align_two_piece_source = coded_first(align_two_piece_pairs)


@driver
def align_one_two_piece(letters, n_query, query_codes, ref_codes, as_bytes, want_path, row,
                        differences, query_begin, query_end, ref_begin, ref_end, mismatch, gap_open,
                        gap_extend, second_open, second_extend, ambiguous, scale, max_penalty,
                        max_cells):  # fmt: skip
    """Align two strings (``single.py``); the numbers are :func:`align_two_piece_pairs`'s."""
    coded, row[BAD] = code_one(letters, n_query, query_codes, ref_codes, as_bytes)
    columns = columns_of_row(row)
    if row[BAD] >= 0:
        return np.empty(0, np.uint8)
    scoring = TwoPieceScoring(
        0, mismatch, gap_open, gap_extend, second_open, second_extend, ambiguous
    )
    free = Ends(query_begin, query_end, ref_begin, ref_end)
    ops = align_two_piece_pairs(
        coded, free, scoring, scale, max_penalty, max_cells, want_path, differences, columns,
        row[N_OPS : N_OPS + 1],
    )  # fmt: skip
    row[STATUS] = columns.status[0]
    return cigar_text(ops)


# --- host ---

TWO_PIECE_ALIGNED = "two-piece gaps are aligned"


def check_two_piece(band: object, device: str) -> None:
    """Raise UsageError for options that do not go with two-piece gaps."""
    if band is not None:
        raise UsageError(f"band {band}: the search with two-piece gaps is exact, it has no band")
    cpu_only(device, TWO_PIECE_ALIGNED)


@cache
def _no_differences(scoring: TwoPieceScoring) -> np.ndarray:
    return np.empty(0, difference_type(scoring))


def align_two_piece(
    queries: PairInput, refs: Sequences | None, free: Ends, scoring: TwoPieceScoring, *, scale: int,
    limit: int, cigar: bool, symbols: str, memory: int, threads: int | None, first_pair: int,
) -> PairAlignments:  # fmt: skip
    """Align pairs; arguments are those of ``align_affine``, `scoring` and `limit` scaled."""
    differences = _no_differences(scoring)

    others = free, scoring, scale, limit, memory, cigar, differences
    pairs: CpuPairs = pairs_on_cpu(queries, refs, symbols, first_pair, threads)
    return run_pairs(align_two_piece_source, others, pairs, cigar, threads)


def align_two_strings(
    letters: tuple[np.ndarray, int], free: Ends, scoring: TwoPieceScoring, *, scale: int,
    limit: int, cigar: bool, symbols: str, memory: int, first_pair: int,
) -> PairResult:  # fmt: skip
    """Align two strings (``single.py``) as :func:`align_two_piece`."""

    def run(*arguments: Any) -> np.ndarray:
        ops: np.ndarray = align_one_two_piece(
            *arguments, _no_differences(scoring), *free, *scoring[1:], scale, limit, memory
        )
        return ops

    return align_one(run, letters, symbols, cigar, first_pair)
