"""One loop over parts, shared by threads: for compiled drivers that release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def parts(n: int, n_parts: int) -> Iterator[tuple[int, int]]:
    """Cut ``[0, n)`` into at most `n_parts` pieces of like size, none empty."""
    n_parts = min(n, max(1, n_parts))
    for part in range(n_parts):
        yield n * part // n_parts, n * (part + 1) // n_parts


def map_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], n_threads: int
) -> list[Result]:
    """Call `function` for each item, in `n_threads` threads; return the results in order.

    The first error, or a signal, ends the loop: items that have not begun are left out.
    Each call runs in a copy of the caller's context (NumPy's error state is part of it).
    """
    context = copy_context()
    pool = ThreadPoolExecutor(max(1, n_threads))
    try:
        return list(pool.map(lambda item: context.copy().run(function, item), items))
    finally:
        pool.shutdown(cancel_futures=True)
