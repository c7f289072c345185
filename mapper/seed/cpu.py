"""CPU drivers of seeding: find the seeds of short reads, or the anchors of long ones, in turn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.batch import AnchorBatch, PackedReads, ReadBatch, SeedBatch
from mapper.batch_ops import longest_row
from mapper.dna import AMBIGUOUS
from mapper.index.fm import FMIndex, RowsInWork
from mapper.index.kmer_filter import EVERY_KMER, KmerFilter
from mapper.jit.accelerate import driver, grown
from mapper.jit.lanes import ONE_LANE
from mapper.params import AnchorParams, SeedParams
from mapper.seed.diagonals import SeedScratch, table_size
from mapper.seed.maximal import (
    AnchorColumns,
    add_anchors,
    anchor_key,
    locate_windows,
    new_window_scratch,
    next_stretch,
    search_windows,
    step_of,
    windows_of,
)
from mapper.seed.rounds import (
    SEARCHED_TOGETHER,
    SeedColumns,
    most_seeds,
    seed_read,
    write_seeds,
)
from mapper.seed.together import (
    READS_TOGETHER,
    diagonals_of,
    new_seed_group,
    search_group,
    takes_together,
)
from mapper.sorting.record_order import stable_order


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


def _rows_in_work(n: int) -> RowsInWork:
    return RowsInWork(np.empty(n, np.int64), np.empty(n, np.int32))


@driver
def _seed_reads(fm, present, bases, base_offsets, planes, word_offsets, params, chosen, scratch,
                working, group, located):  # fmt: skip
    n_reads = len(base_offsets) - 1
    max_hits = len(scratch.diag)
    seed_offsets = np.zeros(n_reads + 1, np.int64)
    guarantee = np.zeros(n_reads, np.int32)
    thinned = np.zeros(n_reads, np.bool_)
    capacity = max(np.int64(1024), 2 * n_reads + max_hits)
    columns = SeedColumns(
        np.empty(capacity, np.uint8), np.empty(capacity, np.int32), np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
    )  # fmt: skip
    total = np.int64(0)
    group_start = group_end = np.int64(0)
    together = takes_together(params, present)
    for read in range(n_reads):
        if not chosen[read]:
            group_end = max(group_end, np.int64(read + 1))
            seed_offsets[read + 1] = total
            continue
        if together and read == group_end:
            group_start = np.int64(read)
            group_end = search_group(
                fm, bases, base_offsets, planes, word_offsets, chosen, group_start, params, scratch,
                group, located,
            )  # fmt: skip
        n_diags, disjoint, was_thinned = np.int64(0), np.int64(0), False
        if together:
            n_diags, disjoint, was_thinned = diagonals_of(
                fm, group, read - group_start, params, scratch, working, located
            )
        if n_diags == 0:
            n_diags, disjoint, was_thinned = seed_read(
                fm, present, bases, base_offsets[read], base_offsets[read + 1], planes,
                word_offsets[read], params, max_hits, scratch, working, ONE_LANE,
            )  # fmt: skip
        if n_diags < 0:
            raise RuntimeError("more seeds than any read has: a bug in fmwave")
        guarantee[read] = disjoint
        thinned[read] = was_thinned
        if total + n_diags > len(columns.strand):
            capacity = 2 * (total + n_diags)
            columns = SeedColumns(
                grown(columns.strand, capacity), grown(columns.query_start, capacity),
                grown(columns.text_pos, capacity), grown(columns.seed_len, capacity),
            )  # fmt: skip
        write_seeds(scratch, n_diags, columns, total, ONE_LANE)
        total += n_diags
        seed_offsets[read + 1] = total
    return (
        seed_offsets,
        columns.strand[:total].copy(),
        columns.query_start[:total].copy(),
        columns.text_pos[:total].copy(),
        columns.seed_len[:total].copy(),
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
    One row for each read, strand and diagonal, in the order found: the longest seed's first,
    then the rarest's.

    Notes
    -----
    Heuristics: rounds 2 and 3 are only for reads with at most one occurring seed; seeds of
    more than ``max_occ`` occurrences are left out while a read has others.
    """
    longest = int(longest_row(reads.base_offsets))
    scratch = _new_scratch(most_seeds(longest), params.max_hits)
    working = _rows_in_work(params.max_hits)
    located = _rows_in_work(READS_TOGETHER * params.max_hits)
    kmers = KmerFilter(present, np.empty(((longest + 63) // 64 + 1, 2), np.uint64))
    if chosen is None:
        chosen = np.ones(reads.n_reads, np.bool_)
    columns = _seed_reads(
        index, kmers, reads.bases, reads.base_offsets, packed.planes, packed.word_offsets,
        params, chosen, scratch, working, new_seed_group(), located,
    )  # fmt: skip
    return SeedBatch(*columns)


# --- long reads ---


@driver
def _find_anchors(fm, codes, base_offsets, planes, word_offsets, params, chosen, scratch,
                  working):  # fmt: skip
    n_reads = len(base_offsets) - 1
    offsets = np.zeros(n_reads + 1, np.int64)
    frequent = np.zeros(n_reads, np.int32)
    most_new = len(working.rows)
    capacity = np.int64(2 * most_new)
    strand = np.empty(capacity, np.uint8)
    query_start = np.empty(capacity, np.int32)
    text_pos = np.empty(capacity, np.int64)
    length = np.empty(capacity, np.int32)
    n_anchors = np.int64(0)
    for read in range(n_reads):
        read_start, read_end = base_offsets[read], base_offsets[read + 1]
        if not chosen[read]:
            offsets[read + 1] = n_anchors
            continue
        clean, clean_end = next_stretch(codes, read_start, read_end)
        step = step_of(read_end - read_start, params)
        while clean < read_end:
            first, last = clean, clean_end - params.seed_len
            while first - step < last and last >= clean:
                n = min(np.int64(SEARCHED_TOGETHER // 2), (last - first - 1) // step + 2)
                search_windows(fm, codes, first, clean, clean_end, step, n, params, scratch)
                n_rows, n_frequent = locate_windows(fm, 2 * n, params, scratch, working)
                if n_anchors + n_rows > len(strand):
                    capacity = 2 * (n_anchors + n_rows)
                    strand = grown(strand, capacity)
                    query_start = grown(query_start, capacity)
                    text_pos = grown(text_pos, capacity)
                    length = grown(length, capacity)
                columns = AnchorColumns(strand, query_start, text_pos, length)
                n_anchors = add_anchors(
                    fm, planes, word_offsets[read], read_start, read_end, 2 * n, params, scratch,
                    working, columns, n_anchors,
                )  # fmt: skip
                frequent[read] += n_frequent * step
                first += n * step
            clean, clean_end = next_stretch(codes, clean_end, read_end)
        offsets[read + 1] = n_anchors
    return offsets, strand, query_start, text_pos, length, frequent


class Stretches(NamedTuple):
    """Stretches of long reads without ambiguous bases that have a window or more."""

    read: np.ndarray  # int32, ascending
    start: np.ndarray  # int64, on the bases of the batch
    end: np.ndarray  # int64
    n_windows: np.ndarray  # int64


@driver
def _find_stretches(codes, base_offsets, params):
    capacity = np.int64(len(base_offsets) + 16)
    read_of = np.empty(capacity, np.int32)
    starts = np.empty(capacity, np.int64)
    ends = np.empty(capacity, np.int64)
    counts = np.empty(capacity, np.int64)
    n = np.int64(0)
    for read in range(len(base_offsets) - 1):
        start, end = base_offsets[read], base_offsets[read + 1]
        highest = np.uint8(0)
        for i in range(start, end):
            highest = max(highest, codes[i])
        clean, clean_end = np.int64(start), np.int64(end)
        if highest >= AMBIGUOUS:
            clean, clean_end = next_stretch(codes, start, end)
        step = step_of(end - start, params)
        while clean < end:
            n_windows = windows_of(clean, clean_end, step, params)
            if n_windows > 0:
                if n == len(starts):
                    read_of, starts = grown(read_of, 2 * n), grown(starts, 2 * n)
                    ends, counts = grown(ends, 2 * n), grown(counts, 2 * n)
                read_of[n], starts[n], ends[n], counts[n] = read, clean, clean_end, n_windows
                n += 1
            clean, clean_end = next_stretch(codes, clean_end, end)
    return read_of[:n].copy(), starts[:n].copy(), ends[:n].copy(), counts[:n].copy()


def find_stretches(reads: ReadBatch, params: AnchorParams) -> Stretches:
    """Return the stretches without ambiguous bases that have windows."""
    return Stretches(*_find_stretches(reads.bases, reads.base_offsets, params))


@driver
def _sort_anchors(found_offsets, columns, out):
    """Copy the anchors of each read in their order, without duplicates; return the offsets."""
    offsets = np.zeros_like(found_offsets)
    n_kept = np.int64(0)
    for read in range(len(offsets) - 1):
        first, end = found_offsets[read], found_offsets[read + 1]
        keys = np.empty(end - first, np.int64)
        for i in range(end - first):
            keys[i] = anchor_key(
                columns.strand[first + i], columns.text_pos[first + i],
                columns.query_start[first + i], columns.length[first + i],
            )  # fmt: skip
        order = stable_order(keys)
        for i in range(end - first):
            if i and keys[order[i]] == keys[order[i - 1]]:
                continue  # maximal matches with the same ends are the same
            row = first + order[i]
            out.strand[n_kept] = columns.strand[row]
            out.query_start[n_kept] = columns.query_start[row]
            out.text_pos[n_kept] = columns.text_pos[row]
            out.length[n_kept] = columns.length[row]
            n_kept += 1
        offsets[read + 1] = n_kept
    return offsets


def find_anchors(
    index: FMIndex, reads: ReadBatch, packed: PackedReads, params: AnchorParams,
    chosen: np.ndarray | None = None,
) -> AnchorBatch:  # fmt: skip
    """Find maximal exact matches of each read (:mod:`mapper.seed.maximal`).

    Parameters
    ----------
    params
        With its length filled in (:func:`mapper.seed.exact.resolve_anchors`).
    chosen
        bool (n_reads,): the reads to seed; the others have no anchors. None for all.

    Returns
    -------
    Distinct anchors, sorted.
    """
    most_rows = SEARCHED_TOGETHER * params.max_occ
    working = _rows_in_work(most_rows)
    if chosen is None:
        chosen = np.ones(reads.n_reads, np.bool_)
    found_offsets, *found, frequent = _find_anchors(
        index, reads.bases, reads.base_offsets, packed.planes, packed.word_offsets, params, chosen,
        new_window_scratch(), working,
    )  # fmt: skip
    columns = AnchorColumns(*found)
    out = AnchorColumns(*(np.empty(found_offsets[-1], c.dtype) for c in columns))
    offsets = _sort_anchors(found_offsets, columns, out)
    return AnchorBatch._make((offsets, *(c[: offsets[-1]].copy() for c in out), frequent))
