"""A hash of integers, for compiled code on either target."""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core


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
