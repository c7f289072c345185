"""Which diagonals an adaptive band keeps, found by threads together, for rows of ``flat_ring``."""

from __future__ import annotations

import numpy as np

from mapper.align.affine.cuda_rows import FAR
from mapper.align.affine.wavefront import kept_diagonals, symbols_left
from mapper.cuda.api import device_function

_BITS = np.int32(14)
"""Of the number of a cell in its row, below the symbols left: no row has so many cells."""

_CELL = np.int32((1 << 14) - 1)


@device_function
def fewest_left(strings, rows, ring, row, lo, hi, lane, lanes):
    """Of a lane's cells of M the fewest symbols left, and on which diagonal; FAR without cells."""
    fewest = FAR
    k = np.int32(lo + lane)
    while k <= hi:
        h = np.int32(rows[np.uint32(row.match + (k & ring.mask))])
        if h >= 0:
            left = np.int32(symbols_left(strings, h, k))
            # Of equals the lowest diagonal.
            fewest = min(fewest, np.int32((left << _BITS) | np.int32(k - lo)))
        k = np.int32(k + lanes)
    return fewest


@device_function
def kept_around(fewest, lo, hi, width):
    """The diagonals that are kept, by the least of what :func:`fewest_left` returned."""
    best_k = lo
    if fewest != FAR:
        best_k = np.int32(lo + (fewest & _CELL))
    first, last = kept_diagonals(best_k, lo, hi, width)
    return np.int32(first), np.int32(last)
