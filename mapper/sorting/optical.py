"""Find optical duplicates: of neighbours on the flow cell, by coordinates in read names.

Duplicates and the records that they are compared with form *trees*: the pairs of one key, and the
single reads whose place has its first pair among them. samtools compares a duplicate with

1. the record that is the best so far when one of the two is found to be a duplicate, in file order
   (:func:`is_optical`, called while marking), and, once the tree is complete,
2. the best record of the tree, and
3. every duplicate of the tree that is better: pairs before single reads, then by score, then name.

If the name of the best record has no coordinates, samtools leaves out 2 and 3. It also sorts names
of different lengths before the coordinates into one list and then compares some of them; here two
names are neighbours only if all before the coordinates is equal. A read whose own name has no
coordinates is never optical (samtools takes those of another one).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.jit.accelerate import core, driver
from mapper.jit.hashing import hash_bytes
from mapper.sorting.duplicate_keys import HAS_MATE, Entries, name_is_less

OPTICAL = 2
"""Bit of a verdict."""

_LARGEST = 1 << 60


@core
def _number(names, at, end):
    """Return (True, number) for the decimal number that begins at `at`."""
    sign = np.int64(1)
    if at < end and (names[at] == ord("-") or names[at] == ord("+")):
        if names[at] == ord("-"):
            sign = np.int64(-1)
        at += 1
    start = at
    value = np.int64(0)
    while at < end and ord("0") <= names[at] <= ord("9"):
        value = min(10 * min(value, np.int64(_LARGEST // 10)) + np.int64(names[at] - ord("0")),
                    np.int64(_LARGEST))  # fmt: skip
        at += 1
    return at > start, sign * value


@core
def _coordinates(rows, row):
    """Return (True, x, y, end of the name before x) of a row's name.

    Names have four, five, seven or eight parts between colons; x and y are the last two, of eight
    the sixth and seventh.
    """
    start = rows.name[row]
    end = start + rows.name_length[row]
    n_colons = 0
    x_at = y_at = start
    for at in range(start, end):
        if rows.names[at] == ord(":"):
            n_colons += 1
            if n_colons == 2 or n_colons == 5:
                x_at = at + 1
            elif n_colons == 3 or n_colons == 6:
                y_at = at + 1
            elif n_colons == 4:
                x_at = y_at
                y_at = at + 1
    is_known = n_colons == 3 or n_colons == 4 or n_colons == 6 or n_colons == 7
    has_x, x = _number(rows.names, x_at, end)
    has_y, y = _number(rows.names, y_at, end)
    return is_known and has_x and has_y, x, y, x_at


@core
def is_optical(rows, a, b, distance):
    """Return True if two rows are neighbours."""
    found, x, y, x_at = _coordinates(rows, a)
    other_found, other_x, other_y, other_x_at = _coordinates(rows, b)
    start, other_start = rows.name[a], rows.name[b]
    length = x_at - start
    is_near = abs(x - other_x) <= distance and abs(y - other_y) <= distance
    if not (found and other_found and is_near and other_x_at - other_start == length):
        return False
    i = 0
    while i < length and rows.names[start + i] == rows.names[other_start + i]:
        i += 1
    return i == length


@driver
def has_coordinates(rows, row):
    """Return True if the name of a row says where the read lay on the flow cell."""
    return _coordinates(rows, row)[0]


class _Members(NamedTuple):
    """Rows of trees whose names have coordinates."""

    row: np.ndarray  # int32
    tree: np.ndarray  # int32: the best row of the tree
    lane: np.ndarray  # uint64: hash of the name before x
    x: np.ndarray  # int64
    y: np.ndarray  # int64


@driver
def _fill_members(rows, trees, members):
    """Write the members of trees of three rows or more whose best row has coordinates.

    `trees` has the best row of each row's tree; -1 for rows that belong to none.
    """
    sizes = np.zeros(len(trees), np.int32)
    for row in range(len(trees)):
        if trees[row] >= 0:
            sizes[trees[row]] += 1
    for row in range(len(trees)):
        if sizes[row] > 0 and (sizes[row] < 3 or not _coordinates(rows, row)[0]):
            sizes[row] = 0
    n = 0
    for row in range(len(trees)):
        if trees[row] >= 0 and sizes[trees[row]] > 0:
            found, x, y, x_at = _coordinates(rows, row)
            if found:
                start = rows.name[row]
                members.row[n] = row
                members.tree[n] = trees[row]
                members.lane[n] = hash_bytes(rows.names, start, x_at - start, 1)
                members.x[n], members.y[n] = x, y
                n += 1
    return n


@core
def _is_better(rows, a, b, best):
    """Return True if row `a` comes before row `b` in the tree whose best row is `best`."""
    if a == best or b == best:
        return a == best
    if (rows.bits[a] ^ rows.bits[b]) & HAS_MATE:
        return (rows.bits[a] & HAS_MATE) != 0
    if rows.score[a] != rows.score[b]:
        return rows.score[a] > rows.score[b]
    if name_is_less(rows, a, b):
        return True
    return a < b and not name_is_less(rows, b, a)


@driver
def _compare_members(rows, members, distance, verdicts):
    """Mark the worse one of any two neighbours; members are sorted by tree, lane and x."""
    for i in range(len(members.row)):
        tree = members.tree[i]
        for j in range(i + 1, len(members.row)):
            if members.tree[j] != tree or members.lane[j] != members.lane[i]:
                break
            if members.x[j] - members.x[i] > distance:
                break
            if abs(members.y[j] - members.y[i]) <= distance:
                a, b = members.row[i], members.row[j]
                worse = b if _is_better(rows, a, b, tree) else a
                verdicts[worse] |= OPTICAL


def mark_optical(rows: Entries, trees: np.ndarray, distance: int, verdicts: np.ndarray) -> None:
    """Set the bit OPTICAL for duplicates by the rules 2 and 3 of the module's docstring.

    Parameters
    ----------
    trees
        The best row of the tree of each row; -1 for rows of none, int32. A tree's only record that
        is no duplicate is its best row.
    distance
        Largest difference of x and of y, in pixels.
    verdicts
        Bits of each row (uint8), changed in place.
    """
    n = len(trees)
    members = _Members(
        np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.uint64),
        np.empty(n, np.int64), np.empty(n, np.int64),
    )  # fmt: skip
    n = _fill_members(rows, trees, members)
    found = _Members(*(column[:n] for column in members))
    order = np.lexsort((found.x, found.lane, found.tree))
    found = _Members(*(column[order] for column in found))
    _compare_members(rows, found, distance, verdicts)
