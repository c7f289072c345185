"""Reading a pipe ahead of the decoder, by a thread that only waits for it."""

from __future__ import annotations

import io
import queue
import threading
from typing import Any

CHUNK_BYTES = 1 << 16
"""What a pipe gives at a time, at most, on Linux."""

_CHUNKS_AHEAD = 64
_STOP_CHECK_S = 0.2


class StoppedError(Exception):
    """Reading was ended by :meth:`ReadAhead.close`."""


class ReadAhead(io.RawIOBase):
    """A pipe (or terminal, or socket) that a thread of its own reads, some chunks ahead.

    Two pipes of mates may be written by one program, in turns: both must be read, whichever
    of them is waited for. And who waits for an idle pipe cannot be stopped; who waits for
    this can. The thread copies bytes and computes nothing.

    Parameters
    ----------
    raw
        What to read; the thread closes it.
    name
        For the thread.
    """

    def __init__(self, raw: Any, name: str) -> None:
        self._raw = raw
        self._ready: queue.Queue[bytes | BaseException] = queue.Queue(_CHUNKS_AHEAD)
        self._rest = memoryview(b"")
        self._end: BaseException | None = None
        self._ended = False
        self._stopped = threading.Event()
        # A daemon, because a thread that waits for an idle pipe cannot be ended otherwise.
        threading.Thread(target=self._run, name=f"read {name}", daemon=True).start()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the start of `buffer` and return how many bytes; 0 only at the end.

        Raises
        ------
        OSError
            If the pipe cannot be read on, when all that could be read has been handed out.
        StoppedError
            After :meth:`close`.
        """
        if not self._rest and not self._ended:
            item = self._next_item()
            if isinstance(item, BaseException):
                raise item
            self._rest = memoryview(item)
            self._ended = len(item) == 0
        n = min(len(self._rest), len(buffer))
        buffer[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n

    def close(self) -> None:
        """Let the thread end, and whoever waits in ``readinto``; does not wait for them."""
        self._stopped.set()
        super().close()

    def _next_item(self) -> bytes | BaseException:
        # Whoever writes to a pipe may be idle for ever: a run that is stopped must not wait.
        while True:
            try:
                return self._ready.get(timeout=_STOP_CHECK_S)
            except queue.Empty:
                if self._stopped.is_set():
                    return StoppedError("reading was stopped")

    def _run(self) -> None:
        buffer = bytearray(CHUNK_BYTES)
        try:
            while not self._stopped.is_set():
                n = self._raw.readinto(buffer)
                self._put(bytes(memoryview(buffer)[:n]))
                if n == 0:
                    break
        except BaseException as error:  # whatever it is, it is raised where the bytes are missed
            self._put(error)
        finally:
            self._raw.close()

    def _put(self, item: bytes | BaseException) -> None:
        while not self._stopped.is_set():
            try:
                self._ready.put(item, timeout=_STOP_CHECK_S)
                return
            except queue.Full:
                continue
