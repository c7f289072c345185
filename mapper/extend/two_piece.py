"""Pieces of a long read between and beyond its anchors, aligned with two-piece gap costs.

:func:`fill_piece` aligns all of a piece of the read with all of a piece of the reference,
:func:`extend_piece` begins at one corner and ends where the score is best. Both align by a band of
the matrix (:mod:`mapper.two_piece_band`), after what needs none: an empty side, equal lengths with
few mismatches, a single gap.

**Width.** Where no alignment that leaves a band can score as much as the best one within, the
result is *proven*. Otherwise a wider band follows: as wide as the score found demands.

**Long gaps.** Where the lengths of a piece's sides differ by more than LONG_GAP, one gap is taken
to make up the difference: the best alignments of prefixes and of suffixes, each in a band of
JOIN_ROWS rows, are joined by it, in time that does not depend on the gap's length. That is optimal
if the optimal alignment leaves neither band, and proven if two long gaps would cost more.

**Heuristics.** :data:`PIECE_UNPROVEN` tells where one had an effect.

- Where a proof takes more than PROVEN_CELLS cells, and for an extension with a z-drop, the band is
  widened until the score no longer changes, instead of until it is proven. A gap that only a wider
  band holds is missed: one of more than 128 bases in an extension, and of more than 256 beside the
  diagonals of both corners of a piece that is filled, at worst.
- A join that is not proven stands where a band with the diagonals between both corners has more
  cells than that. Elsewhere such a band is tried, too, and may find several gaps.
- No band has more than MOST_CELLS cells, unless the corners' diagonals alone demand them.
- The z-drop itself, which is minimap2's.

**Ties.** Of equally good alignments the one with its gaps farthest to the left in the read, as
:mod:`mapper.two_piece_band` says in detail. Of equally good ends of an extension the one with
the fewest symbols of both sequences, then with the fewest of the read.

References
----------
Li (2018), doi:10.1093/bioinformatics/bty191, sections 2.2 and 2.2.2 (z-drop, two-piece gaps).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.dna import AMBIGUOUS
from mapper.jit.accelerate import core, disjoint_core
from mapper.jit.intrinsics import trailing_zeros
from mapper.jit.lanes import lane_mask, lane_max, lanes_meet
from mapper.params import TwoPieceScoring
from mapper.two_piece_band import (
    BLOCK,
    BandShape,
    BandSpace,
    ambiguous_cost,
    band_around,
    band_symbols,
    begin_band,
    costs_of,
    fill_antidiagonal,
    first_row,
    gap_cost,
    global_score,
    least_rows,
    new_band_space,
    rows_for,
    rows_inside,
    trace_band,
)

PIECE_OK = 0
PIECE_UNPROVEN = 1
"""Aligned, and it is not proven that no other alignment scores more."""
PIECE_NO_ROOM = 2
"""The workspace is too small: no result."""
PIECE_NO_OPS = 3
"""The operations do not fit: no result. One for each symbol of both pieces, and four more, do."""

PROVEN_CELLS = 1 << 23
"""A proof may take a band of so many cells, about 2 ms: that of any piece of 4,096 symbols."""
MOST_CELLS = 1 << 24
"""A band of more is not tried where a narrower one has an alignment."""
JOIN_ROWS = 128
LONG_GAP = 4 * JOIN_ROWS
"""At least so that both bands of a join have no diagonal in common, nor neighbouring ones."""
LARGE = 1 << 12
"""Symbols of both sides; the first band of a larger piece that is filled has twice as many rows."""
SECOND_ROWS = 8 * BLOCK
"""Of the band that follows the first where a piece is filled without a proof."""
FIRST_ROWS_EXTENDED, SECOND_ROWS_EXTENDED = BLOCK, 4 * BLOCK
"""Of the first bands of an extension, and so diagonals on each side."""

_AMBIGUOUS_REF = 5
"""An ambiguous base of the reference, so that it does not match one of the read."""

# --- workspace ---


class PieceSpace(NamedTuple):
    """Workspace of one thread; the caller keeps it for all pieces."""

    band: BandSpace
    scores: np.ndarray  # int32, by row: H of the last column
    reach: np.ndarray | None
    """int32 (4, by row): see `_reach_rows`; None to leave pieces with long gaps to others."""
    cells: np.ndarray  # uint8, origins


def new_piece_space(
    max_query_len: int, max_ref_len: int, scoring: TwoPieceScoring, n_cells: int = 1 << 20
) -> PieceSpace:
    """Allocate workspace for pieces up to these lengths (in bases).

    `n_cells` bytes are for the traceback. Where a piece gets PIECE_NO_ROOM, four times as many
    are tried next; the greater of MOST_CELLS and 288 for each symbol of both sides always suffices.
    The result does not depend on them.
    """
    # A band holds the matrix, or is limited by its cells.
    widest = max(max_query_len, max_ref_len) + 2 * BLOCK
    n_symbols = widest + 2 * max(min(widest, math.isqrt(n_cells)), JOIN_ROWS + BLOCK)
    return PieceSpace(
        new_band_space(n_symbols, scoring),
        np.empty(n_symbols, np.int32),
        np.empty((4, n_symbols), np.int32),
        np.empty(n_cells, np.uint8),
    )


@core
def _has_room(space, shape):
    return band_symbols(shape) <= len(space.scores)


@core
def _write_symbols(space, shape, query, query_from, query_step, ref, ref_from, ref_step, lanes):
    """Copy both sequences to where a band reads them, from a position on in one direction."""
    lanes_meet(lanes)
    for i in range(lanes.lane, shape.query_len, lanes.n_lanes):
        space.query[i + 1] = query[query_from + i * query_step]
    last = shape.ref_len + shape.n_rows - 1
    for j in range(lanes.lane, shape.ref_len, lanes.n_lanes):
        base = ref[ref_from + j * ref_step]
        space.ref[last - j] = _AMBIGUOUS_REF if base == AMBIGUOUS else base
    lanes_meet(lanes)


@core
def _from_first(value, lanes):
    """Return the int64 of the first lane, more than -2**62, to all."""
    return lane_max(value if lanes.lane == 0 else np.int64(-(2**62)), lanes)


@core
def _reverse(ops, start, end):
    """Reverse the order of some operations."""
    for i in range((end - start) >> 1):
        ops[start + i], ops[end - 1 - i] = ops[end - 1 - i], ops[start + i]


# --- pieces that need no matrix ---


@core
def _differs(a, b):
    return a != b or a == AMBIGUOUS


class Losses(NamedTuple):
    """By how much two symbols that differ score less than a match."""

    mismatch: int
    ambiguous: int


@core
def _losses_of(scoring):
    return Losses(
        np.int64(scoring.match + scoring.mismatch),
        np.int64(scoring.match + ambiguous_cost(scoring)),
    )


@core
def _loss(a, b, losses):
    lost = losses.mismatch if a != b else np.int64(0)
    return losses.ambiguous if a | b >= AMBIGUOUS else lost


@core
def _sum_losses(query, query_start, ref, ref_start, n, losses):
    """Return by how much n columns without gaps score less than n matches."""
    lost = np.int64(0)
    for i in range(n):
        lost += _loss(query[query_start + i], ref[ref_start + i], losses)
    return lost


@core
def _append_diagonal(query, query_start, ref, ref_start, n, ops, n_ops):
    """Append the operations of n symbols without gaps; return -1 if they might not fit."""
    done = np.int64(0)
    while done < n:
        differs = _differs(query[query_start + done], ref[ref_start + done])
        first = done
        while done < n and _differs(query[query_start + done], ref[ref_start + done]) == differs:
            done += 1
        if n_ops + 1 >= len(ops):
            return np.int64(-1)
        n_ops = np.int64(append_op(ops, n_ops, X if differs else EQUAL, done - first))
    return n_ops


@core
def _best_break(query, query_start, n, ref, ref_start, m, scoring):
    """Return the lowest loss of an alignment with one gap, without the gap's cost, and its place.

    Of equals the leftmost gap.
    """
    short = min(n, m)
    behind_query, behind_ref = query_start + n - short, ref_start + m - short
    losses = _losses_of(scoring)
    now = _sum_losses(query, behind_query, ref, behind_ref, short, losses)
    least, place = now, np.int64(0)
    for i in range(short):
        now += _loss(query[query_start + i], ref[ref_start + i], losses)
        now -= _loss(query[behind_query + i], ref[behind_ref + i], losses)
        if now < least:
            least, place = now, np.int64(i + 1)
    return least, place


@core
def _least_extra(goal, scoring):
    """Return what an alignment loses at least if it has more gaps than `goal`, m - n, demands.

    Relative to an alignment without mismatches that has one gap, or none.
    """
    first = gap_cost(np.int64(1), scoring)
    length = abs(goal)
    if length == 0:
        return 2 * first + scoring.match
    one = gap_cost(length, scoring)
    extra = gap_cost(length + 1, scoring) + first - one + scoring.match
    # Costs are concave: of two gaps that make up one, a single symbol beside the rest costs least.
    if length > 1:
        extra = min(extra, gap_cost(length - 1, scoring) + first - one)
    return extra


@core
def _align_with_one_gap(query, query_start, n, ref, ref_start, m, place, ops):
    """Write an alignment with one gap behind `place` symbols; return as :func:`trace_band`."""
    n_ops = _append_diagonal(query, query_start, ref, ref_start, place, ops, np.int64(0))
    if n_ops < 0 or n_ops + 1 >= len(ops):
        return np.int64(-1)
    n_ops = append_op(ops, n_ops, I if n > m else D, abs(m - n))
    rest = min(n, m) - place
    return _append_diagonal(
        query, query_start + n - rest, ref, ref_start + m - rest, rest, ops, np.int64(n_ops)
    )


# --- bands ---


@core
def _fill_in_band(
    query, query_start, n, ref, ref_start, m, lower_bound, is_joined, scoring, space, ops, lanes
):
    """Align all of both pieces by bands.

    `lower_bound` is the score of some alignment, and with `is_joined` of one over a long gap: then
    the first band holds what a join looks at, so that its score is no lower, and wider ones follow
    for a proof only.
    """
    one = np.int64(1)
    costs = costs_of(scoring, False, space.band.left[0])
    enough = rows_for(n, m, lower_bound, scoring)
    n_rows, before = least_rows(n, m), np.int64(-(2**40))
    if is_joined:
        n_rows += JOIN_ROWS
    elif n + m > LARGE:
        n_rows = max(n_rows, np.int64(2 * BLOCK))
    n_rows = min(n_rows, enough)
    while True:
        shape = band_around(n, m, n_rows)
        if not _has_room(space, shape) or (n + m - 1) * n_rows > len(space.cells):
            return np.int8(PIECE_NO_ROOM), np.int64(0), np.int64(0)
        _write_symbols(space.band, shape, query, query_start, one, ref, ref_start, one, lanes)
        score = global_score(space.band, shape, scoring, costs, space.cells, lanes)
        if n_rows < enough:
            enough = min(enough, rows_for(n, m, score, scoring))
        if n_rows >= enough:
            status = np.int8(PIECE_OK)
            break
        settles = (n + m) * enough > PROVEN_CELLS
        wider = enough
        if settles:
            wider = min(enough, max(2 * n_rows, np.int64(SECOND_ROWS)))
        found = is_joined or score == before
        if (settles and found) or (n + m) * wider > MOST_CELLS:
            status = np.int8(PIECE_UNPROVEN)
            break
        n_rows = wider
        before = score
    n_ops = np.int64(0)
    if lanes.lane == 0:
        n_ops = trace_band(space.band, shape, space.cells, n_ops, n, m, False, ops, n_ops)
        _reverse(ops, np.int64(0), n_ops)
    n_ops = _from_first(n_ops, lanes)
    if n_ops < 0:
        return np.int8(PIECE_NO_OPS), np.int64(0), np.int64(0)
    return status, n_ops, np.int64(score)


# --- scores of prefixes ---


@disjoint_core
def _advance(scores, above, column, lo, hi, lanes):
    """Update H of rows lo to hi by the differences of an antidiagonal; return a lane's highest."""
    top = np.int32(-(2**30))
    for i in range(lo + lanes.lane, hi + 1, lanes.n_lanes):
        r = np.uint64(i)
        score = np.int32(scores[r] + above[np.uint64(column) + r])
        scores[r] = score
        top = max(top, score)
    return top


@core
def _score_antidiagonal(space, shape, t, scoring, costs, at, lanes):
    """Compute antidiagonal t with the scores of its cells; return the highest.

    ``space.scores[i]`` is the score of row i, of those inside band and matrix.
    """
    first = first_row(t, shape.highest)
    lo, hi = rows_inside(shape, t)
    last = first + shape.n_rows - 1
    if hi == t - 1 and lanes.lane == 0:
        space.scores[hi] = -gap_cost(hi, scoring)
    # The left neighbour of a row that enters the band at its end lies outside.
    enters = hi == last and last < t - 1 and first > first_row(t - 1, shape.highest)
    score_above = space.scores[hi - 1] if enters else np.int32(0)
    fill_antidiagonal(space.band, shape, t, np.int64(0), scoring, costs, space.cells, at, lanes)
    if enters and lanes.lane == 0:
        column = shape.ref_len + shape.n_rows - t + hi
        space.scores[hi] = score_above + space.band.left[hi] - space.band.above[column]
    lanes_meet(lanes)
    column = shape.ref_len + shape.n_rows - t
    top = _advance(space.scores, space.band.above, column, lo, hi, lanes)
    lanes_meet(lanes)
    return lane_max(top, lanes)


# --- one long gap ---


@disjoint_core
def _keep_farthest(scores, best, place, lo, hi, t, extend, lanes):
    """Keep the best score of each row, less what a deletion saves that begins farther right."""
    for i in range(lo + lanes.lane, hi + 1, lanes.n_lanes):
        value = np.int32(scores[i] + extend * (t - i))
        if value > best[i]:
            best[i] = value
            place[i] = np.int32(t - i)


@core
def _reach_rows(space, shape, scoring, costs, at, best, place, lanes):
    """Find for each row i the prefix of the reference from which a long deletion pays best.

    ``best[i]`` is the highest of H(i, j) + j e2, and ``place[i]`` its lowest j. Origins lie from
    ``space.cells[at]`` on.
    """
    begin_band(space.band, shape, np.int64(0), scoring, costs, lanes)
    for i in range(1 + lanes.lane, shape.query_len + 1, lanes.n_lanes):
        best[i] = -gap_cost(i, scoring)
        place[i] = 0
    highest, farthest = np.int64(0), np.int64(0)
    for j in range(1, min(shape.highest, shape.ref_len) + 1):
        value = j * scoring.gap_extend2 - gap_cost(j, scoring)
        if value > highest:
            highest, farthest = value, np.int64(j)
    best[0], place[0] = highest, farthest
    lanes_meet(lanes)
    for t in range(2, shape.query_len + shape.ref_len + 1):
        lo, hi = rows_inside(shape, t)
        if lo > hi:
            break
        _score_antidiagonal(space, shape, t, scoring, costs, at, lanes)
        _keep_farthest(space.scores, best, place, lo, hi, t, scoring.gap_extend2, lanes)
        lanes_meet(lanes)
        at += shape.n_rows


@core
def _join_over_gap(query, query_start, n, ref, ref_start, m, swapped, scoring, space, ops, lanes):
    """Align all of a short query with all of a long reference, with one long deletion.

    `swapped`: the sequences are given in each other's place.
    """
    zero, one = np.int64(0), np.int64(1)
    # Columns beyond the band are not looked at.
    columns = min(m, n + 2 * JOIN_ROWS)
    shape = BandShape(n, columns, np.int64(JOIN_ROWS), np.int64(JOIN_ROWS))
    half = (n + columns) * JOIN_ROWS
    if not _has_room(space, shape) or 2 * half > len(space.cells):
        return np.int8(PIECE_NO_ROOM), zero, zero
    for side in range(2):
        costs = costs_of(scoring, side == 1, space.band.left[0])
        _write_symbols(
            space.band, shape,
            query, query_start if side == 0 else query_start + n - 1, one - 2 * side,
            ref, ref_start if side == 0 else ref_start + m - 1, one - 2 * side, lanes,
        )  # fmt: skip
        _reach_rows(
            space, shape, scoring, costs, side * half, space.reach[2 * side],
            space.reach[2 * side + 1], lanes,
        )  # fmt: skip
    score, place = np.int64(-(2**40)), zero
    for i in range(n + 1):
        joined = np.int64(space.reach[0, i]) + np.int64(space.reach[2, n - i])
        if joined > score:
            score, place = joined, np.int64(i)
    before, behind = np.int64(space.reach[1, place]), np.int64(space.reach[3, n - place])
    score -= (before + behind) * scoring.gap_extend2 + gap_cost(m - before - behind, scoring)
    # Whatever has no such gap has two that make it up, each wider than a band's half.
    two_gaps = gap_cost(np.int64(JOIN_ROWS), scoring) + gap_cost(m - n - JOIN_ROWS, scoring)
    status = np.int8(PIECE_UNPROVEN)
    if score > scoring.match * n - two_gaps:
        status = np.int8(PIECE_OK)
    # The band's symbols are still those of the second side, so it is traced first.
    n_ops = zero
    if lanes.lane == 0:
        n_ops = trace_band(
            space.band, shape, space.cells, half, n - place, behind, swapped, ops, zero
        )
        if n_ops >= 0:
            # Of reversed sequences the last operation comes first; of the others it comes last.
            _reverse(ops, zero, n_ops)
            n_ops = np.int64(append_op(ops, n_ops, I if swapped else D, m - before - behind))
    n_ops = _from_first(n_ops, lanes)
    if n_ops < 0:
        return np.int8(PIECE_NO_OPS), zero, zero
    _write_symbols(space.band, shape, query, query_start, one, ref, ref_start, one, lanes)
    if lanes.lane == 0:
        n_ops = trace_band(space.band, shape, space.cells, zero, place, before, swapped, ops, n_ops)
        _reverse(ops, zero, n_ops)
    n_ops = _from_first(n_ops, lanes)
    if n_ops < 0:
        return np.int8(PIECE_NO_OPS), zero, zero
    return status, n_ops, score


@core
def _join_if_any(query, query_start, n, ref, ref_start, m, reach, scoring, space, ops, lanes):
    """Align pieces of which one is much longer, unless the workspace is for others only."""
    if reach is None:
        return np.int8(PIECE_NO_ROOM), np.int64(0), np.int64(0)
    if n < m:
        return _join_over_gap(
            query, query_start, n, ref, ref_start, m, False, scoring, space, ops, lanes
        )
    return _join_over_gap(
        ref, ref_start, m, query, query_start, n, True, scoring, space, ops, lanes
    )


# --- extension ---


@core
def _ends_at_the_end(query, query_start, ref, ref_start, n, backward, end_bonus, scoring):
    """Return True if n symbols without gaps, at most one a difference, are the best extension."""
    losses = _losses_of(scoring)
    lost = _sum_losses(query, query_start, ref, ref_start, n, losses)
    if lost == 0:
        return True
    if lost >= gap_cost(np.int64(1), scoring):
        return False
    before = np.int64(0)
    step, at, ref_at = np.int64(1), query_start, ref_start
    if backward:
        step, at, ref_at = np.int64(-1), query_start + n - 1, ref_start + n - 1
    while not _differs(query[at + step * before], ref[ref_at + step * before]):
        before += 1
    if _loss(query[at + step * before], ref[ref_at + step * before], losses) != lost:
        return False
    return scoring.match * before <= scoring.match * n - lost + end_bonus


class End(NamedTuple):
    """Ends of an extension in a band: the best one, and that at the end of the read."""

    score: int
    query_len: int
    ref_len: int
    whole_score: int
    whole_ref_len: int
    dropped: bool
    """True if the z-drop ended the search."""


@core
def _first_row_of(scores, score, lo, lanes):
    """Return the first row from `lo` on that has a score; one has."""
    while True:
        # Lanes beyond the last row look at what other rows left: a lower lane finds one before.
        row = min(lo + lanes.lane, np.int64(len(scores)) - 1)
        found = lane_mask(scores[row] == score, lanes)
        if found:
            return lo + np.int64(trailing_zeros(np.uint64(found)))
        lo += lanes.n_lanes


@core
def _search_end(space, shape, z_drop, scoring, costs, lanes):
    """Find the best ends in a band; return them, and True if there was room for the origins."""
    begin_band(space.band, shape, np.int64(0), scoring, costs, lanes)
    zero = np.int64(0)
    n = shape.query_len
    best, best_i, best_j = zero, zero, zero
    whole, whole_j = -gap_cost(n, scoring), zero
    at = zero
    for t in range(2, n + shape.ref_len + 1):
        lo, hi = rows_inside(shape, t)
        if lo > hi:
            break
        if at + shape.n_rows > len(space.cells):
            return End(best, best_i, best_j, whole, whole_j, False), False
        top = np.int64(_score_antidiagonal(space, shape, t, scoring, costs, at, lanes))
        at += shape.n_rows
        if hi == n and space.scores[n] > whole:
            whole, whole_j = np.int64(space.scores[n]), t - n
        if top <= best and (z_drop < 0 or best - top <= z_drop):
            continue
        i = _first_row_of(space.scores, top, lo, lanes)
        if top > best:
            best, best_i, best_j = top, i, t - i
            continue
        more_query, more_ref = i - best_i, t - i - best_j
        if more_query >= 0 and more_ref >= 0:
            aside = abs(more_ref - more_query)
            if best - top > z_drop + scoring.gap_extend2 * aside:
                return End(best, best_i, best_j, whole, whole_j, True), True
    return End(best, best_i, best_j, whole, whole_j, False), True


@core
def _rows_beyond(n, m, n_rows, score, scoring):
    """Return the rows of a band, at least `n_rows`, that no extension of this score leaves."""
    while True:
        matched = max(min(n - n_rows, m), min(n, m - n_rows))
        # No diagonal of the matrix is outside, or the gap to it costs too much.
        if matched < 0 or scoring.match * matched - gap_cost(n_rows, scoring) < score:
            return n_rows
        n_rows += BLOCK


@core
def _extend_by_bands(
    query, query_from, n, ref, ref_from, m, backward, z_drop, end_bonus, scoring, space, ops, lanes
):
    """Extend from a corner by bands; arguments and results are those of :func:`extend_piece`."""
    zero = np.int64(0)
    step = np.int64(-1 if backward else 1)
    costs = costs_of(scoring, backward, space.band.left[0])
    n_rows, before = np.int64(FIRST_ROWS_EXTENDED), np.int64(-(2**40))
    while True:
        shape = BandShape(n, min(m, n + n_rows), n_rows, n_rows)
        if not _has_room(space, shape):
            return np.int8(PIECE_NO_ROOM), zero, zero, zero, zero
        _write_symbols(space.band, shape, query, query_from, step, ref, ref_from, step, lanes)
        end, has_room = _search_end(space, shape, z_drop, scoring, costs, lanes)
        if not has_room:
            return np.int8(PIECE_NO_ROOM), zero, zero, zero, zero
        objective = max(end.score, end.whole_score + end_bonus)
        needed = _rows_beyond(n, m, n_rows, objective - end_bonus, scoring)
        if needed == n_rows and not end.dropped:
            status = np.int8(PIECE_OK)
            break
        settles = z_drop >= 0 or (n + min(m, n + needed)) * needed > PROVEN_CELLS
        wider = max(2 * n_rows, np.int64(SECOND_ROWS_EXTENDED))
        if needed <= 8 * n_rows and not end.dropped:
            wider = min(wider, needed) if settles else needed
        if (settles and objective == before) or (n + min(m, n + wider)) * wider > MOST_CELLS:
            status = np.int8(PIECE_UNPROVEN)
            break
        before = objective
        n_rows = wider
    score, i, j = end.score, end.query_len, end.ref_len
    if end.whole_score + end_bonus >= score:
        score, i, j = end.whole_score, n, end.whole_ref_len
    n_ops = zero
    if lanes.lane == 0:
        n_ops = trace_band(space.band, shape, space.cells, zero, i, j, False, ops, zero)
        if not backward:
            _reverse(ops, zero, n_ops)
    n_ops = _from_first(n_ops, lanes)
    if n_ops < 0:
        return np.int8(PIECE_NO_OPS), zero, zero, zero, zero
    return status, n_ops, score, i, j


# --- entry points ---


@core
def fill_piece(
    query, query_start, query_end, ref, ref_start, ref_end, scoring, workspace, ops, lanes
):
    """Align all of a piece of a read with all of a piece of the reference.

    Parameters
    ----------
    query, ref
        Codes of bases, uint8: 0 to 3, and 4 for an ambiguous one, which matches nothing, and costs
        ``scoring.ambiguous``.
    query_start, query_end, ref_start, ref_end
        The pieces, half-open.
    scoring
        :class:`mapper.params.TwoPieceScoring`.
    workspace
        :class:`PieceSpace`.
    ops
        uint32: the operations are written from item 0 on, in the order of the read.
    lanes
        Share the work (:mod:`mapper.jit.lanes`), in one workspace. All return the same.

    Returns
    -------
    status, n_ops, score
        Score of the alignment; PIECE_OK or PIECE_UNPROVEN, otherwise there is no result.
    """
    zero = np.int64(0)
    query_start, ref_start = np.int64(query_start), np.int64(ref_start)
    n, m = query_end - query_start, ref_end - ref_start
    short, goal = min(n, m), m - n
    if len(ops) < 4:
        return np.int8(PIECE_NO_OPS), zero, zero
    lost, place = _best_break(query, query_start, n, ref, ref_start, m, scoring)
    score = scoring.match * short - lost - gap_cost(abs(goal), scoring)
    extra = _least_extra(goal, scoring)
    # The matrix would have the same path: without a gap even if another loses as much.
    if short == 0 or lost < extra or (goal == 0 and lost == extra):
        n_ops = zero
        if lanes.lane == 0:
            n_ops = _align_with_one_gap(query, query_start, n, ref, ref_start, m, place, ops)
        n_ops = _from_first(n_ops, lanes)
        if n_ops < 0:
            return np.int8(PIECE_NO_OPS), zero, zero
        return np.int8(PIECE_OK), n_ops, score
    if abs(goal) > LONG_GAP:
        status, n_ops, joined = _join_if_any(
            query,
            query_start,
            n,
            ref,
            ref_start,
            m,
            workspace.reach,
            scoring,
            workspace,
            ops,
            lanes,
        )
        n_cells = (n + m) * (least_rows(n, m) + JOIN_ROWS)
        if status != PIECE_UNPROVEN or n_cells > PROVEN_CELLS:
            return status, n_ops, joined
        score = joined
    return _fill_in_band(
        query, query_start, n, ref, ref_start, m, score, abs(goal) > LONG_GAP, scoring, workspace,
        ops, lanes,
    )  # fmt: skip


@core
def extend_piece(
    query, query_start, query_end, ref, ref_start, ref_end, backward, z_drop, end_bonus, scoring,
    workspace, ops, lanes,
):  # fmt: skip
    """Align a piece of a read with a piece of the reference, from one corner to the best end.

    Parameters
    ----------
    query, query_start, query_end, ref, ref_start, ref_end, scoring, workspace, ops, lanes
        As for :func:`fill_piece`.
    backward
        False: from the start of both pieces to the right. True: from their end to the left.
    z_drop
        The search ends where the best score of an antidiagonal is lower than the best score so far
        by more than this, plus ``gap_extend2`` for each diagonal between them. Negative: never.
    end_bonus
        Not negative. The alignment goes to the end of the piece of the read if its score there and
        this are together at least the best score.

    Returns
    -------
    status, n_ops, score, query_len, ref_len
        As for :func:`fill_piece`; the score is without the bonus. The lengths are those of the
        parts that are aligned.
    """
    zero = np.int64(0)
    n, m = np.int64(query_end) - query_start, np.int64(ref_end) - ref_start
    z_drop, end_bonus = np.int64(z_drop), np.int64(end_bonus)
    if len(ops) < 4:
        return np.int8(PIECE_NO_OPS), zero, zero, zero, zero
    if n == 0:
        return np.int8(PIECE_OK), zero, zero, zero, zero
    if m == 0:
        score = -gap_cost(n, scoring)
        if score + end_bonus < 0:
            return np.int8(PIECE_OK), zero, zero, zero, zero
        if lanes.lane == 0:
            append_op(ops, zero, I, n)
        return np.int8(PIECE_OK), np.int64(1), score, n, zero
    if n <= m and (z_drop < 0 or z_drop >= 2 * (scoring.mismatch + gap_cost(np.int64(1), scoring))):
        at, ref_at = np.int64(query_start), np.int64(ref_start)
        if backward:
            at, ref_at = np.int64(query_end - n), np.int64(ref_end - n)
        if _ends_at_the_end(query, at, ref, ref_at, n, backward, end_bonus, scoring):
            lost = _sum_losses(query, at, ref, ref_at, n, _losses_of(scoring))
            n_ops = zero
            if lanes.lane == 0:
                n_ops = _append_diagonal(query, at, ref, ref_at, n, ops, zero)
            n_ops = _from_first(n_ops, lanes)
            if n_ops < 0:
                return np.int8(PIECE_NO_OPS), zero, zero, zero, zero
            return np.int8(PIECE_OK), n_ops, scoring.match * n - lost, n, n
    query_from, ref_from = np.int64(query_start), np.int64(ref_start)
    if backward:
        query_from, ref_from = np.int64(query_end - 1), np.int64(ref_end - 1)
    return _extend_by_bands(
        query, query_from, n, ref, ref_from, m, backward, z_drop, end_bonus, scoring, workspace,
        ops, lanes,
    )  # fmt: skip
