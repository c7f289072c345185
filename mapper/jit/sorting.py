"""Core: sort keys, by one thread or by lanes together."""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.lanes import lanes_meet, takes_vectors

RUN = 64
"""Keys of a run that are counted rather than merged: with 32 or 128 sorting takes as long."""


@core
def sort_descending(keys, n, lanes, spare):
    """Sort the first `n` keys (int64), which are distinct, the highest first.

    Parameters
    ----------
    lanes
        Share the pairs of a network; for a lane alone another way needs fewer comparisons.
    spare
        Workspace for `n` keys, of use on the CPU only: 140 keys are sorted in a third of the time.
        Or None.
    """
    if lanes.n_lanes > 1:
        _sort_by_network(keys, n, lanes)
    elif spare is not None and takes_vectors(lanes):
        _sort_by_merging(keys, n, spare)
    else:
        _sort_alone(keys, n)


@core
def _sort_by_merging(keys, n, spare):
    """Sort runs by counting, then merge them."""
    for first in range(np.int64(0), n, np.int64(RUN)):
        _sort_by_counting(keys[first:], min(np.int64(RUN), n - first), spare[first:])
    width = np.int64(RUN)  # of the sorted runs in `spare`
    while width < n:
        _merge_pairs(spare, keys, n, width)
        _merge_pairs(keys, spare, n, 2 * width)
        width *= 4
    for i in range(n):
        keys[i] = spare[i]


@core
def _sort_by_counting(keys, n, out):
    """Copy each key to its place: how many are higher. The compiler counts several at a time."""
    for i in range(n):
        key = keys[i]
        n_higher = np.int64(0)
        for j in range(n):
            n_higher += keys[j] > key
        out[n_higher] = key


@core
def _merge_pairs(keys, out, n, width):
    """Merge the runs of `width` keys by pairs."""
    one = np.uint64(1)
    for first in range(np.int64(0), n, 2 * width):
        a, b = np.uint64(first), np.uint64(min(first + width, n))
        to, a_end, b_end = a, b, np.uint64(min(first + 2 * width, n))
        while a < a_end and b < b_end:
            # No branch, which nobody could foresee.
            a_is_higher = np.uint64(keys[a] > keys[b])
            out[to] = max(keys[a], keys[b])
            a += a_is_higher
            b += one - a_is_higher
            to += one
        while a < a_end:
            out[to] = keys[a]
            a += one
            to += one
        while b < b_end:
            out[to] = keys[b]
            b += one
            to += one


@core
def _sort_alone(keys, n):
    """Sort by Shell's method."""
    gap = np.int64(1)
    while 3 * gap + 1 < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            key = keys[i]
            j = np.int64(i)
            while j >= gap and keys[j - gap] < key:
                keys[j] = keys[j - gap]
                j -= gap
            keys[j] = key
        gap //= 3


@core
def _put_higher_first(keys, low, high):
    if keys[low] < keys[high]:
        keys[low], keys[high] = keys[high], keys[low]


@core
def _sort_by_network(keys, n, lanes):
    """Sort by Batcher's bitonic network, with all comparisons in one direction.

    So the keys that are missing to a power of two count as lower than all, and stay behind.
    """
    width = np.int64(1)  # of runs that are sorted, a power of two
    while width < n:
        # Two runs become one that is sorted: first each key of one meets its mirror image.
        n_pairs = (n + 2 * width - 1) // (2 * width) * width
        for pair in range(lanes.lane, n_pairs, lanes.n_lanes):
            inside = pair & (width - 1)
            start = (pair - inside) << 1
            high = start + 2 * width - 1 - inside
            if high < n:
                _put_higher_first(keys, start + inside, high)
        lanes_meet(lanes)
        step = width >> 1
        while step > 0:
            n_pairs = (n + 2 * step - 1) // (2 * step) * step
            for pair in range(lanes.lane, n_pairs, lanes.n_lanes):
                inside = pair & (step - 1)
                low = ((pair - inside) << 1) + inside
                if low + step < n:
                    _put_higher_first(keys, low, low + step)
            lanes_meet(lanes)
            step >>= 1
        width <<= 1
