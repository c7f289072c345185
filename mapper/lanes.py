"""Lanes: how many threads share the work on one read, for compiled cores.

A core that is handed :class:`Lanes` deals its innermost loop to them and lets them agree by
the functions here. On the CPU one lane does it all, and the functions do nothing; these
Python bodies are that meaning. On a device a warp may share a read: there
:mod:`mapper.device.lanes` supplies warp instructions under the same names.

All lanes run the same text with the same values, in step wherever they agree; each has work
space of its own for what is changed in place, and all write the same values to the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload


class Lanes(NamedTuple):
    """Which lane this thread is, of how many."""

    lane: int
    n_lanes: int  # 1 or, on a device, 32


ONE_LANE = Lanes(0, 1)


def lane_mask(flag, lanes):
    """Return an int64 with bit i set where lane i brings a true flag."""
    return np.int64(flag)


def lane_max(value, lanes):
    """Return the highest int64 that a lane brings."""
    return value


def lane_union(word, lanes):
    """Return the bits (uint64) that are set in the word of any lane."""
    return word


def lanes_meet(lanes):
    """Wait for all lanes; what they wrote before, all of them see after."""


@overload(lane_mask, inline="always")
def _lane_mask_compiled(flag, lanes):
    return lambda flag, lanes: np.int64(flag)


@overload(lane_max, inline="always")
def _lane_max_compiled(value, lanes):
    return lambda value, lanes: value


@overload(lane_union, inline="always")
def _lane_union_compiled(word, lanes):
    return lambda word, lanes: word


@overload(lanes_meet, inline="always")
def _lanes_meet_compiled(lanes):
    return lambda lanes: None
