"""Several devices of a run, each with a process of its own: the run's side of it.

See :mod:`mapper.mapping.device_server`. :class:`DeviceServers` takes the place of
:class:`mapper.mapping.stages_cuda.DeviceStages`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import EncodedBatch, ReadBatch
from mapper.batch_ops import ResultSlice
from mapper.cuda.devices import named_ordinals
from mapper.errors import ResourceError
from mapper.index.index import Index
from mapper.io.batch_reader import FastqText
from mapper.io.bgzf import BLOCK_BYTES, Pieces, Spans, copy_spans
from mapper.jit.accelerate import is_compiled
from mapper.mapping.memory_plan import DEVICE_PROCESS_BYTES, PROCESS_BYTES
from mapper.mapping.stages import Aligned, EncodedReads, LeftToHost, LongChained, LongReads
from mapper.mapping.stats import ON_CPU, RunStats
from mapper.pair.insert_size import InsertSizeModel
from mapper.pair.records import Names
from mapper.parallel.buffers import LEAST_BYTES
from mapper.parallel.pool import thread_pool
from mapper.parallel.remote_calls import Server, Servers
from mapper.params import MapParams

log = logging.getLogger(__name__)

SERVER_BYTES = PROCESS_BYTES + DEVICE_PROCESS_BYTES
"""Memory of a device's process, beside the index and what it shares."""

_KERNELS = "mapper.extend.cuda_kernels"
"""Compiled with the first reads that a device aligns."""


class Opened(NamedTuple):
    """What is to be known of a device's stages."""

    n_streams: int
    batch_bases: int
    index_bytes: int


class DeflaterSize(NamedTuple):
    """How a device's compressor wants its blocks; see :class:`mapper.io.bgzf.Compressor`."""

    blocks_per_task: int
    n_lanes: int


class NamesRef(NamedTuple):
    """Names that the servers have, for records of reads with this read group, or with theirs."""

    number: int
    read_group: bytes


class ServedNames:
    """The names that records hold, which all servers have."""

    def __init__(self, number: int) -> None:
        self.number = number

    def on(self, ordinal: int, read_group: bytes = b"") -> NamesRef:
        """Return a reference to the names for a call, as :meth:`DeviceNames.on` returns names."""
        return NamesRef(self.number, read_group)


_STARTED: dict[tuple[int, ...], Servers] = {}
"""Processes of devices that no session has taken yet."""


def _start(ordinals: Sequence[int]) -> Servers:
    servers = [([str(ordinal)], f"cuda:{ordinal}") for ordinal in ordinals]
    return Servers("mapper.mapping.device_server", servers)


def begin_starting(text: str) -> None:
    """Begin to start the processes of several devices that a run names, while it opens its files.

    Problems are left to :func:`mapper.cuda.devices.choose_device`, and to the session.

    Parameters
    ----------
    text
        Value of ``--device``.
    """
    ordinals = named_ordinals(text)
    if len(ordinals) > 1:
        with suppress(ResourceError):
            _STARTED[ordinals] = _start(ordinals)


def end_unused() -> None:
    """End the processes that no session has taken."""
    while _STARTED:
        _, servers = _STARTED.popitem()
        servers.close()


class DeviceServers:
    """An index on several devices, and the stages there, each in a process.

    Parameters
    ----------
    path
        Of the index; None for one that has no files, which is then copied to shared memory.
    ordinals
        Devices, among the visible ones; one named twice works as two.
    n_sharing
        Runs that share each device.
    threads
        Of the run; for long reads, these processes take half as many beside them.

    Raises
    ------
    DeviceMemoryError
        If the index does not fit.
    ResourceError
        If a process cannot be started, or ends.
    """

    def __init__(
        self, index: Index, path: str | None, ordinals: Sequence[int], n_sharing: int, threads: int
    ) -> None:
        self.host_index = index
        key = tuple(ordinals)
        self._group = _STARTED.pop(key) if key in _STARTED else _start(ordinals)
        self._aligning = _Load(self._group)
        self._numbers = count()
        self._names: dict[int, tuple[Names, ServedNames]] = {}  # by identity
        self._shared_index: Index | None = None
        # Tasks of the host for long reads, beside those of the run's pool.
        for_host = max(1, threads // (2 * len(ordinals)))
        try:
            if path is None:  # once for all servers, which use it where it lies
                self._shared_index = self._group.memory.shared(index)
            opening = [
                server.begin(
                    "open", path or self._shared_index, n_sharing * ordinals.count(ordinal),
                    for_host, log.getEffectiveLevel(),
                )
                for server, ordinal in zip(self._group.servers, ordinals, strict=True)
            ]  # fmt: skip
            opened: list[Opened] = [future.result() for future in opening]
        except BaseException:
            self.close()
            raise
        self.streams = [server for server, of in zip(self._group.servers, opened, strict=True)
                        for _ in range(of.n_streams + 1)]  # fmt: skip
        """The server of each batch under way: those of its streams, and one that is copied to where
        the device fetches it."""
        self.batch_bases = min(of.batch_bases for of in opened)
        self.index_bytes = max(of.index_bytes for of in opened)
        self.process_bytes = len(opened) * SERVER_BYTES
        if path is None:
            self.process_bytes += index.n_bytes

    def close(self) -> None:
        """End the processes."""
        self._group.close()

    def lock_pages(self, reads: ReadBatch) -> ReadBatch:
        """Return a batch whose long columns lie in shared memory, and not locked yet."""
        columns = reads.bases, reads.quals, reads.names
        room = _shared(self._group, sum(len(column) for column in columns))
        there = []
        at = 0
        for column in columns:
            there.append(room[at : at + len(column)])
            there[-1][:] = column
            at += len(column)
        return reads._replace(bases=there[0], quals=there[1], names=there[2])

    def input_memory(self, n_bytes: int) -> np.ndarray:
        """Return shared memory (uint8) for text."""
        return _shared(self._group, n_bytes)

    def free_page_locked(self) -> None:
        """Free shared and page-locked memory that nothing uses now."""
        self._group.memory.copies.clear()
        self._group.memory.forget_freed()
        self._call_all("free_memory")

    def device_names(self, names: Names) -> ServedNames:
        """Return names of which :meth:`align_batches` takes :meth:`ServedNames.on`."""
        if id(names) not in self._names:
            served = ServedNames(next(self._numbers))
            self._call_all("take_names", served.number, names)
            self._names[id(names)] = names, served
        return self._names[id(names)][1]

    def warm_up(
        self, reads: ReadBatch, params: MapParams,
        names_on: Callable[[int], NamesRef] | None = None, parses_fastq: bool = False,
    ) -> Aligned:  # fmt: skip
        """Align a few reads on all devices: see :func:`mapper.mapping.device_batches`.

        Where there is no compiled code, the first compiles it, and the others take it.
        """
        names = None if names_on is None else names_on(0)
        if not is_compiled(_KERNELS):
            self._group.servers[0].call("warm_up", reads, params, names, parses_fastq)
        aligned: Aligned = self._call_all("warm_up", reads, params, names, parses_fastq)[0]
        return aligned

    def align_batches(
        self, batches: Sequence[ReadBatch], params: MapParams, stats: RunStats,
        model: InsertSizeModel | None = None, names_on: Callable[[int], NamesRef] | None = None,
    ) -> list[ResultSlice | EncodedBatch]:  # fmt: skip
        """Align batches as one on the device with most time for it.

        See :meth:`mapper.mapping.stages_cuda.DeviceStages.align_batches`.
        """
        names = None if names_on is None else names_on(0)
        with self._aligning.on_least_busy() as server:
            found, counted = server.call(
                "align_batches", batches, params, model, names, stats.counts.get(ON_CPU, 0)
            )
        stats.add(counted)
        shares: list[ResultSlice | EncodedBatch] = found
        return shares

    def map_fastq(
        self, batches: Sequence[FastqText], params: MapParams, stats: RunStats,
        model: InsertSizeModel, names_on: Callable[[int], NamesRef],
    ) -> list[EncodedReads] | LeftToHost:  # fmt: skip
        """Parse and map short reads on the device with most time for it.

        See :meth:`mapper.mapping.stages_cuda.DeviceStages.map_fastq`.
        """
        with self._aligning.on_least_busy() as server:
            found, counted = server.call("map_fastq", batches, params, model, names_on(0))
        stats.add(counted)
        made: list[EncodedReads] | LeftToHost = found
        return made

    def chain_long_batches(
        self, batches: Sequence[LongReads], params: MapParams, stats: RunStats, run: Any
    ) -> list[list[LongChained]]:
        """Seed and chain long reads on the device with most time for it.

        See :meth:`mapper.mapping.stages_cuda.DeviceStages.chain_long_batches`; what the host does
        of it is done in the device's process, and `run` not used.
        """
        with self._aligning.on_least_busy() as server:
            found, counted = server.call(
                "chain_long_batches", batches, params, stats.counts.get(ON_CPU, 0)
            )
        stats.add(counted)
        parts: list[list[LongChained]] = found
        return parts

    @contextmanager
    def deflater(self, level: int) -> Iterator[ServedDeflater | None]:
        """Open all devices' compressors; None if the memory of one is too small."""
        number = next(self._numbers)
        try:
            sizes: list[DeflaterSize | None] = self._call_all("open_deflater", number, level)
            if any(size is None for size in sizes):
                yield None
                return
            n_lanes = sum(size.n_lanes for size in sizes if size is not None)
            n_blocks = min(size.blocks_per_task for size in sizes if size is not None)
            with thread_pool(n_lanes) as executor:
                yield ServedDeflater(self._group, number, executor, n_blocks, n_lanes, level)
        finally:
            with suppress(ResourceError):  # of a process that has ended, which the run has seen
                self._call_all("close_deflater", number)

    def _call_all(self, function: str, *arguments: Any) -> list[Any]:
        """Call a function of all servers at once; return what each returns."""
        calls = [server.begin(function, *arguments) for server in self._group.servers]
        return [call.result() for call in calls]


class ServedDeflater:
    """Compresses groups of BGZF blocks by servers; see :class:`mapper.io.bgzf.Compressor`.

    Parameters
    ----------
    number
        By which the servers know their compressors.
    executor
        Its threads wait for servers: one for each lane.
    n_blocks
        Of a group.
    n_lanes
        Groups that the servers compress at a time.
    level
        Compression level.
    """

    def __init__(
        self, group: Servers, number: int, executor: Executor, n_blocks: int, n_lanes: int,
        level: int,
    ) -> None:  # fmt: skip
        self._group, self._number, self._load = group, number, _Load(group)
        self.executor = executor
        self.level = level
        self.blocks_per_task = n_blocks
        self.least_pending = 2 * n_lanes

    def compress(self, pieces: Pieces) -> memoryview:
        """Return the blocks of data; the server in whose memory its first piece lies makes them."""
        found: np.ndarray
        if isinstance(pieces, Spans):  # thousands of them
            with self._load.on_least_busy() as server:
                found = server.call("compress_spans", self._number, *self._joined(pieces))
            return found.data
        arrays = [np.frombuffer(piece, np.uint8) for piece in pieces]
        places = filter(None, map(self._group.memory.place_of, arrays))
        if owner := next((place.key.owner for place in places if place.key.owner), 0):
            found = self._group.servers[owner - 1].call("compress", self._number, arrays)
        else:
            with self._load.on_least_busy() as server:
                found = server.call("compress", self._number, arrays)
        return found.data

    def _joined(self, pieces: Spans) -> tuple[np.ndarray, np.ndarray]:
        """Copy pieces of data to shared memory; return it, and the bounds of each (int64)."""
        spans = pieces.table
        bounds = np.append(0, np.cumsum(spans[:, 1]))
        data = _shared(self._group, int(bounds[-1]))
        starts = np.empty(int((-(-spans[:, 1] // BLOCK_BYTES)).sum()) + 1, np.int64)
        copy_spans(spans, np.zeros(len(spans), np.bool_), data, starts)
        return data, bounds


class _Load:
    """How many calls of one kind are under way at each server."""

    def __init__(self, group: Servers) -> None:
        self._lock = threading.Lock()
        self._n_calls = dict.fromkeys(group.servers, 0)

    @contextmanager
    def on_least_busy(self) -> Iterator[Server]:
        """Yield the server with fewest calls, to which the block adds one."""
        with self._lock:
            server = min(self._n_calls, key=self._n_calls.__getitem__)
            self._n_calls[server] += 1
        try:
            yield server
        finally:
            with self._lock:
                self._n_calls[server] -= 1


def _shared(group: Servers, n_bytes: int) -> np.ndarray:
    """Return memory (uint8) that the servers share."""
    try:
        # The recycler leaves fewer bytes to ordinary memory.
        return group.memory.copies.empty(max(n_bytes, LEAST_BYTES))[:n_bytes]
    except OSError as error:
        raise ResourceError(f"{n_bytes / 1e6:.1f} MB of shared memory: {error}") from error
