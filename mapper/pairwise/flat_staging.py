"""The staging of a batch: threads fill places, one chunk each, in the chunks' order."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context

import numba
import numpy as np

from mapper.errors import DeviceError
from mapper.pairwise.crew import crew
from mapper.pairwise.flat_batch import LetterSource
from mapper.pairwise.flat_chunks import Chunk
from mapper.pairwise.flat_packed import PackedSource
from mapper.pairwise.flat_tickets import give_places, stop, tickets_of, wait_ready, was_wrong

Source = LetterSource | PackedSource

_PARTS_A_THREAD = 2
"""Of a chunk: threads that end early go on with the next chunk."""

_TURNS = 1 << 11
"""How often is looked for a chunk before it is asked whether its threads have failed."""


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
        That stage, beside the one that calls; no effect on the result.
    """

    def __init__(
        self, source: Source, chunks: Sequence[Chunk], places: np.ndarray, threads: int
    ) -> None:
        self._source, self._places, self._threads = source, places, threads
        threads = 1 if numba.config.DISABLE_JIT else threads
        self._tickets = tickets_of(len(chunks), _PARTS_A_THREAD * threads)
        stager = source.stager(chunks, places)
        context = copy_context()  # NumPy's error state is part of it, where the JIT is off
        self._futures: list[Future[None]] = [
            crew(threads).submit(context.copy().run, stager, self._tickets) for _ in range(threads)
        ]

    def place(self, chunk: int) -> np.ndarray:
        """Return the words of a chunk's place."""
        row: np.ndarray = self._places[chunk % len(self._places)]
        return row

    def begin(self) -> None:
        """Let the next chunk be staged: its place is free."""
        give_places(self._tickets, 1)

    def wait(self, chunk: int) -> None:
        """Wait until a chunk is staged.

        Raises
        ------
        UsageError
            If it, or one behind it, holds what is not allowed; or what a thread has raised.
        """
        while not wait_ready(self._tickets, chunk, _TURNS):
            for future in self._futures:
                if future.done():
                    future.result()
        if was_wrong(self._tickets):
            self._source.check(self._threads)
            raise DeviceError("pairs were found to be wrong, and then right")

    def close(self) -> None:
        """End the threads' work on this batch."""
        stop(self._tickets)
        wait(self._futures)
