"""Sort records in memory and, beyond a bound, in a temporary file; cut the order into ranges.

Every batch of records comes as a *run*, sorted. Runs stay in memory up to half of the bound. Then,
if a device has room for them, their records go there, and those of all later runs as they come,
while it lasts. Otherwise they are merged into one run of a temporary file, while the next ones fill
the other half; what has not been written when the last batch has come stays in memory. At the end
all runs are merged: the order is cut into ranges of a few megabytes, and each range, which is a
slice of every run, is sorted by itself, by any thread. Where many records have the same key, a
range ends within them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor, Future, wait
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from mapper.batch import ReadBatch, RecordBatch
from mapper.io import bgzf
from mapper.io.bam_writer import encode_records
from mapper.io.bgzf_reader import BLOCK_ERRORS, Inflater, decompress_blocks
from mapper.jit.accelerate import core, driver
from mapper.parallel.buffers import RECYCLER, spanning
from mapper.parallel.pool import complete, start_daemon
from mapper.sorting.options import LARGE_RANGES_SHARE
from mapper.sorting.ranges import RANGE_BYTES, RecordRange, Records, sort_records
from mapper.sorting.record_order import (
    BEHIND_ALL,
    copy_records,
    find_records,
    keys_of_columns,
    longest_clip,
    longest_clip_in,
    prefetch_ahead,
    record_key,
    record_size,
    stable_order,
)
from mapper.sorting.spill_file import SpilledRun, SpillFile

T = TypeVar("T")

SAMPLED = 128
"""Records of a run in memory for each one whose key is looked at to cut the order."""

BLOCK_BYTES = bgzf.BLOCK_BYTES
"""Most bytes of the records of a block of the temporary file, unless one record is larger. A range
needs two blocks of each run in part."""

SPILL_RANGE_BYTES = 2 << 20
"""Bytes of a range that is sorted for the temporary file where memory is short. Where there is
plenty, ranges have RANGE_BYTES: of 2 MB each, tasks waited for the GIL longer than they worked."""

_RANGE_COPIES = 2
"""Of a range in work, at most: its records in order, and compressed."""

_MOST_GROUPS = 2
"""Groups of blocks in work with a device while it maps: some 60 MB each."""

SPILL_LEVEL = 1
"""Of compression of the temporary file: a third of the bytes, for 0.6 µs a read of 150 bases, and
0.3 to read it again."""


class Run(NamedTuple):
    """Sorted records in memory."""

    data: np.ndarray  # uint8: BAM records, one behind another
    keys: np.ndarray  # int64 (n_records,)
    starts: np.ndarray  # uint32 (n_records + 1,): in `data`
    longest_clip: int
    """Most clipped bases before the alignment of one of them."""

    @property
    def n_bytes(self) -> int:
        """Bytes of memory."""
        return self.data.nbytes + self.n_bytes_of_rows

    @property
    def n_bytes_of_rows(self) -> int:
        """Bytes of memory without the records."""
        return self.keys.nbytes + self.starts.nbytes

    def behind(self, row: int) -> Run:
        """Return the records from `row` on, in the same memory."""
        return self._replace(keys=self.keys[row:], starts=self.starts[row:])


def make_run(records: RecordBatch, reads: ReadBatch) -> Run:
    """Return the records of a batch, sorted and encoded.

    Raises
    ------
    OutputError
        If a name is longer than BAM can hold.
    """
    keys = keys_of_columns(records.ref_id, records.ref_pos, records.flag)
    order = stable_order(keys)
    # In the order of the input, and then copied: the columns of a batch do not fit in the caches,
    # and a record needs lines of ten of them, but only a few of its bytes.
    data, starts = encode_records(records, reads)
    out = _new_array(len(data))
    offsets = copy_records(data, starts[order], out)
    clip = int(longest_clip(records.cigar_offsets, records.cigar_ops))
    return Run(out, keys[order], offsets.astype(np.uint32), clip)


def run_of_bytes(data: np.ndarray) -> Run:
    """Return whole BAM records, fewer than 4 GB of them, as a run."""
    starts, keys = find_records(data)
    order = stable_order(keys)
    out = _new_array(len(data))
    offsets = copy_records(data, starts[order], out)
    clip = int(longest_clip_in(data, starts))
    return Run(out, keys[order], offsets.astype(np.uint32), clip)


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


class RecordStore(Protocol):
    """The interface of memory elsewhere, a device's, that holds the records of runs."""

    n_bytes: int
    """Room for records."""

    def write(self, data: np.ndarray, offset: int) -> None:
        """Write records (uint8) at an offset; any thread."""

    def gather(self, offsets: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Return records, one behind another: uint8. Any thread may call this.

        Parameters
        ----------
        offsets
            Of the records: int64 (n,).
        starts
            Of the records in the result, and their end: int64 (n + 1,).
        """


class StoredRun(NamedTuple):
    """A sorted run whose records are in a store."""

    run: Run
    """With no data."""
    offset: int
    """Of its data in the store."""


class _RunColumns(NamedTuple):
    """Runs with keys in memory: arrays that span those of all runs, and where in them each begins.

    So one thread need not copy the keys and starts of all records before the others can begin.
    """

    first_number: int  # of the first run in the order of the input; the others follow
    n_rows: np.ndarray  # int64 (n_runs,)
    keys: np.ndarray  # int64
    first_keys: np.ndarray  # int64 (n_runs,): of each run in `keys`
    starts: np.ndarray  # uint32
    first_starts: np.ndarray  # int64 (n_runs,): of each run in `starts`
    offsets: np.ndarray  # int64 (n_runs,): of each run's records in what holds those of all
    sampled: np.ndarray  # int64: the key of every SAMPLED-th record of each run
    first_sampled: np.ndarray  # int64 (n_runs + 1,): rows of each run in `sampled`
    distance: int  # SAMPLED


def _columns(runs: Sequence[Run], offsets: np.ndarray, first_number: int) -> _RunColumns:
    """Return runs as columns."""
    first_sampled = np.zeros(len(runs) + 1, np.int64)
    np.cumsum([-(-len(run.keys) // SAMPLED) for run in runs], out=first_sampled[1:])
    keys, first_keys = _spanning_items([run.keys for run in runs], np.int64)
    starts, first_starts = _spanning_items([run.starts for run in runs], np.uint32)
    sampled = [np.empty(0, np.int64), *(run.keys[::SAMPLED] for run in runs)]
    return _RunColumns(
        first_number, np.array([len(run.keys) for run in runs], np.int64), keys, first_keys, starts,
        first_starts, offsets, np.concatenate(sampled), first_sampled, SAMPLED,
    )  # fmt: skip


def _spanning_items(
    arrays: Sequence[np.ndarray], dtype: type[np.generic]
) -> tuple[np.ndarray, np.ndarray]:
    """Return an array over several ones of a type, and the item at which each begins."""
    span, offsets = spanning([array.view(np.uint8) for array in arrays])
    return span.view(dtype), offsets // np.dtype(dtype).itemsize


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


@core
def _rows_of_run(runs, r, cut):
    """Return how many records of a run lie before a cut.

    Among the sampled keys first, which lie together: a search of all keys misses the caches in
    most of its steps.
    """
    number = runs.first_number + r
    if number == cut.run:
        return np.int64(cut.row)
    with_equal = number < cut.run
    low, high = runs.first_sampled[r], runs.first_sampled[r + 1]
    sampled = _rows_before(runs.sampled, low, high, cut.key, with_equal)
    if sampled == 0:
        return np.int64(0)
    before = (sampled - 1) * runs.distance
    low = runs.first_keys[r] + before
    high = min(low + runs.distance, runs.first_keys[r] + runs.n_rows[r])
    return before + _rows_before(runs.keys, low, high, cut.key, with_equal)


@driver
def _find_rows(runs, cut, rows):
    """Write how many records of each run lie before a cut: int64."""
    for r in range(len(rows)):
        rows[r] = _rows_of_run(runs, r, cut)


@driver
def _find_slices(runs, low, high, bounds):
    """Write the first row between two cuts, and that behind the last one, of each run: int64.

    Returns the number of these records, and their bytes.
    """
    n = n_bytes = np.int64(0)
    for r in range(len(bounds)):
        begin = _rows_of_run(runs, r, low)
        end = _rows_of_run(runs, r, high)
        first = runs.first_starts[r]
        n += end - begin
        n_bytes += np.int64(runs.starts[first + end]) - np.int64(runs.starts[first + begin])
        bounds[r, 0], bounds[r, 1] = begin, end
    return n, n_bytes


@driver
def _order_slices(runs, bounds, n, keys, offsets, starts):
    """List the `n` records of slices in sorted order; those of equal keys stay as they come.

    Parameters
    ----------
    bounds
        From :func:`_find_slices`.
    keys, offsets, starts
        To be written, int64: the key and the offset of each record, and where it begins if they lie
        one behind another; last their end.
    """
    unsorted_keys = np.empty(n, np.int64)
    unsorted_offsets = np.empty(n, np.int64)
    sizes = np.empty(n, np.int64)
    row = np.int64(0)
    for r in range(len(bounds)):
        first_key, first_start = runs.first_keys[r], runs.first_starts[r]
        for i in range(bounds[r, 0], bounds[r, 1]):
            start = np.int64(runs.starts[first_start + i])
            unsorted_keys[row] = runs.keys[first_key + i]
            unsorted_offsets[row] = runs.offsets[r] + start
            sizes[row] = np.int64(runs.starts[first_start + i + 1]) - start
            row += 1
    order = stable_order(unsorted_keys)
    at = np.int64(0)
    for i in range(n):
        keys[i] = unsorted_keys[order[i]]
        offsets[i] = unsorted_offsets[order[i]]
        starts[i] = at
        at += sizes[order[i]]
    starts[n] = at


@driver
def _sort_slices(memory, bounds, offset, data, starts, keys, row, out):
    """Add the records of slices to `row` others and sort all of them: :func:`sort_records`.

    Parameters
    ----------
    bounds
        From :func:`_find_slices`.
    offset
        Where, in `data`, the array begins that spans the runs.
    starts, keys
        int64, with room for all records; the first `row` are there.
    """
    for r in range(len(bounds)):
        first_key, first_start = memory.first_keys[r], memory.first_starts[r]
        offset_of_run = offset + memory.offsets[r]
        for i in range(bounds[r, 0], bounds[r, 1]):
            starts[row] = offset_of_run + np.int64(memory.starts[first_start + i])
            keys[row] = memory.keys[first_key + i]
            row += 1
    return sort_records(data, starts[:row], keys[:row], out)


# --- runs of the file ---


class _SpilledRuns(NamedTuple):
    """The blocks of runs of the file as columns.

    Of run r of the file, ``first_keys`` begins at ``firsts[r]`` and each other column, which has
    one item more than there are blocks, at ``firsts[r] + r``.
    """

    first_number: int  # of the first run in the order of the input; the others follow
    first_keys: np.ndarray  # int64: of the first record of each block
    firsts: np.ndarray  # int64 (n_runs + 1,)
    bytes_before: np.ndarray  # int64: plain bytes of the run before each block
    rows_before: np.ndarray  # int64: records of the run before each block
    offsets: np.ndarray  # int64: in the file


def _spilled_columns(runs: Sequence[SpilledRun], first_number: int) -> _SpilledRuns:
    none = np.empty(0, np.int64)
    firsts = np.zeros(len(runs) + 1, np.int64)
    np.cumsum([len(run.first_keys) for run in runs], out=firsts[1:])
    return _SpilledRuns(
        first_number,
        np.concatenate([none, *(run.first_keys for run in runs)]),
        firsts,
        np.concatenate([none, *(np.append(0, np.cumsum(run.sizes)) for run in runs)]),
        np.concatenate([none, *(np.append(0, np.cumsum(run.rows)) for run in runs)]),
        np.concatenate([none, *(run.offsets for run in runs)]),
    )


_OFFSET, _PACKED_BYTES, _PLAIN_BYTES, _ROWS, _BLOCKS = range(5)
"""Columns of a table of what lies between two cuts, a row for each run of the file."""


@core
def _blocks_before(spilled, cut, run):
    """Return how many blocks of a run begin before a cut."""
    number = spilled.first_number + run
    if number == cut.run:
        return np.int64(cut.row)
    first, end = spilled.firsts[run], spilled.firsts[run + 1]
    return np.int64(_rows_before(spilled.first_keys, first, end, cut.key, number < cut.run))


@driver
def _find_blocks_between(spilled, low, high, table):
    """Write where the blocks lie that hold the records between two cuts: int64 (n_runs, 5)."""
    for run in range(len(table)):
        begin, end = _blocks_before(spilled, low, run), _blocks_before(spilled, high, run)
        if spilled.first_number + run != low.run:
            begin = max(begin - 1, np.int64(0))  # the record at the cut lies in the block before
        end = max(begin, end)
        column = spilled.firsts[run] + run
        begin, n_blocks, end = column + begin, end - begin, column + end
        table[run, _OFFSET] = spilled.offsets[begin]
        table[run, _PACKED_BYTES] = spilled.offsets[end] - spilled.offsets[begin]
        table[run, _PLAIN_BYTES] = spilled.bytes_before[end] - spilled.bytes_before[begin]
        table[run, _ROWS] = spilled.rows_before[end] - spilled.rows_before[begin]
        table[run, _BLOCKS] = n_blocks


@driver
def _find_offsets(spilled, cut, offsets):
    """Write the place in the file, of each run, before which no record behind a cut lies."""
    for run in range(len(offsets)):
        before = _blocks_before(spilled, cut, run)
        if spilled.first_number + run != cut.run:
            before = max(before - 1, np.int64(0))
        offsets[run] = spilled.offsets[spilled.firsts[run] + run + before]


@driver
def _find_records_between(data, table, first_number, low, high, starts, keys):
    """Find the records of blocks that lie between two cuts.

    Parameters
    ----------
    data, table
        The plain bytes of the blocks, run behind run, and the table that says how many there are.
    first_number
        Of the first of these runs.
    starts, keys
        To be written, int64: of each record.

    Returns
    -------
    Their number.
    """
    n = np.int64(0)
    at = np.int64(0)
    for row in range(len(table)):
        run = first_number + row
        end = at + table[row, _PLAIN_BYTES]
        # At a cut of this run itself a block begins: all of its records are behind it.
        low_key = np.int64(-1) if run == low.run else np.int64(low.key)
        high_key = np.int64(BEHIND_ALL) if run == high.run else np.int64(high.key)
        while at < end:
            key = record_key(data, at)
            if key > low_key or (key == low_key and run > low.run):
                break
            at += record_size(data, at)
        while at < end:
            key = record_key(data, at)
            if key > high_key or (key == high_key and run > high.run):
                break
            starts[n] = at
            keys[n] = key
            n += 1
            size = record_size(data, at)
            prefetch_ahead(data, at, at + size)
            at += size
        at = end
    return n


_LOWEST = Cut(-1, -1, 0)
_HIGHEST = Cut(BEHIND_ALL, -1, 0)


def _sampled(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return keys and rows of some records of a run, and the bytes from each to the next."""
    rows = np.arange(0, len(run.keys), SAMPLED)
    starts = run.starts[np.append(rows, len(run.keys))]
    return run.keys[rows], rows, np.diff(starts.astype(np.int64))


class SortedRuns:
    """Runs of a store, then of the temporary file, then in memory, in the order of the input.

    Parameters
    ----------
    inflater
        A device that decompresses blocks of the file while it is idle; None for none.
    stored, store
        Runs of a store, and what holds their records; None if there are none.
    """

    def __init__(
        self, file: SpillFile, spilled: list[SpilledRun], runs: list[Run],
        inflater: Inflater | None = None, stored: Sequence[StoredRun] = (),
        store: RecordStore | None = None,
    ) -> None:  # fmt: skip
        self._file = file
        self._spilled = spilled
        self._inflater = inflater
        self._store = store
        self._runs = [*(one.run for one in stored), *runs]  # but for those of the file
        self._n_stored = n_stored = len(stored)
        offsets = np.array([one.offset for one in stored], np.int64)
        self._stored = _columns(self._runs[:n_stored], offsets, 0)
        self._spilled_columns = _spilled_columns(spilled, n_stored)
        self._data, offsets = spanning([run.data for run in runs])
        self._memory = _columns(runs, offsets, n_stored + len(spilled))
        self._cut: list[tuple[Cut, Cut]] = []  # of the ranges
        self._released = np.array([run.offsets[0] for run in spilled], np.int64)

    @property
    def are_in_memory(self) -> bool:
        """True if none of them is in the temporary file."""
        return not self._spilled

    @property
    def n_bytes(self) -> int:
        """Bytes of all records."""
        in_file = sum(int(run.sizes.sum()) for run in self._spilled)
        return in_file + sum(int(run.starts[-1] - run.starts[0]) for run in self._runs)

    def ranges(self, target: int = RANGE_BYTES) -> list[RecordRange]:
        """Cut the order into ranges of about `target` bytes."""
        self._cut = self.cut(target)
        return [
            RecordRange(max(low.key, 0) >> 1, partial(self.load, low, high))
            for low, high in self._cut
        ]

    def to_release(self, n_ranges: int) -> list[tuple[int, int]]:
        """Return the parts of the file that only the first ranges need, but those returned before.

        Each is an offset and a number of bytes.
        """
        if n_ranges >= len(self._cut):
            return []  # the file goes soon
        before = self._released
        self._released = np.empty_like(before)
        _find_offsets(self._spilled_columns, self._cut[n_ranges][0], self._released)
        parts = zip(before.tolist(), (self._released - before).tolist(), strict=True)
        return [(offset, n_bytes) for offset, n_bytes in parts if n_bytes > 0]

    def cut(self, target: int) -> list[tuple[Cut, Cut]]:
        """Return the bounds of ranges of about `target` bytes."""
        return list(pairwise([_LOWEST, *self._cuts(target), _HIGHEST]))

    def _cuts(self, target: int) -> list[Cut]:
        """Choose some of the records that are looked at, by the bytes between them."""
        # In the order of the input, in which equal keys stay.
        looked_at = [
            *(_sampled(run) for run in self._runs[: self._n_stored]),
            *((run.first_keys, np.arange(len(run.first_keys)), run.sizes) for run in self._spilled),
            *(_sampled(run) for run in self._runs[self._n_stored :]),
        ]
        if not looked_at:
            return []
        keys, rows, weights = (np.concatenate(column) for column in zip(*looked_at, strict=True))
        runs = np.repeat(np.arange(len(looked_at)), [len(one[0]) for one in looked_at])
        order = stable_order(keys)
        before = np.cumsum(weights[order])[:-1]
        chosen = order[1:][np.diff(before // target, prepend=0) > 0]
        columns = (keys, runs, rows)
        return [Cut(*row) for row in zip(*(c[chosen].tolist() for c in columns), strict=True)]

    def load(self, low: Cut, high: Cut) -> Records:
        """Return the records between two cuts."""
        bounds = np.empty((len(self._memory.offsets), 2), np.int64)
        n_in_memory, room = _find_slices(self._memory, low, high, bounds)
        stored, stored_keys = self._gather(low, high)
        if n_in_memory == 0 and not self._spilled:
            return stored
        table, blocks = self._blocks_between(low, high)
        data, (in_store, in_file, in_memory) = spanning([stored.data, blocks, self._data])
        row = len(stored_keys)
        most = row + int(table[:, _ROWS].sum()) + n_in_memory
        starts, keys = np.empty((2, most), np.int64)
        starts[:row], keys[:row] = stored.starts + in_store, stored_keys
        if len(blocks):
            n = _find_records_between(
                blocks, table, self._n_stored, low, high, starts[row:], keys[row:]
            )
            starts[row : row + n] += in_file
            row += n
        # In few compiled calls, as everything of a range: to go on in Python afterwards a thread
        # waits for the GIL, a millisecond where sixteen do.
        out = RECYCLER.empty(len(stored.data) + len(blocks) + room)
        positions = _sort_slices(self._memory, bounds, in_memory, data, starts, keys, row, out)
        return Records(out[: positions[-1]], positions[:-1])

    def _gather(self, low: Cut, high: Cut) -> tuple[Records, np.ndarray]:
        """Return the records of the store between two cuts, and their keys."""
        if self._store is None:
            return Records(np.empty(0, np.uint8), np.empty(0, np.int64)), np.empty(0, np.int64)
        bounds = np.empty((self._n_stored, 2), np.int64)
        n, _ = _find_slices(self._stored, low, high, bounds)
        keys, offsets, starts = np.empty((3, n + 1), np.int64)
        _order_slices(self._stored, bounds, n, keys, offsets, starts)
        data = self._store.gather(offsets[:n], starts)
        return Records(data, starts[:n]), keys[:n]

    def rows_before(self, cut: Cut) -> np.ndarray:
        """Return how many records of each run in memory lie before a cut: int64."""
        rows = np.empty(len(self._memory.offsets), np.int64)
        _find_rows(self._memory, cut, rows)
        return rows

    def _blocks_between(self, low: Cut, high: Cut) -> tuple[np.ndarray, np.ndarray]:
        """Return the table of the blocks between two cuts, and their plain bytes."""
        table = np.empty((len(self._spilled), 5), np.int64)
        if not self._spilled:
            return table, np.empty(0, np.uint8)
        _find_blocks_between(self._spilled_columns, low, high, table)
        n_bytes = int(table[:, _PLAIN_BYTES].sum())
        memory = RECYCLER.empty if self._inflater is None else self._inflater.memory
        blocks = memory(n_bytes)
        if n_bytes:
            self._read_blocks(table, blocks)
        return table, blocks

    def _read_blocks(self, table: np.ndarray, out: np.ndarray) -> None:
        packed = RECYCLER.empty(int(table[:, _PACKED_BYTES].sum()))
        self._file.read_parts(np.ascontiguousarray(table[:, : _PACKED_BYTES + 1]), packed)
        # A large record takes several blocks of BGZF.
        most = int(table[:, _BLOCKS].sum()) + len(out) // bgzf.BLOCK_BYTES
        try:
            decompress_blocks(packed, most, out, self._inflater)
        except BLOCK_ERRORS as error:
            raise self._file.damaged(error) from error


# --- sorting ---


@driver
def _find_blocks(data, positions, most, starts, keys, rows):
    """Cut records into blocks of at most `most` bytes, or of one record; return their number.

    Parameters
    ----------
    data, positions
        The records, one behind another, and where each begins.
    starts, keys, rows
        To be written, int64: where each block begins, the key of its first record, and the number
        of its records.
    """
    n = np.int64(-1)
    for i in range(len(positions)):
        end = positions[i + 1] if i + 1 < len(positions) else len(data)
        if n < 0 or end - starts[n] > most:
            n += 1
            starts[n] = positions[i]
            keys[n] = record_key(data, positions[i])
            rows[n] = 0
        rows[n] += 1
    return n + 1


class _SortedRange(NamedTuple):
    """Records of a range in order, cut into blocks of whole records."""

    data: np.ndarray  # uint8
    keys: np.ndarray  # int64 (n_blocks,): of the first record of each block
    bounds: np.ndarray  # int64 (n_blocks + 1,): of the blocks in `data`
    rows: np.ndarray  # int64 (n_blocks,): records of each block

    @property
    def n_packed(self) -> np.ndarray:
        """Blocks of BGZF in each block."""
        return -(-np.diff(self.bounds) // bgzf.BLOCK_BYTES)


def _sort_range(runs: SortedRuns, low: Cut, high: Cut) -> _SortedRange:
    data, positions = runs.load(low, high)
    starts, keys, rows = np.empty((3, len(positions)), np.int64)
    n = int(_find_blocks(data, positions, BLOCK_BYTES, starts, keys, rows))
    return _SortedRange(data, keys[:n].copy(), np.append(starts[:n], len(data)), rows[:n].copy())


class _Packed(NamedTuple):
    """Ranges of a run that are to be written to the file."""

    data: np.ndarray  # uint8: compressed
    blocks: SpilledRun  # with offsets in `data`
    n_ranges: int


def _compress_ranges(compressor: bgzf.Compressor, ranges: list[_SortedRange]) -> _Packed:
    pieces: bgzf.Pieces = bgzf.Spans([(one.data, one.bounds) for one in ranges])
    n_packed = np.concatenate([one.n_packed for one in ranges])
    if not len(n_packed):
        data = np.empty(0, np.uint8)
    elif n_packed.sum() <= compressor.blocks_per_task:
        data = np.frombuffer(compressor.compress(pieces), np.uint8)
    else:
        groups = bgzf.grouped(pieces, compressor.blocks_per_task)
        packed = [np.frombuffer(compressor.compress(group), np.uint8) for group in groups]
        data = np.concatenate(packed)
    blocks = SpilledRun(
        np.concatenate([one.keys for one in ranges]),
        np.concatenate([np.diff(one.bounds) for one in ranges]),
        np.concatenate([one.rows for one in ranges]),
        bgzf.block_starts(data.data)[np.append(0, np.cumsum(n_packed))],
    )
    return _Packed(data, blocks, len(ranges))


class _Spill:
    """The merging of runs in memory into one of the file, a few ranges at a time.

    Tasks sort ranges, compress groups of them, and write. A thread of its own begins each as soon
    as it can: the thread that adds runs comes by too seldom to keep a device busy.

    Parameters
    ----------
    ahead
        Ranges in work at most.
    range_bytes
        Bytes of each.
    """

    def __init__(
        self, runs: list[Run], file: SpillFile, executor: Executor, compressor: bgzf.Compressor,
        ahead: int, range_bytes: int,
    ) -> None:  # fmt: skip
        self.runs = runs
        self.result: Future[SpilledRun] = Future()
        self._file = file
        self._executor = executor
        self._compressor = compressor
        self._ahead = ahead
        self._merged = SortedRuns(file, [], runs)
        self._ranges = deque(self._merged.cut(range_bytes))
        self._stopping = self._cancelled = False
        self._events: SimpleQueue[object] = SimpleQueue()  # tasks that have ended, or requests
        self._n_in_work = 0  # ranges
        self._sorting: deque[Future[_SortedRange]] = deque()
        self._group: list[_SortedRange] = []
        self._group_blocks = 0
        self._compressing: deque[Future[_Packed]] = deque()
        self._writing: deque[Future[None]] = deque()
        self._being_written: deque[int] = deque()  # ranges of each write
        self._blocks: list[SpilledRun] = []
        start_daemon(lambda: complete(self.result, self._run), "spill")

    def stop(self) -> tuple[SpilledRun, list[Run]]:
        """Begin no more tasks; return what is in the file when they end, and the rest."""
        self._stopping = True
        self._events.put(None)
        written = self.result.result()
        rest = []
        if self._ranges:
            rows = self._merged.rows_before(self._ranges[0][0])
            rest = [run.behind(row) for run, row in zip(self.runs, rows.tolist(), strict=True)]
        return written, rest

    def cancel(self) -> None:
        """Drop tasks that have not begun; the file is not needed afterwards."""
        self._cancelled = True
        self._events.put(None)
        wait([self.result])

    def _run(self) -> SpilledRun:
        try:
            while True:
                self._begin_tasks()
                if not self._n_in_work:
                    return self._written()
                self._events.get()
                if self._cancelled:
                    raise CancelledError
                while self._end_task():
                    pass
        except BaseException:
            tasks: list[Future[Any]] = [*self._sorting, *self._compressing]
            for task in tasks:
                task.cancel()
            # A write that runs needs the file, which is closed next.
            wait([task for task in self._writing if not task.cancel()])
            raise

    def _begin_tasks(self) -> None:
        while self._ranges and self._n_in_work < self._ahead and not self._stopping:
            task = partial(_sort_range, self._merged, *self._ranges.popleft())
            self._sorting.append(self._submit(self._executor, task))
            self._n_in_work += 1
        if self._group and not self._sorting:
            self._compress_group()

    def _submit(self, executor: Executor, call: Callable[[], T]) -> Future[T]:
        task = executor.submit(call)
        task.add_done_callback(self._events.put)
        return task

    def _end_task(self) -> bool:
        """Go on with the oldest range, group or write that has ended; return False for none."""
        steps: list[tuple[deque[Future[Any]], Callable[[Any], None]]] = [
            (self._writing, self._end_write),
            (self._compressing, self._write),
            (self._sorting, self._add_to_group),
        ]
        for tasks, follow in steps:
            if tasks and tasks[0].done():
                follow(tasks.popleft().result())
                return True
        return False

    def _add_to_group(self, one: _SortedRange) -> None:
        n_blocks = int(one.n_packed.sum())
        if self._group and self._group_blocks + n_blocks > self._compressor.blocks_per_task:
            self._compress_group()
        self._group.append(one)
        self._group_blocks += n_blocks

    def _compress_group(self) -> None:
        task = partial(_compress_ranges, self._compressor, self._group)
        self._compressing.append(self._submit(self._compressor.executor, task))
        self._group, self._group_blocks = [], 0

    def _write(self, packed: _Packed) -> None:
        offset = self._file.reserve(len(packed.data))
        blocks = packed.blocks
        self._blocks.append(blocks._replace(offsets=blocks.offsets[:-1] + offset))
        task = partial(self._file.write, packed.data, offset)
        self._writing.append(self._submit(self._executor, task))
        self._being_written.append(packed.n_ranges)

    def _end_write(self, _: None) -> None:
        self._n_in_work -= self._being_written.popleft()

    def _written(self) -> SpilledRun:
        none = np.empty(0, np.int64)
        blocks = [SpilledRun(none, none, none, none), *self._blocks]  # a run may be empty
        first_keys, sizes, rows, offsets = map(np.concatenate, zip(*blocks, strict=True))
        return SpilledRun(first_keys, sizes, rows, np.append(offsets, self._file.n_bytes))


class RunsSoFar(NamedTuple):
    """All records that have come, in the order of the input."""

    merged: list[SpilledRun]  # in the temporary file
    n_merged: int  # runs of the input that these hold
    runs: list[Run]  # the others, of which some may be being merged
    longest_clip: int  # of all


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
    compressor
        Compresses what is written; None for those threads.
    open_store
        Opens a store of records, or returns None if there is no room; called once, when records
        first exceed the memory. What the store cannot hold goes to the file. None for the file
        alone.
    """

    def __init__(
        self, file: SpillFile, executor: Executor, n_threads: int, memory: int,
        compressor: bgzf.Compressor | None = None,
        open_store: Callable[[], RecordStore | None] | None = None,
    ) -> None:  # fmt: skip
        self._file = file
        self._open_store = open_store
        self._store: RecordStore | None = None
        self._store_is_full = False
        self._stored: list[StoredRun] = []
        self._n_bytes_of_stored = 0  # rows of these
        self._n_bytes_in_store = 0  # records of these
        self._storing: deque[tuple[Future[None], int]] = deque()  # bytes of records on their way
        self._n_bytes_storing = 0
        self._executor = executor
        self._compressor = compressor or bgzf.HostCompressor(executor, SPILL_LEVEL)
        self._range_bytes = SPILL_RANGE_BYTES
        # A device's groups must not take more than the share that is left beside the records.
        fitting = memory // (LARGE_RANGES_SHARE * SPILL_RANGE_BYTES * _RANGE_COPIES)
        wanted = self._ranges_in_work(n_threads, SPILL_RANGE_BYTES)
        self._ahead = min(wanted, max(n_threads + 2, fitting))
        ahead = self._ranges_in_work(n_threads, RANGE_BYTES)
        if ahead * RANGE_BYTES * _RANGE_COPIES * LARGE_RANGES_SHARE <= memory:
            self._range_bytes, self._ahead = RANGE_BYTES, ahead
        self._memory = memory
        self._runs: list[Run] = []
        self._n_bytes = 0
        self._spilled: list[SpilledRun] = []
        self._n_merged = 0  # runs of the input in these
        self._spill: _Spill | None = None
        self.n_records = 0
        self.longest_clip = 0
        """Most clipped bases before the alignment of a record."""

    def _ranges_in_work(self, n_threads: int, range_bytes: int) -> int:
        """Return how many ranges keep threads and compressor busy."""
        blocks = range_bytes // BLOCK_BYTES + 1
        groups = min(self._compressor.least_pending, _MOST_GROUPS)
        return n_threads + 2 + -(-groups * self._compressor.blocks_per_task // blocks)

    def add(self, run: Run) -> None:
        """Add the next run of the input."""
        self.n_records += len(run.keys)
        self.longest_clip = max(self.longest_clip, run.longest_clip)
        self._take_spilled(wait=False)
        if self._open_store is not None and self._n_bytes + run.n_bytes > self._most:
            self._store, self._open_store = self._open_store(), None
            runs, self._runs, self._n_bytes = self._runs, [], 0
            for earlier in runs:
                self._put(earlier)
        self._put(run)

    @property
    def _most(self) -> int:
        """Most bytes of the runs that are kept; as many more may be on their way elsewhere."""
        return max((self._memory - self._n_bytes_of_stored) // 2, 1)

    def _put(self, run: Run) -> None:
        """Have a run stored, or keep it, which may send those kept to the file."""
        if self._store is not None:
            if self._has_stored(run):
                return
            self._store_is_full = True
        if self._n_bytes and self._n_bytes + run.n_bytes > self._most:
            self._take_spilled(wait=True)
            self._spill = _Spill(
                self._runs, self._file, self._executor, self._compressor, self._ahead,
                self._range_bytes,
            )  # fmt: skip
            self._runs, self._n_bytes = [], 0
        self._runs.append(run)
        self._n_bytes += run.n_bytes

    def _has_stored(self, run: Run) -> bool:
        """Have the records of a run stored; return False if there is no room."""
        assert self._store is not None
        n_bytes = run.n_bytes_of_rows
        if self._store_is_full or self._n_bytes_of_stored + n_bytes > self._memory // 2:
            return False  # what comes later must not be stored either
        offset = self._n_bytes_in_store
        if offset + len(run.data) > self._store.n_bytes:
            return False
        self._n_bytes_in_store += len(run.data)
        while self._storing and (
            self._storing[0][0].done() or self._n_bytes_storing + len(run.data) > self._most
        ):
            self._end_storing()
        task = self._executor.submit(partial(self._store.write, run.data, offset))
        self._storing.append((task, len(run.data)))
        self._n_bytes_storing += len(run.data)
        self._n_bytes_of_stored += n_bytes
        self._stored.append(StoredRun(run._replace(data=np.empty(0, np.uint8)), offset))
        return True

    def _end_storing(self) -> None:
        """Wait until the records that were sent first are stored."""
        task, n_bytes = self._storing.popleft()
        self._n_bytes_storing -= n_bytes
        task.result()

    def restore(self, merged: list[SpilledRun], n_merged: int, longest_clip: int) -> None:
        """Begin with runs that lie in the temporary file; see :class:`RunsSoFar`."""
        self._spilled, self._n_merged = list(merged), n_merged
        self.longest_clip = longest_clip
        self.n_records = sum(int(run.rows.sum()) for run in merged)

    def so_far(self) -> RunsSoFar:
        """Return what has been added."""
        being_merged = [] if self._spill is None else self._spill.runs
        return RunsSoFar(
            list(self._spilled), self._n_merged, being_merged + self._runs, self.longest_clip
        )

    def finish(self, open_inflater: Callable[[], Inflater | None] | None = None) -> SortedRuns:
        """Return all runs.

        Parameters
        ----------
        open_inflater
            Returns the device that helps to decompress the temporary file; called if there is one.
        """
        runs, self._runs = self._runs, []
        while self._storing:
            self._end_storing()
        if self._spill is not None:
            written, rest = self._spill.stop()
            self._spilled.append(written)
            self._spill = None
            runs = rest + runs  # in the order of the input
        RECYCLER.clear()  # the room of runs in the file is needed for ranges
        inflater = open_inflater() if self._spilled and open_inflater is not None else None
        store = self._store if self._stored else None
        return SortedRuns(self._file, self._spilled, runs, inflater, self._stored, store)

    def cancel(self) -> None:
        """Drop tasks that have not begun."""
        wait([task for task, _ in self._storing if not task.cancel()])
        if self._spill is not None:
            self._spill.cancel()

    def _take_spilled(self, *, wait: bool) -> None:
        """Take note of the run that has gone to the file; with `wait`, when it has."""
        if self._spill is not None and (wait or self._spill.result.done()):
            self._spilled.append(self._spill.result.result())
            self._n_merged += len(self._spill.runs)
            self._spill = None
