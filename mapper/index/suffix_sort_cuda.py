"""The suffix sort on a CUDA device: radix sorts by CuPy, and kernels for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mapper.cuda.api import SIMULATED, as_device_array, cuda, kernel
from mapper.cuda.memory import device_memory, free_bytes
from mapper.errors import DeviceMemoryError
from mapper.index.packed_text import base_at, key_at
from mapper.index.ranks import place, rank_after

TILE = 64
"""Positions of a thread that collects suffixes."""


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
    """Write the positions that tile by tile end at ``ends[tile]``, the last first."""
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
def _place(words, rank, n, first_row, end_row, sa_shift, bwt, sa_samples):
    text_pos = cuda.grid(1)
    if text_pos < n:
        place(words, rank, text_pos, first_row, end_row, sa_shift, bwt, sa_samples)


class Kernels:
    """What :class:`mapper.index.sort_arrays.ArraySorter` does to a text on the current device.

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
        """Allocate inside this; unused memory of the pool goes back at the end."""
        if SIMULATED:
            yield
            return
        with device_memory(what):
            try:
                yield
            except self.xp.cuda.memory.OutOfMemoryError as error:
                raise DeviceMemoryError(
                    f"{what} does not fit into the device's memory; "
                    f"{free_bytes() / 1e9:.2f} GB are free; use a larger device, or --device cpu"
                ) from error
            finally:
                self.xp.get_default_memory_pool().free_all_blocks()

    def release(self) -> None:
        """Give the device's memory back; nothing else may be asked for after that."""
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
        """Return the key of each position (:func:`mapper.index.ranks.rank_after`)."""
        keys = self.xp.empty(len(positions), np.uint64)
        _ranks_after.launch(
            len(keys), 0, self._on(rank), self.n, depth, offset, len(keys), self._on(positions),
            self._on(keys),
        )  # fmt: skip
        return keys

    def place(
        self,
        rank: Any,
        first_row: int,
        sa_shift: int,
        to_bwt: np.ndarray,
        to_samples: np.ndarray,
    ) -> None:
        """Write BWT and samples of the rows from `first_row` on to host arrays of their length.

        Of row 0, which belongs to no suffix, what is written means nothing.
        """
        end_row = first_row + len(to_bwt)
        bwt = self.xp.zeros(len(to_bwt), np.uint8)
        sa_samples = self.xp.zeros(len(to_samples), to_samples.dtype)
        _place.launch(
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
        """Return an array as numba's kernels take it."""
        return as_device_array(array)


def _copied(xp: Any, array: np.ndarray) -> Any:
    """Copy a host array to the current device.

    CuPy's ``asarray`` would copy it by way of page-locked memory of the next power of two bytes,
    which its pool then keeps: 2.1 GB of the host's for the words of 4.4 Gbp.
    """
    there = xp.empty(array.shape, array.dtype)
    there.set(array)
    return there
