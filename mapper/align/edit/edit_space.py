"""Work space of edit wavefronts on the CPU: made, used again, widened while a search goes on."""

from __future__ import annotations

import numpy as np

from mapper.align.edit.middle import meet
from mapper.align.edit.wavefront import NO_ROOM, PAD, Rows
from mapper.jit.accelerate import driver


@driver
def new_rows(n_cells, n_rows):
    """Allocate work space."""
    return Rows(
        np.empty(n_cells, np.int32),
        np.empty(n_rows, np.int64),
        np.empty(n_rows, np.int64),
        np.empty(n_rows, np.int64),
    )


@driver
def widened(rows):
    """Return two rows in work space of twice the size."""
    wider = new_rows(2 * len(rows.cells), 2)
    half = len(wider.cells) >> 1
    for r in range(2):
        n = rows.hi[r] - rows.lo[r] + 1
        if n < 0 or n + 2 * PAD > half:  # a row that has not been used yet
            n = 0
        else:
            start = rows.at[r] - PAD
            wider.cells[half * r : half * r + n + 2 * PAD] = rows.cells[start : start + n + 2 * PAD]
        wider.at[r] = half * r + PAD
        wider.lo[r] = rows.lo[r]
        wider.hi[r] = rows.hi[r]
    return wider


@driver
def clear_rows(rows):
    """Mark both rows as unused."""
    half = len(rows.cells) >> 1
    for r in range(2):
        rows.at[r] = half * r + PAD
        rows.lo[r] = 0
        rows.hi[r] = -1


@driver
def meet_with_room(pair, state, rows, back_rows, n_steps):
    """Go on as :func:`mapper.align.edit.middle.meet`, widening the rows where they are full.

    Returns
    -------
    status, rows, back_rows
    """
    while True:
        status = meet(pair, state, rows, back_rows, n_steps)
        if status != NO_ROOM:
            return status, rows, back_rows
        rows, back_rows = widened(rows), widened(back_rows)
