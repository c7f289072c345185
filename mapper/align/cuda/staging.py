"""The staging of a batch: threads fill places, one chunk each, in the chunks' order."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context

import numba
import numpy as np

from mapper.align.cuda.chunks import Chunk
from mapper.align.cuda.sources import LetterSource, PackedSource
from mapper.align.cuda.work_queue import (
    ALL,
    FAILED,
    NOT_READY,
    READY,
    give_places,
    rest,
    state_of,
    stop,
    tickets_of,
)
from mapper.errors import DeviceError
from mapper.parallel.pool import kept_pool

Source = LetterSource | PackedSource

_PARTS_A_THREAD = 4
"""Of a chunk: threads that end early go on with the next chunk, and who waits for a chunk and helps
meanwhile is back soon."""


def words_of_place(source: Source, chunks: Sequence[Chunk]) -> int:
    """Return the words of a place, which is to hold any of the chunks."""
    n_words = max((source.n_words(chunk) for chunk in chunks), default=0)
    return (n_words + 63) & ~63  # so that all places begin where copies like best


class Staging:
    """Chunks that are being staged; to be closed.

    Parameters
    ----------
    places
        uint64 (n_places, n_words): chunk i goes to place ``i % n_places``.
    threads
        That stage. One of them is the caller's, by :meth:`help`; with one alone, another does.
        No effect on the result.
    """

    def __init__(
        self, source: Source, chunks: Sequence[Chunk], places: np.ndarray, threads: int
    ) -> None:
        self._source, self._places, self._threads = source, places, threads
        threads = 1 if numba.config.DISABLE_JIT else threads
        self._tickets = tickets_of(len(chunks), _PARTS_A_THREAD * threads)
        self._stage = source.stager(chunks, places)
        self._helps = threads > 1
        self._failures: list[BaseException] = []
        others = max(1, threads - 1)
        context = copy_context()  # NumPy's error state is part of it, where the JIT is off
        self._futures: list[Future[None]] = [
            kept_pool(others).submit(context.copy().run, self._stage_all) for _ in range(others)
        ]

    def _stage_all(self) -> None:
        try:
            self._stage(self._tickets, ALL)
        except BaseException as error:
            self._failures.append(error)

    def place(self, chunk: int) -> np.ndarray:
        """Return the words of a chunk's place."""
        row: np.ndarray = self._places[chunk % len(self._places)]
        return row

    def begin(self, n: int = 1) -> None:
        """Let the next chunks be staged: their places are free."""
        give_places(self._tickets, n)

    def is_ready(self, chunk: int) -> bool:
        """Say whether a chunk is staged.

        Raises
        ------
        UsageError
            If it, or one behind it, holds what is not allowed; or what a thread has raised.
        """
        state = state_of(self._tickets, chunk)
        if state == FAILED:
            self._source.check(self._threads)
            raise DeviceError("pairs were found to be wrong, and then right")
        if state == NOT_READY and self._failures:
            raise self._failures[0]
        return bool(state == READY)

    def help(self, turn: int) -> int:
        """Stage a part, or rest if there is none; return the turns of rest in a row."""
        if self._helps and self._stage(self._tickets, 1):
            return 0
        rest(turn)
        return turn + 1

    def wait(self, chunk: int) -> None:
        """Wait until a chunk is staged, and help; what is raised is as for :meth:`is_ready`."""
        turn = 0
        while not self.is_ready(chunk):
            turn = self.help(turn)

    def close(self) -> None:
        """End the threads' work on this batch."""
        stop(self._tickets)
        wait(self._futures)
