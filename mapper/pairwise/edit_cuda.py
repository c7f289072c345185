"""CUDA kernels and driver of edit distance: one thread a pair, the cores of the CPU.

Every thread has work space of its own, so much as the *rung* allows: the first is for small
distances and many threads. Pairs that do not fit are launched again on the next, those that
fit none are left to the CPU. Where the CPU would find a path by divide and conquer, the
device leaves it the pair, so that both give the same path.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from mapper.device.memory import Workspace
from mapper.device.seam import cuda, kernel
from mapper.pairwise.compare import Pair
from mapper.pairwise.edit_cpu import LEAF_CELLS, LEAF_ROWS
from mapper.pairwise.packing import PackedPairs
from mapper.pairwise.result import Columns
from mapper.pairwise.wavefront_edit import (
    EXCEEDED,
    FINISHED,
    Ends,
    Rows,
    cell,
    edit_search,
    trace_edit,
)

LEFT = 1
"""Status of a pair that is not done: for the next rung, or the CPU."""

BLOCK = 64


class Rung(NamedTuple):
    """Work space of one thread."""

    bound: int  # greatest distance that is tried
    n_threads: int

    def n_cells(self, want_path: bool, free_width: int) -> int:
        """Cells that rows up to the bound take, or that two rows take."""
        widest = 2 * self.bound + 1 + free_width + 4
        if not want_path:
            return 2 * widest
        return min((self.bound + 1) * (self.bound + 5 + free_width), LEAF_CELLS)


RUNGS = (Rung(20, 1 << 16), Rung(64, 1 << 14), Rung(250, 1 << 12))
"""At most about 1 GB of work space each; the last holds what a small work space of the CPU does."""


class DevicePairs(NamedTuple):
    """A batch on the device: the columns of PackedPairs, and which pairs are to be done."""

    query_words: Any
    query_start: Any
    query_len: Any
    ref_words: Any
    ref_start: Any
    ref_len: Any
    shift: Any
    todo: Any  # int64 (n_todo,)


class DeviceResults(NamedTuple):
    """Rows of results, one a pair to be done; operations in slots of ``2 * bound + 2``."""

    distance: Any  # int64; -1 above the limit
    status: Any  # int8: 0 done, LEFT
    query_start: Any
    query_end: Any
    ref_start: Any
    ref_end: Any
    n_ops: Any  # int64
    ops: Any  # uint32, last operation first


@kernel(BLOCK)
def edit_kernel(pairs, free, max_distance, bound, want_path, rows, n_cells, n_rows, out):
    """Align pairs by threads that stride over them; as ``edit_cpu.align_edit``, one rung."""
    thread = cuda.grid(1)
    n_threads = cuda.gridsize(1)
    own = Rows(
        rows.cells[thread * n_cells : (thread + 1) * n_cells],
        rows.at[thread * n_rows : (thread + 1) * n_rows],
        rows.lo[thread * n_rows : (thread + 1) * n_rows],
        rows.hi[thread * n_rows : (thread + 1) * n_rows],
    )
    slot = 2 * bound + 2
    for j in range(thread, len(pairs.todo), n_threads):
        i = pairs.todo[j]
        n, m = pairs.query_len[i], pairs.ref_len[i]
        pair = Pair(
            pairs.query_words, pairs.ref_words, pairs.query_start[i] << 6, pairs.ref_start[i] << 6,
            n, m, np.int64(pairs.shift[i]),
        )  # fmt: skip
        ends = Ends(
            min(free.query_begin, n), min(free.query_end, n),
            min(free.ref_begin, m), min(free.ref_end, m),
        )  # fmt: skip
        most = min(max_distance, max(n, m))
        status, s, k = edit_search(pair, ends, min(most, bound), own, want_path, 1)
        out.status[j] = 0
        out.n_ops[j] = 0
        out.distance[j] = -1
        if status != FINISHED:
            # Above the limit if the rung did not lower it.
            out.status[j] = 0 if status == EXCEEDED and most <= bound else LEFT
            continue
        first_width = ends.query_begin + ends.ref_begin + 1
        leaf_holds = s + 2 < LEAF_ROWS and (s + 1) * (s + 4 + first_width) <= LEAF_CELLS
        if want_path and not leaf_holds:
            out.status[j] = LEFT
            continue
        h = cell(own, s if want_path else s & 1, k)
        out.distance[j] = s
        out.query_end[j] = h - k
        out.ref_end[j] = h
        if want_path:
            n_ops, start_k = trace_edit(own, s, k, h, out.ops[j * slot : (j + 1) * slot], 0)
            out.n_ops[j] = n_ops
            out.query_start[j] = max(0, -start_k)
            out.ref_start[j] = max(0, start_k)
        else:
            known = 0 if ends.query_begin + ends.ref_begin == 0 else -1
            out.query_start[j] = known
            out.ref_start[j] = known


@kernel(BLOCK)
def gather_ops_kernel(slots, slot, n_ops, offsets, flat):
    """Copy the operations of each pair, first one first, to where its offset says."""
    j = cuda.grid(1)
    if j < len(n_ops):
        for x in range(n_ops[j]):
            flat[offsets[j] + x] = slots[j * slot + n_ops[j] - 1 - x]


_SPACES: dict[int, tuple[threading.Lock, Workspace]] = {}
_SPACES_LOCK = threading.Lock()


@contextmanager
def workspace_of(ordinal: int) -> Iterator[Workspace]:
    """Lend the work space of a device, which is kept from call to call, to one thread."""
    with cuda.gpus[ordinal]:
        with _SPACES_LOCK:
            if ordinal not in _SPACES:
                _SPACES[ordinal] = (threading.Lock(), Workspace())
            lock, space = _SPACES[ordinal]
        with lock:
            yield space


class EditWorker:
    """Aligns batches on one device; to be used by one thread at a time."""

    def __init__(self, ordinal: int, free: Ends, max_distance: int) -> None:
        self._ordinal = ordinal
        self._free = free
        self._max_distance = max_distance

    def align(
        self, packed: PackedPairs, want_path: bool, columns: Columns, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As :meth:`mapper.pairwise.on_device.Worker.align`."""
        with workspace_of(self._ordinal) as space:
            return self._align(
                space, packed, self._free, self._max_distance, want_path, columns, counts
            )

    def release(self) -> None:
        """Free the device's memory."""
        with workspace_of(self._ordinal) as space:
            space.release()

    def _align(
        self, space: Workspace, packed: PackedPairs, free: Ends, max_distance: int,
        want_path: bool, columns: Columns, counts: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        todo = np.arange(len(packed.shift), dtype=np.int64)
        uploaded = [
            space.upload(name, column)
            for name, column in zip(PackedPairs._fields, packed, strict=True)
        ]
        begin_width = min(free.query_begin, int(packed.query_len.max(initial=0)))
        begin_width += min(free.ref_begin, int(packed.ref_len.max(initial=0)))
        all_done: list[np.ndarray] = []
        all_ops: list[np.ndarray] = []
        for rung in RUNGS:
            if len(todo) == 0:
                break
            pairs = DevicePairs._make([*uploaded, space.upload("todo", todo)])
            status, done_ops = self._launch(
                space, rung, pairs, len(todo), free, max_distance, want_path, begin_width, todo,
                columns, counts,
            )  # fmt: skip
            all_done.append(todo[status != LEFT])
            all_ops.append(done_ops)
            todo = todo[status == LEFT]
        empty = np.empty(0, np.int64)
        ops = np.concatenate([np.empty(0, np.uint32), *all_ops])
        return todo, np.concatenate([empty, *all_done]), ops

    def _launch(
        self, space: Workspace, rung: Rung, pairs: DevicePairs, n_todo: int, free: Ends,
        max_distance: int, want_path: bool, begin_width: int, todo: np.ndarray,
        columns: Columns, counts: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Run one rung; return status of its pairs, and the operations of those done."""
        n_cells = rung.n_cells(want_path, begin_width)
        n_rows = rung.bound + 3 if want_path else 2
        slot = 2 * rung.bound + 2
        n_threads = min(rung.n_threads, (n_todo + BLOCK - 1) // BLOCK * BLOCK)
        rows = Rows(
            space.device("cells", n_threads * n_cells, np.int32),
            *(space.device(name, n_threads * n_rows, np.int64) for name in ("at", "lo", "hi")),
        )
        names = DeviceResults._fields
        results = [
            space.device(f"out {name}", n_todo, np.int8 if name == "status" else np.int64)
            for name in names[:-1]
        ]
        slots = space.device("out ops", n_todo * slot if want_path else 1, np.uint32)
        out = DeviceResults._make([*results, slots])
        edit_kernel.launch(
            n_threads, space.stream, pairs, free, max_distance, rung.bound, int(want_path), rows,
            n_cells, n_rows, out,
        )  # fmt: skip
        host = [
            space.download(f"out {name}", array)
            for name, array in zip(names[:-1], out[:-1], strict=True)
        ]
        space.synchronize()
        distance, status, *spans, n_ops = (column.copy() for column in host)
        done = status != LEFT
        rows_done = todo[done]
        columns.score[rows_done] = distance[done]
        columns.status[rows_done] = (distance[done] < 0).astype(np.int8)  # OK or OVER_LIMIT
        found = done & (distance >= 0)
        for column, values in zip(columns[2:], spans, strict=True):
            column[todo[found]] = values[found]
        counts[rows_done] = n_ops[done]
        if not want_path:
            return status, np.empty(0, np.uint32)
        offsets = np.zeros(n_todo + 1, np.int64)
        np.cumsum(n_ops, out=offsets[1:])
        flat = space.device("flat ops", max(int(offsets[-1]), 1), np.uint32)
        gather_ops_kernel.launch(
            n_todo, space.stream, out.ops, slot, out.n_ops, space.upload("offsets", offsets), flat
        )
        ops = space.download("flat ops", flat)
        space.synchronize()
        return status, ops[: offsets[-1]].copy()
