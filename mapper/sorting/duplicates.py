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

from collections.abc import Sequence
from itertools import pairwise

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
    Joined,
    join_rows,
    name_is_less,
)
from mapper.sorting.optical import OPTICAL, is_optical, mark_optical
from mapper.sorting.options import MarkOptions

DUPLICATE = 1
"""Bit of a verdict; the other one is :data:`mapper.sorting.optical.OPTICAL`."""

VERDICT_BITS = 2
"""Bits of a verdict."""


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
def _mark_all(rows, n, distance, pair_slots, single_slots, groups, best, verdicts):
    """Mark duplicates, in the order of the rows.

    Parameters
    ----------
    n
        Number of rows.
    pair_slots, single_slots
        Hash tables, int32: first row of a group, or -1.
    groups, best
        To be written, int32, shape (n, 2): first row of the row's group of pairs and of its
        group of single reads, or -1; for the first row of each such group its best row.
    """
    for row in range(n):
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
def _decide(joined, low, high, distance, slots, groups, best, verdicts, marks):
    """Join rows and mark duplicates; return the number of rows.

    Without a distance the marks are listed, too: in one call, as a thread that returns to Python
    waits for the GIL.
    """
    n = join_rows(joined, low, high)
    n_slots = 2
    while n_slots < 2 * n:
        n_slots *= 2
    slots[:, :n_slots] = -1
    verdicts[:n] = 0
    pair_slots, single_slots = slots[0, :n_slots], slots[1, :n_slots]
    _mark_all(joined.rows, n, distance, pair_slots, single_slots, groups, best, verdicts)
    if distance == 0:
        _list_marks(joined.rows, joined.ends, verdicts, marks)
    return n


@driver
def _list_marks(rows, ends, verdicts, marks):
    """Write the marks of all parts, and replace the ends of the rows of each by those of these."""
    n = np.int64(0)
    row = np.int64(0)
    for part in range(len(ends)):
        while row < ends[part]:
            if verdicts[row]:
                marks[n] = rows.record[row] << VERDICT_BITS | verdicts[row]
                n += 1
            row += 1
        ends[part] = n


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


def decide(parts: Sequence[Entries], low: int, high: int, options: MarkOptions) -> list[np.ndarray]:
    """Return which records are duplicates by their rows at some places, and optical ones.

    Parameters
    ----------
    parts
        Rows of consecutive ranges, among them all with ``low <= place < high``; the others are
        left alone.

    Returns
    -------
    The *marks* of each part: ``record << VERDICT_BITS | verdict``, int32, the verdict being of the
    bits DUPLICATE and OPTICAL. Two marks of one record are to be combined by OR.

    Notes
    -----
    OPTICAL is what ``samtools markdup -d`` says, but for one case: a single read whose first pair
    at its place has both reads on one strand and its own key at another place. It is compared with
    that pair and the other single reads there, and not with further pairs of that key.
    """
    joined = Joined.of(parts)
    rows, distance = joined.rows, options.optical_distance
    most = len(rows.place)
    slots = RECYCLER.empty(8 << (2 * most).bit_length()).view(np.int32).reshape(2, -1)
    groups, best = RECYCLER.empty(16 * most).view(np.int32).reshape(2, most, 2)
    verdicts, marks = np.empty(most, np.uint8), np.empty(most, np.int32)
    n = _decide(joined, low, high, distance, slots, groups, best, verdicts, marks)
    if distance > 0:
        trees = np.empty(n, np.int32)
        _fill_trees(rows, groups, best, trees)
        mark_optical(rows, trees, distance, verdicts)
        _list_marks(rows, joined.ends, verdicts, marks)
    return [marks[a:b] for a, b in pairwise([0, *joined.ends.tolist()])]
