"""Chunks of pairs over threads; results come in input order, whatever the number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from mapper.align.result import Columns, PairAlignments, clear_columns, empty_columns
from mapper.errors import UsageError, option
from mapper.parallel.map import MAX_THREADS, map_in_threads
from mapper.parallel.pool import kept_pool, leased_pool

CHUNK_SYMBOLS = 1 << 22
CHUNK_PAIRS = 1 << 14
"""Of a chunk, at most. Each takes some 50 microseconds of Python and a new workspace: with a
quarter as many symbols 200,000 pairs of 150 bases took a tenth longer, on one thread and on two."""

CHUNKS_A_THREAD = 8
"""At least, where the pairs suffice: those of equal lengths may take unequal time."""

_AT_ONCE = 1 << 14
"""Symbols of so few pairs that starting a thread takes longer; others go to threads, be it one,
where no signal meets compiled code (:func:`mapper.parallel.pool.dedicated_thread`)."""

Driver = Callable[[int, int, Columns, np.ndarray], np.ndarray]
"""Aligns pairs first:last, fills their rows of columns and counts, returns operations."""

Pairs = TypeVar("Pairs")


class Part(NamedTuple, Generic[Pairs]):
    """Some pairs of a call."""

    first: int
    last: int  # excluded
    n_symbols: int
    pairs: Callable[[], Pairs]  # for the thread that aligns them


def thread_count(threads: int | None) -> int:
    """Return a number of threads: as given, or the cores of this process.

    Raises
    ------
    UsageError
        For a number that is not 1 to MAX_THREADS.
    """
    if threads is None:
        return len(os.sched_getaffinity(0))
    if not isinstance(threads, (int, np.integer)) or not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"{option('threads', threads)}: 1 to {MAX_THREADS} is expected")
    return int(threads)


def check_threads(threads: int | None) -> None:
    """Raise UsageError as :func:`thread_count`; the system is not asked for its cores."""
    if threads is not None:
        thread_count(threads)


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


def most_symbols(n_symbols: int, n_threads: int) -> int:
    """Return the symbols that a chunk should have at most, of all symbols of a call."""
    if n_threads == 1:
        return CHUNK_SYMBOLS
    return min(CHUNK_SYMBOLS, max(n_symbols // (n_threads * CHUNKS_A_THREAD), _AT_ONCE))


def run_chunks(
    driver: Driver, lengths: np.ndarray, want_cigar: bool, threads: int | None
) -> PairAlignments:
    """Align all pairs with a driver.

    Parameters
    ----------
    lengths
        Symbols of each pair, int64.
    """
    most = most_symbols(int(lengths.sum()), thread_count(threads))
    parts = (
        Part(first, last, int(lengths[first:last].sum()), lambda: None)
        for first, last in chunk_bounds(lengths, most, CHUNK_PAIRS)
    )
    return run_parts(
        lambda part, columns, counts: driver(part.first, part.last, columns, counts),
        parts, len(lengths), want_cigar, threads,
    )  # fmt: skip


def run_parts(
    align: Callable[[Part[Pairs], Columns, np.ndarray], np.ndarray], parts: Iterable[Part[Pairs]],
    n_pairs: int, want_cigar: bool, threads: int | None,
) -> PairAlignments:  # fmt: skip
    """Align all pairs, part by part.

    Parameters
    ----------
    align
        Aligns a part: fills its rows of the columns, which say that there is no result, and of the
        numbers of operations, which are 0; returns the operations.
    parts
        In the order of the pairs; drawn while threads align those drawn before.
    """
    # Each thread fills rows of its own: the first access to new memory takes longest.
    columns = empty_columns(n_pairs)
    offsets = np.empty(n_pairs + 1, np.int64)
    offsets[0] = 0
    counts = offsets[1:]

    def work(part: Part[Pairs]) -> np.ndarray:
        clear_columns(columns, part.first, part.last)
        counts[part.first : part.last] = 0
        return align(part, columns, counts)

    n_threads = thread_count(threads)
    remaining = iter(parts)
    head = list(islice(remaining, 2))
    if len(head) < 2 and sum(part.n_symbols for part in head) <= _AT_ONCE:
        ops = [work(part) for part in head]
    else:
        with leased_pool(n_threads) as pool:
            ops = map_in_threads(work, chain(head, remaining), n_threads, pool=pool)
    if not want_cigar:
        return PairAlignments(*columns, None, None)
    np.cumsum(counts, out=counts)
    return PairAlignments(*columns, offsets, _joined(ops, n_threads))


_JOINED_AT_ONCE = 1 << 18
"""Operations that one thread copies; more are copied by all."""


def _joined(ops: list[np.ndarray], n_threads: int) -> np.ndarray:
    """Return all operations as one array."""
    ends = np.cumsum([len(some) for some in ops], dtype=np.int64)
    if len(ops) < 2 or ends[-1] <= _JOINED_AT_ONCE:
        return np.concatenate(ops) if ops else np.empty(0, np.uint32)
    flat = np.empty(int(ends[-1]), np.uint32)

    def copy(first: int, last: int) -> None:
        start = int(ends[first - 1]) if first else 0
        np.concatenate(ops[first:last], out=flat[start : int(ends[last - 1])])

    in_slices(len(ops), n_threads, copy, -(-len(ops) // n_threads))
    return flat


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
