"""Prefix sums on the device: from counts to offsets.

Each thread sums a group of items; the sums are scanned the same way, level by level, and each
thread then scans its own group. No shared memory and no barrier, so the simulator runs
it as it is. Two passes over the counts at the rate of memory are a small part of the work
that made them, and a library for it (cuda-cccl) would have to be carried by every
installation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mapper.cuda.api import cuda, kernel
from mapper.cuda.copies import copy_in
from mapper.cuda.memory import Workspace

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
