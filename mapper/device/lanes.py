"""The lanes of :mod:`mapper.lanes` on a device: one thread, or a warp.

Import this module before a kernel that uses them is compiled.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from mapper.device.seam import SIMULATED, cuda
from mapper.lanes import lane_mask, lane_max, lane_union, lanes_meet

WARP = 1 if SIMULATED else 32
"""Lanes that share a read; the simulator knows no warps."""

_ALL = 0xFFFFFFFF


@overload(lane_mask, target="cuda")
def _lane_mask_of_warp(flag, lanes):
    def mask(flag, lanes):
        if lanes.n_lanes == 1:
            return np.int64(flag)
        return np.int64(np.uint32(cuda.ballot_sync(_ALL, flag)))

    return mask


@overload(lane_max, target="cuda")
def _lane_max_of_warp(value, lanes):
    def highest(value, lanes):
        most = np.int64(value)
        if lanes.n_lanes > 1:
            for step in (16, 8, 4, 2, 1):
                most = max(most, np.int64(cuda.shfl_xor_sync(_ALL, most, step)))
        return most

    return highest


@overload(lane_union, target="cuda")
def _lane_union_of_warp(word, lanes):
    def union(word, lanes):
        bits = np.uint64(word)
        if lanes.n_lanes > 1:
            for step in (16, 8, 4, 2, 1):
                bits |= np.uint64(cuda.shfl_xor_sync(_ALL, np.int64(bits), step))
        return bits

    return union


@overload(lanes_meet, target="cuda")
def _lanes_meet_in_warp(lanes):
    def meet(lanes):
        if lanes.n_lanes > 1:
            cuda.syncwarp(_ALL)

    return meet
