"""Core: alignment by the full matrix, affine gaps and any substitution scores.

With H the best score of prefixes of i query and j reference symbols, I and D those that end
in a gap that consumes the query or the reference::

    I(i, j) = max(H(i-1, j) - o - e, I(i-1, j) - e)
    D(i, j) = max(H(i, j-1) - o - e, D(i, j-1) - e)
    H(i, j) = max(H(i-1, j-1) + S(query i, ref j), D(i, j), I(i, j))    [local: and 0]

A gap of n costs ``o + n e``, at the borders too. One row is held; each cell leaves a byte
that says where its three values came from, which the backtrace follows in linear time: the
bit that a gap goes on belongs to the cell the gap is *in*, not to the one it leads to.

References
----------
Gotoh (1982), doi:10.1016/0022-2836(82)90398-9. Blazewicz et al. (2011), BMC Bioinformatics
12:181, equations 1 to 14 (four bits a cell), with the errata of its backtrace put right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.cigar import EQUAL, D, I, X, append_op

GLOBAL, SEMIGLOBAL, LOCAL = range(3)
"""Both sequences whole; free ends of both, where at least one symbol of each takes part; the
best parts of both, or nothing."""

NEVER = np.int32(-(2**30))
"""Score of what cannot be; leaves room to subtract from it."""

# Bits of a cell's byte; the lowest two say where H comes from.
_FROM_DIAGONAL, _FROM_DELETION, _FROM_INSERTION, _STOP = range(4)
_INSERTION_OPENED, _DELETION_OPENED = 4, 8


class Gaps(NamedTuple):
    """A gap of n symbols costs ``gap_open + n * gap_extend``."""

    gap_open: int
    gap_extend: int


@core
def next_cell(diagonal, above, insertion_above, before, deletion_before, gaps, mode):
    """One cell: from H and I of the cell above, H and D of that before, H + S of the diagonal.

    Returns
    -------
    score, insertion, deletion, origin
        Of equals the diagonal is taken before a deletion, that before an insertion, and a
        gap is opened before it is lengthened.
    """
    opening = gaps.gap_open + gaps.gap_extend
    opened, extended = above - opening, insertion_above - gaps.gap_extend
    insertion = max(opened, extended)
    origin = np.int64(_INSERTION_OPENED if opened >= extended else 0)
    opened, extended = before - opening, deletion_before - gaps.gap_extend
    deletion = max(opened, extended)
    if opened >= extended:
        origin |= _DELETION_OPENED
    score = max(diagonal, max(deletion, insertion))
    if mode == LOCAL and score <= 0:
        return np.int64(0), insertion, deletion, origin | _STOP
    if score != diagonal:
        origin |= _FROM_DELETION if deletion >= insertion else _FROM_INSERTION
    return score, insertion, deletion, origin


@core
def border(length, gaps, mode):
    """H of the first row or column."""
    if mode == GLOBAL and length > 0:
        return -np.int64(gaps.gap_open + length * gaps.gap_extend)
    return np.int64(0)


@core
def fill_matrix(query, ref, scores, gaps, mode, row, insertions, origins, keep):
    """Compute all cells.

    Parameters
    ----------
    query, ref
        Codes, uint8: rows and columns of `scores`.
    row, insertions
        Work space, int32, one more than the reference is long.
    origins
        uint8, for ``len(query) * len(ref)`` bytes if `keep`.

    Returns
    -------
    score, query_end, ref_end
        Of several best cells that with the lowest query_end, then ref_end.
    """
    n, m = len(query), len(ref)
    for j in range(m + 1):
        row[j] = border(j, gaps, mode)
        insertions[j] = NEVER
    best = np.int64(NEVER)
    best_i = np.int64(0)
    best_j = np.int64(0)
    if mode == LOCAL or (mode == SEMIGLOBAL and min(n, m) == 0):
        best = np.int64(0)
    for i in range(n):
        diagonal = np.int64(row[0])
        before = border(i + 1, gaps, mode)
        row[0] = before
        deletion = np.int64(NEVER)
        of_letter = scores[query[i]]
        for j in range(m):
            above = np.int64(row[j + 1])
            before, insertion, deletion, origin = next_cell(
                diagonal + of_letter[ref[j]], above, np.int64(insertions[j + 1]), before, deletion,
                gaps, mode,
            )  # fmt: skip
            diagonal = above
            row[j + 1] = before
            insertions[j + 1] = insertion
            if keep:
                origins[i * m + j] = origin
            if mode == LOCAL and before > best:
                best, best_i, best_j = before, np.int64(i + 1), np.int64(j + 1)
        if mode == SEMIGLOBAL and m > 0 and i + 1 < n and before > best:
            best, best_i, best_j = before, np.int64(i + 1), np.int64(m)
    if mode == GLOBAL:
        return np.int64(row[m]), np.int64(n), np.int64(m)
    if mode == SEMIGLOBAL and n > 0:
        for j in range(1, m + 1):
            if row[j] > best:
                best, best_i, best_j = np.int64(row[j]), np.int64(n), np.int64(j)
    return best, best_i, best_j


@core
def trace_matrix(query, ref, origins, mode, i, j, ops):
    """Write the operations back from cell (i, j), last first.

    Returns
    -------
    n_ops, query_start, ref_start
    """
    m = len(ref)
    n_ops = np.int64(0)
    while i > 0 and j > 0:
        origin = np.int64(origins[(i - 1) * m + j - 1])
        source = origin & 3
        if source == _STOP:
            break
        if source == _FROM_DIAGONAL:
            n_ops = append_op(ops, n_ops, EQUAL if query[i - 1] == ref[j - 1] else X, 1)
            i -= 1
            j -= 1
            continue
        is_insertion = source == _FROM_INSERTION
        opened = _INSERTION_OPENED if is_insertion else _DELETION_OPENED
        length = np.int64(0)
        going = True
        while going:
            length += 1
            going = np.int64(origins[(i - 1) * m + j - 1]) & opened == 0
            if is_insertion:
                i -= 1
            else:
                j -= 1
        n_ops = append_op(ops, n_ops, I if is_insertion else D, length)
    if mode == GLOBAL:
        n_ops = append_op(ops, n_ops, I, i)
        n_ops = append_op(ops, n_ops, D, j)
        return n_ops, np.int64(0), np.int64(0)
    return n_ops, i, j
