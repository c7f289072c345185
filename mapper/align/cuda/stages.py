"""Kernels that hand the pairs of a chunk on: each has a wider reach than that before it.

A pair is found by the first kernel that reaches it, whichever others have looked at it in vain;
so a kernel that found little in a chunk is left out of the next ones, until it is asked again.
What is found is the same either way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.cuda.api import cuda, device_function, kernel
from mapper.cuda.memory import Workspace

IDLE_CHUNKS = 15
"""For how many chunks a kernel is left out that has found less than a quarter of its pairs."""


class Stages(NamedTuple):
    """What a chain of kernels keeps on the device. The first looks at every pair of a chunk.

    ``counts[t]`` pairs have come to kernel t, and the last item has left them all.
    """

    pairs: Any  # int32 (n_stages, most pairs): row t for kernel t + 1
    counts: Any  # int32 (n_stages + 1,)
    idle: Any  # int32 (n_stages,): chunks, this one included, for which a kernel is left out


def stages_for(space: Workspace, n_stages: int, most_pairs: int) -> Stages:
    """Return room for so many kernels, none of them idle."""
    pairs = space.device(f"flat {n_stages} stages", n_stages * most_pairs, np.int32)
    return Stages(
        pairs.reshape((n_stages, most_pairs)),
        space.upload(f"flat counts of {n_stages} stages", np.zeros(n_stages + 1, np.int32)),
        space.upload(f"flat idle of {n_stages} stages", np.zeros(n_stages, np.int32)),
    )


@device_function
def is_idle(stages, number):
    """Whether a kernel is left out of the chunk; the last one never is."""
    return number + 1 < len(stages.idle) and stages.idle[number] > 0


@device_function
def source_of(stages, number):
    """To which kernel the pairs were handed that kernel `number` takes, which is not the first.

    To itself, or to the first of the idle ones before it. (Kernel 0, if idle, hands on all pairs.)
    """
    while number > 1 and is_idle(stages, number - 1):
        number -= 1
    return number


@kernel(32)
def begin_stages_kernel(stages, n):
    """Begin with a chunk of n pairs; by one thread."""
    if cuda.grid(1) > 0:
        return
    for number in range(len(stages.idle) - 1, -1, -1):
        came = stages.counts[source_of(stages, number)]
        left = stages.counts[number + 1]
        if stages.idle[number] > 0:
            stages.idle[number] -= 1
        elif 4 * left > 3 * came:
            stages.idle[number] = IDLE_CHUNKS
    for number in range(1, len(stages.counts)):
        stages.counts[number] = 0
    stages.counts[0] = n


@device_function
def hand_on(stages, number, i):
    """Hand pair i on to the kernel behind kernel `number`."""
    stages.pairs[number, cuda.atomic.add(stages.counts, number + 1, np.int32(1))] = i
