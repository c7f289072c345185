"""A copy of an index in huge pages, for runs that map many reads on the CPU.

Searching reads an index at random, in memory of the page cache, whose pages have 4 kB: nearly every
access also misses the processor's table of page addresses (TLB). In pages of 2 MB seeding takes a
quarter to a third less time (benchmarks/results/huge_pages.md). Linux gives such pages to private
memory only, so the copy takes memory that runs do not share, in place of pages that they do, and a
second to make for each gigabyte.
"""

from __future__ import annotations

import logging
import mmap
import threading
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from mapper.host_memory import available_bytes, gives_huge_pages
from mapper.index.index import Index

log = logging.getLogger(__name__)

LEAST_BYTES = 32 << 20
"""Of an index that is worth a copy: of smaller ones the TLB holds most."""

BYTES_A_BASE = 16
"""A copy is made once a base has been mapped for so many bytes of the index: by then the run has
lasted longer than copying takes, and may go on as long."""

BYTES_OF_INPUT = 8
"""A copy is made at once if the input has a byte for so many of the index: reads in gzip then take
three times as long to map, or more, as the copy to make."""

ROOM = 4
"""Times its size that must be available: other runs on the machine may do the same."""

_BATCHES_BEHIND = 64
"""Batches after whose end pages of the files are given up again: those of all threads were begun
with the index of the files."""

_PIECE = 16 << 20
_LEAST_ARRAY = 4 << 20
"""NumPy asks for huge pages for arrays from this size on."""

CACHE_LINE = 64


class IndexInUse:
    """The index that a run's batches are aligned with: that of the files, and later its copy."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._bases_left = index.n_bytes // BYTES_A_BASE
        self._is_decided = False
        self._pieces_left = 0
        self._files: list[np.ndarray] = []  # the arrays that have been copied
        self._batches_left = _BATCHES_BEHIND
        self._lock = threading.Lock()

    def expect(self, input_bytes: int, executor: Executor) -> None:
        """Have the index copied at once if files of so many bytes, to be mapped, are worth it."""
        if input_bytes * BYTES_OF_INPUT >= self.index.n_bytes:
            self.has_mapped(self._bases_left, executor)

    def has_mapped(self, n_bases: int, executor: Executor) -> None:
        """Note that so many bases have been mapped; have the index copied once it is worth it.

        Parameters
        ----------
        executor
            Runs the tasks that copy. Batches go on with the index of the files until all are done.
        """
        if self._files and self._batches_left > 0:
            self._batches_left -= 1
            for array in self._files:
                _drop_pages(array)
        with self._lock:
            self._bases_left -= n_bases
            if self._is_decided or self._bases_left > 0:
                return
            self._is_decided = True
        n_bytes = self.index.n_bytes
        available = available_bytes()
        if n_bytes < LEAST_BYTES or not gives_huge_pages():
            return
        if available is not None and available < ROOM * n_bytes:
            log.debug("no copy of the index: %.2f GB of memory are available", available / 1e9)
            return
        try:
            self._begin(executor)
        except MemoryError:
            log.debug("no copy of the index: no memory for it")

    def _begin(self, executor: Executor) -> None:
        # Arrays of an index that was built in memory are in huge pages already, by NumPy.
        arrays = {
            name: array for name, array in self.index.fm._asdict().items()
            if isinstance(array, np.ndarray) and array.nbytes >= _LEAST_ARRAY and _file_of(array)
        }  # fmt: skip
        copies = {name: _empty_like(array) for name, array in arrays.items()}
        pieces = []
        for name, array in arrays.items():
            source, target = (a.reshape(-1).view(np.uint8) for a in (array, copies[name]))
            pieces += [
                (source[at : at + _PIECE], target[at : at + _PIECE])
                for at in range(0, len(source), _PIECE)
            ]
        self._pieces_left = len(pieces)

        def copy(source: np.ndarray, target: np.ndarray) -> None:
            np.copyto(target, source)
            _drop_pages(source)
            with self._lock:
                self._pieces_left -= 1
                is_last = self._pieces_left == 0
            if is_last:
                self._use(copies)
                self._files = list(arrays.values())

        for piece in pieces:
            executor.submit(copy, *piece)

    def _use(self, copies: dict[str, Any]) -> None:
        for array in copies.values():
            array.flags.writeable = False  # or all would be compiled for such arrays
        copied = replace(self.index, fm=self.index.fm._replace(**copies))
        computed = self.index.__dict__
        if "present_kmers" in computed:
            copied.__dict__["present_kmers"] = computed["present_kmers"]
        self.index = copied
        log.debug("batches are aligned with a copy of the index in huge pages from here on")


def _empty_like(array: np.ndarray) -> np.ndarray:
    """Return an uninitialised array like a C-contiguous one that begins with a cache line.

    NumPy's begin 16 bytes behind the start of one: every second block of the FM-index, which has 32
    bytes, would lie in two lines.
    """
    room = np.empty(array.nbytes + CACHE_LINE, np.uint8)
    skipped = -room.ctypes.data % CACHE_LINE
    return room[skipped : skipped + array.nbytes].view(array.dtype).reshape(array.shape)


def _file_of(array: np.ndarray) -> mmap.mmap | None:
    """Return the mapped file that holds an array; None if memory does."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _drop_pages(array: np.ndarray) -> None:
    """Take the pages of a part of a mapped file out of this process; they stay in the cache."""
    file = _file_of(array)
    if file is None:
        return
    start = array.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data
    first, end = -(-start // mmap.PAGESIZE), (start + array.nbytes) // mmap.PAGESIZE
    if end > first:
        file.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (end - first) * mmap.PAGESIZE)
