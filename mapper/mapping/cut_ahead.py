"""The batches of an input, cut off by a pool one after another, and kept for who is not ready yet.

One thread cuts on as long as batches are wanted: no other, which may be writing, wait for Python's
lock or have to be woken, stands between two cuts. With many threads the chain of cuts is what all
of them live on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from typing import Any

from mapper.io.batch_reader import RawBatch
from mapper.parallel.pool import READ, Workers

AHEAD = 2
"""Batches that are kept, at least, before anyone wants them."""

THREADS_A_BATCH = 4
"""With so many threads for each, more are kept: 16 threads take two while the output is written."""


class CutAhead:
    """Batches in input order; the next ones are cut ahead. Called by one thread.

    Parameters
    ----------
    cut
        Cuts the next batch, or returns None at the end: a task, never two at a time. What it
        raises, the caller of a method here gets, if that waits for a batch.
    n_threads
        Of the pool.
    """

    def __init__(
        self, pool: Workers, cut: Callable[[], RawBatch | None], n_threads: int = 1
    ) -> None:
        self._pool, self._cut = pool, cut
        self._lock = threading.Lock()
        self._kept: deque[RawBatch] = deque()
        self._ahead = max(AHEAD, n_threads // THREADS_A_BATCH)
        self._most = self._ahead  # batches to keep
        self._all_cut = False
        self._cutting: Future[None] | None = None  # None: enough are kept, or all are cut
        with self._lock:
            self._go_on()

    @property
    def ended(self) -> bool:
        """Whether all batches have been taken."""
        with self._lock:
            return self._all_cut and not self._kept

    def take(self) -> RawBatch | None:
        """Return the next batch, waiting for it; None at the end."""
        self.wait_or(())
        with self._lock:
            raw = self._kept.popleft() if self._kept else None
            self._go_on()
            return raw

    def wait_or(self, others: Iterable[Future[Any]]) -> bool:
        """Wait until a batch can be taken, or one of `others` is done; say whether one can be."""
        with self._lock:
            cutting = self._cutting
            if self._kept or cutting is None:
                return bool(self._kept)
        wait([cutting, *others], return_when=FIRST_COMPLETED)
        if cutting.done():
            cutting.result()
        with self._lock:
            return bool(self._kept)

    def go_on_until(self, done: Iterable[Future[Any]], most: int) -> None:
        """Cut on, keeping up to `most` batches, until all of `done` are."""
        left = list(done)
        self._keep(max(most, self._ahead))
        while left := [future for future in left if not future.done()]:
            with self._lock:
                cutting = self._cutting
            if cutting is None:  # enough are kept, or all are cut
                break
            wait([cutting, *left], return_when=FIRST_COMPLETED)
            if cutting.done():
                cutting.result()
        self._keep(self._ahead)

    def _keep(self, most: int) -> None:
        with self._lock:
            self._most = most
            self._go_on()

    def _cut_on(self) -> None:
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
            del raw  # nor its memory held while the next is cut
            cutting.set_result(None)
            cutting = following

    # With the lock held:

    def _wants_more(self) -> bool:
        return not self._all_cut and len(self._kept) < self._most

    def _go_on(self) -> None:
        """Have batches cut, unless one is being cut or enough are kept."""
        if self._cutting is None and self._wants_more():
            cutting = self._cutting = Future()

            def hear(task: Future[None]) -> None:
                if task.cancelled():  # the pool has dropped it: who waits for a batch must know
                    cutting.set_exception(CancelledError())

            self._pool.submit(READ, self._cut_on).add_done_callback(hear)
