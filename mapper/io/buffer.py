"""The part of an input file that is in memory, filled ahead by whichever thread is free."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future

import numpy as np

from mapper.errors import InputFormatError
from mapper.io.source import BrokenStreamError, PlainBytes
from mapper.recycled import RECYCLER

MAX_RECORD_BYTES = 1 << 28
"""A record that does not fit into this is taken for a broken file, not for a read."""

_BLOCKS_AHEAD = 2
_BLOCK_CHUNKS = 4


class InputBuffer:
    """The unread bytes of one file, as far as they are in memory.

    They lie one after the other in a large block of memory, from which batches are handed out
    as views; bytes move only when a block is full, and then only those that are unread.
    Reading and decompressing goes on in steps, one at a time, ahead of what is taken.

    Parameters
    ----------
    source
        The file.
    chunk_bytes
        Bytes of a step; no effect on what is handed out.
    executor
        Its threads read ahead; None: the calling thread reads when bytes are missing.
    """

    def __init__(
        self, source: PlainBytes, chunk_bytes: int, executor: Executor | None = None
    ) -> None:
        self.name = source.name
        self.broken: BrokenStreamError | None = None
        """Why the file cannot be read on, once all that could be read is in memory."""
        self._source = source
        self._chunk = chunk_bytes
        self._executor = executor
        self._block = np.empty(0, np.uint8)
        self._at = 0  # self._block[at:end] is unread
        self._end = 0
        self._ended = False
        self._wanted = 0  # most bytes that were asked for at once
        self._lock = threading.Lock()  # for all of these
        self._step_lock = threading.Lock()  # held during a step, to make them one at a time
        self._step_ahead: Future[None] | None = None
        self._closed = False

    def unread(self, wanted: int) -> tuple[np.ndarray, bool]:
        """Return the unread bytes, at least `wanted` of them unless the file has fewer.

        Returns
        -------
        uint8, which must not be written to; whether that is all (the file has ended, or is
        `broken` there).
        """
        with self._lock:
            self._wanted = max(self._wanted, wanted)
        while True:
            with self._lock:
                enough = self._end - self._at >= wanted or self._ended
                if enough:
                    self._go_on_ahead()
                    return self._block[self._at : self._end], self._ended
                step = self._step_ahead
            if step is None:
                self._step()
            elif step.cancel():
                self._step()
                with self._lock:
                    self._step_ahead = None
            else:
                step.result()

    def take(self, n: int) -> np.ndarray:
        """Return the first `n` unread bytes, which count as read from now on."""
        with self._lock:
            taken = self._block[self._at : self._at + n]
            self._at += n
            self._go_on_ahead()
            return taken

    def only_blank_lines_left(self) -> bool:
        """Read on to the end of the file or the first character that is no line end."""
        while True:
            rest, ended = self.unread(1)
            solid = np.flatnonzero((rest != ord("\n")) & (rest != ord("\r")))
            self.take(int(solid[0]) if solid.size else len(rest))
            if solid.size or ended:
                return not solid.size

    def larger(self, size: int, record: int) -> int:
        """Return the size of a larger part of the file to look at: `size` has no record's end.

        Raises
        ------
        InputFormatError
            If a record exceeds MAX_RECORD_BYTES. `record` is the number to name.
        """
        if size >= MAX_RECORD_BYTES:
            raise InputFormatError(
                f"{self.name}: record {record}: no end of the record within {MAX_RECORD_BYTES} "
                "bytes; repair or re-export the file"
            )
        return min(2 * size, MAX_RECORD_BYTES)

    def close(self) -> None:
        """Close the file; whoever waits for it, in another thread, finds it broken."""
        with self._lock:
            self._closed = True
            step = self._step_ahead
        if step is not None:
            step.cancel()
        self._source.stop()
        with self._step_lock:
            self._source.close()

    def _go_on_ahead(self) -> None:
        """Queue the next step, unless there is one or enough is in memory (holding the lock)."""
        ahead = _BLOCKS_AHEAD * self._wanted + self._chunk
        if self._executor is None or self._ended or self._closed or self._end - self._at >= ahead:
            return
        if self._step_ahead is None:
            self._step_ahead = self._executor.submit(self._read_ahead)

    def _read_ahead(self) -> None:
        """Read once, and queue the next step (a task)."""
        self._step()
        with self._lock:
            self._step_ahead = None
            self._go_on_ahead()

    def _step(self) -> None:
        """Read once."""
        with self._step_lock:
            with self._lock:
                if self._ended or self._closed:
                    self._ended = True
                    return
                if self._end == len(self._block):
                    self._begin_block()
                view = self._block[self._end : self._end + self._chunk].data
            n = 0
            try:
                n = self._source.readinto(view)
            except BrokenStreamError as error:
                self.broken = error
        with self._lock:
            self._end += n
            self._ended = n == 0

    def _begin_block(self) -> None:
        """Put the unread bytes at the start of a new block."""
        unread = self._end - self._at
        size = max(4 * self._wanted, _BLOCK_CHUNKS * self._chunk, 2 * unread)
        block = RECYCLER.empty(size)
        block[:unread] = self._block[self._at : self._end]
        self._block, self._at, self._end = block, 0, unread
