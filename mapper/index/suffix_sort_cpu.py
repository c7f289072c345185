"""The suffix sort on the CPU: by blocks with all threads, or by libdivsufsort.

By blocks (:mod:`mapper.index.suffix_sort`): a bucket holds the suffixes with one leading k-mer,
some ten thousand in a large genome, and is sorted in a core's cache. It is split once by the next 4
bases and then sorted by quicksort on 32 bases at a time; suffixes still tied are sorted in rounds,
by the ranks of suffixes further on. Each driver works for one thread, and no two threads write the
same item.

libdivsufsort (package pydivsufsort, optional) sorts small texts: nothing to compile, one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from mapper.index.packed_text import (
    base_at,
    count_leading,
    key_at,
    next_window,
    rank_after,
    window_at,
    write_row,
)
from mapper.index.suffix_sort import SortedText, Tied
from mapper.jit.accelerate import core, driver
from mapper.parallel.map import map_in_threads, parts
from mapper.parallel.pool import call_in_daemon

# --- sorter ---

WORDS_DEEP = 4
"""Words of 32 bases by which buckets are sorted before the rounds: shorter repeats need no
round."""

_TASKS = 8
"""Tasks for each thread in a block: few enough for low overhead, enough for equal load."""


class CpuSorter:
    """The steps of :mod:`mapper.index.suffix_sort` on the CPU.

    Parameters
    ----------
    words
        The text (:mod:`mapper.index.packed_text`).
    n
        Its length in bases.
    bucket_len
        1 to 16: length of the k-mers of buckets.
    row_type
        uint32 or uint64: holds n.
    sa_shift
        log2 of the SA sampling.
    n_threads
        Threads to use; no effect on the result.
    """

    def __init__(
        self,
        words: np.ndarray,
        n: int,
        bucket_len: int,
        row_type: np.dtype,
        sa_shift: int,
        n_threads: int,
    ) -> None:
        self.words = words
        self.n = n
        self.bucket_len = bucket_len
        self.depth = bucket_len + 32 * WORDS_DEEP
        self.sa_shift = sa_shift
        self.n_threads = n_threads
        blocks = parts((n + 31) // 32, 16 * n_threads)
        self.parts = [(32 * first, min(n, 32 * end)) for first, end in blocks]
        self.counts = np.zeros((0, 0), np.int64)
        self.rank = np.empty(n, row_type)

    def leading_counts(self) -> np.ndarray:
        self.counts = np.zeros((len(self.parts), 4**self.bucket_len), np.int64)

        def count(part: int) -> None:
            first, end = self.parts[part]
            count_leading(self.words, self.bucket_len, first, end, self.counts[part])

        map_in_threads(count, range(len(self.parts)), self.n_threads)
        return self.counts.sum(axis=0)

    def sort_block(
        self, first_kmer: int, end_kmer: int, size: int, row: int, advance: Callable[[int], None]
    ) -> list[Tied]:
        counts = self.counts[:, first_kmer:end_kmer]
        starts = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
        cursors = starts[:-1] + np.cumsum(counts, axis=0) - counts
        positions = np.empty(size, self.rank.dtype)

        def fill(part: int) -> None:
            first, end = self.parts[part]
            collect(
                self.words, self.bucket_len, first_kmer, end_kmer, first, end,
                cursors[part], positions,
            )  # fmt: skip

        map_in_threads(fill, range(len(self.parts)), self.n_threads)

        def sort(task: tuple[int, int]) -> Tied:
            own = starts[task[0] : task[1] + 1]
            chunk = sort_buckets(
                self.words, self.n, self.bucket_len, self.depth, own, row, positions, self.rank
            )
            advance(int(own[-1] - own[0]))
            return Tied(*chunk)

        tied = map_in_threads(sort, self._tasks(starts), self.n_threads)
        return [chunk for chunk in tied if len(chunk.rows)]

    def _tasks(self, starts: np.ndarray) -> list[tuple[int, int]]:
        """Cut the buckets into tasks of similar numbers of suffixes."""
        wanted = np.linspace(0, starts[-1], _TASKS * self.n_threads + 1)
        cuts = np.unique([0, *np.searchsorted(starts, wanted), len(starts) - 1])
        return [(int(a), int(b)) for a, b in pairwise(cuts)]

    def refine(self, tied: list[Tied], depth: int) -> list[Tied]:
        refined = []
        at_once = _TASKS * self.n_threads
        for first in range(0, len(tied), at_once):
            refined += self._refine(tied[first : first + at_once], depth)
        return refined

    def _refine(self, tied: list[Tied], depth: int) -> list[Tied]:
        """Refine some chunks, reading all their keys before any of their ranks changes."""

        def look(chunk: Tied) -> np.ndarray:
            keys = np.empty(len(chunk.rows), np.uint64)
            read_keys(self.rank, self.n, depth, self.depth, chunk.positions, keys)
            return keys

        def sort(item: tuple[Tied, np.ndarray]) -> Tied:
            (rows, positions), keys = item
            kept = refine_groups(self.rank, rows, positions, keys)
            return Tied(rows[:kept].copy(), positions[:kept].copy())

        keys = map_in_threads(look, tied, self.n_threads)
        refined = map_in_threads(sort, zip(tied, keys, strict=True), self.n_threads)
        return [chunk for chunk in refined if len(chunk.rows)]

    def result(self) -> SortedText:
        bwt = np.zeros(self.n + 1, np.uint8)
        bwt[0] = base_at(self.words, self.n - 1)
        sa_samples = np.empty((self.n >> self.sa_shift) + 1, self.rank.dtype)
        sa_samples[0] = self.n

        def write(part: tuple[int, int]) -> None:
            write_rows(self.words, self.rank, *part, self.sa_shift, bwt, sa_samples)

        map_in_threads(write, self.parts, self.n_threads)
        return SortedText(bwt, sa_samples, int(self.rank[0]))


# --- drivers: buckets and groups ---


@driver
def collect(words, kmer_len, first_kmer, end_kmer, first, end, cursors, positions):
    """Write the suffixes of ``[first, end)`` with a leading k-mer of a range to `positions`.

    Parameters
    ----------
    first
        A multiple of 32.
    cursors
        int64: ``cursors[kmer - first_kmer]`` is the index of the k-mer's next suffix; updated.
    """
    shift = np.uint64(64 - 2 * kmer_len)
    for start in range(first, end, 32):
        key, after = window_at(words, start)
        for text_pos in range(start, min(end, start + 32)):
            kmer = np.int64(key >> shift)
            if first_kmer <= kmer < end_kmer:
                at = cursors[kmer - first_kmer]
                positions[at] = text_pos
                cursors[kmer - first_kmer] = at + 1
            key, after = next_window(key, after)


@driver
def sort_bucket(words, n, skip, depth, positions, heads):
    """Sort suffixes with `skip` equal bases by `depth` bases, and mark the start of groups.

    Parameters
    ----------
    positions
        Row type (m,), m > 0: sorted in place.
    heads
        uint8 (m,), zeros: set to 1 at the first suffix of each group.
    """
    m = len(positions)
    keys = np.empty(m, np.uint64)
    stack = np.empty(STACK, np.int64)
    starts = np.zeros(257, np.int64)
    for i in range(m):
        keys[i] = key_at(words, n, np.int64(positions[i]) + skip)
        starts[(keys[i] >> np.uint64(56)) + np.uint64(1)] += 1
    if m > 512:
        for digit in range(256):
            starts[digit + 1] += starts[digit]
        split_keys = np.empty(m, np.uint64)
        split_positions = np.empty(m, positions.dtype)
        for i in range(m):
            digit = keys[i] >> np.uint64(56)
            split_keys[starts[digit]] = keys[i]
            split_positions[starts[digit]] = positions[i]
            starts[digit] += 1
        lo = 0
        for digit in range(256):
            sort_pairs(split_keys, split_positions, lo, starts[digit], stack)
            lo = starts[digit]
        keys = split_keys
        positions[:] = split_positions
    else:
        sort_pairs(keys, positions, 0, m, stack)
    heads[0] = 1
    for i in range(1, m):
        if keys[i] != keys[i - 1]:
            heads[i] = 1
    for sorted_by in range(skip + 32, depth, 32):
        lo = 0
        while lo < m:
            hi = lo + 1
            while hi < m and heads[hi] == 0:
                hi += 1
            if hi - lo > 1:
                for i in range(lo, hi):
                    keys[i] = key_at(words, n, np.int64(positions[i]) + sorted_by)
                sort_pairs(keys, positions, lo, hi, stack)
                for i in range(lo + 1, hi):
                    if keys[i] != keys[i - 1]:
                        heads[i] = 1
            lo = hi


@driver
def sort_buckets(words, n, skip, depth, starts, row, positions, rank):
    """Sort buckets and write the ranks; return rows and positions of tied suffixes.

    Parameters
    ----------
    starts
        int64: bucket b is ``positions[starts[b]:starts[b + 1]]``, in rows from
        ``row + starts[b]`` on.
    """
    first = starts[0]
    heads = np.zeros(starts[-1] - first + 1, np.uint8)
    heads[-1] = 1
    for bucket in range(len(starts) - 1):
        lo, hi = starts[bucket], starts[bucket + 1]
        if lo < hi:
            sort_bucket(words, n, skip, depth, positions[lo:hi], heads[lo - first : hi - first])
    return write_ranks(rank, row + first, positions[first : starts[-1]], heads)


@driver
def write_ranks(rank, row, positions, heads):
    """Write the ranks of sorted groups in rows from `row` on; return rows and positions tied."""
    m = len(positions)
    n_tied = 0
    for i in range(m):
        if heads[i] == 0 or heads[i + 1] == 0:
            n_tied += 1
    tied_rows = np.empty(n_tied, positions.dtype)
    tied_positions = np.empty(n_tied, positions.dtype)
    n_tied = 0
    group = row
    for i in range(m):
        if heads[i]:
            group = row + i
        rank[positions[i]] = group
        if heads[i] == 0 or heads[i + 1] == 0:
            tied_rows[n_tied] = row + i
            tied_positions[n_tied] = positions[i]
            n_tied += 1
    return tied_rows, tied_positions


@driver
def read_keys(rank, n, depth, offset, positions, keys):
    """Write the key of each position (no rank may change meanwhile)."""
    for i in range(len(positions)):
        keys[i] = rank_after(rank, n, np.int64(positions[i]), depth, offset)


@driver
def refine_groups(rank, rows, positions, keys):
    """Sort each group by its keys and write the new ranks.

    Returns
    -------
    The number still tied; their rows and positions are first in `rows` and `positions`.
    """
    stack = np.empty(STACK, np.int64)
    m = len(rows)
    kept = 0
    lo = 0
    while lo < m:
        group = rank[positions[lo]]
        hi = lo + 1
        while hi < m and rank[positions[hi]] == group:
            hi += 1
        sort_pairs(keys, positions, lo, hi, stack)
        at = lo
        while at < hi:
            end = at + 1
            while end < hi and keys[end] == keys[at]:
                end += 1
            row = rows[at]
            for i in range(at, end):
                rank[positions[i]] = row
                if end - at > 1:
                    rows[kept] = rows[i]
                    positions[kept] = positions[i]
                    kept += 1
            at = end
        lo = hi
    return kept


@driver
def write_rows(words, rank, first, end, sa_shift, bwt, sa_samples):
    """Write BWT and samples of the suffixes of ``[first, end)``, none of which is tied."""
    for text_pos in range(first, end):
        write_row(words, rank, text_pos, 0, len(bwt), sa_shift, bwt, sa_samples)


# --- quicksort of keys, with the text positions that belong to them ---

STACK = 128
"""Items of the stack of :func:`sort_pairs`: two for each halving of a range of up to 2**63."""

_SHORT = 16
"""Ranges up to this length are sorted by insertion."""


@core
def hashed_offset(lo, hi, turn, size):
    """Return an offset below `size` that does not depend on the data (multiplicative hash)."""
    mixed = np.uint64(lo + 3 * hi + turn) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(33)) % np.uint64(size))


@core
def swap(keys, positions, i, j):
    """Exchange two keys, and the positions that belong to them."""
    key = keys[i]
    keys[i] = keys[j]
    keys[j] = key
    position = positions[i]
    positions[i] = positions[j]
    positions[j] = position


@core
def middle_of_three(keys, lo, hi):
    """Return the index of the median of three keys of ``[lo, hi)``, drawn by a hash.

    The hash keeps pivots good for any order of the keys that a text may have.
    """
    size = hi - lo
    a = lo + hashed_offset(lo, hi, 0, size)
    b = lo + hashed_offset(lo, hi, 1, size)
    c = lo + hashed_offset(lo, hi, 2, size)
    if keys[a] > keys[b]:
        a, b = b, a
    if keys[b] <= keys[c]:
        return b
    return c if keys[c] > keys[a] else a


@core
def sort_short(keys, positions, lo, hi):
    """Sort by insertion."""
    for i in range(lo + 1, hi):
        key = keys[i]
        position = positions[i]
        j = i
        while j > lo and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            positions[j] = positions[j - 1]
            j -= 1
        keys[j] = key
        positions[j] = position


@core
def partition(keys, positions, lo, hi):
    """Partition ``[lo, hi)``, of at least two items, and return the index of the split.

    No key left of it is larger than any right of it, and neither side is empty. Equal keys
    go to both sides, so that ranges of equal keys split in halves.

    References
    ----------
    Hoare (1962), doi:10.1093/comjnl/5.1.10.
    """
    swap(keys, positions, lo, middle_of_three(keys, lo, hi))
    pivot = keys[lo]
    i = lo
    j = hi - 1
    while True:
        while keys[i] < pivot:
            i += 1
        while keys[j] > pivot:
            j -= 1
        if i >= j:
            return j + 1
        swap(keys, positions, i, j)
        i += 1
        j -= 1


@core
def sort_pairs(keys, positions, lo, hi, stack):
    """Sort ``keys[lo:hi]`` (unsigned) ascending and `positions` with them; not stable.

    Parameters
    ----------
    stack
        int64 (STACK,): workspace.
    """
    stack[0] = lo
    stack[1] = hi
    top = 2
    while top > 0:
        top -= 2
        lo = stack[top]
        hi = stack[top + 1]
        while hi - lo > _SHORT:
            split = partition(keys, positions, lo, hi)
            # The larger side is pushed: the stack holds at most one range for each halving.
            if split - lo < hi - split:
                stack[top] = split
                stack[top + 1] = hi
                hi = split
            else:
                stack[top] = lo
                stack[top + 1] = split
                lo = split
            top += 2
        sort_short(keys, positions, lo, hi)


# --- libdivsufsort ---


def sort_with_library(text: np.ndarray, row_type: np.dtype, sa_shift: int) -> SortedText:
    """Sort the suffixes of `text` (uint8 codes 0 to 3, n > 0) by libdivsufsort."""
    n = len(text)
    suffix_array = sort_suffixes(text)
    bwt = np.empty(n + 1, np.uint8)
    transform_rows(text, suffix_array, 0, n + 1, bwt)
    sa_samples = np.empty((n >> sa_shift) + 1, row_type)
    sa_samples[0] = n
    sa_samples[1:] = suffix_array[(1 << sa_shift) - 1 :: 1 << sa_shift]
    return SortedText(bwt, sa_samples, int(find_primary(suffix_array)))


def sort_suffixes(text: np.ndarray) -> np.ndarray:
    """Return the suffix array: int32 (n,) below 2**31 bases, else int64.

    The sort is one call into C that can take minutes. It releases the GIL and runs in a
    dedicated thread, so that signals are still handled.
    """
    from pydivsufsort import divsufsort  # optional, and slow to import

    suffix_array: np.ndarray = call_in_daemon(partial(divsufsort, text))
    return suffix_array


@driver
def find_primary(suffix_array):
    """Return the row of the suffix that is the whole text; its BWT character is the sentinel."""
    for i in range(len(suffix_array)):
        if suffix_array[i] == 0:
            return i + 1
    return 0


@driver
def transform_rows(text, suffix_array, first_row, end_row, bwt):
    """Write the base before the suffix of each row; at the primary, 0."""
    n = len(text)
    for row in range(first_row, end_row):
        text_pos = n if row == 0 else np.int64(suffix_array[row - 1])
        bwt[row - first_row] = text[text_pos - 1] if text_pos > 0 else 0
