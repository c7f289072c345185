"""Reading and decompressing ahead of the parser, one thread for each file."""

from __future__ import annotations

import queue
import threading

import numpy as np

from mapper.io.source import BrokenStreamError, PlainBytes

_CHUNKS_AHEAD = 2
_STOP_CHECK_S = 0.2


class ReadAhead:
    """A byte source that is read by a thread of its own, a few chunks ahead.

    Decompression takes longer than parsing, and releases the GIL: two files of mates and
    the parser keep three cores busy.

    Parameters
    ----------
    source
        What to read; the thread closes it.
    chunk_bytes
        Bytes read at a time; three times as many are held.
    """

    def __init__(self, source: PlainBytes, chunk_bytes: int) -> None:
        self.name = source.name
        self._source = source
        self._chunk_bytes = chunk_bytes
        self._ready: queue.Queue[np.ndarray | BaseException] = queue.Queue(_CHUNKS_AHEAD)
        self._rest: np.ndarray = np.empty(0, np.uint8)
        self._ended = False
        self._stopped = threading.Event()
        # A daemon, because a thread that waits for an idle pipe cannot be ended otherwise.
        threading.Thread(target=self._run, name=f"read {self.name}", daemon=True).start()

    def readinto(self, buffer: memoryview) -> int:
        """Fill the start of `buffer` and return how many bytes; 0 only at the end.

        Raises
        ------
        BrokenStreamError
            When all that could be read has been handed out, or after :meth:`close`.
        """
        if not len(self._rest) and not self._ended:
            item = self._next_item()
            if isinstance(item, BaseException):
                self._ended = True
                raise item
            self._rest = item
            self._ended = len(item) == 0
        n = min(len(self._rest), len(buffer))
        buffer[:n] = self._rest[:n].data
        self._rest = self._rest[n:]
        return n

    def close(self) -> None:
        """Let the thread end, and whoever waits in ``readinto``; does not wait for them."""
        self._stopped.set()

    def _next_item(self) -> np.ndarray | BaseException:
        # Whoever writes to a pipe may be idle for ever: a run that is stopped must not wait.
        while True:
            try:
                return self._ready.get(timeout=_STOP_CHECK_S)
            except queue.Empty:
                if self._stopped.is_set():
                    return BrokenStreamError("reading was stopped")

    def _run(self) -> None:
        item: np.ndarray | BaseException
        try:
            while not self._stopped.is_set():
                item = np.empty(self._chunk_bytes, np.uint8)
                item = item[: self._source.readinto(item.data)]
                self._put(item)
                if len(item) == 0:
                    break
        except BaseException as error:  # whatever it is, it is raised where the bytes are missed
            self._put(error)
        finally:
            self._source.close()

    def _put(self, item: np.ndarray | BaseException) -> None:
        while not self._stopped.is_set():
            try:
                self._ready.put(item, timeout=_STOP_CHECK_S)
                return
            except queue.Full:
                continue
