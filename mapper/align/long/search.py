"""The path of two very long strings, by divide and conquer over threads and devices.

The middle of each part is searched, which divides it; parts of a small distance are aligned as a
whole. Both halves of a part are independent, so several threads and devices share them.

References
----------
Marco-Sola et al. (2023), doi:10.1093/bioinformatics/btad074: divide and conquer on wavefronts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

import numpy as np

from mapper import cigar
from mapper.align.edit.cpu import LEAF_CELLS, LEAF_ROWS, global_path
from mapper.align.edit.edit_space import new_rows
from mapper.align.edit.middle import N_STATE
from mapper.align.edit.wavefront import GOING
from mapper.align.long.checkpoint import Checkpoint, Part, Work
from mapper.align.long.long_search import Search
from mapper.align.matches import Pair, part_of
from mapper.jit.accelerate import driver

_WHOLE_PART = 4096
"""Parts with this distance or less are not divided in slices, nor by a device."""

Progress = Callable[[int, int], None]
"""Told from time to time how far the work is: edits whose place in the path is known, and
edits known to be needed."""


class Report:
    """Sums up progress; ``stopped`` ends what threads are doing."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._placed = 0
        self.stopped = threading.Event()

    def add(self, placed: int, edits: int) -> None:
        """Report `placed` more edits of so many."""
        self._placed += placed
        if self._progress:
            self._progress(self._placed, edits)


@driver
def _whole_path(pair, bound):
    """Return the operations of a part that is small enough, in order."""
    rows = new_rows(1 << 12, 2)
    back_rows = new_rows(1 << 12, 2)
    leaf = new_rows(LEAF_CELLS, LEAF_ROWS)
    _, ops, n_ops, _, _ = global_path(
        pair, bound, leaf, rows, back_rows, np.empty(N_STATE, np.int64),
        np.empty(64, np.uint32), 0,
    )  # fmt: skip
    return ops[:n_ops][::-1].copy()


MakeSearch = Callable[[Pair, Part], Search]
"""Makes the search of a part on one device."""


class _Task(NamedTuple):
    """What a thread is doing."""

    part: Part
    make_search: MakeSearch | None  # of the device that it keeps busy


def find_path(
    pair: Pair, work: Work, saved: Checkpoint, n_threads: int, makers: list[MakeSearch],
    report: Report,
) -> None:  # fmt: skip
    """Work off all pending parts, several at a time; fill ``work.done``.

    With devices, each divides one part after the other, and the threads take the small ones.
    """
    running: dict[Future[np.ndarray | list[Part]], _Task] = {}
    waiting = list(work.pending)
    free = list(makers)
    base = sum(part.bound for part in work.pending)
    with (
        saved.kept_by_signals(lambda: _consistent(work)),
        ThreadPoolExecutor(n_threads + len(makers)) as pool,
    ):
        try:
            while waiting or running:
                for i in reversed(range(len(waiting))):
                    make_search = None
                    if makers and waiting[i].bound > _WHOLE_PART:
                        if not free:
                            continue
                        make_search = free.pop()
                    elif sum(t.make_search is None for t in running.values()) >= n_threads:
                        continue
                    task = _Task(waiting.pop(i), make_search)
                    search = make_search or Search
                    future = pool.submit(_work_on, pair, task.part, search, report.stopped)
                    running[future] = task
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    part, make_search = running.pop(future)
                    if make_search is not None:
                        free.append(make_search)
                    result = future.result()
                    at = work.pending.index(part)
                    # In this order and at once: a signal may come between two statements.
                    if isinstance(result, list):
                        work.pending[at : at + 1] = result
                        waiting.extend(result)
                    else:
                        work.done[part.v, part.h] = result
                        del work.pending[at]
                        report.add(part.bound, base)
                saved.save_if_due(lambda: work)
        except BaseException:
            report.stopped.set()
            raise


def _consistent(work: Work) -> Work:
    """Return the work without the part that a signal found done and still pending."""
    pending = [part for part in work.pending if (part.v, part.h) not in work.done]
    return work._replace(pending=pending)


def _work_on(
    pair: Pair, part: Part, make_search: MakeSearch, stopped: threading.Event
) -> np.ndarray | list[Part]:
    """Return the operations of a part, or its halves."""
    if part.bound <= _WHOLE_PART:
        return _whole_path(part_of(pair, *part[:4]), part.bound)
    search = make_search(pair, part)
    while search.slice() == GOING:
        if stopped.is_set():
            raise InterruptedError
    return search.halves(part)


def n_edits(ops: np.ndarray) -> int:
    """Return how many symbols of operations (uint32) differ, are inserted or deleted."""
    return int((ops[(ops & 15) != cigar.EQUAL] >> 4).sum(dtype=np.int64))


def joined_ops(done: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
    """Return the operations (uint32) of all parts in order, runs that meet joined.

    Parameters
    ----------
    done
        Operations of each part by (v, h), where it begins.
    """
    flat = np.concatenate([done[place] for place in sorted(done)])
    if len(flat) == 0:
        return flat
    first = np.flatnonzero(np.concatenate([[True], (flat[1:] & 15) != (flat[:-1] & 15)]))
    lengths = np.add.reduceat((flat >> 4).astype(np.int64), first)
    return ((lengths << 4) | (flat[first] & 15)).astype(np.uint32)
