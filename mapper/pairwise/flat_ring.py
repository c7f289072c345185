"""Rows of gap-affine offsets in shared memory, as rings: what the kernels that use them share.

Diagonal k of a row lies in column ``k mod width``, so that narrow rows may wander as far as they
like. The rows themselves are a ring, too, of as many as the recurrence looks back.
"""

from __future__ import annotations

import numpy as np

from mapper.device.seam import device_function

NULL_16 = np.int32(-(2**15))
"""Offset of a cell that does not exist, where a cell takes 16 bits."""

FAR = np.int32(2**30)
"""Beyond all diagonals, and more symbols than can be left."""


@device_function
def row_back(at, by, n):
    """The row of a ring of n that was written `by` rows before row `at`."""
    row = np.int32(at - by)
    return np.int32(row + n) if row < 0 else row


@device_function
def offset_on(rows, row_at, k, mask, lo, n, beside):
    """The offset on diagonal k of a row of n cells from `lo` on; `beside` them, what is given."""
    # Loaded in any case, so that no branch keeps loads from being under way together. One
    # comparison for both ends: below `lo` the difference wraps to a great number.
    offset = np.int32(rows[np.uint32(row_at + (k & mask))])
    return offset if np.uint32(np.int32(k - lo)) < np.uint32(n) else beside


@device_function
def has_none(rows, match_at, insertion_at, deletion_at, column):
    """Whether a column of a row holds no offset in any state."""
    # Mostly M has one, and the others need not be loaded.
    if rows[np.uint32(match_at + column)] >= 0:
        return False
    return max(rows[np.uint32(insertion_at + column)], rows[np.uint32(deletion_at + column)]) < 0
