"""Batches of pairs on a CUDA device, for every metric: attempts with growing workspaces.

A thread aligns one pair after the other in a workspace of its own, whose size the *attempt* sets:
the first is for small distances and many threads. Pairs that do not fit are launched again in the
next attempt; those that fit none go to the CPU.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from mapper.align.edit.wavefront import Ends
from mapper.align.packing import PackedPairs
from mapper.align.result import HEURISTIC, OK, OVER_LIMIT, Columns
from mapper.cuda.api import cuda, device_context, kernel
from mapper.cuda.memory import Workspace

DONE, UNSOLVED, CUT = range(3)
"""Statuses of a pair on the device. UNSOLVED: for the next attempt, or the CPU. CUT: done, but a
band has cut cells off."""

BLOCK = 64


class Attempt(NamedTuple):
    """Bound and threads of a launch."""

    bound: int  # greatest distance or (divided) penalty
    n_threads: int


class DevicePairs(NamedTuple):
    """A batch on the device: the columns of PackedPairs, and the pairs to align."""

    query_words: Any
    query_start: Any
    query_len: Any
    ref_words: Any
    ref_start: Any
    ref_len: Any
    shift: Any
    todo: Any  # int64 (n_todo,)


class DeviceResults(NamedTuple):
    """Rows of results, one for each pair of ``todo``; operations in slots of ``2 * bound + 2``."""

    score: Any  # int64; -1 above the limit
    status: Any  # int8: DONE, UNSOLVED or CUT
    query_start: Any
    query_end: Any
    ref_start: Any
    ref_end: Any
    n_ops: Any  # int64
    ops: Any  # uint32, first operation first


@kernel(BLOCK)
def gather_ops_kernel(slots, slot, n_ops, offsets, flat):
    """Copy the operations of each pair from its slot to its offset in `flat`."""
    j = cuda.grid(1)
    if j < len(n_ops):
        for x in range(n_ops[j]):
            flat[offsets[j] + x] = slots[j * slot + x]


_SPACES: dict[tuple[int, int], tuple[threading.Lock, Workspace]] = {}
_SPACES_LOCK = threading.Lock()


@contextmanager
def workspace_of(ordinal: int, number: int = 0) -> Iterator[Workspace]:
    """Lend a workspace of a device to one thread; workspaces are kept from call to call."""
    key = ordinal, number
    with device_context(ordinal):
        with _SPACES_LOCK:
            if key not in _SPACES:
                _SPACES[key] = (threading.Lock(), Workspace())
            lock, space = _SPACES[key]
        with lock:
            yield space


class RetryWorker(ABC):
    """Aligns batches on one device, attempt after attempt; a subclass launches its kernel."""

    attempts: Sequence[Attempt]

    def __init__(self, ordinal: int, free: Ends) -> None:
        self._ordinal = ordinal
        self._free = free

    @abstractmethod
    def launch(
        self, space: Workspace, attempt: Attempt, pairs: DevicePairs, n_todo: int, want_path: bool,
        begin_width: int, out: DeviceResults,
    ) -> None:  # fmt: skip
        """Queue the kernel that aligns ``pairs.todo`` as far as the attempt allows.

        `begin_width`: the most diagonals, less one, on which an alignment can begin.
        """

    def align(
        self, packed: PackedPairs, want_path: bool, columns: Columns, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Align a batch as :meth:`mapper.align.dispatch.Worker.align`."""
        with workspace_of(self._ordinal) as space:
            return self._align(space, packed, want_path, columns, counts)

    def release(self) -> None:
        """Free the device's memory."""
        with workspace_of(self._ordinal) as space:
            space.release()

    def _align(
        self, space: Workspace, packed: PackedPairs, want_path: bool, columns: Columns,
        counts: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        todo = np.arange(len(packed.shift), dtype=np.int64)
        uploaded = [
            space.upload(name, column)
            for name, column in zip(PackedPairs._fields, packed, strict=True)
        ]
        begin_width = min(self._free.query_begin, int(packed.query_len.max(initial=0)))
        begin_width += min(self._free.ref_begin, int(packed.ref_len.max(initial=0)))
        all_done = [np.empty(0, np.int64)]
        all_ops = [np.empty(0, np.uint32)]
        for attempt in self.attempts:
            if len(todo) == 0:
                break
            pairs = DevicePairs._make([*uploaded, space.upload("todo", todo)])
            out = _results(space, len(todo), 2 * attempt.bound + 2 if want_path else 0)
            self.launch(space, attempt, pairs, len(todo), want_path, begin_width, out)
            done, ops = _collect(
                space, todo, 2 * attempt.bound + 2, want_path, out, columns, counts
            )
            all_done.append(todo[done])
            all_ops.append(ops)
            todo = todo[~done]
            space.synchronize()
        return todo, np.concatenate(all_done), np.concatenate(all_ops)


def public_status(score: np.ndarray, status: np.ndarray) -> np.ndarray:
    """Return the public statuses (int8) of pairs that are done."""
    return np.where(score < 0, OVER_LIMIT, np.where(status == CUT, HEURISTIC, OK)).astype(np.int8)


def _results(space: Workspace, n_todo: int, slot: int) -> DeviceResults:
    """Return arrays for the results of `n_todo` pairs."""
    results = [
        space.device(f"out {name}", n_todo, np.int8 if name == "status" else np.int64)
        for name in DeviceResults._fields[:-1]
    ]
    return DeviceResults._make([*results, space.device("out ops", n_todo * slot + 1, np.uint32)])


def _collect(
    space: Workspace, todo: np.ndarray, slot: int, want_path: bool, out: DeviceResults,
    columns: Columns, counts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Fetch results into their rows; return the mask of pairs done, and operations."""
    host = [
        space.download(f"out {name}", array)
        for name, array in zip(DeviceResults._fields[:-1], out[:-1], strict=True)
    ]
    space.synchronize()
    score, status, *spans, n_ops = (column.copy() for column in host)
    done = status != UNSOLVED
    columns.score[todo[done]] = score[done]
    columns.status[todo[done]] = public_status(score[done], status[done])
    found = done & (score >= 0)
    for column, values in zip(columns[2:], spans, strict=True):
        column[todo[found]] = values[found]
    counts[todo[done]] = n_ops[done]
    if not want_path:
        return done, np.empty(0, np.uint32)
    offsets = np.zeros(len(todo) + 1, np.int64)
    np.cumsum(n_ops, out=offsets[1:])
    flat = space.device("ops", max(int(offsets[-1]), 1), np.uint32)
    gather_ops_kernel.launch(
        len(todo), space.stream, out.ops, slot, out.n_ops, space.upload("offsets", offsets), flat
    )
    ops = space.download("ops", flat)
    space.synchronize()
    return done, ops[: offsets[-1]].copy()
