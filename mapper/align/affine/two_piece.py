"""Gap-affine alignment of pairs with two-piece gap costs, on the CPU: driver and host side.

The search is a band of the matrix (:mod:`mapper.two_piece_band`), first a narrow one, then as wide
as the penalty found demands, until no alignment outside can cost as little: the result is exact.
Penalties alone take memory of the order of the lengths, a path a byte for each cell of the band.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mapper.align.coding import CpuPairs, code_one, cpu_parts
from mapper.align.dispatch import PairInput, cpu_only, pairs_on_cpu
from mapper.align.matches import codes_of, letters_in
from mapper.align.packing import PackedPairs
from mapper.align.pairs import Sequences
from mapper.align.result import NO_MEMORY, OK, OVER_LIMIT, Columns, PairAlignments
from mapper.align.single import BAD, N_OPS, STATUS, PairResult, align_one, columns_of_row
from mapper.align.threads import Part, run_parts, thread_count
from mapper.cigar import D, I
from mapper.errors import UsageError
from mapper.jit.accelerate import driver, grown
from mapper.jit.lanes import ONE_LANE
from mapper.params import TwoPieceScoring
from mapper.two_piece_band import (
    BandSpace,
    band_around,
    band_symbols,
    costs_of,
    difference_type,
    gap_cost,
    global_score,
    least_rows,
    rows_for,
    trace_band,
)

_FIRST_SYMBOLS = 1 << 10
"""Of the workspace, which grows with the pairs."""

_FEW_CELLS = 1 << 22
"""A band of so many cells keeps their origins, even if a wider one may follow."""

_WIDER = 4
"""A band's rows grow at most by this factor at a time, as a wider band may find a lower penalty."""

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
def _align_pair(letters, n, m, scoring, limit, max_cells, want_path, space, cells, ops):
    """Align a pair of two sequences that are not empty.

    Parameters
    ----------
    limit
        Penalties above it are of no interest.
    max_cells
        Bytes that origins may take.

    Returns
    -------
    status, penalty, n_ops, space, cells
        The workspace may have been replaced. The operations, the last first, are in `ops`, which
        has n + m + 4 items.
    """
    zero = np.int64(0)
    costs = costs_of(scoring, False, space.left[0])
    n_rows = least_rows(n, m)
    needed = rows_for(n, m, -limit, scoring)
    is_last = False
    while True:
        n_cells = (n + m - 1) * n_rows
        keeps = want_path and n_cells <= max_cells and (is_last or n_cells <= _FEW_CELLS)
        shape = band_around(n, m, n_rows)
        space = _with_room(space, shape)
        _write_symbols(space, shape, letters)
        if keeps:
            if n_cells > len(cells):
                cells = np.empty(n_cells + (n_cells >> 2), np.uint8)
            penalty = -global_score(space, shape, scoring, costs, cells, ONE_LANE)
        else:
            penalty = -global_score(space, shape, scoring, costs, None, ONE_LANE)
        needed = min(needed, rows_for(n, m, -min(penalty, limit), scoring))
        if n_rows >= needed:
            if penalty > limit:
                return np.int8(OVER_LIMIT), penalty, zero, space, cells
            if not want_path:
                return np.int8(OK), penalty, zero, space, cells
            if keeps:
                break
            if n_cells > max_cells:
                return np.int8(NO_MEMORY), penalty, zero, space, cells
            is_last = True
        else:
            is_last = needed <= _WIDER * n_rows
            n_rows = min(needed, _WIDER * n_rows)
    n_ops = trace_band(space, shape, cells, zero, n, m, False, ops, zero)
    return np.int8(OK), penalty, n_ops, space, cells


@driver
def align_two_piece_pairs(
    coded, scoring, scale, max_penalty, max_cells, want_path, differences, columns, cigar_counts
):
    """Align the pairs of a part (``coding.py``), and fill its rows of the results.

    `columns` are without results, `cigar_counts` 0.
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
        if n == 0 or m == 0:
            penalty = gap_cost(n + m, scoring)
            status = np.int8(OK if penalty <= max_penalty else OVER_LIMIT)
            n_ops = np.int64(min(n + m, 1))
            ops[0] = np.uint32((n + m) << 4 | (I if m == 0 else D))
        else:
            status, penalty, n_ops, space, cells = _align_pair(
                letters_in(codes, coded, i), n, m, scoring, max_penalty, max_cells, want_path,
                space, cells, ops,
            )  # fmt: skip
        columns.status[i] = status
        if status != OK:
            continue
        columns.score[i] = penalty * scale
        columns.query_start[i] = columns.ref_start[i] = 0
        columns.query_end[i], columns.ref_end[i] = n, m
        if not want_path:
            continue
        if n_all + n_ops > len(all_ops):
            all_ops = grown(all_ops, 2 * (n_all + n_ops))
        for j in range(n_ops):
            all_ops[n_all + j] = ops[n_ops - 1 - j]
        cigar_counts[i] = n_ops
        n_all += n_ops
    return all_ops[:n_all]


@driver
def align_one_two_piece(letters, n_query, query_codes, ref_codes, as_bytes, want_path, row,
                        differences, mismatch, gap_open, gap_extend, second_open, second_extend,
                        scale, max_penalty, max_cells):  # fmt: skip
    """Align two strings (``single.py``); the numbers are :func:`align_two_piece_pairs`'s."""
    coded, row[BAD] = code_one(letters, n_query, query_codes, ref_codes, as_bytes)
    columns = columns_of_row(row)
    if row[BAD] >= 0:
        return np.empty(0, np.uint32)
    scoring = TwoPieceScoring(0, mismatch, gap_open, gap_extend, second_open, second_extend)
    ops = align_two_piece_pairs(
        coded, scoring, scale, max_penalty, max_cells, want_path, differences, columns,
        row[N_OPS : N_OPS + 1],
    )  # fmt: skip
    row[STATUS] = columns.status[0]
    return ops


# --- host ---

TWO_PIECE_ALIGNED = "two-piece gaps are aligned"


def check_two_piece(span: object, band: object, device: str) -> None:
    """Raise UsageError for options that do not go with two-piece gaps."""
    if span != "global":
        raise UsageError(f"span {span}: two-piece gaps go with global alignment only")
    if band is not None:
        raise UsageError(f"band {band}: the search with two-piece gaps is exact, it has no band")
    cpu_only(device, TWO_PIECE_ALIGNED)


@cache
def _no_differences(scoring: TwoPieceScoring) -> np.ndarray:
    return np.empty(0, difference_type(scoring))


def align_two_piece(
    queries: PairInput, refs: Sequences | None, scoring: TwoPieceScoring, *, scale: int, limit: int,
    cigar: bool, symbols: str, memory: int, threads: int | None, first_pair: int,
) -> PairAlignments:  # fmt: skip
    """Align pairs; arguments are those of ``align_affine``, `scoring` and `limit` scaled."""
    differences = _no_differences(scoring)

    def align(part: Part[PackedPairs], columns: Columns, counts: np.ndarray) -> np.ndarray:
        first, last = part.first, part.last
        ops: np.ndarray = align_two_piece_pairs(
            part.pairs(), scoring, scale, limit, memory, cigar,
            differences, columns.rows(first, last), counts[first:last],
        )  # fmt: skip
        return ops

    pairs: CpuPairs = pairs_on_cpu(queries, refs, symbols, first_pair, threads)
    parts = cpu_parts(pairs, thread_count(threads))
    return run_parts(align, parts, pairs.n_pairs, cigar, threads)


def align_two_strings(
    letters: tuple[np.ndarray, int], scoring: TwoPieceScoring, *, scale: int, limit: int,
    cigar: bool, symbols: str, memory: int, first_pair: int,
) -> PairResult:  # fmt: skip
    """Align two strings (``single.py``) as :func:`align_two_piece`."""

    def run(*arguments: Any) -> np.ndarray:
        ops: np.ndarray = align_one_two_piece(
            *arguments, _no_differences(scoring), *scoring[1:], scale, limit, memory
        )
        return ops

    return align_one(run, letters, symbols, cigar, first_pair)
