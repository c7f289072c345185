"""Lanes: the threads that share the work on one read, as an argument of compiled cores.

A core with lanes divides its innermost loop among them and exchanges values by the functions here.
On the CPU, and in kernels with one thread for each read, there is one lane and the functions do
nothing; the Python bodies define that. For a warp that shares a read, :mod:`mapper.cuda.warp`
has a type of lanes for which the same names are warp instructions.

All lanes run the same text with the same values, and synchronise in each of these functions; each
has a workspace of its own for data changed in place, and all write the same values elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload


class Lanes(NamedTuple):
    """A single lane. Numba selects the functions here by this type."""

    lane: int
    n_lanes: int
    by_vectors: bool
    """True on the CPU, which takes several items of a loop at a time."""


ONE_LANE = Lanes(0, 1, True)
THREAD_LANE = Lanes(0, 1, False)
"""A thread of a device."""


def takes_vectors(lanes):
    """Return whether a loop that a compiler vectorises may do more than its share for that."""
    return getattr(lanes, "by_vectors", False)


def lane_mask(flag, lanes):
    """Return an int64 with bit i set if the flag of lane i is true."""
    return np.int64(flag)


def lane_max(value, lanes):
    """Return the highest int64 of all lanes."""
    return value


def lane_sum(value, lanes):
    """Return the sum (int64) of the values of all lanes."""
    return value


def lane_least(word, lanes):
    """Return the lowest uint64 of all lanes."""
    return word


def lane_union(word, lanes):
    """Return the bitwise or (uint64) of the words of all lanes."""
    return word


def take_slot(slots, slot, value, lanes):
    """Return True if an item of an int32 array was -1, and set it to `value` if so."""
    is_free = slots[slot] < 0
    if is_free:
        slots[slot] = value
    return is_free


def raise_to(values, i, value, lanes):
    """Raise an item of an int64 array to `value` if it is lower."""
    values[i] = max(values[i], value)


def lanes_meet(lanes):
    """Wait for all lanes; writes before are visible to all of them after."""


def lane_before(value, lanes):
    """Return the int32 of the previous lane; in the first lane, its own."""
    return value


def lane_behind(value, lanes):
    """Return the int32 of the next lane; in the last lane, its own."""
    return value


def is_one_lane(lanes):
    """Return True if a numba type is that of :class:`Lanes`."""
    return getattr(lanes, "instance_class", None) is Lanes


@overload(takes_vectors, inline="always")
def _takes_vectors_alone(lanes):
    if is_one_lane(lanes):
        return lambda lanes: lanes.by_vectors


@overload(lane_mask, inline="always")
def _lane_mask_alone(flag, lanes):
    if is_one_lane(lanes):
        return lambda flag, lanes: np.int64(flag)


@overload(lane_max, inline="always")
def _lane_max_alone(value, lanes):
    if is_one_lane(lanes):
        return lambda value, lanes: value


@overload(lane_sum, inline="always")
def _lane_sum_alone(value, lanes):
    if is_one_lane(lanes):
        return lambda value, lanes: value


@overload(lane_least, inline="always")
def _lane_least_alone(word, lanes):
    if is_one_lane(lanes):
        return lambda word, lanes: word


@overload(lane_union, inline="always")
def _lane_union_alone(word, lanes):
    if is_one_lane(lanes):
        return lambda word, lanes: word


@overload(take_slot)
def _take_slot_alone(slots, slot, value, lanes):
    def take(slots, slot, value, lanes):
        is_free = slots[slot] < 0
        if is_free:
            slots[slot] = value
        return is_free

    if is_one_lane(lanes):
        return take


@overload(raise_to)
def _raise_to_alone(values, i, value, lanes):
    def raised(values, i, value, lanes):
        values[i] = max(values[i], value)

    if is_one_lane(lanes):
        return raised


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
