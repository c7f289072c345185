"""The index of a reference: build it from a FASTA file, save it, open it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mapper.index import build, kmer_filter, storage
from mapper.index.reference import IndexData
from mapper.params import IndexParams

_LOCK = threading.Lock()

CHECKED_AT_ONCE = 1 << 30
"""Bytes of an index, at most, whose checksums are compared before it is used: 0.1 s."""


@dataclass(frozen=True)
class Index(IndexData):
    """A reference ready to be searched: all arrays are read-only plain ndarrays."""

    @classmethod
    def build(cls, fasta: str | Path, params: IndexParams | None = None, **options: Any) -> Index:
        """Build from a FASTA file; see :func:`mapper.index.build.build_index`."""
        return cls.of(build.build_index(fasta, params, **options))

    @classmethod
    def open(cls, path: str | Path) -> Index:
        """Memory-map an index directory; see :func:`mapper.index.storage.open_index`."""
        return cls.of(storage.open_index(path))

    @classmethod
    def open_checked(cls, path: str | Path) -> tuple[Index, Iterator[None]]:
        """Open an index and compare its checksums: of a small one now, of a large one later.

        Returns
        -------
        index
        checks
            Steps that compare the remaining files (:func:`mapper.index.storage.checks`), to be
            run before results are kept. Until then an index with damage that opening it did not
            find may give wrong results or end the process.
        """
        index = cls.open(path)
        checks = storage.checks(path)
        if index.n_bytes <= CHECKED_AT_ONCE:
            checks = iter(list(checks))
        return index, checks

    @classmethod
    def of(cls, data: IndexData) -> Index:
        """Return the index that holds `data`."""
        return cls(data.fm, data.contigs, data.meta, data.unmasked_planes)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write an index directory; see :func:`mapper.index.storage.save_index`."""
        storage.save_index(self, path, force=force)

    @cached_property
    def present_kmers(self) -> np.ndarray:
        """The k-mers of the text; see :func:`mapper.index.kmer_filter.present_kmers`."""
        with _LOCK:  # all threads of a run ask at the same time, and the first computes it
            present = self.__dict__.get("present_kmers")
            return kmer_filter.present_kmers(self.fm) if present is None else present
