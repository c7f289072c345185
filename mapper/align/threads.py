"""Chunks of pairs over threads; results come in input order, whatever the number of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from mapper.align.result import NO_SCORE, OK, Columns, PairAlignments, empty_columns
from mapper.errors import UsageError, option
from mapper.jit.accelerate import driver
from mapper.parallel.map import MAX_THREADS, map_in_threads
from mapper.parallel.pool import kept_pool, leased_pool

CHUNK_SYMBOLS = 1 << 22
CHUNK_PAIRS = 1 << 14
"""Of a chunk, at most. Each takes some 50 microseconds of Python and a new workspace: with a
quarter as many symbols 200,000 pairs of 150 bases took a tenth longer, on one thread and on two."""

_SHARE_OF_REST = 4
"""A chunk is at most this part of what is left for a thread, so that all threads end at about the
same time: those of equal lengths may take unequal time, and so may threads."""

_LEAST_SYMBOLS = 1 << 17
_LEAST_CHUNKS = 64
"""The last chunks are not smaller, for what each costs, unless a thread had fewer of them."""

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


def chunk_bounds(
    costs: np.ndarray, most_cost: int | Callable[[int], int], most_pairs: int, begin: int = 0
) -> list[tuple[int, int]]:
    """Cut pairs into chunks, in order: first and last (excluded) of each.

    Parameters
    ----------
    costs
        Of each pair, int64, in any unit (symbols, cells).
    most_cost, most_pairs
        Of a chunk, but for one of a single pair that costs more; the cost may depend on the first
        pair.
    begin
        Number of the first of these pairs.
    """
    most = most_cost if callable(most_cost) else lambda _: most_cost
    bounds = []
    first, before = 0, 0
    ends = np.cumsum(costs)
    while first < len(costs):
        last = int(np.searchsorted(ends, before + most(begin + first), side="right"))
        last = min(max(last, first + 1), first + most_pairs, len(costs))
        bounds.append((begin + first, begin + last))
        first, before = last, int(ends[last - 1])
    return bounds


def most_symbols(n_pairs: int, mean: float, n_threads: int) -> Callable[[int], int]:
    """Return a function: the symbols that a chunk should have at most, by its first pair.

    Parameters
    ----------
    mean
        Symbols of a pair, roughly.
    """
    if n_threads == 1:
        return lambda _: CHUNK_SYMBOLS
    least = min(_LEAST_SYMBOLS, int(n_pairs * mean) // (n_threads * _LEAST_CHUNKS))
    least = max(least, _AT_ONCE)

    def most(first: int) -> int:
        share = int((n_pairs - first) * mean) // (n_threads * _SHARE_OF_REST)
        return min(max(share, least), CHUNK_SYMBOLS)

    return most


def run_chunks(
    driver: Driver, lengths: np.ndarray, want_cigar: bool, threads: int | None
) -> PairAlignments:
    """Align all pairs with a driver.

    Parameters
    ----------
    lengths
        Symbols of each pair, int64.
    """
    mean = int(lengths.sum()) / max(len(lengths), 1)
    most = most_symbols(len(lengths), mean, thread_count(threads))
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
        In the order of the pairs; a thread that is idle draws the next one, one thread at a time.
    """
    # Each thread fills rows of its own: the first access to new memory takes longest.
    columns = empty_columns(n_pairs)
    offsets = np.empty(n_pairs + 1, np.int64)
    offsets[0] = 0
    counts = offsets[1:]
    done: dict[int, np.ndarray] = {}  # operations of a part, by its first pair

    def work(part: Part[Pairs]) -> None:
        first, last = part.first, part.last
        _clear(columns.rows(first, last), counts[first:last])
        done[first] = align(part, columns, counts)
        if want_cigar:
            np.cumsum(counts[first:last], out=counts[first:last])

    n_threads = thread_count(threads)
    remaining = iter(parts)
    head = list(islice(remaining, 2))
    if len(head) < 2 and sum(part.n_symbols for part in head) <= _AT_ONCE:
        for part in head:
            work(part)
    else:
        _work_in_threads(work, chain(head, remaining), n_threads)
    if not want_cigar:
        return PairAlignments(*columns, None, None)
    return PairAlignments(*columns, offsets, _joined(done, offsets, n_threads))


def _work_in_threads(
    work: Callable[[Part[Pairs]], None], parts: Iterator[Part[Pairs]], n_threads: int
) -> None:
    """Call a function for each part, in threads that draw the parts themselves.

    A thread that drew them for all others would hold the GIL all the time, and each of the others
    would wait for it, up to five milliseconds, whenever compiled code returns.
    """
    drawing = threading.Lock()
    ended = False

    def draw() -> Part[Pairs] | None:
        with drawing:
            return None if ended else next(parts, None)

    def work_on(_: int) -> None:
        nonlocal ended
        try:
            while (part := draw()) is not None:
                work(part)
        except BaseException:
            ended = True
            raise

    with leased_pool(n_threads) as pool:
        try:
            map_in_threads(work_on, range(n_threads), n_threads, pool=pool)
        finally:
            ended = True


@driver
def _clear(columns, counts):
    """Write that pairs have no result and no operations, in one call without the GIL."""
    for i in range(len(counts)):
        columns.score[i] = NO_SCORE
        columns.query_start[i] = columns.query_end[i] = NO_SCORE
        columns.ref_start[i] = columns.ref_end[i] = NO_SCORE
        columns.status[i] = OK
        counts[i] = 0


_JOINED_AT_ONCE = 1 << 18
"""Operations that one thread copies; more are copied by all."""


def _joined(done: dict[int, np.ndarray], offsets: np.ndarray, n_threads: int) -> np.ndarray:
    """Return all operations as one array; make offsets of parts, which begin at 0, those of all."""
    firsts = np.array(sorted(done), np.int64)
    ops = [done[int(first)] for first in firsts]
    ends = np.cumsum([0, *map(len, ops)], dtype=np.int64)
    bounds = [*firsts.tolist(), len(offsets) - 1]
    flat = np.empty(int(ends[-1]), np.uint32)

    def copy(begin: int, end: int) -> None:
        for i in range(begin, end):
            flat[ends[i] : ends[i + 1]] = ops[i]
            offsets[bounds[i] + 1 : bounds[i + 1] + 1] += ends[i]

    if len(ops) < 2 or ends[-1] <= _JOINED_AT_ONCE:
        copy(0, len(ops))
    else:
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
