"""CUDA kernels of extension, launched by ``cuda.py``: align loci, commit reads, write CIGARs.

The loci of a read are aligned speculatively in parallel, with the result of one after the other.
What gaps must win at a locus (its *target*) depends on the best alignment at the loci before it
(:func:`mapper.extend.read.target_of`). A device aligns the first locus of every read, then all
others at once with the target that the first leaves: seldom less than what
:func:`mapper.extend.read.extend_read` would ask. An alignment found with a lower target tells what
a higher target would have found (:func:`mapper.extend.locus.align_gapped`), so that a read is
*committed* by going through its loci in order with the true targets (:func:`commit_read`). A locus
whose true target is lower is aligned again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.cuda.api import cuda, kernel
from mapper.cuda.warp import WARP, WarpLanes
from mapper.cuda.worklist import POOL
from mapper.dna import n_words
from mapper.extend.bounds import bound_sides, gaps_may_win, worth_extending
from mapper.extend.filter import as_given, keep_counting, keep_distinct, keep_distinct_by_place
from mapper.extend.locus import align_gapped, ungapped_ops
from mapper.extend.read import (
    Found,
    align_row,
    edit_distance_of,
    locus_key,
    lowest_doubled,
    order_loci,
    target_of,
    ungapped_of,
)
from mapper.extend.ungapped import ungapped_score
from mapper.extend.wavefront import Wavefronts
from mapper.jit.accelerate import core
from mapper.jit.lanes import THREAD_LANE, lane_max, lanes_meet

UNWRITTEN = -1
"""``cigar_end`` of an ungapped alignment whose operations are wanted and not written yet."""


class PerLocus(NamedTuple):
    """What is known of each locus; a read has the rows of its loci, from its first on."""

    ungapped: Any  # int32 (n_loci, 8): the fields of Ungapped
    keys: Any  # int64 (2 * n_loci,): workspace to sort by, two items for each locus
    order: Any  # int32: rows (from the read's first) by ungapped objective
    kept: Any  # int32: rows of alignments, in the order found, then best first
    target: Any  # int32: what `total` had to exceed
    total: Any  # int32: doubled objective with gaps; 0 where the ungapped alignment is the best
    found: Found
    """The alignment; ``score`` is doubled. Undefined before the read is committed, where
    the ungapped alignment is the best."""


@core
def propose(rows, row, target, read_len, params):
    """Set the target of a locus; return True if gaps have to be tried there."""
    rows.target[row] = target
    rows.total[row] = 0
    rows.found.cigar_start[row] = 0
    rows.found.cigar_end[row] = 0
    return gaps_may_win(ungapped_of(rows.ungapped[row]), read_len, target, params)


@core
def keep_ungapped(rows, row, diagonal, read_len, params):
    """Set the ungapped alignment as the result at a locus."""
    u = ungapped_of(rows.ungapped[row])
    rows.total[row] = 0
    rows.found.score[row] = ungapped_score(u, read_len, params)
    rows.found.query_start[row] = u.start
    rows.found.query_end[row] = u.end
    rows.found.text_start[row] = diagonal + u.start
    rows.found.text_end[row] = diagonal + u.end
    rows.found.cigar_start[row] = 0
    rows.found.cigar_end[row] = 0


@core
def target_after(rows, loci, lead, row, rank, read_len, params):
    """Return the target of a locus, `rank` in its read's order, after the first, `lead`."""
    u = ungapped_of(rows.ungapped[lead])
    best, start, end = ungapped_score(u, read_len, params), u.start, u.end
    if rows.total[lead] > 0:
        best = np.int64(rows.found.score[lead])
        start = np.int64(rows.found.query_start[lead])
        end = np.int64(rows.found.query_end[lead])
    if best < lowest_doubled(read_len, params):
        best = start = end = np.int64(0)
    start, end = as_given(start, end, loci.strand[lead], read_len)
    return target_of(
        ungapped_of(rows.ungapped[row]), loci.strand[row], read_len, best, start, end, rank, params
    )


@core
def commit_read(rows, loci, first, n_loci, read_len, params):
    """Go through the loci of a read in order, with their true targets.

    Parameters
    ----------
    first, n_loci
        Which rows are the read's.

    Returns
    -------
    n_found
        How many alignments there are; ``rows.kept`` has their rows, counted from `first`.
    row, target
        The first locus that was aligned with too high a target, and its true target; `row`
        is -1 if there is none, and the read is committed.
    """
    bar = lowest_doubled(read_len, params)
    best = best_start = best_end = np.int64(0)
    n_found = np.int64(0)
    for i in range(n_loci):
        row = first + rows.order[first + i]
        u = ungapped_of(rows.ungapped[row])
        target = target_of(u, loci.strand[row], read_len, best, best_start, best_end, i, params)
        if target < rows.target[row]:
            return n_found, row, target
        if rows.total[row] <= target:
            keep_ungapped(rows, row, loci.diagonal[row], read_len, params)
        doubled = np.int64(rows.found.score[row])
        if doubled < bar:
            continue
        if doubled > best:
            best = doubled
            best_start, best_end = as_given(
                rows.found.query_start[row], rows.found.query_end[row], loci.strand[row], read_len
            )
        rows.kept[first + n_found] = row - first
        n_found += 1
    return n_found, np.int64(-1), np.int64(0)


class Bucket(NamedTuple):
    """Workspace of the thread or the warp that aligns a read to a locus."""

    cells: int  # of each of the three states of the wavefronts
    penalties: int


class Lists(NamedTuple):
    """Worklists: loci to be aligned, in two lists by turns, and reads to be committed alone."""

    counters: Any  # int64: operations in the pool, then items of each list
    loci: Any  # int32 (2, n_loci)
    reads: Any  # int32 (n_reads,): to be committed alone; then reads with many alignments


class PerThread(NamedTuple):
    """Workspace of threads; item i of thread t is ``i * n_threads + t``."""

    positions: Any  # int32
    spare_ops: Any  # uint32
    ops: Any  # uint32


class PerUnit(NamedTuple):
    """Workspace of what aligns a read to a locus.

    Threads: interleaved, as in PerThread. Warps: that of one behind that of the other.
    """

    wavefronts: Wavefronts
    losses: Any  # int32


ALIGNING = 3
"""Blocks of aligning kernels that a multiprocessor has room for, at the price of a few numbers in
local memory: one block more than without a bound hides more of what each waits for."""


@kernel(128)
def align_ungapped(text_planes, reads, loci, locus_read, params, n_threads, positions, rows):
    """Align reads to their loci without gaps, one locus a thread at a time."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    mine = positions[thread::n_threads]
    for locus in range(thread, len(locus_read), n_threads):
        read = locus_read[locus]
        align_row(
            text_planes, reads.planes, reads.word_offsets[read],
            reads.base_offsets[read + 1] - reads.base_offsets[read], loci, locus, params, mine,
            rows.ungapped[locus],
        )  # fmt: skip


@kernel(128, blocks_per_sm=4)
def screen(text_planes, reads, loci, locus_read, params, penalties, lists, this, following, turn,
           n_threads, n_penalties, losses, rows):  # fmt: skip
    """List those loci of a list where gaps may pay by their bounds, one a thread at a time.

    At most repeats they cannot, and to tell takes a third of the registers that aligning does.
    `this` and `following` are the lists' counters, `turn` is the row of ``lists.loci``.
    """
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    mine = losses[thread::n_threads]
    for item in range(thread, lists.counters[this], n_threads):
        locus = lists.loci[turn, item]
        read = locus_read[locus]
        read_len = reads.base_offsets[read + 1] - reads.base_offsets[read]
        ungapped = ungapped_of(rows.ungapped[locus])
        target = np.int64(rows.target[locus])
        bounds = bound_sides(
            reads.planes, reads.word_offsets[read] + n_words(read_len) * loci.strand[locus],
            read_len, text_planes, loci.diagonal[locus], loci.window_start[locus],
            loci.window_end[locus], ungapped, target, params, penalties, n_penalties, mine,
            THREAD_LANE,
        )  # fmt: skip
        if worth_extending(bounds, ungapped, target, params):
            lists.loci[1 - turn, cuda.atomic.add(lists.counters, following, 1)] = locus


@core
def _align_locus(text_planes, reads, loci, read, locus, params, penalties, wavefronts, losses,
                 positions, spare_ops, ops, rows, counters, pool_ops, lanes):  # fmt: skip
    """Align a read to a locus with gaps, where they pay; say whether the workspace was enough."""
    read_len = reads.base_offsets[read + 1] - reads.base_offsets[read]
    total, doubled, query_start, query_end, text_start, text_end, n_ops = align_gapped(
        reads.planes, reads.word_offsets[read] + n_words(read_len) * loci.strand[locus], read_len,
        text_planes, loci.diagonal[locus], loci.window_start[locus], loci.window_end[locus],
        ungapped_of(rows.ungapped[locus]), np.int64(rows.target[locus]), params, penalties,
        wavefronts, positions, losses, spare_ops, ops, None, lanes,
    )  # fmt: skip
    if n_ops <= 0:
        return n_ops == 0
    start = np.int64(-1)
    if lanes.lane == 0:
        start = cuda.atomic.add(counters, POOL, n_ops)
        rows.total[locus] = total
        rows.found.score[locus] = doubled
        rows.found.query_start[locus] = query_start
        rows.found.query_end[locus] = query_end
        rows.found.text_start[locus] = text_start
        rows.found.text_end[locus] = text_end
        rows.found.edit_distance[locus] = edit_distance_of(ops, n_ops)
        rows.found.cigar_start[locus] = start
        rows.found.cigar_end[locus] = start + n_ops
    start = lane_max(start, lanes)
    if start + n_ops <= len(pool_ops):
        i = np.uint32(lanes.lane)
        while i < np.uint32(n_ops):
            pool_ops[np.uint64(start + i)] = ops[i]
            i = np.uint32(i + lanes.n_lanes)
    lanes_meet(lanes)
    return True


@kernel(128, blocks_per_sm=ALIGNING)
def extend_alone(text_planes, reads, loci, locus_read, params, penalties, lists, this, following,
                 turn, n_threads, sizes, scratch, shared, rows, pool_ops):  # fmt: skip
    """Align the loci of a list, one a thread at a time; list those that do not fit.

    `this` and `following` are the lists' counters, `turn` is the row of ``lists.loci``.
    """
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    wavefronts = Wavefronts(
        shared.wavefronts.match[thread::n_threads],
        shared.wavefronts.insertion[thread::n_threads],
        shared.wavefronts.deletion[thread::n_threads],
        shared.wavefronts.lo[thread::n_threads],
        shared.wavefronts.hi[thread::n_threads],
        shared.wavefronts.start[thread::n_threads],
    )
    losses = shared.losses[thread::n_threads]
    positions = scratch.positions[thread::n_threads]
    spare_ops = scratch.spare_ops[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    for item in range(thread, lists.counters[this], n_threads):
        locus = lists.loci[turn, item]
        if not _align_locus(
            text_planes, reads, loci, locus_read[locus], locus, params, penalties, wavefronts,
            losses, positions, spare_ops, ops, rows, lists.counters, pool_ops, THREAD_LANE,
        ):  # fmt: skip
            lists.loci[1 - turn, cuda.atomic.add(lists.counters, following, 1)] = locus


@core
def _warp_wavefronts(shared, sizes, warp):
    """Wavefronts of a warp."""
    cell, cells_end = warp * sizes.cells, (warp + 1) * sizes.cells
    bound, bounds_end = warp * sizes.penalties, (warp + 1) * sizes.penalties
    return Wavefronts(
        shared.wavefronts.match[cell:cells_end],
        shared.wavefronts.insertion[cell:cells_end],
        shared.wavefronts.deletion[cell:cells_end],
        shared.wavefronts.lo[bound:bounds_end],
        shared.wavefronts.hi[bound:bounds_end],
        shared.wavefronts.start[bound:bounds_end],
    )


@kernel(128, blocks_per_sm=ALIGNING)
def extend_by_warp(text_planes, reads, loci, locus_read, params, penalties, lists, this, following,
                   turn, n_threads, sizes, scratch, shared, rows, pool_ops):  # fmt: skip
    """Align the loci of a list, one a warp at a time; otherwise like `extend_alone`."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    warp = thread // WARP
    n_warps = n_threads // WARP
    wavefronts = _warp_wavefronts(shared, sizes, warp)
    n_losses = len(shared.losses) // n_warps
    losses = shared.losses[warp * n_losses : (warp + 1) * n_losses]
    positions = scratch.positions[thread::n_threads]
    spare_ops = scratch.spare_ops[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    for item in range(warp, lists.counters[this], n_warps):
        locus = lists.loci[turn, item]
        if (
            not _align_locus(
                text_planes, reads, loci, locus_read[locus], locus, params, penalties, wavefronts,
                losses, positions, spare_ops, ops, rows, lists.counters, pool_ops, lanes,
            )
            and lanes.lane == 0
        ):  # fmt: skip
            lists.loci[1 - turn, cuda.atomic.add(lists.counters, following, 1)] = locus


@kernel(128, blocks_per_sm=ALIGNING)
def commit_by_warp(text_planes, reads, loci, params, penalties, lists, this, following, n_threads,
                   sizes, scratch, shared, rows, pool_ops, n_found):  # fmt: skip
    """Commit the listed reads, one a warp: align the loci again whose target was too high."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    warp = thread // WARP
    n_warps = n_threads // WARP
    wavefronts = _warp_wavefronts(shared, sizes, warp)
    n_losses = len(shared.losses) // n_warps
    losses = shared.losses[warp * n_losses : (warp + 1) * n_losses]
    positions = scratch.positions[thread::n_threads]
    spare_ops = scratch.spare_ops[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    for item in range(warp, lists.counters[this], n_warps):
        read = lists.reads[item]
        first = loci.locus_offsets[read]
        n_loci = loci.locus_offsets[read + 1] - first
        read_len = reads.base_offsets[read + 1] - reads.base_offsets[read]
        found, row, target = commit_read(rows, loci, first, n_loci, read_len, params)
        while row >= 0:
            lanes_meet(lanes)  # all have seen the target that is replaced now
            rows.target[row] = target
            rows.total[row] = 0
            lanes_meet(lanes)
            if (
                not _align_locus(
                    text_planes, reads, loci, read, row, params, penalties, wavefronts,
                    losses, positions, spare_ops, ops, rows, lists.counters, pool_ops, lanes,
                )
                and lanes.lane == 0
            ):  # fmt: skip
                cuda.atomic.add(lists.counters, following, 1)
            lanes_meet(lanes)
            found, row, target = commit_read(rows, loci, first, n_loci, read_len, params)
        if lanes.lane == 0:
            n_found[read] = found


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


FEW_LOCI = 24
"""Loci of a read that one thread orders; a warp does more."""


@core
def _begin_read(reads, loci, params, rows, lists, this, read, lanes):
    """Order the loci of a read, and list the first if gaps have to be tried there."""
    first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
    keys = rows.keys[2 * first : 2 * end]
    for i in range(lanes.lane, end - first, lanes.n_lanes):
        keys[i] = locus_key(rows.ungapped[first + i], i, params.match)
    lanes_meet(lanes)
    order_loci(keys, rows.order[first:end], end - first, lanes)
    if lanes.lane == 0:
        lead = first + rows.order[first]
        if propose(rows, lead, 0, _length(reads, read), params):
            lists.loci[0, cuda.atomic.add(lists.counters, this, 1)] = lead


@kernel(128)
def begin(reads, loci, params, rows, lists, this, many):
    """Order the loci of one read a thread; list the first where gaps have to be tried.

    Reads with many are listed for :func:`begin_by_warp`; `many` is the list's counter.
    """
    read = cuda.grid(1)
    if read >= len(loci.locus_offsets) - 1:
        return
    n_loci = loci.locus_offsets[read + 1] - loci.locus_offsets[read]
    if n_loci > FEW_LOCI:
        lists.reads[cuda.atomic.add(lists.counters, many, 1)] = read
    elif n_loci > 0:
        _begin_read(reads, loci, params, rows, lists, this, read, THREAD_LANE)


@kernel(128)
def begin_by_warp(reads, loci, params, rows, lists, this, many, n_warps):
    """Do what `begin` does for the reads of its list, one a warp at a time."""
    thread = cuda.grid(1)
    warp = thread // WARP
    if warp >= n_warps:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    for item in range(warp, lists.counters[many], n_warps):
        _begin_read(reads, loci, params, rows, lists, this, lists.reads[item], lanes)


@kernel(128)
def go_on(reads, loci, locus_read, params, rows, lists, this):
    """List the other loci of all reads where gaps have to be tried, one a thread."""
    item = cuda.grid(1)
    if item >= len(locus_read):
        return
    read = locus_read[item]
    first = loci.locus_offsets[read]
    lead, locus = first + rows.order[first], first + rows.order[item]
    if locus == lead:
        return
    read_len = _length(reads, read)
    target = target_after(rows, loci, lead, locus, item - first, read_len, params)
    if propose(rows, locus, target, read_len, params):
        lists.loci[0, cuda.atomic.add(lists.counters, this, 1)] = locus


@kernel(128)
def commit(reads, loci, params, rows, lists, this, n_found):
    """Commit one read a thread; list the reads of which a locus has to be aligned again."""
    read = cuda.grid(1)
    if read >= len(n_found):
        return
    first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
    found, row, _ = commit_read(rows, loci, first, end - first, _length(reads, read), params)
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
def _keep(reads, loci, params, rows, read, kept, n_kept, lanes):
    """Keep those of a read's distinct alignments that matter, and say which are to be spelt."""
    first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
    found, order = _found_of(rows, loci, first, end), rows.kept[first:end]
    kept = keep_counting(found, order, kept, _length(reads, read), 2, params, lanes)
    for i in range(lanes.lane, kept, lanes.n_lanes):
        row = first + rows.kept[first + i]
        if rows.found.cigar_end[row] == 0:
            rows.found.cigar_end[row] = UNWRITTEN
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
        first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
        found = _found_of(rows, loci, first, end)
        kept = keep_distinct(found, rows.kept[first:end], n_found[read])
        _keep(reads, loci, params, rows, read, kept, n_kept, THREAD_LANE)


@kernel(128)
def keep_by_warp(reads, loci, params, rows, n_found, n_kept, lists, many, n_warps):
    """Do what `keep` does for the reads of its list, one a warp at a time."""
    thread = cuda.grid(1)
    warp = thread // WARP
    if warp >= n_warps:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    for item in range(warp, lists.counters[many], n_warps):
        read = lists.reads[item]
        first, end = loci.locus_offsets[read], loci.locus_offsets[read + 1]
        found, spare = _found_of(rows, loci, first, end), rows.order[first:end]
        kept = keep_distinct_by_place(
            found, rows.kept[first:end], n_found[read], spare, rows.keys[2 * first : 2 * end], lanes
        )
        _keep(reads, loci, params, rows, read, kept, n_kept, lanes)


@kernel(128)
def write_cigars(text_planes, reads, loci, locus_read, n_threads, scratch, rows, counters,
                 pool_ops):  # fmt: skip
    """Write the operations of the ungapped alignments that are kept, one locus a thread."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    positions = scratch.positions[thread::n_threads]
    ops = scratch.ops[thread::n_threads]
    for locus in range(thread, len(locus_read), n_threads):
        if rows.found.cigar_end[locus] != UNWRITTEN:
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


@core
def _gather_read(loci, rows, pool_ops, op_offsets, out, read, lanes):
    """Copy the alignments of a read to their place, best first."""
    first = loci.locus_offsets[read]
    out_first, out_end = out.alignment_offsets[read], out.alignment_offsets[read + 1]
    op = op_offsets[read]
    for to in range(out_first + lanes.lane, out_end, lanes.n_lanes):
        row = first + rows.kept[first + to - out_first]
        out.strand[to] = loci.strand[row]
        out.ref_id[to] = loci.ref_id[row]
        out.text_start[to] = rows.found.text_start[row]
        out.text_end[to] = rows.found.text_end[row]
        out.query_start[to] = rows.found.query_start[row]
        out.query_end[to] = rows.found.query_end[row]
        out.score[to] = rows.found.score[row] >> 1
        out.edit_distance[to] = rows.found.edit_distance[row]
    for to in range(out_first, out_end):
        row = first + rows.kept[first + to - out_first]
        start, end = rows.found.cigar_start[row], rows.found.cigar_end[row]
        for i in range(lanes.lane, end - start, lanes.n_lanes):
            out.cigar_ops[op + i] = pool_ops[start + i]
        op += end - start
        out.cigar_offsets[to + 1] = op


@kernel(128)
def gather(loci, rows, pool_ops, op_offsets, out, n_found):
    """Copy the alignments of a read with few of them, one read a thread."""
    read = cuda.grid(1)
    if read >= len(out.alignment_offsets) - 1:
        return
    if read == 0:
        out.cigar_offsets[0] = 0
    if n_found[read] <= FEW_FOUND:
        _gather_read(loci, rows, pool_ops, op_offsets, out, read, THREAD_LANE)


@kernel(128)
def gather_by_warp(loci, rows, pool_ops, op_offsets, out, lists, many, n_warps):
    """Do what `gather` does for the reads listed by `keep`, one a warp at a time."""
    thread = cuda.grid(1)
    warp = thread // WARP
    if warp >= n_warps:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    for item in range(warp, lists.counters[many], n_warps):
        _gather_read(loci, rows, pool_ops, op_offsets, out, lists.reads[item], lanes)
