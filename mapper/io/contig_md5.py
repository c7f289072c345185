"""MD5 of contigs, computed by other threads behind whoever reads them.

MD5 cannot be shared among threads, and takes longer than all else that is done to a base (0.6
GB/s). So each contig has a queue of its pieces, from which one thread at a time takes, and threads
take from the queues of several contigs.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from concurrent.futures import Executor
from functools import partial

import numpy as np

from mapper.io.fasta_codes import write_letters
from mapper.parallel.pool import ReclaimableTask

_TASK_BYTES = 1 << 20
"""Of one task, at least: small contigs share one."""

_LETTERS_AT_ONCE = 1 << 17
"""Few enough to stay in a core's cache."""


class _Sum:
    """MD5 of one contig; pieces are added by one thread, and taken by any."""

    def __init__(self) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._pieces: deque[np.ndarray] = deque()
        self._taking = threading.Lock()
        self._all_added = False
        self._digest: str | None = None

    def add(self, codes: np.ndarray) -> None:
        self._pieces.append(codes)

    def all_added(self) -> None:
        self._all_added = True

    def go_on(self) -> None:
        """Take what there is, unless another thread does; then that one goes on with it."""
        while (self._pieces or self._is_to_end()) and self._taking.acquire(blocking=False):
            try:
                ends = self._is_to_end()  # before the queue is looked at: nothing comes after
                while self._pieces:
                    self._take(self._pieces.popleft())
                if ends:
                    self._digest = self._md5.hexdigest()
            finally:
                self._taking.release()

    def digests(self) -> list[str]:
        assert self._digest is not None
        return [self._digest]

    def _is_to_end(self) -> bool:
        return self._all_added and self._digest is None

    def _take(self, codes: np.ndarray) -> None:
        letters = np.empty(min(len(codes), _LETTERS_AT_ONCE), np.uint8)
        for start in range(0, len(codes), _LETTERS_AT_ONCE):
            some = codes[start : start + _LETTERS_AT_ONCE]
            write_letters(some, letters)
            self._md5.update(letters[: len(some)].data)


class _SumsOfWhole:
    """MD5 of contigs of which each is there in one run: of many small ones, in little memory."""

    def __init__(self, runs: list[np.ndarray]) -> None:
        self._runs = runs
        self._digests: list[str] = []

    def go_on(self) -> None:
        """Take all; called once."""
        letters = np.empty(max(map(len, self._runs)), np.uint8)
        for codes in self._runs:
            write_letters(codes, letters)
            found = hashlib.md5(letters[: len(codes)].data, usedforsecurity=False)
            self._digests.append(found.hexdigest())
        self._runs = []

    def digests(self) -> list[str]:
        return self._digests


class ContigSums:
    """MD5 of the upper-case letters of contigs, one after another; called by one thread.

    Parameters
    ----------
    executor
        Its threads compute; None: the calling thread.
    most_waiting
        Bytes of pieces that may wait; None: any number, where they are kept anyway.
    """

    def __init__(self, executor: Executor | None, most_waiting: int | None = None) -> None:
        self._executor = executor
        self._most_waiting = most_waiting
        self._sums: list[_Sum | _SumsOfWhole] = []
        self._last: _Sum | None = None  # of the contig that may go on
        self._next: list[_Sum | _SumsOfWhole] = []  # sums that are to go on in the next task
        self._next_bytes = 0
        self._tasks: deque[tuple[ReclaimableTask[None], int]] = deque()
        self._waiting = 0

    def add_runs(self, runs: list[np.ndarray]) -> None:
        """Add written codes (uint8, see :mod:`mapper.io.fasta_codes`), which stay as they are.

        The first run goes on with the contig before, each other one begins a contig.
        """
        if len(runs[0]):
            self._add_to_last(runs[0])
        if len(runs) > 1:
            self._end()
            if len(runs) > 2:
                whole = _SumsOfWhole(runs[1:-1])
                self._sums.append(whole)
                self._go_on_with(whole, sum(map(len, runs[1:-1])))
            self._last = _Sum()
            self._sums.append(self._last)
            self._add_to_last(runs[-1])
        while self._most_waiting is not None and self._waiting > self._most_waiting:
            self._finish_task()

    def digests(self) -> list[str]:
        """End the last contig, and return the hexadecimal MD5 of each."""
        self._end()
        self._submit()
        while self._tasks:
            self._finish_task()
        return [digest for found in self._sums for digest in found.digests()]

    def _add_to_last(self, codes: np.ndarray) -> None:
        assert self._last is not None
        self._last.add(codes)
        self._go_on_with(self._last, len(codes))

    def _end(self) -> None:
        if self._last is not None:
            self._last.all_added()
            self._go_on_with(self._last, 0)

    def _go_on_with(self, sums: _Sum | _SumsOfWhole, n_bytes: int) -> None:
        if not self._next or self._next[-1] is not sums:
            self._next.append(sums)
        self._next_bytes += n_bytes
        if self._next_bytes >= _TASK_BYTES:
            self._submit()

    def _submit(self) -> None:
        call = partial(_go_on, self._next)
        if self._executor is None:
            call()
        else:
            self._tasks.append((ReclaimableTask(self._executor, call), self._next_bytes))
            self._waiting += self._next_bytes
        self._next, self._next_bytes = [], 0

    def _finish_task(self) -> None:
        task, n_bytes = self._tasks.popleft()
        task.result()
        self._waiting -= n_bytes


def _go_on(sums: list[_Sum | _SumsOfWhole]) -> None:
    for some in sums:
        some.go_on()
