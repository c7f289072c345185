"""Core of the FM-index: Occ, backward search, LF-mapping, locate.

The text has n bases; the suffix array has n + 1 rows, row 0 being the sentinel's, which
sorts first. Intervals of rows are half-open. The sentinel is no base: the BWT is stored
without it, and rows above ``primary`` (the row whose BWT character is the sentinel)
shift down by one when they index the stored BWT.

A block (one row of ``blocks``) serves ``occ_spacing`` BWT characters: two words with
four 32-bit counts (A, C, G, T before the block, since the start of its superblock of
2**31 characters), then for every 64 characters a word of low bits and a word of high
bits of their codes. With a spacing of 64 a block is 32 bytes, half a cache line.

References
----------
Ferragina, Manzini (2000), doi:10.1109/SFCS.2000.892127: backward search.
Liu, Schmidt (2012), "Evaluation of GPU-based seed generation for computational genomics using
Burrows-Wheeler transform", IPDPS Workshops, 684-690, section 3.2: reduced Occ (spacing q), sampled
suffix array (every p-th row), interval recurrence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.jit.accelerate import core, driver
from mapper.jit.intrinsics import popcount, prefetch
from mapper.parallel.map import map_in_threads, parts

SUPERBLOCK_SHIFT = 31
"""Block counts are relative to superblocks of this many characters (as a power of 2)."""


class FMIndex(NamedTuple):
    """The searchable index; passes unchanged to compiled code."""

    blocks: np.ndarray  # uint64 (n_blocks, 2 + occ_spacing / 32)
    super_counts: np.ndarray  # int64 (n_superblocks, 4): counts before each superblock
    first_row: np.ndarray  # int64 (5,): first row of each base's suffixes; n_rows at the end
    sa_samples: np.ndarray  # uint32 or uint64: text position of rows 0, p, 2p, ...
    kmer_starts: np.ndarray  # uint32 or uint64 (4**k + 1,): see kmer_interval; (1,) if none
    ref_planes: np.ndarray  # uint64 (n_words + 2, 3): the text as mapper.dna bit planes
    n_rows: int  # n + 1
    primary: int
    occ_shift: int  # log2 of the Occ spacing q
    sa_shift: int  # log2 of the SA sampling p
    kmer_len: int  # k of the interval table; 0 if there is none


@core
def matching_bits(low, high, code):
    """Return a word with bit i set where the character with planes `low`, `high` is `code`."""
    low = low if code & 1 else ~low
    high = high if code & 2 else ~high
    return low & high


@core
def occ(fm, code, row):
    """Count `code` in the BWT before `row` (0 <= row <= n_rows)."""
    i = row - 1 if row > fm.primary else row
    block = np.uint64(i >> fm.occ_shift)
    half = np.uint64((code & 1) << 5)
    checkpoint = (fm.blocks[block, code >> 1] >> half) & np.uint64(0xFFFFFFFF)
    count = np.int64(checkpoint) + fm.super_counts[i >> SUPERBLOCK_SHIFT, code]
    rest = np.int32(i & ((1 << fm.occ_shift) - 1))
    inside = np.int32(0)  # of the block
    word, one = np.uint32(2), np.uint32(1)
    for _ in range(np.int32(rest >> 6)):  # counted, so that the compiler takes four at a time
        bits = matching_bits(fm.blocks[block, word], fm.blocks[block, word + one], code)
        inside = np.int32(inside + popcount(bits))
        word = np.uint32(word + np.uint32(2))
    # Also if rest is 0 and the mask is empty: a branch would cost more.
    below = (np.uint64(1) << np.uint64(rest & 63)) - np.uint64(1)
    bits = matching_bits(fm.blocks[block, word], fm.blocks[block, word + one], code)
    return count + np.int32(inside + popcount(bits & below))


@core
def extend_left(fm, code, sa_lo, sa_hi):
    """Prepend a base to a pattern: return its interval, given the pattern's (Liu 2012, eq 1)."""
    first = fm.first_row[code]
    return first + occ(fm, code, sa_lo), first + occ(fm, code, sa_hi)


@core
def kmer_interval(fm, kmer):
    """Return the interval of a k-mer, coded 2 bits a base in `kmer`, first base highest.

    ``kmer_starts[x]`` is the first row whose suffix does not sort before k-mer x. The
    interval can therefore hold, beyond the true occurrences, rows of suffixes shorter
    than k that end the text; they stay contiguous under :func:`extend_left`, and a
    located hit of theirs exceeds the text, so that :func:`clean_hit` rejects it.
    """
    return np.int64(fm.kmer_starts[kmer]), np.int64(fm.kmer_starts[kmer + 1])


@core
def bwt_code(fm, row):
    """Return the base before the suffix of a row; `row` must not be ``primary``."""
    i = row - 1 if row > fm.primary else row
    block = i >> fm.occ_shift
    rest = i & ((1 << fm.occ_shift) - 1)
    word = 2 + ((rest >> 6) << 1)
    bit = np.uint64(rest & 63)
    low = (fm.blocks[block, word] >> bit) & np.uint64(1)
    high = (fm.blocks[block, word + 1] >> bit) & np.uint64(1)
    return np.int64(low | (high << np.uint64(1)))


@core
def lf(fm, row):
    """Return the row of the suffix one position to the left; `row` must not be ``primary``."""
    code = bwt_code(fm, row)
    return fm.first_row[code] + occ(fm, code, row)


@core
def extend_unique(fm, code, row):
    """Prepend a base to a pattern that occurs once: return its row or -1 (half of extend_left)."""
    if row == fm.primary or bwt_code(fm, row) != code:
        return np.int64(-1)
    return fm.first_row[code] + occ(fm, code, row)


@core
def locate(fm, row):
    """Return the text position of a row, by the sampled suffix array (Liu 2012, eq 2)."""
    steps = 0
    sampled = (1 << fm.sa_shift) - 1
    while row & sampled:
        if row == fm.primary:
            return np.int64(steps)
        row = lf(fm, row)
        steps += 1
    return np.int64(fm.sa_samples[row >> fm.sa_shift]) + steps


class RowsInWork(NamedTuple):
    """Workspace of :func:`locate_together`."""

    rows: np.ndarray  # int64: rows, then the text positions
    walking: np.ndarray  # int32, as many


@core
def locate_together(fm, working, n):
    """Locate ``working.rows[:n]`` in place, on the CPU: the result of :func:`locate` for each.

    All rows walk a step in turn, so that their memory accesses overlap; the text, too, is on its
    way to the cache when they are done.
    """
    width = fm.blocks.shape[1]
    sampled = (np.int64(1) << fm.sa_shift) - 1
    for i in range(n):
        working.walking[i] = i
        row = working.rows[i]
        if row & sampled:
            prefetch(fm.blocks, (row >> fm.occ_shift) * width)
        else:
            prefetch(fm.sa_samples, row >> fm.sa_shift)
    n_walking, steps = np.int64(n), np.int64(0)
    while n_walking > 0:
        n_left = np.int64(0)
        for j in range(n_walking):
            i = working.walking[j]
            row = working.rows[i]
            if row & sampled and row != fm.primary:
                row = lf(fm, row)
                working.rows[i] = row
                if row & sampled:
                    prefetch(fm.blocks, (row >> fm.occ_shift) * width)
                else:
                    prefetch(fm.sa_samples, row >> fm.sa_shift)
                working.walking[n_left] = i
                n_left += 1
                continue
            text_pos = steps
            if row & sampled == 0:
                text_pos += np.int64(fm.sa_samples[row >> fm.sa_shift])
            working.rows[i] = text_pos
            word = 3 * (text_pos >> 6)  # it and the next lie in two cache lines at most
            prefetch(fm.ref_planes, word)
            prefetch(fm.ref_planes, word + 5)
        n_walking = n_left
        steps += 1


@core
def clean_hit(fm, text_pos, length):
    """Return True if `length` bases from `text_pos` lie in one contig and none is ambiguous."""
    if text_pos + length >= fm.n_rows:
        return False
    word = np.uint64(text_pos >> 6)
    bit, length = np.int32(text_pos & 63), np.int32(length)
    while length > 0:
        here = min(np.int32(64 - bit), length)
        mask = (~np.uint64(0) >> np.uint64(64 - here)) << np.uint64(bit)
        if fm.ref_planes[word, 2] & mask:
            return False
        length = np.int32(length - here)
        bit = np.int32(0)
        word += np.uint64(1)
    return True


# --- expansion of an open index: a longer k-mer table, the full suffix array ---


@core
def table_entry(fm, starts, shorter_len, kmer):
    """Return the first row whose suffix does not sort before `kmer` (``shorter_len + 1`` bases).

    One backward search step from the table of one base less: the suffixes before ``a y`` are
    those that begin with a base smaller than a, and those that begin with a and continue with a
    suffix before y.

    Parameters
    ----------
    starts
        The table of k-mers one base shorter.
    kmer
        Bases coded 2 bits each, the first highest; 4**k for the end of the table.
    """
    if kmer >> (2 * shorter_len + 2):
        return np.int64(fm.n_rows)
    code = kmer >> (2 * shorter_len)
    rest = kmer & ((np.int64(1) << (2 * shorter_len)) - 1)
    return fm.first_row[code] + occ(fm, code, np.int64(starts[rest]))


@core
def fill_from_sample(fm, sample, suffix_array):
    """Fill the full suffix array at a sampled row and, by LF-mapping, up to the next sampled row.

    The walks from all samples visit every row once: each row's walk to the right ends at a
    sampled row, that of the sentinel (row 0) at the latest.
    """
    row = sample << fm.sa_shift
    text_pos = np.int64(fm.sa_samples[sample])
    suffix_array[row] = text_pos
    while row != fm.primary:
        row = lf(fm, row)
        text_pos -= 1
        if row & ((1 << fm.sa_shift) - 1) == 0:
            return
        suffix_array[row] = text_pos


@driver
def _lengthen(fm, starts, shorter_len, first, end, longer):
    for kmer in range(first, end):
        longer[kmer] = table_entry(fm, starts, shorter_len, kmer)


def _longer(fm: FMIndex, starts: np.ndarray, length: int, n_threads: int) -> np.ndarray:
    longer = np.empty(4 ** (length + 1) + 1, starts.dtype)

    def fill(part: tuple[int, int]) -> None:
        _lengthen(fm, starts, length, *part, longer)

    n_parts = 8 * n_threads if len(longer) > 100_000 else 1
    map_in_threads(fill, parts(len(longer), n_parts), n_threads)
    return longer


def with_table(fm: FMIndex, kmer_len: int, n_threads: int = 1) -> FMIndex:
    """Return the index with a table of k = `kmer_len`, extended from its own table if shorter.

    One Occ count for each entry of each table on the way: a table of 10-mers takes
    some hundredths of a second.
    """
    if kmer_len == fm.kmer_len:
        return fm
    row = fm.sa_samples.dtype
    if 0 < fm.kmer_len < kmer_len:
        starts, length = fm.kmer_starts, fm.kmer_len
    else:
        starts, length = np.array([0, fm.n_rows], row), 0
    while length < kmer_len:
        starts, length = _longer(fm, starts, length, n_threads), length + 1
    starts.flags.writeable = False
    return fm._replace(kmer_starts=starts if kmer_len else np.zeros(1, row), kmer_len=kmer_len)
