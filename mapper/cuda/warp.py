"""Warp primitives: the lanes of a warp for the cores of :mod:`mapper.jit.lanes`, and for kernels.

Functions of :mod:`mapper.jit.lanes` are chosen by the type of the lanes, not by numba's target:
the compiled code must not depend on which of the two backends asked for it first.

The simulator knows no warps. Here a warp has one lane there; in
:mod:`mapper.align.cuda.cooperative`, whose lanes wait for each other in loops, it is a block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from mapper.cuda.api import SIMULATED, cuda, intrinsic
from mapper.jit.accelerate import core
from mapper.jit.lanes import (
    lane_before,
    lane_behind,
    lane_least,
    lane_mask,
    lane_max,
    lane_sum,
    lane_union,
    lanes_meet,
    raise_to,
    take_slot,
    takes_vectors,
)

WARP = 1 if SIMULATED else 32
"""Lanes of a warp."""

_ALL = 0xFFFFFFFF

# --- for cores of one lane or a warp ---


class WarpLanes(NamedTuple):
    """One lane of a warp whose lanes run the same text for one read."""

    lane: int
    n_lanes: int


def _is_warp(lanes):
    return getattr(lanes, "instance_class", None) is WarpLanes


@overload(takes_vectors)
def _takes_vectors_of_warp(lanes):
    if _is_warp(lanes):
        return lambda lanes: False


@overload(lane_mask)
def _lane_mask_of_warp(flag, lanes):
    if _is_warp(lanes):
        return lambda flag, lanes: np.int64(np.uint32(cuda.ballot_sync(_ALL, flag)))


@overload(lane_max)
def _lane_max_of_warp(value, lanes):
    def highest(value, lanes):
        most = np.int64(value)
        for step in (16, 8, 4, 2, 1):
            most = max(most, np.int64(cuda.shfl_xor_sync(_ALL, most, step)))
        return most

    if _is_warp(lanes):
        return highest


@overload(lane_sum)
def _lane_sum_of_warp(value, lanes):
    def total(value, lanes):
        summed = np.int64(value)
        for step in (16, 8, 4, 2, 1):
            summed += np.int64(cuda.shfl_xor_sync(_ALL, summed, step))
        return summed

    if _is_warp(lanes):
        return total


@overload(lane_least)
def _lane_least_of_warp(word, lanes):
    def lowest(word, lanes):
        least = np.uint64(word)
        for step in (16, 8, 4, 2, 1):
            least = min(least, np.uint64(cuda.shfl_xor_sync(_ALL, np.int64(least), step)))
        return least

    if _is_warp(lanes):
        return lowest


@overload(lane_union)
def _lane_union_of_warp(word, lanes):
    def union(word, lanes):
        bits = np.uint64(word)
        for step in (16, 8, 4, 2, 1):
            bits |= np.uint64(cuda.shfl_xor_sync(_ALL, np.int64(bits), step))
        return bits

    if _is_warp(lanes):
        return union


@overload(take_slot)
def _take_slot_in_warp(slots, slot, value, lanes):
    if _is_warp(lanes):
        return lambda slots, slot, value, lanes: (
            cuda.atomic.cas(slots, slot, np.int32(-1), np.int32(value)) == -1
        )


@overload(raise_to)
def _raise_to_in_warp(values, i, value, lanes):
    def raised(values, i, value, lanes):
        cuda.atomic.max(values, i, value)

    if _is_warp(lanes):
        return raised


@overload(lanes_meet)
def _lanes_meet_in_warp(lanes):
    if _is_warp(lanes):
        return lambda lanes: cuda.syncwarp(_ALL)


@overload(lane_before)
def _lane_before_in_warp(value, lanes):
    if _is_warp(lanes):
        return lambda value, lanes: np.int32(cuda.shfl_up_sync(_ALL, value, 1))


@overload(lane_behind)
def _lane_behind_in_warp(value, lanes):
    if _is_warp(lanes):
        return lambda value, lanes: np.int32(cuda.shfl_down_sync(_ALL, value, 1))


# --- for kernels ---

if SIMULATED:

    def from_lane(value, lane):
        """Return the int32 of another lane of the warp."""
        return value

    def any_in_warp(flag):
        """Return True if a flag is set in any lane of the warp."""
        return flag

    def sync_warp():
        """Wait for all lanes of the warp; writes before are visible to all of them after."""

    def sum_before(value, lane):
        """Return the sum of the int64 of the lanes before this one, and the sum of all."""
        return 0, value

    def four_words(words, at, behind):
        """Return words ``at + behind`` and the three after it, by one instruction.

        Parameters
        ----------
        words
            Shared array of uint32 at the start of the block's shared memory.
        at, behind
            uint32, multiples of four. `behind` should be a constant: it becomes part of the
            instruction.
        """
        first = int(at) + int(behind)
        return tuple(np.uint32(words[first + x]) for x in range(4))

else:
    from llvmlite import ir
    from numba import types

    _SHARED = 3  # NVVM's address space

    @core
    def from_lane(value, lane):
        """Return the int32 of another lane of the warp."""
        return cuda.shfl_sync(_ALL, np.int32(value), lane)

    @core
    def any_in_warp(flag):
        """Return True if a flag is set in any lane of the warp."""
        return cuda.any_sync(_ALL, flag)

    @core
    def sync_warp():
        """Wait for all lanes of the warp; writes before are visible to all of them after."""
        cuda.syncwarp(_ALL)

    @core
    def sum_before(value, lane):
        """Return the sum of the int64 of the lanes before this one, and the sum of all."""
        until = np.int64(value)
        for step in (1, 2, 4, 8, 16):
            before = np.int64(cuda.shfl_up_sync(_ALL, until, step))
            if lane >= step:
                until += before
        return until - value, np.int64(cuda.shfl_sync(_ALL, until, 31))

    @intrinsic
    def four_words(typing_context, words, at, behind):
        """Return words ``at + behind`` and the three after it, as the simulator's function."""
        signature = types.UniTuple(types.uint32, 4)(words, types.uint32, types.uint32)

        def codegen(context, builder, signature, arguments):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            word, wide = ir.IntType(32), ir.IntType(64)
            begin = builder.addrspacecast(array.data, ir.PointerType(word, _SHARED))
            for index in arguments[1:]:
                begin = builder.gep(begin, [builder.zext(index, wide)], inbounds=True)
            four = ir.VectorType(word, 4)
            loaded = builder.load(builder.bitcast(begin, ir.PointerType(four, _SHARED)), align=16)
            items = [builder.extract_element(loaded, word(x)) for x in range(4)]
            return context.make_tuple(builder, signature.return_type, items)

        return signature, codegen
