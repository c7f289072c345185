"""Staging of a batch: threads fill page-locked buffers, one chunk each, in order."""

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
    add_buffers,
    back_off,
    chunk_state,
    stop,
    work_queue,
)
from mapper.align.threads import crew
from mapper.errors import DeviceError

Source = LetterSource | PackedSource

_PARTS_A_THREAD = 4
"""Parts of a chunk for each thread: threads that finish early start on the next chunk, and the
thread that queues work stages short parts only."""


def buffer_words(source: Source, chunks: Sequence[Chunk]) -> int:
    """Return the words of a buffer that can hold any of the chunks."""
    n_words = max((source.n_words(chunk) for chunk in chunks), default=0)
    return (n_words + 63) & ~63  # so that copies from all buffers are aligned


class Staging:
    """Chunks that are being staged; call :meth:`close` at the end.

    Parameters
    ----------
    buffers
        uint64 (n_buffers, n_words): chunk i goes to buffer ``i % n_buffers``.
    threads
        Threads that stage. One of them is the caller's, by :meth:`help`; with one thread, another
        one stages. No effect on the result.
    """

    def __init__(
        self, source: Source, chunks: Sequence[Chunk], buffers: np.ndarray, threads: int
    ) -> None:
        self._source, self._buffers, self._threads = source, buffers, threads
        threads = 1 if numba.config.DISABLE_JIT else threads
        self._queue = work_queue(len(chunks), _PARTS_A_THREAD * threads)
        self._stage = source.stager(chunks, buffers)
        self._helps = threads > 1
        self._failures: list[BaseException] = []
        others = max(1, threads - 1)
        context = copy_context()  # NumPy's error state is part of it, where the JIT is off
        self._futures: list[Future[None]] = [
            crew(others).submit(context.copy().run, self._stage_all) for _ in range(others)
        ]

    def _stage_all(self) -> None:
        try:
            self._stage(self._queue, ALL)
        except BaseException as error:
            self._failures.append(error)

    def buffer(self, chunk: int) -> np.ndarray:
        """Return the buffer of a chunk."""
        row: np.ndarray = self._buffers[chunk % len(self._buffers)]
        return row

    def begin(self, n: int = 1) -> None:
        """Let the next n chunks be staged: their buffers are free."""
        add_buffers(self._queue, n)

    def is_ready(self, chunk: int) -> bool:
        """Return True if a chunk is staged.

        Raises
        ------
        UsageError
            If it, or a later one, has invalid pairs. Errors of threads are raised, too.
        """
        state = chunk_state(self._queue, chunk)
        if state == FAILED:
            self._source.check(self._threads)
            raise DeviceError("pairs were found to be wrong, and then right")
        if state == NOT_READY and self._failures:
            raise self._failures[0]
        return bool(state == READY)

    def help(self, attempt: int) -> int:
        """Stage a part, or back off if there is none; return the number of attempts in a row."""
        if self._helps and self._stage(self._queue, 1):
            return 0
        back_off(attempt)
        return attempt + 1

    def wait(self, chunk: int) -> None:
        """Wait until a chunk is staged, and stage meanwhile; raises as :meth:`is_ready`."""
        attempt = 0
        while not self.is_ready(chunk):
            attempt = self.help(attempt)

    def close(self) -> None:
        """Stop the threads."""
        stop(self._queue)
        wait(self._futures)
