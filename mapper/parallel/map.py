"""An ordered map over items, by threads that run compiled drivers without the GIL.

:func:`ordered_map` is the one loop. Options bound how far items are drawn ahead of the results,
start the most expensive items first, and hand items to whichever worker is idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeVar

from mapper.parallel.pool import thread_pool

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_THREADS = 4096
"""Most threads a user may ask for: more than any machine's cores, and systems still start them."""

AHEAD = 2
"""Items in work or queued for each worker: one computed, one ready to follow it."""


def parts(n: int, n_parts: int) -> Iterator[tuple[int, int]]:
    """Cut ``[0, n)`` into at most `n_parts` ranges of nearly equal size, none empty."""
    n_parts = min(n, max(1, n_parts))
    for part in range(n_parts):
        yield n * part // n_parts, n * (part + 1) // n_parts


def any_idle(workers: Sequence[Callable[[Item], Result]]) -> Callable[[Item], Result]:
    """Return a function that runs an item on the next idle worker and blocks while all are busy.

    Parameters
    ----------
    workers
        One for each device (or thread); never called by two threads at a time. All must give
        the same result for the same item.

    Returns
    -------
    A function for any number of threads.
    """
    idle: SimpleQueue[Callable[[Item], Result]] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def work(item: Item) -> Result:
        worker = idle.get()
        try:
            return worker(item)
        finally:
            idle.put(worker)

    return work


def ordered_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    n_threads: int,
    *,
    ahead: int | None = AHEAD,
    costs: Sequence[int] | None = None,
    abandon: bool = False,
    pool: Executor | None = None,
) -> Iterator[Result]:
    """Call a function for each item in threads; yield the results in the order of the items.

    Each call runs in a copy of the caller's context (NumPy's error state is part of it).

    Parameters
    ----------
    function
        Called by `n_threads` threads at a time. For workers that serve one thread at a time,
        pass :func:`any_idle` of them and their number.
    items
        Drawn by the calling thread.
    ahead
        Items that are drawn before their result is taken, for each thread, so that memory
        stays bounded; None for all.
    costs
        Cost of each item, in any unit: the most expensive items start first, of equal ones the
        first (longest-processing-time-first scheduling: with m threads it takes at most
        ``4/3 - 1/(3 m)`` of the shortest possible time). All items are drawn at once.
    abandon
        On a signal, do not wait for calls that have begun, which go on unseen: for calls that
        may take hours and touch nothing but memory.
    pool
        Threads to use, which are neither counted nor ended; None for new ones.

    Raises
    ------
    What `function` raises, after the results of the items before, and what `items` raises, at
    once. Calls that have not begun are left out, also where the caller takes no more results.

    References
    ----------
    Graham (1969), Bounds on multiprocessing timing anomalies. doi:10.1137/0117039
    """
    context = copy_context()
    most_pending = float("inf") if ahead is None else ahead * max(1, n_threads)
    pending: deque[Future[Result]] = deque()
    with nullcontext(pool) if pool else thread_pool(n_threads, abandon=abandon) as executor:

        def begin(item: Item) -> Future[Result]:
            return executor.submit(context.copy().run, function, item)

        try:
            if costs is not None:
                items = list(items)
                order = sorted(range(len(items)), key=lambda i: -costs[i])
                begun = {i: begin(items[i]) for i in order}
                pending.extend(begun[i] for i in range(len(items)))
            else:
                for item in items:
                    pending.append(begin(item))
                    if len(pending) >= most_pending:
                        yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def map_in_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    n_threads: int,
    *,
    costs: Sequence[int] | None = None,
    abandon: bool = False,
    pool: Executor | None = None,
) -> list[Result]:
    """Call a function for each item in threads; return the results in the order of the items.

    The parameters are those of :func:`ordered_map`; all items are drawn at once. The first
    error, or a signal, ends the loop: calls that have not begun are left out.
    """
    return list(
        ordered_map(function, items, n_threads, ahead=None, costs=costs, abandon=abandon, pool=pool)
    )
