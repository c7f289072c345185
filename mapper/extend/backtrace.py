"""Core: the way back through wavefronts, from the end of an extension to its corner.

The recurrence is that of ``wavefront_affine.py``.
"""

from __future__ import annotations

import numpy as np

from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.extend.wavefronts import NULL, cell, row_of
from mapper.jit.accelerate import core


@core
def bounded(offset, k, side):
    """The offset, or NULL if it lies beyond the end of read or reference."""
    if offset > np.int32(side.text_room) or np.int32(offset - k) > np.int32(side.query_room):
        return np.int32(NULL)
    return offset


@core
def backtrace_side(wavefronts, penalties, side, s, k, offset, ops, n_ops):
    """Append the operations from an end cell back to the corner; return the new count.

    They come out from the far end to the anchor: in read order for a backward extension,
    reversed for a forward one. Of equal ways into a cell a mismatch is taken before a
    deletion, a deletion before an insertion, and a gap is opened before it is lengthened.
    """
    one = np.int32(1)
    x = np.int32(penalties.mismatch)
    e = np.int32(penalties.gap_extend)
    oe = np.int32(penalties.gap_open + penalties.gap_extend)
    s, k, offset = np.int32(s), np.int32(k), np.int32(offset)
    while s > 0:
        here = row_of(wavefronts, s)
        mismatch = cell(wavefronts.match, row_of(wavefronts, np.int32(s - x)), k)
        mismatch = bounded(np.int32(mismatch + 1), k, side)
        insertion = cell(wavefronts.insertion, here, k)
        deletion = cell(wavefronts.deletion, here, k)
        entry = max(mismatch, max(insertion, deletion))
        n_ops = append_op(ops, n_ops, EQUAL, np.int32(offset - entry))
        offset = entry
        if mismatch == entry:
            n_ops = append_op(ops, n_ops, X, one)
            s = np.int32(s - x)
            offset = np.int32(offset - 1)
        elif deletion == entry:
            opened = False
            while not opened:
                n_ops = append_op(ops, n_ops, D, one)
                offset = np.int32(offset - 1)
                k = np.int32(k - 1)
                before = row_of(wavefronts, np.int32(s - oe))
                opened = cell(wavefronts.match, before, k) == offset
                s = np.int32(s - (oe if opened else e))
        else:
            opened = False
            while not opened:
                n_ops = append_op(ops, n_ops, I, one)
                k = np.int32(k + 1)
                before = row_of(wavefronts, np.int32(s - oe))
                opened = cell(wavefronts.match, before, k) == offset
                s = np.int32(s - (oe if opened else e))
    return append_op(ops, n_ops, EQUAL, offset)
