"""The search for the middle of one part of a long pair, in slices, on the CPU.

Between slices progress is reported, and the state may be saved.
"""

from __future__ import annotations

import math

import numpy as np

from mapper.align.edit.edit_space import clear_rows, meet_with_room, new_rows
from mapper.align.edit.middle import MIDDLE_K, MIDDLE_OFFSET, R, S, new_state
from mapper.align.edit.wavefront import Rows
from mapper.align.long.checkpoint import Part
from mapper.align.matches import Pair, part_of

SLICE_CELLS = 50_000_000
"""Cells between two reports: some tenths of a second."""


class Search:
    """The search for the middle of one part."""

    def __init__(self, pair: Pair, part: Part) -> None:
        self.pair = part_of(pair, part.v, part.h, part.query_len, part.ref_len)
        self.state = new_state(part.bound)
        self.rows: Rows = new_rows(1 << 12, 2)
        self.back_rows: Rows = new_rows(1 << 12, 2)
        clear_rows(self.rows)
        clear_rows(self.back_rows)

    @property
    def edits(self) -> int:
        """Edits known to be needed."""
        return max(0, int(self.state[S] + self.state[R]))

    def halves(self, part: Part) -> list[Part]:
        """Return the parts before and behind the middle, with their distances."""
        h = int(self.state[MIDDLE_OFFSET])
        v = h - int(self.state[MIDDLE_K])
        return [
            Part(part.v, part.h, v, h, int(self.state[S])),
            Part(part.v + v, part.h + h, part.query_len - v, part.ref_len - h, int(self.state[R])),
        ]

    def saved(self) -> list[np.ndarray]:
        """Return all that :meth:`restore` needs, here or on a device."""
        return [self.state.copy(), *self.rows, *self.back_rows]

    def restore(self, arrays: list[np.ndarray]) -> None:
        """Go on where a search was saved."""
        self.state = arrays[0]
        self.rows, self.back_rows = Rows(*arrays[1:5]), Rows(*arrays[5:9])

    def slice(self) -> int:
        """Search some rows on; return the status."""
        # Row r of either end has up to 2 r + 1 cells, so that each of the n rows from here on has
        # about as many as there are rows: n edits + n^2 / 2 in all.
        n_steps = math.isqrt(self.edits**2 + 2 * SLICE_CELLS) - self.edits
        return self.steps(max(1, n_steps))

    def steps(self, n_steps: int) -> int:
        """Compute so many rows, of both ends in turn; return the status."""
        status, self.rows, self.back_rows = meet_with_room(
            self.pair, self.state, self.rows, self.back_rows, n_steps
        )
        return int(status)

    def release(self) -> None:
        """Give back what the search holds on a device."""
