"""Edit distance by whole columns of bit vectors: all ends of a query, any relation of letters.

Row i and column j count the symbols of query and reference consumed, D(i, j) is their distance.
Neighbouring cells differ by at most 1: a column is stored as two words for every 64 rows, one with
the bits of the cells that are one more than the cell above, one with those that are one less. What
matches comes as a word for each letter of the reference: the rows of the query that match it. So
letters may match in any way, as N with A, C, G and T, which do not match each other.

All cells are computed, so the last row tells the distance at every column, while wavefronts
(``wavefront.py``) stop at the first end. The path is that of ``wavefront.trace_edit``: it leaves a
run of matches as soon as an edit leads to the current cell, preferring a mismatch, then a deletion.

References
----------
Myers (1999), A fast bit-vector algorithm for approximate string matching, J. ACM 46:395, section 4
(blocks). Hyyrö (2003), Nordic J. Computing 10:29 (cells level with their diagonal neighbour).
"""

from __future__ import annotations

import numpy as np

from mapper.align.edit.bit_vectors import moves_of
from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.jit.accelerate import core


@core
def next_word(equal, plus, minus, above):
    """Return the next column of 64 rows.

    Parameters
    ----------
    equal
        Rows whose query symbol matches the symbol of the column (uint64).
    plus, minus
        Rows of the previous column that are one more, or one less, than the row above.
    above
        Difference of the row above these, from the previous column to this one: -1, 0 or 1.

    Returns
    -------
    plus, minus, right, left, level
        Words: the new column; rows that are one more, or one less, than in the previous column;
        rows equal to the row above in the previous column.
    """
    one = np.uint64(1)
    rises, falls = np.uint64(above > 0), np.uint64(above < 0)
    stays = equal | minus
    equal |= falls
    summed = (((equal & plus) + plus) ^ plus) | equal
    right = minus | ~(summed | plus)
    left = plus & summed
    level = summed | minus
    right_above = (right << one) | rises
    left_above = (left << one) | falls
    return left_above | ~(stays | right_above), right_above & stays, right, left, level


@core
def scan_columns(equal, n, ref, at, step, m, free_begin, free_end, plus, minus, ends, moves):
    """Compute all columns, and find where the distance of the whole query is lowest.

    Parameters
    ----------
    equal
        uint64 (letters, words): rows of the query, of n symbols, that match each letter.
    ref, at, step, m
        Letters of the reference (uint8): the first lies at `at`, the next `step` items later.
    free_begin, free_end
        True if symbols of the reference before, or behind, the alignment cost nothing.
    plus, minus
        Workspace, uint64 (words,).
    ends
        int64, m + 1 items, for the ends.
    moves
        uint64 (m, words, 2) for the traceback; None to write none, which compiles another version.

    Returns
    -------
    distance, n_ends
        The ends (symbols of the reference consumed) are in `ends`, ascending.
    """
    n_words = (n + 63) >> 6
    for w in range(n_words):
        plus[w] = ~np.uint64(0)
        minus[w] = np.uint64(0)
    distance = np.int64(n)
    best = np.int64(n)
    ends[0] = 0
    n_ends = np.int64(1 if free_end or m == 0 else 0)
    if n_ends == 0:
        best = np.int64(n + m)
    for j in range(m):
        letter = ref[at + step * j]
        change = np.int64(0 if free_begin else 1)
        for w in range(n_words):
            plus[w], minus[w], right, left, level = next_word(
                equal[letter, w], plus[w], minus[w], change
            )
            if moves is not None:
                moves[j, w, 0], moves[j, w, 1] = moves_of(level, right, level & plus[w])
            lowest = np.uint64(63 if w + 1 < n_words else (n - 1) & 63)
            change = np.int64((right >> lowest) & np.uint64(1))
            change -= np.int64((left >> lowest) & np.uint64(1))
        distance += change
        if free_end or j + 1 == m:
            if distance < best:
                best = distance
                n_ends = np.int64(0)
            if distance == best:
                ends[n_ends] = j + 1
                n_ends += 1
    return best, n_ends


@core
def trace_columns(moves, n, m, free_begin, ops):
    """Write the operations of the path to cell (n, m), last one first; `ops` has n + m items.

    Returns
    -------
    n_ops, start
        Number of operations; symbols of the reference before the alignment.
    """
    i, j, n_ops = np.int64(n), np.int64(m), np.int64(0)
    while i > 0 and j > 0:
        word, bit = (i - 1) >> 6, np.uint64((i - 1) & 63)
        enters = (moves[j - 1, word, 0] >> bit) & np.uint64(1)
        gap = (moves[j - 1, word, 1] >> bit) & np.uint64(1)
        op = EQUAL
        if enters:
            op = D if gap else X
        elif gap:
            op = I
        n_ops = append_op(ops, n_ops, op, 1)
        i -= op != D
        j -= op != I
    n_ops = append_op(ops, n_ops, I, i)
    if not free_begin:
        n_ops = append_op(ops, n_ops, D, j)
        j = np.int64(0)
    return n_ops, j
