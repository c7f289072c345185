"""The backend of CUDA devices: batches of the host are grouped into large ones for a device.

A device needs hundreds of thousands of reads at a time, so that its slowest threads do not
count. A thread of the host works best on few: their columns stay in its caches and in memory that
the allocator has at hand, and many threads share the work between two batches of a device. So the
host parses, and may place and encode, batches of its own size, and a group of them is aligned on a
device as one:

    parse (a task each) → align the group (a thread for each stream) → finish (a task each)

Short reads in plain FASTQ whose records a device makes are parsed there, too: the host finds where
records end, to cut batches, and has no other work with them. Once a device has met anything else,
the host parses the rest of the run's reads.

Threads of the pool never wait for a device, and threads of streams do no work of the CPU's.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from mapper import batch_ops
from mapper.batch import EncodedBatch, ReadBatch
from mapper.batch_ops import ResultSlice
from mapper.io.batch_reader import FastqText
from mapper.io.input_tags import common_read_group
from mapper.mapping.backend import Backend
from mapper.mapping.memory_plan import groups_in_flight
from mapper.mapping.stages import (
    Aligned,
    AlignedBatch,
    EncodedReads,
    LeftToHost,
    LongAligned,
    LongChained,
    LongReads,
    extend_long_reads,
    long_reads_of,
)
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import InsertSizeModel
from mapper.pair.placement import tally_encoded
from mapper.pair.records import Names
from mapper.parallel.pool import MAP, READ, PriorityPool, complete, start_daemon
from mapper.params import LEAST_MEMBER_BASES, MEMBER_BASES, MapParams

if TYPE_CHECKING:
    from mapper.mapping.device_servers import DeviceServers
    from mapper.mapping.stages_cuda import DeviceStages

log = logging.getLogger(__name__)

Result = TypeVar("Result")

MEMBERS_PER_THREAD = 6
"""Large batches are made no larger than that each thread has so many of them: none is without work
for long at the end of a run. A byte of the files is taken for a base: more or less what gzip leaves
of FASTQ, half of what plain text has."""

SWITCH_SECONDS = 0.0002
"""How long a thread may keep the GIL while others wait for it. Threads that queue kernels release
it where they wait for a device, and with Python's default of 5 ms would wait as long to have it
back."""


class _SwitchInterval:
    """The interpreter's switch interval while any run needs it short."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_runs = 0
        self._before = 0.0

    def shorten(self) -> None:
        """Begin a run."""
        with self._lock:
            if self._n_runs == 0:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_SECONDS)
            self._n_runs += 1

    def restore(self) -> None:
        """End a run; the last one restores the interval."""
        with self._lock:
            self._n_runs -= 1
            if self._n_runs == 0:
                sys.setswitchinterval(self._before)


_SWITCH_INTERVAL = _SwitchInterval()


class _Parsed(NamedTuple):
    reads: ReadBatch
    parts: list[batch_ops.Part]
    long_reads: LongReads | None  # those of the last part, if that is long
    read_group: bytes | None
    """That all reads bring along, empty for none; None if they bring anything else into their
    records, or are not short reads of one kind."""


class _Member(NamedTuple):
    """A batch of a group: one that the host parses, or one that a device is to parse."""

    finish: Callable[[AlignedBatch | EncodedReads], Any]
    result: Future[Any]
    parsed: Future[_Parsed] | None
    text: FastqText | None = None
    parse: Callable[[], ReadBatch] | None = None  # for the host, if the device does not


class _Group(NamedTuple):
    members: list[_Member]
    model: InsertSizeModel | None


class CudaBackend(Backend):
    """Aligns groups of batches on devices, each in a thread of the stream that it takes."""

    def __init__(
        self, stages: DeviceStages | DeviceServers, params: MapParams, stats: RunStats
    ) -> None:
        self.n_streams = len(stages.streams)
        self.process_bytes = stages.process_bytes
        self.default_batch_bases = stages.batch_bases
        self._stages: Any = stages
        self._params, self._stats = params, stats
        self._names: Any = None  # of these stages
        self._has_group = False  # the names have a read group
        self._reads_fastq = False
        self._left: LeftToHost | None = None  # why the host is to parse what follows
        self._left_lock = threading.Lock()
        if params.longest_short > 0:
            self.input_memory = stages.input_memory
        self._pool: PriorityPool
        self._size = 1  # batches of a group
        self._open: list[_Member] = []
        self._model: InsertSizeModel | None = None
        self._kind: tuple[Any, ...] | None = None
        self._ready: SimpleQueue[_Group | None] = SimpleQueue()
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._is_started = False

    def member_bases(self, batch_bases: int, n_threads: int, input_bytes: int) -> int:
        by_input = input_bytes // (MEMBERS_PER_THREAD * n_threads)
        return min(batch_bases, MEMBER_BASES, max(LEAST_MEMBER_BASES, by_input))

    def enable_records(self, names: Names, reads_fastq: bool) -> None:
        self._has_group = len(names.read_group) > 0
        self._reads_fastq = reads_fastq and self._params.longest_short > 0
        self._names = self._stages.device_names(names)

    def _names_for(self, batches: Sequence[_Parsed]) -> Callable[[int], Any] | None:
        """Return the names for the records of a group of batches; None if the host makes these."""
        groups = {batch.read_group for batch in batches}
        group = groups.pop()
        # With two read groups each record gets both.
        if self._names is None or group is None or groups or (group and self._has_group):
            return None
        return partial(self._names.on, read_group=group)

    @property
    def parses_fastq(self) -> bool:
        return self._reads_fastq and self._left is None

    def warm_up(self, reads: ReadBatch) -> Aligned:
        if self._names is None:
            return self._stages.warm_up(reads, self._params)
        tally_encoded(EncodedBatch(np.empty(0, np.uint8), np.empty(0, np.uint8), 0))
        return self._stages.warm_up(reads, self._params, self._names.on, self._reads_fastq)

    def start(self, pool: PriorityPool, n_threads: int, group_size: int) -> None:
        self._pool, self._size = pool, group_size
        self._threads = [start_daemon(self._work, f"stream {i}") for i in range(self.n_streams)]
        _SWITCH_INTERVAL.shorten()
        self._is_started = True

    @property
    def most_pending(self) -> int:
        return self._size * groups_in_flight(self.n_streams)

    def submit(
        self, parse: Callable[[], ReadBatch], model: InsertSizeModel | None,
        finish: Callable[[AlignedBatch | EncodedReads], Result], text: FastqText | None = None,
    ) -> Future[Result]:  # fmt: skip
        """Add the next batch to a group, which starts when it is full, or by :meth:`flush`.

        A group also ends where `model` changes, or the kind of text that a device is to parse. With
        a model, mates are rescued on the device.
        """
        kind = None if text is None or model is None else self._kind_of(text)
        if self._open and (model is not self._model or kind != self._kind):
            self.flush()
        self._model, self._kind = model, kind
        if kind is None:
            # Before earlier groups are finished: a device without reads costs most.
            parsed = self._pool.submit(READ, partial(self._parse, parse))
            member = _Member(finish, Future(), parsed)
        else:
            member = _Member(finish, Future(), None, text, parse)
        self._open.append(member)
        if len(self._open) == self._size:
            self.flush()
        return member.result

    def _kind_of(self, text: FastqText) -> tuple[Any, ...] | None:
        """Return layout and read group of a batch's text; None if the host has to parse it."""
        # With two read groups each record gets both.
        if not self.parses_fastq or (text.read_group and self._has_group):
            return None
        return text.paired, len(text.texts), text.read_group

    def _parse(self, parse: Callable[[], ReadBatch]) -> _Parsed:
        """Parse a batch (a task of the pool)."""
        reads = parse()
        with self._stats.stage("pack"):
            reads = self._stages.lock_pages(reads)
        parts = batch_ops.split_mixed(reads, self._params.longest_short)
        long_reads = None
        if parts[-1].is_long:
            long_reads = long_reads_of(parts[-1].reads, self._params.long.anchors)
        read_group = None
        if len(parts) == 1 and long_reads is None:
            read_group = common_read_group(reads)
        return _Parsed(reads, parts, long_reads, read_group)

    def flush(self) -> None:
        if self._open:
            self._ready.put(_Group(self._open, self._model))
            self._open = []

    def close(self) -> None:
        if self._is_started:
            self._is_started = False
            _SWITCH_INTERVAL.restore()
        self._closed = True
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            thread.join()

    def free_memory(self) -> None:
        self._stages.free_page_locked()

    def _work(self) -> None:
        while True:
            with self._stats.stage("wait"):
                group = self._ready.get()
            if group is None or self._closed:
                return
            try:
                self._align(group)
            except BaseException as error:
                for member in group.members:
                    if not member.result.done():
                        member.result.set_exception(error)
            del group  # its reads would stay in memory while the thread waits for the next

    def _align(self, group: _Group) -> None:
        """Align a group on a device; queue the tasks that finish its batches."""
        if (made := self._map_fastq(group)) is not None:
            for member, encoded in zip(group.members, made, strict=True):
                finish = partial(member.finish, encoded)
                self._pool.submit(MAP, partial(complete, member.result, finish))
            return
        for i, member in enumerate(group.members):
            if member.parse is not None:
                parsed = self._pool.submit(READ, partial(self._parse, member.parse))
                # The text is not kept longer than it takes to parse it.
                group.members[i] = _Member(member.finish, member.result, parsed)
            del member
        with self._stats.stage("wait"):
            batches = [member.parsed.result() for member in group.members if member.parsed]
        names = None if group.model is None else self._names_for(batches)
        # A device takes pairs, or single reads; most batches are of one kind.
        shares: list[list[ResultSlice | EncodedBatch]] = [[] for _ in batches]
        for paired in (True, False):
            numbered = [
                (i, part.reads)
                for i, batch in enumerate(batches)
                for part in batch.parts
                if part.reads.paired == paired and not part.is_long
            ]
            if numbered:
                found = self._stages.align_batches(
                    [reads for _, reads in numbered], self._params, self._stats, group.model, names
                )
                for (i, _), share in zip(numbered, found, strict=True):
                    shares[i].append(share)
        long_reads = [batch.long_reads for batch in batches if batch.long_reads is not None]
        chained: Iterator[list[LongChained]] = iter(())
        if long_reads:
            chained = iter(
                self._stages.chain_long_batches(
                    long_reads, self._params, self._stats, self._run_by_pool
                )
            )
        for member, batch, own in zip(group.members, batches, shares, strict=True):
            long_parts = next(chained) if batch.long_reads is not None else []
            call = partial(
                self._finish, member.finish, batch, own, long_parts, group.model is not None
            )
            self._pool.submit(MAP, partial(complete, member.result, call))

    def _map_fastq(self, group: _Group) -> list[EncodedReads] | None:
        """Map a group from its text on a device; return None if the host is to parse it."""
        texts = [member.text for member in group.members if member.text is not None]
        if not texts:
            return None
        assert group.model is not None
        names = partial(self._names.on, read_group=texts[0].read_group)
        made: list[EncodedReads] | LeftToHost = self._stages.map_fastq(
            texts, self._params, self._stats, group.model, names
        )
        if not isinstance(made, LeftToHost):
            return made
        with self._left_lock:
            if made is not LeftToHost.NO_MEMORY and self._left is None:
                self._left = made
                log.info("the host parses the reads: %s", made.value)
        return None

    def _run_by_pool(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run calls that a device waits for, and return their results in order."""
        futures = [self._pool.submit(READ, call) for call in calls]
        with self._stats.stage("wait"):
            return [future.result() for future in futures]

    def _finish(
        self, finish: Callable[[AlignedBatch | EncodedReads], Result], batch: _Parsed,
        shares: Sequence[ResultSlice | EncodedBatch], long_parts: Sequence[LongChained],
        rescued: bool,
    ) -> Result:  # fmt: skip
        """Finish a batch (a task of the pool)."""
        if len(shares) == 1 and isinstance(shares[0], EncodedBatch):
            return finish(EncodedReads(batch.reads.size, shares[0]))
        of_device = iter(shares)
        aligned: list[Aligned | LongAligned] = []
        for part in batch.parts:
            if part.is_long:
                index = self._stages.host_index
                aligned.append(
                    extend_long_reads(index, part.reads, long_parts, self._params, self._stats)
                )
            else:
                share = next(of_device)
                assert isinstance(share, ResultSlice)  # records come for whole batches alone
                aligned.append(Aligned(part.reads, *share.cut(), rescued))
        return finish(AlignedBatch(batch.reads, [part.rows for part in batch.parts], aligned))
