"""The suffix sort by radix sorts of whole arrays: for a device.

Array operations are CuPy's, given as the module `xp` (with NumPy in its place the same text
runs on the host, for tests); what has no array operation is a method of `kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mapper.index.packed_text import WORD_BASES
from mapper.index.suffix_sort import SortedText, Tied


def order_within(xp: Any, groups: Any, keys: Any) -> Any:
    """Return the order of items by group and, within a group, by key."""
    by_key = xp.argsort(keys, kind="stable")
    return by_key[xp.argsort(groups[by_key], kind="stable")]


def changes(xp: Any, values: Any) -> Any:
    """Return bool (m,): true where a value differs from the one before, and at the first."""
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
        Returns, for positions and an offset, the 32 bases that far beyond each as uint64.
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
        # `order` keeps groups where they are, so that their heads stay.
        heads[slots] |= changes(xp, keys[order])
    return positions, heads


class ArraySorter:
    """The steps of :mod:`mapper.index.suffix_sort` as operations on whole arrays.

    Parameters
    ----------
    xp
        CuPy, or NumPy.
    kernels
        A :class:`mapper.index.suffix_sort_cuda.Kernels` on the text, or what does the same.
    n, bucket_len, row_type, sa_shift
        As for :class:`mapper.index.sort_cpu.CpuSorter`.
    rows_at_once
        Rows whose BWT and samples are brought to the host at a time: a multiple of 1024.
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
                self.kernels.place(self.rank, first, self.sa_shift, bwt[first:end], samples)
        sa_samples[0] = n
        bwt[0] = self.kernels.last_base()
        return SortedText(bwt, sa_samples, int(self.rank[0]))
