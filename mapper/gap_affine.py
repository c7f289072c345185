"""The gap-affine wavefront recurrence, shared by read extension and pairwise alignment.

The furthest-reaching offset of each state with penalty s on diagonal k, for a mismatch x and a gap
of n symbols that costs o + n e::

    I(s, k) = max(M(s - o - e, k + 1), I(s - e, k + 1))
    D(s, k) = max(M(s - o - e, k - 1), D(s - e, k - 1)) + 1
    M(s, k) = run of matches from max(M(s - x, k) + 1, I(s, k), D(s, k))

References
----------
Marco-Sola et al. (2021), doi:10.1093/bioinformatics/btaa777.
"""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core


@core
def next_offsets(mismatched, opened_i, extended_i, opened_d, extended_d):
    """Apply the recurrence to one cell, without bounds.

    Parameters
    ----------
    mismatched
        M of penalty s - x on the same diagonal.
    opened_i, extended_i
        M of penalty s - o - e, and I of penalty s - e, on diagonal k + 1.
    opened_d, extended_d
        M of penalty s - o - e, and D of penalty s - e, on diagonal k - 1.

    Returns
    -------
    insertion, deletion, mismatch
        Offsets (int32) of I and D, and the one that a mismatch leads to.
    """
    deletion = np.int32(max(opened_d, extended_d) + np.int32(1))
    return max(opened_i, extended_i), deletion, np.int32(mismatched + np.int32(1))
