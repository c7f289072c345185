"""A warp as the lanes of :mod:`mapper.jit.lanes`.

The functions are chosen by the type of the lanes, not by numba's target: what is compiled
must not depend on which of the two backends asked first.

Four neighbouring 32-bit words of a block's shared memory, by one instruction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from mapper.cuda.api import SIMULATED, cuda, intrinsic
from mapper.jit.lanes import lane_before, lane_behind, lane_mask, lane_max, lane_union, lanes_meet

WARP = 1 if SIMULATED else 32
"""Lanes that share a read; the simulator knows no warps."""

_ALL = 0xFFFFFFFF


class WarpLanes(NamedTuple):
    """A lane of a warp all of whose lanes do the same."""

    lane: int
    n_lanes: int


def _is_warp(lanes):
    return getattr(lanes, "instance_class", None) is WarpLanes


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


@overload(lane_union)
def _lane_union_of_warp(word, lanes):
    def union(word, lanes):
        bits = np.uint64(word)
        for step in (16, 8, 4, 2, 1):
            bits |= np.uint64(cuda.shfl_xor_sync(_ALL, np.int64(bits), step))
        return bits

    if _is_warp(lanes):
        return union


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


if SIMULATED:

    def four_words(words, at, behind):
        """Return words ``at + behind`` and the three after it.

        Parameters
        ----------
        words
            A shared array of uint32 that begins the block's shared memory.
        at, behind
            uint32, multiples of four. The second is best known when the kernel is compiled: it
            becomes part of the instruction.
        """
        first = int(at) + int(behind)
        return tuple(np.uint32(words[first + x]) for x in range(4))

else:
    from llvmlite import ir
    from numba import types

    _SHARED = 3  # NVVM's address space

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
