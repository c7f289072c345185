"""CPU driver of extension along chains: chains of anchors → alignments, read by read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.batch import AlignmentBatch, ChainBatch, PackedReads, ReadBatch
from mapper.batch_ops import longest_row
from mapper.cigar import append_op
from mapper.dna import n_words
from mapper.extend.filter import as_given, keep_distinct, overlap
from mapper.extend.inversions import split_at_inversions
from mapper.extend.piece_plan import (
    NO_PIECES,
    DonePieces,
    add_head,
    new_heads,
    take_chain,
)
from mapper.extend.pieces import (
    TEXT_SLACK,
    Path,
    PieceScratch,
    Sides,
    add_parts,
    ambiguous_columns,
    anchor_behind,
    append_run,
    begin_path,
    extend_end,
    fill_gap,
    part_gaps,
)
from mapper.extend.read import FOUND_TYPES, OPS_FULL, Found
from mapper.extend.two_piece import MOST_CELLS, new_piece_space
from mapper.index.reference import ContigBounds, contig_bounds
from mapper.jit.accelerate import core, driver, grown, step
from mapper.params import LongParams

N_CELLS = MOST_CELLS
"""Bytes of a thread for the way back through a piece. Part of the method: a piece that needs more
has no alignment, and the read is split there."""

LEAST_FOUND, BASES_PER_FOUND = 256, 1000
"""A read has at most so many alignments, and one more for so many of its bases."""

N_COLUMNS = 13
"""Columns of an alignment: eight of an AlignmentBatch, the end of its operations, its support."""


class ChainSupport(NamedTuple):
    """What is known of each alignment from chaining."""

    chain_score: np.ndarray  # int32 (n_alignments,): of its chain
    second_score: np.ndarray  # int32: of the best chain that competes with it, or 0
    n_anchors: np.ndarray  # int32: anchors of its chain that lie in it
    n_ambiguous: np.ndarray  # int32: columns without a gap of which one base or both are ambiguous


@core
def most_found(read_len):
    """Return how many alignments a read has at most, whatever else is in its batch."""
    return LEAST_FOUND + read_len // BASES_PER_FOUND


# Functions of their own, not inlined: each is compiled once.


@step
def _fill_gap(sides, path, query_end, text_end, scoring, space, scratch, ops):
    return fill_gap(sides, path, query_end, text_end, scoring, space, scratch, ops)


@step
def _extend_end(sides, path, backward, scoring, params, space, scratch, ops):
    return extend_end(sides, path, backward, scoring, params, space, scratch, ops)


@step
def _add_parts(ops, first, end, query, text, strand, ref_id, sides, scoring, params, found,
               n_found):  # fmt: skip
    return add_parts(
        ops, first, end, query, text, strand, ref_id, sides, scoring, params, found, n_found,
        most_found(sides.query_len),
    )  # fmt: skip


@step
def _part_gaps(ops, begin, path, sides):
    return part_gaps(ops, begin, path, sides)


@core
def _append_done(path, done, start, count, on_query, on_text, ops):
    """Append the operations of a piece that was aligned before."""
    if path.n_ops < 0 or path.n_ops + count > len(ops):
        return Path(np.int64(-1), on_query, on_text)
    n_ops = path.n_ops
    for i in range(start, start + count):
        n_ops = np.int64(append_op(ops, n_ops, done.ops[i] & 15, np.int64(done.ops[i] >> 4)))
    return Path(n_ops, on_query, on_text)


@step
def _split_at_inversions(ops, n_ops, row, n_found, sides, scoring, params, space, scratch, found):
    return split_at_inversions(
        ops, n_ops, row, n_found, sides, scoring, params, space, scratch, found,
        most_found(sides.query_len),
    )  # fmt: skip


@step
def _fill_or_take(chains, i, sides, path, query_end, text_end, scoring, done, space, scratch,
                  ops):  # fmt: skip
    """Append the piece from `path` to anchor i, whose start is given, as :func:`fill_gap`."""
    piece = done.fill_of[i] if i < len(done.fill_of) else np.int32(-1)
    if piece >= 0 and done.fill_count[piece] >= 0:
        return True, _append_done(
            path, done, done.fill_start[piece], done.fill_count[piece], query_end, text_end, ops
        )
    return _fill_gap(sides, path, query_end, text_end, scoring, space, scratch, ops)


@step
def _extend_or_take(end, sides, path, backward, scoring, params, done, space, scratch, ops):
    """Append an extension as :func:`extend_end`; `end` is its row of ``done.end_of``, or -1."""
    piece = done.end_of[end] if 0 <= end < len(done.end_of) else np.int32(-1)
    if piece >= 0 and done.end_count[piece] >= 0:
        on_query, on_text = np.int64(done.end_query[piece]), np.int64(done.end_text[piece])
        if backward:
            on_query, on_text = -on_query, -on_text
        return _append_done(
            path, done, done.end_start[piece], done.end_count[piece], path.query + on_query,
            path.text + on_text, ops,
        )  # fmt: skip
    return _extend_end(sides, path, backward, scoring, params, space, scratch, ops)


@step
def _align_chain(chains, chain, sides, scoring, params, done, space, scratch, ops, n_ops, found,
                n_found):  # fmt: skip
    """Align a read along one of its chains.

    Parameters
    ----------
    done
        Pieces that were aligned before.
    ops, n_ops
        uint32; operations are appended.
    found, n_found
        :class:`mapper.extend.read.Found`; alignments are appended.

    Returns
    -------
    n_found, n_ops
        n_found is OPS_FULL if `ops` is too small.
    """
    strand, ref_id = chains.strand[chain], chains.ref_id[chain]
    first, end = chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1]
    begin, query, text = np.int64(n_ops), np.int64(0), np.int64(0)
    path = Path(begin, query, text)
    is_open = False
    for i in range(first, end + 1):
        anchor_query = anchor_text = length = np.int64(0)
        if i < end:
            anchor_query = np.int64(chains.query_start[i])
            anchor_text = np.int64(chains.text_pos[i])
            length = np.int64(chains.length[i])
        if is_open:
            filled = False
            if i < end:
                anchor_query, anchor_text, length = anchor_behind(chains, i, path.query, path.text)
                if length <= 0:
                    continue
                filled, path = _fill_or_take(
                    chains, i, sides, path, anchor_query, anchor_text, scoring, done, space,
                    scratch, ops,
                )  # fmt: skip
            if not filled:
                path = _extend_or_take(
                    2 * chain + 1 if i == end else np.int64(-1), sides, path, not is_open, scoring,
                    params, done, space, scratch, ops,
                )  # fmt: skip
                if path.n_ops >= 0:
                    path = _part_gaps(ops, begin, path, sides)
                if path.n_ops >= 0:
                    n_found = _add_parts(
                        ops, begin, path.n_ops, query, text, strand, ref_id, sides, scoring, params,
                        found, n_found,
                    )  # fmt: skip
                is_open = False
        if not is_open and i < end:
            begin = begin_path(ops, path.n_ops)
            path = Path(begin, anchor_query, anchor_text)
            path = _extend_or_take(
                2 * chain if i == first else np.int64(-1), sides, path, not is_open, scoring,
                params, done, space, scratch, ops,
            )  # fmt: skip
            query, text = path.query, path.text
            is_open = True
        path = Path(
            append_run(ops, path.n_ops, length), anchor_query + length, anchor_text + length
        )
    if path.n_ops < 0:
        return np.int64(OPS_FULL), np.int64(n_ops)
    return np.int64(n_found), path.n_ops


@step
def _share_of_chain(chains, chain, found, i):
    """Return the part of a chain's score that an alignment has, by its share of the anchors."""
    part = whole = np.int64(0)
    for anchor in range(chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1]):
        start, length = np.int64(chains.query_start[anchor]), np.int64(chains.length[anchor])
        whole += length
        part += overlap(start, start + length, found.query_start[i], found.query_end[i])
    return chains.score[chain] * part // whole


@step
def _anchors_inside(chains, chain, found, i):
    """Return how many anchors of a chain an alignment covers, or more than half of them."""
    n_inside = 0
    for anchor in range(chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1]):
        start, length = np.int64(chains.query_start[anchor]), np.int64(chains.length[anchor])
        covered = overlap(start, start + length, found.query_start[i], found.query_end[i])
        n_inside += 2 * covered > length
    return n_inside


@step
def _inversion_of(chains, chain, found, heads, n_found, params):
    """Return the inversion inside an alignment that a chain is the chain of, or -1.

    Most of the chain lies in it, on the read and in the text: its outer anchors may match some
    bases farther than the alignment goes.
    """
    first, last = chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1] - 1
    query, text = np.int64(chains.query_start[first]), chains.text_pos[first]
    query_end = np.int64(chains.query_start[last]) + chains.length[last]
    text_end = chains.text_pos[last] + chains.length[last]
    for i in range(n_found):
        if (
            heads.is_inverted[i]
            and found.strand[i] == chains.strand[chain]
            and found.ref_id[i] == chains.ref_id[chain]
            and overlap(query, query_end, found.query_start[i], found.query_end[i])
            >= params.overlap * (query_end - query)
            and overlap(text, text_end, found.text_start[i], found.text_end[i])
            >= params.overlap * (text_end - text)
        ):
            return np.int64(i)
    return np.int64(-1)


@step
def _align_read(chains, first_chain, end_chain, whole, read_len, contigs, scoring, params, done,
                space, scratch, ops, found, heads, support):  # fmt: skip
    """Align a read along its chains; return the number of alignments, or OPS_FULL.

    Chains are taken from the best on. One that competes with an alignment is aligned only if it
    scores nearly as much. An inversion found inside an alignment has its bases as its chain's
    score; a chain that lies in it is its own, and neither aligned again nor a rival.

    Parameters
    ----------
    whole
        :class:`Sides` of the read as given.
    heads
        Its rows are the alignments.
    """
    n_found = n_ops = np.int64(0)
    for chain in range(first_chain, end_chain):
        score = np.int64(chains.score[chain])
        inversion = _inversion_of(chains, chain, found, heads, n_found, params)
        if inversion >= 0:
            support.n_anchors[inversion] += _anchors_inside(chains, chain, found, inversion)
            continue
        rival, is_taken = take_chain(chains, chain, read_len, heads, n_found, params)
        if rival >= 0:
            support.second_score[rival] = max(np.int64(support.second_score[rival]), score)
        if not is_taken:
            continue
        start, end = contig_bounds(contigs.starts, contigs.lengths, chains.ref_id[chain])
        word = whole.query_word + (n_words(read_len) if chains.strand[chain] else 0)
        sides = Sides(whole.query_planes, word, read_len, whole.text_planes, start, end)
        before = n_found
        n_found, n_ops = _align_chain(
            chains, chain, sides, scoring, params, done, space, scratch, ops, n_ops, found, n_found
        )
        if n_found < 0:
            return n_found
        for i in range(before, n_found):
            n_found, n_ops = _split_at_inversions(
                ops, n_ops, i, n_found, sides, scoring, params, space, scratch, found
            )
            if n_found < 0:
                return n_found
        for i in range(before, n_found):
            start, end = as_given(
                found.query_start[i], found.query_end[i], found.strand[i], read_len
            )
            is_inverted = found.strand[i] != chains.strand[chain]
            score, n_anchors = end - start, np.int64(0)
            if not is_inverted:
                score = _share_of_chain(chains, chain, found, i)
                n_anchors = np.int64(_anchors_inside(chains, chain, found, i))
            word = whole.query_word + (n_words(read_len) if found.strand[i] else 0)
            own = Sides(
                whole.query_planes, word, read_len, whole.text_planes, sides.text_start,
                sides.text_end,
            )  # fmt: skip
            support.n_ambiguous[i] = ambiguous_columns(
                ops, found.cigar_start[i], found.cigar_end[i], found.query_start[i],
                found.text_start[i], own,
            )  # fmt: skip
            add_head(heads, i, start, end, score, rival, is_inverted)
            support.chain_score[i] = score
            support.second_score[i] = 0
            support.n_anchors[i] = n_anchors
        if n_found == most_found(read_len):
            break
    for i in range(n_found):
        if heads.head[i] != i:  # whatever becomes of them, the better chain is the other one
            support.second_score[i] = support.chain_score[heads.head[i]]
    return n_found


@driver
def _align_reads(base_offsets, planes, word_offsets, text_planes, chains, contigs, scoring, params,
                 done, space, scratch, found, heads, support, kept, n_ops):  # fmt: skip
    """Align every read; return offsets, columns, operations and support of all alignments."""
    n_reads = len(base_offsets) - 1
    offsets = np.zeros(n_reads + 1, np.int64)
    ops = np.empty(n_ops, np.uint32)
    capacity = np.int64(2 * n_reads + len(heads.head))
    rows = np.empty((capacity, N_COLUMNS), np.int64)
    all_ops = np.empty(n_ops, np.uint32)
    n_all_ops = total = np.int64(0)
    for read in range(n_reads):
        read_len = base_offsets[read + 1] - base_offsets[read]
        whole = Sides(planes, word_offsets[read], read_len, text_planes, 0, 0)
        n_found = np.int64(OPS_FULL)
        while n_found < 0:
            n_found = _align_read(
                chains, chains.chain_offsets[read], chains.chain_offsets[read + 1], whole, read_len,
                contigs, scoring, params, done, space, scratch, ops, found, heads, support,
            )  # fmt: skip
            if n_found < 0:
                ops = np.empty(2 * len(ops), np.uint32)
        for i in range(n_found):
            kept[i] = i
        n_kept = keep_distinct(found, kept, n_found)
        if total + n_kept > len(rows):
            more = np.empty((2 * (total + n_kept), N_COLUMNS), np.int64)
            for i in range(total):  # a slice would take seconds to compile
                for column in range(N_COLUMNS):
                    more[i, column] = rows[i, column]
            rows = more
        for rank in range(n_kept):
            i = kept[rank]
            start, end = found.cigar_start[i], found.cigar_end[i]
            if n_all_ops + end - start > len(all_ops):
                all_ops = grown(all_ops, 2 * (n_all_ops + end - start))
            for op in range(start, end):
                all_ops[n_all_ops] = ops[op]
                n_all_ops += 1
            rows[total, 0] = found.strand[i]
            rows[total, 1] = found.ref_id[i]
            rows[total, 2] = found.text_start[i]
            rows[total, 3] = found.text_end[i]
            rows[total, 4] = found.query_start[i]
            rows[total, 5] = found.query_end[i]
            rows[total, 6] = found.score[i]
            rows[total, 7] = found.edit_distance[i]
            rows[total, 8] = n_all_ops
            rows[total, 9] = support.chain_score[i]
            rows[total, 10] = support.second_score[i]
            rows[total, 11] = support.n_anchors[i]
            rows[total, 12] = support.n_ambiguous[i]
            total += 1
        offsets[read + 1] = total
    return offsets, rows, all_ops, n_all_ops


def align_chains(
    text_planes: np.ndarray, reads: ReadBatch, packed: PackedReads, chains: ChainBatch,
    contigs: ContigBounds, params: LongParams, done: DonePieces = NO_PIECES,
) -> tuple[AlignmentBatch, ChainSupport]:  # fmt: skip
    """Align each read along its chains.

    Parameters
    ----------
    text_planes
        Bit planes of the indexed text, uint64, shape (n_words + 2, 3).
    done
        Pieces that were aligned before; the others are aligned here.

    Returns
    -------
    Distinct alignments of each read that reach the lowest score, best first, and what chaining
    says of each.
    """
    longest = max(int(longest_row(reads.base_offsets)), 1)
    most = int(most_found(longest))
    most_symbols = max(params.chain.long_gap, params.pieces.max_extension) + TEXT_SLACK
    space = new_piece_space(most_symbols, most_symbols, params.scoring, N_CELLS)
    scratch = PieceScratch(
        np.empty(most_symbols, np.uint8), np.empty(most_symbols, np.uint8),
        np.empty(2 * most_symbols + 4, np.uint32),
    )  # fmt: skip
    found = Found(*(np.empty(most, np.dtype(t)) for t in FOUND_TYPES))
    kept = np.empty(most, np.int32)
    support = ChainSupport(*(np.empty(most, np.int32) for _ in ChainSupport._fields))
    offsets, rows, ops, n_ops = _align_reads(
        reads.base_offsets, packed.planes, packed.word_offsets, text_planes, chains, contigs,
        params.scoring, params.pieces, done, space, scratch, found, new_heads(most), support,
        kept, longest // 4 + 1024,
    )  # fmt: skip
    rows = rows[: offsets[-1]]
    columns = (rows[:, i].astype(t) for i, t in enumerate(FOUND_TYPES[:8]))
    cigar_offsets = np.concatenate(([0], rows[:, 8]))
    alignments = AlignmentBatch._make((offsets, *columns, cigar_offsets, ops[:n_ops].copy()))
    return alignments, ChainSupport(*(rows[:, i].astype(np.int32) for i in range(9, N_COLUMNS)))
