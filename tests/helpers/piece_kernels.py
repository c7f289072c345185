"""A kernel around the cores of pieces of long reads, for a test of its machine code."""

from __future__ import annotations

from mapper.cuda.api import cuda, kernel
from mapper.extend.two_piece import extend_piece, fill_piece
from mapper.jit.lanes import ONE_LANE


@kernel(32)
def align_piece(query, ref, ends, z_drop, scoring, space, ops, out):
    """Fill a piece, then extend it backward; each thread has a row of `ends` and of `out`."""
    i = cuda.grid(1)
    place = (query, ends[i, 0], ends[i, 1], ref, ends[i, 2], ends[i, 3])
    out[i, 0], out[i, 1], out[i, 2] = fill_piece(*place, scoring, space, ops, ONE_LANE)
    out[i, 3], out[i, 4], out[i, 5], out[i, 6], out[i, 7] = extend_piece(
        *place, True, z_drop, 5, scoring, space, ops, ONE_LANE
    )
