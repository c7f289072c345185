"""Deal tasks of unequal length to workers: the longest first, each to whichever is free.

That is longest-processing-time-first scheduling: with m workers it is done within
``4/3 - 1/(3 m)`` of the shortest time in which it could be.

References
----------
Graham (1969), Bounds on multiprocessing timing anomalies. doi:10.1137/0117039
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from mapper.parallel.whichever import Item, Result, whichever_is_free


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
