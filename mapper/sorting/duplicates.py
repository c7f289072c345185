"""Decide which records are duplicates: of templates with the same ends, as in samtools markdup.

Of the pairs with equal ends, orientation, barcode and library, that with the highest sum of
qualities stays, and the others are duplicates; ties: the smaller name, then the first in sorted
order. A read without a mapped mate is a duplicate of any pair that has a read with the same
deciding coordinate and strand; of several such reads without a pair, the one of the highest sum
stays; ties: the first.

samtools forgets a record after 300 bases (``-l``) and compares hashes of 32 bits of barcodes; here
all records of a place are compared, by hashes of 64 bits. It knows read groups, but no libraries.
"""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core, driver
from mapper.jit.hashing import splitmix64
from mapper.parallel.buffers import RECYCLER
from mapper.sorting.duplicate_keys import (
    HAS_MATE,
    IN_PAIRS,
    IN_SINGLES,
    IS_REVERSE,
    PAIR_KEY,
    Entries,
    name_is_less,
)
from mapper.sorting.optical import OPTICAL, is_optical, mark_optical
from mapper.sorting.options import MarkOptions

DUPLICATE = 1
"""Bit of a verdict; the other one is :data:`mapper.sorting.optical.OPTICAL`."""


@core
def _same_end(rows, a, b, bits):
    """Return True if two rows agree in their own end, barcode, library and some bits."""
    return (
        rows.coordinate[a] == rows.coordinate[b]
        and rows.place[a] == rows.place[b]
        and rows.library[a] == rows.library[b]
        and rows.barcode[a] == rows.barcode[b]
        and (rows.bits[a] ^ rows.bits[b]) & bits == 0
    )


@core
def _hash_end(rows, row, bits):
    mixed = splitmix64(np.uint64(rows.place[row]), 1)
    group = np.uint64(rows.library[row]) << np.uint64(8) | np.uint64(rows.bits[row] & bits)
    return splitmix64(mixed ^ rows.barcode[row] ^ group, 1)


@core
def _pair_group(rows, row, slots):
    """Return the first row with the pair key of a row, and remember this one if there is none."""
    other = np.uint64(rows.other_coordinate[row]) ^ np.uint64(rows.other_ref[row]) << np.uint64(40)
    mask = np.uint64(len(slots) - 1)
    hashed = splitmix64(_hash_end(rows, row, PAIR_KEY) ^ other, 1)
    while True:
        slot = np.int64(hashed & mask)
        first = slots[slot]
        if first < 0:
            slots[slot] = row
            return np.int64(row)
        if (
            rows.other_coordinate[first] == rows.other_coordinate[row]
            and rows.other_ref[first] == rows.other_ref[row]
            and _same_end(rows, first, row, PAIR_KEY)
        ):
            return np.int64(first)
        hashed += np.uint64(1)


@core
def _single_group(rows, row, slots):
    """Return the first row with the deciding coordinate and strand of a row, as for pairs."""
    mask = np.uint64(len(slots) - 1)
    hashed = _hash_end(rows, row, IS_REVERSE)
    while True:
        slot = np.int64(hashed & mask)
        first = slots[slot]
        if first < 0:
            slots[slot] = row
            return np.int64(row)
        if _same_end(rows, first, row, IS_REVERSE):
            return np.int64(first)
        hashed += np.uint64(1)


@core
def _mark(rows, loser, winner, distance, verdicts):
    verdicts[loser] |= DUPLICATE
    if distance > 0 and is_optical(rows, winner, loser, distance):
        verdicts[loser] |= OPTICAL


@driver
def _decide(rows, distance, pair_slots, single_slots, groups, best, verdicts):
    """Mark duplicates, in the order of the rows.

    Parameters
    ----------
    pair_slots, single_slots
        Hash tables, int32: first row of a group, or -1.
    groups, best
        To be written, int32, shape (rows, 2): first row of the row's group of pairs and of its
        group of single reads, or -1; for the first row of each such group its best row.
    """
    for row in range(len(rows.place)):
        bits = rows.bits[row]
        groups[row, 0] = groups[row, 1] = -1
        if bits & IN_SINGLES:
            group = _single_group(rows, row, single_slots)
            groups[row, 1] = group
            if group == row:
                best[group, 1] = row
            else:
                old = best[group, 1]
                is_better = not rows.bits[old] & HAS_MATE
                if is_better and not bits & HAS_MATE:
                    is_better = rows.score[row] > rows.score[old]
                if is_better:
                    best[group, 1] = row
                    _mark(rows, old, row, distance, verdicts)
                elif not bits & HAS_MATE:
                    _mark(rows, row, old, distance, verdicts)
        if bits & IN_PAIRS:
            group = _pair_group(rows, row, pair_slots)
            groups[row, 0] = group
            if group == row:
                best[group, 0] = row
            else:
                old = best[group, 0]
                is_better = rows.score[row] > rows.score[old]
                if rows.score[row] == rows.score[old]:
                    is_better = name_is_less(rows, row, old)
                if is_better:
                    best[group, 0] = row
                    _mark(rows, old, row, distance, verdicts)
                else:
                    _mark(rows, row, old, distance, verdicts)


@driver
def _fill_trees(rows, groups, best, trees):
    """Write the best row of each row's tree (see :mod:`mapper.sorting.optical`), or -1."""
    for row in range(len(trees)):
        top = np.int64(row)
        if not rows.bits[row] & HAS_MATE:
            top = np.int64(best[groups[row, 1], 1])
        if rows.bits[top] & IN_PAIRS:
            top = np.int64(best[groups[top, 0], 0])
        trees[row] = top


def decide(entries: Entries, options: MarkOptions) -> np.ndarray:
    """Return for each row whether it makes its record a duplicate, and an optical one.

    Parameters
    ----------
    entries
        All rows of some places, in sorted order of the records.

    Returns
    -------
    Bits DUPLICATE and OPTICAL, uint8. Those of the two rows of one record are to be combined by OR.

    Notes
    -----
    OPTICAL is what ``samtools markdup -d`` says, but for one case: a single read whose first pair
    at its place has both reads on one strand and its own key at another place. It is compared with
    that pair and the other single reads there, and not with further pairs of that key.
    """
    n = len(entries.place)
    n_slots = 1 << (2 * n).bit_length()
    slots = RECYCLER.empty(8 * n_slots).view(np.int32).reshape(2, n_slots)
    slots.fill(-1)
    groups, best = RECYCLER.empty(16 * n).view(np.int32).reshape(2, n, 2)
    verdicts = np.zeros(n, np.uint8)
    _decide(entries, options.optical_distance, slots[0], slots[1], groups, best, verdicts)
    if options.optical_distance > 0:
        trees = np.empty(n, np.int32)
        _fill_trees(entries, groups, best, trees)
        mark_optical(entries, trees, options.optical_distance, verdicts)
    return verdicts
