"""Chains of kernels on a device: each kernel solves more distant pairs than the one before.

The first kernel sees every pair of a chunk and appends those that it cannot solve to the worklist
of the next kernel, and so on. A kernel that solved few pairs of a chunk idles during the next
chunks, after which it is tried again. Results do not depend on that: a pair is solved by some
kernel that reaches it, whichever have tried before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.cuda.api import cuda, device_function, kernel
from mapper.cuda.memory import Workspace

IDLE_CHUNKS = 15
"""Chunks during which a kernel idles after it solved less than a quarter of its pairs."""


class KernelChain(NamedTuple):
    """Worklists of a chain of kernels, on the device.

    ``counts[t]`` pairs have reached kernel t; the last count is of those that no kernel solved.
    """

    pairs: Any  # int32 (n_kernels, most pairs): row t is the worklist of kernel t + 1
    counts: Any  # int32 (n_kernels + 1,)
    idle: Any  # int32 (n_kernels,): chunks, with this one, during which a kernel idles


def chain_for(space: Workspace, n_kernels: int, most_pairs: int) -> KernelChain:
    """Return the worklists of so many kernels, none of them idle."""
    pairs = space.device(f"worklists of {n_kernels} kernels", n_kernels * most_pairs, np.int32)
    return KernelChain(
        pairs.reshape((n_kernels, most_pairs)),
        space.upload(f"counts of {n_kernels} kernels", np.zeros(n_kernels + 1, np.int32)),
        space.upload(f"idle of {n_kernels} kernels", np.zeros(n_kernels, np.int32)),
    )


@device_function
def is_idle(chain, number):
    """Return True if a kernel idles during this chunk; the last one never does."""
    return number + 1 < len(chain.idle) and chain.idle[number] > 0


@device_function
def source_of(chain, number):
    """Return the kernel whose worklist kernel `number` (number ≥ 1) takes.

    Its own, or that of the first of the idle kernels before it. (Kernel 0, if idle, passes on all
    pairs.)
    """
    while number > 1 and is_idle(chain, number - 1):
        number -= 1
    return number


@kernel(32)
def begin_chain_kernel(chain, n):
    """Empty the worklists for a chunk of n pairs, and choose idle kernels; by one thread."""
    if cuda.grid(1) > 0:
        return
    for number in range(len(chain.idle) - 1, -1, -1):
        taken = chain.counts[source_of(chain, number)]
        unsolved = chain.counts[number + 1]
        if chain.idle[number] > 0:
            chain.idle[number] -= 1
        elif 4 * unsolved > 3 * taken:
            chain.idle[number] = IDLE_CHUNKS
    for number in range(1, len(chain.counts)):
        chain.counts[number] = 0
    chain.counts[0] = n


@device_function
def pass_on(chain, number, i):
    """Append pair i to the worklist of the kernel after kernel `number`."""
    chain.pairs[number, cuda.atomic.add(chain.counts, number + 1, np.int32(1))] = i
