"""The text as words of 32 bases that compare as numbers: the form in which it is sorted.

Words (uint64, shape (n // 32 + 2,)): base i of the text, 2 bits, lies in word ``i >> 5``,
the first base of a word in its highest bits. Two suffixes therefore compare 32 bases at a
time as unsigned numbers. Beyond the end the words hold A, the smallest base.

The cores of the suffix sort that the CPU and devices share are here, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mapper.jit.accelerate import core, driver

WORD_BASES = 32


@dataclass
class PackedText:
    """A text in the two packed forms from which an index is built."""

    words: np.ndarray  # uint64 (n // 32 + 2,): ambiguous bases replaced
    ref_planes: np.ndarray  # uint64 (n_words + 2, 3): as in FMIndex
    n: int

    def release_words(self) -> None:
        """Free the words, which nothing needs once the suffixes are sorted."""
        self.words = self.words[:0].copy()


def n_words(n: int) -> int:
    """Return the number of words of a text of `n` bases, with one beyond its end."""
    return n // WORD_BASES + 2


@core
def key_at(words, n, text_pos):
    """Return 32 bases from `text_pos` (int64, >= 0) on, as uint64; A beyond the end, `n`."""
    if text_pos >= n:
        return np.uint64(0)
    word = text_pos >> 5
    shift = np.uint64((text_pos & 31) << 1)
    # Two shifts, because a shift by 64 is undefined.
    return (words[word] << shift) | ((words[word + 1] >> np.uint64(1)) >> (np.uint64(63) - shift))


@core
def base_at(words, text_pos):
    """Return the code of the base at `text_pos` (int64), as uint8."""
    shift = np.uint64(62 - ((text_pos & 31) << 1))
    return np.uint8((words[text_pos >> 5] >> shift) & np.uint64(3))


@core
def window_at(words, text_pos):
    """Return 32 bases from `text_pos` on, a multiple of 32, and the 32 after them.

    :func:`next_window` shifts them by one base, at most 32 times: the fast way to all k-mers.
    """
    return words[text_pos >> 5], words[(text_pos >> 5) + 1]


@core
def next_window(key, after):
    """Return the windows one base further on."""
    return (key << np.uint64(2)) | (after >> np.uint64(62)), after << np.uint64(2)


@driver
def pack_words(text, first, end, words):
    """Fill ``words[first:end]`` from `text`, uint8 codes 0 to 3."""
    n = len(text)
    for word in range(first, end):
        start = word << 5
        bases = np.uint64(0)
        for i in range(start, min(n, start + 32)):
            bases |= np.uint64(text[i]) << np.uint64(62 - ((i - start) << 1))
        words[word] = bases


@driver
def count_leading(words, kmer_len, first, end, counts):
    """Add to ``counts[x]`` the suffixes of ``[first, end)`` whose leading k-mer is x.

    `first` is a multiple of 32. A suffix shorter than k counts as if A followed it.
    """
    shift = np.uint64(64 - 2 * kmer_len)
    for start in range(first, end, 32):
        key, after = window_at(words, start)
        for _ in range(start, min(end, start + 32)):
            counts[np.int64(key >> shift)] += 1
            key, after = next_window(key, after)


@core
def rank_after(rank, n, text_pos, depth, offset):
    """Return a key (uint64) that orders suffixes with `depth` equal bases: the rank that follows.

    Suffixes that end within these bases sort before all others, the shortest first.

    Parameters
    ----------
    rank
        Row type (n,): see :mod:`mapper.index.suffix_sort`.
    offset
        Added so that no key is negative. The least `depth` of all rounds suffices, because
        after that round no suffix that ends within twice as many bases is tied.
    """
    after = text_pos + depth
    if after < n:
        return np.uint64(np.int64(rank[after]) + offset)
    return np.uint64(n - after + offset)


@core
def write_row(words, rank, text_pos, first_row, end_row, sa_shift, bwt, sa_samples):
    """Write BWT and sample of the row of a suffix, if it lies in ``[first_row, end_row)``.

    Parameters
    ----------
    rank
        Ranks of all suffixes, none tied.
    first_row
        A multiple of ``2**sa_shift``.
    bwt
        uint8: the base before the suffix is written to ``bwt[row - first_row]``; for the whole
        text there is none, and nothing is written.
    sa_samples
        Row type: the sampled rows from `first_row` on.
    """
    row = np.int64(rank[text_pos]) - first_row
    if row < 0 or row >= end_row - first_row:
        return
    if text_pos > 0:
        bwt[row] = base_at(words, text_pos - 1)
    if row & ((1 << sa_shift) - 1) == 0:
        sa_samples[row >> sa_shift] = text_pos
