"""Core: sort keys, by one thread or by lanes together."""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.lanes import lanes_meet


@core
def sort_descending(keys, n, lanes):
    """Sort the first `n` keys (int64), which are distinct, the highest first.

    Lanes share the pairs of a network; for a lane alone another way needs fewer comparisons.
    """
    if lanes.n_lanes == 1:
        _sort_alone(keys, n)
    else:
        _sort_by_network(keys, n, lanes)


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
