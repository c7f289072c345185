"""Room for chunks on a device, each with a stream: what is copied, launched and fetched.

Everything here is done by the one thread that queues work, so that arguments and addresses are
prepared once, and what is queued is handed to the driver in one go (``device/calls.py``).

Many short pairs on CUDA devices: the first pass of a batch.

What limits it is the way to the device and back, so that the host touches every letter once:

- Threads pack the letters of a chunk of pairs into page-locked memory (``flat_batch.py``; what is
  packed already is copied there), several chunks ahead of the device. Packed pairs that lie in
  page-locked memory are copied from where they lie, and a kernel looks at their columns.
- One thread, this one, queues for each chunk the copies, the kernels, and the copies back
  (``flat_slots.py``), and packs like the others while it has nothing to queue or to finish.
- The device writes the columns of results as the caller gets them, and they are copied into
  page-locked arrays that are the caller's to keep, and used again when the caller lets go.
  Where the operations of a chunk go follows from the number of those before, so chunks are
  finished in their order.

Pairs with other letters than A C G T, and those that do not fit the small work space of a
kernel, are left to what follows.

What a first pass over short pairs finds: columns in memory that is the caller's to keep.

All pairs of a batch on CUDA devices: a first pass, and the pairs that it leaves.
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
    GIVEN_TYPES,
    NOT_DONE,
    FlatColumns,
    FlatResults,
    GivenRows,
    count_blocks_kernel,
    finish_kernel,
    rows_kernel,
    sum_blocks_kernel,
)
from mapper.align.cuda.launch_plan import FlatMetric, PairLaunch, room_for
from mapper.align.cuda.retry import workspace_of
from mapper.align.cuda.sources import PackedSource, sides_at
from mapper.align.cuda.staging import Source, Staging, words_of_place
from mapper.align.cuda.trace import host_time, mark
from mapper.align.result import Columns, PairAlignments
from mapper.cuda.api import cuda
from mapper.cuda.launch import BoundKernel, Calls
from mapper.cuda.memory import Workspace, is_page_locked, page_locked, total_bytes
from mapper.errors import DeviceError, DeviceMemoryError
from mapper.jit.accelerate import driver
from mapper.parallel.map import map_in_threads

COLUMN_TYPES = (np.int64, np.int8, *[np.int64] * 5)
"""Of the columns of results, and of the offsets of operations."""


class FirstPass:
    """What the first pass has found: columns of all pairs, filled where they are done."""

    def __init__(self, n_pairs: int, want_path: bool) -> None:
        types = COLUMN_TYPES[: 7 if want_path else 6]
        arrays = [page_locked(n_pairs + 1, np.dtype(dtype)) for dtype in types]
        self.columns = Columns(*(array[:n_pairs] for array in arrays[:6]))
        self.offsets = arrays[6] if want_path else None
        self._ops = np.empty(0, np.uint32)
        self.n_ops = 0
        self.n_left = 0
        self.n_wrong = 0
        """Packed pairs that do not lie where they should; they are left."""

    def ops(self) -> np.ndarray:
        """Return the operations of all pairs."""
        return self._ops[: self.n_ops]

    def room(self, n_more: int, share: float, wait: Callable[[], None]) -> np.ndarray:
        """Return where the next operations go.

        Parameters
        ----------
        share
            Of all pairs, that of these and those before.
        wait
            Waits for all copies that are queued.
        """
        needed = self.n_ops + n_more
        if needed > len(self._ops):
            wait()  # what is on its way goes to the old array
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


log = logging.getLogger(__name__)

SLOTS = 4
"""Chunks of a device that are on their way: being staged, copied, computed and copied back."""

CHUNKS_A_DEVICE = 16
"""Of full size of a batch, if they are not smaller than is worth what each takes, nor larger than
there is room for."""

FEWEST_PAIRS = 1 << 14
"""Of a chunk of full size."""

MOST_WORDS = 1 << 25
"""Of a staged chunk; a longer pair is left."""

_LEAST_CHUNK = 1 << 10


def first_pass(
    ordinals: Sequence[int], metric: FlatMetric, source: Source, want_path: bool, threads: int
) -> FirstPass:
    """Align the pairs that fit; with less memory in smaller chunks."""
    most_pairs = CHUNK_PAIRS
    while True:
        with ExitStack() as stack:
            spaces = [
                (ordinal, stack.enter_context(workspace_of(ordinal, i)))
                for i in range(SLOTS)
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
                    source.check(threads)  # nothing has been looked at
                    found = FirstPass(source.n_pairs, want_path)
                    found.close([Chunk(0, source.n_pairs, 0, 0, 0, 0)])
                    return found


def _in_chunks(
    spaces: Sequence[tuple[int, Workspace]], metric: FlatMetric, source: Source, want_path: bool,
    threads: int, most_pairs: int,
) -> FirstPass:  # fmt: skip
    """Stage, align and fetch all chunks, each in the next slot."""
    with host_time("preparing"):
        direct = isinstance(source, PackedSource) and is_page_locked(source.packed)
        by_memory = (total_bytes() >> 6) // (4 * metric.slot)
        share = source.n_pairs * SLOTS // (CHUNKS_A_DEVICE * len(spaces)) + 1
        chunks = source.chunks(max(1, min(most_pairs, by_memory, max(share, FEWEST_PAIRS))))
        unfit = [chunk for chunk in chunks if source.n_words(chunk) > MOST_WORDS]
        if unfit:
            source.check(threads)  # they are not looked at on the way
        chunks = [chunk for chunk in chunks if source.n_words(chunk) <= MOST_WORDS]
        is_current = len({ordinal for ordinal, _ in spaces}) == 1
        spaces = spaces[: len(chunks)]

    def prepared() -> tuple[FirstPass, list[Slot]]:
        most = max((chunk.n_pairs for chunk in chunks), default=0)
        n_words = words_of_place(source, chunks)
        slots = [slot_of(*space, metric, most, n_words, want_path, is_current) for space in spaces]
        return FirstPass(source.n_pairs, want_path), slots

    if chunks and direct and isinstance(source, PackedSource):
        with host_time("preparing"):
            found, slots = prepared()
        run_direct(slots, source, chunks, found)
        if found.n_wrong:
            source.check(threads)
            raise DeviceError(f"{found.n_wrong} packed pairs were not read as they are")
    elif chunks:
        found = run_staged(len(spaces), source, chunks, threads, prepared)
    else:
        found = FirstPass(source.n_pairs, want_path)
    with host_time("closing"):
        found.close(unfit)
    return found


def run_staged(
    n_slots: int, source: Source, chunks: Sequence[Chunk], threads: int,
    prepared: Callable[[], tuple[FirstPass, list[Slot]]],
) -> FirstPass:  # fmt: skip
    """Stage, align and fetch chunks; a place for each slot, which it is copied from.

    `prepared` makes what results go to, and the slots, while the first chunks are staged.
    """
    with host_time("preparing"):
        n_words = words_of_place(source, chunks)
        places = page_locked(n_slots * n_words, np.dtype(np.uint64)).reshape(n_slots, n_words)
        staging = Staging(source, chunks, places, threads)
    slots: list[Slot] = []
    try:
        with host_time("preparing"):
            staging.begin(n_slots)
            found, slots = prepared()
        begun, queued, finished, turn = n_slots, 0, 0, 0
        while finished < len(chunks):
            if queued < begun and staging.is_ready(queued):
                with host_time("queueing"):
                    chunk = chunks[queued]
                    staged = staging.place(queued)
                    slots[queued % n_slots].queue(chunk, staged, source.n_words(chunk))
                queued += 1
            elif queued == begun or (finished < queued and slots[finished % n_slots].is_done()):
                _finish(slots, finished, source, chunks, found)
                finished += 1
                if begun < len(chunks):
                    staging.begin()
                    begun += 1
            else:
                with host_time("waiting for staging"):
                    turn = staging.help(turn)
        return found
    finally:
        with host_time("closing"):
            staging.close()
            wait_for(slots)


def run_direct(
    slots: Sequence[Slot], source: PackedSource, chunks: Sequence[Chunk], found: FirstPass
) -> None:
    """Align and fetch chunks that the device copies from where they lie."""
    n_slots = len(slots)
    try:
        for step in range(len(chunks) + n_slots):
            if step >= n_slots:
                _finish(slots, step - n_slots, source, chunks, found)
            if step < len(chunks):
                with host_time("queueing"):
                    slots[step % n_slots].queue_packed(chunks[step], source)
    finally:
        wait_for(slots)


def _finish(
    slots: Sequence[Slot], c: int, source: Source, chunks: Sequence[Chunk], found: FirstPass
) -> None:
    """Fetch chunk c; the slot is free for what follows on its stream."""
    slots[c % len(slots)].finish(chunks[c], source.n_pairs, found, lambda: wait_for(slots))


def wait_for(slots: Sequence[Slot]) -> None:
    """Wait for all that is queued."""
    for slot in slots:
        slot.wait()


Rest = Callable[[Any, np.ndarray], PairAlignments]
"""Aligns pairs that are left (what the source gives), of the given numbers."""

_PAIRS_A_JOB = 1 << 18


def align_flat(
    ordinals: Sequence[int], metric: FlatMetric, source: Source, want_path: bool, threads: int,
    rest: Rest,
) -> PairAlignments:  # fmt: skip
    """Align all pairs: those that fit in a first pass, the others by `rest`.

    `threads` stage letters; no effect on the result.
    """
    found = first_pass(ordinals, metric, source, want_path, threads)
    if found.n_left == 0:
        return _result(found)
    with host_time("pairs left"):
        numbers = np.flatnonzero(found.columns.status == NOT_DONE)
        log.debug("%d of %d pairs are left by the first pass", len(numbers), source.n_pairs)
        later = rest(source.selected(numbers), numbers)
        for column, values in zip(found.columns, later[:6], strict=True):
            column[numbers] = values
        if found.offsets is None or later.cigar_offsets is None or later.cigar_ops is None:
            return _result(found)
        n_ops = found.n_ops + len(later.cigar_ops)
        offsets, ops = np.empty(len(found.offsets), np.int64), np.empty(n_ops, np.uint32)
        pieces = range(0, source.n_pairs, _PAIRS_A_JOB)
        map_in_threads(
            lambda first: _merge(
                first, min(first + _PAIRS_A_JOB, source.n_pairs), found.offsets, found.ops(),
                numbers, later.cigar_offsets, later.cigar_ops, offsets, ops,
            ),
            pieces,
            min(threads, len(pieces)),
        )  # fmt: skip
        offsets[-1] = n_ops
        return PairAlignments(*found.columns, offsets, ops)


def _result(found: FirstPass) -> PairAlignments:
    if found.offsets is None:
        return PairAlignments(*found.columns, None, None)
    return PairAlignments(*found.columns, found.offsets, found.ops())


@driver
def _merge(first, last, done_offsets, done_ops, numbers, later_offsets, later_ops, offsets, ops):
    """Write the operations of pairs first:last, of those numbered from `later_ops`."""
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
