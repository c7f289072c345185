"""Streamed alignment of many pairs on CUDA devices, chunk by chunk, with a fallback.

The transfer to the device and back limits the rate, so the host touches every letter once:

- Threads pack the letters of a chunk of pairs into page-locked buffers (``sources.py``,
  ``staging.py``), several chunks ahead of the device; packed pairs are copied there. Packed pairs
  in page-locked memory are not staged: the device copies them directly, and a kernel checks their
  columns.
- One thread, the caller's, queues the copies and kernels of each chunk on one of a few streams
  (`ChunkStream`), and stages like the other threads while it has nothing to queue or to finish.
  Launch arguments and addresses are prepared once and queued in one driver call
  (``mapper/cuda/launch.py``).
- The device writes columns of results in their final form (`StreamedResults`), in page-locked
  arrays that belong to the caller and are reused once the caller drops them. Where the operations
  of a chunk go depends on the number of those before, so chunks are finished in order.

Pairs with other letters than A, C, G, T, and those that no kernel of the launch plan solves, go to
the fallback (:func:`align_streamed`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import numpy as np

from mapper.align.cuda.chunks import CHUNK_PAIRS, Chunk
from mapper.align.cuda.kernels import (
    BLOCK,
    NOT_DONE,
    PACKED_TYPES,
    ChunkResults,
    OutputColumns,
    PackedColumns,
    count_blocks_kernel,
    finish_kernel,
    packed_columns_kernel,
    sum_blocks_kernel,
)
from mapper.align.cuda.launch_plan import LaunchPlan, PairLaunch, block_kernels_for
from mapper.align.cuda.retry import workspace_of
from mapper.align.cuda.sources import PackedSource, sides_at
from mapper.align.cuda.staging import Source, Staging, buffer_words
from mapper.align.cuda.trace import host_time, mark
from mapper.align.result import Columns, PairAlignments
from mapper.cuda.api import device_context
from mapper.cuda.launch import BoundKernel, Calls, is_page_locked
from mapper.cuda.memory import Workspace, page_locked, total_bytes
from mapper.errors import DeviceError, DeviceMemoryError
from mapper.jit.accelerate import driver
from mapper.parallel.map import map_in_threads

log = logging.getLogger(__name__)

COLUMN_TYPES = (np.int64, np.int8, *[np.int64] * 5)
"""Types of the result columns, and of the offsets of operations."""


# --- results on the host ---


class StreamedResults:
    """Result columns of all pairs, filled where the streamed pass solved them."""

    def __init__(self, n_pairs: int, want_path: bool) -> None:
        types = COLUMN_TYPES[: 7 if want_path else 6]
        arrays = [page_locked(n_pairs + 1, np.dtype(dtype)) for dtype in types]
        self.columns = Columns(*(array[:n_pairs] for array in arrays[:6]))
        self.offsets = arrays[6] if want_path else None
        self._ops = np.empty(0, np.uint32)
        self.n_ops = 0
        self.n_unsolved = 0
        self.n_misplaced = 0
        """Packed pairs whose words are not where they should be; they count as unsolved, too."""

    def ops(self) -> np.ndarray:
        """Return the operations of all pairs."""
        return self._ops[: self.n_ops]

    def room(self, n_more: int, share: float, wait: Callable[[], None]) -> np.ndarray:
        """Return the array for the next operations.

        Parameters
        ----------
        n_more
            Number of operations.
        share
            Fraction of all pairs up to and including these, from which the total is estimated.
        wait
            Waits for all queued copies.
        """
        needed = self.n_ops + n_more
        if needed > len(self._ops):
            wait()  # queued copies go to the old array
            larger = page_locked(int(needed / share * 1.125) + 1024, np.dtype(np.uint32))
            larger[: self.n_ops] = self.ops()
            self._ops = larger
        return self._ops[self.n_ops : needed]

    def close(self, unfit: Sequence[Chunk]) -> None:
        """Fill the rows of chunks that no device got, and the last offset."""
        for chunk in unfit:
            self.columns.status[chunk.first : chunk.last] = NOT_DONE
            self.n_unsolved += chunk.n_pairs
        if self.offsets is not None:
            self.offsets[-1] = self.n_ops
            for chunk in reversed(unfit):
                self.offsets[chunk.first : chunk.last] = self.offsets[chunk.last]


# --- one stream ---

LONG_OPS_A_WORD = 4
"""Operations outside the slots that there is room for, per 32 staged letters: an edit in four
letters of a pair. Pairs whose path finds no room go to the fallback."""


class ChunkStream:
    """A CUDA stream with its device buffers for one chunk and its prepared launches."""

    def __init__(
        self, ordinal: int, space: Workspace, plan: LaunchPlan, most_pairs: int, n_words: int,
        want_path: bool,
    ) -> None:  # fmt: skip
        self.most_pairs, self.n_words = most_pairs, n_words
        self.plan, self.want_path = plan, want_path
        self._ordinal, self._space, self._calls = ordinal, space, Calls(space.stream)
        self._is_current = False
        self._slot = plan.slot if want_path else 0
        n_blocks = (most_pairs + BLOCK - 1) // BLOCK
        self._staged = self._room("staged", n_words, np.uint64)
        self._out = ChunkResults(
            self._room("score", most_pairs, np.int32), self._room("status", most_pairs, np.int8),
            self._room("n_ops", most_pairs, np.int32),
            self._room("slots", most_pairs * self._slot + 1, np.uint32),
            self._room("long ops", LONG_OPS_A_WORD * n_words if want_path else 1, np.uint32),
            self._room("totals", 3 * (n_blocks + 1), np.int64).reshape((3, n_blocks + 1)),
        )  # fmt: skip
        self._sums = self._room("sums", 3, np.int64)
        self._host_sums = space.pinned("chunk sums", 3, np.int64)
        columns = [
            self._room(f"column {name}", most_pairs, dtype)
            for name, dtype in zip(OutputColumns._fields[:7], COLUMN_TYPES, strict=True)
        ]
        self._columns = OutputColumns._make([*columns, self._space.device("ops", 1, np.uint32)])
        self._align: dict[int, list[PairLaunch]] = {}
        self._count = BoundKernel(
            count_blocks_kernel, space.stream, self._staged, most_pairs, self._out
        )
        self._sum = BoundKernel(
            sum_blocks_kernel, space.stream, self._out.totals, n_blocks, self._sums
        )
        self._finish = self._finishing()
        self._packed: PackedColumns | None = None
        self._rows: BoundKernel | None = None
        space.synchronize()

    def _room(self, name: str, n: int, dtype: Any) -> Any:
        return self._space.device(f"chunk {name}", n, dtype)

    def _finishing(self) -> BoundKernel:
        return BoundKernel(
            finish_kernel, self._space.stream, self._staged, self.most_pairs, self._out, self._slot,
            int(self.plan.last_first), int(self.want_path), 0, self._columns,
        )  # fmt: skip

    def suits(self, plan: LaunchPlan, most_pairs: int, n_words: int, want_path: bool) -> bool:
        """Return True if the buffers suffice for these chunks."""
        return (
            most_pairs <= self.most_pairs
            and n_words <= self.n_words
            and want_path == self.want_path
            and plan == self.plan
        )

    def begin(self, is_current: bool) -> None:
        """Start a batch; `is_current`: the thread's current context stays that of this device."""
        self._is_current = is_current
        self._calls.forget()

    def _device(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._is_current else device_context(self._ordinal)

    def wait(self) -> None:
        """Wait for everything queued."""
        with self._device():
            self._space.synchronize()

    def is_done(self) -> bool:
        """Return True if everything queued is done."""
        with self._device():
            return self._calls.is_done()

    def queue(self, chunk: Chunk, staged: np.ndarray, n_words: int) -> None:
        """Queue the copy of a staged chunk, and its kernels."""
        calls = self._calls
        with self._device():
            mark(calls, "start")
            calls.copy_in(self._staged, 0, staged[:n_words])
            mark(calls, "copy in")
            self._queue_kernels(chunk.n_pairs, n_words)
            calls.make()

    def queue_packed(self, chunk: Chunk, source: PackedSource) -> None:
        """Queue the copies of a chunk of page-locked packed pairs, and its kernels."""
        n, calls, packed = chunk.n_pairs, self._calls, source.packed
        query_at, ref_at = sides_at(chunk)
        with self._device():
            if self._packed is None or self._rows is None:
                columns = [
                    self._room(f"packed {name}", self.most_pairs, dtype)
                    for name, dtype in zip(PackedColumns._fields, PACKED_TYPES, strict=True)
                ]
                self._packed = PackedColumns._make(columns)
                self._rows = BoundKernel(
                    packed_columns_kernel, self._space.stream, self._packed, n, *chunk[2:],
                    query_at, ref_at, self._staged,
                )  # fmt: skip
            mark(calls, "start")
            query_words = packed.query_words[chunk.query_begin : chunk.query_end]
            ref_words = packed.ref_words[chunk.ref_begin : chunk.ref_end]
            calls.copy_in(self._staged, query_at, query_words)
            calls.copy_in(self._staged, ref_at, ref_words)
            for target, name in zip(self._packed, PackedColumns._fields, strict=True):
                calls.copy_in(target, 0, getattr(packed, name)[chunk.first : chunk.last])
            mark(calls, "copy in")
            spans = dict(zip(range(2, 6), chunk[2:], strict=True))
            numbers = {1: n, **spans, 6: query_at, 7: ref_at}
            calls.launch(self._rows, (n + BLOCK - 1) // BLOCK, numbers)
            n_words = chunk.query_end - chunk.query_begin + chunk.ref_end - chunk.ref_begin
            self._queue_kernels(n, n_words)
            calls.make()

    def _queue_kernels(self, n: int, n_words: int) -> None:
        calls, n_blocks = self._calls, (n + BLOCK - 1) // BLOCK
        for launch in self._launches(16 * n_words // n):  # 32 letters a word, two sequences
            launch.queue(calls, n)
        calls.launch(self._count, n_blocks, {1: n})
        calls.launch(self._sum, 3, {1: n_blocks})
        calls.copy_out(self._host_sums, self._sums)
        mark(calls, "kernels")

    def _launches(self, mean_letters: int) -> list[PairLaunch]:
        """Return the launches that align a chunk; prepared on first use, to save device memory."""
        n_kernels = block_kernels_for(mean_letters)
        if n_kernels not in self._align:
            self._align[n_kernels] = self.plan.launches(
                self._space, self._staged, self.most_pairs, self.want_path, self._out, n_kernels
            )
            self._space.synchronize()
        return self._align[n_kernels]

    def finish(
        self, chunk: Chunk, n_pairs: int, results: StreamedResults, wait_for_all: Callable[[], None]
    ) -> None:
        """Wait for a queued chunk, and queue the copies of its results."""
        n, space, calls = chunk.n_pairs, self._space, self._calls
        with self._device():
            with host_time("waiting for the device"):
                space.synchronize()
            with host_time("finishing"):
                n_ops, n_unsolved, n_misplaced = (int(x) for x in self._host_sums)
                room = results.room(n_ops, chunk.last / n_pairs, wait_for_all)
                if n_ops > len(self._columns.cigar_ops):
                    ops = space.device("ops", n_ops + (n_ops >> 3), np.uint32)
                    self._columns = self._columns._replace(cigar_ops=ops)
                    self._finish = self._finishing()
                mark(calls, "waiting")
                calls.launch(self._finish, (n + BLOCK - 1) // BLOCK, {1: n, 6: results.n_ops})
                mark(calls, "kernels")
                columns = [
                    *results.columns,
                    *([] if results.offsets is None else [results.offsets]),
                ]
                for source, column in zip(self._columns, columns, strict=False):
                    calls.copy_out(column[chunk.first : chunk.last], source)
                calls.copy_out(room, self._columns.cigar_ops)
                mark(calls, "copy out")
                calls.make()
        results.n_ops += n_ops
        results.n_unsolved += n_unsolved
        results.n_misplaced += n_misplaced


def chunk_stream(
    ordinal: int, space: Workspace, plan: LaunchPlan, most_pairs: int, n_words: int,
    want_path: bool, is_current: bool,
) -> ChunkStream:  # fmt: skip
    """Return the stream of a workspace, that of an earlier batch if it suffices."""
    stream = space.kept.get("chunk stream")
    if stream is None or not stream.suits(plan, most_pairs, n_words, want_path):
        if stream is not None:
            most_pairs, n_words = max(most_pairs, stream.most_pairs), max(n_words, stream.n_words)
        with device_context(ordinal):
            stream = ChunkStream(ordinal, space, plan, most_pairs, n_words, want_path)
        space.kept["chunk stream"] = stream
    stream.begin(is_current)
    return stream


# --- the streamed pass ---

STREAMS = 4
"""Streams of a device: chunks that are being staged, copied, aligned or copied back."""

CHUNKS_A_DEVICE = 16
"""Full-size chunks of a batch for each device, within the limits of FEWEST_PAIRS and of memory."""

FEWEST_PAIRS = 1 << 14
"""Fewest pairs of a full-size chunk: smaller ones are not worth their overhead."""

MOST_WORDS = 1 << 25
"""Most words of a staged chunk; longer pairs go to the fallback."""

_LEAST_CHUNK = 1 << 10


def streamed_pass(
    ordinals: Sequence[int], plan: LaunchPlan, source: Source, want_path: bool, threads: int
) -> StreamedResults:
    """Align the pairs that the launch plan solves; if memory runs out, in smaller chunks."""
    most_pairs = CHUNK_PAIRS
    while True:
        with ExitStack() as stack:
            spaces = [
                (ordinal, stack.enter_context(workspace_of(ordinal, i)))
                for i in range(STREAMS)
                for ordinal in ordinals
            ]
            try:
                return _in_chunks(spaces, plan, source, want_path, threads, most_pairs)
            except DeviceMemoryError as error:
                for ordinal, space in spaces:
                    with device_context(ordinal):
                        space.release()
                most_pairs //= 4
                log.debug("%s; going on with chunks of %d pairs", error, most_pairs)
                if most_pairs < min(_LEAST_CHUNK, CHUNK_PAIRS):
                    source.check(threads)  # no pair has been checked
                    results = StreamedResults(source.n_pairs, want_path)
                    results.close([Chunk(0, source.n_pairs, 0, 0, 0, 0)])
                    return results


def _in_chunks(
    spaces: Sequence[tuple[int, Workspace]], plan: LaunchPlan, source: Source, want_path: bool,
    threads: int, most_pairs: int,
) -> StreamedResults:  # fmt: skip
    """Stage, align and fetch all chunks, each on the next stream."""
    with host_time("preparing"):
        direct = isinstance(source, PackedSource) and is_page_locked(source.packed)
        by_memory = (total_bytes() >> 6) // (4 * plan.slot)
        share = source.n_pairs * STREAMS // (CHUNKS_A_DEVICE * len(spaces)) + 1
        chunks = source.chunks(max(1, min(most_pairs, by_memory, max(share, FEWEST_PAIRS))))
        unfit = [chunk for chunk in chunks if source.n_words(chunk) > MOST_WORDS]
        if unfit:
            source.check(threads)  # staging does not check these
        chunks = [chunk for chunk in chunks if source.n_words(chunk) <= MOST_WORDS]
        is_current = len({ordinal for ordinal, _ in spaces}) == 1
        spaces = spaces[: len(chunks)]

    def prepared() -> tuple[StreamedResults, list[ChunkStream]]:
        most = max((chunk.n_pairs for chunk in chunks), default=0)
        n_words = buffer_words(source, chunks)
        streams = [
            chunk_stream(*space, plan, most, n_words, want_path, is_current) for space in spaces
        ]
        return StreamedResults(source.n_pairs, want_path), streams

    if chunks and direct and isinstance(source, PackedSource):
        with host_time("preparing"):
            results, streams = prepared()
        run_direct(streams, source, chunks, results)
        if results.n_misplaced:
            source.check(threads)
            raise DeviceError(f"{results.n_misplaced} packed pairs were not read as they are")
    elif chunks:
        results = run_staged(len(spaces), source, chunks, threads, prepared)
    else:
        results = StreamedResults(source.n_pairs, want_path)
    with host_time("closing"):
        results.close(unfit)
    return results


def run_staged(
    n_streams: int, source: Source, chunks: Sequence[Chunk], threads: int,
    prepared: Callable[[], tuple[StreamedResults, list[ChunkStream]]],
) -> StreamedResults:  # fmt: skip
    """Stage, align and fetch chunks, with one page-locked buffer for each stream.

    `prepared` makes the results and the streams while the first chunks are staged.
    """
    with host_time("preparing"):
        n_words = buffer_words(source, chunks)
        buffers = page_locked(n_streams * n_words, np.dtype(np.uint64)).reshape(n_streams, n_words)
        staging = Staging(source, chunks, buffers, threads)
    streams: list[ChunkStream] = []
    try:
        with host_time("preparing"):
            staging.begin(n_streams)
            results, streams = prepared()
        begun, queued, finished, attempts = n_streams, 0, 0, 0
        while finished < len(chunks):
            if queued < begun and staging.is_ready(queued):
                with host_time("queueing"):
                    chunk = chunks[queued]
                    staged = staging.buffer(queued)
                    streams[queued % n_streams].queue(chunk, staged, source.n_words(chunk))
                queued += 1
            elif queued == begun or (finished < queued and streams[finished % n_streams].is_done()):
                _finish(streams, finished, source, chunks, results)
                finished += 1
                if begun < len(chunks):
                    staging.begin()
                    begun += 1
            else:
                with host_time("waiting for staging"):
                    attempts = staging.help(attempts)
        return results
    finally:
        with host_time("closing"):
            staging.close()
            wait_for(streams)


def run_direct(
    streams: Sequence[ChunkStream],
    source: PackedSource,
    chunks: Sequence[Chunk],
    results: StreamedResults,
) -> None:
    """Align and fetch chunks of page-locked packed pairs, without staging."""
    n_streams = len(streams)
    try:
        for step in range(len(chunks) + n_streams):
            if step >= n_streams:
                _finish(streams, step - n_streams, source, chunks, results)
            if step < len(chunks):
                with host_time("queueing"):
                    streams[step % n_streams].queue_packed(chunks[step], source)
    finally:
        wait_for(streams)


def _finish(
    streams: Sequence[ChunkStream],
    c: int,
    source: Source,
    chunks: Sequence[Chunk],
    results: StreamedResults,
) -> None:
    """Fetch chunk c; its stream is then free for another chunk."""
    streams[c % len(streams)].finish(chunks[c], source.n_pairs, results, lambda: wait_for(streams))


def wait_for(streams: Sequence[ChunkStream]) -> None:
    """Wait for everything queued on the streams."""
    for stream in streams:
        stream.wait()


# --- streamed pass and fallback ---

Fallback = Callable[[Any, np.ndarray], PairAlignments]
"""Aligns unsolved pairs (as the source selects them); takes their numbers, too."""

_PAIRS_A_JOB = 1 << 18


def align_streamed(
    ordinals: Sequence[int], plan: LaunchPlan, source: Source, want_path: bool, threads: int,
    fallback: Fallback,
) -> PairAlignments:  # fmt: skip
    """Align all pairs: in the streamed pass, and those that it cannot solve by `fallback`.

    `threads` stage letters; no effect on the result.
    """
    results = streamed_pass(ordinals, plan, source, want_path, threads)
    if results.n_unsolved == 0:
        return _result(results)
    with host_time("pairs left"):
        numbers = np.flatnonzero(results.columns.status == NOT_DONE)
        log.debug("%d of %d pairs go to the fallback", len(numbers), source.n_pairs)
        later = fallback(source.selected(numbers), numbers)
        for column, values in zip(results.columns, later[:6], strict=True):
            column[numbers] = values
        if results.offsets is None or later.cigar_offsets is None or later.cigar_ops is None:
            return _result(results)
        n_ops = results.n_ops + len(later.cigar_ops)
        offsets, ops = np.empty(len(results.offsets), np.int64), np.empty(n_ops, np.uint32)
        pieces = range(0, source.n_pairs, _PAIRS_A_JOB)
        map_in_threads(
            lambda first: _merge(
                first, min(first + _PAIRS_A_JOB, source.n_pairs), results.offsets, results.ops(),
                numbers, later.cigar_offsets, later.cigar_ops, offsets, ops,
            ),
            pieces,
            min(threads, len(pieces)),
        )  # fmt: skip
        offsets[-1] = n_ops
        return PairAlignments(*results.columns, offsets, ops)


def _result(results: StreamedResults) -> PairAlignments:
    if results.offsets is None:
        return PairAlignments(*results.columns, None, None)
    return PairAlignments(*results.columns, results.offsets, results.ops())


@driver
def _merge(first, last, done_offsets, done_ops, numbers, later_offsets, later_ops, offsets, ops):
    """Write the operations of pairs first:last; those in `numbers` are taken from `later_ops`."""
    rank = np.searchsorted(numbers, first)
    for i in range(first, last):
        at = done_offsets[i] + later_offsets[rank]
        offsets[i] = at
        if rank < len(numbers) and numbers[rank] == i:
            for x in range(later_offsets[rank], later_offsets[rank + 1]):
                ops[at] = later_ops[x]
                at += 1
            rank += 1
        else:
            for x in range(done_offsets[i], done_offsets[i + 1]):
                ops[at] = done_ops[x]
                at += 1
