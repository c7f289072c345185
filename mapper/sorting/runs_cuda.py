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

from mapper.cuda.api import DRIVER, cuda, device_context, kernel, knowing_its_device
from mapper.cuda.memory import (
    Workspace,
    copy_in_at,
    copy_out,
    device_memory,
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

_LANES = 32  # of a record
_BLOCK = 256


@kernel(_BLOCK)
def _bring_together(records, offsets, starts, out):
    """Copy each record from its offset to its start in `out`; a warp does one."""
    record = cuda.blockIdx.x * (_BLOCK // _LANES) + cuda.threadIdx.x // _LANES
    if record >= len(offsets):
        return
    source, start = offsets[record], starts[record]
    for i in range(cuda.threadIdx.x % _LANES, starts[record + 1] - start, _LANES):
        out[start + i] = records[source + i]


@driver
def _stage(data, at, staged, n):
    """Copy ``data[at:at + n]`` to the start of `staged`, without the GIL."""
    copy(data, at, staged, np.int64(0), n)


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
        self._idle: SimpleQueue[Workspace] = SimpleQueue()
        with device_context(ordinal):
            with device_memory(f"room for {n_bytes / 1e9:.1f} GB of sorted records"):
                self._records = cuda.device_array(n_bytes, np.uint8)
            for _ in range(n_streams):
                space = Workspace(sleeps=True, stream=priority_stream())
                space.pinned("staged", _STAGED_BYTES, np.uint8)
                space.device("range", 2 * RANGE_BYTES, np.uint8)
                self._idle.put(space)

    def write(self, data: np.ndarray, offset: int) -> None:
        """Write records at an offset."""
        self._on_device(self._write, data, offset)

    def gather(self, offsets: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Return records that lie at some offsets, one behind another."""
        gathered: np.ndarray = self._on_device(self._gather, offsets, starts)
        return gathered

    def close(self) -> None:
        """Free the memory, when the calls that have begun are done."""
        with device_context(self._ordinal):
            for _ in range(self._n_streams):
                self._idle.get().release()
            with DRIVER:
                self._records = None

    def _on_device(self, call: Any, *args: Any) -> Any:
        space = self._idle.get()
        try:
            with device_context(self._ordinal):
                return knowing_its_device(call)(space, *args)
        finally:
            self._idle.put(space)

    def _write(self, space: Workspace, data: np.ndarray, offset: int) -> None:
        staged = space.pinned("staged", _STAGED_BYTES, np.uint8)
        for at in range(0, len(data), _STAGED_BYTES):
            n = min(_STAGED_BYTES, len(data) - at)
            _stage(data, at, staged, n)
            copy_in_at(self._records, offset + at, staged[:n], space.stream)
            space.synchronize()

    def _gather(self, space: Workspace, offsets: np.ndarray, starts: np.ndarray) -> np.ndarray:
        total = int(starts[-1])
        found = page_locked(total, np.dtype(np.uint8))
        if total:
            out = space.device("range", total, np.uint8)
            n_blocks = -(-len(offsets) * _LANES // _BLOCK)
            _bring_together.launch_blocks(
                n_blocks, space.stream, self._records, space.upload("offsets", offsets),
                space.upload("starts", starts), out,
            )  # fmt: skip
            copy_out(found, out, total, space.stream)
            space.synchronize()
        return found


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
