"""Workers that take turns: whichever is free does what comes next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
