"""Chunks of pairs over threads; results come in input order, whatever the number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from mapper.align.result import Columns, PairAlignments, new_columns
from mapper.errors import UsageError
from mapper.parallel.map import MAX_THREADS, map_in_threads
from mapper.parallel.pool import kept_pool

CHUNK_SYMBOLS = 1 << 20
CHUNK_PAIRS = 1 << 12
"""Of a chunk, at most: a thread's workspace is made anew for each."""

CHUNKS_A_THREAD = 8
"""At least, where the pairs suffice: those of equal lengths may take unequal time."""

_AT_ONCE = 1 << 14
"""Symbols of so few pairs that starting a thread takes longer; others go to threads, be it one,
where no signal meets compiled code (:func:`mapper.parallel.pool.dedicated_thread`)."""

Driver = Callable[[int, int, Columns, np.ndarray], np.ndarray]
"""Aligns pairs first:last, fills their rows of columns and counts, returns operations."""


def thread_count(threads: int | None) -> int:
    """Return a number of threads: as given, or the cores of this process.

    Raises
    ------
    UsageError
        For a number that is not 1 to MAX_THREADS.
    """
    if threads is None:
        return len(os.sched_getaffinity(0))
    if not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"threads {threads}: 1 to {MAX_THREADS} is expected")
    return threads


def chunk_bounds(costs: np.ndarray, most_cost: int, most_pairs: int) -> list[tuple[int, int]]:
    """Cut pairs into chunks, in order: first and last (excluded) of each.

    Parameters
    ----------
    costs
        Of each pair, int64, in any unit (symbols, cells).
    most_cost, most_pairs
        Of a chunk, but for one of a single pair that costs more.
    """
    bounds = []
    first, before = 0, 0
    ends = np.cumsum(costs)
    while first < len(costs):
        last = int(np.searchsorted(ends, before + most_cost, side="right"))
        last = min(max(last, first + 1), first + most_pairs, len(costs))
        bounds.append((first, last))
        first, before = last, int(ends[last - 1])
    return bounds


def run_chunks(
    driver: Driver, lengths: np.ndarray, want_cigar: bool, threads: int | None
) -> PairAlignments:
    """Align all pairs with a driver.

    Parameters
    ----------
    lengths
        Symbols of each pair, int64.
    """
    columns = new_columns(len(lengths))
    counts = np.zeros(len(lengths), np.int64)
    n_threads = thread_count(threads)
    n_symbols = int(lengths.sum())
    most = CHUNK_SYMBOLS
    if n_threads > 1:
        most = min(most, max(n_symbols // (n_threads * CHUNKS_A_THREAD), _AT_ONCE))
    chunks = chunk_bounds(lengths, most, CHUNK_PAIRS)
    n_threads = min(n_threads, max(len(chunks), 1))
    if len(chunks) < 2 and n_symbols <= _AT_ONCE:
        ops = [driver(first, last, columns, counts) for first, last in chunks]
    else:
        ops = map_in_threads(
            lambda chunk: driver(chunk[0], chunk[1], columns, counts),
            chunks,
            n_threads,
            abandon=True,
        )
    if not want_cigar:
        return PairAlignments(*columns, None, None)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    flat = np.concatenate(ops) if ops else np.empty(0, np.uint32)
    return PairAlignments(*columns, offsets, flat)


_ROWS_A_SLICE = 1 << 18

Result = TypeVar("Result")


def in_slices(
    n: int, threads: int, function: Callable[[int, int], Result], rows: int = _ROWS_A_SLICE
) -> list[Result]:
    """Call a function with the bounds of each slice of n rows, in threads; return its results.

    `rows`: of a slice, which should take a thread long enough to be worth its call.
    """
    step = max(rows, 1)
    pieces = [(first, min(first + step, n)) for first in range(0, n, step)]
    if min(threads, len(pieces)) < 2:
        return [function(*piece) for piece in pieces]
    return map_in_threads(lambda piece: function(*piece), pieces, threads, pool=kept_pool(threads))
