"""CUDA kernels that say what there is to align, and what becomes of it (``extend/cuda.py``)."""

from __future__ import annotations

from typing import Any, NamedTuple

from mapper.cuda.api import cuda, kernel
from mapper.cuda.warp import WARP, WarpLanes
from mapper.cuda.worklist import POOL
from mapper.dna import n_words
from mapper.extend.filter import keep_distinct
from mapper.extend.keep import keep_counting
from mapper.extend.locus import ungapped_ops
from mapper.extend.read import Found, edit_distance_of, sort_loci
from mapper.extend.settle import UNSPELT, propose, settle_read, target_after
from mapper.jit.accelerate import core
from mapper.jit.lanes import ONE_LANE


class Out(NamedTuple):
    """Columns of an AlignmentBatch with a row for each alignment."""

    strand: Any
    ref_id: Any
    text_start: Any
    text_end: Any
    query_start: Any
    query_end: Any
    score: Any
    edit_distance: Any


@core
def _length(reads, read):
    return reads.base_offsets[read + 1] - reads.base_offsets[read]


@kernel(128)
def begin(reads, loci, params, rows, lists, this):
    """Order the loci of one read a thread; list the first where gaps have to be tried."""
    read = cuda.grid(1)
    if read >= len(loci.locus_offsets) - 1:
        return
    first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
    if first == end:
        return
    sort_loci(rows.ungapped[first:end], rows.order[first:end], end - first, params.match)
    lead = first + rows.order[first]
    if propose(rows, lead, 0, _length(reads, read), params):
        lists.loci[0, cuda.atomic.add(lists.counters, this, 1)] = lead


@kernel(128)
def go_on(reads, loci, locus_read, params, rows, lists, this):
    """List all other loci where gaps have to be tried, one a thread."""
    locus = cuda.grid(1)
    if locus >= len(locus_read):
        return
    read = locus_read[locus]
    first = loci.locus_offsets[read]
    lead = first + rows.order[first]
    if locus == lead:
        return
    read_len = _length(reads, read)
    target = target_after(rows, loci, lead, locus, read_len, params)
    if propose(rows, locus, target, read_len, params):
        lists.loci[0, cuda.atomic.add(lists.counters, this, 1)] = locus


@kernel(128)
def settle(reads, loci, params, rows, lists, this, n_found):
    """Settle one read a thread; list the reads of which a locus has to be aligned again."""
    read = cuda.grid(1)
    if read >= len(n_found):
        return
    first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
    found, row, _ = settle_read(rows, loci, first, end - first, _length(reads, read), params)
    n_found[read] = found
    if row >= 0:
        lists.reads[cuda.atomic.add(lists.counters, this, 1)] = read


@core
def _found_of(rows, loci, first, end):
    """Alignments of the read whose loci are first:end, for functions that order them."""
    return Found(
        loci.strand[first:end],
        loci.ref_id[first:end],
        rows.found.text_start[first:end],
        rows.found.text_end[first:end],
        rows.found.query_start[first:end],
        rows.found.query_end[first:end],
        rows.found.score[first:end],
        rows.found.edit_distance[first:end],
        rows.found.cigar_start[first:end],
        rows.found.cigar_end[first:end],
    )


FEW_FOUND = 16
"""Alignments of a read that one thread orders and compares; a warp does more."""


@core
def _keep(reads, loci, params, rows, read, n_found, n_kept, lanes):
    """Keep the distinct alignments of a read that matter, and say which are to be spelt."""
    first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
    found, order = _found_of(rows, loci, first, end), rows.kept[first:end]
    kept = keep_distinct(found, order, n_found[read], lanes)
    kept = keep_counting(found, order, kept, _length(reads, read), 2, params, lanes)
    for i in range(lanes.lane, kept, lanes.n_lanes):
        row = first + rows.kept[first + i]
        if rows.found.cigar_end[row] == 0:
            rows.found.cigar_end[row] = UNSPELT
    if lanes.lane == 0:
        n_kept[read] = kept


@kernel(128)
def keep(reads, loci, params, rows, n_found, n_kept, lists, many):
    """Order the alignments of one read a thread; drop what was found twice or does not matter.

    Reads with many are listed for :func:`keep_by_warp`; `many` is the list's counter.
    `params` are KeepParams.
    """
    read = cuda.grid(1)
    if read >= len(n_found):
        return
    if n_found[read] > FEW_FOUND:
        lists.reads[cuda.atomic.add(lists.counters, many, 1)] = read
    else:
        _keep(reads, loci, params, rows, read, n_found, n_kept, ONE_LANE)


@kernel(128)
def keep_by_warp(reads, loci, params, rows, n_found, n_kept, lists, many, n_warps):
    """Do what `keep` does for the reads of its list, one a warp at a time."""
    thread = cuda.grid(1)
    warp = thread // WARP
    if warp >= n_warps:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    for item in range(warp, lists.counters[many], n_warps):
        _keep(reads, loci, params, rows, lists.reads[item], n_found, n_kept, lanes)


@kernel(128)
def spell(text_planes, reads, loci, locus_read, n_threads, scratch, rows, counters, pool_ops):
    """Write the operations of the ungapped alignments that are kept, one locus a thread."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    positions = scratch.positions[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    for locus in range(thread, len(locus_read), n_threads):
        if rows.found.cigar_end[locus] != UNSPELT:
            continue
        read = locus_read[locus]
        word = reads.word_offsets[read] + n_words(_length(reads, read)) * loci.strand[locus]
        n_ops = ungapped_ops(
            reads.planes, word, text_planes, loci.diagonal[locus],
            rows.ungapped[locus, 0], rows.ungapped[locus, 1], positions, ops, 0,
        )  # fmt: skip
        start = cuda.atomic.add(counters, POOL, n_ops)
        rows.found.edit_distance[locus] = edit_distance_of(ops, n_ops)
        rows.found.cigar_start[locus] = start
        rows.found.cigar_end[locus] = start + n_ops
        if start + n_ops <= len(pool_ops):
            for i in range(n_ops):
                pool_ops[start + i] = ops[i]


@kernel(128)
def count_ops(loci, rows, n_kept, n_ops):
    """Sum up the operations of one read a thread."""
    read = cuda.grid(1)
    if read >= len(n_kept):
        return
    first = loci.locus_offsets[read]
    total = 0
    for i in range(n_kept[read]):
        row = first + rows.kept[first + i]
        total += rows.found.cigar_end[row] - rows.found.cigar_start[row]
    n_ops[read] = total


@kernel(128)
def gather(loci, rows, pool_ops, op_offsets, out):
    """Copy the alignments of one read a thread to their place, best first."""
    read = cuda.grid(1)
    if read >= len(out.alignment_offsets) - 1:
        return
    if read == 0:
        out.cigar_offsets[0] = 0
    first = loci.locus_offsets[read]
    op = op_offsets[read]
    for to in range(out.alignment_offsets[read], out.alignment_offsets[read + 1]):
        row = first + rows.kept[first + to - out.alignment_offsets[read]]
        out.strand[to] = loci.strand[row]
        out.ref_id[to] = loci.ref_id[row]
        out.text_start[to] = rows.found.text_start[row]
        out.text_end[to] = rows.found.text_end[row]
        out.query_start[to] = rows.found.query_start[row]
        out.query_end[to] = rows.found.query_end[row]
        out.score[to] = rows.found.score[row] >> 1
        out.edit_distance[to] = rows.found.edit_distance[row]
        for i in range(rows.found.cigar_start[row], rows.found.cigar_end[row]):
            out.cigar_ops[op] = pool_ops[i]
            op += 1
        out.cigar_offsets[to + 1] = op
