"""The process of one device, where a run has several: the stages and nvCOMP, served to the run.

Threads of one process that queue kernels for several devices wait for the GIL most of their time:
two devices did a tenth to a third more than one, and up to 1.8 times as much in processes of their
own. The run's process (:mod:`mapper.mapping.device_servers`) reads, parses and writes; reads,
records and blocks lie in memory that both share.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mapper.batch import EncodedBatch, ReadBatch
from mapper.batch_ops import ResultSlice
from mapper.errors import DeviceError
from mapper.index.index import Index
from mapper.io.batch_reader import FastqText
from mapper.io.bgzf import Spans
from mapper.mapping.device_batches import SWITCH_SECONDS
from mapper.mapping.device_servers import DeflaterSize, NamesRef, Opened
from mapper.mapping.stages import Aligned, EncodedReads, LeftToHost, LongChained, LongReads
from mapper.mapping.stages_cuda import DeviceNames, DeviceStages, NamesOn
from mapper.mapping.stats import ON_CPU, RunStats
from mapper.pair.insert_size import InsertSizeModel
from mapper.pair.records import Names
from mapper.parallel.pool import fork_join, thread_pool
from mapper.parallel.remote_calls import ServedConnection, leave_signals_to_caller
from mapper.params import MapParams

if TYPE_CHECKING:
    from mapper.io.bgzf_cuda import DeviceDeflater

MOST_CALLS = 32
"""Calls that are answered at a time: each stream that aligns or compresses needs one."""


class _DeviceServer:
    """The functions that are served."""

    def __init__(self, ordinal: int, connection: ServedConnection) -> None:
        self._ordinal, self._connection = ordinal, connection
        self._held = ExitStack()
        self._for_host: Executor
        self._stages: DeviceStages
        # By numbers of the caller's:
        self._names: dict[int, DeviceNames] = {}
        self._deflaters: dict[int, tuple[ExitStack, DeviceDeflater]] = {}

    def open(self, index: Index | str, n_sharing: int, n_threads: int, level: int) -> Opened:
        """Bring an index to the device.

        Parameters
        ----------
        index
            Its path; or itself, in the caller's memory, where it stays.
        n_sharing
            Processes that use the device.
        n_threads
            For what the host does of long reads.
        level
            Of messages that are wanted.
        """
        from mapper.cuda import memory

        logging.getLogger("mapper").setLevel(level)
        self._for_host = self._held.enter_context(thread_pool(n_threads))
        self._held.enter_context(memory.shared_by(n_sharing))
        if isinstance(index, str):
            index = Index.open(index)
        _make_read_only((index.fm, index.contigs, index.unmasked_planes))
        self._stages = stages = DeviceStages(index, self._ordinal)
        return Opened(len(stages.streams), stages.batch_bases, stages.index_bytes)

    def take_names(self, number: int, names: Names) -> None:
        """Keep names for records."""
        # The memory of arguments is the caller's.
        self._names[number] = self._stages.device_names(deepcopy(names))

    def warm_up(
        self, reads: ReadBatch, params: MapParams, names: NamesRef | None, parses_fastq: bool
    ) -> Aligned:
        """Align a few reads in every way that a run does."""
        return self._stages.warm_up(reads, params, self._names_on(names), parses_fastq)

    def align_batches(
        self, batches: Sequence[ReadBatch], params: MapParams, model: InsertSizeModel | None,
        names: NamesRef | None, n_on_cpu: int,
    ) -> tuple[list[ResultSlice | EncodedBatch], dict[str, Any]]:  # fmt: skip
        """Do as :meth:`DeviceStages.align_batches`; return the statistics, too.

        `n_on_cpu` reads have been left to the CPU before, of which the user knows.
        """
        stats = RunStats(counts={ON_CPU: n_on_cpu})
        # In memory that is not shared: what is shared has small pages, and locking these takes the
        # driver so long that all streams wait.
        with stats.stage("pack"):
            batches = [self._stages.lock_pages(reads) for reads in batches]
        found = self._stages.align_batches(batches, params, stats, model, self._names_on(names))
        return found, _counted(stats, n_on_cpu)

    def map_fastq(
        self, batches: Sequence[FastqText], params: MapParams, model: InsertSizeModel,
        names: NamesRef,
    ) -> tuple[list[EncodedReads] | LeftToHost, dict[str, Any]]:  # fmt: skip
        """Do as :meth:`DeviceStages.map_fastq`; see :meth:`align_batches`."""
        stats = RunStats()
        names_on = self._names_on(names)
        assert names_on is not None
        with stats.stage("pack"):
            batches = [batch._replace(texts=tuple(map(self._locked, batch.texts)))
                       for batch in batches]  # fmt: skip
        found = self._stages.map_fastq(batches, params, stats, model, names_on)
        return found, _counted(stats, 0)

    def _locked(self, text: np.ndarray) -> np.ndarray:
        there = self._stages.input_memory(len(text))
        there[:] = text
        return there

    def chain_long_batches(
        self, batches: Sequence[LongReads], params: MapParams, n_on_cpu: int
    ) -> tuple[list[list[LongChained]], dict[str, Any]]:
        """Do as :meth:`DeviceStages.chain_long_batches`; see :meth:`align_batches`."""
        stats = RunStats(counts={ON_CPU: n_on_cpu})
        run: Callable[[Sequence[Callable[[], Any]]], list[Any]] = partial(
            fork_join, executor=self._for_host
        )
        found = self._stages.chain_long_batches(batches, params, stats, run)
        return found, _counted(stats, n_on_cpu)

    def free_memory(self) -> None:
        """Free page-locked and shared memory that nothing uses now."""
        self._stages.free_page_locked()
        self._connection.memory.copies.clear()
        self._connection.memory.forget_freed()

    def open_deflater(self, number: int, level: int) -> DeflaterSize | None:
        """Open a compressor of the device; None if its memory is too small."""
        from mapper.cuda import nvcomp
        from mapper.io.bgzf_cuda import device_deflater

        codec = nvcomp.load()
        if codec is None:
            raise DeviceError("nvCOMP, which the run's process has found, cannot be loaded")
        opened = ExitStack()
        deflater = opened.enter_context(device_deflater(codec, self._ordinal, level))
        if deflater is None:
            return None
        self._deflaters[number] = opened, deflater
        return DeflaterSize(deflater.blocks_per_task, deflater.n_lanes)

    def close_deflater(self, number: int) -> None:
        """Close a compressor, if it was opened."""
        if number in self._deflaters:
            opened, _ = self._deflaters.pop(number)
            opened.close()

    def compress(self, number: int, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """Return the blocks (uint8) of pieces of data (uint8)."""
        _, deflater = self._deflaters[number]
        return np.frombuffer(deflater.compress([piece.data for piece in pieces]), np.uint8)

    def compress_spans(self, number: int, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Return the blocks (uint8) of data (uint8) in pieces with these bounds (int64)."""
        _, deflater = self._deflaters[number]
        return np.frombuffer(deflater.compress(Spans([(data, bounds)])), np.uint8)

    def _names_on(self, names: NamesRef | None) -> NamesOn | None:
        if names is None:
            return None
        return partial(self._names[names.number].on, read_group=names.read_group)


def _counted(stats: RunStats, n_on_cpu: int) -> dict[str, Any]:
    """Return the statistics of one call, without the `n_on_cpu` reads counted before it."""
    stats.count(**{ON_CPU: -n_on_cpu})
    saved = stats.saved()
    return saved | {"counts": {name: n for name, n in saved["counts"].items() if n}}


def _make_read_only(thing: Any) -> None:
    """Make all arrays of nested tuples read-only, as those of an index are."""
    if isinstance(thing, np.ndarray):
        thing.flags.writeable = False
    elif isinstance(thing, tuple):
        for item in thing:
            _make_read_only(item)


class _ToCaller(logging.Handler):
    def __init__(self, connection: ServedConnection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        self._connection.say(record.levelno, record.getMessage())


def main(arguments: Sequence[str]) -> None:
    """Serve until the caller closes the connection, or ends.

    Parameters
    ----------
    arguments
        Descriptor of the connection, number of the process, and device.
    """
    leave_signals_to_caller()
    descriptor, number_of_process, ordinal = map(int, arguments)
    sys.setswitchinterval(SWITCH_SECONDS)
    from mapper.cuda.memory import keep_results_in

    connection = ServedConnection(descriptor, number_of_process)
    logging.getLogger("mapper").addHandler(_ToCaller(connection))
    keep_results_in(connection.memory.allocate)
    _make_context(ordinal)
    with thread_pool(MOST_CALLS) as executor:
        server = _DeviceServer(ordinal, connection)
        functions = {
            function.__name__: function
            for function in (
                server.open, server.take_names, server.warm_up, server.align_batches,
                server.map_fastq,
                server.chain_long_batches, server.free_memory, server.open_deflater,
                server.close_deflater, server.compress, server.compress_spans,
            )
        }  # fmt: skip
        connection.serve(functions, executor)
        sys.stderr.flush()
        os._exit(0)  # a call may be under way, and nobody waits for it


def _make_context(ordinal: int) -> None:
    """Make the device's context, while the caller imports and opens its files."""
    from mapper.cuda.api import device_context

    # There may be no such device, of which the caller tells.
    with suppress(Exception), device_context(ordinal):
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
