"""Sort records in memory and, beyond a bound, in a temporary file; cut the order into ranges.

Every batch of records comes as a *run*, sorted. Runs stay in memory up to half of the bound; then
they are merged into one run of a temporary file, while the next ones fill the other half; what has
not been written when the last batch has come stays in memory. At the end all runs are merged: the
order is cut into ranges of a few megabytes, and each range, which is a slice of every run, is
sorted by itself, by any thread. Where many records have the same key, a range ends within them.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Executor, Future, wait
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mapper.batch import ReadBatch, RecordBatch
from mapper.io import bgzf
from mapper.io.bam_writer import encode_bam_in_order
from mapper.io.bgzf_reader import BLOCK_ERRORS, decompress_blocks
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import copy_from_address
from mapper.parallel.buffers import RECYCLER
from mapper.sorting.ranges import RANGE_BYTES, RecordRange, Records
from mapper.sorting.record_order import (
    BEHIND_ALL,
    copy_records,
    find_records,
    keys_of_columns,
    record_key,
    record_size,
    stable_order,
)
from mapper.sorting.spill_file import SpilledRun, SpillFile

SAMPLED = 128
"""Records of a run in memory for each one whose key is looked at to cut the order."""

BLOCK_BYTES = bgzf.BLOCK_BYTES
"""Most bytes of the records of a block of the temporary file, unless one record is larger. A range
needs two blocks of each run in part."""

SPILL_RANGE_BYTES = 2 << 20
"""Bytes of a range that is sorted for the temporary file: less than at the end, where the whole
memory is there for it."""

SPILL_LEVEL = 1
"""Of compression of the temporary file: a third of the bytes, for 0.6 µs a read of 150 bases, and
0.3 to read it again."""


class Run(NamedTuple):
    """Sorted records in memory."""

    data: np.ndarray  # uint8: BAM records, one behind another
    keys: np.ndarray  # int64 (n_records,)
    starts: np.ndarray  # uint32 (n_records + 1,): in `data`

    @property
    def n_bytes(self) -> int:
        """Bytes of memory."""
        return self.data.nbytes + self.keys.nbytes + self.starts.nbytes

    def behind(self, row: int) -> Run:
        """Return the records from `row` on, in the same memory."""
        return Run(self.data, self.keys[row:], self.starts[row:])


def make_run(records: RecordBatch, reads: ReadBatch) -> Run:
    """Return the records of a batch, sorted and encoded.

    Raises
    ------
    OutputError
        If a name is longer than BAM can hold.
    """
    keys = keys_of_columns(records.ref_id, records.ref_pos, records.flag)
    order = stable_order(keys)
    data, starts = encode_bam_in_order(records, reads, order, _new_array)
    return Run(data, keys[order], starts.astype(np.uint32))


def run_of_bytes(data: np.ndarray) -> Run:
    """Return whole BAM records, fewer than 4 GB of them, as a run."""
    starts, keys = find_records(data)
    order = stable_order(keys)
    out = _new_array(len(data))
    offsets = np.empty(len(starts) + 1, np.uint32)
    offsets[:-1] = copy_records(data, starts[order], out)
    offsets[-1] = len(data)
    return Run(out, keys[order], offsets)


def _new_array(n_bytes: int) -> np.ndarray:
    """Return memory for the records of a run, from runs that have gone to the temporary file."""
    return RECYCLER.empty(n_bytes, "records of a run")


# --- cutting the order ---


class Cut(NamedTuple):
    """A place in the merged order of runs: before a record of one of them."""

    key: int
    run: int
    row: int
    """The record's number in a run in memory; a block's number in a run of the file."""


class _MemoryRuns(NamedTuple):
    """Runs in memory as columns."""

    keys: np.ndarray  # int64, of all runs
    firsts: np.ndarray  # int64 (n_runs + 1,): rows of each run in `keys`
    starts: np.ndarray  # uint32: those of run r begin at firsts[r] + r
    addresses: np.ndarray  # int64 (n_runs,): of the data


def _columns(runs: list[Run]) -> _MemoryRuns:
    firsts = np.zeros(len(runs) + 1, np.int64)
    np.cumsum([len(run.keys) for run in runs], out=firsts[1:])
    return _MemoryRuns(
        np.concatenate([np.empty(0, np.int64), *(run.keys for run in runs)]),
        firsts,
        np.concatenate([np.empty(0, np.uint32), *(run.starts for run in runs)]),
        np.array([run.data.ctypes.data for run in runs], np.int64),
    )


@core
def _rows_before(keys, first, end, key, with_equal):
    """Return how many of ``keys[first:end]``, ascending, are below `key`, or not above it."""
    low, high = first, end
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key or (with_equal and keys[middle] == key):
            low = middle + 1
        else:
            high = middle
    return low - first


@driver
def _find_rows(memory, n_spilled, key, run, row, rows):
    """Write, for each run in memory, how many of its records lie before a cut: int64."""
    firsts = memory.firsts
    for r in range(len(firsts) - 1):
        if n_spilled + r == run:
            rows[r] = row
        else:
            with_equal = n_spilled + r < run
            rows[r] = _rows_before(memory.keys, firsts[r], firsts[r + 1], key, with_equal)


@driver
def _slice_bytes(memory, low, high):
    """Return the bytes of the records ``[low[r], high[r])`` of all runs r."""
    total = np.int64(0)
    for r in range(len(memory.addresses)):
        first = memory.firsts[r] + r
        total += np.int64(memory.starts[first + high[r]]) - np.int64(memory.starts[first + low[r]])
    return total


@driver
def _copy_slices(memory, low, high, data, at, starts, keys, row):
    """Copy these records to ``data[at:]``, and their starts and keys from `row` on."""
    for r in range(len(memory.addresses)):
        if low[r] == high[r]:
            continue
        first = memory.firsts[r] + r
        begin = np.int64(memory.starts[first + low[r]])
        n_bytes = np.int64(memory.starts[first + high[r]]) - begin
        copy_from_address(memory.addresses[r] + begin, data, at, n_bytes)
        for i in range(low[r], high[r]):
            starts[row] = at + np.int64(memory.starts[first + i]) - begin
            keys[row] = memory.keys[memory.firsts[r] + i]
            row += 1
        at += n_bytes


@driver
def _find_between(data, low_key, low_with_equal, high_key, high_with_equal, starts, keys):
    """Find the records of an array that lie between two keys.

    A record is left out at the start if its key is below `low_key` (or equal to it, where
    `low_with_equal`), and taken at the end if its key is below `high_key` (or equal to it).

    Parameters
    ----------
    starts, keys
        To be written, int64: of each record, from the first one's start.

    Returns
    -------
    Their number, and their bounds in the array.
    """
    at = np.int64(0)
    while at < len(data):
        key = record_key(data, at)
        if key > low_key or (key == low_key and not low_with_equal):
            break
        at += record_size(data, at)
    begin = at
    n = np.int64(0)
    while at < len(data):
        key = record_key(data, at)
        if key > high_key or (key == high_key and not high_with_equal):
            break
        starts[n] = at - begin
        keys[n] = key
        n += 1
        at += record_size(data, at)
    return n, begin, at


_LOWEST = Cut(-1, -1, 0)
_HIGHEST = Cut(BEHIND_ALL, -1, 0)


class SortedRuns:
    """Runs of the temporary file, then runs in memory, in the order of the input."""

    def __init__(self, file: SpillFile, spilled: list[SpilledRun], runs: list[Run]) -> None:
        self._file = file
        self._spilled = spilled
        self._memory = _columns(runs)
        self._data = [run.data for run in runs]  # the owners of the addresses

    def ranges(self, target: int = RANGE_BYTES) -> list[RecordRange]:
        """Cut the order into ranges of about `target` bytes."""
        return [
            RecordRange(max(low.key, 0) >> 1, partial(self.load, low, high))
            for low, high in self.cut(target)
        ]

    def cut(self, target: int) -> list[tuple[Cut, Cut]]:
        """Return the bounds of ranges of about `target` bytes."""
        return list(pairwise([_LOWEST, *self._cuts(target), _HIGHEST]))

    def _cuts(self, target: int) -> list[Cut]:
        """Choose some of the records that are looked at, by the bytes between them."""
        keys, runs, rows, weights = [], [], [], []
        for number, run in enumerate(self._spilled):
            keys.append(run.first_keys)
            rows.append(np.arange(len(run.first_keys)))
            weights.append(run.sizes)
            runs.append(np.full(len(run.first_keys), number))
        memory = self._memory
        for number, (first, end) in enumerate(pairwise(memory.firsts.tolist())):
            sampled = np.arange(0, end - first, SAMPLED)
            starts = memory.starts[first + number : end + number + 1].astype(np.int64)
            keys.append(memory.keys[first:end][sampled])
            rows.append(sampled)
            weights.append(np.diff(starts[np.append(sampled, end - first)]))
            runs.append(np.full(len(sampled), len(self._spilled) + number))
        if not keys:
            return []
        all_keys = np.concatenate(keys)
        order = stable_order(all_keys)
        before = np.cumsum(np.concatenate(weights)[order])[:-1]
        chosen = order[1:][np.diff(before // target, prepend=0) > 0]
        columns = (all_keys, np.concatenate(runs), np.concatenate(rows))
        return [Cut(*row) for row in zip(*(c[chosen].tolist() for c in columns), strict=True)]

    def load(self, low: Cut, high: Cut) -> Records:
        """Return the records between two cuts, run after run."""
        begin, end = self.rows_before(low), self.rows_before(high)
        found = [self._read_blocks(number, low, high) for number in range(len(self._spilled))]
        n_bytes = sum(len(one.data) for one in found)
        n_rows = sum(len(one.starts) for one in found)
        data = RECYCLER.empty(n_bytes + int(_slice_bytes(self._memory, begin, end)))
        starts, keys = np.empty((2, n_rows + int((end - begin).sum())), np.int64)
        at = row = 0
        for one in found:
            rows = slice(row, row + len(one.starts))
            np.add(one.starts, at, out=starts[rows])
            keys[rows] = one.keys
            data[at : at + len(one.data)] = one.data
            at, row = at + len(one.data), rows.stop
        _copy_slices(self._memory, begin, end, data, at, starts, keys, row)
        return Records(data, starts, keys)

    def rows_before(self, cut: Cut) -> np.ndarray:
        """Return how many records of each run in memory lie before a cut: int64."""
        rows = np.empty(len(self._memory.addresses), np.int64)
        _find_rows(self._memory, len(self._spilled), cut.key, cut.run, cut.row, rows)
        return rows

    def _read_blocks(self, number: int, low: Cut, high: Cut) -> Records:
        """Return the records of a run of the file between two cuts."""
        run = self._spilled[number]
        # The record at a cut lies in the block before the first one that begins behind the cut.
        first = low.row if number == low.run else self._block_behind(number, low) - 1
        end = high.row if number == high.run else self._block_behind(number, high)
        first = max(first, 0)
        if first >= end:
            return Records.find(np.empty(0, np.uint8))
        offset = int(run.offsets[first])
        packed = RECYCLER.empty(int(run.offsets[end]) - offset)
        self._file.read(offset, packed)
        data = RECYCLER.empty(int(run.sizes[first:end].sum()))
        most = end - first + len(data) // bgzf.BLOCK_BYTES  # a large record takes several
        try:
            decompress_blocks(packed, most, data)
        except BLOCK_ERRORS as error:
            raise self._file.damaged(error) from error
        # At a cut of this run itself, a block begins: all of its records are behind it.
        low_key = -1 if number == low.run else low.key
        high_key = _HIGHEST.key if number == high.run else high.key
        starts, keys = np.empty((2, int(run.rows[first:end].sum())), np.int64)
        n, begin, stop = _find_between(
            data, low_key, number < low.run, high_key, number < high.run, starts, keys
        )
        return Records(data[begin:stop], starts[:n], keys[:n])

    def _block_behind(self, number: int, cut: Cut) -> int:
        """Return the first block whose first record is behind a cut."""
        keys = self._spilled[number].first_keys
        if number < cut.run:
            return int(np.searchsorted(keys, cut.key, "right"))
        return int(np.searchsorted(keys, cut.key, "left"))


# --- sorting ---


def sorted_bytes(records: Records) -> np.ndarray:
    """Return records, each source's together, in their merged order."""
    out = RECYCLER.empty(len(records.data))
    copy_records(records.data, records.in_order(), out)
    return out


@driver
def _find_blocks(data, most, starts, keys, rows):
    """Cut records into blocks of at most `most` bytes, or of one record; return their number.

    Parameters
    ----------
    starts, keys, rows
        To be written, int64: where each block begins, the key of its first record, and the number
        of its records.
    """
    n = np.int64(-1)
    at = np.int64(0)
    while at < len(data):
        size = record_size(data, at)
        if n < 0 or at + size - starts[n] > most:
            n += 1
            starts[n] = at
            keys[n] = record_key(data, at)
            rows[n] = 0
        rows[n] += 1
        at += size
    return n + 1


class _Packed(NamedTuple):
    """A range of a run that is to be written to the file."""

    data: np.ndarray  # compressed
    blocks: SpilledRun  # with offsets in `data`


def _sort_range(runs: SortedRuns, low: Cut, high: Cut) -> _Packed:
    records = runs.load(low, high)
    data = sorted_bytes(records)
    starts, keys, rows = np.empty((3, len(records.starts)), np.int64)
    n = int(_find_blocks(data, BLOCK_BYTES, starts, keys, rows))
    bounds = np.append(starts[:n], len(data))
    view = data.data
    pieces = [view[a:b] for a, b in pairwise(bounds.tolist())]
    packed = bgzf.compressor(SPILL_LEVEL)(pieces)
    sizes = np.diff(bounds)
    n_packed = -(-sizes // bgzf.BLOCK_BYTES)  # blocks of BGZF in each of ours
    offsets = bgzf.block_starts(packed)[np.append(0, np.cumsum(n_packed))]
    blocks = SpilledRun(keys[:n].copy(), sizes, rows[:n].copy(), offsets)
    # A copy, so that the room for what would not have become smaller is used again.
    return _Packed(np.frombuffer(bytes(packed), np.uint8), blocks)


class _Spill:
    """The merging of runs in memory into one of the file, by the pool, a few ranges at a time."""

    def __init__(
        self, runs: list[Run], file: SpillFile, executor: Executor, n_threads: int
    ) -> None:
        self.runs = runs
        self._file = file
        self._executor = executor
        self._ahead = n_threads + 2
        self._merged = SortedRuns(file, [], runs)
        self._ranges = deque(self._merged.cut(SPILL_RANGE_BYTES))
        self._sorting: deque[Future[_Packed]] = deque()
        self._writing: deque[Future[None]] = deque()
        self._blocks: list[SpilledRun] = []
        self.go_on(wait=False)

    def go_on(self, *, wait: bool) -> SpilledRun | None:
        """Begin and end tasks; return the run when all are done, for which `wait` waits."""
        while True:
            while self._writing and (wait or self._writing[0].done()):
                self._writing.popleft().result()
            while self._ranges and len(self._sorting) + len(self._writing) < self._ahead:
                task = partial(_sort_range, self._merged, *self._ranges.popleft())
                self._sorting.append(self._executor.submit(task))
            if not self._sorting:
                break
            if not wait and not self._sorting[0].done():
                return None
            self._write(self._sorting.popleft().result())
        return None if self._writing or self._ranges else self._written()

    def stop(self) -> tuple[SpilledRun, list[Run]]:
        """Begin no more tasks; return what is in the file when they end, and the rest."""
        rest = []
        if self._ranges:
            rows = self._merged.rows_before(self._ranges[0][0])
            rest = [run.behind(row) for run, row in zip(self.runs, rows.tolist(), strict=True)]
            self._ranges.clear()
        while self._sorting:
            self._write(self._sorting.popleft().result())
        while self._writing:
            self._writing.popleft().result()
        return self._written(), rest

    def _written(self) -> SpilledRun:
        none = np.empty(0, np.int64)
        blocks = [SpilledRun(none, none, none, none), *self._blocks]  # a run may be empty
        first_keys, sizes, rows, offsets = map(np.concatenate, zip(*blocks, strict=True))
        return SpilledRun(first_keys, sizes, rows, np.append(offsets, self._file.n_bytes))

    def _write(self, part: _Packed) -> None:
        offset = self._file.reserve(len(part.data))
        blocks = part.blocks
        self._blocks.append(blocks._replace(offsets=blocks.offsets[:-1] + offset))
        self._writing.append(self._executor.submit(self._file.write, part.data, offset))

    def cancel(self) -> None:
        for sorting in self._sorting:
            sorting.cancel()
        for writing in self._writing:
            writing.cancel()
        wait(self._writing)  # a write that runs needs the file, which is closed next


class RunsSoFar(NamedTuple):
    """All records that have come, in the order of the input."""

    merged: list[SpilledRun]  # in the temporary file
    n_merged: int  # runs of the input that these hold
    runs: list[Run]  # the others, of which some may be being merged


class RecordSorter:
    """Sorts records within a bound of memory; one thread at a time may call it.

    Parameters
    ----------
    file
        The temporary file for what does not fit.
    executor
        Its threads sort what is written there; the calling thread must not be one of them.
    n_threads
        Their number.
    memory
        Bytes for runs.
    """

    def __init__(self, file: SpillFile, executor: Executor, n_threads: int, memory: int) -> None:
        self._file = file
        self._executor = executor
        self._n_threads = n_threads
        self._most = max(memory // 2, 1)
        self._runs: list[Run] = []
        self._n_bytes = 0
        self._spilled: list[SpilledRun] = []
        self._n_merged = 0  # runs of the input in these
        self._spill: _Spill | None = None
        self.n_records = 0

    def add(self, run: Run) -> None:
        """Add the next run of the input."""
        self._go_on(wait=False)
        if self._n_bytes and self._n_bytes + run.n_bytes > self._most:
            self._go_on(wait=True)
            self._spill = _Spill(self._runs, self._file, self._executor, self._n_threads)
            self._runs, self._n_bytes = [], 0
        self._runs.append(run)
        self._n_bytes += run.n_bytes
        self.n_records += len(run.keys)

    def restore(self, merged: list[SpilledRun], n_merged: int) -> None:
        """Begin with runs that lie in the temporary file; see :class:`RunsSoFar`."""
        self._spilled, self._n_merged = list(merged), n_merged
        self.n_records = sum(int(run.rows.sum()) for run in merged)

    def so_far(self) -> RunsSoFar:
        """Return what has been added."""
        being_merged = [] if self._spill is None else self._spill.runs
        return RunsSoFar(list(self._spilled), self._n_merged, being_merged + self._runs)

    def finish(self) -> SortedRuns:
        """Return all runs."""
        runs, self._runs = self._runs, []
        if self._spill is not None:
            written, rest = self._spill.stop()
            self._spilled.append(written)
            self._spill = None
            runs = rest + runs  # in the order of the input
        RECYCLER.clear()  # the room of runs in the file is needed for ranges
        return SortedRuns(self._file, self._spilled, runs)

    def cancel(self) -> None:
        """Drop tasks that have not begun."""
        if self._spill is not None:
            self._spill.cancel()

    def _go_on(self, *, wait: bool) -> None:
        while self._spill is not None:
            run = self._spill.go_on(wait=wait)
            if run is not None:
                self._spilled.append(run)
                self._n_merged += len(self._spill.runs)
                self._spill = None
            elif not wait:
                break
