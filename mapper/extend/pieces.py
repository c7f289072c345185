"""Core: one chain of anchors → its alignments, piece by piece.

Anchors are runs of matches as they are. Between two of them both sequences are aligned whole
(:func:`mapper.extend.two_piece.fill_piece`), beyond the outermost ones as far as that pays
(``extend_piece``). The path is then scored step by step, and cut where it is no single alignment:

- where a piece has no alignment within the workspace, such as kilobases without any likeness;
- where the score drops by more than ``z_drop`` below its highest so far, or to nothing. What lies
  between is left out, so that the parts of a read on both sides of a break, or of an inversion,
  become alignments of their own.

A long gap is a rare event, but one: it counts as one of LONG_GAP bases in scores, so that deletions
and insertions of any length stay in one alignment, if chaining has joined them. So counts a run of
ambiguous bases, as between the contigs of a scaffold.

Both ends of a part are trimmed to where its score is highest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.cigar import EQUAL, D, I, X, append_op, base_at, left_align, part_from_mismatches
from mapper.dna import AMBIGUOUS, unpack
from mapper.extend.two_piece import PIECE_OK, PIECE_UNPROVEN, extend_piece, fill_piece
from mapper.jit.accelerate import core
from mapper.jit.lanes import ONE_LANE
from mapper.two_piece_band import ambiguous_cost, gap_cost

LONG_GAP = 100
"""Length at which the cost of a gap, or of a run of ambiguous bases, stops growing."""

NO_OP = 15

TEXT_SLACK = 500
"""An extension may take so many more bases of the text than of the read."""


class PieceScratch(NamedTuple):
    """Workspace for one piece."""

    query: np.ndarray  # uint8: codes
    ref: np.ndarray  # uint8
    ops: np.ndarray  # uint32


class Sides(NamedTuple):
    """The packed sequences of a chain: its read, oriented, and the text."""

    query_planes: np.ndarray
    query_word: int
    query_len: int
    text_planes: np.ndarray
    text_start: int  # of the contig
    text_end: int


class Path(NamedTuple):
    """A cursor on the path of a chain: its last operation, and the ends behind it."""

    n_ops: int  # -1 if the operations do not fit
    query: int
    text: int


@core
def _append_ops(ops, n_ops, more, n_more):
    """Append operations, merging the first with the last before; -1 if they do not fit."""
    if n_ops < 0 or n_ops + n_more > len(ops):
        return np.int64(-1)
    for i in range(n_more):
        n_ops = append_op(ops, n_ops, more[i] & 15, np.int64(more[i] >> 4))
    return np.int64(n_ops)


@core
def begin_path(ops, n_ops):
    """Return where the next path begins: behind an empty operation, with which none is merged."""
    if n_ops < 0 or n_ops + 1 > len(ops):
        return np.int64(-1)
    ops[n_ops] = NO_OP
    return np.int64(n_ops) + 1


@core
def append_run(ops, n_ops, length):
    """Append matches; -1 if there is no room."""
    if n_ops < 0 or n_ops + 1 > len(ops):
        return np.int64(-1)
    return np.int64(append_op(ops, n_ops, EQUAL, length))


@core
def fill_gap(sides, path, query_end, text_end, scoring, space, scratch, ops):
    """Append the alignment of the piece from `path` to the next anchor.

    Returns
    -------
    filled, path
        False if the piece has no alignment within the workspace.
    """
    n_query, n_text = query_end - path.query, text_end - path.text
    if n_query > len(scratch.query) or n_text > len(scratch.ref):
        return False, path
    unpack(sides.query_planes, sides.query_word, path.query, query_end, scratch.query)
    unpack(sides.text_planes, 0, path.text, text_end, scratch.ref)
    status, n, _ = fill_piece(
        scratch.query, 0, n_query, scratch.ref, 0, n_text, scoring, space, scratch.ops, ONE_LANE
    )
    if status != PIECE_OK and status != PIECE_UNPROVEN:
        return False, path
    return True, Path(_append_ops(ops, path.n_ops, scratch.ops, n), query_end, text_end)


@core
def end_piece(query, text, backward, read_len, contig_start, contig_end, params):
    """Return the piece beyond the end of a path at `query` and `text`.

    Returns
    -------
    query_start, n_query, text_start, n_text
        The piece.
    bonus
        For reaching its end on the read.
    """
    room = query if backward else read_len - query
    n_query = min(room, np.int64(params.max_extension))
    text_room = text - contig_start if backward else contig_end - text
    n_text = min(n_query + TEXT_SLACK, text_room)
    bonus = np.int64(params.end_bonus if n_query == room else 0)
    if backward:
        return query - n_query, n_query, text - n_text, n_text, bonus
    return query, n_query, text, n_text, bonus


@core
def anchor_behind(chains, i, query, text):
    """Return anchor i of `chains` without what overlaps a path that ends at `query` and `text`.

    Neighbours overlap at short tandem repeats: the later one gives way.

    Returns
    -------
    query, text, length
        Its start on both, and its length; if that is not positive, there is nothing left of it.
    """
    at_query, at_text = np.int64(chains.query_start[i]), np.int64(chains.text_pos[i])
    common = max(np.int64(0), query - at_query, text - at_text)
    return at_query + common, at_text + common, np.int64(chains.length[i]) - common


@core
def extend_end(sides, path, backward, scoring, params, space, scratch, ops):
    """Append the alignment beyond an outermost anchor, as far as it pays.

    Backward, `path` has no operations yet; the result ends where it began.

    Returns
    -------
    The path; backward, with the start of the alignment instead of its end.
    """
    query_start, n_query, text_start, n_text, bonus = end_piece(
        path.query, path.text, backward, sides.query_len, sides.text_start, sides.text_end, params
    )
    unpack(sides.query_planes, sides.query_word, query_start, query_start + n_query, scratch.query)
    unpack(sides.text_planes, 0, text_start, text_start + n_text, scratch.ref)
    status, n, _, on_query, on_text = extend_piece(
        scratch.query, 0, n_query, scratch.ref, 0, n_text, backward, params.z_drop, bonus,
        scoring, space, scratch.ops, ONE_LANE,
    )  # fmt: skip
    if status != PIECE_OK and status != PIECE_UNPROVEN:
        return path
    n_ops = _append_ops(ops, path.n_ops, scratch.ops, n)
    if backward:
        return Path(n_ops, path.query - on_query, path.text - on_text)
    return Path(n_ops, path.query + on_query, path.text + on_text)


@core
def _count_ambiguous(sides, query, text, n):
    """Return in how many of n columns without gaps one base or both are ambiguous."""
    found = np.int64(0)
    for i in range(n):
        base = base_at(sides.query_planes, sides.query_word, query + i)
        beside = base_at(sides.text_planes, np.int64(0), text + i)
        found += np.int64(base == AMBIGUOUS or beside == AMBIGUOUS)
    return found


@core
def op_score(op, query, text, sides, scoring):
    """Return the score of an operation that begins at `query` and `text`; differences lower it."""
    code, length = np.int64(op & 15), np.int64(op >> 4)
    if code == EQUAL:
        return scoring.match * length
    if code == X:
        n_ambiguous = _count_ambiguous(sides, query, text, length)
        cost = ambiguous_cost(scoring) * min(n_ambiguous, np.int64(LONG_GAP))
        return -scoring.mismatch * (length - n_ambiguous) - cost
    return -gap_cost(min(length, np.int64(LONG_GAP)), scoring)


@core
def behind_op(op, query, text):
    """Return where an operation that begins at `query` and `text` ends."""
    code, length = np.int64(op & 15), np.int64(op >> 4)
    return query + (0 if code == D else length), text + (0 if code == I else length)


@core
def behind_ops(ops, first, end, query, text):
    """Return where operations that begin at `query` and `text` end."""
    for i in range(first, end):
        query, text = behind_op(ops[i], query, text)
    return query, text


@core
def ambiguous_columns(ops, first, end, query, text, sides):
    """Return how many columns without a gap have one ambiguous base or two.

    Operations first:end begin at `query` and `text`.
    """
    found = np.int64(0)
    for i in range(first, end):
        if ops[i] & 15 == X:
            found += _count_ambiguous(sides, query, text, np.int64(ops[i] >> 4))
        query, text = behind_op(ops[i], query, text)
    return found


@core
def part_gaps(ops, begin, path, sides):
    """Move gaps that a mismatch follows left, into the anchor before them; return the path.

    Its operations begin at `begin`. There are -1 if `ops` has no room for more of them.
    """
    n_ops = part_from_mismatches(
        ops, begin, path.n_ops, sides.query_planes, sides.query_word, path.query, sides.text_planes,
        path.text,
    )  # fmt: skip
    return Path(n_ops, path.query, path.text)


@core
def next_part(ops, first, end, query, text, sides, scoring, z_drop):
    """Find the next part of a path, from operation `first` on, that is one alignment.

    Parameters
    ----------
    query, text
        Where operation `first` begins.

    Returns
    -------
    start, stop
        Its operations; it begins and ends with matches. Empty if there is none.
    following
        Where to look for the next.
    """
    run = highest = np.int64(0)
    start, stop = np.int64(first), np.int64(first)
    for i in range(first, end):
        if run <= 0:
            if highest > 0:
                return start, stop, np.int64(i)
            run, start = np.int64(0), np.int64(i)
        run += op_score(ops[i], query, text, sides, scoring)
        query, text = behind_op(ops[i], query, text)
        if run > highest:
            highest, stop = run, np.int64(i) + 1
        elif highest - run > z_drop:
            return start, stop, np.int64(i) + 1
    return start, stop, np.int64(end)


@core
def add_alignment(ops, first, stop, query, text, strand, ref_id, sides, scoring, found, n_found):
    """Write the alignment of operations first:stop, which begin at `query` and `text`.

    Its gaps are moved left. Returns its score.
    """
    part = ops[first:stop]
    left_align(
        part, stop - first, sides.query_planes, sides.query_word, query, sides.text_planes, text
    )
    score, edits = np.int64(0), np.int64(0)
    query_end, text_end = query, text
    for i in range(stop - first):
        score += op_score(part[i], query_end, text_end, sides, scoring)
        edits += 0 if part[i] & 15 == EQUAL else np.int64(part[i] >> 4)
        query_end, text_end = behind_op(part[i], query_end, text_end)
    found.strand[n_found] = strand
    found.ref_id[n_found] = ref_id
    found.text_start[n_found] = text
    found.text_end[n_found] = text_end
    found.query_start[n_found] = query
    found.query_end[n_found] = query_end
    found.score[n_found] = score
    found.edit_distance[n_found] = edits
    found.cigar_start[n_found] = first
    found.cigar_end[n_found] = stop
    return score


@core
def add_parts(ops, first, end, query, text, strand, ref_id, sides, scoring, params, found,
              n_found, most):  # fmt: skip
    """Cut the path of operations first:end into alignments; return the number of all so far.

    Those below the lowest score are left out, and those beyond the first `most`, too.
    """
    following = np.int64(first)
    while following < end and n_found < most:
        first = following
        start, stop, following = next_part(
            ops, first, end, query, text, sides, scoring, params.z_drop
        )
        if stop > start:
            at_query, at_text = behind_ops(ops, first, start, query, text)
            add_alignment(
                ops, start, stop, at_query, at_text, strand, ref_id, sides, scoring, found, n_found
            )
            n_found += found.score[n_found] >= params.min_score
        query, text = behind_ops(ops, first, following, query, text)
    return n_found
