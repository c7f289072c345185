"""Where seeds start, and how long they are.

Round 1 lays disjoint seeds end to end over each stretch of the read without ambiguous
bases: with n seeds, every place that differs from the read in fewer than n bases shares
one of them, so the read's best place and its near-equals are all seen (pigeonhole).
Round 2 starts a seed every few bases, round 3 at every base with shorter seeds.
"""

from __future__ import annotations

import math

import numpy as np

from mapper.jit.accelerate import core
from mapper.params import SeedParams


def resolve(params: SeedParams, text_len: int) -> SeedParams:
    """Fill in the seed lengths that depend on the text's length.

    A random pattern of length ``log4(2 n)`` is expected once on the two strands of n
    bases. Seeds are 6 bases longer, which makes a chance hit one in 4000 seeds; the
    last round's are 2 longer.
    """
    once = math.ceil(math.log(2 * max(text_len, 1), 4))
    return params._replace(
        seed_len=params.seed_len or min(max(once + 6, 15), 22),
        last_len=params.last_len or min(max(once + 2, 10), 18),
    )


@core
def n_disjoint(stretch, seed_len):
    """Seeds of round 1 on a stretch of bases; two that overlap where one would leave a rest."""
    if stretch < seed_len:
        return 0
    if stretch < 2 * seed_len:
        return 2 if stretch > seed_len else 1
    return stretch // seed_len


@core
def disjoint_start(stretch, seed_len, n_seeds, i):
    """Start of seed i of `n_seeds`, spread evenly so that both ends are covered."""
    if n_seeds == 1:
        return np.int32(0)
    # Below 2^32 for reads of up to 65536 bases; a device divides 64 bits by a call.
    return np.int32(np.uint32(i * (stretch - seed_len)) // np.uint32(n_seeds - 1))


@core
def seed_start(stretch, seed_len, step, n_seeds, i):
    """Start of seed i of a stretch; `step` 0 lays them disjointly."""
    if step == 0:
        return disjoint_start(stretch, seed_len, n_seeds, i)
    return np.int32(i * step)
