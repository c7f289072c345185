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
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any

import numpy as np

from mapper.device.memory import Workspace, page_locked, total_bytes
from mapper.device.seam import SIMULATED, cuda
from mapper.errors import DeviceMemoryError
from mapper.pairwise.cuda_batch import workspace_of
from mapper.pairwise.flat_batch import CHUNK_PAIRS, Chunk, LetterSource
from mapper.pairwise.flat_kernels import (
    BLOCK,
    NOT_DONE,
    FlatColumns,
    FlatResults,
    count_blocks_kernel,
    finish_kernel,
    sum_blocks_kernel,
)
from mapper.pairwise.flat_metrics import FlatMetric
from mapper.pairwise.flat_packed import PackedSource
from mapper.pairwise.flat_trace import host_time, mark
from mapper.pairwise.result import Columns

log = logging.getLogger(__name__)

AHEAD = 3
"""Chunks of a device that are being staged."""

QUEUED = 2
"""Chunks of a device that are copied and computed: while one is computed, others are copied."""

JOBS = 4
"""Parts in which a chunk is staged."""

MOST_WORDS = 1 << 26
"""Of a staged chunk; a longer pair is left."""

_FEWEST_PAIRS = 1 << 10
_COLUMN_TYPES = (np.int64, np.int8, *[np.int64] * 5)

Source = LetterSource | PackedSource


class FirstPass:
    """What the first pass has found: columns of all pairs, filled where they are done."""

    def __init__(self, n_pairs: int, want_path: bool) -> None:
        types = _COLUMN_TYPES[: 7 if want_path else 6]
        arrays = [page_locked(n_pairs + 1, np.dtype(dtype)) for dtype in types]
        self.columns = Columns(*(array[:n_pairs] for array in arrays[:6]))
        self.offsets = arrays[6] if want_path else None
        self._ops = np.empty(0, np.uint32)
        self.n_ops = 0
        self.n_left = 0

    def ops(self) -> np.ndarray:
        """Return the operations of all pairs."""
        return self._ops[: self.n_ops]

    def room(self, n_more: int, share: float, slots: Sequence[_Slot]) -> np.ndarray:
        """Return where the next operations go; `share`: of all pairs, that of these and before."""
        needed = self.n_ops + n_more
        if needed > len(self._ops):
            for slot in slots:
                slot.wait()  # what is on its way goes to the old array
            larger = page_locked(int(needed / share * 1.125) + 1024, np.dtype(np.uint32))
            larger[: self.n_ops] = self.ops()
            self._ops = larger
        return self._ops[self.n_ops : needed]

    def close(self, unfit: Sequence[Chunk]) -> None:
        """Fill what is missing: the rows of chunks that no device got, and the last offset."""
        for chunk in unfit:
            self.columns.status[chunk.first : chunk.last] = NOT_DONE
            self.n_left += chunk.n_pairs
        if self.offsets is not None:
            self.offsets[-1] = self.n_ops
            for chunk in reversed(unfit):
                self.offsets[chunk.first : chunk.last] = self.offsets[chunk.last]


class _Slot:
    """Room for a chunk on a device, and its stream."""

    def __init__(
        self, ordinal: int, space: Workspace, metric: FlatMetric, most_pairs: int, n_words: int,
        want_path: bool,
    ) -> None:  # fmt: skip
        self._ordinal, self._space, self._metric, self._want_path = (
            ordinal, space, metric, want_path
        )  # fmt: skip
        self._slot = metric.slot if want_path else 0
        n_blocks = (most_pairs + BLOCK - 1) // BLOCK
        with cuda.gpus[ordinal]:
            self.staged = space.pinned("staged", n_words, np.uint64)
            self._there = space.device("staged", n_words, np.uint64)
            self._out = FlatResults(
                space.device("score", most_pairs, np.int32),
                space.device("status", most_pairs, np.int8),
                space.device("n_ops", most_pairs, np.int32),
                space.device("slots", most_pairs * self._slot + 1, np.uint32),
                space.device("totals", 2 * (n_blocks + 1), np.int64).reshape((2, n_blocks + 1)),
            )
            self._sums = space.device("sums", 2, np.int64)
            self._host_sums = space.pinned("sums", 2, np.int64)
            columns = [
                space.device(f"column {name}", most_pairs, dtype)
                for name, dtype in zip(FlatColumns._fields[:7], _COLUMN_TYPES, strict=True)
            ]
            self._columns = FlatColumns._make([*columns, None])
            self._prepared = metric.prepare(space, most_pairs, want_path)
            space.synchronize()

    def wait(self) -> None:
        """Wait for all that is queued."""
        with cuda.gpus[self._ordinal]:
            self._space.synchronize()

    def queue(self, chunk: Chunk, n_words: int) -> None:
        """Queue the copy of a staged chunk, and what aligns it."""
        n, space = chunk.n_pairs, self._space
        n_blocks = (n + BLOCK - 1) // BLOCK
        with cuda.gpus[self._ordinal]:
            mark(space.stream, "start")
            self._there[:n_words].copy_to_device(self.staged[:n_words], stream=space.stream)
            mark(space.stream, "copy in")
            self._metric.launch(
                space.stream, self._prepared, self._there, n, self._want_path, self._out
            )
            count_blocks_kernel.launch(n, space.stream, n, self._out)
            sum_blocks_kernel.launch_blocks(2, space.stream, self._out.totals, n_blocks, self._sums)
            self._sums.copy_to_host(self._host_sums, stream=space.stream)
            mark(space.stream, "kernels")

    def finish(self, chunk: Chunk, n_pairs: int, found: FirstPass, slots: Sequence[_Slot]) -> None:
        """Wait for a queued chunk, and queue the copies of its results."""
        n, space, stream = chunk.n_pairs, self._space, self._space.stream
        with cuda.gpus[self._ordinal]:
            with host_time("waiting for the device"):
                space.synchronize()
            with host_time("finishing"):
                n_ops, n_left = (int(x) for x in self._host_sums)
                room = found.room(n_ops, chunk.last / n_pairs, slots)
                flat = space.device("flat", n_ops + 1, np.uint32)
                mark(stream, "waiting")
                finish_kernel.launch(
                    n, stream, self._there, n, self._out, self._slot, int(self._want_path),
                    found.n_ops, self._columns._replace(cigar_ops=flat),
                )  # fmt: skip
                mark(stream, "kernels")
                rows = slice(chunk.first, chunk.last)
                for there, column in zip(self._columns, found.columns, strict=False):
                    there[:n].copy_to_host(column[rows], stream=stream)
                if found.offsets is not None:
                    self._columns.cigar_offsets[:n].copy_to_host(found.offsets[rows], stream=stream)
                    if n_ops:
                        flat[:n_ops].copy_to_host(room, stream=stream)
                mark(stream, "copy out")
        found.n_ops += n_ops
        found.n_left += n_left


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
                if most_pairs < min(_FEWEST_PAIRS, CHUNK_PAIRS):
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
    chunks = source.chunks(max(1, min(most_pairs, by_memory)))
    unfit = [chunk for chunk in chunks if source.n_words(chunk) > MOST_WORDS]
    chunks = [chunk for chunk in chunks if source.n_words(chunk) <= MOST_WORDS]
    most = max((chunk.n_pairs for chunk in chunks), default=0)
    most_words = max((source.n_words(chunk) for chunk in chunks), default=0)
    slots = [
        _Slot(ordinal, space, metric, most, most_words, want_path)
        for ordinal, space in spaces[: len(chunks)]
    ]
    n_slots = len(slots)
    ahead = min(n_slots - 1, len(spaces) * AHEAD // (AHEAD + QUEUED))
    staged: dict[int, tuple[list[Future[object]], Any]] = {}
    with ThreadPoolExecutor(1 if SIMULATED else threads) as pool:
        try:
            for step in range(len(chunks) + n_slots if chunks else 0):
                if step >= n_slots:
                    done = step - n_slots
                    slots[done % n_slots].finish(chunks[done], source.n_pairs, found, slots)
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
            for slot in slots:
                slot.wait()
    found.close(unfit)
    return found


def _wait(futures: Sequence[Future[object]]) -> None:
    """Wait for jobs; what one raises, this raises."""
    for future in futures:
        future.result()
