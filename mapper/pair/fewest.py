"""Core: a bound for the mismatches of a read on some dozens of diagonals side by side.

Mate rescue looks at hundreds of diagonals, nearly all of them random. One loop over those that
start in one word of the text, of nothing but shifts and logic, so that a compiler takes several
at a time, tells that none of them is of use. Two words of a random diagonal mostly have as many
mismatches as a whole read may have: that is seen first.
"""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.intrinsics import popcount

LONGEST = 256
"""Bases of the longest read that is compared so: four words."""

MOST_BY_TWO = 84
"""Mismatches that two words of the best of 64 random diagonals exceed, mostly: 96 ± 5 each."""


@core
def word_of_read(planes, first_word, read_len, i):
    """Word i of a read: low and high bits, and which bases it has that are not ambiguous."""
    row = min(first_word + i, np.int64(len(planes) - 1))
    n_left = min(np.int64(64), max(np.int64(0), read_len - 64 * i))
    bases = np.uint64(0)
    if n_left > 0:
        bases = ~np.uint64(0) >> np.uint64(64 - n_left)
    return planes[row, 0], planes[row, 1], bases & ~planes[row, 2]


@core
def word_of_text(planes, row):
    """Low and high bits of a word; the last one's, beyond it."""
    row = min(row, np.int64(len(planes) - 1))
    return planes[row, 0], planes[row, 1]


@core
def differing(read, text, following, shift):
    """Which bases of a word of the read differ from the text, `shift` bases on in a word."""
    left = np.uint64(63) - shift
    one = np.uint64(1)
    differ = read[0] ^ ((text[0] >> shift) | ((following[0] << one) << left))
    differ |= read[1] ^ ((text[1] >> shift) | ((following[1] << one) << left))
    return differ & read[2]


@core
def least_mismatches(read_planes, read_word, read_len, text_planes, first, n, most):
    """Return what a read's mismatches are at least, on n diagonals from `first` on.

    Parameters
    ----------
    read_len
        Up to LONGEST.
    first, n
        All of these diagonals start in the same word of the text: ``(first & 63) + n <= 64``.
    most
        What is asked is whether there are more.

    Returns
    -------
    The fewest mismatches on any of them, without those at ambiguous bases of read or text; or
    fewer, but more than `most`.
    """
    read_0 = word_of_read(read_planes, read_word, read_len, 0)
    read_1 = word_of_read(read_planes, read_word, read_len, 1)
    row = first >> 6
    text_0 = word_of_text(text_planes, row)
    text_1 = word_of_text(text_planes, row + 1)
    text_2 = word_of_text(text_planes, row + 2)
    least = np.int64(read_len)
    start = first & 63
    if read_len <= 128 or most < MOST_BY_TWO:
        for i in range(start, start + n):
            shift = np.uint64(i)
            mismatches = popcount(differing(read_0, text_0, text_1, shift))
            mismatches += popcount(differing(read_1, text_1, text_2, shift))
            least = min(least, mismatches)
        if read_len <= 128 or least > most:
            return least
        least = np.int64(read_len)
    read_2 = word_of_read(read_planes, read_word, read_len, 2)
    read_3 = word_of_read(read_planes, read_word, read_len, 3)
    text_3 = word_of_text(text_planes, row + 3)
    text_4 = word_of_text(text_planes, row + 4)
    for i in range(start, start + n):
        shift = np.uint64(i)
        mismatches = popcount(differing(read_0, text_0, text_1, shift))
        mismatches += popcount(differing(read_1, text_1, text_2, shift))
        mismatches += popcount(differing(read_2, text_2, text_3, shift))
        mismatches += popcount(differing(read_3, text_3, text_4, shift))
        least = min(least, mismatches)
    return least
