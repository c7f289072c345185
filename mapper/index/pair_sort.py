"""Core: sort keys with the text positions that belong to them, in the processor's cache."""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core

STACK = 128
"""Items of the stack: two for each halving of a range, of at most 2**63 items."""

_SHORT = 16
"""Ranges up to this length are sorted by insertion."""


@core
def scrambled(lo, hi, turn, size):
    """An offset below `size` that depends on nothing in the data (a multiplicative hash)."""
    mixed = np.uint64(lo + 3 * hi + turn) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(33)) % np.uint64(size))


@core
def swap(keys, positions, i, j):
    """Exchange two keys, and the positions that belong to them."""
    key = keys[i]
    keys[i] = keys[j]
    keys[j] = key
    position = positions[i]
    positions[i] = positions[j]
    positions[j] = position


@core
def middle_of_three(keys, lo, hi):
    """Index of the middle one of three keys of ``[lo, hi)``, drawn by a hash.

    No order of the keys that a text could bring about is bad for such pivots.
    """
    size = hi - lo
    a = lo + scrambled(lo, hi, 0, size)
    b = lo + scrambled(lo, hi, 1, size)
    c = lo + scrambled(lo, hi, 2, size)
    if keys[a] > keys[b]:
        a, b = b, a
    if keys[b] <= keys[c]:
        return b
    return c if keys[c] > keys[a] else a


@core
def sort_short(keys, positions, lo, hi):
    """Sort by insertion."""
    for i in range(lo + 1, hi):
        key = keys[i]
        position = positions[i]
        j = i
        while j > lo and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            positions[j] = positions[j - 1]
            j -= 1
        keys[j] = key
        positions[j] = position


@core
def partition(keys, positions, lo, hi):
    """Split ``[lo, hi)``, of two items or more, at the returned index.

    No key left of it is larger than any right of it, and neither side is empty. Equal keys
    go to both sides, so that ranges of equal keys split in halves.

    References
    ----------
    Hoare (1962), doi:10.1093/comjnl/5.1.10.
    """
    swap(keys, positions, lo, middle_of_three(keys, lo, hi))
    pivot = keys[lo]
    i = lo
    j = hi - 1
    while True:
        while keys[i] < pivot:
            i += 1
        while keys[j] > pivot:
            j -= 1
        if i >= j:
            return j + 1
        swap(keys, positions, i, j)
        i += 1
        j -= 1


@core
def sort_pairs(keys, positions, lo, hi, stack):
    """Sort ``keys[lo:hi]`` (unsigned) ascending and `positions` with them; not stable.

    Parameters
    ----------
    stack
        int64 (STACK,): scratch.
    """
    stack[0] = lo
    stack[1] = hi
    top = 2
    while top > 0:
        top -= 2
        lo = stack[top]
        hi = stack[top + 1]
        while hi - lo > _SHORT:
            split = partition(keys, positions, lo, hi)
            # The larger side waits: the stack holds at most one range for each halving.
            if split - lo < hi - split:
                stack[top] = split
                stack[top + 1] = hi
                hi = split
            else:
                stack[top] = lo
                stack[top + 1] = split
                lo = split
            top += 2
        sort_short(keys, positions, lo, hi)
