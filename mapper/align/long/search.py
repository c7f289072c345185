"""Divide and conquer over the path of two very long strings, with checkpoints.

The middle of each part is searched (:class:`Search`, here on the CPU, in ``cuda.py`` on a device),
which divides the part; parts of a small distance are aligned as a whole. Both halves of a part are
independent, so several threads and devices share them (:func:`find_path`). A `Checkpoint` saves the
work, so that a run of hours can be interrupted.

References
----------
Marco-Sola et al. (2023), doi:10.1093/bioinformatics/btad074: divide and conquer on wavefronts.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper import cigar
from mapper.align.coding import code_one
from mapper.align.edit.cpu import (
    LEAF_CELLS,
    LEAF_ROWS,
    clear_rows,
    find_middle,
    global_path,
    meet_with_room,
    new_rows,
)
from mapper.align.edit.wavefront import (
    FINISHED,
    GOING,
    MIDDLE_K,
    MIDDLE_OFFSET,
    N_STATE,
    R,
    Rows,
    S,
    new_state,
)
from mapper.align.matches import Pair, pair_at, part_of
from mapper.align.result import OK, OVER_LIMIT
from mapper.align.single import BAD, SCORE, STATUS
from mapper.errors import OutputError, UsageError
from mapper.io.output_file import (
    check_writable,
    output_error,
    remove_quietly,
    sync_and_rename,
    temporary_name,
)
from mapper.jit.accelerate import driver
from mapper.parallel.pool import thread_pool

log = logging.getLogger(__name__)

# --- checkpoints ---

SECONDS = 60.0
"""Default time between saved states."""


class Part(NamedTuple):
    """A part of a path: its start (v, h), its lengths, and its distance or an upper bound."""

    v: int
    h: int
    query_len: int
    ref_len: int
    bound: int


class Work(NamedTuple):
    """Parts done and parts pending."""

    pending: list[Part]
    done: dict[tuple[int, int], np.ndarray]  # operations by the start of a part
    search: list[np.ndarray] | None  # state and rows of the search in the first part


class Checkpoint:
    """File that saves the work, or none.

    Parameters
    ----------
    path
        File, or None to save nothing.
    digest
        Digest of the problem; a file with another one is refused.
    seconds
        Time between saved states; None: ``SECONDS``.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """

    def __init__(self, path: Path | str | None, digest: str, seconds: float | None) -> None:
        self._path = None if path is None else Path(path)
        self._digest = digest
        self._seconds = SECONDS if seconds is None else seconds
        self._last = time.monotonic()
        if self._path is not None:
            check_writable(self._path)

    def load(self) -> Work | None:
        """Return the work saved by an interrupted run, or None if there is no file.

        Raises
        ------
        UsageError
            If the file is no checkpoint, or one of another problem.
        """
        if self._path is None or not self._path.exists():
            return None
        try:
            # Opened here: np.load would leave a broken file open.
            with self._path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                if str(file["digest"]) != self._digest:
                    raise UsageError(
                        f"{self._path}: a checkpoint of other sequences or options; remove it, or "
                        "name another file"
                    )
                pending = [Part(*map(int, row)) for row in file["pending"]]
                places = [(int(v), int(h)) for v, h in file["places"]]
                done = {place: file[f"ops{i}"] for i, place in enumerate(places)}
                n_arrays = int(file["n_arrays"])
                search = [file[f"search{i}"] for i in range(n_arrays)] if n_arrays else None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise UsageError(
                f"{self._path}: is no checkpoint; remove it, or name another file"
            ) from error
        return Work(pending, done, search)

    def save_if_due(self, work: Callable[[], Work]) -> None:
        """Save if the time since the last save is long enough."""
        if self._path is None or time.monotonic() - self._last < self._seconds:
            return
        self._save(self._path, work())
        self._last = time.monotonic()

    @contextmanager
    def kept_by_signals(self, work: Callable[[], Work | None]) -> Iterator[None]:
        """Save when KeyboardInterrupt or another BaseException ends the block; then raise it.

        An error saves nothing, as the work may be inconsistent. Nothing is saved either if `work`
        returns None; the previous file stays.
        """
        try:
            yield
        except Exception:
            raise
        except BaseException:
            state = None if self._path is None else work()
            if self._path is not None and state is not None:
                try:
                    self._save(self._path, state)
                    log.info("the state is saved in %s", self._path)
                except OutputError as error:
                    log.warning("the state of now is not saved: %s", error)
            raise

    def remove(self) -> None:
        """Remove the file: the work is complete."""
        if self._path is not None:
            remove_quietly(self._path)

    def _save(self, path: Path, work: Work) -> None:
        search = work.search or []
        arrays = {f"ops{i}": ops for i, ops in enumerate(work.done.values())}
        arrays |= {f"search{i}": array for i, array in enumerate(search)}
        temporary = temporary_name(path)
        try:
            with temporary.open("wb") as file:
                np.savez(
                    file,
                    digest=np.array(self._digest),
                    pending=np.array(work.pending, np.int64).reshape(-1, 5),
                    places=np.array(list(work.done), np.int64).reshape(-1, 2),
                    n_arrays=np.array(len(search)),
                    **arrays,  # type: ignore[arg-type]
                )
            sync_and_rename(temporary, path)
        except OSError as error:
            raise output_error(path, error) from error
        finally:
            remove_quietly(temporary)


# --- search of a middle ---

_ROW_CELLS = 1 << 12
"""Cells of the first workspace of a search; it grows."""

SLICE_CELLS = 50_000_000
"""Cells of a slice: some tenths of a second."""


class Search:
    """Search for the middle of one part, in slices, on the CPU."""

    def __init__(self, pair: Pair, part: Part) -> None:
        self.pair = part_of(pair, part.v, part.h, part.query_len, part.ref_len)
        self.state = new_state(part.bound)
        self.rows: Rows = new_rows(_ROW_CELLS, 2)
        self.back_rows: Rows = new_rows(_ROW_CELLS, 2)
        clear_rows(self.rows)
        clear_rows(self.back_rows)

    @property
    def edits(self) -> int:
        """Lower bound of the distance."""
        return max(0, int(self.state[S] + self.state[R]))

    def halves(self, part: Part) -> list[Part]:
        """Return the parts before and after the middle, with their distances."""
        h = int(self.state[MIDDLE_OFFSET])
        v = h - int(self.state[MIDDLE_K])
        return [
            Part(part.v, part.h, v, h, int(self.state[S])),
            Part(part.v + v, part.h + h, part.query_len - v, part.ref_len - h, int(self.state[R])),
        ]

    def saved(self) -> list[np.ndarray]:
        """Return the arrays that :meth:`restore` needs, here or on a device."""
        return [self.state.copy(), *self.rows, *self.back_rows]

    def restore(self, arrays: list[np.ndarray]) -> None:
        """Resume a saved search."""
        self.state = arrays[0]
        self.rows, self.back_rows = Rows(*arrays[1:5]), Rows(*arrays[5:9])

    def slice(self) -> int:
        """Advance the search by some rows; return the status."""
        # Row r of either end has up to 2 r + 1 cells, so the next n rows, alternating between both
        # ends, have about n * edits + n^2 / 2 cells.
        n_steps = math.isqrt(self.edits**2 + 2 * SLICE_CELLS) - self.edits
        return self.steps(max(1, n_steps))

    def steps(self, n_steps: int) -> int:
        """Compute `n_steps` rows, of both ends in turn; return the status."""
        status, self.rows, self.back_rows = meet_with_room(
            self.pair, self.state, self.rows, self.back_rows, n_steps
        )
        return int(status)

    def release(self) -> None:
        """Free the device memory of the search."""


# --- divide and conquer ---

_WHOLE_PART = 4096
"""Parts with this distance or less are aligned by one CPU call."""

Progress = Callable[[int, int], None]
"""Called with the number of edits whose position in the path is known, and of edits known to be
needed."""


class Report:
    """Accumulates progress; setting ``stopped`` ends the threads' searches."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._placed = 0
        self.stopped = threading.Event()

    def add(self, placed: int, edits: int) -> None:
        """Report `placed` more edits, of `edits` in all."""
        self._placed += placed
        if self._progress:
            self._progress(self._placed, edits)


@driver
def _whole_path(pair, bound):
    """Return the operations of a small part, in order."""
    rows = new_rows(_ROW_CELLS, 2)
    back_rows = new_rows(_ROW_CELLS, 2)
    leaf = new_rows(LEAF_CELLS, LEAF_ROWS)
    _, ops, n_ops, _, _ = global_path(
        pair, bound, leaf, rows, back_rows, np.empty(N_STATE, np.int64),
        np.empty(64, np.uint32), 0,
    )  # fmt: skip
    return ops[:n_ops][::-1].copy()


@driver
def align_one_long(letters, n_query, query_codes, ref_codes, as_bytes, want_path, row, bound):
    """Align two strings (``single.py``): their middle is searched, then the path of both halves."""
    coded, row[BAD] = code_one(letters, n_query, query_codes, ref_codes, as_bytes)
    ops = np.empty(64 if want_path else 0, np.uint32)
    row[STATUS] = OVER_LIMIT
    if row[BAD] >= 0:
        return ops
    pair = pair_at(coded, 0)
    state = np.empty(N_STATE, np.int64)
    rows, back_rows = new_rows(_ROW_CELLS, 2), new_rows(_ROW_CELLS, 2)
    status, rows, back_rows = find_middle(pair, bound, state, rows, back_rows)
    before, behind = state[S], state[R]
    if status != FINISHED or before + behind > bound:
        return ops
    row[STATUS] = OK
    row[SCORE] = before + behind
    if not want_path:
        return ops
    h = state[MIDDLE_OFFSET]
    v = h - state[MIDDLE_K]
    halves = (
        (part_of(pair, v, h, pair.query_len - v, pair.ref_len - h), behind),
        (part_of(pair, np.int64(0), np.int64(0), v, h), before),
    )
    leaf = new_rows(LEAF_CELLS, LEAF_ROWS)
    n_ops = np.int64(0)
    for half, most in halves:  # the last operation comes first
        _, ops, n_ops, rows, back_rows = global_path(
            half, most, leaf, rows, back_rows, state, ops, n_ops
        )
    return ops[:n_ops][::-1].copy()


MakeSearch = Callable[[Pair, Part], Search]
"""Makes the search for the middle of a part, on one device."""


class _Task(NamedTuple):
    """Task of a thread."""

    part: Part
    make_search: MakeSearch | None  # of the device that it uses


def find_path(
    pair: Pair, work: Work, saved: Checkpoint, n_threads: int, makers: list[MakeSearch],
    report: Report,
) -> None:  # fmt: skip
    """Process all pending parts, several at a time; fill ``work.done``.

    Each device divides one part after the other, and threads take the small ones.
    """
    running: dict[Future[np.ndarray | list[Part]], _Task] = {}
    waiting = list(work.pending)
    free = list(makers)
    base = sum(part.bound for part in work.pending)
    with (
        saved.kept_by_signals(lambda: _consistent(work)),
        thread_pool(n_threads + len(makers)) as pool,
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
                    # In this order and in place: a signal may come between two statements.
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
    """Return the work without a part that is both done and pending, as a signal may leave it."""
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
    """Return the number of mismatched, inserted and deleted symbols of operations (uint32)."""
    return int((ops[(ops & 15) != cigar.EQUAL] >> 4).sum(dtype=np.int64))


def joined_ops(done: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
    """Return the operations (uint32) of all parts in order, with adjacent equal ones merged.

    Parameters
    ----------
    done
        Operations of each part by its start (v, h).
    """
    flat = np.concatenate([done[place] for place in sorted(done)])
    if len(flat) == 0:
        return flat
    first = np.flatnonzero(np.concatenate([[True], (flat[1:] & 15) != (flat[:-1] & 15)]))
    lengths = np.add.reduceat((flat >> 4).astype(np.int64), first)
    return ((lengths << 4) | (flat[first] & 15)).astype(np.uint32)
