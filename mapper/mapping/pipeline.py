"""One mapping run: its state, and its steps, which are tasks of the pool."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mapper import batch_ops
from mapper.batch import ReadBatch
from mapper.cuda.devices import CPU
from mapper.io.batch_reader import RawBatch
from mapper.io.header import parse_read_group
from mapper.io.input_tags import carry_over
from mapper.io.output import RecordOutput
from mapper.io.reads import ReadsReader
from mapper.mapping.device_batches import DeviceGroups
from mapper.mapping.job import MapJob
from mapper.mapping.memory_plan import SAMTOOLS_BYTES, MemoryPlan, plan_memory, say_memory
from mapper.mapping.session import Session
from mapper.mapping.stages import AlignedBatch, align_reads, place_batch
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import InsertSizeModel
from mapper.pair.placement import PlacementBatch, tally
from mapper.pair.records import Names, make_names
from mapper.parallel.pool import MAP, Workers, share_threads
from mapper.params import BATCH_BASES
from mapper.seed.exact import resolve

if TYPE_CHECKING:
    from mapper.mapping.stages_cuda import DeviceStages


log = logging.getLogger(__name__)


class Finished(NamedTuple):
    """A batch that is ready to be written."""

    n_reads: int
    encoded: np.ndarray
    n_primary: int


class Run:
    """The state of one run; its methods are the steps."""

    def __init__(self, session: Session, job: MapJob, stats: RunStats) -> None:
        self.index = index = session.index
        self.job = job
        self.stats = stats
        self.params = job.params._replace(seed=resolve(job.params.seed, index.fm.n_rows - 1))
        # Of several lanes, the reader gives each read its group.
        group = None if job.lanes else job.read_group
        read_group = parse_read_group(group)[1] if group else ""
        self.names: Names = make_names(index.contigs.names, index.contigs.starts, read_group)
        self.groups: DeviceGroups | None = None
        self.workers = job.threads  # share_out() leaves some to samtools
        self.helper_threads = 1
        self.device: DeviceStages | None = None
        if job.device.backend != CPU:
            with stats.starting():
                self.device = session.stages_on(job.device)
        fitting = BATCH_BASES if self.device is None else self.device.batch_bases
        self._wanted_bases = job.batch_bases or fitting

    def share_out(self, converts_input: bool) -> MemoryPlan:
        """Share threads and memory with the samtools processes that run beside this one."""
        job = self.job
        writes_cram = job.output_format == "cram" and job.sort is None
        n_helpers = int(converts_input) + int(writes_cram)
        pool, self.helper_threads = share_threads(job.threads, n_helpers)
        self.workers -= job.threads - pool
        helper_bytes = n_helpers * SAMTOOLS_BYTES
        if n_helpers:
            helper_bytes += int(self.index.contigs.lengths.max())  # CRAM's reference
        lanes = 0 if self.device is None else len(self.device.lanes)
        plan = plan_memory(
            job.memory, self.index.n_bytes, self.workers, self._wanted_bases,
            job.threads if job.sort else 0, helper_bytes, lanes,
        )  # fmt: skip
        say_memory(
            self.index.n_bytes, self.workers, plan.batch_bases,
            plan.sort_bytes if job.sort else 0, helper_bytes, lanes,
        )  # fmt: skip
        return plan

    @property
    def batch_bases(self) -> int:
        """Bases in a batch of the host; a device's are groups of these."""
        bases = self._wanted_bases
        return bases if self.device is None else min(bases, BATCH_BASES)

    def form_groups(self, pool: Workers, group_bases: int) -> None:
        """Start the threads of a device's lanes, if there is one."""
        if self.device is not None:
            size = max(1, group_bases // self.batch_bases)
            self.groups = DeviceGroups(self.device, pool, self.params, self.stats, size)

    def cut(self, reader: ReadsReader) -> RawBatch | None:
        """Cut the next batch off the input (a task)."""
        with self.stats.stage("read"):
            return reader.next_raw()

    def parse(self, raw: RawBatch) -> ReadBatch:
        """Parse a batch (a task)."""
        with self.stats.stage("read"):
            reads = raw.parse()
        if reads.first_read == 0 and not reads.paired and not len(reads.flags):
            _warn_of_mates(reads)
        return reads

    def align(self, raw: RawBatch) -> AlignedBatch:
        """Parse, and run the stages that need no insert size (a task)."""
        reads = self.parse(raw)
        parts = batch_ops.split(reads)
        aligned = [align_reads(self.index, part.reads, self.params, self.stats) for part in parts]
        return AlignedBatch(reads, [part.rows for part in parts], aligned)

    def start_align(self, pool: Workers, raw: RawBatch) -> Future[AlignedBatch]:
        """Queue all that needs no insert size."""
        if self.groups is not None:
            return self.groups.add(partial(self.parse, raw), None, lambda aligned: aligned)
        return pool.submit(MAP, partial(self.align, raw))

    def start(
        self, pool: Workers, raw: RawBatch, model: InsertSizeModel, output: RecordOutput
    ) -> Future[Finished]:
        """Queue all stages."""
        if self.groups is not None:
            finish = partial(self.finish, model=model, output=output)
            return self.groups.add(partial(self.parse, raw), model, finish)
        return pool.submit(MAP, partial(self.align_and_finish, raw, model, output))

    def flush(self) -> None:
        """Let batches go that wait to be grouped with others."""
        if self.groups is not None:
            self.groups.flush()

    def finish(self, batch: AlignedBatch, model: InsertSizeModel, output: RecordOutput) -> Finished:
        """Run the stages that need it (a task)."""
        parts = []
        for aligned in batch.parts:
            placements, made = place_batch(
                self.index, aligned, model, self.params, self.names, self.stats
            )
            parts.append(made)
            self._count(aligned.reads, placements, made.n_records)
        with self.stats.stage("records"):
            records = carry_over(batch_ops.merge(parts, batch.rows), batch.reads)
        with self.stats.stage("encode"):
            encoded = output.encode(records, batch.reads)
        n_primary = int(((records.flag & 0x900) == 0).sum())
        return Finished(batch.reads.n_reads, encoded, n_primary)

    def align_and_finish(
        self, raw: RawBatch, model: InsertSizeModel, output: RecordOutput
    ) -> Finished:
        """Parse, and run all stages (a task)."""
        return self.finish(self.align(raw), model, output)

    def _count(self, reads: ReadBatch, placements: PlacementBatch, n_records: int) -> None:
        placed = tally(placements)
        self.stats.count(
            reads=reads.n_reads,
            paired=reads.n_reads if reads.paired else 0,
            bases=int(reads.base_offsets[-1]),
            mapped=placed.mapped,
            proper=placed.proper,
            mapq_30=placed.sure,
            records=n_records,
        )


def _warn_of_mates(reads: ReadBatch) -> None:
    """Say that single reads may be mates that alternate."""
    if reads.n_reads < 2:
        return
    start, middle, end = reads.name_offsets[:3]
    first = reads.names[start:middle].tobytes()
    if first == reads.names[middle:end].tobytes():
        log.warning(
            "the first two single reads have one name, %s; if the file holds mates alternately, "
            "give -p", first.decode(errors="replace"),
        )  # fmt: skip
