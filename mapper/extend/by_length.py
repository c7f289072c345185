"""Parameters of long reads that change with the length of a read, as minibwa's do.

Of two values, for short and for long reads, those of a read lie between: every BASES_PER_HALVING
bases above SHORT_BASES halve the distance from the value for long reads.
"""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core
from mapper.params import SHARES

SHORT_BASES, BASES_PER_HALVING = 100, 1900
"""minibwa's."""


@core
def shortness(read_len):
    """Return a read's share of the distance, in 1 / SHARES; linear between halvings."""
    bases = max(np.int64(read_len) - SHORT_BASES, np.int64(0))
    halvings = min(bases // BASES_PER_HALVING, np.int64(62))
    twice = 2 * BASES_PER_HALVING
    return (SHARES * (twice - bases % BASES_PER_HALVING) // twice) >> halvings


@core
def by_length(of_short, of_long, read_len):
    """Return the value of a read, given those of short and of long ones: integers."""
    return of_long + ((of_short - of_long) * shortness(read_len)) // SHARES
