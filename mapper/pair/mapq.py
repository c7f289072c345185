"""Mapping quality, from the lead over the best alternative placement.

A mapping is wrong when differences between the read and its true place happen to favour
another one. Each mismatch that would be needed makes that about ten times less likely on
simulated reads (``docs/accuracy.md``), so the quality grows in proportion to the lead,
counted in matches, and shrinks with the number of alternatives, with the part of the read in
seeds too frequent to be looked at, and with the differences of the placement itself.
"""

from __future__ import annotations

import math

import numpy as np

from mapper.jit.accelerate import core

MAX_MAPQ = 60
PAIR_BOOST = 40
"""What a pair can add to what a mate's own alignments say."""


@core
def lead_quality(lead, per_score, n_alternatives, per_tenfold, identity, repeat_fraction):
    """Quality of a placement that leads the best alternative by `lead` matches' worth.

    Parameters
    ----------
    per_score
        ``PairParams.quality_in_pair`` or ``quality_alone``.
    n_alternatives, per_tenfold
        Alternatives about as good as the best of them, and ``PairParams.quality_of_rivals``.
    identity
        Share of the aligned bases that match.
    repeat_fraction
        Share of the read's bases in seeds that were too frequent to be located.
    """
    if lead <= 0:
        return 0.0
    quality = per_score * lead * identity * identity
    if n_alternatives > 1:
        quality -= per_tenfold * math.log10(n_alternatives)
    quality *= 1.0 - repeat_fraction
    return min(max(quality, 0.0), np.float64(MAX_MAPQ))


@core
def chance_cap(score, log10_text):
    """Cap for short alignments: a random place of this score must be unlikely.

    The expected number of places in the text (both strands) that match `score` bases by
    chance is ``2 n / 4**score``; `log10_text` is ``log10(2 n)``.
    """
    return max(0.0, 10.0 * (score * 0.6020599913279624 - log10_text))
