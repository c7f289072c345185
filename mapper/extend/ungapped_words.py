"""Core: the best ungapped alignment on a diagonal as ``locus.py`` has it, by words, on the CPU.

Most loci are old copies of a repeat, with dozens of mismatches, and to go from one to the next
takes longer than all else at a locus. Here all runs of 8 matches are found at once, by a few shifts
of whole words, and the longest is one of these few. Each side of it is then cut by a table that
tells, for the mismatches of 8 bases, what they score and where the score is highest. Devices, where
many threads share the loci, do without.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.dna import n_words
from mapper.extend.locus import Ungapped
from mapper.extend.read import align_row
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import popcount, trailing_zeros
from mapper.params import ExtendParams

LONGEST = 256
"""Bases of the longest read for which there are words."""

_WORDS = LONGEST // 64

_BYTE = 8
_SCORE, _BEST, _LENGTH = range(3)

_LENGTH_BITS = 16
_MOST_LENGTH = (1 << _LENGTH_BITS) - 1


class WordScratch(NamedTuple):
    """Workspace, and the table for the scores of a run."""

    firsts: np.ndarray  # uint64 (_WORDS,): where runs of matches begin
    lasts: np.ndarray  # uint64 (_WORDS,): where the last ones of their length begin in them
    differ: np.ndarray
    """uint64 (_WORDS + 1,): a bit for each mismatch, and for each base beyond the read."""
    table: np.ndarray
    """int32 (2 * 256, 3): for 8 bases by their mismatches, first from the lowest bit on, then from
    the highest: doubled score, the highest of the first bases, and how many these are."""


def new_word_scratch(params: ExtendParams) -> WordScratch:
    """Allocate workspace, and make the table."""
    table = np.zeros((2, 256, 3), np.int32)
    for backward in range(2):
        for mismatches in range(256):
            row = table[backward, mismatches]
            for i in range(_BYTE):
                differs = mismatches >> (_BYTE - 1 - i if backward else i) & 1
                row[_SCORE] += 2 * (-params.mismatch if differs else params.match)
                if row[_SCORE] > row[_BEST]:
                    row[_BEST], row[_LENGTH] = row[_SCORE], i + 1
    differ = np.full(_WORDS + 1, ~np.uint64(0))
    firsts, lasts = np.zeros((2, _WORDS), np.uint64)
    return WordScratch(firsts, lasts, differ, table.reshape(-1, 3))


@core
def _block_from(differ, pos):
    """Return the mismatches of the 8 bases from `pos` on, as a row of the table."""
    row = np.uint64(pos >> 6)
    one, shift = np.uint64(1), np.uint64(pos & 63)
    bits = (differ[row] >> shift) | ((differ[row + one] << one) << (np.uint64(63) - shift))
    return np.int64(bits & np.uint64(255))


@core
def _twice(word_0, word_1, word_2, word_3, length):
    """Return where runs of twice a length, below 64, begin, given where runs of it do."""
    shift, left = np.uint64(length), np.uint64(64 - length)
    return (
        word_0 & ((word_0 >> shift) | (word_1 << left)),
        word_1 & ((word_1 >> shift) | (word_2 << left)),
        word_2 & ((word_2 >> shift) | (word_3 << left)),
        word_3 & (word_3 >> shift),
    )


@core
def _write_borders(word_0, word_1, word_2, word_3, scratch):
    """Write the first and the last bit of each stretch of set bits."""
    one, top = np.uint64(1), np.uint64(63)
    scratch.firsts[0] = word_0 & ~(word_0 << one)
    scratch.firsts[1] = word_1 & ~((word_1 << one) | (word_0 >> top))
    scratch.firsts[2] = word_2 & ~((word_2 << one) | (word_1 >> top))
    scratch.firsts[3] = word_3 & ~((word_3 << one) | (word_2 >> top))
    scratch.lasts[0] = word_0 & ~((word_0 >> one) | (word_1 << top))
    scratch.lasts[1] = word_1 & ~((word_1 >> one) | (word_2 << top))
    scratch.lasts[2] = word_2 & ~((word_2 >> one) | (word_3 << top))
    scratch.lasts[3] = word_3 & ~(word_3 >> one)


@core
def _longest_run(scratch):
    """Return start and length of the longest run of matches, the first of equals; there is one.

    Runs of 8 matches are few; shorter ones are looked at where there is none.
    """
    differ = scratch.differ
    ones = ~differ[0], ~differ[1], ~differ[2], ~differ[3]
    twos = _twice(*ones, 1)
    fours = _twice(*twos, 2)
    found, length = _twice(*fours, 4), np.int64(8)
    if (found[0] | found[1] | found[2] | found[3]) == 0:
        found, length = fours, np.int64(4)
        if (found[0] | found[1] | found[2] | found[3]) == 0:
            found, length = twos, np.int64(2)
            if (found[0] | found[1] | found[2] | found[3]) == 0:
                found, length = ones, np.int64(1)
    _write_borders(*found, scratch)
    longest, start = np.int64(-1), np.int64(0)
    row = np.int64(0)
    lasts = scratch.lasts[0]
    for w in range(_WORDS):
        firsts = scratch.firsts[w]
        while firsts:
            while lasts == 0:
                row += 1
                lasts = scratch.lasts[row]
            first = 64 * w + np.int64(trailing_zeros(firsts))
            last = 64 * row + np.int64(trailing_zeros(lasts))
            firsts &= firsts - np.uint64(1)
            lasts &= lasts - np.uint64(1)
            if last - first > longest:
                longest, start = last - first, first
    return start, longest + length


@core
def _better(best, score, length, row):
    """Return the highest score of some first bases so far, and how few they are, as one number.

    `score` and `length` are those before the 8 bases of a row of the table.
    """
    here = (score + row[_BEST]) << _LENGTH_BITS | (_MOST_LENGTH - length - row[_LENGTH])
    return max(best, here)


@core
def _decide(best, total, room, end_bonus):
    """Return the objective of an extension, and its length; all of `room` scores `total`."""
    if total + 2 * end_bonus > best >> _LENGTH_BITS:
        return total + 2 * end_bonus, np.int64(room)
    return best >> _LENGTH_BITS, _MOST_LENGTH - (best & _MOST_LENGTH)


@core
def _cut_right(scratch, corner, room, total, params):
    """Return objective and length of the best extension to the right, of score `total` in all."""
    score = length = np.int64(0)
    best = np.int64(_MOST_LENGTH)
    while length < room and score + 2 * params.match * (room - length) > best >> _LENGTH_BITS:
        row = scratch.table[_block_from(scratch.differ, corner + length)]
        best = _better(best, score, length, row)
        score += row[_SCORE]
        length += _BYTE
    return _decide(best, total, room, params.end_bonus)


@core
def _cut_left(scratch, corner, total, params):
    """Return objective and length of the best extension to the left; as :func:`_cut_right`."""
    score = length = np.int64(0)
    best = np.int64(_MOST_LENGTH)
    while length < corner and score + 2 * params.match * (corner - length) > best >> _LENGTH_BITS:
        pos = corner - length - _BYTE
        if pos >= 0:
            mismatches = _block_from(scratch.differ, pos)
        else:  # what lies before the read differs
            mismatches = np.int64((scratch.differ[0] << np.uint64(-pos)) & np.uint64(255))
            mismatches |= (np.int64(1) << -pos) - 1
        row = scratch.table[256 + mismatches]
        best = _better(best, score, length, row)
        score += row[_SCORE]
        length += _BYTE
    return _decide(best, total, corner, params.end_bonus)


@core
def _fill_words(read_planes, read_word, read_len, text_planes, diagonal, scratch):
    """Write the words of a read on a diagonal; return the number of its mismatches.

    As :func:`mapper.dna.mismatch_word` has them; each word of the text is loaded once.
    """
    n = np.int64(0)
    n_words_of_read = n_words(read_len)
    row = np.uint64(diagonal >> 6)
    one, shift = np.uint64(1), np.uint64(diagonal & 63)
    left = np.uint64(63) - shift
    low, high, ambiguous = text_planes[row, 0], text_planes[row, 1], text_planes[row, 2]
    for w in range(n_words_of_read):
        row += one
        next_low, next_high = text_planes[row, 0], text_planes[row, 1]
        next_ambiguous = text_planes[row, 2]
        differ = read_planes[read_word + w, 0] ^ ((low >> shift) | ((next_low << one) << left))
        differ |= read_planes[read_word + w, 1] ^ ((high >> shift) | ((next_high << one) << left))
        differ |= (ambiguous >> shift) | ((next_ambiguous << one) << left)
        differ |= read_planes[read_word + w, 2]  # also of what lies beyond the read
        low, high, ambiguous = next_low, next_high, next_ambiguous
        n += popcount(differ)
        scratch.differ[w] = differ
    for w in range(n_words_of_read, _WORDS):
        scratch.differ[w] = ~np.uint64(0)
    return n - (64 * n_words_of_read - read_len)


@core
def align_row_by_words(text_planes, planes, read_word, read_len, loci, locus, params, positions,
                       scratch, ungapped):  # fmt: skip
    """Align one read to one locus as :func:`mapper.extend.read.align_row` does: the same row.

    `scratch` is a :class:`WordScratch`. That function aligns reads of more than LONGEST bases
    and reads that overhang their contig.
    """
    diagonal = loci.diagonal[locus]
    n = np.int64(-1)
    if (
        0 < read_len <= LONGEST
        and loci.window_start[locus] <= diagonal
        and diagonal + read_len <= loci.window_end[locus]
    ):
        word = read_word + n_words(read_len) * loci.strand[locus]
        n = _fill_words(planes, word, read_len, text_planes, diagonal, scratch)
    if n < 0 or n == read_len:
        align_row(
            text_planes, planes, read_word, read_len, loci, locus, params, positions, ungapped
        )
        return
    start, length = np.int64(0), np.int64(read_len)
    n_left = np.int64(0)
    if n > 0:
        start, length = _longest_run(scratch)
        for w in range((start + 63) >> 6):
            before = scratch.differ[w]
            if start - 64 * w < 64:
                before &= (np.uint64(1) << np.uint64(start - 64 * w)) - np.uint64(1)
            n_left += popcount(before)
    end = start + length
    lost = 2 * (params.match + params.mismatch)
    left, n_kept_left = _cut_left(scratch, start, 2 * params.match * start - lost * n_left, params)
    room = read_len - end
    right, n_kept_right = _cut_right(
        scratch, end, room, 2 * params.match * room - lost * (n - n_left), params
    )
    found = Ungapped(
        start - n_kept_left, end + n_kept_right, start, end, left, right, n_left, n - n_left
    )
    for field in range(8):
        ungapped[field] = found[field]
