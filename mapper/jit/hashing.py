"""Hashes of integers, for compiled code on either target, and of bytes."""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.simd import get32


@core
def splitmix64(value, key):
    """Hash an integer with a key to 64 bits (splitmix64, its state advanced `key` times).

    References
    ----------
    Steele, Lea, Flood (2014), doi:10.1145/2660193.2660195.
    """
    mixed = np.uint64(value) + np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@core
def hash_bytes(data, at, n, key):
    """Hash the `n` bytes at `at` and their number to 64 bits, on the CPU."""
    mixed = splitmix64(n, key)
    end = at + n
    while at + 8 <= end:
        low, high = get32(data, at) & 0xFFFFFFFF, get32(data, at + 4) & 0xFFFFFFFF
        word = np.uint64(high) << np.uint64(32) | np.uint64(low)
        mixed = splitmix64(mixed ^ word, key)
        at += 8
    if at < end:
        word = np.uint64(0)
        while at < end:
            word = word << np.uint64(8) | np.uint64(data[at])
            at += 1
        mixed = splitmix64(mixed ^ word, key)
    return mixed
