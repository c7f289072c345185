"""Core: one read and its candidate loci → its distinct alignments, best first.

Both backends run this text: the CPU with work space that fits any read of the batch, a
device first with little, one thread for each read, and again with more, a warp for each,
for the reads that did not fit (status ``OPS_FULL`` or ``CELLS_FULL``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.cigar import EQUAL
from mapper.dna import n_words
from mapper.extend.blocks import BLOCK
from mapper.extend.locus import Ungapped, align_gapped, align_ungapped
from mapper.extend.ungapped import lowest_mate_score

REDUNDANT_OVERLAP = 0.9
"""Two alignments that share more than this part of the shorter one's read and reference
bases are one alignment found twice; the lower-scoring is dropped."""

OPS_FULL = -1
"""The operations of the read's alignments do not fit their work space."""


class Found(NamedTuple):
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


FOUND_TYPES = ("u1", "i4", "i8", "i8", "i4", "i4", "i4", "i4", "i8", "i8")


class ReadScratch(NamedTuple):
    """Work space for one read; rows are its loci."""

    ungapped: np.ndarray  # int64 (n, 8): the fields of Ungapped
    order: np.ndarray  # int32: loci by ungapped objective
    found: Found
    kept: np.ndarray  # int32: rows of found, best first
    positions: np.ndarray  # int32
    lost_before: np.ndarray  # int32
    spare_ops: np.ndarray  # uint32
    ops: np.ndarray  # uint32


class ScratchSizes(NamedTuple):
    """Items of the parts of a :class:`ReadScratch` that depend on the read's length."""

    positions: int
    lost_before: int
    ops: int  # the most operations of one alignment


def scratch_sizes(max_len: int, max_gap: int) -> ScratchSizes:
    """Return what any read of up to `max_len` bases takes."""
    return ScratchSizes(max_len, max_len // BLOCK + 2, 2 * max_len + max_gap + 2)


@core
def _objective(row, match):
    """Doubled objective of an ungapped alignment stored as a row of numbers."""
    return 2 * match * (row[3] - row[2]) + row[4] + row[5]


@core
def align_row(text_planes, planes, read_word, read_len, loci, locus, params, positions, ungapped):
    """Align one read to one locus without gaps; fill a row of ``ReadScratch.ungapped``."""
    u = align_ungapped(
        planes, read_word + n_words(read_len) * loci.strand[locus], read_len, text_planes,
        loci.diagonal[locus], loci.window_start[locus], loci.window_end[locus], params, positions,
    )  # fmt: skip
    for field in range(8):
        ungapped[field] = u[field]


@core
def sort_loci(scratch, n_loci, match):
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
def keep_distinct(scratch, n_found):
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


@core
def extend_read(text_planes, planes, read_word, read_len, loci, first, n_loci, params, penalties,
                wavefronts, scratch, read_ops, lanes):  # fmt: skip
    """Align one read to its loci; fill ``scratch.found`` and, with operations, `read_ops`.

    Parameters
    ----------
    planes, read_word
        The read's bit planes: strand 0 from row `read_word` on, strand 1 behind it.
    loci, first, n_loci
        LocusBatch columns, and which rows are the read's.
    scratch
        With the ungapped alignments of the loci (:func:`align_row`) and their order.
    lanes
        Each with ``positions``, ``spare_ops`` and ``ops`` of its own; the rest is shared.

    Returns
    -------
    n_found, n_ops
        Number of alignments, and of their operations. Instead of n_found OPS_FULL or
        CELLS_FULL: nothing found holds, some work space is too small.
    """
    n_strand_words = n_words(read_len)
    bar = max(2 * lowest_mate_score(read_len, params), np.int64(2))
    best = best_start = best_end = np.int64(0)
    found = scratch.found
    n_found = np.int64(0)
    n_read_ops = np.int64(0)
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
            scratch.spare_ops, scratch.ops, lanes,
        )  # fmt: skip
        if n_ops < 0:
            return n_ops, n_read_ops
        if doubled < bar:
            continue
        if doubled > best:
            best, best_start, best_end = doubled, query_start, query_end
        if n_read_ops + n_ops > len(read_ops):
            return np.int64(OPS_FULL), n_read_ops
        for j in range(lanes.lane, n_ops, lanes.n_lanes):
            read_ops[n_read_ops + j] = scratch.ops[j]
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
    return n_found, n_read_ops
