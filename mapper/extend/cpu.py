"""CPU driver of extension: candidate loci → alignments, one read after the other."""

from __future__ import annotations

import numpy as np

from mapper.batch import AlignmentBatch, LocusBatch, PackedReads, ReadBatch
from mapper.batch_ops import longest_row
from mapper.extend.banded_screen import new_banded_screen
from mapper.extend.filter import keep_counting, keep_distinct_by_place
from mapper.extend.read import (
    FOUND_TYPES,
    OPS_FULL,
    Found,
    ReadScratch,
    extend_read,
    locus_key,
    order_loci,
    scratch_sizes,
    spell_ungapped,
)
from mapper.extend.ungapped_words import align_row_by_words, new_word_scratch
from mapper.extend.wavefront import CELLS_FULL, new_wavefronts, wavefront_penalties
from mapper.jit.accelerate import core, driver, grown
from mapper.jit.intrinsics import prefetch
from mapper.jit.lanes import ONE_LANE
from mapper.params import KEEP_ALL, ExtendParams, KeepParams

WORDS_PREFETCHED = 8
"""Words of bit planes to the end of the second cache line that is prefetched at a locus."""


def _new_found(capacity: int) -> Found:
    return Found(*(np.empty(capacity, np.dtype(t)) for t in FOUND_TYPES))


def _new_scratch(max_loci: int, max_len: int, params: ExtendParams) -> ReadScratch:
    sizes = scratch_sizes(max_len, params.max_gap)
    return ReadScratch(
        ungapped=np.empty((max_loci, 8), np.int32),
        keys=np.empty(3 * max_loci, np.int64),
        order=np.empty(max_loci, np.int32),
        kept=np.empty(max_loci, np.int32),
        positions=np.empty(sizes.positions, np.int32),
        losses=np.empty(sizes.losses, np.int32),
        spare_ops=np.empty(sizes.ops, np.uint32),
        ops=np.empty(sizes.ops, np.uint32),
        screen=new_banded_screen(max_len, params),
    )


@core
def _write_alignment(text_planes, planes, read_word, read_len, found, row, positions, read_ops, out,
                     to, cigar_ops, n_ops):  # fmt: skip
    """Write an alignment to row `to` of `out`, its operations behind the `n_ops` of the batch.

    Those of an alignment without gaps are not spelt yet.

    Returns
    -------
    Operations of the batch.
    """
    start, end = found.cigar_start[row], found.cigar_end[row]
    if start == end:
        n_ops += spell_ungapped(
            text_planes, planes, read_word, read_len, found, row, positions, cigar_ops[n_ops:]
        )
    for op in range(start, end):  # a slice would take seconds to compile
        cigar_ops[n_ops] = read_ops[op]
        n_ops += 1
    out.strand[to] = found.strand[row]
    out.ref_id[to] = found.ref_id[row]
    out.text_start[to] = found.text_start[row]
    out.text_end[to] = found.text_end[row]
    out.query_start[to] = found.query_start[row]
    out.query_end[to] = found.query_end[row]
    out.score[to] = found.score[row]
    out.edit_distance[to] = found.edit_distance[row]
    out.cigar_offsets[to + 1] = n_ops
    return n_ops


@driver
def _extend_reads(text_planes, base_offsets, planes, word_offsets, loci, params, keep, penalties,
                  wavefronts, scratch, words, found, out):  # fmt: skip
    """Align every read; fill `out` but for its operations; return these."""
    cigar_ops = np.empty(4 * len(out.strand) + 16, np.uint32)
    read_ops = np.empty(1024, np.uint32)
    n_cigar_ops = np.int64(0)
    total = np.int64(0)
    for read in range(len(base_offsets) - 1):
        first = loci.locus_offsets[read]
        n_loci = loci.locus_offsets[read + 1] - first
        read_len = base_offsets[read + 1] - base_offsets[read]
        for i in range(n_loci):  # most lie where no cache has the text
            word = 3 * (max(np.int64(0), loci.diagonal[first + i]) >> 6)
            prefetch(text_planes, word)
            prefetch(text_planes, min(np.int64(text_planes.size) - 1, word + WORDS_PREFETCHED))
        for i in range(n_loci):
            align_row_by_words(
                text_planes, planes, word_offsets[read], read_len, loci, first + i, params,
                scratch.positions, words, scratch.ungapped[i],
            )  # fmt: skip
            scratch.keys[i] = locus_key(scratch.ungapped[i], i, params.match)
        order_loci(scratch.keys, scratch.order, n_loci, ONE_LANE)
        n_found, n_read_ops = np.int64(-1), np.int64(0)
        while n_found < 0:
            n_found, n_read_ops = extend_read(
                text_planes, planes, word_offsets[read], read_len, loci, first, n_loci, params,
                penalties, wavefronts, scratch, found, read_ops,
            )  # fmt: skip
            if n_found == CELLS_FULL:
                raise RuntimeError("wavefronts larger than any read's: a bug in fmwave")
            if n_found == OPS_FULL:
                read_ops = np.empty(2 * len(read_ops), np.uint32)
        n_kept = keep_distinct_by_place(
            found, scratch.kept, n_found, scratch.order, scratch.keys, ONE_LANE
        )
        n_kept = keep_counting(found, scratch.kept, n_kept, read_len, 1, keep, ONE_LANE)
        most_ops = n_cigar_ops + n_read_ops + n_kept * (2 * read_len + 1)
        if most_ops > len(cigar_ops):
            cigar_ops = grown(cigar_ops, 2 * most_ops)
        for i in range(n_kept):
            n_cigar_ops = _write_alignment(
                text_planes, planes, word_offsets[read], read_len, found, scratch.kept[i],
                scratch.positions, read_ops, out, total, cigar_ops, n_cigar_ops,
            )  # fmt: skip
            total += 1
        out.alignment_offsets[read + 1] = total
    return cigar_ops[:n_cigar_ops].copy()


def extend_loci(
    text_planes: np.ndarray,
    reads: ReadBatch,
    packed: PackedReads,
    loci: LocusBatch,
    params: ExtendParams,
    keep: KeepParams = KEEP_ALL,
) -> AlignmentBatch:
    """Align each read to its candidate loci.

    Parameters
    ----------
    text_planes
        Bit planes of the indexed text, uint64, shape (n_words + 2, 3).
    keep
        Which alignments may matter to what follows.

    Returns
    -------
    Distinct alignments of each read that reach the lowest score and may matter, best first;
    equals by strand, then place.

    Notes
    -----
    Heuristic: at a locus that competes with a better one for the same bases, gaps are
    sought only where the result could come within ``score_margin`` of it.
    """
    longest = max(int(longest_row(reads.base_offsets)), 1)
    most_loci = max(int(longest_row(loci.locus_offsets)), 1)
    penalties = wavefront_penalties(params)
    wavefronts = new_wavefronts(longest, params.max_gap, penalties, params.end_bonus)
    scratch = _new_scratch(most_loci, longest, params)
    n = len(loci.strand)
    out = AlignmentBatch(
        alignment_offsets=np.zeros(reads.n_reads + 1, np.int64),
        strand=np.empty(n, np.uint8),
        ref_id=np.empty(n, np.int32),
        text_start=np.empty(n, np.int64),
        text_end=np.empty(n, np.int64),
        query_start=np.empty(n, np.int32),
        query_end=np.empty(n, np.int32),
        score=np.empty(n, np.int32),
        edit_distance=np.empty(n, np.int32),
        cigar_offsets=np.zeros(n + 1, np.int64),
        cigar_ops=np.empty(0, np.uint32),
    )
    cigar_ops = _extend_reads(
        text_planes, reads.base_offsets, packed.planes, packed.word_offsets, loci, params, keep,
        penalties, wavefronts, scratch, new_word_scratch(params), _new_found(most_loci), out,
    )  # fmt: skip
    total = out.alignment_offsets[-1]
    columns = (column[:total].copy() for column in out[1:9])
    return AlignmentBatch._make(
        (out.alignment_offsets, *columns, out.cigar_offsets[: total + 1].copy(), cigar_ops)
    )
