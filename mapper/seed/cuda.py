"""CUDA driver of seeding: upload and pack reads, and find their seeds.

A thread takes a read; a warp takes one whose hits do not fit a thread's workspace, and each read
that is looked at again, of which hundreds of hits are located: a warp locates 32 at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import PackedReads, ReadBatch, SeedBatch, SeedSummary
from mapper.batch_ops import join_offsets, longest_row
from mapper.cuda.api import cuda, kernel
from mapper.cuda.launch import upload_in_place
from mapper.cuda.memory import Workspace
from mapper.cuda.warp import WARP, WarpLanes
from mapper.cuda.worklist import (
    POOL,
    Lists,
    Pool,
    PoolSize,
    check_lists,
    columns,
    first_capacity,
    new_lists,
    offsets_of,
    queue_total,
    threads_for,
)
from mapper.index.fm import FMIndex
from mapper.jit.accelerate import core
from mapper.jit.lanes import THREAD_LANE, lane_max, lanes_meet
from mapper.params import SeedParams
from mapper.seed.diagonals import SeedScratch, table_size
from mapper.seed.pack import pack_row, packed_offsets
from mapper.seed.rounds import SeedColumns, most_seeds, seed_read, write_seeds

# --- reads on the device ---


class DeviceReads(NamedTuple):
    """The columns of a ReadBatch and its PackedReads that the stages use, as device arrays."""

    bases: Any  # uint8
    base_offsets: Any  # int64 (n + 1,)
    planes: Any  # uint64 (n_words, 3)
    word_offsets: Any  # int64 (n + 1,)


@kernel(128)
def _pack(reads, n_rows):
    """Pack one strand of one read a thread."""
    row = cuda.grid(1)
    if row < n_rows:
        pack_row(
            reads.bases, reads.base_offsets, reads.planes, reads.word_offsets, row >> 1, row & 1
        )


def upload_reads(space: Workspace, batches: Sequence[ReadBatch]) -> tuple[DeviceReads, int]:
    """Copy reads to the device, concatenated, and pack them there; queued on the stream.

    The batches must be kept until `space` synchronizes.

    Returns
    -------
    The reads; the length of the longest, at least 1.
    """
    base_offsets = join_offsets([reads.base_offsets for reads in batches])
    word_offsets = packed_offsets(base_offsets)
    on_device = pack_on_device(
        space, upload_in_place(space, "bases", [reads.bases for reads in batches]),
        space.upload("base_offsets", base_offsets), space.upload("word_offsets", word_offsets),
        int(word_offsets[-1]),
    )  # fmt: skip
    return on_device, max(1, int(longest_row(base_offsets)))


def pack_on_device(
    space: Workspace, bases: Any, base_offsets: Any, word_offsets: Any, n_words: int
) -> DeviceReads:
    """Pack reads whose columns are on the device; queued on the stream.

    `n_words` is the last of `word_offsets`.
    """
    n_rows = n_words + 1
    planes = space.device("planes", 3 * n_rows, np.uint64).reshape(n_rows, 3)
    reads = DeviceReads(bases, base_offsets, planes, word_offsets)
    n_strands = 2 * (len(base_offsets) - 1)
    _pack.launch(n_strands, space.stream, reads, n_strands)
    return reads


def download_packed(space: Workspace, reads: DeviceReads) -> PackedReads:
    """Copy the bit planes to the host, equal to those of the CPU; waits for the stream."""
    n_words = len(reads.planes)
    planes = space.download("planes", reads.planes.reshape(3 * n_words))
    word_offsets = space.download("word_offsets", reads.word_offsets)
    space.synchronize()
    packed = planes.reshape(n_words, 3).copy()
    packed[-1] = 0  # the row of padding, which no kernel writes
    return PackedReads(packed, word_offsets.copy())


# --- seeding ---

FIRST_SEEDS, FIRST_DIAGONALS = 32, 32
"""Workspace of a thread in the first bucket: enough for reads with few occurrences."""

SEEDS_AT_FIRST = 24
"""Located seeds of a read for which the first batch of a stream has memory: in repeats there are
19, and a second pass costs as much as the first."""

SEEDING = 4
"""Blocks of seeding kernels that a multiprocessor has room for, at the price of some local memory:
they wait for the index most of their time."""

_COLUMNS = ("u1", "i4", "i8", "i4")
_SCRATCH = ("i4", "i4", "u1", "i8", "i8", "i4", "i8", "i4", "i4")


class SeedingSizes(NamedTuple):
    """Items of the workspace with which a read is seeded."""

    seeds: int
    diagonals: int
    slots: int


class PerRead(NamedTuple):
    """Columns of a SeedBatch with a row for each read."""

    guarantee: Any  # int32
    thinned: Any  # uint8


class DeviceSeeds(NamedTuple):
    """A SeedBatch on the device."""

    columns: SeedColumns
    read: Any  # int32: the read of each seed
    offsets: Any  # int64 (n_reads + 1,)
    per_read: PerRead


@core
def _seed_one(fm, reads, params, lists, bucket, read, scratch, pool, found, per_read, lanes):
    """Seed a read; append it to the next bucket if it does not fit."""
    n_diags, guarantee, thinned = seed_read(
        fm, None, reads.bases, reads.base_offsets[read], reads.base_offsets[read + 1],
        reads.planes, reads.word_offsets[read], params, params.max_hits, scratch, None, lanes,
    )  # fmt: skip
    start = np.int64(0)
    if lanes.lane == 0:
        if n_diags < 0:
            row = cuda.atomic.add(lists.counters, POOL + 2 + bucket, 1)
            lists.reads[bucket + 1, row] = read
        else:
            start = cuda.atomic.add(lists.counters, POOL, n_diags)
            pool.count[read] = n_diags
            pool.start[read] = start
            per_read.guarantee[read] = guarantee
            per_read.thinned[read] = thinned
    start = lane_max(start, lanes)
    if n_diags > 0 and start + n_diags <= len(found.strand):
        write_seeds(scratch, n_diags, found, start, lanes)
    lanes_meet(lanes)


@kernel(128, blocks_per_sm=SEEDING)
def _seed(fm, reads, params, lists, bucket, n_threads, scratch, pool, found, per_read):
    """Seed the reads of a bucket, one a thread."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    mine = SeedScratch(
        scratch.start[thread::n_threads],
        scratch.length[thread::n_threads],
        scratch.strand[thread::n_threads],
        scratch.sa_lo[thread::n_threads],
        scratch.sa_hi[thread::n_threads],
        scratch.order[thread::n_threads],
        scratch.diag[thread::n_threads],
        scratch.diag_seed[thread::n_threads],
        scratch.slots[thread::n_threads],
    )
    item = thread
    while item < lists.counters[POOL + 1 + bucket]:
        _seed_one(
            fm, reads, params, lists, bucket, lists.reads[bucket, item], mine, pool, found,
            per_read, THREAD_LANE,
        )  # fmt: skip
        item += n_threads


@kernel(128, blocks_per_sm=SEEDING)
def _seed_by_warp(fm, reads, params, lists, bucket, n_warps, sizes, scratch, pool, found,
                  per_read):  # fmt: skip
    """Seed the reads of a bucket, one a warp; `sizes` are those of a warp's workspace."""
    thread = cuda.grid(1)
    warp = thread // WARP
    if warp >= n_warps:
        return
    first_seed, first_diag = warp * sizes.seeds, warp * sizes.diagonals
    first_slot = warp * sizes.slots
    end_seed, end_diag = first_seed + sizes.seeds, first_diag + sizes.diagonals
    mine = SeedScratch(
        scratch.start[first_seed:end_seed],
        scratch.length[first_seed:end_seed],
        scratch.strand[first_seed:end_seed],
        scratch.sa_lo[first_seed:end_seed],
        scratch.sa_hi[first_seed:end_seed],
        scratch.order[first_seed:end_seed],
        scratch.diag[first_diag:end_diag],
        scratch.diag_seed[first_diag:end_diag],
        scratch.slots[first_slot : first_slot + sizes.slots],
    )
    lanes = WarpLanes(thread % WARP, WARP)
    for item in range(warp, lists.counters[POOL + 1 + bucket], n_warps):
        _seed_one(
            fm, reads, params, lists, bucket, lists.reads[bucket, item], mine, pool, found,
            per_read, lanes,
        )  # fmt: skip


@kernel(128)
def _gather(n_reads, pool, found, seed_offsets, out, seed_read):
    """Copy the seeds of a read from the pool to its rows, one read a thread."""
    read = cuda.grid(1)
    if read < n_reads:
        start, row = pool.start[read], seed_offsets[read]
        for i in range(pool.count[read]):
            out.strand[row + i] = found.strand[start + i]
            out.query_start[row + i] = found.query_start[start + i]
            out.text_pos[row + i] = found.text_pos[start + i]
            out.seed_len[row + i] = found.seed_len[start + i]
            seed_read[row + i] = read


def seed_reads(
    space: Workspace, fm: FMIndex, reads: DeviceReads, longest: int, params: SeedParams,
    chosen: Any | None = None,
) -> DeviceSeeds:  # fmt: skip
    """Find the diagonals of the exact seeds of each read: :func:`mapper.seed.cpu.seed_reads`.

    Parameters
    ----------
    fm
        With its arrays on the device.
    longest
        Bases of the longest read.
    chosen
        uint8 (n_reads,), on the device: the reads to seed, after all have been seeded in `space`.
        The others have no seeds; what is known of their first ones stays.

    Returns
    -------
    Arrays that are valid until `space` is used for another batch, or for a second call.
    """
    n_reads = len(reads.base_offsets) - 1
    pool = columns(space, "seed.pool", Pool, ("i4", "i8"), n_reads)
    per_read = columns(space, "seed.read", PerRead, ("i4", "u1"), n_reads)
    pool_size = PoolSize(space, "seed.found", first_capacity(n_reads, SEEDS_AT_FIRST))
    while True:
        found = columns(space, "seed.found", SeedColumns, _COLUMNS, pool_size.capacity)
        lists = _run_buckets(space, fm, reads, longest, params, chosen, pool, found, per_read)
        offsets = offsets_of(space, "seed.offsets", pool.count, n_reads)
        counters = space.download("counters", lists.counters)
        total = queue_total(space, "seed.offsets", offsets)
        space.synchronize()
        check_lists(counters)
        if pool_size.suffices(int(counters[POOL])):
            break
    n_seeds = int(total[0])
    out = columns(space, "seed.out", SeedColumns, _COLUMNS, n_seeds)
    seed_read = space.device("seed.read_of", n_seeds, np.int32)
    _gather.launch(n_reads, space.stream, n_reads, pool, found, offsets, out, seed_read)
    return DeviceSeeds(out, seed_read, offsets, per_read)


def download_seeds(space: Workspace, seeds: DeviceSeeds) -> SeedBatch:
    """Copy the batch to the host, equal to that of the CPU; waits for the stream."""
    there = (seeds.offsets, *seeds.columns)
    host = [space.download(f"seed.{i}", column) for i, column in enumerate(there)]
    summary = download_summary(space, seeds.per_read)
    return SeedBatch._make((*(column.copy() for column in host), *summary))


def download_summary(space: Workspace, per_read: PerRead) -> SeedSummary:
    """Copy what is known of the seeds of each read to the host; waits for the stream."""
    host = [space.download(f"seed.read {i}", column) for i, column in enumerate(per_read)]
    space.synchronize()
    guarantee, thinned = host
    return SeedSummary(guarantee.copy(), thinned.astype(np.bool_))


def _run_buckets(
    space: Workspace, fm: FMIndex, reads: DeviceReads, longest: int, params: SeedParams,
    chosen: Any | None, pool: Pool, found: SeedColumns, per_read: PerRead,
) -> Lists:  # fmt: skip
    """Queue the kernel for every bucket; return the worklists, whose counters hold the outcome."""
    n_reads = len(reads.base_offsets) - 1
    buckets = [_seeding_sizes(most_seeds(longest), params.max_hits)]
    if chosen is None:
        buckets.insert(0, _seeding_sizes(FIRST_SEEDS, FIRST_DIAGONALS))
    lists = new_lists(space, n_reads, len(buckets), pool, chosen)
    for bucket, sizes in enumerate(buckets):
        n_seeds, n_diags, n_slots = sizes
        n_units = threads_for(n_reads, 29 * n_seeds + 12 * n_diags + 4 * n_slots)
        items = (n_seeds,) * 6 + (n_diags,) * 2 + (n_slots,)
        scratch = SeedScratch(
            *(
                space.device(f"seed.scratch.{name}", n_units * n, np.dtype(dtype))
                for name, n, dtype in zip(SeedScratch._fields, items, _SCRATCH, strict=True)
            )
        )
        if sizes is buckets[-1]:
            _seed_by_warp.launch(
                WARP * n_units, space.stream, fm, reads, params, lists, bucket, n_units, sizes,
                scratch, pool, found, per_read,
            )  # fmt: skip
        else:
            _seed.launch(
                n_units, space.stream, fm, reads, params, lists, bucket, n_units, scratch, pool,
                found, per_read,
            )  # fmt: skip
    return lists


def _seeding_sizes(n_seeds: int, n_diagonals: int) -> SeedingSizes:
    return SeedingSizes(n_seeds, n_diagonals, table_size(n_diagonals))
