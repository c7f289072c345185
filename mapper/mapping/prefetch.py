"""Reading ahead: a run's batches, cut off the input in order by a task of the pool.

One task cuts batch after batch until enough are kept. Reading in one task, not a task for each
batch, means that between two batches no other thread has to be woken or to get the GIL. Batches can
only be cut one after another, so with many threads their speed is bounded by it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from typing import Any

from mapper.io.batch_reader import RawBatch
from mapper.parallel.pool import READ, PriorityPool

AHEAD = 2
"""Batches to keep, at least."""

THREADS_PER_BATCH = 4
"""One batch more for so many threads: 16 threads take two while the output is written."""


class BatchPrefetcher:
    """Batches in input order, cut ahead of use. Called by one thread.

    Parameters
    ----------
    pool
        Runs `cut`.
    cut
        Returns the next batch, or None at the end. Never called by two threads at a time. Its
        exception is raised by the method here that waits for the batch.
    n_threads
        Size of the pool.
    at_first
        Batches to keep until one is taken, if that is more: while a run is being prepared, it has
        memory and threads for those of a device's first group.
    """

    def __init__(
        self, pool: PriorityPool, cut: Callable[[], RawBatch | None], n_threads: int = 1,
        at_first: int = 0,
    ) -> None:  # fmt: skip
        self._pool, self._cut = pool, cut
        self._lock = threading.Lock()
        self._kept: deque[RawBatch] = deque()
        self._most_later = max(AHEAD, n_threads // THREADS_PER_BATCH)
        self._most = max(self._most_later, at_first)
        self._all_cut = False
        self._cutting: Future[None] | None = None  # None: enough are kept, or all are cut
        with self._lock:
            self._resume()

    @property
    def ended(self) -> bool:
        """True if all batches have been taken."""
        with self._lock:
            return self._all_cut and not self._kept

    def take(self) -> RawBatch | None:
        """Return the next batch, waiting for it; None at the end."""
        self.wait_or(())
        with self._lock:
            self._most = self._most_later
            raw = self._kept.popleft() if self._kept else None
            self._resume()
            return raw

    def wait_or(self, others: Iterable[Future[Any]]) -> bool:
        """Wait for a batch or for one of `others`; return True if there is a batch to take."""
        with self._lock:
            cutting = self._cutting
            if self._kept or cutting is None:
                return bool(self._kept)
        wait([cutting, *others], return_when=FIRST_COMPLETED)
        if cutting.done():
            cutting.result()
        with self._lock:
            return bool(self._kept)

    def _cut_batches(self) -> None:
        """Cut batches until enough are kept (a task)."""
        with self._lock:
            cutting = self._cutting
        while cutting is not None:
            try:
                raw = self._cut()
            except BaseException as error:
                cutting.set_exception(error)
                return
            with self._lock:
                if raw is None:
                    self._all_cut = True
                else:
                    self._kept.append(raw)
                following = self._cutting = Future() if self._wants_more() else None
            del raw  # its memory would stay in use while the next batch is cut
            cutting.set_result(None)
            cutting = following

    # With the lock held:

    def _wants_more(self) -> bool:
        return not self._all_cut and len(self._kept) < self._most

    def _resume(self) -> None:
        """Start a task, unless one is running or enough batches are kept."""
        if self._cutting is None and self._wants_more():
            cutting = self._cutting = Future()

            def cancel(task: Future[None]) -> None:
                if task.cancelled():  # the pool has dropped it: the waiting thread must know
                    cutting.set_exception(CancelledError())

            self._pool.submit(READ, self._cut_batches).add_done_callback(cancel)
