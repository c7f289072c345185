"""The suffix sort on a CUDA device: radix sorts of whole arrays by CuPy, and kernels for the rest.

Array operations are those of the module `xp`: CuPy, or NumPy for tests on the host. Steps without
an array operation are methods of `kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mapper.cuda.api import SIMULATED, as_device_array, cuda, kernel
from mapper.cuda.memory import device_memory, free_bytes
from mapper.errors import DeviceMemoryError, option
from mapper.index.packed_text import WORD_BASES, base_at, key_at, rank_after, write_row
from mapper.index.suffix_sort import SortedText, Tied

# --- array operations ---


def order_within(xp: Any, groups: Any, keys: Any) -> Any:
    """Return the order of items by group and, within a group, by key."""
    by_key = xp.argsort(keys, kind="stable")
    return by_key[xp.argsort(groups[by_key], kind="stable")]


def changes(xp: Any, values: Any) -> Any:
    """Return bool (m,): true at the first value, and where a value differs from the one before."""
    changed = xp.ones(len(values), bool)
    changed[1:] = values[1:] != values[:-1]
    return changed


def tied_slots(xp: Any, heads: Any) -> Any:
    """Return the slots (int64) in groups of two or more; `heads` is true where groups begin."""
    alone = heads.copy()
    alone[:-1] &= heads[1:]
    return xp.flatnonzero(~alone)


def first_of_group(xp: Any, heads: Any, rows: Any) -> Any:
    """Return for each slot the row of the first slot of its group."""
    groups = xp.cumsum(heads, dtype=np.int64)
    groups -= 1
    return rows[heads][groups]


def sort_by_text(
    xp: Any, keys_at: Callable[[Any, int], Any], positions: Any, depth: int
) -> tuple[Any, Any]:
    """Sort suffixes by their first `depth` bases, 32 at a time.

    Parameters
    ----------
    keys_at
        Function of positions and an offset: returns the 32 bases at that offset as uint64.
    positions
        Row type (m,), m > 0.

    Returns
    -------
    positions
        Sorted.
    heads
        bool (m,): true where a group of equal suffixes begins.
    """
    keys = keys_at(positions, 0)
    order = xp.argsort(keys)
    positions = positions[order]
    keys = keys[order]
    del order
    heads = changes(xp, keys)
    del keys
    for sorted_by in range(WORD_BASES, depth, WORD_BASES):
        slots = tied_slots(xp, heads)
        if not len(slots):
            break
        tied = positions[slots]
        groups = xp.cumsum(heads[slots], dtype=np.int64)
        keys = keys_at(tied, sorted_by)
        order = order_within(xp, groups, keys)
        positions[slots] = tied[order]
        # `order` keeps each group's range, so that its head stays.
        heads[slots] |= changes(xp, keys[order])
    return positions, heads


class ArraySorter:
    """The steps of :mod:`mapper.index.suffix_sort` as operations on whole arrays.

    Parameters
    ----------
    xp
        CuPy, or NumPy.
    kernels
        :class:`Kernels` on the text, or an object with the same methods.
    n, bucket_len, row_type, sa_shift
        As for :class:`mapper.index.suffix_sort_cpu.CpuSorter`.
    rows_at_once
        Rows whose BWT and samples are copied to the host at a time: a multiple of 1024.
    """

    depth = 4 * WORD_BASES

    def __init__(
        self,
        xp: Any,
        kernels: Any,
        n: int,
        bucket_len: int,
        row_type: np.dtype,
        sa_shift: int,
        rows_at_once: int,
    ) -> None:
        self.xp = xp
        self.kernels = kernels
        self.n = n
        self.bucket_len = bucket_len
        self.row_type = row_type
        self.sa_shift = sa_shift
        self.rows_at_once = rows_at_once
        with kernels.memory("the ranks of the suffixes"):
            self.rank = xp.empty(n, row_type)

    def leading_counts(self) -> np.ndarray:
        return self.kernels.leading_counts(self.bucket_len)

    def sort_block(
        self, first_kmer: int, end_kmer: int, size: int, row: int, advance: Callable[[int], None]
    ) -> list[Tied]:
        xp = self.xp
        with self.kernels.memory(f"a block of {size} suffixes"):
            positions = self.kernels.collect(
                self.bucket_len, first_kmer, end_kmer, size, self.row_type
            )
            positions, heads = sort_by_text(xp, self.kernels.keys_at, positions, self.depth)
            rows = xp.arange(row, row + size, dtype=self.row_type)
            self.kernels.scatter(self.rank, positions, first_of_group(xp, heads, rows))
            slots = tied_slots(xp, heads)
            advance(size)
            return [Tied(rows[slots], positions[slots])] if len(slots) else []

    def refine(self, tied: list[Tied], depth: int) -> list[Tied]:
        refined = []
        for chunk in tied:
            with self.kernels.memory(f"a round over {len(chunk.rows)} suffixes"):
                chunk = self._refine(chunk, depth)
            if len(chunk.rows):
                refined.append(chunk)
        return refined

    def _refine(self, tied: Tied, depth: int) -> Tied:
        xp = self.xp
        rows, positions = tied
        # Both are read for the whole chunk before any rank in it changes.
        groups = self.rank[positions]
        keys = self.kernels.ranks_after(self.rank, positions, depth, self.depth)
        order = order_within(xp, groups, keys)
        positions = positions[order]
        heads = changes(xp, groups) | changes(xp, keys[order])
        self.kernels.scatter(self.rank, positions, first_of_group(xp, heads, rows))
        slots = tied_slots(xp, heads)
        return Tied(rows[slots], positions[slots])

    def result(self) -> SortedText:
        n = self.n
        bwt = np.empty(n + 1, np.uint8)
        sa_samples = np.empty((n >> self.sa_shift) + 1, self.row_type)
        for first in range(0, n + 1, self.rows_at_once):
            end = min(n + 1, first + self.rows_at_once)
            samples = sa_samples[first >> self.sa_shift : ((end - 1) >> self.sa_shift) + 1]
            with self.kernels.memory(f"{end - first} rows of the BWT"):
                self.kernels.write_rows(self.rank, first, self.sa_shift, bwt[first:end], samples)
        sa_samples[0] = n
        bwt[0] = self.kernels.last_base()
        return SortedText(bwt, sa_samples, int(self.rank[0]))


# --- kernels ---

TILE = 64
"""Positions of a thread in the collection of suffixes."""


@kernel(256)
def _count_leading(words, n, kmer_len, n_threads, counts):
    thread = cuda.grid(1)
    if thread < n_threads:
        shift = np.uint64(64 - 2 * kmer_len)
        first = thread << 5
        for text_pos in range(first, min(n, first + 32)):
            cuda.atomic.add(counts, np.int64(key_at(words, n, text_pos) >> shift), np.uint64(1))


@kernel(256)
def _count_range(words, n, kmer_len, first_kmer, end_kmer, n_tiles, counts):
    tile = cuda.grid(1)
    if tile < n_tiles:
        shift = np.uint64(64 - 2 * kmer_len)
        first = tile * TILE
        count = 0
        for text_pos in range(first, min(n, first + TILE)):
            if first_kmer <= np.int64(key_at(words, n, text_pos) >> shift) < end_kmer:
                count += 1
        counts[tile] = count


@kernel(256)
def _fill_range(words, n, kmer_len, first_kmer, end_kmer, n_tiles, ends, positions):
    """Write the positions of each tile, the last first; they end at ``ends[tile]``."""
    tile = cuda.grid(1)
    if tile < n_tiles:
        shift = np.uint64(64 - 2 * kmer_len)
        first = tile * TILE
        at = ends[tile]
        for text_pos in range(min(n, first + TILE) - 1, first - 1, -1):
            if first_kmer <= np.int64(key_at(words, n, text_pos) >> shift) < end_kmer:
                at -= 1
                positions[at] = text_pos


@kernel(256)
def _keys_at(words, n, depth, n_items, positions, keys):
    i = cuda.grid(1)
    if i < n_items:
        keys[i] = key_at(words, n, np.int64(positions[i]) + depth)


@kernel(256)
def _scatter(n_items, positions, values, array):
    i = cuda.grid(1)
    if i < n_items:
        array[positions[i]] = values[i]


@kernel(256)
def _ranks_after(rank, n, depth, offset, n_items, positions, keys):
    i = cuda.grid(1)
    if i < n_items:
        keys[i] = rank_after(rank, n, np.int64(positions[i]), depth, offset)


@kernel(256)
def _write_rows(words, rank, n, first_row, end_row, sa_shift, bwt, sa_samples):
    text_pos = cuda.grid(1)
    if text_pos < n:
        write_row(words, rank, text_pos, first_row, end_row, sa_shift, bwt, sa_samples)


class Kernels:
    """Kernels of :class:`ArraySorter` on a text in the memory of the current device.

    Parameters
    ----------
    xp
        CuPy; NumPy where numba simulates the device.
    words, n
        The text (:mod:`mapper.index.packed_text`), in host memory, and its length in bases.

    Raises
    ------
    DeviceMemoryError
        Here and from every method, if the device's memory does not suffice.
    """

    def __init__(self, xp: Any, words: np.ndarray, n: int) -> None:
        self.xp = xp
        self.n = n
        self._last_base = int(base_at(words, n - 1))
        with self.memory("the text"):
            self.words = words if SIMULATED else _copied(xp, words)

    @contextmanager
    def memory(self, what: str) -> Iterator[None]:
        """Raise DeviceMemoryError if an allocation inside fails; free the pool's memory after."""
        if SIMULATED:
            yield
            return
        with device_memory(what):
            try:
                yield
            except self.xp.cuda.memory.OutOfMemoryError as error:
                raise DeviceMemoryError(
                    f"{what} does not fit into the device's memory; "
                    f"{free_bytes() / 1e9:.2f} GB are free; use a larger device, or "
                    f"{option('device', 'cpu')}"
                ) from error
            finally:
                self.xp.get_default_memory_pool().free_all_blocks()

    def release(self) -> None:
        """Free the device's memory; no other method may be called after."""
        self.words = None
        if not SIMULATED:
            self.xp.get_default_memory_pool().free_all_blocks()

    def leading_counts(self, kmer_len: int) -> np.ndarray:
        """Return how many suffixes begin with each k-mer: int64 (4**k,), on the host."""
        with self.memory(f"counts of {kmer_len}-mers"):
            counts = self.xp.zeros(4**kmer_len, np.uint64)
            n_threads = (self.n + 31) // 32
            _count_leading.launch(
                n_threads, 0, self._on(self.words), self.n, kmer_len, n_threads, self._on(counts)
            )
            return np.asarray(counts if SIMULATED else counts.get()).astype(np.int64)

    def collect(
        self, kmer_len: int, first_kmer: int, end_kmer: int, size: int, row_type: np.dtype
    ) -> Any:
        """Return the positions of the `size` suffixes that begin with a range of k-mers."""
        n_tiles = (self.n + TILE - 1) // TILE
        counts = self.xp.empty(n_tiles, np.uint8)
        text = (self._on(self.words), self.n, kmer_len, first_kmer, end_kmer, n_tiles)
        _count_range.launch(n_tiles, 0, *text, self._on(counts))
        ends = self.xp.cumsum(counts, dtype=np.int64)
        positions = self.xp.empty(size, row_type)
        _fill_range.launch(n_tiles, 0, *text, self._on(ends), self._on(positions))
        return positions

    def keys_at(self, positions: Any, depth: int) -> Any:
        """Return the 32 bases `depth` bases beyond each position: uint64."""
        keys = self.xp.empty(len(positions), np.uint64)
        _keys_at.launch(
            len(keys), 0, self._on(self.words), self.n, depth, len(keys), self._on(positions),
            self._on(keys),
        )  # fmt: skip
        return keys

    def scatter(self, array: Any, positions: Any, values: Any) -> None:
        """Write ``array[positions] = values``; no position comes twice."""
        _scatter.launch(
            len(values), 0, len(values), self._on(positions), self._on(values), self._on(array)
        )

    def ranks_after(self, rank: Any, positions: Any, depth: int, offset: int) -> Any:
        """Return the key of each position (:func:`mapper.index.packed_text.rank_after`)."""
        keys = self.xp.empty(len(positions), np.uint64)
        _ranks_after.launch(
            len(keys), 0, self._on(rank), self.n, depth, offset, len(keys), self._on(positions),
            self._on(keys),
        )  # fmt: skip
        return keys

    def write_rows(
        self,
        rank: Any,
        first_row: int,
        sa_shift: int,
        to_bwt: np.ndarray,
        to_samples: np.ndarray,
    ) -> None:
        """Write BWT and samples of the rows from `first_row` on to host arrays of their length.

        The values of row 0, which belongs to no suffix, are undefined.
        """
        end_row = first_row + len(to_bwt)
        bwt = self.xp.zeros(len(to_bwt), np.uint8)
        sa_samples = self.xp.zeros(len(to_samples), to_samples.dtype)
        _write_rows.launch(
            self.n, 0, self._on(self.words), self._on(rank), self.n, first_row, end_row, sa_shift,
            self._on(bwt), self._on(sa_samples),
        )  # fmt: skip
        if SIMULATED:
            to_bwt[:], to_samples[:] = bwt, sa_samples
        else:
            bwt.get(out=to_bwt)
            sa_samples.get(out=to_samples)

    def last_base(self) -> int:
        """Return the code of the text's last base."""
        return self._last_base

    def _on(self, array: Any) -> Any:
        """Return an array in the form that numba's kernels take."""
        return as_device_array(array)


def _copied(xp: Any, array: np.ndarray) -> Any:
    """Copy a host array to the current device.

    CuPy's ``asarray`` would copy it through page-locked memory of the next power of two bytes,
    which its pool then keeps: 2.1 GB of host memory for the words of 4.4 Gbp.
    """
    there = xp.empty(array.shape, array.dtype)
    there.set(array)
    return there
