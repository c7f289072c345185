"""Which chains of a read are aligned, and a plan of their pieces, to be aligned all at once.

Chains are taken from the best on; whether one is, depends on the alignments of those before it
(:func:`take_chain`). A plan takes the chains themselves for their alignments, and every piece
between anchors for one that has an alignment. It may hold pieces that are not needed, and lack some
that are: these are aligned when the chains are followed. No result depends on the plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.batch import ChainBatch
from mapper.extend.by_length import by_length
from mapper.extend.filter import as_given, overlap
from mapper.extend.pieces import anchor_behind, end_piece
from mapper.index.reference import ContigBounds, contig_bounds
from mapper.jit.accelerate import core, driver
from mapper.params import PieceParams

LEAST = 8
"""Bases of both sides of a planned piece, at least: shorter ones cost little where they are."""

MOST_CHAINS = 256
"""Chains of a read whose pieces are planned."""

# --- chains ---


class Heads(NamedTuple):
    """The alignments of a read so far, and which compete with which."""

    head: np.ndarray  # int64: the first one with which each competes, or itself
    n_aligned: np.ndarray  # int64: chains that compete with a head and were taken
    start: np.ndarray  # int64, on the read as given
    end: np.ndarray  # int64
    score: np.ndarray  # int64: of its chain
    is_inverted: np.ndarray  # int64: 1 for an inversion inside an alignment, found without a chain


def new_heads(n: int) -> Heads:
    """Allocate `n` rows."""
    return Heads(*(np.empty(n, np.int64) for _ in Heads._fields))


@core
def add_head(heads, i, start, end, score, rival, is_inverted):
    """Write row i; `rival` is the head that its chain competes with, or -1."""
    heads.head[i] = i if rival < 0 else rival
    heads.n_aligned[i] = 0
    heads.start[i], heads.end[i] = start, end
    heads.score[i] = score
    heads.is_inverted[i] = is_inverted


@core
def extent_of(chains, chain, read_len):
    """Return the first and last base of a chain, half-open, on the read as given."""
    first, end = chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1]
    return as_given(
        np.int64(chains.query_start[first]),
        np.int64(chains.query_start[end - 1]) + chains.length[end - 1], chains.strand[chain],
        read_len,
    )  # fmt: skip


@core
def _lies_inside(chains, chain, read_len, start, end, share):
    """Return True if at least a share of a chain's anchored bases lie in start:end.

    The range is of the read as given. What lies between two anchors may be another chain's, as an
    inversion is: it is not counted.
    """
    inside = total = np.int64(0)
    for i in range(chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1]):
        first, stop = as_given(
            np.int64(chains.query_start[i]), np.int64(chains.query_start[i]) + chains.length[i],
            chains.strand[chain], read_len,
        )  # fmt: skip
        inside += overlap(first, stop, start, end)
        total += stop - first
    return inside >= share * total


@core
def take_chain(chains, chain, read_len, heads, n_heads, params):
    """Return the head that a chain competes with, or -1, and True if it is to be aligned."""
    start, end = extent_of(chains, chain, read_len)
    rival = np.int64(-1)
    for i in range(n_heads):
        common = overlap(start, end, heads.start[i], heads.end[i])
        shorter = min(end - start, heads.end[i] - heads.start[i])
        if common >= params.overlap * shorter and _lies_inside(
            chains, chain, read_len, heads.start[i], heads.end[i], params.overlap
        ):
            rival = heads.head[i]
            break
    if rival < 0:
        return rival, True
    most = by_length(params.best_n_short, params.best_n, read_len)
    if (
        chains.score[chain] < params.competing_share * heads.score[rival]
        or heads.n_aligned[rival] == most
    ):
        return rival, False
    heads.n_aligned[rival] += 1
    return rival, True


# --- pieces ---


class Pieces(NamedTuple):
    """Pieces of long reads and of the text, of one kind: between anchors, or beyond the last."""

    read: np.ndarray  # int32
    strand: np.ndarray  # uint8
    backward: np.ndarray  # uint8: 1 for an extension to the left
    query_start: np.ndarray  # int32, on the oriented read
    query_len: np.ndarray  # int32
    text_start: np.ndarray  # int64
    text_len: np.ndarray  # int32
    bonus: np.ndarray  # int32: of an extension that reaches the end of the piece on the read


PIECE_TYPES = ("i4", "u1", "u1", "i4", "i4", "i8", "i4", "i4")


class PiecePlan(NamedTuple):
    """The pieces of a batch's chains."""

    fill_of: np.ndarray  # int32 (n_anchors,): the row of `fills` before an anchor, or -1
    end_of: np.ndarray  # int32 (2 * n_chains,): that of `ends` before and behind a chain, or -1
    fills: Pieces
    ends: Pieces


class DonePieces(NamedTuple):
    """Pieces that have been aligned: the operations of each are ``ops[start : start + count]``."""

    fill_of: np.ndarray  # int32 (n_anchors,), of PiecePlan
    end_of: np.ndarray  # int32 (2 * n_chains,)
    fill_start: np.ndarray  # int64
    fill_count: np.ndarray  # int32; -1 for a piece without a result
    end_start: np.ndarray  # int64
    end_count: np.ndarray  # int32
    end_query: np.ndarray  # int32: aligned bases of an extension
    end_text: np.ndarray  # int32
    ops: np.ndarray  # uint32


_DONE_TYPES = ("i4", "i4", "i8", "i4", "i8", "i4", "i4", "i4", "u4")

NO_PIECES = DonePieces(*(np.empty(0, np.dtype(t)) for t in _DONE_TYPES))


@core
def _add_piece(pieces, n, read, strand, backward, query_start, n_query, text_start, n_text, bonus):
    """Write row n, if the piece is long enough; return the number of rows, and its row or -1."""
    if min(n_query, n_text) < 1 or n_query + n_text < LEAST:
        return n, np.int32(-1)
    pieces.read[n] = read
    pieces.strand[n] = strand
    pieces.backward[n] = backward
    pieces.query_start[n] = query_start
    pieces.query_len[n] = n_query
    pieces.text_start[n] = text_start
    pieces.text_len[n] = n_text
    pieces.bonus[n] = bonus
    return n + 1, np.int32(n)


@driver
def _plan_chain(chains, chain, read, read_len, contigs, params, plan, n_fills, n_ends):
    """Plan the pieces of a chain; return the numbers of all so far."""
    first, end = chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1]
    strand = chains.strand[chain]
    start, stop = contig_bounds(contigs.starts, contigs.lengths, chains.ref_id[chain])
    query, text = np.int64(chains.query_start[first]), np.int64(chains.text_pos[first])
    n_ends, plan.end_of[2 * chain] = _add_piece(
        plan.ends, n_ends, read, strand, 1, *end_piece(
            query, text, True, read_len, start, stop, params
        ),
    )  # fmt: skip
    query += chains.length[first]
    text += chains.length[first]
    for i in range(first + 1, end):
        at_query, at_text, length = anchor_behind(chains, i, query, text)
        if length <= 0:
            continue
        n_fills, plan.fill_of[i] = _add_piece(
            plan.fills, n_fills, read, strand, 0, query, at_query - query, text, at_text - text, 0
        )
        query, text = at_query + length, at_text + length
    n_ends, plan.end_of[2 * chain + 1] = _add_piece(
        plan.ends, n_ends, read, strand, 0, *end_piece(
            query, text, False, read_len, start, stop, params
        ),
    )  # fmt: skip
    return n_fills, n_ends


@driver
def _plan_reads(base_offsets, chains, contigs, params, heads, plan):
    n_fills = n_ends = np.int64(0)
    for read in range(len(base_offsets) - 1):
        read_len = base_offsets[read + 1] - base_offsets[read]
        n_heads = np.int64(0)
        for chain in range(chains.chain_offsets[read], chains.chain_offsets[read + 1]):
            rival, is_taken = take_chain(chains, chain, read_len, heads, n_heads, params)
            if not is_taken:
                continue
            start, end = extent_of(chains, chain, read_len)
            add_head(heads, n_heads, start, end, np.int64(chains.score[chain]), rival, 0)
            n_heads += 1
            n_fills, n_ends = _plan_chain(
                chains, chain, read, read_len, contigs, params, plan, n_fills, n_ends
            )
            if n_heads == len(heads.head):
                break
    return n_fills, n_ends


def plan_pieces(
    base_offsets: np.ndarray, chains: ChainBatch, contigs: ContigBounds, params: PieceParams
) -> PiecePlan:
    """Plan the pieces of the chains of long reads that are likely to be aligned."""
    n_anchors, n_chains = len(chains.length), len(chains.strand)

    def rows(n: int) -> Pieces:
        return Pieces(*(np.empty(n, np.dtype(t)) for t in PIECE_TYPES))

    plan = PiecePlan(
        np.full(n_anchors, -1, np.int32), np.full(2 * n_chains, -1, np.int32), rows(n_anchors),
        rows(2 * n_chains),
    )  # fmt: skip
    n_fills, n_ends = _plan_reads(
        base_offsets, chains, contigs, params, new_heads(MOST_CHAINS), plan
    )
    return plan._replace(
        fills=Pieces(*(column[:n_fills] for column in plan.fills)),
        ends=Pieces(*(column[:n_ends] for column in plan.ends)),
    )
