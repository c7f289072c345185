"""CPU driver of extension: candidate loci → alignments, one read after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.accelerate import core, driver, grown
from mapper.batch import AlignmentBatch, LocusBatch, PackedReads, ReadBatch
from mapper.cigar import EQUAL
from mapper.dna import n_words
from mapper.extend.blocks import BLOCK
from mapper.extend.locus import Ungapped, align_gapped, align_ungapped
from mapper.extend.penalties import wavefront_penalties
from mapper.extend.ungapped import lowest_score
from mapper.extend.wavefront_affine import new_wavefronts
from mapper.params import ExtendParams

REDUNDANT_OVERLAP = 0.9
"""Two alignments that share more than this part of the shorter one's read and reference
bases are one alignment found twice; the lower-scoring is dropped."""


class _Found(NamedTuple):
    """Columns of alignments: those found for one read, or those of a batch so far."""

    strand: np.ndarray  # uint8
    ref_id: np.ndarray  # int32
    text_start: np.ndarray  # int64
    text_end: np.ndarray  # int64
    query_start: np.ndarray  # int32
    query_end: np.ndarray  # int32
    score: np.ndarray  # int32
    edit_distance: np.ndarray  # int32
    cigar_start: np.ndarray  # int64
    cigar_end: np.ndarray  # int64


def _new_found(capacity: int) -> _Found:
    types = ["u1", "i4", "i8", "i8", "i4", "i4", "i4", "i4", "i8", "i8"]
    return _Found(*(np.empty(capacity, np.dtype(t)) for t in types))


class _Scratch(NamedTuple):
    """Work space of one thread; rows are the loci of one read."""

    ungapped: np.ndarray  # int64 (n, 8): the fields of Ungapped
    order: np.ndarray  # int32: loci by ungapped objective
    found: _Found
    kept: np.ndarray  # int32: rows of found, best first
    positions: np.ndarray  # int32
    lost_before: np.ndarray  # int32
    spare_ops: np.ndarray  # uint32
    ops: np.ndarray  # uint32


def _new_scratch(max_loci: int, max_len: int, max_gap: int) -> _Scratch:
    longest = 2 * max_len + max_gap + 2
    return _Scratch(
        ungapped=np.empty((max_loci, 8), np.int64),
        order=np.empty(max_loci, np.int32),
        found=_new_found(max_loci),
        kept=np.empty(max_loci, np.int32),
        positions=np.empty(max_len, np.int32),
        lost_before=np.empty(max_len // BLOCK + 2, np.int32),
        spare_ops=np.empty(longest, np.uint32),
        ops=np.empty(longest, np.uint32),
    )


@core
def _objective(row, match):
    """Doubled objective of an ungapped alignment stored as a row of numbers."""
    return 2 * match * (row[3] - row[2]) + row[4] + row[5]


@core
def _sort_loci(scratch, n_loci, match):
    """Order the loci of a read by ungapped objective, equals by locus (insertion sort)."""
    for i in range(n_loci):
        objective = _objective(scratch.ungapped[i], match)
        j = i
        while j > 0:
            before = scratch.order[j - 1]
            if _objective(scratch.ungapped[before], match) >= objective:
                break
            scratch.order[j] = before
            j -= 1
        scratch.order[j] = i


@core
def overlap(a_start, a_end, b_start, b_end):
    """Bases that two half-open ranges share."""
    return max(np.int64(0), min(a_end, b_end) - max(a_start, b_start))


@core
def is_redundant(found, a, b):
    """Whether alignments a and b of a read are the same alignment found twice.

    `found` has the columns of an AlignmentBatch that say where an alignment lies.
    """
    if found.strand[a] != found.strand[b] or found.ref_id[a] != found.ref_id[b]:
        return False
    query = overlap(
        found.query_start[a], found.query_end[a], found.query_start[b], found.query_end[b]
    )
    text = overlap(found.text_start[a], found.text_end[a], found.text_start[b], found.text_end[b])
    return query > REDUNDANT_OVERLAP * min(
        found.query_end[a] - found.query_start[a], found.query_end[b] - found.query_start[b]
    ) and text > REDUNDANT_OVERLAP * min(
        found.text_end[a] - found.text_start[a], found.text_end[b] - found.text_start[b]
    )


@core
def comes_before(found, a, b):
    """Alignment order within a read: score, then strand, then place."""
    if found.score[a] != found.score[b]:
        return found.score[a] > found.score[b]
    if found.strand[a] != found.strand[b]:
        return found.strand[a] < found.strand[b]
    return found.text_start[a] < found.text_start[b]


@core
def _keep_distinct(scratch, n_found):
    """Order the alignments found for a read and drop redundant ones; return how many stay."""
    for i in range(n_found):
        j = i
        while j > 0 and comes_before(scratch.found, i, scratch.kept[j - 1]):
            scratch.kept[j] = scratch.kept[j - 1]
            j -= 1
        scratch.kept[j] = i
    n_kept = 0
    for i in range(n_found):
        candidate = scratch.kept[i]
        redundant = False
        for j in range(n_kept):
            if is_redundant(scratch.found, scratch.kept[j], candidate):
                redundant = True
                break
        if not redundant:
            scratch.kept[n_kept] = candidate
            n_kept += 1
    return n_kept


@core
def _edit_distance(ops, n_ops):
    distance = np.int64(0)
    for i in range(n_ops):
        if ops[i] & 15 != EQUAL:
            distance += ops[i] >> 4
    return distance


@driver
def _align_read(text_planes, planes, read_word, read_len, loci, first, n_loci, params, penalties,
                wavefronts, scratch, read_ops):  # fmt: skip
    """Align one read to its loci; fill ``scratch.found``.

    Returns
    -------
    n_found, read_ops
        Number of alignments, and the (perhaps larger) array with their operations.
    """
    n_strand_words = n_words(read_len)
    for i in range(n_loci):
        locus = first + i
        u = align_ungapped(
            planes, read_word + n_strand_words * loci.strand[locus], read_len, text_planes,
            loci.diagonal[locus], loci.window_start[locus], loci.window_end[locus], params,
            scratch.positions,
        )  # fmt: skip
        for field in range(8):
            scratch.ungapped[i, field] = u[field]
    _sort_loci(scratch, n_loci, params.match)

    bar = max(2 * lowest_score(read_len, params), np.int64(2))
    best = best_start = best_end = np.int64(0)
    found = scratch.found
    n_found = 0
    n_read_ops = 0
    for i in range(n_loci):
        row = scratch.ungapped[scratch.order[i]]
        u = Ungapped(row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7])
        locus = first + scratch.order[i]
        target = np.int64(0)
        if 2 * overlap(u.start, u.end, best_start, best_end) >= u.end - u.start:
            target = best - 2 * params.match * params.score_margin
        doubled, query_start, query_end, text_start, text_end, n_ops = align_gapped(
            planes, read_word + n_strand_words * loci.strand[locus], read_len, text_planes,
            loci.diagonal[locus], loci.window_start[locus], loci.window_end[locus], u, target,
            params, penalties, wavefronts, scratch.positions, scratch.lost_before,
            scratch.spare_ops, scratch.ops,
        )  # fmt: skip
        if doubled < bar:
            continue
        if doubled > best:
            best, best_start, best_end = doubled, query_start, query_end
        if n_read_ops + n_ops > len(read_ops):
            read_ops = grown(read_ops, 2 * (n_read_ops + n_ops))
        read_ops[n_read_ops : n_read_ops + n_ops] = scratch.ops[:n_ops]
        found.strand[n_found] = loci.strand[locus]
        found.ref_id[n_found] = loci.ref_id[locus]
        found.text_start[n_found] = text_start
        found.text_end[n_found] = text_end
        found.query_start[n_found] = query_start
        found.query_end[n_found] = query_end
        found.score[n_found] = doubled >> 1
        found.edit_distance[n_found] = _edit_distance(scratch.ops, n_ops)
        found.cigar_start[n_found] = n_read_ops
        found.cigar_end[n_found] = n_read_ops + n_ops
        n_read_ops += n_ops
        n_found += 1
    return n_found, read_ops


@driver
def _extend_reads(text_planes, base_offsets, planes, word_offsets, loci, params, penalties,
                  wavefronts, scratch, out, alignment_offsets):  # fmt: skip
    """Align every read; fill `out` and `alignment_offsets`; return all operations."""
    cigar_ops = np.empty(4 * len(out.strand) + 16, np.uint32)
    read_ops = np.empty(1024, np.uint32)
    n_cigar_ops = np.int64(0)
    total = np.int64(0)
    for read in range(len(base_offsets) - 1):
        first = loci.locus_offsets[read]
        n_loci = loci.locus_offsets[read + 1] - first
        n_found, read_ops = _align_read(
            text_planes, planes, word_offsets[read], base_offsets[read + 1] - base_offsets[read],
            loci, first, n_loci, params, penalties, wavefronts, scratch, read_ops,
        )  # fmt: skip
        found = scratch.found
        n_kept = _keep_distinct(scratch, n_found)
        for i in range(n_kept):
            row = scratch.kept[i]
            out.strand[total] = found.strand[row]
            out.ref_id[total] = found.ref_id[row]
            out.text_start[total] = found.text_start[row]
            out.text_end[total] = found.text_end[row]
            out.query_start[total] = found.query_start[row]
            out.query_end[total] = found.query_end[row]
            out.score[total] = found.score[row]
            out.edit_distance[total] = found.edit_distance[row]
            start, end = found.cigar_start[row], found.cigar_end[row]
            if n_cigar_ops + end - start > len(cigar_ops):
                cigar_ops = grown(cigar_ops, 2 * (n_cigar_ops + end - start))
            cigar_ops[n_cigar_ops : n_cigar_ops + end - start] = read_ops[start:end]
            out.cigar_start[total] = n_cigar_ops
            n_cigar_ops += end - start
            out.cigar_end[total] = n_cigar_ops
            total += 1
        alignment_offsets[read + 1] = total
    return cigar_ops[:n_cigar_ops].copy()


def extend_loci(
    text_planes: np.ndarray,
    reads: ReadBatch,
    packed: PackedReads,
    loci: LocusBatch,
    params: ExtendParams,
) -> AlignmentBatch:
    """Align each read to its candidate loci.

    Parameters
    ----------
    text_planes
        Bit planes of the indexed text, uint64, shape (n_words + 2, 3).

    Returns
    -------
    Distinct alignments of each read that reach the lowest score, best first; equals by
    strand, then place.

    Notes
    -----
    Heuristic: at a locus that competes with a better one for the same bases, gaps are
    sought only where the result could come within ``score_margin`` of it.
    """
    longest = max(int(np.diff(reads.base_offsets).max(initial=0)), 1)
    most_loci = max(int(np.diff(loci.locus_offsets).max(initial=0)), 1)
    penalties = wavefront_penalties(params)
    wavefronts = new_wavefronts(longest, params.max_gap, penalties, params.end_bonus)
    scratch = _new_scratch(most_loci, longest, params.max_gap)
    out = _new_found(len(loci.strand))
    alignment_offsets = np.zeros(reads.n_reads + 1, np.int64)
    cigar_ops = _extend_reads(
        text_planes, reads.base_offsets, packed.planes, packed.word_offsets, loci, params,
        penalties, wavefronts, scratch, out, alignment_offsets,
    )  # fmt: skip
    total = alignment_offsets[-1]
    cigar_offsets = np.zeros(total + 1, np.int64)
    cigar_offsets[1:] = out.cigar_end[:total]
    columns = (column[:total].copy() for column in out[:8])
    return AlignmentBatch._make((alignment_offsets, *columns, cigar_offsets, cigar_ops))
