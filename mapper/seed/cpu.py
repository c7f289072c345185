"""CPU driver of seeding: find the located seeds of reads, one read after the other."""

from __future__ import annotations

import numpy as np

from mapper.batch import PackedReads, ReadBatch, SeedBatch
from mapper.batch_ops import longest_row
from mapper.index.fm import FMIndex, RowsInWork
from mapper.index.kmer_filter import EVERY_KMER, KmerFilter
from mapper.jit.accelerate import driver, grown
from mapper.params import SeedParams
from mapper.seed.diagonals import SeedScratch, table_size
from mapper.seed.rounds import SeedColumns, most_seeds, seed_read, write_seeds


def _new_scratch(max_seeds: int, max_hits: int) -> SeedScratch:
    return SeedScratch(
        start=np.empty(max_seeds, np.int32),
        length=np.empty(max_seeds, np.int32),
        strand=np.empty(max_seeds, np.uint8),
        sa_lo=np.empty(max_seeds, np.int64),
        sa_hi=np.empty(max_seeds, np.int64),
        order=np.empty(max_seeds, np.int32),
        diag=np.empty(max_hits, np.int64),
        diag_seed=np.empty(max_hits, np.int32),
        slots=np.empty(table_size(max_hits), np.int32),
    )


@driver
def _seed_reads(fm, present, bases, base_offsets, planes, word_offsets, params, chosen, scratch,
                working):  # fmt: skip
    n_reads = len(base_offsets) - 1
    max_hits = len(scratch.diag)
    seed_offsets = np.zeros(n_reads + 1, np.int64)
    guarantee = np.zeros(n_reads, np.int32)
    thinned = np.zeros(n_reads, np.bool_)
    capacity = max(np.int64(1024), 2 * n_reads + max_hits)
    strand = np.empty(capacity, np.uint8)
    query_start = np.empty(capacity, np.int32)
    text_pos = np.empty(capacity, np.int64)
    seed_len = np.empty(capacity, np.int32)
    total = np.int64(0)
    for read in range(n_reads):
        if not chosen[read]:
            seed_offsets[read + 1] = total
            continue
        n_diags, disjoint, was_thinned = seed_read(
            fm, present, bases, base_offsets[read], base_offsets[read + 1], planes,
            word_offsets[read], params, max_hits, scratch, working,
        )  # fmt: skip
        if n_diags < 0:
            raise RuntimeError("more seeds than any read has: a bug in fmwave")
        guarantee[read] = disjoint
        thinned[read] = was_thinned
        if total + n_diags > len(strand):
            capacity = 2 * (total + n_diags)
            strand = grown(strand, capacity)
            query_start = grown(query_start, capacity)
            text_pos = grown(text_pos, capacity)
            seed_len = grown(seed_len, capacity)
        columns = SeedColumns(strand, query_start, text_pos, seed_len)
        write_seeds(scratch, n_diags, columns, total)
        total += n_diags
        seed_offsets[read + 1] = total
    return (
        seed_offsets,
        strand[:total].copy(),
        query_start[:total].copy(),
        text_pos[:total].copy(),
        seed_len[:total].copy(),
        guarantee,
        thinned,
    )


def seed_reads(
    index: FMIndex, reads: ReadBatch, packed: PackedReads, params: SeedParams,
    present: np.ndarray = EVERY_KMER, chosen: np.ndarray | None = None,
) -> SeedBatch:  # fmt: skip
    """Find the diagonals of the exact seeds of each read.

    Parameters
    ----------
    params
        With its lengths filled in (:func:`mapper.seed.exact.resolve`).
    present
        :func:`mapper.index.kmer_filter.present_kmers` of the index; no effect on the result.
    chosen
        bool (n_reads,): the reads to seed; the others have no seeds. None for all.

    Returns
    -------
    One row for each read, strand and diagonal, in the order found: rarest seed first.

    Notes
    -----
    Heuristics: rounds 2 and 3 are only for reads with at most one occurring seed; seeds of
    more than ``max_occ`` occurrences are left out while a read has others.
    """
    longest = int(longest_row(reads.base_offsets))
    scratch = _new_scratch(most_seeds(longest), params.max_hits)
    working = RowsInWork(np.empty(params.max_hits, np.int64), np.empty(params.max_hits, np.int32))
    kmers = KmerFilter(present, np.empty(((longest + 63) // 64 + 1, 2), np.uint64))
    if chosen is None:
        chosen = np.ones(reads.n_reads, np.bool_)
    columns = _seed_reads(
        index, kmers, reads.bases, reads.base_offsets, packed.planes, packed.word_offsets,
        params, chosen, scratch, working,
    )  # fmt: skip
    return SeedBatch(*columns)
