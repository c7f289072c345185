"""Groups of threads that align one pair together: lanes of a warp, or all threads of a block.

The threads of a group share out an innermost loop. The groups of a warp are synchronised by
:func:`any_lane` and :func:`sync_lanes`, the threads of a block by ``cuda.syncthreads``.
"""

from __future__ import annotations

from typing import NamedTuple

from mapper.cuda.api import SHARED_BYTES, SIMULATED, cuda, device_function
from mapper.jit.accelerate import core

GROUP_BLOCK = 32 if SIMULATED else 128
"""Threads of a block; the simulator takes long to keep many in step."""

WARP = GROUP_BLOCK if SIMULATED else 32
"""Threads of a warp; in the simulator, which knows none, those of a block."""

_MOST_SHARED_BYTES = 96 << 10
"""Shared memory of a block that is asked for where there is as much."""

_SHARED_BYTES_OF_ALL = 227 << 10
"""Of the blocks of a multiprocessor of compute capability 9.0; they take 1 kB more each."""

_ALL = 0xFFFFFFFF


def most_shared_bytes() -> int:
    """Return the shared memory (bytes) available to a block, or somewhat less."""
    if not SIMULATED:
        capability = tuple(cuda.get_current_device().compute_capability)
        if capability < (7, 0):
            return SHARED_BYTES
        if capability == (7, 5):
            return 64 << 10
    return _MOST_SHARED_BYTES


def blocks_by_shared(shared_bytes: int, most: int) -> int:
    """Return how many blocks of `shared_bytes` are resident on a multiprocessor, or a few less.

    More would wait for these to end: every block does the same share of a launch. `most`: the limit
    by registers.
    """
    return max(1, min(most, _SHARED_BYTES_OF_ALL // (shared_bytes + 1024)))


class Group(NamedTuple):
    """A thread of a group that aligns a pair."""

    lane: int  # in its group
    n_lanes: int


if SIMULATED:
    # The simulator knows no warps: all threads of a block stay in step there.

    @device_function
    def any_lane(flag):
        """Return True if any lane of the warp, with all its groups, has a true flag."""
        return cuda.syncthreads_or(flag)

    @device_function
    def sync_lanes():
        """Synchronise the lanes of the warp, with all its groups, and make writes visible."""
        cuda.syncthreads()

else:

    @core
    def any_lane(flag):
        """Return True if any lane of the warp, with all its groups, has a true flag."""
        return cuda.any_sync(_ALL, flag)

    @core
    def sync_lanes():
        """Synchronise the lanes of the warp, with all its groups, and make writes visible."""
        cuda.syncwarp(_ALL)
