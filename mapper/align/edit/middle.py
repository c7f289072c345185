"""Core: the middle of a shortest edit path, from wavefronts of both ends that meet.

Rows from the start and from the end are computed in turn. As soon as a forward row s and a
backward row r overlap on a diagonal, ``s + r`` is the distance, and the forward offset there
lies on a shortest path, s edits behind it and r before it: distances do not fall along a
diagonal, so a path through any point between both offsets costs no more (Myers 1986). The
memory is O(distance); the rows computed are half of what one end alone would need.

The search can be left after any number of rows and resumed, which the progress bar, the
growing of rows and the checkpoints of ``long.py`` use.
"""

from __future__ import annotations

import numpy as np

from mapper.align.edit.wavefront import (
    EXCEEDED,
    FINISHED,
    GOING,
    NO_ROOM,
    NULL,
    Ends,
    edit_row,
    lowered_bound,
)
from mapper.jit.accelerate import core

# Fields of a search's state (int64).
S, R, BOUND, REACH, BACK_REACH, MIDDLE_K, MIDDLE_OFFSET = range(7)
N_STATE = 7


def new_state(bound: int) -> np.ndarray:
    """Return the state of a search that has not begun."""
    state = np.zeros(N_STATE, np.int64)
    reset_state(state, bound)
    return state


@core
def reset_state(state, bound):
    """Begin a search; `bound`: greatest distance of interest."""
    state[S] = -1  # rows done, from the start and from the end, are S + 1 and R + 1
    state[R] = -1
    state[BOUND] = bound
    state[REACH] = 0
    state[BACK_REACH] = 0


@core
def _reach(rows, r):
    """Greatest number of symbols that a cell of a row has consumed."""
    lo = rows.lo[r]
    row = rows.cells[rows.at[r] : rows.at[r] + rows.hi[r] - lo + 1]
    reach = np.int64(0)
    for i in range(len(row)):
        reach = max(reach, 2 * np.int64(row[i]) - lo - i)
    return reach


@core
def _overlap(pair, rows, r, back_rows, back_r):
    """Lowest diagonal on which a forward and a backward row overlap, or null."""
    goal = pair.ref_len - pair.query_len
    lo = max(rows.lo[r], goal - back_rows.hi[back_r])
    hi = min(rows.hi[r], goal - back_rows.lo[back_r])
    at = rows.at[r] - rows.lo[r]
    back_at = back_rows.at[back_r] - back_rows.lo[back_r] + goal
    for k in range(lo, hi + 1):
        reached = np.int64(rows.cells[at + k]) + np.int64(back_rows.cells[back_at - k])
        if reached >= pair.ref_len:
            return np.int64(k)
    return np.int64(NULL)


@core
def meet(pair, state, rows, back_rows, n_steps):
    """Go on with a search for at most `n_steps` rows.

    Returns
    -------
    FINISHED: the distance is ``state[S] + state[R]``, the middle on diagonal
    ``state[MIDDLE_K]`` at ``state[MIDDLE_OFFSET]``. EXCEEDED: it is above the bound.
    NO_ROOM: give wider rows and go on. GOING: after `n_steps`.
    """
    ends = Ends(np.int64(0), np.int64(0), np.int64(0), np.int64(0))
    for _ in range(n_steps):
        if state[R] >= 0 and state[S] + state[R] >= state[BOUND]:
            return EXCEEDED
        forward = state[S] <= state[R]
        s = (state[S] if forward else state[R]) + 1
        # Two calls, as a choice between both rows would be an array that is counted.
        if forward:
            status, _ = edit_row(pair, ends, rows, s, state[BOUND], False, True)
        else:
            status, _ = edit_row(pair, ends, back_rows, s, state[BOUND], False, False)
        if status == NO_ROOM or status == EXCEEDED:
            return status
        if forward:
            state[S] = s
            state[REACH] = _reach(rows, s & 1)
            state[BOUND] = lowered_bound(pair, rows, s & 1, s, state[BOUND])
        else:
            state[R] = s
            state[BACK_REACH] = _reach(back_rows, s & 1)
            state[BOUND] = lowered_bound(pair, back_rows, s & 1, s, state[BOUND])
        # Overlapping offsets on one diagonal sum up to at least this.
        if state[R] >= 0 and state[REACH] + state[BACK_REACH] >= pair.query_len + pair.ref_len:
            k = _overlap(pair, rows, state[S] & 1, back_rows, state[R] & 1)
            if k != NULL:
                r = state[S] & 1
                state[MIDDLE_K] = k
                state[MIDDLE_OFFSET] = rows.cells[rows.at[r] + k - rows.lo[r]]
                return FINISHED
    return GOING
