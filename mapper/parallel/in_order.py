"""Deal batches to workers, and hand out their results in the order of the batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from mapper.parallel.whichever import Item, Result, whichever_is_free

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
