"""One loop over parts, shared by threads: for compiled drivers that release the GIL.

Deal batches to workers, and hand out their results in the order of the batches.

Deal tasks of unequal length to workers: the longest first, each to whichever is free.

That is longest-processing-time-first scheduling: with m workers it is done within
``4/3 - 1/(3 m)`` of the shortest time in which it could be.

References
----------
Graham (1969), Bounds on multiprocessing timing anomalies. doi:10.1137/0117039

Workers that take turns: whichever is free does what comes next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def whichever_is_free(workers: Sequence[Callable[[Item], Result]]) -> Callable[[Item], Result]:
    """Return what applies a free worker to an item, waiting for one where none is.

    Parameters
    ----------
    workers
        Each is called by one thread at a time.

    Returns
    -------
    A function for any number of threads.
    """
    free: SimpleQueue[Callable[[Item], Result]] = SimpleQueue()
    for worker in workers:
        free.put(worker)

    def work(item: Item) -> Result:
        worker = free.get()
        try:
            return worker(item)
        finally:
            free.put(worker)

    return work


AHEAD = 2
"""Batches in work or waiting for each worker: one computed, one ready to follow it."""


def in_order(
    workers: Sequence[Callable[[Item], Result]], items: Iterable[Item]
) -> Iterator[Result]:
    """Apply whichever worker is free to each item; yield the results in the items' order.

    Parameters
    ----------
    workers
        One for each device (or thread); never called by two threads at a time. All must
        give the same result for the same item.
    items
        Drawn from one at a time by the calling thread, and no further ahead of the results
        than ``AHEAD`` items a worker, so that memory stays bounded.

    Raises
    ------
    Whatever a worker or `items` raises, after the results of the items before; items that no
    worker has begun are dropped.
    """
    work = whichever_is_free(workers)
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(len(workers), thread_name_prefix="worker")
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) >= AHEAD * len(workers):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def longest_first(
    workers: Sequence[Callable[[Item], Result]], items: Sequence[Item], costs: Sequence[int]
) -> list[Result]:
    """Apply a worker to each item, dearest first; return the results in the items' order.

    Parameters
    ----------
    workers
        One for each device; never called by two threads at a time. All must give the same
        result for the same item.
    costs
        Of each item, in any unit. Of equal ones the first is dealt first.

    Raises
    ------
    What a worker raises; items that no worker has begun are dropped.
    """
    work = whichever_is_free(workers)
    order = sorted(range(len(items)), key=lambda i: -costs[i])
    pool = ThreadPoolExecutor(len(workers), thread_name_prefix="worker")
    try:
        running = {i: pool.submit(work, items[i]) for i in order}
        return [running[i].result() for i in range(len(items))]
    finally:
        pool.shutdown(cancel_futures=True)


MAX_THREADS = 4096
"""Threads that may be asked for: more than any machine's cores, and what systems still start."""


def parts(n: int, n_parts: int) -> Iterator[tuple[int, int]]:
    """Cut ``[0, n)`` into at most `n_parts` pieces of like size, none empty."""
    n_parts = min(n, max(1, n_parts))
    for part in range(n_parts):
        yield n * part // n_parts, n * (part + 1) // n_parts


def map_in_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    n_threads: int,
    *,
    abandon: bool = False,
) -> list[Result]:
    """Call `function` for each item, in `n_threads` threads; return the results in order.

    The first error, or a signal, ends the loop: items that have not begun are left out.
    Each call runs in a copy of the caller's context (NumPy's error state is part of it).
    With `abandon`, a signal does not wait for the calls that have begun, which go on unseen: for
    those that may take hours and touch nothing but memory.
    """
    context = copy_context()
    with threads_for(n_threads, abandon=abandon) as pool:
        return list(pool.map(lambda item: context.copy().run(function, item), items))


@contextmanager
def threads_for(n_threads: int, *, abandon: bool = False) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads; an error, or a signal, leaves out what has not begun.

    `abandon`: as for :func:`map_in_threads`.
    """
    pool = ThreadPoolExecutor(max(1, n_threads))
    waits = True
    try:
        yield pool
    except BaseException as error:
        waits = not abandon or isinstance(error, Exception)
        raise
    finally:
        pool.shutdown(waits, cancel_futures=True)


@contextmanager
def aside() -> Iterator[Callable[[Callable[[], Result]], Result]]:
    """Give what calls functions in a thread of its own, and waits: for long compiled calls.

    Python handles signals in the main thread, between two steps of Python's code. A compiled
    function ends with some such steps, which make Python's objects of what it returns, and numba
    does not look whether one raised: KeyboardInterrupt there is a crash. A main thread that
    waits gets it at once instead; it is raised when the function has returned.
    """
    context = copy_context()
    # One thread for all calls: a signal while it is being started would not wait for it.
    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(context.run, function).result()
