"""The process of one device, where a run has several: the stages and nvCOMP, served to the run.

Threads of one process that queue kernels for several devices wait for the GIL most of their time:
two devices did a tenth to a third more than one. In processes of their own they do 1.8 times as
much. The run's process (:mod:`mapper.mapping.device_servers`) reads, parses and writes; reads,
records and blocks lie in memory that both share.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from copy import deepcopy
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from mapper.batch import EncodedBatch, ReadBatch
from mapper.batch_ops import ResultSlice
from mapper.errors import DeviceError
from mapper.index.index import Index
from mapper.io.bgzf import Spans
from mapper.mapping.device_batches import SWITCH_SECONDS
from mapper.mapping.device_servers import DeflaterSize, NamesRef, Opened
from mapper.mapping.stages import Aligned, LongChained, LongReads
from mapper.mapping.stages_cuda import DeviceNames, DeviceStages, NamesOn
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import InsertSizeModel
from mapper.pair.records import Names
from mapper.parallel.pool import fork_join, thread_pool
from mapper.parallel.remote_calls import ServedConnection
from mapper.params import MapParams

MOST_CALLS = 32
"""Calls at a time: those of the streams that align and of those that compress."""


class _DeviceServer:
    """The functions that are served."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._for_host: Executor
        self._stages: DeviceStages
        self._names: dict[int, DeviceNames] = {}
        self._numbers = count()
        self._held, self._deflating = ExitStack(), ExitStack()
        self._deflater: Any = None

    def open(self, index: Index | str, n_sharing: int, n_threads: int, level: int) -> Opened:
        """Bring an index, or that of a path, to the device.

        Parameters
        ----------
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
        else:
            index = deepcopy(index)  # the memory of arguments is the caller's
            _make_read_only((index.fm, index.contigs, index.unmasked_planes))
        self._stages = stages = DeviceStages(index, self._ordinal)
        return Opened(len(stages.streams), stages.batch_bases, stages.index_bytes)

    def take_names(self, names: Names) -> int:
        """Keep names for records; return their number."""
        number = next(self._numbers)
        self._names[number] = self._stages.device_names(deepcopy(names))
        return number

    def warm_up(self, reads: ReadBatch, params: MapParams, names: NamesRef | None) -> Aligned:
        """Align a few reads in every way that a run does."""
        return self._stages.warm_up(reads, params, self._names_on(names))

    def align_batches(
        self, batches: Sequence[ReadBatch], params: MapParams, model: InsertSizeModel | None,
        names: NamesRef | None,
    ) -> tuple[list[ResultSlice | EncodedBatch], dict[str, Any]]:  # fmt: skip
        """Do as :meth:`DeviceStages.align_batches`; return the statistics, too."""
        stats = RunStats()
        # In memory that is not shared: what is shared has small pages, and locking these takes the
        # driver so long that all streams wait.
        with stats.stage("pack"):
            batches = [self._stages.lock_pages(reads) for reads in batches]
        found = self._stages.align_batches(batches, params, stats, model, self._names_on(names))
        return found, stats.saved()

    def chain_long_batches(
        self, batches: Sequence[LongReads], params: MapParams
    ) -> tuple[list[list[LongChained]], dict[str, Any]]:
        """Do as :meth:`DeviceStages.chain_long_batches`; return the statistics, too."""
        stats = RunStats()
        run: Callable[[Sequence[Callable[[], Any]]], list[Any]] = partial(
            fork_join, executor=self._for_host
        )
        return self._stages.chain_long_batches(batches, params, stats, run), stats.saved()

    def free_page_locked(self) -> None:
        """Free page-locked memory that nothing uses now."""
        self._stages.free_page_locked()

    def open_deflater(self, level: int) -> DeflaterSize | None:
        """Open the device's compressor; None if its memory is too small."""
        from mapper.cuda import nvcomp
        from mapper.io.bgzf_cuda import device_deflater

        codec = nvcomp.load()
        if codec is None:
            raise DeviceError("nvCOMP, which the run's process has found, cannot be loaded")
        deflater = device_deflater(codec, self._ordinal, level)
        self._deflater = self._deflating.enter_context(deflater)
        if self._deflater is None:
            return None
        return DeflaterSize(self._deflater.blocks_per_task, self._deflater.least_pending // 2)

    def close_deflater(self) -> None:
        """Close the compressor."""
        self._deflating.close()

    def compress(self, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """Return the blocks (uint8) of pieces of data (uint8)."""
        return np.frombuffer(self._deflater.compress([piece.data for piece in pieces]), np.uint8)

    def compress_spans(self, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Return the blocks (uint8) of data (uint8) in pieces with these bounds (int64)."""
        return np.frombuffer(self._deflater.compress(Spans([(data, bounds)])), np.uint8)

    def _names_on(self, names: NamesRef | None) -> NamesOn | None:
        if names is None:
            return None
        return partial(self._names[names.number].on, read_group=names.read_group)


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
    # The caller gets the user's signals, and ends this process.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    descriptor, number_of_process, ordinal = map(int, arguments)
    sys.setswitchinterval(SWITCH_SECONDS)
    from mapper.cuda.memory import keep_results_in

    connection = ServedConnection(descriptor, number_of_process)
    logging.getLogger("mapper").addHandler(_ToCaller(connection))
    keep_results_in(connection.memory.allocate)
    _make_context(ordinal)
    with thread_pool(MOST_CALLS) as executor:
        server = _DeviceServer(ordinal)
        functions = {
            function.__name__: function
            for function in (
                server.open, server.take_names, server.warm_up, server.align_batches,
                server.chain_long_batches, server.free_page_locked, server.open_deflater,
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
