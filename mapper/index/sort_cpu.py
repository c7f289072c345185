"""The suffix sort on the CPU: one bucket of suffixes at a time, in the processor's cache.

A bucket holds the suffixes with one leading 8-mer, some ten thousand in a large genome. Threads
take buckets, and in the rounds chunks of groups (``sort_buckets.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from mapper.index.packed_text import base_at, count_leading
from mapper.index.suffix_sort import SortedText, Tied
from mapper.index.suffix_sort_cpu import (
    collect,
    look_ahead,
    place_suffixes,
    refine_groups,
    sort_buckets,
)
from mapper.parallel.map import map_in_threads, parts

WORDS_DEEP = 4
"""Words of 32 bases by which buckets are sorted before ranks are: repeats that end within
them need no round of their own."""

_TASKS = 8
"""Tasks for each thread in a block: few enough to cost nothing, enough to end together."""


class CpuSorter:
    """The steps of :mod:`mapper.index.suffix_sort` on the CPU.

    Parameters
    ----------
    words
        The text (:mod:`mapper.index.packed_text`).
    n
        Its length in bases.
    bucket_len
        1 to 16: length of the k-mers by which suffixes are dealt first.
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
        """Deal buckets to tasks with like numbers of suffixes."""
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
        """Refine some chunks: all their keys are read before any of their ranks changes."""

        def look(chunk: Tied) -> np.ndarray:
            keys = np.empty(len(chunk.rows), np.uint64)
            look_ahead(self.rank, self.n, depth, self.depth, chunk.positions, keys)
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
            place_suffixes(self.words, self.rank, *part, self.sa_shift, bwt, sa_samples)

        map_in_threads(write, self.parts, self.n_threads)
        return SortedText(bwt, sa_samples, int(self.rank[0]))
