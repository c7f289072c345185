"""What kernels with one thread for each read share: lists of reads, slices, pools.

**Buckets.** A stage runs its kernel several times over, each time with more work space for a
thread, and each time only for the reads that did not fit before: thread t takes items t,
t + n_threads, ... of the list that the launch before made. The last bucket fits any read, so
nothing is left over. Which bucket did a read, and in what order a list came about, reaches no
result.

**Pools.** Results of unknown size go to a pool, in the order in which the threads come to
reserve their part of it; where each read's part starts is kept, and a second kernel puts
the parts into the order of the reads. A pool that was too small is made larger, and the
stage runs again: its counter has counted on, so that the size is then known.

Prefix sums on the device: from counts to offsets.

Each thread sums a group of items; the sums are scanned the same way, level by level, and each
thread then scans its own group. No shared memory and no barrier, so the simulator runs
it as it is. Two passes over the counts at the rate of memory are a small part of the work
that made them, and a library for it (cuda-cccl) would have to be carried by every
installation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace, copy_in, total_bytes
from mapper.errors import DeviceError

GROUP = 8
"""Items of a thread: few, so that the threads of a warp write side by side."""


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
        Of the array in the workspace.
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
    # With no counts at all, one thread still has the total to write.
    _scan_groups.launch(n_groups, space.stream, counts, n, group_starts, offsets)
    if n == 0:
        copy_in(offsets, np.zeros(1, np.int64), 1, space.stream)
    return offsets


POOL = 0
"""The counter of the stage's pool; those of the lists follow, one for each bucket."""

MAX_SCRATCH_BYTES = 1 << 30
"""Most work space of the threads of a bucket; with larger slices there are fewer threads."""


class Lists(NamedTuple):
    """Which reads a bucket does and where it leaves the others, on the device."""

    counters: Any  # int64 (2 + n_buckets,)
    reads: Any  # int32 (n_buckets + 1, n_reads): row b is the list of bucket b


class Pool(NamedTuple):
    """Where the results of reads lie; the columns themselves belong to the stage."""

    count: Any  # int32 (n_reads,): items of each read
    start: Any  # int64 (n_reads,): first of them


@kernel(128)
def _number(lists, n_reads):
    """Fill the first list: every read."""
    read = cuda.grid(1)
    if read < n_reads:
        lists.reads[0, read] = read


def new_lists(space: Workspace, n_reads: int, n_buckets: int) -> Lists:
    """Return the lists before the first bucket, which does every read."""
    counters = np.zeros(2 + n_buckets, np.int64)
    counters[POOL + 1] = n_reads
    reads = space.device("lists", (n_buckets + 1) * n_reads, np.int32)
    lists = Lists(space.upload("counters", counters), reads.reshape(n_buckets + 1, n_reads))
    _number.launch(n_reads, space.stream, lists, n_reads)
    return lists


def check_lists(counters: np.ndarray) -> None:
    """Raise DeviceError if the last bucket left reads over (int64 counters, of after it)."""
    if counters[-1]:
        raise DeviceError(
            f"{counters[-1]} reads do not fit the largest work space; this is a bug in fmwave, "
            "please report it, and use --device cpu"
        )


def first_capacity(n_items: int, each: int) -> int:
    """Return the size of a pool before it is known how much is needed."""
    return each * n_items + 1024


class PoolSize:
    """How large to make a pool: as large as an earlier batch of the stream needed it.

    Parameters
    ----------
    name
        Of the pool in `space`, which keeps the record.
    first
        The size that is enough until some batch says otherwise.
    """

    def __init__(self, space: Workspace, name: str, first: int) -> None:
        self._most_needed, self._name = space.most_needed, name
        self.capacity = max(first, self._most_needed.get(name, 0))

    def suffices(self, needed: int) -> bool:
        """Say whether what a pass over the batch needed was there; if not, make it larger."""
        if needed <= self.capacity:
            return True
        self.capacity = needed
        # An eighth more, so that batches of like kind need no second pass.
        self._most_needed[self._name] = needed + (needed >> 3)
        return False


def threads_for(n_items: int, bytes_each: int) -> int:
    """Return how many threads (or warps) of a bucket have work space at a time.

    At most a 128th of the device's memory goes to a bucket: several lanes, each with the
    buffers of its largest bucket, have to live beside the index.
    """
    budget = min(MAX_SCRATCH_BYTES, total_bytes() >> 7)
    return max(1, min(n_items, budget // bytes_each))


def columns(space: Workspace, name: str, kind: Any, types: tuple[str, ...], n: int) -> Any:
    """Return a NamedTuple of device arrays of `n` items each, named after `name`."""
    return kind(
        *(space.device(f"{name}.{field}", n, np.dtype(dtype))
          for field, dtype in zip(kind._fields, types, strict=True))
    )  # fmt: skip
