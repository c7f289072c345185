"""One loop over parts, shared by threads: for compiled drivers that release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

MAX_THREADS = 4096
"""Threads that may be asked for: more than any machine's cores, and what systems still start."""

Item = TypeVar("Item")
Result = TypeVar("Result")


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
