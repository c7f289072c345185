"""Scores as users give them, and the penalties that wavefronts count.

A wavefront minimises a penalty in which matches are free; users maximise a score in
which a match earns `a`. With v read bases and h reference bases consumed::

    score = (a (v + h) - penalty) / 2

holds for every alignment if a mismatch costs ``2 (a + b)``, and a gap of n bases
``2 o + n (2 e + a)``, where the user subtracts b for a mismatch and ``o + n e`` for a gap:
a mismatch consumes one base of each side, so its score is ``(2 a - 2 (a + b)) / 2 = -b``; a
gap of n consumes n bases of one side, ``(a n - 2 o - n (2 e + a)) / 2 = -(o + n e)``.
Doubled scores are integers, so both backends compare them exactly.

References
----------
Eizenga, Paten (2022), doi:10.1101/2022.01.12.476087: match-bonus transformation.
"""

from __future__ import annotations

from typing import NamedTuple

from mapper.params import ExtendParams


class Penalties(NamedTuple):
    """Non-negative costs; a gap of n bases costs ``gap_open + n * gap_extend``."""

    match: int
    """The user's match score a: what turns penalties back into scores."""
    mismatch: int
    gap_open: int
    gap_extend: int


def wavefront_penalties(params: ExtendParams) -> Penalties:
    """Return the wavefront's penalties for a user's scores."""
    return Penalties(
        match=params.match,
        mismatch=2 * (params.match + params.mismatch),
        gap_open=2 * params.gap_open,
        gap_extend=2 * params.gap_extend + params.match,
    )
