"""CPU driver of k-mer search."""

from __future__ import annotations

import numpy as np

from mapper.batch import KmerBatch, KmerHits
from mapper.index.fm import FMIndex, with_table
from mapper.jit.accelerate import driver
from mapper.kmers.cut import ListFullError, search_in_pieces
from mapper.kmers.hits import (
    BUFFERED,
    NO_LIMIT,
    HitStore,
    KmerWork,
    StepMasks,
    drop_if_many,
    gather_first,
    gather_listed,
    scatter_sorted,
    sort_long_row,
)
from mapper.kmers.search import TextBounds, search_rows
from mapper.params import IndexParams, KmerParams

LIST_CAPACITY = 1 << 20

ENTRIES_OF_BASE = 2.5
"""Most entries of a lengthened k-mer table for each base of the text; most intervals are then
empty."""
ENTRIES_OF_KMER = 2000
"""Most entries for each k-mer to be searched: filling them takes less time than it saves."""


@driver
def _search(fm, bounds, low, high, work, params, hits):
    search_rows(fm, bounds, None, low, high, work, params, hits, 0)


@driver
def _drop(row_hits, max_hits, skipped):
    for kmer in range(len(skipped)):
        skipped[kmer] = drop_if_many(row_hits, kmer, max_hits)


@driver
def _collect(hits, n_listed, hit_offsets, found_pos, found_mismatches, text_pos, mismatches):
    n_rows = len(hit_offsets) - 1
    for row in range(n_rows):
        gather_first(hits, row, hit_offsets, found_pos, found_mismatches)
    for item in range(n_listed):
        gather_listed(hits, item, hit_offsets, found_pos, found_mismatches)
    for row in range(n_rows):
        start, end = hit_offsets[row], hit_offsets[row + 1]
        sort_long_row(found_pos, found_mismatches, start, end)
        for ordinal in range(end - start):
            scatter_sorted(found_pos, found_mismatches, start, end, ordinal, text_pos, mismatches)


def new_store(n_rows: int, capacity: int, row_type: np.dtype) -> HitStore:
    """Return an empty store in host memory."""
    return HitStore(
        row_hits=np.empty(n_rows, np.int32),
        first_pos=np.empty(n_rows, row_type),
        first_mismatches=np.empty(n_rows, np.uint8),
        buffer_pos=np.empty(BUFFERED, row_type),
        buffer_mismatches=np.empty(BUFFERED, np.uint8),
        list_used=np.zeros(1, np.int64),
        list_row=np.empty(capacity, np.int32),
        list_ordinal=np.empty(capacity, np.int32),
        list_pos=np.empty(capacity, row_type),
        list_mismatches=np.empty(capacity, np.uint8),
    )


def fit_table(fm: FMIndex, kmer_len: int) -> FMIndex:
    """Return the index with a k-mer table of 1 to `kmer_len` bases, as k-mer search requires."""
    own = fm.kmer_len or max(1, IndexParams().table_kmer_len(fm.n_rows - 1))
    return with_table(fm, min(own, kmer_len))


def table_len_for_work(fm: FMIndex, params: KmerParams, n_kmers: float, free_bytes: float) -> int:
    """Return the best length of a k-mer table for a search by the CPU, at least the table's own.

    With mismatches dozens of patterns are looked up, and each more base of the table saves most
    of the rows to be verified (500 Mbp with repeats, 30-mers, two mismatches: a table of
    14-mers makes it 1.8 times faster than one of 13-mers, one of 15-mers 3.5 times). An entry takes
    25 ns to fill, a k-mer hundreds of microseconds to search.

    Parameters
    ----------
    n_kmers
        Estimated number of k-mers to be searched.
    free_bytes
        Free memory; the table and its predecessor take half of it at most.
    """
    length = fm.kmer_len
    row_bytes = fm.sa_samples.dtype.itemsize
    while (
        params.max_mismatches > 0
        and length < min(params.kmer_len, 16)
        and 4 ** (length + 1) <= min(ENTRIES_OF_BASE * fm.n_rows, ENTRIES_OF_KMER * n_kmers)
        and 1.25 * row_bytes * 4 ** (length + 1) <= free_bytes / 2
    ):
        length += 1
    return length


def all_rows(n_rows: int) -> KmerWork:
    """Return the worklist of one thread that searches all rows and defers none."""
    nothing = np.zeros(1, np.int64)
    return KmerWork(
        nothing, n_rows, NO_LIMIT, nothing.copy(), np.empty(0, np.int32), False, StepMasks()
    )


class CpuKmerSearch:
    """Search batches of k-mers on the CPU; one thread at a time may use it.

    Parameters
    ----------
    fm
        Its k-mer table is made shorter where k-mers are; see :func:`fit_table`.
    bounds
        Of the same text (:func:`mapper.kmers.search.make_text_bounds`).
    list_capacity
        Most hits of a piece of a batch beyond the first of each row; no effect on the result.
    """

    def __init__(
        self,
        fm: FMIndex,
        bounds: TextBounds,
        params: KmerParams,
        list_capacity: int = LIST_CAPACITY,
    ) -> None:
        self.params = params
        self._fm = fit_table(fm, params.kmer_len)
        self._bounds = bounds
        self._capacity = list_capacity
        self.most_listed = 0
        """Largest number of items in the list so far."""

    def __call__(self, kmers: KmerBatch) -> KmerHits:
        """Return the hits of a batch."""
        return search_in_pieces(self._search, kmers, self._capacity)

    def _find(self, kmers: KmerBatch, store: HitStore) -> None:
        work = all_rows(2 * kmers.n_kmers)
        _search(self._fm, self._bounds, kmers.low, kmers.high, work, self.params, store)

    def _search(self, kmers: KmerBatch, capacity: int) -> KmerHits:
        row_type = self._fm.sa_samples.dtype
        store = new_store(2 * kmers.n_kmers, capacity, row_type)
        self._find(kmers, store)
        n_listed = int(store.list_used[0])
        self.most_listed = max(self.most_listed, n_listed)
        if n_listed > capacity:
            raise ListFullError(n_listed)
        skipped = np.empty(kmers.n_kmers, np.bool_)
        _drop(store.row_hits, self.params.max_hits, skipped)
        hit_offsets = np.zeros(2 * kmers.n_kmers + 1, np.int64)
        np.cumsum(store.row_hits, out=hit_offsets[1:])
        text_pos, found_pos = np.empty((2, hit_offsets[-1]), row_type)
        mismatches, found_mismatches = np.empty((2, hit_offsets[-1]), np.uint8)
        _collect(store, n_listed, hit_offsets, found_pos, found_mismatches, text_pos, mismatches)
        return KmerHits(hit_offsets, text_pos, mismatches, skipped)
