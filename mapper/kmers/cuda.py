"""CUDA kernels of k-mer search: one thread for each k-mer and strand.

The contexts of an index's rows, made on the device where memory allows.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import KmerBatch, KmerHits
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace, device_memory, free_bytes, multiprocessors
from mapper.cuda.upload import upload
from mapper.cuda.worklist import offsets_of
from mapper.errors import DeviceMemoryError
from mapper.index.fm import FMIndex
from mapper.kmers.cut import ListFullError, search_in_pieces
from mapper.kmers.hits import (
    HELD,
    LONG_ROW,
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
from mapper.kmers.search import Places, fill_contexts, search_rows
from mapper.params import KmerParams

log = logging.getLogger(__name__)

MOST = 0.75
"""Part of the free memory that contexts may take: batches need no more than some gigabytes."""


@kernel(256)
def _fill_contexts(fm, left_len, contexts):
    row = cuda.grid(1)
    if row < fm.n_rows:
        fill_contexts(fm, left_len, row, contexts)


def device_contexts(fm: FMIndex, params: KmerParams) -> Any:
    """Return the contexts of all rows, if they serve a search and leave memory to batches.

    They serve searches with mismatches, in an index whose suffix array is whole. The same hits
    are found either way.

    Parameters
    ----------
    fm
        On the current device, with the table with which k-mers are searched.

    Returns
    -------
    uint32 (2, n_rows) on the device (:mod:`mapper.kmers.search`), or None.
    """
    if params.max_mismatches == 0 or fm.sa_shift != 0:
        return None
    n_bytes = 8 * fm.n_rows
    if n_bytes > MOST * free_bytes():
        log.info(
            "k-mers are searched without the rows' contexts: they take %.1f GB, and %.1f GB are "
            "free", n_bytes / 1e9, free_bytes() / 1e9,
        )  # fmt: skip
        return None
    try:
        with device_memory("the contexts of the rows"):
            contexts = cuda.device_array((2, fm.n_rows), np.uint32)
    except DeviceMemoryError as error:  # someone else took what was free a moment ago
        log.info("k-mers are searched without the rows' contexts: %s", error)
        return None
    _fill_contexts.launch(fm.n_rows, 0, fm, params.kmer_len - fm.kmer_len, contexts)
    cuda.synchronize()
    return contexts


LIST_CAPACITY = 1 << 24

LIST_GROWTH = 4
"""Times the room for hits may grow, before a batch is searched in pieces."""

BLOCKS_PER_SM = 5
"""Blocks of the search kernel that a multiprocessor holds, and so many are launched: their
threads stay and take on one row after the other."""

VERIFY_ROWS_WHOLE = 4
"""``KmerParams.verify_rows`` where the whole suffix array is on the device: locating is then
one access, a search step two."""

VERIFY_ROWS_CONTEXTS = 32
"""The same where contexts are, if no mismatch remains: eight rows take an access."""

PACE = Pace(fetch=7, node=1, look=0)
"""Of the lanes of a warp some want each kind of step in nearly every turn; so fewer wait. Not in
exact searches: a row takes but a few turns."""

PATIENCE = 2500
"""Turns of the search's loop after which a row is left to many threads. A turn takes some
microseconds, a batch's share of a thread some thousand turns."""


@kernel(128, blocks_per_sm=BLOCKS_PER_SM)
def _search(fm, places, low, high, work, params, hits):
    search_rows(fm, places, None, low, high, work, params, hits, cuda.grid(1))


@kernel(128, blocks_per_sm=BLOCKS_PER_SM)
def _search_by_contexts(fm, places, contexts, low, high, work, params, hits):
    search_rows(fm, places, contexts, low, high, work, params, hits, cuda.grid(1))


@kernel(256)
def _drop(row_hits, n_kmers, max_hits, skipped):
    kmer = cuda.grid(1)
    if kmer < n_kmers:
        skipped[kmer] = drop_if_many(row_hits, kmer, max_hits)


@kernel(256)
def _place_first(hits, n_rows, hit_offsets, text_pos, mismatches):
    row = cuda.grid(1)
    if row < n_rows:
        place_first(hits, row, hit_offsets, text_pos, mismatches)


@kernel(256)
def _place_more(hits, n_items, hit_offsets, text_pos, mismatches):
    item = cuda.grid(1)
    if item < n_items:
        place_more(hits, item, hit_offsets, text_pos, mismatches)


@kernel(128)
def _sort_long(n_rows, hit_offsets, text_pos, mismatches):
    row = cuda.grid(1)
    if row < n_rows:
        sort_long_row(text_pos, mismatches, hit_offsets[row], hit_offsets[row + 1])


@kernel(256)
def _settle_first(n_rows, hit_offsets, found_pos, found_mismatches, text_pos, mismatches):
    row = cuda.grid(1)
    if row < n_rows:
        start, end = hit_offsets[row], hit_offsets[row + 1]
        if start < end:
            settle_hit(found_pos, found_mismatches, start, end, 0, text_pos, mismatches)


@kernel(256)
def _settle_more(hits, n_items, hit_offsets, found_pos, found_mismatches, text_pos, mismatches):
    item = cuda.grid(1)
    if item < n_items:
        row = hits.more_row[item]
        if hits.row_hits[row]:
            settle_hit(
                found_pos, found_mismatches, hit_offsets[row], hit_offsets[row + 1],
                hits.more_ordinal[item], text_pos, mismatches,
            )  # fmt: skip


class DeviceHits(NamedTuple):
    """Columns of KmerHits in device memory, ``skipped`` as uint8."""

    hit_offsets: Any
    text_pos: Any
    mismatches: Any
    skipped: Any


class CudaKmerSearch:
    """Searches batches of k-mers on one device; one thread at a time may use it.

    Parameters
    ----------
    ordinal
        The device.
    fm
        The index on that device (:func:`mapper.index.cuda.device_index`), which several
        searches may share.
    contexts
        Of its rows for these parameters, on that device
        (:func:`mapper.kmers.cuda.device_contexts`), or None.
    places
        Of the same text, in host memory.
    list_capacity
        Hits of a piece of a batch beyond the first of each row, until one has more: from then
        on up to LIST_GROWTH times as many. No effect on the result.
    """

    def __init__(
        self, ordinal: int, fm: FMIndex, contexts: Any, places: Places, params: KmerParams,
        list_capacity: int = LIST_CAPACITY,
    ) -> None:  # fmt: skip
        if contexts is not None:
            params = params._replace(verify_rows=VERIFY_ROWS_CONTEXTS)
        elif fm.sa_shift == 0:
            params = params._replace(verify_rows=VERIFY_ROWS_WHOLE)
        self.params = params
        # With room for so many hits of a row the sum of several threads might leave 32 bits.
        self.patience = PATIENCE if params.max_hits < 1 << 24 else NEVER
        self._contexts = contexts
        self._ordinal = ordinal
        self._fm = fm
        self._capacity = list_capacity
        self._most_capacity = LIST_GROWTH * list_capacity
        with cuda.gpus[ordinal]:
            self._space = Workspace()
            self._n_blocks = BLOCKS_PER_SM * multiprocessors()
            self._places = upload(places, "the table of contigs")

    def __call__(self, kmers: KmerBatch) -> KmerHits:
        """Return the hits of a batch.

        Raises
        ------
        DeviceMemoryError
            If the device cannot hold what a single k-mer takes.
        """
        with cuda.gpus[self._ordinal]:
            return search_in_pieces(self._search_or_grow, kmers, self._capacity)

    def _search_or_grow(self, kmers: KmerBatch, capacity: int) -> KmerHits:
        """Search; where hits lack room and some is to be had, once more, and keep that room.

        So the first of many large batches is searched twice, instead of each of them.
        """
        try:
            return self._search(kmers, capacity)
        except ListFullError as full:
            grown = min(full.n_items + full.n_items // 4, self._most_capacity)
            if capacity < self._capacity or grown < full.n_items:
                raise  # memory did not suffice before, or would have to grow too much
        hits = self._search(kmers, grown)
        self._capacity = grown
        return hits

    def _search(self, kmers: KmerBatch, capacity: int) -> KmerHits:
        space = self._space
        try:
            low = space.upload("low", kmers.low)
            high = space.upload("high", kmers.high)
            columns = self.search_on_device(low, high, kmers.n_kmers, capacity)
            hit_offsets, text_pos, mismatches, skipped = space.download_results("kmers", columns)
            space.synchronize()
        except DeviceMemoryError:
            space.release()
            raise
        return KmerHits(hit_offsets, text_pos, mismatches, skipped.view(np.bool_))

    def search_on_device(self, low: Any, high: Any, n_kmers: int, capacity: int) -> DeviceHits:
        """Search k-mers in device memory; the hits stay there until the next call.

        Parameters
        ----------
        low, high
            Device arrays, columns of KmerBatch.
        capacity
            Room for hits beyond the first of each row.

        Raises
        ------
        ListFullError
            If that does not suffice.
        """
        space, stream = self._space, self._space.stream
        n_rows = 2 * n_kmers
        store = self._store(n_rows, capacity)
        self.launch_search(low, high, n_rows, store)
        skipped = space.device("skipped", n_kmers, np.uint8)
        _drop.launch(n_kmers, stream, store.row_hits, n_kmers, self.params.max_hits, skipped)
        hit_offsets = offsets_of(space, "hit_offsets", store.row_hits, n_rows)
        n_more_at = space.download("n_more", store.more_used)
        n_hits_at = space.download("n_hits", hit_offsets[n_rows:])
        space.synchronize()
        n_more, n_hits = int(n_more_at[0]), int(n_hits_at[0])
        if n_more > capacity:
            raise ListFullError(n_more)
        text_pos = space.device("text_pos", n_hits, self._fm.sa_samples.dtype)
        mismatches = space.device("mismatches", n_hits, np.uint8)
        if n_more == 0:
            _place_first.launch(n_rows, stream, store, n_rows, hit_offsets, text_pos, mismatches)
            return DeviceHits(hit_offsets, text_pos, mismatches, skipped)
        found = (
            space.device("found_pos", n_hits, self._fm.sa_samples.dtype),
            space.device("found_mismatches", n_hits, np.uint8),
        )
        placed = text_pos, mismatches
        _place_first.launch(n_rows, stream, store, n_rows, hit_offsets, *found)
        _place_more.launch(n_more, stream, store, n_more, hit_offsets, *found)
        if self.params.max_hits > LONG_ROW:
            _sort_long.launch(n_rows, stream, n_rows, hit_offsets, *found)
        _settle_first.launch(n_rows, stream, n_rows, hit_offsets, *found, *placed)
        _settle_more.launch(n_more, stream, store, n_more, hit_offsets, *found, *placed)
        return DeviceHits(hit_offsets, text_pos, mismatches, skipped)

    def launch_search(self, low: Any, high: Any, n_rows: int, store: HitStore) -> None:
        """Queue the search kernel: all rows, then the parts of those that take long."""
        n_blocks = min((n_rows + _search.block - 1) // _search.block, self._n_blocks)
        if n_blocks == 0:
            return
        space = self._space
        counters = space.upload("counters", np.zeros(3, np.int64))
        n_aside = counters[2:3]
        aside = space.device("aside", n_rows, np.int32)
        pace = PACE if self.params.max_mismatches > 0 else Pace()
        whole = KmerWork(counters[0:1], n_rows, self.patience, n_aside, aside, False, pace)
        parts = KmerWork(counters[1:2], n_rows, NEVER, n_aside, aside, True, pace)
        for work in (whole, parts):
            rest = low, high, work, self.params, store
            if self._contexts is None:
                _search.launch_blocks(n_blocks, space.stream, self._fm, self._places, *rest)
            else:
                _search_by_contexts.launch_blocks(
                    n_blocks, space.stream, self._fm, self._places, self._contexts, *rest
                )

    def _store(self, n_rows: int, capacity: int) -> HitStore:
        space, row_type = self._space, self._fm.sa_samples.dtype
        n_held = HELD * self._n_blocks * _search.block
        return HitStore(
            row_hits=space.device("row_hits", n_rows, np.int32),
            first_pos=space.device("first_pos", n_rows, row_type),
            first_mismatches=space.device("first_mismatches", n_rows, np.uint8),
            held_pos=space.device("held_pos", n_held, row_type),
            held_mismatches=space.device("held_mismatches", n_held, np.uint8),
            more_used=space.upload("more_used", np.zeros(1, np.int64)),
            more_row=space.device("more_row", capacity, np.int32),
            more_ordinal=space.device("more_ordinal", capacity, np.int32),
            more_pos=space.device("more_pos", capacity, row_type),
            more_mismatches=space.device("more_mismatches", capacity, np.uint8),
        )
