"""Room for chunks on a device, each with a stream: what is copied, launched and fetched.

Everything here is done by the one thread that queues work, some ten microseconds of Python for
each copy and launch, so that arguments and addresses are prepared once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mapper.device.memory import Workspace, copy_in, copy_in_at, copy_out
from mapper.device.seam import BoundKernel, cuda
from mapper.pairwise.flat_chunks import Chunk
from mapper.pairwise.flat_found import COLUMN_TYPES, FirstPass
from mapper.pairwise.flat_kernels import (
    BLOCK,
    GIVEN_TYPES,
    FlatColumns,
    FlatResults,
    GivenRows,
    count_blocks_kernel,
    finish_kernel,
    rows_kernel,
    sum_blocks_kernel,
)
from mapper.pairwise.flat_metrics import FlatMetric, PairLaunch, room_for
from mapper.pairwise.flat_packed import PackedSource, sides_at
from mapper.pairwise.flat_trace import host_time, mark

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
        self._ordinal, self._space = ordinal, space
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

    def wait(self) -> None:
        """Wait for all that is queued."""
        with cuda.gpus[self._ordinal]:
            self._space.synchronize()

    def queue(self, chunk: Chunk, staged: np.ndarray, n_words: int) -> None:
        """Queue the copy of a staged chunk, and what aligns it."""
        stream = self._space.stream
        with cuda.gpus[self._ordinal]:
            mark(stream, "start")
            copy_in(self._there, staged, n_words, stream)
            mark(stream, "copy in")
            self._queue_kernels(chunk.n_pairs, n_words)

    def queue_packed(self, chunk: Chunk, source: PackedSource) -> None:
        """Queue copies of packed pairs from where they lie, and what makes rows and aligns them."""
        n, stream = chunk.n_pairs, self._space.stream
        query_at, ref_at = sides_at(chunk)
        with cuda.gpus[self._ordinal]:
            if self._given is None or self._rows is None:
                columns = [
                    self._room(f"given {name}", self.most_pairs, dtype)
                    for name, dtype in zip(GivenRows._fields, GIVEN_TYPES, strict=True)
                ]
                self._given = GivenRows._make(columns)
                self._rows = BoundKernel(
                    rows_kernel, stream, self._given, n, *chunk[2:], query_at, ref_at, self._there
                )
            mark(stream, "start")
            packed = source.packed
            copy_in_at(
                self._there, query_at, packed.query_words[chunk.query_begin : chunk.query_behind],
                stream,
            )  # fmt: skip
            copy_in_at(
                self._there, ref_at, packed.ref_words[chunk.ref_begin : chunk.ref_behind], stream
            )
            for there, column in zip(
                self._given,
                (packed.query_start, packed.query_len, packed.ref_start, packed.ref_len,
                 packed.shift),
                strict=True,
            ):  # fmt: skip
                copy_in_at(there, 0, column[chunk.first : chunk.last], stream)
            mark(stream, "copy in")
            spans = dict(zip(range(2, 6), chunk[2:], strict=True))
            self._rows.launch((n + BLOCK - 1) // BLOCK, {1: n, **spans, 6: query_at, 7: ref_at})
            n_words = chunk.query_behind - chunk.query_begin + chunk.ref_behind - chunk.ref_begin
            self._queue_kernels(n, n_words)

    def _queue_kernels(self, n: int, n_words: int) -> None:
        stream, n_blocks = self._space.stream, (n + BLOCK - 1) // BLOCK
        for launch in self._launches(16 * n_words // n):  # 32 letters a word, two sequences
            launch.queue(n)
        self._count.launch(n_blocks, {1: n})
        self._sum.launch(3, {1: n_blocks})
        copy_out(self._host_sums, self._sums, 3, stream)
        mark(stream, "kernels")

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
        n, space, stream = chunk.n_pairs, self._space, self._space.stream
        with cuda.gpus[self._ordinal]:
            with host_time("waiting for the device"):
                space.synchronize()
            with host_time("finishing"):
                n_ops, n_left, n_wrong = (int(x) for x in self._host_sums)
                room = found.room(n_ops, chunk.last / n_pairs, wait_for_all)
                if n_ops > len(self._columns.cigar_ops):
                    ops = space.device("flat ops", n_ops + (n_ops >> 3), np.uint32)
                    self._columns = self._columns._replace(cigar_ops=ops)
                    self._finish = self._finishing()
                mark(stream, "waiting")
                self._finish.launch((n + BLOCK - 1) // BLOCK, {1: n, 6: found.n_ops})
                mark(stream, "kernels")
                columns = [*found.columns, *([] if found.offsets is None else [found.offsets])]
                for there, column in zip(self._columns, columns, strict=False):
                    copy_out(column[chunk.first : chunk.last], there, n, stream)
                if n_ops:
                    copy_out(room, self._columns.cigar_ops, n_ops, stream)
                mark(stream, "copy out")
        found.n_ops += n_ops
        found.n_left += n_left
        found.n_wrong += n_wrong


def slot_of(
    ordinal: int, space: Workspace, metric: FlatMetric, most_pairs: int, n_words: int,
    want_path: bool,
) -> Slot:  # fmt: skip
    """Return a slot of a work space, that of an earlier batch if it does."""
    slot = space.kept.get("flat slot")
    if slot is None or not slot.suits(metric, most_pairs, n_words, want_path):
        if slot is not None:
            most_pairs, n_words = max(most_pairs, slot.most_pairs), max(n_words, slot.n_words)
        with cuda.gpus[ordinal]:
            slot = Slot(ordinal, space, metric, most_pairs, n_words, want_path)
        space.kept["flat slot"] = slot
    return slot
