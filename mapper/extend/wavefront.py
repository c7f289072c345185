"""Core: gap-affine wavefront extension from a fixed corner, with soft clip or end bonus.

Both sides of an anchor are extended by the same text: `forward` extension runs to the right of a
corner (query_pos, text_pos), backward extension to its left. v and h count the bases of read and
reference consumed, ``k = h - v`` is the diagonal. States, offsets and recurrence are those of
:mod:`mapper.align.affine.wavefront`; both compute a cell by :func:`mapper.gap_affine.next_offsets`,
but the bounds of ``affine_cell`` do not fit here, as cells are also dropped by what they can still
score.

Penalties, diagonals and offsets have 32 bits, all but the positions in the text: numba computes
sums in 64, and a cast behind one lets the compiler use 32 for it.

**Scores and penalties.** A wavefront minimises a penalty in which matches are free; users maximise
a score in which a match earns `a`. With v read bases and h reference bases consumed::

    score = (a (v + h) - penalty) / 2

holds for every alignment if a mismatch costs ``2 (a + b)``, and a gap of n bases
``2 o + n (2 e + a)``, where the user subtracts b for a mismatch and ``o + n e`` for a gap: a
mismatch consumes one base of each side, so its score is ``(2 a - 2 (a + b)) / 2 = -b``; a gap of n
consumes n bases of one side, ``(a n - 2 o - n (2 e + a)) / 2 = -(o + n e)``. Doubled scores are
integers, so both backends compare them exactly.

**Branch and bound.** The aim is the best *objective*: score, plus a bonus where the read's end is
reached, both doubled. A cell is dropped when even the best imaginable rest, less the least loss
ahead (``block_losses.py``), would not beat the best objective so far. The wavefront dies out by
itself, and the result is exact.

References
----------
Marco-Sola et al. (2021), doi:10.1093/bioinformatics/btaa777: wavefront recurrences (I and D are
named as in SAM here). Eizenga, Paten (2022), doi:10.1101/2022.01.12.476087: match-bonus
transformation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.dna import matching_run
from mapper.extend.block_losses import (
    least_loss,
    least_loss_behind,
    least_loss_deleting,
    least_loss_inserting,
)
from mapper.gap_affine import next_offsets
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import leading_zeros, trailing_zeros
from mapper.jit.lanes import lane_mask, lane_max, lanes_meet
from mapper.params import ExtendParams

# --- penalties ---


class Penalties(NamedTuple):
    """Non-negative costs; a gap of n bases costs ``gap_open + n * gap_extend``."""

    match: int
    """The user's match score a: what turns penalties back into scores."""
    mismatch: int
    gap_open: int
    gap_extend: int


def wavefront_penalties(params: ExtendParams) -> Penalties:
    """Return the wavefront's penalties for a user's scores."""
    return Penalties(
        match=params.match,
        mismatch=2 * (params.match + params.mismatch),
        gap_open=2 * params.gap_open,
        gap_extend=2 * params.gap_extend + params.match,
    )


# --- wavefronts of one alignment ---

NULL = -(2**20)
"""Offset of a cell that does not exist; leaves room to add to it, and to multiply it by a doubled
match of up to 1000, in 32 bits."""


class Wavefronts(NamedTuple):
    """Workspace of one alignment: every wavefront, for the backtrace.

    The wavefront of penalty s is ``lo[s]:hi[s]`` (inclusive bounds, in diagonals; empty where
    lo > hi). Wavefronts lie one behind the other: diagonal k is item ``start[s] + k``.
    """

    match: np.ndarray  # int32 (n_cells,)
    insertion: np.ndarray  # int32, same shape
    deletion: np.ndarray  # int32, same shape
    lo: np.ndarray  # int32 (n_penalties,)
    hi: np.ndarray  # int32 (n_penalties,)
    start: np.ndarray  # int32 (n_penalties,)


class WavefrontSizes(NamedTuple):
    """Items of the parts of :class:`Wavefronts`."""

    cells: int
    penalties: int


def wavefront_sizes(
    max_read_len: int, max_gap: int, penalties: Penalties, end_bonus: int
) -> WavefrontSizes:
    """Return the workspace that any read up to `max_read_len` fits.

    A cell of penalty s on diagonal k lives only while ``2 (v a + bonus) + k a - s > 0``
    with v at most the read's length and k at most `max_gap`.
    """
    rows = (2 * max_read_len + max_gap) * penalties.match + 2 * end_bonus + 2
    return WavefrontSizes(rows * (2 * max_gap + 1), rows)


def new_wavefronts(
    max_read_len: int, max_gap: int, penalties: Penalties, end_bonus: int
) -> Wavefronts:
    """Allocate workspace that any read up to `max_read_len` fits."""
    sizes = wavefront_sizes(max_read_len, max_gap, penalties, end_bonus)
    cells = (np.empty(sizes.cells, np.int32) for _ in range(3))
    bounds = (np.empty(sizes.penalties, np.int32) for _ in range(3))
    return Wavefronts(*cells, *bounds)


@core
def row_of(wavefronts, s):
    """Bounds and start of the wavefront of penalty s; empty for a negative s."""
    if s < 0:
        return np.int32(1), np.int32(0), np.int32(0)
    row = np.uint32(s)
    return wavefronts.lo[row], wavefronts.hi[row], wavefronts.start[row]


@core
def cell(cells, row, k):
    """Offset on diagonal k of a wavefront (:func:`row_of`), or NULL."""
    lo, hi, start = row
    if k < lo or k > hi:
        return np.int32(NULL)
    return cells[np.uint32(start + k)]


@core
def end_row(wavefronts, s, lo, hi, start):
    """Store the bounds and the start of the wavefront of penalty s."""
    row = np.uint32(s)
    wavefronts.lo[row] = lo
    wavefronts.hi[row] = hi
    wavefronts.start[row] = start


@core
def beside(k_lo, k_hi, row):
    """Widen bounds by the diagonals that gaps lead to from a wavefront."""
    return min(k_lo, np.int32(row[0] - 1)), max(k_hi, np.int32(row[1] + 1))


@core
def bounded(offset, k, side):
    """The offset, or NULL if it lies beyond the end of read or reference."""
    if offset > np.int32(side.text_room) or np.int32(offset - k) > np.int32(side.query_room):
        return np.int32(NULL)
    return offset


# --- traceback ---


@core
def backtrace_side(wavefronts, penalties, side, s, k, offset, ops, n_ops):
    """Trace an end cell back to the corner and append the operations; return the new count.

    They are appended from the far end to the anchor: in read order for a backward extension,
    reversed for a forward one. Of equal ways into a cell a mismatch is taken before a
    deletion, a deletion before an insertion, and a gap is opened before it is lengthened.
    """
    one = np.int32(1)
    x = np.int32(penalties.mismatch)
    e = np.int32(penalties.gap_extend)
    oe = np.int32(penalties.gap_open + penalties.gap_extend)
    s, k, offset = np.int32(s), np.int32(k), np.int32(offset)
    while s > 0:
        here = row_of(wavefronts, s)
        mismatch = cell(wavefronts.match, row_of(wavefronts, np.int32(s - x)), k)
        mismatch = bounded(np.int32(mismatch + 1), k, side)
        insertion = cell(wavefronts.insertion, here, k)
        deletion = cell(wavefronts.deletion, here, k)
        entry = max(mismatch, max(insertion, deletion))
        n_ops = append_op(ops, n_ops, EQUAL, np.int32(offset - entry))
        offset = entry
        if mismatch == entry:
            n_ops = append_op(ops, n_ops, X, one)
            s = np.int32(s - x)
            offset = np.int32(offset - 1)
        elif deletion == entry:
            opened = False
            while not opened:
                n_ops = append_op(ops, n_ops, D, one)
                offset = np.int32(offset - 1)
                k = np.int32(k - 1)
                before = row_of(wavefronts, np.int32(s - oe))
                opened = cell(wavefronts.match, before, k) == offset
                s = np.int32(s - (oe if opened else e))
        else:
            opened = False
            while not opened:
                n_ops = append_op(ops, n_ops, I, one)
                k = np.int32(k + 1)
                before = row_of(wavefronts, np.int32(s - oe))
                opened = cell(wavefronts.match, before, k) == offset
                s = np.int32(s - (oe if opened else e))
    return append_op(ops, n_ops, EQUAL, offset)


# --- search ---

CELLS_FULL = -2
"""Penalty returned by :func:`extend_side` where the wavefronts do not fit their workspace."""


class Side(NamedTuple):
    """One side of an anchor: where the extension starts and what it may consume."""

    query_word: int  # row of the read's strand in its bit planes
    query_pos: int  # corner, in the oriented read
    query_room: int  # bases of the read on this side
    text_pos: int  # corner, in the text
    text_room: int  # bases of the contig on this side, those beyond the band need not count
    forward: bool


@core
def longest_run(query_planes, text_planes, side, v, h):
    """Return the length of the run of matches from (v, h) on; 64 bases a step."""
    limit = min(np.int32(side.query_room - v), np.int32(side.text_room - h))
    query_pos = np.int32(side.query_pos + (v if side.forward else -v))
    text_pos = side.text_pos + np.int32(h if side.forward else -h)
    return matching_run(
        query_planes, side.query_word, query_pos, text_planes, 0, text_pos, limit, side.forward
    )


@core
def admitted(offset, doubled_match, lost, highest):
    """The offset, or NULL if its matches do not exceed what is lost, or beyond the highest."""
    pays = np.int32(doubled_match * offset) > lost
    return offset if pays & (offset <= highest) else np.int32(NULL)


@core
def pruned_gap(gap, closes, lost, spare):
    """The offset of an open gap, or NULL if it loses all there is to spare.

    One that closes here is kept in any case, for the way back.
    """
    return gap if closes or lost < spare else np.int32(NULL)


@core
def read_pos(side, offset, k):
    """Return the position of a cell in the read."""
    v = offset - k
    return np.int32(side.query_pos + (v if side.forward else -v))


@core
def pruned(offset, insertion, deletion, k, s, side, penalties, bonus, losses, best):
    """Return the offsets of a cell's states, NULL for those that cannot beat objective `best`.

    ``match * (v + h) - s`` is the cell's doubled score so far. Every read base left can add
    ``2 * match``, and some of that is lost (:func:`least_loss`). The states of gaps
    stand for gaps that go on: one that closes here is the state of matches.
    """
    spare = np.int32(penalties.match * (k + 2 * side.query_room) - s + bonus - best)
    if spare <= 0:
        return np.int32(NULL), np.int32(NULL), np.int32(NULL)
    entry = offset
    if offset >= 0 and least_loss(losses, read_pos(side, offset, k), side.forward, k) >= spare:
        offset = np.int32(NULL)
    if insertion >= 0:
        pos = read_pos(side, insertion, k)
        lost = least_loss_inserting(losses, pos, side.forward, k, penalties)
        insertion = pruned_gap(insertion, offset >= 0 and insertion == entry, lost, spare)
    if deletion >= 0:
        pos = read_pos(side, deletion, k)
        lost = least_loss_deleting(losses, pos, side.forward, k, penalties)
        deletion = pruned_gap(deletion, offset >= 0 and deletion == entry, lost, spare)
    return offset, insertion, deletion


@core
def leads_on(offset, k, s, side, penalties, bonus, losses, best):
    """Return True if a path through the end of a run of matches can still beat objective `best`."""
    lost = least_loss_behind(losses, read_pos(side, offset, k), side.forward, k, penalties)
    most = penalties.match * (k + 2 * side.query_room) - s + bonus
    return np.int32(most - lost) > best


@core
def extend_side(query_planes, text_planes, side, penalties, end_bonus, reserve, floor, insertions,
                deletions, losses, wavefronts, lanes):  # fmt: skip
    """Extend an anchor to one side; the lanes share the diagonals of each wavefront.

    Parameters
    ----------
    end_bonus
        Added to the score where the read's end is reached.
    reserve
        Doubled objective of the rest of the alignment: what this side may lose on its way
        without losing all. No extension is found that does so at a mismatch or in a gap.
    floor
        Doubled objective that must be exceeded (the ungapped extension's, for one).
    insertions, deletions
        Diagonals to either side of the corner's that may be used.
    losses
        What is lost at the least within that band (:func:`fill_losses`).

    Returns
    -------
    objective, s, k, offset
        Doubled objective and end cell of the best extension; ``s = -1`` if none exceeds
        `floor`, CELLS_FULL if the workspace is too small to tell. Of equals the lowest
        penalty wins, then the lowest diagonal.
    """
    match, x = np.int32(penalties.match), np.int32(penalties.mismatch)
    e = np.int32(penalties.gap_extend)
    oe = np.int32(penalties.gap_open + penalties.gap_extend)
    bonus = np.int32(2 * end_bonus)
    lowest, highest = np.int32(-insertions), np.int32(deletions)
    query_room = np.int32(side.query_room)
    text_room = np.int32(side.text_room)
    n_penalties, n_cells = np.int32(len(wavefronts.lo)), np.int32(len(wavefronts.match))
    best = np.int32(floor)
    best_s = np.int32(-1)
    best_k = np.int32(0)
    best_offset = np.int32(0)
    used = np.int32(0)
    idle = np.int32(0)
    s = np.int32(0)
    lanes_meet(lanes)  # a slower lane may still be tracing back the extension before
    # From this penalty on every cell is pruned, on whatever diagonal.
    most = np.int32(match * (2 * query_room + highest) + bonus)
    while s < np.int32(most - best) and idle <= max(x, oe):
        if s >= n_penalties:
            return best, np.int32(CELLS_FULL), best_k, best_offset
        mismatched = row_of(wavefronts, np.int32(s - x))
        opened = row_of(wavefronts, np.int32(s - oe))
        lengthened = row_of(wavefronts, np.int32(s - e))
        k_lo, k_hi = np.int32(highest + 1), np.int32(lowest - 1)
        if s == 0:
            k_lo = k_hi = np.int32(0)
        if mismatched[0] <= mismatched[1]:
            k_lo, k_hi = mismatched[0], mismatched[1]
        if opened[0] <= opened[1]:
            k_lo, k_hi = beside(k_lo, k_hi, opened)
        if lengthened[0] <= lengthened[1]:
            k_lo, k_hi = beside(k_lo, k_hi, lengthened)
        if k_lo > k_hi:
            end_row(wavefronts, s, np.int32(1), np.int32(0), np.int32(0))
            idle = np.int32(idle + 1)
            s = np.int32(s + 1)
            continue
        k_lo = max(k_lo, lowest)
        k_hi = min(k_hi, highest)
        if np.int32(used + k_hi - k_lo) >= n_cells:
            return best, np.int32(CELLS_FULL), best_k, best_offset
        start = np.int32(used - k_lo)
        alive_lo, alive_hi = np.int32(1), np.int32(0)
        first = k_lo
        while first <= k_hi:
            k = np.int32(first + lanes.lane)
            insertion = deletion = offset = np.int32(NULL)
            objective = best
            if k <= k_hi:
                above, below = np.int32(k + 1), np.int32(k - 1)
                insertion, deletion, offset = next_offsets(
                    cell(wavefronts.match, mismatched, k),
                    cell(wavefronts.match, opened, above),
                    cell(wavefronts.insertion, lengthened, above),
                    cell(wavefronts.match, opened, below),
                    cell(wavefronts.deletion, lengthened, below),
                )
            # Nothing leads to most cells between those that are alive.
            if max(offset, max(insertion, deletion)) >= 0 or (s == 0 and k == 0):
                # Up to an end, and not where all is lost: match * (v + h) - s > -reserve.
                end = min(text_room, np.int32(query_room + k))
                lost = np.int32(s - reserve + match * k)
                insertion = admitted(insertion, 2 * match, lost, end)
                deletion = admitted(deletion, 2 * match, lost, end)
                offset = admitted(offset, 2 * match, lost, end)
                offset = max(offset, max(insertion, deletion))
                if s == 0:
                    offset = np.int32(0)
                offset, insertion, deletion = pruned(
                    offset, insertion, deletion, k, s, side, penalties, bonus, losses, best
                )
                if offset >= 0:
                    v = np.int32(offset - k)
                    run = longest_run(query_planes, text_planes, side, v, offset)
                    offset = np.int32(offset + run)
                    objective = np.int32(match * (2 * offset - k) - s)
                    if np.int32(offset - k) == query_room:
                        objective = np.int32(objective + bonus)
                    if objective <= best and not leads_on(
                        offset, k, s, side, penalties, bonus, losses, best
                    ):
                        offset = np.int32(NULL)
            alive = lane_mask(max(offset, max(insertion, deletion)) >= 0, lanes)
            if k <= k_hi:
                item = np.uint32(start + k)
                wavefronts.match[item] = offset
                wavefronts.insertion[item] = insertion
                wavefronts.deletion[item] = deletion
            if alive:
                if alive_lo > alive_hi:
                    alive_lo = np.int32(first + trailing_zeros(np.uint64(alive)))
                alive_hi = np.int32(first + 63 - leading_zeros(np.uint64(alive)))
            if lane_mask(objective > best, lanes):
                # The highest objective, of equals the lowest diagonal.
                key = np.int64(-1)
                if objective > best:
                    key = (np.int64(objective) << 20) | ((1 << 19) - k)
                key = lane_max(key, lanes)
                best = np.int32(key >> 20)
                best_s = s
                best_k = np.int32((1 << 19) - (key & ((1 << 20) - 1)))
                lanes_meet(lanes)
                best_offset = wavefronts.match[np.uint32(start + best_k)]
            first = np.int32(first + lanes.n_lanes)
        end_row(wavefronts, s, alive_lo, alive_hi, start)
        if alive_lo > alive_hi:
            idle = np.int32(idle + 1)
        else:
            idle = np.int32(0)
            used = np.int32(start + alive_hi + 1)
        lanes_meet(lanes)
        s = np.int32(s + 1)
    return best, best_s, best_k, best_offset
