"""Keep the records of sorted runs in the memory of a device, which brings them back in order.

A device that maps has memory to spare that the host may lack. Records go there as they come, run by
run, and no thread merges or compresses them on the way. A range of the order is then copied
together on the device, record by record, and comes down sorted: the host sorts only keys.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from mapper.cuda.api import DRIVER, cuda, device_context, kernel, sleeping_event, stay_on
from mapper.cuda.launch import BoundKernel, Calls
from mapper.cuda.memory import (
    Workspace,
    device_memory,
    first_items,
    free_share,
    page_locked,
    priority_stream,
    total_bytes,
)
from mapper.errors import DeviceMemoryError
from mapper.io.bam_writer import FIXED_BYTES
from mapper.jit.accelerate import driver
from mapper.jit.simd import copy
from mapper.sorting.ranges import RANGE_BYTES
from mapper.sorting.runs import SortedRuns, StoredRun, run_of_bytes
from mapper.sorting.spill_file import SpillFile

log = logging.getLogger(__name__)

LEFT_SHARE = 0.2
"""Share of a device's memory that stays free, for batches that need more than those before."""

MOST_SHARE = 0.5
"""Share of it that records take at most: others may want to use the device."""

LEAST_BYTES = 1 << 30
"""Room that is worth while: for less, the temporary file is needed soon."""

_STAGED_BYTES = 16 << 20
"""Of a page-locked buffer through which records go up."""

_BYTES_PER_ROW = 80
"""Of a range: a record has two rows. A stream gets room for more where records are shorter."""

_LANES = 32  # of a record
_BLOCK = 256


@kernel(_BLOCK)
def _bring_together(records, rows, n, out):
    """Copy each record from its offset to its start in `out`; a warp does one.

    `rows` holds the offsets of `n` records, then their starts, then the end of the last.
    """
    record = cuda.blockIdx.x * (_BLOCK // _LANES) + cuda.threadIdx.x // _LANES
    if record >= n:
        return
    source, start = rows[record], rows[n + record]
    for i in range(cuda.threadIdx.x % _LANES, rows[n + record + 1] - start, _LANES):
        out[start + i] = records[source + i]


@driver
def _stage(data, at, staged, n):
    """Copy ``data[at:at + n]`` to the start of `staged`, without the GIL."""
    copy(data, at, staged, np.int64(0), n)


@driver
def _stage_rows(offsets, starts, rows):
    """Write the rows that the kernel takes, without the GIL."""
    n = len(offsets)
    for i in range(n):
        rows[i] = offsets[i]
    for i in range(n + 1):
        rows[n + i] = starts[i]


class _Stream:
    """A stream, with the arrays that one thread at a time uses with it."""

    def __init__(self, ordinal: int, records: Any) -> None:
        self._ordinal, self._records = ordinal, records
        self.space = Workspace(stream=priority_stream())
        self._calls = Calls(self.space.stream, sleeping_event())
        self._staged = self.space.pinned("staged", _STAGED_BYTES, np.uint8)
        self._reserve(2 * RANGE_BYTES, 2 * RANGE_BYTES // _BYTES_PER_ROW)

    def _reserve(self, n_bytes: int, n_rows: int) -> None:
        """Have room for a range of so many bytes, with so many rows."""
        self._out = self.space.device("range", n_bytes, np.uint8)
        self._rows = self.space.device("rows", n_rows, np.int64)
        self._host_rows = self.space.pinned("rows", n_rows, np.int64)
        self._kernel = BoundKernel(
            _bring_together, self.space.stream, self._records, self._rows, 0, self._out
        )

    def write(self, data: np.ndarray, offset: int) -> None:
        for at in range(0, len(data), _STAGED_BYTES):
            n = min(_STAGED_BYTES, len(data) - at)
            _stage(data, at, self._staged, n)
            self._calls.copy_in(self._records, offset + at, self._staged[:n])
            self._calls.wait()

    def gather(self, offsets: np.ndarray, starts: np.ndarray) -> np.ndarray:
        n, total = len(offsets), int(starts[-1])
        found = page_locked(total, np.dtype(np.uint8), "range")
        if total == 0:
            return found
        if total > len(self._out) or 2 * n + 1 > len(self._rows):
            # An eighth more: ranges are of similar size, and to make room takes the device's time.
            n_bytes, n_rows = total + (total >> 3), 2 * n + 1 + (n >> 2)
            with device_context(self._ordinal):
                self._reserve(max(n_bytes, len(self._out)), max(n_rows, len(self._rows)))
        rows = self._host_rows[: 2 * n + 1]
        _stage_rows(offsets, starts, rows)
        self._calls.copy_in(self._rows, 0, rows)
        self._calls.launch(self._kernel, -(-n * _LANES // _BLOCK), {2: n})
        self._calls.copy_out(found, self._out)
        self._calls.wait()
        return found


class DeviceStore:
    """Room for records on a device; see :class:`mapper.sorting.runs.RecordStore`.

    Parameters
    ----------
    n_streams
        Threads that it serves at a time; others wait.
    n_bytes
        Room for records.

    Raises
    ------
    DeviceMemoryError
        If the device has too little memory.
    """

    def __init__(self, ordinal: int, n_streams: int, n_bytes: int) -> None:
        self._ordinal = ordinal
        self._n_streams = n_streams
        self.n_bytes = n_bytes
        self._idle: SimpleQueue[_Stream] = SimpleQueue()
        with device_context(ordinal):
            with device_memory(f"room for {n_bytes / 1e9:.1f} GB of sorted records"):
                self._memory = cuda.device_array(n_bytes, np.uint8)
            records = first_items(self._memory, n_bytes, np.dtype(np.uint8))
            for _ in range(n_streams):
                self._idle.put(_Stream(ordinal, records))

    def write(self, data: np.ndarray, offset: int) -> None:
        """Write records at an offset."""
        with self._idle_stream() as stream:
            stream.write(data, offset)

    def gather(self, offsets: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Return records that lie at some offsets, one behind another."""
        with self._idle_stream() as stream:
            return stream.gather(offsets, starts)

    def close(self) -> None:
        """Free the memory, when the calls that have begun are done."""
        with device_context(self._ordinal):
            for _ in range(self._n_streams):
                self._idle.get().space.release()
            with DRIVER:
                self._memory = None

    @contextmanager
    def _idle_stream(self) -> Iterator[_Stream]:
        stream = self._idle.get()
        try:
            stay_on(self._ordinal)
            yield stream
        finally:
            self._idle.put(stream)


def compile_store(ordinal: int, directory: Path) -> None:
    """Compile what sorts by the memory of a device, by sorting one record."""
    record = np.zeros(FIXED_BYTES, np.uint8)
    record[0] = FIXED_BYTES - 4
    run = run_of_bytes(record)
    store = DeviceStore(ordinal, 1, len(record))
    store.write(run.data, 0)
    stored = [StoredRun(run._replace(data=record[:0]), 0)]
    for one in SortedRuns(SpillFile(directory), [], [], None, stored, store).ranges():
        one.load()
    store.close()


@contextmanager
def device_store(ordinal: int, n_streams: int) -> Iterator[DeviceStore | None]:
    """Open room for records on a device, in most of its free memory; None if that is little."""
    with device_context(ordinal):
        total = total_bytes()
        n_bytes = min(free_share() - int(LEFT_SHARE * total), int(MOST_SHARE * total))
    store = None
    if n_bytes >= LEAST_BYTES:
        try:
            store = DeviceStore(ordinal, n_streams, n_bytes)
        except (DeviceMemoryError, MemoryError) as error:  # of the host, in the simulator
            log.debug("%s; records go to the temporary file", error)
    if store is None:
        yield None
        return
    log.info("records beyond the host's memory go to that of the device: %.1f GB", n_bytes / 1e9)
    try:
        yield store
    finally:
        store.close()
