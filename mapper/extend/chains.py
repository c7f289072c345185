"""CPU driver of extension along chains: chains of anchors → alignments, read by read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.batch import AlignmentBatch, ChainBatch, PackedReads, ReadBatch
from mapper.batch_ops import longest_row
from mapper.dna import n_words
from mapper.extend.filter import as_given, keep_distinct, overlap
from mapper.extend.inversions import split_at_inversions
from mapper.extend.pieces import (
    TEXT_SLACK,
    Path,
    PieceScratch,
    Sides,
    add_parts,
    append_run,
    begin_path,
    extend_end,
    fill_gap,
)
from mapper.extend.read import FOUND_TYPES, OPS_FULL, Found
from mapper.extend.two_piece import new_piece_space
from mapper.index.reference import ContigBounds, contig_bounds
from mapper.jit.accelerate import driver, grown, step
from mapper.jit.lanes import ONE_LANE
from mapper.params import LongParams

N_CELLS = 1 << 24
"""Bytes of a thread for the way back through a piece. Part of the method: a piece that needs more
has no alignment, and the read is split there."""

LEAST_FOUND, BASES_PER_FOUND = 256, 1000
"""A read has at most so many alignments, and one more for so many bases of the batch's longest."""

N_COLUMNS = 12
"""Columns of an alignment: eight of an AlignmentBatch, the end of its operations, its support."""


class ChainSupport(NamedTuple):
    """What is known of each alignment from chaining."""

    chain_score: np.ndarray  # int32 (n_alignments,): of its chain
    second_score: np.ndarray  # int32: of the best chain that competes with it, or 0
    n_anchors: np.ndarray  # int32: anchors of its chain that lie in it


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
        ops, first, end, query, text, strand, ref_id, sides, scoring, params, found, n_found
    )


@step
def _split_at_inversions(ops, n_ops, row, n_found, sides, scoring, params, space, scratch, found):
    return split_at_inversions(
        ops, n_ops, row, n_found, sides, scoring, params, space, scratch, found
    )


@step
def _align_chain(chains, chain, sides, scoring, params, space, scratch, ops, n_ops, found,
                n_found):  # fmt: skip
    """Align a read along one of its chains.

    Parameters
    ----------
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
                # Neighbours overlap at short tandem repeats: the later one gives way.
                common = max(np.int64(0), path.query - anchor_query, path.text - anchor_text)
                if common >= length:
                    continue
                anchor_query += common
                anchor_text += common
                length -= common
                filled, path = _fill_gap(
                    sides, path, anchor_query, anchor_text, scoring, space, scratch, ops
                )
            if not filled:
                path = _extend_end(sides, path, not is_open, scoring, params, space, scratch, ops)
                if path.n_ops >= 0:
                    n_found = _add_parts(
                        ops, begin, path.n_ops, query, text, strand, ref_id, sides, scoring, params,
                        found, n_found,
                    )  # fmt: skip
                is_open = False
        if not is_open and i < end:
            begin = begin_path(ops, path.n_ops)
            path = Path(begin, anchor_query, anchor_text)
            path = _extend_end(sides, path, not is_open, scoring, params, space, scratch, ops)
            query, text = path.query, path.text
            is_open = True
        path = Path(
            append_run(ops, path.n_ops, length), anchor_query + length, anchor_text + length
        )
    if path.n_ops < 0:
        return np.int64(OPS_FULL), np.int64(n_ops)
    return np.int64(n_found), path.n_ops


@step
def _competitor(chains, chain, read_len, found, n_heads, share):
    """Return the first of the alignments 0 to n_heads - 1 that a chain competes with, or -1."""
    first, end = chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1]
    start, stop = as_given(
        np.int64(chains.query_start[first]),
        np.int64(chains.query_start[end - 1]) + chains.length[end - 1], chains.strand[chain],
        read_len,
    )  # fmt: skip
    for i in range(n_heads):
        head_start, head_stop = as_given(
            found.query_start[i], found.query_end[i], found.strand[i], read_len
        )
        common = overlap(start, stop, head_start, head_stop)
        if common >= share * min(stop - start, head_stop - head_start):
            return np.int64(i)
    return np.int64(-1)


@step
def _share_of_chain(chains, chain, found, i):
    """Return the part of a chain's score that an alignment has, by its share of the bases."""
    first, end = chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1]
    covered = np.int64(chains.query_start[end - 1]) + chains.length[end - 1]
    covered -= chains.query_start[first]
    part = min(np.int64(found.query_end[i]) - found.query_start[i], covered)
    return chains.score[chain] * part // covered


@step
def _anchors_inside(chains, chain, found, i):
    """Return how many anchors of a chain an alignment covers."""
    n_inside = 0
    if found.strand[i] != chains.strand[chain]:  # an inversion
        return n_inside
    for anchor in range(chains.anchor_offsets[chain], chains.anchor_offsets[chain + 1]):
        start = np.int64(chains.query_start[anchor])
        end = start + chains.length[anchor]
        n_inside += start >= found.query_start[i] and end <= found.query_end[i]
    return n_inside


@step
def _align_read(chains, first_chain, end_chain, whole, read_len, contigs, scoring, params, space,
                scratch, ops, found, head, n_aligned, support):  # fmt: skip
    """Align a read along its chains; return the number of alignments, or OPS_FULL.

    Chains are taken from the best on. One that competes with an alignment is aligned only if it
    scores nearly as much.

    Parameters
    ----------
    whole
        :class:`Sides` of the read as given.
    head
        int64, gets the first alignment with which each one competes, or itself.
    n_aligned
        int64 workspace, as long.
    """
    n_found = n_ops = np.int64(0)
    for chain in range(first_chain, end_chain):
        score = np.int64(chains.score[chain])
        rival = _competitor(chains, chain, read_len, found, n_found, params.overlap)
        if rival >= 0:
            rival = head[rival]
            support.second_score[rival] = max(np.int64(support.second_score[rival]), score)
            if (
                score < params.competing_share * support.chain_score[rival]
                or n_aligned[rival] == params.best_n
            ):
                continue
            n_aligned[rival] += 1
        start, end = contig_bounds(contigs.starts, contigs.lengths, chains.ref_id[chain])
        word = whole.query_word + (n_words(read_len) if chains.strand[chain] else 0)
        sides = Sides(whole.query_planes, word, read_len, whole.text_planes, start, end)
        before = n_found
        n_found, n_ops = _align_chain(
            chains, chain, sides, scoring, params, space, scratch, ops, n_ops, found, n_found
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
            head[i] = i if rival < 0 else rival
            n_aligned[i] = 0
            support.chain_score[i] = _share_of_chain(chains, chain, found, i)
            support.second_score[i] = 0
            support.n_anchors[i] = _anchors_inside(chains, chain, found, i)
        if n_found == len(head):
            break
    for i in range(n_found):
        if head[i] != i:  # whatever becomes of them, the better chain is the other one
            support.second_score[i] = support.chain_score[head[i]]
    return n_found


@driver
def _align_reads(base_offsets, planes, word_offsets, text_planes, chains, contigs, scoring, params,
                 space, scratch, found, head, n_aligned, support, kept, n_ops):  # fmt: skip
    """Align every read; return offsets, columns, operations and support of all alignments."""
    n_reads = len(base_offsets) - 1
    offsets = np.zeros(n_reads + 1, np.int64)
    ops = np.empty(n_ops, np.uint32)
    capacity = np.int64(2 * n_reads + len(head))
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
                contigs, scoring, params, space, scratch, ops, found, head, n_aligned, support,
            )  # fmt: skip
            if n_found < 0:
                ops = np.empty(2 * len(ops), np.uint32)
        for i in range(n_found):
            kept[i] = i
        n_kept = keep_distinct(found, kept, n_found, ONE_LANE)
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
            total += 1
        offsets[read + 1] = total
    return offsets, rows, all_ops, n_all_ops


def align_chains(
    text_planes: np.ndarray, reads: ReadBatch, packed: PackedReads, chains: ChainBatch,
    contigs: ContigBounds, params: LongParams,
) -> tuple[AlignmentBatch, ChainSupport]:  # fmt: skip
    """Align each read along its chains.

    Parameters
    ----------
    text_planes
        Bit planes of the indexed text, uint64, shape (n_words + 2, 3).

    Returns
    -------
    Distinct alignments of each read that reach the lowest score, best first, and what chaining
    says of each.
    """
    longest = max(int(longest_row(reads.base_offsets)), 1)
    most_found = LEAST_FOUND + longest // BASES_PER_FOUND
    most_symbols = max(params.chain.long_gap, params.pieces.max_extension) + TEXT_SLACK
    space = new_piece_space(most_symbols, most_symbols, params.scoring, N_CELLS)
    scratch = PieceScratch(
        np.empty(most_symbols, np.uint8), np.empty(most_symbols, np.uint8),
        np.empty(2 * most_symbols + 4, np.uint32),
    )  # fmt: skip
    found = Found(*(np.empty(most_found, np.dtype(t)) for t in FOUND_TYPES))
    head, kept = np.empty(most_found, np.int64), np.empty(most_found, np.int32)
    support = ChainSupport(*(np.empty(most_found, np.int32) for _ in ChainSupport._fields))
    offsets, rows, ops, n_ops = _align_reads(
        reads.base_offsets, packed.planes, packed.word_offsets, text_planes, chains, contigs,
        params.scoring, params.pieces, space, scratch, found, head, np.empty_like(head), support,
        kept, longest // 4 + 1024,
    )  # fmt: skip
    rows = rows[: offsets[-1]]
    columns = (rows[:, i].astype(t) for i, t in enumerate(FOUND_TYPES[:8]))
    cigar_offsets = np.concatenate(([0], rows[:, 8]))
    alignments = AlignmentBatch._make((offsets, *columns, cigar_offsets, ops[:n_ops].copy()))
    return alignments, ChainSupport(*(rows[:, i].astype(np.int32) for i in range(9, N_COLUMNS)))
