"""Many short pairs on CUDA devices: the first pass of a batch.

What limits it is the way to the device and back, so that the host touches every letter once:

- Threads pack the letters of a chunk of pairs into page-locked memory (``flat_batch.py``; what is
  packed already is copied there), several chunks ahead of the device.
- One thread, this one, queues for each chunk one copy, the kernels, and the copies back. It is
  Python, and so costs per chunk what thousands of pairs cost.
- The device writes the columns of results as the caller gets them, and they are copied into
  page-locked arrays that are the caller's to keep, and used again when the caller lets go.
  Where the operations of a chunk go follows from the number of those before, so chunks are
  finished in their order.

Pairs with other letters than A C G T, and those that do not fit the small work space of a
kernel, are left to what follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any

import numpy as np

from mapper.device.memory import Workspace, copy_in, copy_out, total_bytes
from mapper.device.seam import SIMULATED, BoundKernel, cuda
from mapper.errors import DeviceMemoryError
from mapper.pairwise.cuda_batch import workspace_of
from mapper.pairwise.flat_batch import LetterSource
from mapper.pairwise.flat_chunks import CHUNK_PAIRS, Chunk
from mapper.pairwise.flat_found import COLUMN_TYPES, FirstPass
from mapper.pairwise.flat_kernels import (
    BLOCK,
    FlatColumns,
    FlatResults,
    count_blocks_kernel,
    finish_kernel,
    sum_blocks_kernel,
)
from mapper.pairwise.flat_metrics import FlatMetric
from mapper.pairwise.flat_packed import PackedSource
from mapper.pairwise.flat_trace import host_time, mark

log = logging.getLogger(__name__)

AHEAD = 2
"""Chunks of a device that are being staged."""

QUEUED = 2
"""Chunks of a device that are copied and computed: while one is computed, others are copied."""

JOBS = 8
"""Parts in which a chunk is staged."""

CHUNKS_A_DEVICE = 10
"""Of a batch, if they are not smaller than is worth the Python that each takes, nor larger than
there is room for."""

FEWEST_PAIRS = 1 << 16

MOST_WORDS = 1 << 25
"""Of a staged chunk; a longer pair is left."""

_LEAST_CHUNK = 1 << 10

Source = LetterSource | PackedSource


class _Slot:
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

        def room(name: str, n: int, dtype: Any) -> Any:
            return space.device(f"flat {name}", n, dtype)

        self.staged = space.pinned("flat staged", n_words, np.uint64)
        self._there = room("staged", n_words, np.uint64)
        self._out = FlatResults(
            room("score", most_pairs, np.int32), room("status", most_pairs, np.int8),
            room("n_ops", most_pairs, np.int32),
            room("slots", most_pairs * self._slot + 1, np.uint32),
            room("totals", 2 * (n_blocks + 1), np.int64).reshape((2, n_blocks + 1)),
        )  # fmt: skip
        self._sums = room("sums", 2, np.int64)
        self._host_sums = space.pinned("flat sums", 2, np.int64)
        columns = [
            room(f"column {name}", most_pairs, dtype)
            for name, dtype in zip(FlatColumns._fields[:7], COLUMN_TYPES, strict=True)
        ]
        self._columns = FlatColumns._make([*columns, room("ops", 1, np.uint32)])
        self._align = metric.launches(space, self._there, most_pairs, want_path, self._out)
        self._count = BoundKernel(count_blocks_kernel, space.stream, most_pairs, self._out)
        self._sum = BoundKernel(
            sum_blocks_kernel, space.stream, self._out.totals, n_blocks, self._sums
        )
        self._finish = self._finishing()
        space.synchronize()

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

    def queue(self, chunk: Chunk, n_words: int) -> None:
        """Queue the copy of a staged chunk, and what aligns it."""
        n, stream = chunk.n_pairs, self._space.stream
        n_blocks = (n + BLOCK - 1) // BLOCK
        with cuda.gpus[self._ordinal]:
            mark(stream, "start")
            copy_in(self._there, self.staged, n_words, stream)
            mark(stream, "copy in")
            for launch in self._align:
                launch.queue(n)
            self._count.launch(n_blocks, {0: n})
            self._sum.launch(2, {1: n_blocks})
            copy_out(self._host_sums, self._sums, 2, stream)
            mark(stream, "kernels")

    def finish(
        self, chunk: Chunk, n_pairs: int, found: FirstPass, wait_for_all: Callable[[], None]
    ) -> None:
        """Wait for a queued chunk, and queue the copies of its results."""
        n, space, stream = chunk.n_pairs, self._space, self._space.stream
        with cuda.gpus[self._ordinal]:
            with host_time("waiting for the device"):
                space.synchronize()
            with host_time("finishing"):
                n_ops, n_left = (int(x) for x in self._host_sums)
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


def _slot_of(
    ordinal: int, space: Workspace, metric: FlatMetric, most_pairs: int, n_words: int,
    want_path: bool,
) -> _Slot:  # fmt: skip
    """Return a slot of a work space, that of an earlier batch if it does."""
    slot = space.kept.get("flat slot")
    if slot is None or not slot.suits(metric, most_pairs, n_words, want_path):
        if slot is not None:
            most_pairs, n_words = max(most_pairs, slot.most_pairs), max(n_words, slot.n_words)
        with cuda.gpus[ordinal]:
            slot = _Slot(ordinal, space, metric, most_pairs, n_words, want_path)
        space.kept["flat slot"] = slot
    return slot


def first_pass(
    ordinals: Sequence[int], metric: FlatMetric, source: Source, want_path: bool, threads: int
) -> FirstPass:
    """Align the pairs that fit; with less memory in smaller chunks."""
    most_pairs = CHUNK_PAIRS
    while True:
        with ExitStack() as stack:
            spaces = [
                (ordinal, stack.enter_context(workspace_of(ordinal, i)))
                for i in range(AHEAD + QUEUED)
                for ordinal in ordinals
            ]
            try:
                return _in_chunks(spaces, metric, source, want_path, threads, most_pairs)
            except DeviceMemoryError as error:
                for ordinal, space in spaces:
                    with cuda.gpus[ordinal]:
                        space.release()
                most_pairs //= 4
                log.debug("%s; going on with chunks of %d pairs", error, most_pairs)
                if most_pairs < min(_LEAST_CHUNK, CHUNK_PAIRS):
                    found = FirstPass(source.n_pairs, want_path)
                    found.close([Chunk(0, source.n_pairs, 0, 0, 0, 0)])
                    return found


def _in_chunks(
    spaces: Sequence[tuple[int, Workspace]], metric: FlatMetric, source: Source, want_path: bool,
    threads: int, most_pairs: int,
) -> FirstPass:  # fmt: skip
    """Stage, align and fetch all chunks, each in the next slot."""
    found = FirstPass(source.n_pairs, want_path)
    by_memory = (total_bytes() >> 6) // (4 * metric.slot)
    share = source.n_pairs * (AHEAD + QUEUED) // (CHUNKS_A_DEVICE * len(spaces)) + 1
    chunks = source.chunks(max(1, min(most_pairs, by_memory, max(share, FEWEST_PAIRS))))
    unfit = [chunk for chunk in chunks if source.n_words(chunk) > MOST_WORDS]
    chunks = [chunk for chunk in chunks if source.n_words(chunk) <= MOST_WORDS]
    most = max((chunk.n_pairs for chunk in chunks), default=0)
    most_words = max((source.n_words(chunk) for chunk in chunks), default=0)
    slots = [
        _slot_of(ordinal, space, metric, most, most_words, want_path)
        for ordinal, space in spaces[: len(chunks)]
    ]
    n_slots = len(slots)

    def wait_for_all() -> None:
        for slot in slots:
            slot.wait()

    ahead = min(n_slots - 1, len(spaces) * AHEAD // (AHEAD + QUEUED))
    staged: dict[int, tuple[list[Future[object]], Any]] = {}
    with ThreadPoolExecutor(1 if SIMULATED else threads) as pool:
        try:
            for step in range(len(chunks) + n_slots if chunks else 0):
                if step >= n_slots:
                    done = step - n_slots
                    slots[done % n_slots].finish(chunks[done], source.n_pairs, found, wait_for_all)
                if step < len(chunks):
                    job, noted = source.job(chunks[step], slots[step % n_slots].staged, JOBS)
                    staged[step] = [pool.submit(job, part) for part in range(JOBS)], noted
                if 0 <= step - ahead < len(chunks):
                    chunk, slot = chunks[step - ahead], slots[(step - ahead) % n_slots]
                    with host_time("waiting for staging"):
                        futures, noted = staged.pop(step - ahead)
                        _wait(futures)
                        settle = source.settling_job(chunk, slot.staged, noted, JOBS)
                        if settle is not None:
                            _wait([pool.submit(settle, part) for part in range(JOBS)])
                    with host_time("queueing"):
                        slot.queue(chunk, source.n_words(chunk))
        finally:
            for futures, _ in staged.values():
                wait(futures)
            wait_for_all()
    found.close(unfit)
    return found


def _wait(futures: Sequence[Future[object]]) -> None:
    """Wait for jobs; what one raises, this raises."""
    for future in futures:
        future.result()
