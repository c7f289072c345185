"""Lanes: how many threads share the work on one read, for compiled cores.

A core that is handed lanes deals its innermost loop to them and lets them agree by the
functions here. On the CPU, and in kernels with a thread for each read, one lane does it all,
and the functions do nothing; these Python bodies are that meaning. Where a warp shares a
read, :mod:`mapper.cuda.warp` has a type of lanes for which the same names are warp
instructions.

All lanes run the same text with the same values, in step wherever they agree; each has work
space of its own for what is changed in place, and all write the same values to the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload


class Lanes(NamedTuple):
    """The one lane that does it all. Numba picks the functions here by this type."""

    lane: int
    n_lanes: int


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


def lane_before(value, lanes):
    """Return the int32 that the lane before brings; the first lane, its own."""
    return value


def lane_behind(value, lanes):
    """Return the int32 that the lane behind brings; the last lane, its own."""
    return value


def is_one_lane(lanes):
    """Whether a numba type is that of :class:`Lanes`."""
    return getattr(lanes, "instance_class", None) is Lanes


@overload(lane_mask, inline="always")
def _lane_mask_alone(flag, lanes):
    if is_one_lane(lanes):
        return lambda flag, lanes: np.int64(flag)


@overload(lane_max, inline="always")
def _lane_max_alone(value, lanes):
    if is_one_lane(lanes):
        return lambda value, lanes: value


@overload(lane_union, inline="always")
def _lane_union_alone(word, lanes):
    if is_one_lane(lanes):
        return lambda word, lanes: word


@overload(lanes_meet, inline="always")
def _lanes_meet_alone(lanes):
    if is_one_lane(lanes):
        return lambda lanes: None


@overload(lane_before, inline="always")
def _lane_before_alone(value, lanes):
    if is_one_lane(lanes):
        return lambda value, lanes: value


@overload(lane_behind, inline="always")
def _lane_behind_alone(value, lanes):
    if is_one_lane(lanes):
        return lambda value, lanes: value
