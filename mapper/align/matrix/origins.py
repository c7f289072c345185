"""Where the origins of matrix cells lie: four bits a cell, on the CPU and on a device.

Numba chooses :func:`origin_at` by the type of the origins, as it does in ``cells.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from mapper.align.matrix.cells import INLINED, is_cells
from mapper.jit.accelerate import core


class ByteOrigins(NamedTuple):
    """The bits of all cells, a byte each, row by row."""

    cells: np.ndarray  # uint8
    n_columns: int


class BandOrigins(NamedTuple):
    """The bits of the cells of a band, a byte each, by antidiagonals (``dp_band.py``)."""

    cells: np.ndarray  # uint8
    highest: int  # diagonal j - i
    n_rows: int  # of each antidiagonal


@core
def first_row(t, highest):
    """First row i of antidiagonal ``t = i + j`` in a band up to diagonal `highest`."""
    return max(np.int64(1), (t - highest + 1) >> 1)


@core
def _band_origin(origins, i, j):
    t = i + j
    at = (t - 2) * origins.n_rows + i - first_row(t, origins.highest)
    return np.int64(origins.cells[at])


class StripOrigins(NamedTuple):
    """The bits of the cells of one pair, as the lanes of a group write them.

    Of a step every lane writes word 0, then every lane word 1...: the lanes' words lie together.
    """

    words: np.ndarray  # uint32
    start: int  # first word of the pair
    n_steps: int
    above: int  # rows that stand above the query's first
    lanes: int
    halves: int
    rows: int


@core
def _strip_origin(origins, i, j):
    rows = np.uint32(origins.rows)
    row = np.uint32(i - 1 + origins.above)
    line = np.uint32(row // rows)  # of all halves of all strips
    x = np.uint32(row - line * rows)
    # Lanes and halves are powers of two: one division is enough.
    two = np.uint32(origins.halves - 1)
    lines = np.uint32(origins.lanes * origins.halves)
    strip = np.uint32(line // lines)
    line = np.uint32(line & (lines - np.uint32(1)))
    a_word = np.uint32(8) >> two
    x_word = np.uint32(x >> (np.uint32(3) - two))
    words_a_step = np.uint32((rows + a_word - np.uint32(1)) >> (np.uint32(3) - two))
    step = np.uint64(strip) * np.uint64(origins.n_steps) + np.uint64(j - 1) + np.uint64(line)
    at = step * np.uint64(words_a_step) + np.uint64(x_word)
    at = np.uint64(origins.start) + at * np.uint64(origins.lanes) + np.uint64(line >> two)
    shift = np.uint32(16) * np.uint32(line & two)
    shift += np.uint32(4) * np.uint32(a_word - np.uint32(1) - (x & (a_word - np.uint32(1))))
    return np.int64((np.uint64(origins.words[at]) >> np.uint64(shift)) & np.uint64(15))


class TwinOrigins(NamedTuple):
    """The bits of the cells of one pair of two whose queries are twins: ``twins_cuda.py``.

    Four rows of both make a word; of a step every lane writes word 0, then every lane word 1...
    """

    words: np.ndarray  # uint32
    start: int  # first word of the pair
    n_steps: int
    first_units: int  # words that a lane writes at a step in the first strip
    units: int  # and in others
    above: int  # rows that stand above the query's first
    lanes: int
    half: int


@core
def _twin_origin(origins, i, j):
    row = np.uint32(i - 1 + origins.above)
    lanes = np.uint32(origins.lanes)
    units, units_before = np.uint32(origins.first_units), np.uint32(0)
    first = np.uint32(np.uint32(4) * units * lanes)
    if row >= first:
        row = np.uint32(row - first)
        units_before, units = units, np.uint32(origins.units)
        strip = np.uint32(row // np.uint32(np.uint32(4) * units * lanes))
        row = np.uint32(row - strip * np.uint32(np.uint32(4) * units * lanes))
        units_before = np.uint32(units_before + strip * units)
    lane = np.uint32(row // np.uint32(np.uint32(4) * units))
    x = np.uint32(row - lane * np.uint32(np.uint32(4) * units))
    at = np.uint64(units_before) * np.uint64(origins.n_steps)
    at += np.uint64(np.uint32(j - 1) + lane) * np.uint64(units) + np.uint64(x >> np.uint32(2))
    at = np.uint64(origins.start) + at * np.uint64(lanes) + np.uint64(lane)
    shift = np.uint32(16) * np.uint32(origins.half)
    shift += np.uint32(4) * np.uint32(np.uint32(3) - (x & np.uint32(3)))
    return np.int64((np.uint64(origins.words[at]) >> np.uint64(shift)) & np.uint64(15))


@core
def _byte_origin(origins, i, j):
    return np.int64(origins.cells[(i - 1) * origins.n_columns + j - 1])


def origin_at(origins, i, j):
    """Return the bits of cell (i, j), both counted from 1."""
    if isinstance(origins, ByteOrigins):
        return _byte_origin(origins, i, j)
    if isinstance(origins, BandOrigins):
        return _band_origin(origins, i, j)
    if isinstance(origins, TwinOrigins):
        return _twin_origin(origins, i, j)
    return _strip_origin(origins, i, j)


@overload(origin_at, jit_options=INLINED)
def _origin_at(origins, i, j):
    if is_cells(origins, ByteOrigins):
        return lambda origins, i, j: _byte_origin(origins, i, j)
    if is_cells(origins, BandOrigins):
        return lambda origins, i, j: _band_origin(origins, i, j)
    if is_cells(origins, TwinOrigins):
        return lambda origins, i, j: _twin_origin(origins, i, j)
    return lambda origins, i, j: _strip_origin(origins, i, j)
