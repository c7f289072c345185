"""Paths of gap-affine alignments that blocks and groups have found, as they are gathered."""

from __future__ import annotations

import numpy as np

from mapper.align.affine.affine_origins import replay, trace_back
from mapper.align.cuda.kernels import pair_of
from mapper.align.cuda.worklist import IN_SLOT, NO_PLACE, note_place, place_of_path
from mapper.cuda.api import device_function


@device_function
def write_listed_path(staged, strings, penalties, s, origins, events, i, slot, left, out):
    """Write the operations of a path that has been found, where ``FlatResults`` says.

    Returns
    -------
    Number of operations; -1 if there is no room for them.
    """
    goal = np.int64(strings.ref_len - strings.query_len)
    n_events, _ = trace_back(origins, penalties, np.int64(s), goal, events)
    pair = pair_of(staged, strings)
    first = place_of_path(left, out, slot, np.int64(2 * n_events + 1))
    if first == NO_PLACE:
        return np.int64(-1)
    if first == IN_SLOT:
        return replay(pair, events, n_events, 0, 0, pair.ref_len, out.slots[i * slot :])
    n_ops = replay(pair, events, n_events, 0, 0, pair.ref_len, out.long_ops[first:])
    note_place(out, i, slot, first, n_ops)
    return n_ops
