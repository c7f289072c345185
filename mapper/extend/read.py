"""Core: one read and its candidate loci → its alignments.

The CPU takes the loci one after the other (:func:`extend_read`); the least score of interest at
each depends on those before. A device aligns them in parallel (``cuda_kernels.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.cigar import EQUAL
from mapper.dna import n_words
from mapper.extend.banded_screen import BandedScreen
from mapper.extend.block_losses import BLOCK
from mapper.extend.filter import as_given, overlap
from mapper.extend.locus import Ungapped, align_gapped, align_ungapped, ungapped_ops
from mapper.extend.ungapped import lowest_mate_score, ungapped_score
from mapper.jit.accelerate import core
from mapper.jit.lanes import ONE_LANE, lanes_meet
from mapper.jit.sorting import sort_descending

OPS_FULL = -1
"""The operations of the read's alignments do not fit their workspace."""

OUT_OF_REACH = 2**30
"""A target that no alignment exceeds."""


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
    """Workspace for one read; rows are its loci."""

    ungapped: np.ndarray  # int32 (n, 8): the fields of Ungapped
    keys: np.ndarray  # int64 (3 * n,): of the loci, for :func:`order_loci`; then free
    order: np.ndarray  # int32: loci by ungapped objective; free when they are aligned
    kept: np.ndarray  # int32: rows of Found, best first
    positions: np.ndarray  # int32
    losses: np.ndarray  # int32
    spare_ops: np.ndarray  # uint32
    ops: np.ndarray  # uint32
    screen: BandedScreen


class ScratchSizes(NamedTuple):
    """Items of the parts of a :class:`ReadScratch` that depend on the read's length."""

    positions: int
    losses: int
    ops: int  # the most operations of one alignment


def scratch_sizes(max_len: int, max_gap: int) -> ScratchSizes:
    """Return the sizes of the workspace of any read of up to `max_len` bases."""
    return ScratchSizes(max_len, 3 * (max_len // BLOCK + 3), 2 * max_len + max_gap + 2)


@core
def ungapped_of(row):
    """Return an ungapped alignment from its row of numbers."""
    return Ungapped(
        np.int64(row[0]), np.int64(row[1]), np.int64(row[2]), np.int64(row[3]), np.int64(row[4]),
        np.int64(row[5]), np.int64(row[6]), np.int64(row[7]),
    )  # fmt: skip


@core
def _objective(row, match):
    """Doubled objective of an ungapped alignment stored as a row of numbers."""
    return 2 * match * (np.int64(row[3]) - row[2]) + row[4] + row[5]


@core
def align_row(text_planes, planes, read_word, read_len, loci, locus, params, positions, ungapped):
    """Align one read to one locus without gaps; fill a row of ``ReadScratch.ungapped``."""
    u = align_ungapped(
        planes, read_word + n_words(read_len) * loci.strand[locus], read_len, text_planes,
        loci.diagonal[locus], loci.window_start[locus], loci.window_end[locus], params, positions,
    )  # fmt: skip
    for field in range(8):
        ungapped[field] = u[field]


_LOCUS = (1 << 32) - 1
"""The part of a key that tells the locus, the first highest."""


@core
def locus_key(row, locus, match):
    """Return a number that is the higher, the earlier a locus comes in :func:`order_loci`."""
    return _objective(row, match) << 32 | (_LOCUS - np.int64(locus))


@core
def order_loci(keys, order, n_loci, lanes):
    """Order the loci of a read by ungapped objective, equals by locus, from their keys.

    Repeats give a read hundreds of loci, in any order; `lanes` share them. Behind its `n_loci` keys
    ``keys`` has a workspace for as many.
    """
    sort_descending(keys, n_loci, lanes, keys[n_loci:])
    for i in range(lanes.lane, n_loci, lanes.n_lanes):
        order[i] = _LOCUS - (keys[i] & _LOCUS)
    lanes_meet(lanes)


@core
def edit_distance_of(ops, n_ops):
    """Bases that differ, are inserted or deleted."""
    distance = np.int32(0)
    for i in range(np.int32(n_ops)):
        op = ops[np.uint32(i)]
        if op & 15 != EQUAL:
            distance = np.int32(distance + (op >> 4))
    return distance


@core
def spell_ungapped(text_planes, planes, read_word, read_len, found, row, positions, ops):
    """Write the operations of an alignment that has none yet, and its edit distance.

    Returns
    -------
    Number of operations.
    """
    word = read_word + n_words(read_len) * found.strand[row]
    query_start, query_end = np.int64(found.query_start[row]), np.int64(found.query_end[row])
    n_ops = ungapped_ops(
        planes, word, text_planes, found.text_start[row] - query_start, query_start, query_end,
        positions, ops, np.int32(0),
    )  # fmt: skip
    found.edit_distance[row] = edit_distance_of(ops, n_ops)
    return n_ops


@core
def lowest_doubled(read_len, params):
    """Doubled score that an alignment must reach to be of any use, if only to a pair."""
    return max(2 * lowest_mate_score(read_len, params), np.int64(2))


@core
def target_of(ungapped, strand, read_len, best, best_start, best_end, rank, params):
    """Doubled objective that a locus must exceed with gaps, given the read's best so far.

    `rank` is how many of the read's loci are better without gaps: gaps are sought at the first
    ``most_gapped`` only. A locus that competes for other bases has none to exceed. `best_start`
    and `best_end` count on the read as given: the best may lie on the other strand.
    """
    if rank >= params.most_gapped:
        return np.int64(OUT_OF_REACH)
    start, end = as_given(ungapped.start, ungapped.end, strand, read_len)
    shared = overlap(start, end, best_start, best_end)
    if 2 * shared >= ungapped.end - ungapped.start:
        return max(np.int64(0), best - 2 * params.match * params.score_margin)
    return np.int64(0)


@core
def extend_read(text_planes, planes, read_word, read_len, loci, first, n_loci, params, penalties,
                wavefronts, scratch, found, read_ops):  # fmt: skip
    """Align one read to its loci; fill `found` and, with operations, `read_ops`.

    Parameters
    ----------
    planes, read_word
        The read's bit planes: strand 0 from row `read_word` on, strand 1 behind it.
    loci, first, n_loci
        LocusBatch columns, and which rows are the read's.
    scratch
        With the ungapped alignments of the loci (:func:`align_row`) and their order.
    found
        :class:`Found`. Not a part of `scratch`: a tuple of arrays that is taken out of another in
        a loop costs two atomic operations for each array.

    Returns
    -------
    n_found, n_ops
        Number of alignments, and of their operations: those without gaps have none yet
        (:func:`spell_ungapped`), as few of them are kept. Instead of n_found OPS_FULL or
        CELLS_FULL: nothing found holds, some workspace is too small.
    """
    n_strand_words = n_words(read_len)
    bar = lowest_doubled(read_len, params)
    best = best_start = best_end = np.int64(0)
    n_found = np.int64(0)
    n_read_ops = np.int64(0)
    for i in range(n_loci):
        u = ungapped_of(scratch.ungapped[scratch.order[i]])
        locus = first + scratch.order[i]
        strand = loci.strand[locus]
        word = read_word + n_strand_words * strand
        diagonal = loci.diagonal[locus]
        target = target_of(u, strand, read_len, best, best_start, best_end, i, params)
        _, doubled, query_start, query_end, text_start, text_end, n_ops = align_gapped(
            planes, word, read_len, text_planes, diagonal, loci.window_start[locus],
            loci.window_end[locus], u, target, params, penalties, wavefronts, scratch.positions,
            scratch.losses, scratch.spare_ops, scratch.ops, scratch.screen, ONE_LANE,
        )  # fmt: skip
        if n_ops < 0:
            return n_ops, n_read_ops
        if n_ops == 0:
            doubled = ungapped_score(u, read_len, params)
            query_start, query_end = u.start, u.end
            text_start, text_end = diagonal + u.start, diagonal + u.end
        if doubled < bar:
            continue
        if doubled > best:
            best = doubled
            best_start, best_end = as_given(query_start, query_end, strand, read_len)
        if n_read_ops + n_ops > len(read_ops):
            return np.int64(OPS_FULL), n_read_ops
        for j in range(n_ops):
            read_ops[n_read_ops + j] = scratch.ops[j]
        found.strand[n_found] = strand
        found.ref_id[n_found] = loci.ref_id[locus]
        found.text_start[n_found] = text_start
        found.text_end[n_found] = text_end
        found.query_start[n_found] = query_start
        found.query_end[n_found] = query_end
        found.score[n_found] = doubled >> 1
        found.edit_distance[n_found] = edit_distance_of(scratch.ops, n_ops)
        found.cigar_start[n_found] = n_read_ops
        found.cigar_end[n_found] = n_read_ops + n_ops
        scratch.kept[n_found] = n_found
        n_read_ops += n_ops
        n_found += 1
    return n_found, n_read_ops
