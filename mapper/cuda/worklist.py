"""Worklists, result pools and prefix sums of kernels with one thread for each read.

**Buckets.** A stage launches its kernel several times, each time with a larger workspace for a
thread, and only for the reads that did not fit before: thread t takes items t, t + n_threads, ...
of the worklist that the previous launch wrote. The last bucket fits any read. Neither the bucket
of a read nor the order of a worklist affects a result.

**Pools.** Results of unknown size go to a pool, in the order in which threads reserve their part
of it; the start of each read's part is recorded, and a second kernel puts the parts into the
order of the reads. If the pool is too small, the stage runs again with a larger one: its counter
counts all items, so the size is then known.

**Prefix sums**, from counts to offsets. Each thread sums a group of items; the sums are scanned the
same way, level by level, and each thread then scans its own group: two passes over the counts
at the bandwidth of memory, no shared memory and no barrier, so the simulator runs the same text.
A library (cuda-cccl) would be one more dependency. The streamed alignment of pairs has a scan of
its own (:mod:`mapper.align.cuda.kernels`): it counts three things in one pass over a chunk, and
scans the few totals of blocks in a single launch, where this one takes two for each level.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace, copy_in, total_bytes
from mapper.errors import DeviceError, option

GROUP = 128
"""Items of a thread in a prefix sum: many, as the sums of a batch take microseconds, and queueing a
level of them as long."""


@kernel(128)
def _sum_groups(counts, n, sums):
    group = cuda.grid(1)
    start = group * GROUP
    if start < n:
        total = np.int64(0)
        for i in range(start, min(n, start + GROUP)):
            total += counts[i]
        sums[group] = total


@kernel(128)
def _scan_groups(counts, n, group_starts, offsets):
    group = cuda.grid(1)
    start = group * GROUP
    if start < n:
        at = group_starts[group]
        end = min(n, start + GROUP)
        for i in range(start, end):
            count = counts[i]  # before the write: both may be one array
            offsets[i] = at
            at += count
        if end == n:
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
    n_groups = (n + GROUP - 1) // GROUP
    if n_groups <= 1:
        group_starts = space.upload(f"{name} 0", np.zeros(1, np.int64))
    else:
        sums = space.device(f"{name} sums", n_groups, np.int64)
        _sum_groups.launch(n_groups, space.stream, counts, n, sums)
        group_starts = offsets_of(space, f"{name} +", sums, n_groups)
    _scan_groups.launch(n_groups, space.stream, counts, n, group_starts, offsets)
    if n == 0:
        copy_in(offsets, np.zeros(1, np.int64), 1, space.stream)
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
