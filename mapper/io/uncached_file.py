"""Files whose bytes nobody reads soon, written past the system's memory."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from pathlib import Path
from typing import Self

import numpy as np

from mapper.io.output_file import WriteBehind

BUFFER_BYTES = 4 << 20


class UncachedFile:
    """A new file that is written in order and past the system's memory (``O_DIRECT``).

    To fill memory with what nobody will read soon costs the processor more than all else of the
    writing: benchmarks/results/resume.md. Where a file system takes only cached writes, these are
    made instead.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._direct = getattr(os, "O_DIRECT", 0)  # 0: not of this system, or not taken
        try:
            self._handle = os.open(path, flags | self._direct, 0o666)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._direct = 0
            self._handle = os.open(path, flags, 0o666)
        self._behind = WriteBehind(self._handle)
        # A mapping begins at a page, as the system wants it of memory that it writes from.
        self._buffer = np.frombuffer(mmap.mmap(-1, BUFFER_BYTES), np.uint8)
        self._n_held = 0  # bytes in the buffer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def write(self, data: np.ndarray) -> None:
        """Write bytes, uint8."""
        while len(data) > 0:
            taken = data[: BUFFER_BYTES - self._n_held]
            self._buffer[self._n_held : self._n_held + len(taken)] = taken
            self._n_held += len(taken)
            data = data[len(taken) :]
            if self._n_held == BUFFER_BYTES:
                self._empty()

    def sync(self) -> None:
        """Write the last bytes, and wait until all are on disk; nothing can be written after."""
        if self._n_held % mmap.PAGESIZE:
            self._take_cached_writes()
        self._empty()
        os.fsync(self._handle)

    def _empty(self) -> None:
        held = memoryview(self._buffer.data)[: self._n_held]
        self._n_held = 0
        while held:
            try:
                n_written = os.write(self._handle, held)
            except OSError as error:  # taken when the file was opened, and not now
                if error.errno != errno.EINVAL or not self._direct:
                    raise
                self._take_cached_writes()
                continue
            held = held[n_written:]
            if self._direct and n_written % mmap.PAGESIZE:  # the disk may be full
                self._take_cached_writes()
            if not self._direct:
                self._behind.wrote(n_written)

    def _take_cached_writes(self) -> None:
        if self._direct:
            flags = fcntl.fcntl(self._handle, fcntl.F_GETFL)
            fcntl.fcntl(self._handle, fcntl.F_SETFL, flags & ~self._direct)
            self._direct = 0
