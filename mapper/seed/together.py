"""Core of seeding on the CPU: the first round of several reads, whose memory accesses overlap.

The searches of one read wait for memory: those of its seeds overlap, but few of them go on for
long, and what follows goes from one place of the index to the next. So the seeds of several reads
take each step together: the search, the rest of unique seeds, and locating. That is the round of
disjoint seeds or, in the later looks, which begin with overlapping ones, that of these, of one or
two reads. The seeds and diagonals of a read are the same as those of
:func:`mapper.seed.rounds.seed_read`. Devices run that for every read. The CPU runs it for reads
that need more rounds, have ambiguous bases, or have more seeds than a group has rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.dna import AMBIGUOUS, n_words
from mapper.index.fm import extend_unique, locate, locate_together
from mapper.jit.accelerate import core
from mapper.jit.lanes import ONE_LANE
from mapper.seed.diagonals import collect_diagonals, list_rarest, order_seeds, seed_matches
from mapper.seed.exact import (
    base_ahead,
    lengthen_together,
    n_disjoint,
    narrow_together,
    prefetch_step,
    seed_start,
)
from mapper.seed.rounds import NO_DIAGONAL, count_forward, count_reverse

READS_TOGETHER = 16
"""Reads of a group: with 8 the first round takes 5 % longer."""

ROWS_TOGETHER = 256
"""Seeds of both strands of all reads of a group."""


class SeedGroup(NamedTuple):
    """Workspace: the seeds of both strands of several reads, by read, start and strand."""

    start: np.ndarray  # int32, on the codes of the batch; then in the oriented read
    strand: np.ndarray  # uint8
    length: np.ndarray  # int32
    sa_lo: np.ndarray  # int64
    sa_hi: np.ndarray  # int64
    text_pos: np.ndarray  # int64: of the only occurrence; -1 while it is not known
    order: np.ndarray  # int32: rows that take the next step; then the seeds of a read by rows
    first_row: np.ndarray  # int32 (READS_TOGETHER + 1,), of each read
    anchor_row: np.ndarray  # int32 (READS_TOGETHER,): the first that has one occurrence, or -1
    n_seeds: np.ndarray  # int32: that occur, of each read
    n_rare: np.ndarray  # int32: of these, located
    first_located: np.ndarray  # int64: the first of their rows among those located
    guarantee: np.ndarray  # int64: as in SeedBatch
    thinned: np.ndarray  # bool


def new_seed_group() -> SeedGroup:
    """Allocate workspace of a thread."""
    rows, reads = ROWS_TOGETHER, READS_TOGETHER
    return SeedGroup(
        start=np.empty(rows, np.int32),
        strand=np.empty(rows, np.uint8),
        length=np.empty(rows, np.int32),
        sa_lo=np.empty(rows, np.int64),
        sa_hi=np.empty(rows, np.int64),
        text_pos=np.empty(rows, np.int64),
        order=np.empty(rows, np.int32),
        first_row=np.empty(reads + 1, np.int32),
        anchor_row=np.empty(reads, np.int32),
        n_seeds=np.empty(reads, np.int32),
        n_rare=np.empty(reads, np.int32),
        first_located=np.empty(reads, np.int64),
        guarantee=np.empty(reads, np.int64),
        thinned=np.empty(reads, np.bool_),
    )


@core
def takes_together(params, present):
    """Return True if the first of the rounds of reads is searched here.

    Where the k-mers of the text are known, most of the overlapping seeds need no search.
    """
    return params.first_round == 0 or len(present.kmers) == 0


@core
def _list_seeds(codes, base_offsets, chosen, first, params, group):
    """List the seeds of reads from `first` on, as far as there is room; return the end.

    Reads that are not to be searched here have none.
    """
    seed_len = params.seed_len
    step = np.int32(0 if params.first_round == 0 else params.dense_step)
    n_rows = np.int32(0)
    read = first
    while read < len(base_offsets) - 1 and read - first < READS_TOGETHER:
        start, end = base_offsets[read], base_offsets[read + 1]
        n_starts = np.int64(0)
        if chosen[read]:
            highest = np.uint8(0)
            for i in range(start, end):
                highest = max(highest, codes[i])
            n_starts = np.int64(n_disjoint(end - start, seed_len))
            if step > 0:
                n_starts = max(np.int64(0), (end - start - seed_len) // step + 1)
            if highest >= AMBIGUOUS or 2 * n_starts > ROWS_TOGETHER:
                n_starts = np.int64(0)
        if n_rows + 2 * n_starts > ROWS_TOGETHER:
            break
        group.first_row[read - first] = n_rows
        for seed in range(n_starts):
            at = np.int32(seed_start(np.int32(end - start), seed_len, step, n_starts, seed))
            for strand in range(2):
                group.start[n_rows] = start + at
                group.strand[n_rows] = strand
                group.text_pos[n_rows] = -1
                n_rows = np.int32(n_rows + 1)
        read += 1
    group.first_row[read - first] = n_rows
    return read


@core
def _is_unique(seed_len, group, row):
    """Return True if a pattern of up to `seed_len` bases has one row."""
    return group.sa_hi[row] - group.sa_lo[row] == 1 and group.length[row] <= seed_len


@core
def _locate_anchors(fm, seed_len, group, n_reads, working):
    """Locate the first unique seed of each read, all together, as ``text_pos`` of its row."""
    n = np.int64(0)
    for read in range(n_reads):
        group.anchor_row[read] = -1
        for row in range(group.first_row[read], group.first_row[read + 1]):
            if _is_unique(seed_len, group, row):
                group.anchor_row[read] = row
                working.rows[n] = group.sa_lo[row]
                n += 1
                break
    locate_together(fm, working, n)
    n = np.int64(0)
    for read in range(n_reads):
        row = group.anchor_row[read]
        if row >= 0:
            group.text_pos[row] = working.rows[n]
            n += 1


@core
def _place_unique(fm, planes, word, read_start, read_end, seed_len, group, read, n_pending):
    """Find the occurrences of a read's unique seeds, as far as its anchors tell.

    A seed that equals the text on the diagonal of an earlier one of its strand occurs there.
    Others are to be searched: their rows are added to the `n_pending` first of ``group.order``.

    Returns
    -------
    n_pending
    """
    anchor_0 = anchor_1 = np.int64(NO_DIAGONAL)
    n_strand_words = n_words(read_end - read_start)
    for row in range(group.first_row[read], group.first_row[read + 1]):
        if not _is_unique(seed_len, group, row):
            continue
        strand, start = group.strand[row], np.int64(group.start[row])
        on_strand = word + n_strand_words * strand
        query_start = start - read_start if strand == 0 else read_end - start - seed_len
        anchor = anchor_1 if strand else anchor_0
        if anchor != NO_DIAGONAL and seed_matches(
            fm, planes, on_strand, query_start, seed_len, anchor
        ):
            group.text_pos[row] = anchor + query_start
        elif anchor_0 == NO_DIAGONAL and anchor_1 == NO_DIAGONAL:
            text_pos = group.text_pos[row]
            if row != group.anchor_row[read]:
                text_pos = locate(fm, group.sa_lo[row])
            text_pos -= seed_len - group.length[row]
            if seed_matches(fm, planes, on_strand, query_start, seed_len, text_pos - query_start):
                group.text_pos[row] = text_pos
                if strand:
                    anchor_1 = text_pos - query_start
                else:
                    anchor_0 = text_pos - query_start
            else:
                group.text_pos[row] = -1
                group.sa_hi[row] = group.sa_lo[row]
        elif group.length[row] < seed_len:
            group.order[n_pending] = row
            n_pending += 1
    return n_pending


@core
def _complete(fm, codes, seed_len, group, n_pending):
    """Search the remaining bases of unique seeds; an absent seed gets an empty interval."""
    while n_pending > 0:
        n_left = np.int64(0)
        for i in range(n_pending):
            row = group.order[i]
            sa_lo = extend_unique(fm, base_ahead(codes, seed_len, group, row), group.sa_lo[row])
            group.sa_lo[row], group.sa_hi[row] = sa_lo, sa_lo + (sa_lo >= 0)
            group.length[row] += 1
            if sa_lo >= 0 and group.length[row] < seed_len:
                group.order[n_left] = row
                n_left += 1
                prefetch_step(fm, sa_lo, sa_lo, False)
        n_pending = n_left


@core
def _keep_occurring(read_start, read_end, seed_len, max_occ, group, read):
    """Move the seeds of a read that occur to its first rows; fill its columns of `group`."""
    n_seeds = np.int64(group.first_row[read])
    disjoint_0 = disjoint_1 = np.int64(0)
    last_end_0 = last_end_1 = np.int64(read_start)
    thinned = False
    for row in range(group.first_row[read], group.first_row[read + 1]):
        strand, start = group.strand[row], np.int64(group.start[row])
        sa_lo, sa_hi = group.sa_lo[row], group.sa_hi[row]
        occurs = sa_lo < sa_hi
        # The search of a unique or absent seed may have stopped before its last base.
        length = max(np.int64(seed_len), np.int64(group.length[row]))
        located = not occurs or sa_hi - sa_lo <= max_occ
        thinned = thinned or length > seed_len or not located
        if located and strand == 0:
            disjoint_0, last_end_0 = count_forward(start, seed_len, length, disjoint_0, last_end_0)
        elif located:
            disjoint_1, last_end_1 = count_reverse(start, length, disjoint_1, last_end_1)
        if not occurs:
            continue
        text_pos = group.text_pos[row]
        if text_pos >= 0:
            sa_lo, sa_hi = ~text_pos, -text_pos
        if strand == 0:
            group.start[n_seeds] = start + seed_len - length - read_start
        else:
            group.start[n_seeds] = read_end - (start + length)
        group.length[n_seeds] = length
        group.strand[n_seeds] = strand
        group.sa_lo[n_seeds], group.sa_hi[n_seeds] = sa_lo, sa_hi
        n_seeds += 1
    group.n_seeds[read] = n_seeds - group.first_row[read]
    group.guarantee[read] = min(disjoint_0, disjoint_1)
    group.thinned[read] = thinned


@core
def _take_seeds(group, read, scratch):
    """Copy the seeds of a read to the workspace for one read."""
    first = group.first_row[read]
    for i in range(group.n_seeds[read]):
        scratch.start[i] = group.start[first + i]
        scratch.length[i] = group.length[first + i]
        scratch.strand[i] = group.strand[first + i]
        scratch.sa_lo[i] = group.sa_lo[first + i]
        scratch.sa_hi[i] = group.sa_hi[first + i]


@core
def search_group(fm, codes, base_offsets, planes, word_offsets, chosen, first, params, scratch,
                 group, located):  # fmt: skip
    """Search the first of the rounds of some reads from `first` on, and locate the rare seeds.

    Parameters
    ----------
    chosen
        bool (n_reads,): the reads to seed.
    params
        SeedParams with its lengths filled in.
    scratch
        Workspace for one read.
    group, located
        Filled for :func:`diagonals_of`. `located` is a :class:`mapper.index.fm.RowsInWork` for
        ``READS_TOGETHER * params.max_hits`` rows.

    Returns
    -------
    The end of the reads, at least ``first + 1``.
    """
    seed_len = params.seed_len
    end = _list_seeds(codes, base_offsets, chosen, first, params, group)
    n_reads = end - first
    n_rows = group.first_row[n_reads]
    narrow_together(fm, codes, seed_len, group, np.int64(0), n_rows)
    for i in range(n_reads):
        n_seeds = group.first_row[i + 1] - group.first_row[i]
        lengthen_together(
            fm, codes, seed_len, base_offsets[first + i], base_offsets[first + i + 1],
            params.extend_over, group, group.first_row[i], n_seeds,
        )  # fmt: skip
    _locate_anchors(fm, seed_len, group, n_reads, located)
    n_pending = np.int64(0)
    for i in range(n_reads):
        n_pending = _place_unique(
            fm, planes, word_offsets[first + i], base_offsets[first + i],
            base_offsets[first + i + 1], seed_len, group, i, n_pending,
        )  # fmt: skip
    _complete(fm, codes, seed_len, group, n_pending)
    n_located = np.int64(0)
    for i in range(n_reads):
        _keep_occurring(
            base_offsets[first + i], base_offsets[first + i + 1], seed_len, params.max_occ, group, i
        )
        _take_seeds(group, i, scratch)
        n_seeds = group.n_seeds[i]
        order_seeds(scratch, n_seeds, ONE_LANE)
        group.first_located[i] = n_located
        group.n_rare[i], n_located = list_rarest(
            scratch, n_seeds, params.max_occ, params.max_hits, located, n_located
        )
        for seed in range(n_seeds):
            group.order[group.first_row[i] + seed] = scratch.order[seed]
    locate_together(fm, located, n_located)
    return end


@core
def diagonals_of(fm, group, read, params, scratch, working, located):
    """Leave the diagonals of a read of the group in `scratch`, if the first round is enough for it.

    Parameters
    ----------
    read
        Counted in the group.
    working
        As in :func:`mapper.seed.diagonals.find_diagonals`.

    Returns
    -------
    n_diags, guarantee, thinned
        As of :func:`mapper.seed.rounds.seed_read`; n_diags is 0 if it is to be asked.
    """
    n_seeds = group.n_seeds[read]
    n_tried = (group.first_row[read + 1] - group.first_row[read]) // 2
    if n_seeds == 0 or (n_seeds == 1 and n_tried > 1 and params.first_round == 0):
        return np.int64(0), np.int64(0), False
    _take_seeds(group, read, scratch)
    for i in range(n_seeds):
        scratch.order[i] = group.order[group.first_row[read] + i]
    n_diags, n_over_budget = collect_diagonals(
        fm, scratch, n_seeds, group.n_rare[read], params.max_occ, params.max_hits, working, located,
        group.first_located[read], ONE_LANE,
    )  # fmt: skip
    guarantee = max(np.int64(0), group.guarantee[read] - n_over_budget)
    return n_diags, guarantee, group.thinned[read] or n_over_budget > 0
