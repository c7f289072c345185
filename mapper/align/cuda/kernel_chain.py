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


class KernelChain(NamedTuple):
    """What a chain of kernels keeps on the device. The first looks at every pair of a chunk.

    ``counts[t]`` pairs have come to kernel t, and the last item has left them all.
    """

    pairs: Any  # int32 (n_kernels, most pairs): row t for kernel t + 1
    counts: Any  # int32 (n_kernels + 1,)
    idle: Any  # int32 (n_kernels,): chunks, this one included, for which a kernel is left out


def chain_for(space: Workspace, n_kernels: int, most_pairs: int) -> KernelChain:
    """Return room for so many kernels, none of them idle."""
    pairs = space.device(f"worklists of {n_kernels} kernels", n_kernels * most_pairs, np.int32)
    return KernelChain(
        pairs.reshape((n_kernels, most_pairs)),
        space.upload(f"counts of {n_kernels} kernels", np.zeros(n_kernels + 1, np.int32)),
        space.upload(f"idle of {n_kernels} kernels", np.zeros(n_kernels, np.int32)),
    )


@device_function
def is_idle(chain, number):
    """Whether a kernel is left out of the chunk; the last one never is."""
    return number + 1 < len(chain.idle) and chain.idle[number] > 0


@device_function
def source_of(chain, number):
    """To which kernel the pairs were handed that kernel `number` takes, which is not the first.

    To itself, or to the first of the idle ones before it. (Kernel 0, if idle, hands on all pairs.)
    """
    while number > 1 and is_idle(chain, number - 1):
        number -= 1
    return number


@kernel(32)
def begin_chain_kernel(chain, n):
    """Begin with a chunk of n pairs; by one thread."""
    if cuda.grid(1) > 0:
        return
    for number in range(len(chain.idle) - 1, -1, -1):
        came = chain.counts[source_of(chain, number)]
        left = chain.counts[number + 1]
        if chain.idle[number] > 0:
            chain.idle[number] -= 1
        elif 4 * left > 3 * came:
            chain.idle[number] = IDLE_CHUNKS
    for number in range(1, len(chain.counts)):
        chain.counts[number] = 0
    chain.counts[0] = n


@device_function
def pass_on(chain, number, i):
    """Hand pair i on to the kernel behind kernel `number`."""
    chain.pairs[number, cuda.atomic.add(chain.counts, number + 1, np.int32(1))] = i
