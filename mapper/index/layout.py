"""Shape and type of every array of an index, from the text length and the parameters.

The one place that the builder, the memory estimate and the check of a stored index ask.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from mapper.index.fm import SUPERBLOCK_SHIFT
from mapper.params import IndexParams

NARROW_ROWS = 1 << 32
"""Texts of fewer rows than this have row numbers and text positions of 32 bits in the index."""


class Column(NamedTuple):
    """Type and shape of one array of :class:`mapper.index.fm.FMIndex`."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape)


def row_dtype(n: int) -> np.dtype:
    """Width of rows and text positions of a text of `n` bases (n + 1 must fit)."""
    return np.dtype(np.uint32 if n + 1 < NARROW_ROWS else np.uint64)


def columns(n: int, params: IndexParams) -> dict[str, Column]:
    """Return the arrays of the index of a text of `n` bases, by their name in FMIndex."""
    rows = row_dtype(n)
    words = np.dtype(np.uint64)
    counts = np.dtype(np.int64)
    kmer_len = params.table_kmer_len(n)
    return {
        "blocks": Column(words, (n // params.occ_spacing + 1, 2 + params.occ_spacing // 32)),
        "super_counts": Column(counts, ((n >> SUPERBLOCK_SHIFT) + 1, 4)),
        "first_row": Column(counts, (5,)),
        "sa_samples": Column(rows, (n // params.sampling(n) + 1,)),
        "kmer_starts": Column(rows, (4**kmer_len + 1 if kmer_len else 1,)),
        "ref_planes": Column(words, ((n + 63) // 64 + 2, 3)),
    }


def index_bytes(n: int, params: IndexParams) -> int:
    """Return the bytes of the arrays of an index, on disk and in memory."""
    return sum(column.n_bytes for column in columns(n, params).values())
