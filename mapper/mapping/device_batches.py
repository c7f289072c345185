"""Batches of a run dealt to devices: small ones for the host, joined to large ones for a device.

A device wants hundreds of thousands of reads at a time, so that its slowest threads do not
count. A thread of the host wants few: their columns then stay in its caches, and in memory that
the allocator has at hand, and many threads share the work between two devices' turns. So the
host parses, places and encodes batches of the size that it takes without a device, and so many
of them go through a device together.

    parse, a task each → join → a lane of a device, a thread of its own → what follows, a task each

Threads of the pool never wait for a device, nor do those of lanes compute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from mapper import batch_ops
from mapper.batch import ReadBatch
from mapper.mapping.memory_plan import groups_under_way
from mapper.mapping.stages import Aligned, AlignedBatch
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import InsertSizeModel
from mapper.parallel.pool import MAP, READ, Workers, run_into
from mapper.params import MapParams

if TYPE_CHECKING:
    from mapper.batch_ops import ResultSlice
    from mapper.mapping.stages_cuda import DeviceStages

Result = TypeVar("Result")


class _Parsed(NamedTuple):
    reads: ReadBatch
    parts: list[batch_ops.Part]


class _Member(NamedTuple):
    """A batch on its way."""

    parsed: Future[_Parsed]
    follow: Callable[[AlignedBatch], Any]
    result: Future[Any]


class _Group(NamedTuple):
    members: list[_Member]
    model: InsertSizeModel | None


class DeviceGroups:
    """Takes batches in input order, and runs what follows their alignment on a device.

    Called by one thread.

    Parameters
    ----------
    size
        Batches of a group.
    """

    def __init__(
        self, device: DeviceStages, pool: Workers, params: MapParams, stats: RunStats, size: int
    ) -> None:
        self._device, self._pool, self._params, self._stats = device, pool, params, stats
        self._size = size
        self._open: list[_Member] = []
        self._model: InsertSizeModel | None = None
        self._ready: SimpleQueue[_Group | None] = SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"lane {i}", daemon=True)
            for i in range(len(device.lanes))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def most_pending(self) -> int:
        """Batches under way with which all lanes have something to do."""
        return self._size * groups_under_way(len(self._threads))

    def add(
        self, parse: Callable[[], ReadBatch], model: InsertSizeModel | None,
        follow: Callable[[AlignedBatch], Result],
    ) -> Future[Result]:  # fmt: skip
        """Take the next batch; return the future of what `follow` makes of it.

        It may wait for others of its group, or for :meth:`flush`.

        Parameters
        ----------
        parse
            Returns the batch (a task).
        model
            With it, mates are rescued. Another one than that of the batch before ends the
            group.
        follow
            Takes the aligned batch (a task).
        """
        if self._open and model is not self._model:
            self.flush()
        self._model = model
        # Before what follows earlier groups: a device without reads is the dearest to wait.
        parsed = self._pool.submit(READ, partial(_parse, parse))
        member = _Member(parsed, follow, Future())
        self._open.append(member)
        if len(self._open) == self._size:
            self.flush()
        return member.result

    def flush(self) -> None:
        """Let the batches go that wait for others of their group."""
        if self._open:
            self._ready.put(_Group(self._open, self._model))
            self._open = []

    def close(self) -> None:
        """Let the threads end: after what they do, and without what has not begun."""
        self._closed = True
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            thread.join()

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
            del group  # nor its reads held while waiting for the next

    def _align(self, group: _Group) -> None:
        """Align a group in a lane, and queue what follows."""
        with self._stats.stage("wait"):
            batches = [member.parsed.result() for member in group.members]
        # A device takes pairs, or single reads; most batches are of one kind.
        shares: list[list[ResultSlice]] = [[] for _ in batches]
        for paired in (True, False):
            places = [
                (i, part.reads)
                for i, batch in enumerate(batches)
                for part in batch.parts
                if part.reads.paired == paired
            ]
            if places:
                found = self._device.align_batches(
                    [reads for _, reads in places], self._params, self._stats, group.model
                )
                for (i, _), share in zip(places, found, strict=True):
                    shares[i].append(share)
        for member, batch, own in zip(group.members, batches, shares, strict=True):
            call = partial(_follow, member.follow, batch, own, group.model is not None)
            self._pool.submit(MAP, partial(run_into, member.result, call))


def _follow(
    follow: Callable[[AlignedBatch], Result],
    batch: _Parsed,
    shares: Sequence[ResultSlice],
    rescued: bool,
) -> Result:
    aligned = [
        Aligned(part.reads, *share.cut(), rescued)
        for part, share in zip(batch.parts, shares, strict=True)
    ]
    return follow(AlignedBatch(batch.reads, [part.rows for part in batch.parts], aligned))


def _parse(parse: Callable[[], ReadBatch]) -> _Parsed:
    reads = parse()
    return _Parsed(reads, batch_ops.split_mixed(reads))
