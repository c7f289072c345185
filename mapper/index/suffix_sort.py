"""Sort the suffixes of a text in blocks, without ever holding the suffix array.

Memory holds for each base its suffix's *rank*
(4 bytes; 8 from 2**32 bases on), the BWT (1 byte) and the sampled suffix array:

1. **Blocks.** The suffixes are distributed to blocks by their leading k-mers, so that a block is
   a contiguous range of rows. Each block is collected from the text, sorted by its suffixes'
   first bases (:attr:`Sorter.depth` of them, 32 at a time), and its ranks are written.
2. **Rounds.** Suffixes still tied lie in repeats: *groups* of suffixes with `depth` equal
   bases. The rank of each suffix of a group is the group's first row, so the rank of the
   suffix `depth` bases further on orders the group by twice as many bases; and so on,
   until nothing is tied. A repeat of L bases takes log2(L / depth) rounds over its own
   suffixes: homopolymers and long exact copies are no worse than other repeats.

BWT and samples follow from the ranks. A :class:`Sorter` does the steps on one kind of machine;
this module holds their order. The order of suffixes is unique, so every sorter, block size and
number of threads gives the same result.

References
----------
Manber, Myers (1993), doi:10.1137/0222058: prefix doubling. Larsson, Sadakane (2007),
doi:10.1016/j.tcs.2007.07.017: groups numbered by a row of their own, only unsorted groups
touched. Kärkkäinen (2007), doi:10.1016/j.tcs.2007.07.018: the BWT by blocks of suffixes.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from mapper.io.progress import progress_bar

log = logging.getLogger(__name__)


class Tied(NamedTuple):
    """Rows of suffixes that are still tied: whole groups, by ascending row.

    Arrays in the memory of the sorter's machine, of the row type. The order of the suffixes of a
    group is arbitrary; the rank of each is the group's first row.
    """

    rows: Any
    positions: Any


class SortedText(NamedTuple):
    """BWT and samples of the suffix array, in host memory."""

    bwt: np.ndarray  # uint8 (n + 1,): the base before each row's suffix; at `primary`, any
    sa_samples: np.ndarray  # uint32 or uint64: text position of rows 0, p, 2p, ...
    primary: int  # row of the suffix that is the whole text


class Sorter(Protocol):
    """The steps of the sort on one kind of machine.

    ``depth`` is the number of bases by which :meth:`sort_block` sorts, and ``bucket_len``
    the length of the k-mers whose ranges are blocks.
    """

    depth: int
    bucket_len: int

    def leading_counts(self) -> np.ndarray:
        """Return how many suffixes begin with each k-mer of ``bucket_len``: int64."""

    def sort_block(
        self, first_kmer: int, end_kmer: int, size: int, row: int, advance: Callable[[int], None]
    ) -> list[Tied]:
        """Sort the `size` suffixes that begin with ``[first_kmer, end_kmer)``, from `row` on.

        Calls `advance`, from any thread, with the number of suffixes just sorted.
        """

    def refine(self, tied: list[Tied], depth: int) -> list[Tied]:
        """Sort groups that agree in `depth` bases by twice as many; return those still tied."""

    def result(self) -> SortedText:
        """Return the result, once nothing is tied."""


def sort_in_blocks(sorter: Sorter, n: int, block_size: int) -> SortedText:
    """Sort the suffixes of a text of `n` bases.

    Parameters
    ----------
    block_size
        Suffixes of a block. One k-mer that begins more suffixes makes a larger block.
    """
    start = time.perf_counter()
    counts = sorter.leading_counts()
    tied: list[Tied] = []
    row = 1  # row 0 is the sentinel's
    shown = sys.stderr is not None and sys.stderr.isatty()  # a service may have none
    with progress_bar(shown, "bases", "sorting", total=n, leave=False) as bar:
        lock = threading.Lock()

        def advance(n_suffixes: int) -> None:
            with lock:
                bar.update(n_suffixes)

        for first, end, size in blocks_of(counts, block_size):
            tied += sorter.sort_block(first, end, size, row, advance)
            row += size
            # Compiling with numba leaves the arguments to the garbage collector: a block of
            # 2 GB would stay in memory while the next is sorted.
            gc.collect()
    log.info("suffixes in blocks: %.1f s", time.perf_counter() - start)
    depth = sorter.depth
    while tied:
        start = time.perf_counter()
        n_tied = sum(len(chunk.rows) for chunk in tied)
        tied = sorter.refine(tied, depth)
        seconds = time.perf_counter() - start
        log.info("%d suffixes that agree in %d bases: %.1f s", n_tied, depth, seconds)
        depth *= 2
    start = time.perf_counter()
    result = sorter.result()
    log.info("BWT and samples from the ranks: %.1f s", time.perf_counter() - start)
    return result


def blocks_of(counts: np.ndarray, block_size: int) -> Iterator[tuple[int, int, int]]:
    """Cut the k-mers into ranges that begin at most `block_size` suffixes, or are one k-mer.

    Parameters
    ----------
    counts
        int64 (4**k,): suffixes that begin with each k-mer.

    Yields
    ------
    First k-mer, the one past the last, and the number of suffixes, never 0.
    """
    first, size = 0, 0
    for kmer, count in enumerate(counts.tolist()):
        if size and size + count > block_size:
            yield first, kmer, size
            first, size = kmer, 0
        size += count
    if size:
        yield first, len(counts), size


def bucket_len_for(n: int) -> int:
    """Return the length of the k-mers that delimit blocks: 1 to 8, for some 64 suffixes each."""
    return max(1, min(8, (n.bit_length() - 7) // 2))
