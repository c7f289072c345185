"""The batches of an input, cut off one at a time by a pool, and kept for who is not ready yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from mapper.io.raw_batch import RawBatch
from mapper.workers import READ, Workers


class CutAhead:
    """Batches in input order; the next one is always being cut. Called by one thread.

    Parameters
    ----------
    cut
        Cuts the next batch, or returns None at the end: a task, never two at a time.
    """

    def __init__(self, pool: Workers, cut: Callable[[], RawBatch | None]) -> None:
        self._pool, self._cut = pool, cut
        self._kept: deque[RawBatch] = deque()
        self._cutting: Future[RawBatch | None] | None = pool.submit(READ, cut)

    @property
    def ended(self) -> bool:
        """Whether all batches have been taken."""
        return self._cutting is None and not self._kept

    def take(self) -> RawBatch | None:
        """Return the next batch, waiting for it; None at the end."""
        while self._cutting is not None and not self._kept:
            self._keep()
        return self._kept.popleft() if self._kept else None

    def wait_or(self, others: Iterable[Future[Any]]) -> bool:
        """Wait until a batch can be taken, or one of `others` is done; say whether one can be."""
        if self._kept:
            return True
        if self._cutting is not None:
            wait([self._cutting, *others], return_when=FIRST_COMPLETED)
            if self._cutting.done():
                self._keep()
        return bool(self._kept)

    def go_on_until(self, done: Iterable[Future[Any]], most: int) -> None:
        """Cut on, keeping up to `most` batches, until all of `done` are."""
        left = [future for future in done if not future.done()]
        while left and self._cutting is not None and len(self._kept) < most:
            wait([self._cutting, *left], return_when=FIRST_COMPLETED)
            if self._cutting.done():
                self._keep()
            left = [future for future in left if not future.done()]

    def _keep(self) -> None:
        """Keep the batch that is being cut, and have the next one cut."""
        assert self._cutting is not None
        raw = self._cutting.result()
        self._cutting = None
        if raw is not None:
            self._kept.append(raw)
            self._cutting = self._pool.submit(READ, self._cut)
