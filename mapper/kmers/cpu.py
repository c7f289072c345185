"""CPU driver of k-mer search."""

from __future__ import annotations

import numpy as np

from mapper.batch import KmerBatch, KmerHits
from mapper.index.fm import FMIndex, with_table
from mapper.jit.accelerate import driver
from mapper.kmers.cut import ListFullError, search_in_pieces
from mapper.kmers.hits import (
    HELD,
    NEVER,
    HitStore,
    KmerWork,
    Pace,
    drop_if_many,
    place_first,
    place_more,
    settle_hit,
    sort_long_row,
)
from mapper.kmers.search import Places, search_rows
from mapper.params import IndexParams, KmerParams

LIST_CAPACITY = 1 << 20

ENTRIES_OF_BASE = 2.5
"""Entries of a lengthened k-mer table for each base of the text at most; of most, then, there is
no row."""
ENTRIES_OF_KMER = 2000
"""The same for each k-mer to be searched: making them takes less time than it saves."""


@driver
def _search(fm, places, low, high, work, params, hits):
    search_rows(fm, places, None, low, high, work, params, hits, 0)


@driver
def _drop(row_hits, max_hits, skipped):
    for kmer in range(len(skipped)):
        skipped[kmer] = drop_if_many(row_hits, kmer, max_hits)


@driver
def _collect(hits, n_more, hit_offsets, found_pos, found_mismatches, text_pos, mismatches):
    n_rows = len(hit_offsets) - 1
    for row in range(n_rows):
        place_first(hits, row, hit_offsets, found_pos, found_mismatches)
    for item in range(n_more):
        place_more(hits, item, hit_offsets, found_pos, found_mismatches)
    for row in range(n_rows):
        start, end = hit_offsets[row], hit_offsets[row + 1]
        sort_long_row(found_pos, found_mismatches, start, end)
        for ordinal in range(end - start):
            settle_hit(found_pos, found_mismatches, start, end, ordinal, text_pos, mismatches)


def new_store(n_rows: int, capacity: int, row_type: np.dtype) -> HitStore:
    """Return an empty store in host memory."""
    return HitStore(
        row_hits=np.empty(n_rows, np.int32),
        first_pos=np.empty(n_rows, row_type),
        first_mismatches=np.empty(n_rows, np.uint8),
        held_pos=np.empty(HELD, row_type),
        held_mismatches=np.empty(HELD, np.uint8),
        more_used=np.zeros(1, np.int64),
        more_row=np.empty(capacity, np.int32),
        more_ordinal=np.empty(capacity, np.int32),
        more_pos=np.empty(capacity, row_type),
        more_mismatches=np.empty(capacity, np.uint8),
    )


def fit_table(fm: FMIndex, kmer_len: int) -> FMIndex:
    """Return the index with a k-mer table that a search of k-mers can use: 1 to k bases."""
    own = fm.kmer_len or max(1, IndexParams().table_kmer_len(fm.n_rows - 1))
    return with_table(fm, min(own, kmer_len))


def table_len_for_work(fm: FMIndex, params: KmerParams, n_kmers: float, free_bytes: float) -> int:
    """Return the best length of a k-mer table for a search by the CPU, at least the table's own.

    With mismatches dozens of patterns are looked up, and each base that the table knows saves most
    of the rows that would be looked at (500 Mbp with repeats, 30-mers, two mismatches: a table of
    14-mers makes it 1.8 times faster than one of 13-mers, one of 15-mers 3.5 times). An entry takes
    25 ns to make, a k-mer hundreds of microseconds to find.

    Parameters
    ----------
    n_kmers
        k-mers to be searched, about.
    free_bytes
        Memory that there is; the table and its predecessor take half of it at most.
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
    """Return the work of one thread that searches all rows to the end."""
    nothing = np.zeros(1, np.int64)
    return KmerWork(nothing, n_rows, NEVER, nothing.copy(), np.empty(0, np.int32), False, Pace())


class CpuKmerSearch:
    """Searches batches of k-mers on the CPU; one thread at a time may use it.

    Parameters
    ----------
    fm
        Its k-mer table is made shorter where k-mers are; see :func:`fit_table`.
    places
        Of the same text (:func:`mapper.kmers.search.make_places`).
    list_capacity
        Hits of a piece of a batch beyond the first of each row; no effect on the result.
    """

    def __init__(
        self, fm: FMIndex, places: Places, params: KmerParams, list_capacity: int = LIST_CAPACITY
    ) -> None:
        self.params = params
        self._fm = fit_table(fm, params.kmer_len)
        self._places = places
        self._capacity = list_capacity
        self.most_listed = 0
        """Hits that a piece of a batch put into the list, at most."""

    def __call__(self, kmers: KmerBatch) -> KmerHits:
        """Return the hits of a batch."""
        return search_in_pieces(self._search, kmers, self._capacity)

    def _find(self, kmers: KmerBatch, store: HitStore) -> None:
        work = all_rows(2 * kmers.n_kmers)
        _search(self._fm, self._places, kmers.low, kmers.high, work, self.params, store)

    def _search(self, kmers: KmerBatch, capacity: int) -> KmerHits:
        row_type = self._fm.sa_samples.dtype
        store = new_store(2 * kmers.n_kmers, capacity, row_type)
        self._find(kmers, store)
        n_more = int(store.more_used[0])
        self.most_listed = max(self.most_listed, n_more)
        if n_more > capacity:
            raise ListFullError(n_more)
        skipped = np.empty(kmers.n_kmers, np.bool_)
        _drop(store.row_hits, self.params.max_hits, skipped)
        hit_offsets = np.zeros(2 * kmers.n_kmers + 1, np.int64)
        np.cumsum(store.row_hits, out=hit_offsets[1:])
        text_pos, found_pos = np.empty((2, hit_offsets[-1]), row_type)
        mismatches, found_mismatches = np.empty((2, hit_offsets[-1]), np.uint8)
        _collect(store, n_more, hit_offsets, found_pos, found_mismatches, text_pos, mismatches)
        return KmerHits(hit_offsets, text_pos, mismatches, skipped)
