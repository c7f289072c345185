"""What kernels with a group of lanes a pair share: a warp that stays in step, and its room."""

from __future__ import annotations

from mapper.cuda.api import SHARED_BYTES, SIMULATED, cuda, device_function
from mapper.jit.accelerate import core

GROUP_BLOCK = 32 if SIMULATED else 128
"""Threads of a block; the simulator takes long to keep many in step."""

WARP = GROUP_BLOCK if SIMULATED else 32
"""Threads that :func:`lanes_of_warp_meet` has wait for each other."""

_MOST_SHARED_BYTES = 96 << 10
"""Shared memory of a block that is asked for where there is as much."""

_SHARED_BYTES_OF_ALL = 227 << 10
"""Of the blocks of a multiprocessor of compute capability 9.0; they take 1 kB more each."""

_ALL = 0xFFFFFFFF


def most_shared_bytes() -> int:
    """Return the shared memory that a block can be given, or somewhat less."""
    if not SIMULATED:
        capability = tuple(cuda.get_current_device().compute_capability)
        if capability < (7, 0):
            return SHARED_BYTES
        if capability == (7, 5):
            return 64 << 10
    return _MOST_SHARED_BYTES


def blocks_by_shared(shared_bytes: int, most: int) -> int:
    """Return how many blocks of so much shared memory a multiprocessor holds, or somewhat fewer.

    More would wait for these to end: every block does the same share of a launch. `most`: by
    registers.
    """
    return max(1, min(most, _SHARED_BYTES_OF_ALL // (shared_bytes + 1024)))


if SIMULATED:
    # It knows no warps: all threads of a block stay in step there.

    @device_function
    def any_lane(flag):
        """Whether a lane of the warp brings a true flag."""
        return cuda.syncthreads_or(flag)

    @device_function
    def lanes_of_warp_meet():
        """Wait for all lanes of the warp; what they wrote before, all of them see after."""
        cuda.syncthreads()

else:

    @core
    def any_lane(flag):
        """Whether a lane of the warp brings a true flag."""
        return cuda.any_sync(_ALL, flag)

    @core
    def lanes_of_warp_meet():
        """Wait for all lanes of the warp; what they wrote before, all of them see after."""
        cuda.syncwarp(_ALL)
