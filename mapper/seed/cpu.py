"""CPU driver of seeding: reads → located seeds, one read after the other."""

from __future__ import annotations

import numpy as np

from mapper.accelerate import core, driver, grown
from mapper.batch import PackedReads, ReadBatch, SeedBatch
from mapper.dna import AMBIGUOUS
from mapper.index.fm import FMIndex
from mapper.params import SeedParams
from mapper.seed.exact import search_seed
from mapper.seed.plan import disjoint_start, n_disjoint
from mapper.seed.select import SeedScratch, find_diagonals


def _new_scratch(max_seeds: int, max_hits: int) -> SeedScratch:
    return SeedScratch(
        start=np.empty(max_seeds, np.int32),
        length=np.empty(max_seeds, np.int32),
        strand=np.empty(max_seeds, np.uint8),
        sa_lo=np.empty(max_seeds, np.int64),
        sa_hi=np.empty(max_seeds, np.int64),
        order=np.empty(max_seeds, np.int32),
        diag=np.empty(max_hits, np.int64),
        diag_strand=np.empty(max_hits, np.uint8),
        diag_seed=np.empty(max_hits, np.int32),
    )


@core
def _add_seed(fm, codes, read_start, read_len, clean, stretch_end, start, seed_len, strand,
              params, scratch, n_seeds):  # fmt: skip
    """Search a seed on one strand; store it if it occurs. Positions count on `codes`.

    Returns
    -------
    n_seeds, length, located
        Seeds stored so far, the seed's final length, and whether all its occurrences will
        be located.
    """
    end = start + seed_len
    room = start - clean if strand == 0 else stretch_end - end
    sa_lo, sa_hi, length = search_seed(fm, codes, start, end, strand, room, params.extend_over)
    if sa_lo >= sa_hi:
        return n_seeds, np.int64(seed_len), True
    # The pattern of strand 0 ends with the seed; that of strand 1 begins, on the forward
    # read, with it: on the reverse complement it ends there.
    if strand == 0:
        scratch.start[n_seeds] = end - length - read_start
    else:
        scratch.start[n_seeds] = read_start + read_len - (start + length)
    scratch.length[n_seeds] = length
    scratch.strand[n_seeds] = strand
    scratch.sa_lo[n_seeds] = sa_lo
    scratch.sa_hi[n_seeds] = sa_hi
    return n_seeds + 1, length, sa_hi - sa_lo <= params.max_occ


@core
def _search_round(fm, codes, read_start, read_end, seed_len, step, params, scratch, n_seeds):
    """Search one round of seeds on both strands, in addition to the `n_seeds` stored so far.

    `step` 0 lays them disjointly, else one starts every `step` bases.

    Returns
    -------
    n_seeds, n_tried
        Seeds and strands that occur (in `scratch`); seeds tried.
    guarantee
        The most seeds of one strand that are disjoint as lengthened and will be located; a
        place must break every one of them to go unseen. The lesser of the two strands'.
    thinned
        Whether some seed was lengthened or is too frequent.
    """
    n_tried = 0
    thinned = False
    # Disjoint seeds of each strand, greedily: seeds come by start, and of overlapping ones
    # the one that ends first is kept.
    disjoint_0 = disjoint_1 = np.int64(0)
    last_end_0 = last_end_1 = np.int64(read_start)
    clean = read_start
    while clean < read_end:
        if codes[clean] >= AMBIGUOUS:
            clean += 1
            continue
        stretch_end = clean
        while stretch_end < read_end and codes[stretch_end] < AMBIGUOUS:
            stretch_end += 1
        stretch = stretch_end - clean
        n_starts = 0
        if stretch >= seed_len:
            n_starts = (
                n_disjoint(stretch, seed_len) if step == 0 else (stretch - seed_len) // step + 1
            )
        for i in range(n_starts):
            if step == 0:
                start = clean + disjoint_start(stretch, seed_len, n_starts, i)
            else:
                start = clean + i * step
            for strand in range(2):
                n_seeds, length, located = _add_seed(
                    fm, codes, read_start, read_end - read_start, clean, stretch_end, start,
                    seed_len, strand, params, scratch, n_seeds,
                )  # fmt: skip
                if length > seed_len or not located:
                    thinned = True
                if not located:
                    continue
                if strand == 0:
                    # Lengthened to the left: ends stay in order, the first to fit is kept.
                    if start + seed_len - length >= last_end_0:
                        disjoint_0 += 1
                        last_end_0 = start + seed_len
                elif start >= last_end_1:
                    disjoint_1 += 1
                    last_end_1 = start + length
                else:
                    last_end_1 = min(last_end_1, start + length)
        n_tried += n_starts
        clean = stretch_end
    return n_seeds, n_tried, min(disjoint_0, disjoint_1), thinned


@driver
def _seed_reads(fm, bases, base_offsets, planes, word_offsets, params, scratch):
    n_reads = len(base_offsets) - 1
    max_hits = len(scratch.diag)
    seed_offsets = np.zeros(n_reads + 1, np.int64)
    repeat_bases = np.zeros(n_reads, np.int32)
    guarantee = np.zeros(n_reads, np.int32)
    thinned = np.zeros(n_reads, np.bool_)
    capacity = max(np.int64(1024), 2 * n_reads + max_hits)
    strand = np.empty(capacity, np.uint8)
    query_start = np.empty(capacity, np.int32)
    text_pos = np.empty(capacity, np.int64)
    seed_len = np.empty(capacity, np.int32)
    total = 0
    for read in range(n_reads):
        start, end = base_offsets[read], base_offsets[read + 1]
        word = word_offsets[read]
        words_per_strand = (word_offsets[read + 1] - word) >> 1
        n_diags = 0
        n_seeds = 0
        for round_number in range(3):
            length = params.last_len if round_number == 2 else params.seed_len
            step = (0, params.dense_step, 1)[round_number]
            n_seeds, n_tried, disjoint, was_thinned = _search_round(
                fm, bases, start, end, length, step, params, scratch, n_seeds
            )
            guarantee[read] = disjoint
            thinned[read] = was_thinned
            if n_seeds:
                n_diags, repeat, n_over_budget = find_diagonals(
                    fm, planes, word, words_per_strand, scratch, n_seeds, params.max_occ, max_hits
                )
                repeat_bases[read] = min(repeat, end - start)
                guarantee[read] = max(np.int64(0), disjoint - n_over_budget)
                thinned[read] = was_thinned or n_over_budget > 0
            # One seed of many can be chance; where two agree to occur, the read is explained.
            if n_diags and (round_number > 0 or n_seeds > 1 or n_tried < 2):
                break
        if total + n_diags > len(strand):
            capacity = 2 * (total + n_diags)
            strand = grown(strand, capacity)
            query_start = grown(query_start, capacity)
            text_pos = grown(text_pos, capacity)
            seed_len = grown(seed_len, capacity)
        for d in range(n_diags):
            seed = scratch.diag_seed[d]
            strand[total] = scratch.diag_strand[d]
            query_start[total] = scratch.start[seed]
            text_pos[total] = scratch.diag[d] + scratch.start[seed]
            seed_len[total] = scratch.length[seed]
            total += 1
        seed_offsets[read + 1] = total
    return (
        seed_offsets,
        strand[:total].copy(),
        query_start[:total].copy(),
        text_pos[:total].copy(),
        seed_len[:total].copy(),
        repeat_bases,
        guarantee,
        thinned,
    )


def seed_reads(
    index: FMIndex, reads: ReadBatch, packed: PackedReads, params: SeedParams
) -> SeedBatch:
    """Find the diagonals that exact seeds of each read lead to.

    Parameters
    ----------
    params
        With its lengths filled in (:func:`mapper.seed.plan.resolve`).

    Returns
    -------
    One row for each read, strand and diagonal, in the order found: rarest seed first.

    Notes
    -----
    Heuristics: rounds 2 and 3 are only for reads with at most one occurring seed; seeds of
    more than ``max_occ`` occurrences are left out while a read has others.
    """
    longest = int(np.diff(reads.base_offsets).max(initial=0))
    scratch = _new_scratch(6 * max(longest, 1), params.max_hits)  # 3 rounds, 2 strands
    columns = _seed_reads(
        index, reads.bases, reads.base_offsets, packed.planes, packed.word_offsets, params, scratch
    )
    return SeedBatch(*columns)
