"""CUDA driver of k-mer search: contexts of the index's rows, and one thread for each row."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import KmerBatch, KmerHits
from mapper.cuda.api import cuda, device_context, kernel
from mapper.cuda.memory import Workspace, device_memory, free_bytes, multiprocessors
from mapper.cuda.upload import upload
from mapper.cuda.worklist import offsets_of
from mapper.errors import DeviceMemoryError
from mapper.index.fm import FMIndex
from mapper.kmers.cut import ListFullError, search_in_pieces
from mapper.kmers.hits import (
    BUFFERED,
    LONG_ROW,
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
from mapper.kmers.search import TextBounds, fill_contexts, search_rows
from mapper.params import KmerParams

log = logging.getLogger(__name__)

# --- contexts of rows ---

MAX_CONTEXT_SHARE = 0.75
"""Share of the free memory that contexts may take: batches need no more than some gigabytes."""


@kernel(256)
def _fill_contexts(fm, left_len, contexts):
    row = cuda.grid(1)
    if row < fm.n_rows:
        fill_contexts(fm, left_len, row, contexts)


def device_contexts(fm: FMIndex, params: KmerParams) -> Any:
    """Return the contexts of all rows, or None if they do not help or do not fit.

    They help searches with mismatches in an index with the full suffix array. The hits are the
    same either way.

    Parameters
    ----------
    fm
        On the current device, with the k-mer table of the search.

    Returns
    -------
    uint32 (2, n_rows) on the device (:mod:`mapper.kmers.search`), or None.
    """
    if params.max_mismatches == 0 or fm.sa_shift != 0:
        return None
    n_bytes = 8 * fm.n_rows
    if n_bytes > MAX_CONTEXT_SHARE * free_bytes():
        log.info(
            "k-mers are searched without the rows' contexts: they take %.1f GB, and %.1f GB are "
            "free", n_bytes / 1e9, free_bytes() / 1e9,
        )  # fmt: skip
        return None
    try:
        with device_memory("the contexts of the rows"):
            contexts = cuda.device_array((2, fm.n_rows), np.uint32)
    except DeviceMemoryError as error:  # another process took that memory meanwhile
        log.info("k-mers are searched without the rows' contexts: %s", error)
        return None
    _fill_contexts.launch(fm.n_rows, 0, fm, params.kmer_len - fm.kmer_len, contexts)
    cuda.synchronize()
    return contexts


# --- search ---

LIST_CAPACITY = 1 << 24

LIST_GROWTH = 4
"""Times that the list of hits may grow before a batch is searched in pieces."""

BLOCKS_PER_SM = 5
"""Resident blocks of the search kernel on a multiprocessor. As many are launched, and their
threads take one row after the other (persistent threads)."""

VERIFY_ROWS_WHOLE = 4
"""``KmerParams.verify_rows`` with the full suffix array on the device: locating a row is then
one access, a search step two."""

VERIFY_ROWS_CONTEXTS = 32
"""``KmerParams.verify_rows`` with contexts, if no mismatch remains: eight rows take an access."""

STEP_MASKS = StepMasks(fetch=7, node=1, look=0)
"""In nearly every turn some lane of a warp takes each kind of step, and the others wait; with masks
fewer do. Not used in exact searches, where a row takes few turns."""

MAX_TURNS = 2500
"""Turns of the search's loop after which a row is deferred to the second pass. A turn takes some
microseconds, a thread's share of a batch some thousand turns."""


@kernel(128, blocks_per_sm=BLOCKS_PER_SM)
def _search(fm, bounds, low, high, work, params, hits):
    search_rows(fm, bounds, None, low, high, work, params, hits, cuda.grid(1))


@kernel(128, blocks_per_sm=BLOCKS_PER_SM)
def _search_by_contexts(fm, bounds, contexts, low, high, work, params, hits):
    search_rows(fm, bounds, contexts, low, high, work, params, hits, cuda.grid(1))


@kernel(256)
def _drop(row_hits, n_kmers, max_hits, skipped):
    kmer = cuda.grid(1)
    if kmer < n_kmers:
        skipped[kmer] = drop_if_many(row_hits, kmer, max_hits)


@kernel(256)
def _gather_first(hits, n_rows, hit_offsets, text_pos, mismatches):
    row = cuda.grid(1)
    if row < n_rows:
        gather_first(hits, row, hit_offsets, text_pos, mismatches)


@kernel(256)
def _gather_listed(hits, n_items, hit_offsets, text_pos, mismatches):
    item = cuda.grid(1)
    if item < n_items:
        gather_listed(hits, item, hit_offsets, text_pos, mismatches)


@kernel(128)
def _sort_long(n_rows, hit_offsets, text_pos, mismatches):
    row = cuda.grid(1)
    if row < n_rows:
        sort_long_row(text_pos, mismatches, hit_offsets[row], hit_offsets[row + 1])


@kernel(256)
def _scatter_first(n_rows, hit_offsets, found_pos, found_mismatches, text_pos, mismatches):
    row = cuda.grid(1)
    if row < n_rows:
        start, end = hit_offsets[row], hit_offsets[row + 1]
        if start < end:
            scatter_sorted(found_pos, found_mismatches, start, end, 0, text_pos, mismatches)


@kernel(256)
def _scatter_listed(hits, n_items, hit_offsets, found_pos, found_mismatches, text_pos, mismatches):
    item = cuda.grid(1)
    if item < n_items:
        row = hits.list_row[item]
        if hits.row_hits[row]:
            scatter_sorted(
                found_pos, found_mismatches, hit_offsets[row], hit_offsets[row + 1],
                hits.list_ordinal[item], text_pos, mismatches,
            )  # fmt: skip


class DeviceHits(NamedTuple):
    """Columns of KmerHits in device memory, ``skipped`` as uint8."""

    hit_offsets: Any
    text_pos: Any
    mismatches: Any
    skipped: Any


class CudaKmerSearch:
    """Search batches of k-mers on one device; one thread at a time may use it.

    Parameters
    ----------
    ordinal
        The device.
    fm
        The index on that device (:func:`mapper.index.cuda.device_index`), which several
        searches may share.
    contexts
        Of its rows for these parameters, on that device (:func:`device_contexts`), or None.
    bounds
        Of the same text, in host memory.
    list_capacity
        Most hits of a piece of a batch beyond the first of each row. Grows up to LIST_GROWTH
        times when a batch has more; no effect on the result.
    """

    def __init__(
        self, ordinal: int, fm: FMIndex, contexts: Any, bounds: TextBounds, params: KmerParams,
        list_capacity: int = LIST_CAPACITY,
    ) -> None:  # fmt: skip
        if contexts is not None:
            params = params._replace(verify_rows=VERIFY_ROWS_CONTEXTS)
        elif fm.sa_shift == 0:
            params = params._replace(verify_rows=VERIFY_ROWS_WHOLE)
        self.params = params
        # With a larger limit the hits of a row, added by several threads, may exceed 32 bits.
        self.max_turns = MAX_TURNS if params.max_hits < 1 << 24 else NO_LIMIT
        self._contexts = contexts
        self._ordinal = ordinal
        self._fm = fm
        self._capacity = list_capacity
        self._most_capacity = LIST_GROWTH * list_capacity
        with device_context(ordinal):
            self._space = Workspace()
            self._n_blocks = BLOCKS_PER_SM * multiprocessors()
            self._bounds = upload(bounds, "the table of contigs")

    def __call__(self, kmers: KmerBatch) -> KmerHits:
        """Return the hits of a batch.

        Raises
        ------
        DeviceMemoryError
            If a single k-mer does not fit the device.
        """
        with device_context(self._ordinal):
            return search_in_pieces(self._search_or_grow, kmers, self._capacity)

    def _search_or_grow(self, kmers: KmerBatch, capacity: int) -> KmerHits:
        """Search a batch; if the list of hits is full, enlarge it for good and search again.

        The first of many large batches is then searched twice, instead of each of them.
        """
        try:
            return self._search(kmers, capacity)
        except ListFullError as full:
            grown = min(full.n_items + full.n_items // 4, self._most_capacity)
            if capacity < self._capacity or grown < full.n_items:
                raise  # memory did not suffice before, or the list would grow too much
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
            Items of the list: hits beyond the first of each row.

        Raises
        ------
        ListFullError
            If the list is too short.
        """
        space, stream = self._space, self._space.stream
        n_rows = 2 * n_kmers
        store = self._store(n_rows, capacity)
        self.launch_search(low, high, n_rows, store)
        skipped = space.device("skipped", n_kmers, np.uint8)
        _drop.launch(n_kmers, stream, store.row_hits, n_kmers, self.params.max_hits, skipped)
        hit_offsets = offsets_of(space, "hit_offsets", store.row_hits, n_rows)
        n_listed_at = space.download("n_listed", store.list_used)
        n_hits_at = space.download("n_hits", hit_offsets[n_rows:])
        space.synchronize()
        n_listed, n_hits = int(n_listed_at[0]), int(n_hits_at[0])
        if n_listed > capacity:
            raise ListFullError(n_listed)
        text_pos = space.device("text_pos", n_hits, self._fm.sa_samples.dtype)
        mismatches = space.device("mismatches", n_hits, np.uint8)
        if n_listed == 0:
            _gather_first.launch(n_rows, stream, store, n_rows, hit_offsets, text_pos, mismatches)
            return DeviceHits(hit_offsets, text_pos, mismatches, skipped)
        found = (
            space.device("found_pos", n_hits, self._fm.sa_samples.dtype),
            space.device("found_mismatches", n_hits, np.uint8),
        )
        placed = text_pos, mismatches
        _gather_first.launch(n_rows, stream, store, n_rows, hit_offsets, *found)
        _gather_listed.launch(n_listed, stream, store, n_listed, hit_offsets, *found)
        if self.params.max_hits > LONG_ROW:
            _sort_long.launch(n_rows, stream, n_rows, hit_offsets, *found)
        _scatter_first.launch(n_rows, stream, n_rows, hit_offsets, *found, *placed)
        _scatter_listed.launch(n_listed, stream, store, n_listed, hit_offsets, *found, *placed)
        return DeviceHits(hit_offsets, text_pos, mismatches, skipped)

    def launch_search(self, low: Any, high: Any, n_rows: int, store: HitStore) -> None:
        """Queue the search kernel twice: for all rows, and for the parts of the deferred rows."""
        n_blocks = min((n_rows + _search.block - 1) // _search.block, self._n_blocks)
        if n_blocks == 0:
            return
        space = self._space
        counters = space.upload("counters", np.zeros(3, np.int64))
        n_deferred = counters[2:3]
        deferred = space.device("deferred", n_rows, np.int32)
        step_masks = STEP_MASKS if self.params.max_mismatches > 0 else StepMasks()
        whole = KmerWork(
            counters[0:1], n_rows, self.max_turns, n_deferred, deferred, False, step_masks
        )
        parts = KmerWork(counters[1:2], n_rows, NO_LIMIT, n_deferred, deferred, True, step_masks)
        for work in (whole, parts):
            rest = low, high, work, self.params, store
            if self._contexts is None:
                _search.launch_blocks(n_blocks, space.stream, self._fm, self._bounds, *rest)
            else:
                _search_by_contexts.launch_blocks(
                    n_blocks, space.stream, self._fm, self._bounds, self._contexts, *rest
                )

    def _store(self, n_rows: int, capacity: int) -> HitStore:
        space, row_type = self._space, self._fm.sa_samples.dtype
        n_buffered = BUFFERED * self._n_blocks * _search.block
        return HitStore(
            row_hits=space.device("row_hits", n_rows, np.int32),
            first_pos=space.device("first_pos", n_rows, row_type),
            first_mismatches=space.device("first_mismatches", n_rows, np.uint8),
            buffer_pos=space.device("buffer_pos", n_buffered, row_type),
            buffer_mismatches=space.device("buffer_mismatches", n_buffered, np.uint8),
            list_used=space.upload("list_used", np.zeros(1, np.int64)),
            list_row=space.device("list_row", capacity, np.int32),
            list_ordinal=space.device("list_ordinal", capacity, np.int32),
            list_pos=space.device("list_pos", capacity, row_type),
            list_mismatches=space.device("list_mismatches", capacity, np.uint8),
        )
