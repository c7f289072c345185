"""Worklists, result pools and prefix sums of kernels with one thread for each read.

**Buckets.** A stage launches its kernel several times, each time with a larger workspace for a
thread, and only for the reads that did not fit before: thread t takes items t, t + n_threads, ...
of the worklist that the previous launch wrote. The last bucket fits any read. Neither the bucket
of a read nor the order of a worklist affects a result.

**Pools.** Results of unknown size go to a pool, in the order in which threads reserve their part
of it; the start of each read's part is recorded, and a second kernel puts the parts into the
order of the reads. If the pool is too small, the stage runs again with a larger one: its counter
counts all items, so the size is then known.

**Prefix sums**, from counts to offsets. Each warp sums a group of items; then each adds up the sums
of the groups before its own, and scans that: two launches, as queueing one takes as long as its
work on a batch, no shared memory and no barrier, so the simulator runs the same text. A library
(cuda-cccl) would be one more dependency. The streamed alignment of pairs has a scan of its own
(:mod:`mapper.align.cuda.kernels`): it counts three things in one pass over a chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace, total_bytes
from mapper.cuda.warp import WARP, WarpLanes, sum_before
from mapper.errors import DeviceError, option
from mapper.jit.lanes import lane_sum

MOST_GROUPS = 512
"""Groups of a prefix sum: each is a warp's, which adds up the sums of all groups before its own."""


@kernel(128)
def _sum_groups(counts, n, size, sums):
    thread = cuda.grid(1)
    lanes = WarpLanes(thread % WARP, WARP)
    group = thread // WARP
    start = group * size
    if start < n:
        total = np.int64(0)
        for i in range(start + lanes.lane, min(n, start + size), WARP):
            total += counts[i]
        total = lane_sum(total, lanes)
        if lanes.lane == 0:
            sums[group] = total


@kernel(128)
def _scan_groups(counts, n, size, sums, offsets):
    thread = cuda.grid(1)
    lanes = WarpLanes(thread % WARP, WARP)
    group = thread // WARP
    start = group * size
    if start < n or group == 0:
        at = np.int64(0)
        for i in range(lanes.lane, group, WARP):
            at += sums[i]
        at = lane_sum(at, lanes)
        end = min(n, start + size)
        for first in range(start, end, WARP):
            i = first + lanes.lane
            count = np.int64(0)
            if i < end:
                count += counts[i]
            before, all_of_them = sum_before(count, lanes.lane)
            if i < end:
                offsets[i] = at + before
            at += all_of_them
        if end == n and lanes.lane == 0:
            offsets[n] = at


def offsets_of(space: Workspace, name: str, counts: Any, n: int) -> Any:
    """Return the offsets of ragged rows: int64 (n + 1,), the first 0, on the device.

    Parameters
    ----------
    name
        Name of the array in the workspace.
    counts
        Device array of integers (n,): items of each row.
    """
    offsets = space.device(name, n + 1, np.int64)
    size = WARP * max(1, -(-n // (WARP * MOST_GROUPS)))
    n_groups = -(-n // size)
    sums = space.device(f"{name} sums", MOST_GROUPS, np.int64)
    _sum_groups.launch(n_groups * WARP, space.stream, counts, n, size, sums)
    # Without rows there is a group, too, which writes the first offset.
    n_threads = max(n_groups, 1) * WARP
    _scan_groups.launch(n_threads, space.stream, counts, n, size, sums, offsets)
    return offsets


def queue_total(space: Workspace, name: str, offsets: Any) -> np.ndarray:
    """Queue the download of all that :func:`offsets_of` counted; see :meth:`Workspace.download`."""
    return space.download(f"{name} total", offsets[len(offsets) - 1 :])


POOL = 0
"""Index of the counter of the stage's pool; those of the worklists follow, one a bucket."""

MAX_SCRATCH_BYTES = 1 << 30
"""Most workspace of all threads of a bucket; a larger one for each thread means fewer threads."""


class Lists(NamedTuple):
    """Worklists of the buckets, on the device."""

    counters: Any  # int64 (2 + n_buckets,)
    reads: Any  # int32 (n_buckets + 1, n_reads): row b is the worklist of bucket b


class Pool(NamedTuple):
    """Parts of reads in a pool; the columns of the pool belong to the stage."""

    count: Any  # int32 (n_reads,): items of each read
    start: Any  # int64 (n_reads,): first of them


@kernel(128)
def _number(lists, n_reads):
    """Fill the first worklist with all reads."""
    read = cuda.grid(1)
    if read < n_reads:
        lists.reads[0, read] = read


@kernel(128)
def _choose(lists, chosen, n_reads, pool):
    """Fill the first worklist with the chosen reads, in any order; the others have no items."""
    read = cuda.grid(1)
    if read < n_reads:
        if chosen[read]:
            lists.reads[0, cuda.atomic.add(lists.counters, POOL + 1, 1)] = read
        else:
            pool.count[read] = 0


def new_lists(
    space: Workspace, n_reads: int, n_buckets: int, pool: Pool, chosen: Any | None = None
) -> Lists:
    """Return the worklists before the first bucket, which gets every read.

    Parameters
    ----------
    pool
        Of the stage.
    chosen
        uint8 (n_reads,), on the device: only these reads; the others get no items in the pool.
    """
    counters = np.zeros(2 + n_buckets, np.int64)
    if chosen is None:
        counters[POOL + 1] = n_reads
    reads = space.device("lists", (n_buckets + 1) * n_reads, np.int32)
    lists = Lists(space.upload("counters", counters), reads.reshape(n_buckets + 1, n_reads))
    if chosen is None:
        _number.launch(n_reads, space.stream, lists, n_reads)
    else:
        _choose.launch(n_reads, space.stream, lists, chosen, n_reads, pool)
    return lists


def check_lists(counters: np.ndarray) -> None:
    """Raise DeviceError if reads remain after the last bucket; `counters`: int64, after it."""
    if counters[-1]:
        raise DeviceError(
            f"{counters[-1]} reads do not fit the largest workspace; this is a bug in fmwave, "
            f"please report it, and use {option('device', 'cpu')}"
        )


def first_capacity(n_items: int, each: int) -> int:
    """Return the size of a pool of `n_items` reads before the needed size is known."""
    return each * n_items + 1024


class PoolSize:
    """Size of a pool: the largest that a batch of this workspace has needed.

    Parameters
    ----------
    name
        Name of the pool in `space`, which keeps the record.
    first
        The least size.
    """

    def __init__(self, space: Workspace, name: str, first: int) -> None:
        self._most_needed, self._name = space.most_needed, name
        self.capacity = max(first, self._most_needed.get(name, 0))

    def suffices(self, needed: int) -> bool:
        """Return True if the pool had the `needed` items; else raise its capacity to them."""
        if needed <= self.capacity:
            return True
        self.capacity = needed
        # An eighth more, so that similar batches need no second pass.
        self._most_needed[self._name] = needed + (needed >> 3)
        return False


def threads_for(n_items: int, bytes_each: int) -> int:
    """Return the number of threads (or warps) of a bucket, each with `bytes_each` of workspace.

    A bucket gets at most a 128th of the device's memory, which holds the index and the
    workspaces of several streams.
    """
    budget = min(MAX_SCRATCH_BYTES, total_bytes() >> 7)
    return max(1, min(n_items, budget // bytes_each))


def columns(space: Workspace, name: str, kind: Any, types: tuple[str, ...], n: int) -> Any:
    """Return a NamedTuple of device arrays of `n` items each, named after `name`."""
    return kind(
        *(space.device(f"{name}.{field}", n, np.dtype(dtype))
          for field, dtype in zip(kind._fields, types, strict=True))
    )  # fmt: skip
