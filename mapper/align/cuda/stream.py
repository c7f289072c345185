"""Room for chunks on a device, each with a stream: what is copied, launched and fetched.

Everything here is done by the one thread that queues work, so that arguments and addresses are
prepared once, and what is queued is handed to the driver in one go (``device/calls.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mapper.align.cuda.chunks import Chunk
from mapper.align.cuda.flat_columns import (
    FlatColumns,
    count_blocks_kernel,
    finish_kernel,
    sum_blocks_kernel,
)
from mapper.align.cuda.flat_found import COLUMN_TYPES, FirstPass
from mapper.align.cuda.flat_packed import PackedSource, sides_at
from mapper.align.cuda.kernels import (
    BLOCK,
    GIVEN_TYPES,
    FlatResults,
    GivenRows,
    rows_kernel,
)
from mapper.align.cuda.launch_plan import FlatMetric, PairLaunch, room_for
from mapper.align.cuda.trace import host_time, mark
from mapper.cuda.api import cuda
from mapper.cuda.launch import BoundKernel, Calls
from mapper.cuda.memory import Workspace

LONG_OPS_A_WORD = 4
"""Operations that there is room for beside the slots, for 32 staged letters: an edit in four
letters of a pair. Pairs for whose path there is none left are left to the CPU."""


class Slot:
    """Room for a chunk on a device, and its stream."""

    def __init__(
        self, ordinal: int, space: Workspace, metric: FlatMetric, most_pairs: int, n_words: int,
        want_path: bool,
    ) -> None:  # fmt: skip
        self.most_pairs, self.n_words = most_pairs, n_words
        self.metric, self.want_path = metric, want_path
        self._ordinal, self._space, self._calls = ordinal, space, Calls(space.stream)
        self._is_current = False
        self._slot = metric.slot if want_path else 0
        n_blocks = (most_pairs + BLOCK - 1) // BLOCK
        self._there = self._room("staged", n_words, np.uint64)
        self._out = FlatResults(
            self._room("score", most_pairs, np.int32), self._room("status", most_pairs, np.int8),
            self._room("n_ops", most_pairs, np.int32),
            self._room("slots", most_pairs * self._slot + 1, np.uint32),
            self._room("long ops", LONG_OPS_A_WORD * n_words if want_path else 1, np.uint32),
            self._room("totals", 3 * (n_blocks + 1), np.int64).reshape((3, n_blocks + 1)),
        )  # fmt: skip
        self._sums = self._room("sums", 3, np.int64)
        self._host_sums = space.pinned("flat sums", 3, np.int64)
        columns = [
            self._room(f"column {name}", most_pairs, dtype)
            for name, dtype in zip(FlatColumns._fields[:7], COLUMN_TYPES, strict=True)
        ]
        self._columns = FlatColumns._make([*columns, self._room("ops", 1, np.uint32)])
        self._align: dict[int, list[PairLaunch]] = {}
        self._count = BoundKernel(
            count_blocks_kernel, space.stream, self._there, most_pairs, self._out
        )
        self._sum = BoundKernel(
            sum_blocks_kernel, space.stream, self._out.totals, n_blocks, self._sums
        )
        self._finish = self._finishing()
        self._given: GivenRows | None = None
        self._rows: BoundKernel | None = None
        space.synchronize()

    def _room(self, name: str, n: int, dtype: Any) -> Any:
        return self._space.device(f"flat {name}", n, dtype)

    def _finishing(self) -> BoundKernel:
        return BoundKernel(
            finish_kernel, self._space.stream, self._there, self.most_pairs, self._out, self._slot,
            int(self.metric.last_first), int(self.want_path), 0, self._columns,
        )  # fmt: skip

    def suits(self, metric: FlatMetric, most_pairs: int, n_words: int, want_path: bool) -> bool:
        """Say whether the slot does for such chunks."""
        return (
            most_pairs <= self.most_pairs
            and n_words <= self.n_words
            and want_path == self.want_path
            and metric == self.metric
        )

    def begin(self, is_current: bool) -> None:
        """Begin with a batch; say whether the thread's current context stays this device's."""
        self._is_current = is_current
        self._calls.forget()

    def _device(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._is_current else cuda.gpus[self._ordinal]

    def wait(self) -> None:
        """Wait for all that is queued."""
        with self._device():
            self._space.synchronize()

    def is_done(self) -> bool:
        """Say whether all is done that is queued."""
        with self._device():
            return self._calls.is_done()

    def queue(self, chunk: Chunk, staged: np.ndarray, n_words: int) -> None:
        """Queue the copy of a staged chunk, and what aligns it."""
        calls = self._calls
        with self._device():
            mark(calls, "start")
            calls.copy_in(self._there, 0, staged[:n_words])
            mark(calls, "copy in")
            self._note_kernels(chunk.n_pairs, n_words)
            calls.make()

    def queue_packed(self, chunk: Chunk, source: PackedSource) -> None:
        """Queue copies of packed pairs from where they lie, and what makes rows and aligns them."""
        n, calls, packed = chunk.n_pairs, self._calls, source.packed
        query_at, ref_at = sides_at(chunk)
        with self._device():
            if self._given is None or self._rows is None:
                columns = [
                    self._room(f"given {name}", self.most_pairs, dtype)
                    for name, dtype in zip(GivenRows._fields, GIVEN_TYPES, strict=True)
                ]
                self._given = GivenRows._make(columns)
                self._rows = BoundKernel(
                    rows_kernel, self._space.stream, self._given, n, *chunk[2:], query_at, ref_at,
                    self._there,
                )  # fmt: skip
            mark(calls, "start")
            query_words = packed.query_words[chunk.query_begin : chunk.query_behind]
            ref_words = packed.ref_words[chunk.ref_begin : chunk.ref_behind]
            calls.copy_in(self._there, query_at, query_words)
            calls.copy_in(self._there, ref_at, ref_words)
            given = (packed.query_start, packed.query_len, packed.ref_start, packed.ref_len)
            for there, column in zip(self._given, (*given, packed.shift), strict=True):
                calls.copy_in(there, 0, column[chunk.first : chunk.last])
            mark(calls, "copy in")
            spans = dict(zip(range(2, 6), chunk[2:], strict=True))
            numbers = {1: n, **spans, 6: query_at, 7: ref_at}
            calls.launch(self._rows, (n + BLOCK - 1) // BLOCK, numbers)
            n_words = chunk.query_behind - chunk.query_begin + chunk.ref_behind - chunk.ref_begin
            self._note_kernels(n, n_words)
            calls.make()

    def _note_kernels(self, n: int, n_words: int) -> None:
        calls, n_blocks = self._calls, (n + BLOCK - 1) // BLOCK
        for launch in self._launches(16 * n_words // n):  # 32 letters a word, two sequences
            launch.note(calls, n)
        calls.launch(self._count, n_blocks, {1: n})
        calls.launch(self._sum, 3, {1: n_blocks})
        calls.copy_out(self._host_sums, self._sums)
        mark(calls, "kernels")

    def _launches(self, mean_letters: int) -> list[PairLaunch]:
        """Return what aligns a chunk; prepared when its like is first met, for room is dear."""
        n_kinds = room_for(mean_letters)
        if n_kinds not in self._align:
            self._align[n_kinds] = self.metric.launches(
                self._space, self._there, self.most_pairs, self.want_path, self._out, n_kinds
            )
            self._space.synchronize()
        return self._align[n_kinds]

    def finish(
        self, chunk: Chunk, n_pairs: int, found: FirstPass, wait_for_all: Callable[[], None]
    ) -> None:
        """Wait for a queued chunk, and queue the copies of its results."""
        n, space, calls = chunk.n_pairs, self._space, self._calls
        with self._device():
            with host_time("waiting for the device"):
                space.synchronize()
            with host_time("finishing"):
                n_ops, n_left, n_wrong = (int(x) for x in self._host_sums)
                room = found.room(n_ops, chunk.last / n_pairs, wait_for_all)
                if n_ops > len(self._columns.cigar_ops):
                    ops = space.device("flat ops", n_ops + (n_ops >> 3), np.uint32)
                    self._columns = self._columns._replace(cigar_ops=ops)
                    self._finish = self._finishing()
                mark(calls, "waiting")
                calls.launch(self._finish, (n + BLOCK - 1) // BLOCK, {1: n, 6: found.n_ops})
                mark(calls, "kernels")
                columns = [*found.columns, *([] if found.offsets is None else [found.offsets])]
                for there, column in zip(self._columns, columns, strict=False):
                    calls.copy_out(column[chunk.first : chunk.last], there)
                calls.copy_out(room, self._columns.cigar_ops)
                mark(calls, "copy out")
                calls.make()
        found.n_ops += n_ops
        found.n_left += n_left
        found.n_wrong += n_wrong


def slot_of(
    ordinal: int, space: Workspace, metric: FlatMetric, most_pairs: int, n_words: int,
    want_path: bool, is_current: bool,
) -> Slot:  # fmt: skip
    """Return a slot of a work space, that of an earlier batch if it does."""
    slot = space.kept.get("flat slot")
    if slot is None or not slot.suits(metric, most_pairs, n_words, want_path):
        if slot is not None:
            most_pairs, n_words = max(most_pairs, slot.most_pairs), max(n_words, slot.n_words)
        with cuda.gpus[ordinal]:
            slot = Slot(ordinal, space, metric, most_pairs, n_words, want_path)
        space.kept["flat slot"] = slot
    slot.begin(is_current)
    return slot
