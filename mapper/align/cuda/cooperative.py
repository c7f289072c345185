"""Groups of threads that align one pair together: lanes of a warp, or all threads of a block.

A device function that is handed a :class:`WarpGroup` or a :class:`BlockGroup` deals its innermost
loop to the threads of the group and synchronises them by :func:`wait` and :func:`any_of`, which are
compiled for the type of the group.
"""

from __future__ import annotations

from typing import NamedTuple

from numba.extending import overload

from mapper.cuda.api import SHARED_BYTES, SIMULATED, cuda, device_function

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


class WarpGroup(NamedTuple):
    """A thread of a group of lanes that aligns a pair; the groups of a warp stay in step."""

    lane: int  # in its group
    n_lanes: int


class BlockGroup(NamedTuple):
    """A thread of a block that aligns a pair."""

    lane: int  # in its block
    n_lanes: int


if SIMULATED:
    # The simulator knows no warps: all threads of a block stay in step there.

    @device_function
    def wait(group):
        """Synchronise a block, or a warp with all its groups, and make writes visible."""
        cuda.syncthreads()

    @device_function
    def any_of(group, flag):
        """Return True if any thread of a block, or of a warp with all its groups, has a true flag.

        All threads of a block that aligns one pair have the same flag.
        """
        return cuda.syncthreads_or(flag) if isinstance(group, WarpGroup) else flag

else:

    def wait(group):
        """Synchronise a block, or a warp with all its groups, and make writes visible."""

    def any_of(group, flag):
        """Return True if any thread of a block, or of a warp with all its groups, has a true flag.

        All threads of a block that aligns one pair have the same flag.
        """

    @overload(wait, inline="always")
    def _wait_compiled(group):
        if group.instance_class is WarpGroup:
            return lambda group: cuda.syncwarp(_ALL)
        return lambda group: cuda.syncthreads()

    @overload(any_of, inline="always")
    def _any_of_compiled(group, flag):
        if group.instance_class is WarpGroup:
            return lambda group, flag: cuda.any_sync(_ALL, flag)
        return lambda group, flag: flag
