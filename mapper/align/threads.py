"""Chunks of pairs over threads; results come in input order, whatever the number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TypeVar

import numpy as np

from mapper.align.result import NO_SCORE, OK, Columns, PairAlignments, empty_columns
from mapper.errors import UsageError, option
from mapper.jit.accelerate import core, driver
from mapper.jit.addresses import address_of
from mapper.jit.simd import copy_from_address
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

AT_ONCE = 1 << 14
"""Symbols of so few pairs that starting a thread takes longer; others are aligned by threads, be it
one, where no signal meets compiled code (:func:`mapper.parallel.pool.dedicated_thread`)."""

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
    least = max(least, AT_ONCE)

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
    n_symbols = int(lengths.sum())
    n_pairs, n_threads = len(lengths), thread_count(threads)
    most = most_symbols(n_pairs, n_symbols / max(n_pairs, 1), n_threads)
    bounds = chunk_bounds(lengths, most, CHUNK_PAIRS)
    # Each thread fills rows of its own: the first access to new memory takes longest.
    columns = empty_columns(n_pairs)
    offsets = np.empty(n_pairs + 1, np.int64)
    offsets[0] = 0
    done: dict[int, np.ndarray] = {}  # operations of a chunk, by its first pair

    def work(chunk: tuple[int, int]) -> None:
        first, last = chunk
        clear_rows(columns.rows(first, last), offsets[1 + first : 1 + last])
        done[first] = driver(first, last, columns, offsets[1:])

    if len(bounds) < 2 and n_symbols <= AT_ONCE:
        for chunk in bounds:
            work(chunk)
    else:
        _take_chunks(work, bounds, n_threads)
    if not want_cigar:
        return PairAlignments(*columns, None, None)
    return PairAlignments(*columns, offsets, join_operations(done, offsets, n_threads))


def _take_chunks(
    work: Callable[[tuple[int, int]], None], chunks: Sequence[tuple[int, int]], n_threads: int
) -> None:
    """Call a function for each chunk, in threads that take one chunk after the other.

    No thread hands out work, or holds a lock while it takes some: with many threads, to wait for
    another one, or for the GIL, takes longer than Python's part of the work.

    Raises
    ------
    What `work` raises, for the first of the chunks if it does so for several.
    """
    remaining = iter(chunks)
    errors: dict[tuple[int, int], BaseException] = {}
    ended = False

    def work_on(_: int) -> None:
        nonlocal ended
        while not ended and (chunk := next(remaining, None)) is not None:
            try:
                work(chunk)
            except BaseException as error:
                errors[chunk] = error
                ended = True

    def end() -> None:
        nonlocal ended
        ended = True

    call_in_threads(work_on, n_threads, n_threads, end)
    if errors:
        raise errors[min(errors)]


def call_in_threads(
    work: Callable[[int], None], n: int, n_threads: int, end: Callable[[], None],
    meanwhile: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Call a function with 0 to n - 1, each in another one of a pool of `n_threads` threads.

    Parameters
    ----------
    end
        Tells the calls to end; after a signal, or where a thread cannot be started.
    meanwhile
        Is called by this thread, and may return before they have ended.
    """
    context = copy_context()
    with leased_pool(n_threads) as pool:
        try:
            calls = [pool.submit(context.copy().run, work, i) for i in range(n)]
            if meanwhile:
                meanwhile()
            for call in calls:
                call.result()
        except BaseException:
            end()
            raise


@core
def clear_row(columns, counts, i):
    """Write that a pair has no result and no operations."""
    columns.score[i] = NO_SCORE
    columns.status[i] = OK
    columns.query_start[i] = columns.query_end[i] = NO_SCORE
    columns.ref_start[i] = columns.ref_end[i] = NO_SCORE
    counts[i] = 0


@driver
def clear_rows(columns, counts):
    """Write that pairs have no result and no operations."""
    for i in range(len(counts)):
        clear_row(columns, counts, i)


@driver
def _place(pieces, at, firsts, begin, end, flat, ends):
    """Copy the operations of pieces begin:end; make numbers of operations the places of ends.

    `pieces` are the addresses of the operations, `at` where they go in `flat`, `firsts` the first
    pairs of the pieces; of the last two there is one more than there are pieces.
    """
    target = flat.view(np.uint8)
    for piece in range(begin, end):
        n = 4 * (at[piece + 1] - at[piece])
        copy_from_address(pieces[piece], target, 4 * at[piece], n)
        behind = at[piece]
        for i in range(firsts[piece], firsts[piece + 1]):
            behind += ends[i]
            ends[i] = behind


_JOINED_AT_ONCE = 1 << 18
"""Operations that one thread copies; more are copied by all."""


def join_operations(done: dict[int, np.ndarray], offsets: np.ndarray, n_threads: int) -> np.ndarray:
    """Return all operations as one array, and make `offsets` its bounds.

    Parameters
    ----------
    done
        Operations of some pairs, in order, by the first of these pairs.
    offsets
        int64, one more than there are pairs: the number of operations of each pair behind its item.
    """
    firsts = sorted(done)
    ops = [done[first] for first in firsts]
    pieces = np.array([address_of(some) for some in ops], np.int64)
    at = np.cumsum([0, *map(len, ops)], dtype=np.int64)
    bounds = np.array([*firsts, len(offsets) - 1], np.int64)
    flat = np.empty(int(at[-1]), np.uint32)

    def place(begin: int, end: int) -> None:
        _place(pieces, at, bounds, begin, end, flat, offsets[1:])

    if len(flat) <= _JOINED_AT_ONCE:
        place(0, len(ops))
    else:
        in_slices(len(ops), n_threads, place, -(-len(ops) // n_threads))
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
