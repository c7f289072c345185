"""One mapping run: its state, and its steps, which are tasks of the pool.

The batches of an input, cut off by a pool one after another, and kept for who is not ready yet.

One thread cuts on as long as batches are wanted: no other, which may be writing, wait for Python's
lock or have to be woken, stands between two cuts. With many threads the chain of cuts is what all
of them live on.

The first pairs of a sample: mapped as far as the insert size, which is then frozen.

A whole mapping run: reading, the stages, writing, overlapped and in order.

Batches are independent: each is parsed and goes through all stages on one thread of a pool
(with a device, through the stages there in a group of batches:
:mod:`mapper.mapping.device_batches`), and the calling thread hands the encoded batches to the
output in input order. Decompressing the input, cutting it into batches and compressing the output
are tasks of the same pool, so ``threads`` is what the run uses. What one batch must know of others,
the insert size, is estimated from the first pairs of the sample before any batch is finished, and
frozen.

Nothing in a batch depends on where batches are cut, on the number of threads, or on time.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from mapper import batch_ops
from mapper.batch import ReadBatch
from mapper.cuda.devices import CPU
from mapper.errors import OutputError
from mapper.index.reference import Index
from mapper.io.batch_reader import RawBatch
from mapper.io.header import header_text, parse_read_group
from mapper.io.input_tags import copy_input_tags
from mapper.io.output import RecordOutput, open_output
from mapper.io.reads import Lane, ReadOptions, ReadsReader
from mapper.mapping.device_batches import DeviceGroups
from mapper.mapping.job import MapJob
from mapper.mapping.memory_plan import SAMTOOLS_BYTES, MemoryPlan, plan_memory, say_memory
from mapper.mapping.session import Session
from mapper.mapping.stages import AlignedBatch, align_reads, place_batch
from mapper.mapping.stats import RunStats
from mapper.mapping.warm_up import FINISHING, READING, Helpers, compile_stages
from mapper.pair.insert_size import (
    ESTIMATION_PAIRS,
    ESTIMATION_READS,
    InsertSizeModel,
    assumed_model,
    confident_inserts,
    estimate,
    in_score_units,
)
from mapper.pair.placement import PlacementBatch, tally
from mapper.pair.records import Names, make_names
from mapper.parallel.buffers import RECYCLER
from mapper.parallel.pool import MAP, READ, WRITE, Workers, share_threads
from mapper.params import BATCH_BASES, MAX_READ_LEN
from mapper.seed.exact import resolve

if TYPE_CHECKING:
    from mapper.mapping.stages_cuda import DeviceStages

AHEAD = 2
"""Batches that are kept, at least, before anyone wants them."""

THREADS_A_BATCH = 4
"""With so many threads for each, more are kept: 16 threads take two while the output is written."""


class CutAhead:
    """Batches in input order; the next ones are cut ahead. Called by one thread.

    Parameters
    ----------
    cut
        Cuts the next batch, or returns None at the end: a task, never two at a time. What it
        raises, the caller of a method here gets, if that waits for a batch.
    n_threads
        Of the pool.
    """

    def __init__(
        self, pool: Workers, cut: Callable[[], RawBatch | None], n_threads: int = 1
    ) -> None:
        self._pool, self._cut = pool, cut
        self._lock = threading.Lock()
        self._kept: deque[RawBatch] = deque()
        self._ahead = max(AHEAD, n_threads // THREADS_A_BATCH)
        self._most = self._ahead  # batches to keep
        self._all_cut = False
        self._cutting: Future[None] | None = None  # None: enough are kept, or all are cut
        with self._lock:
            self._go_on()

    @property
    def ended(self) -> bool:
        """Whether all batches have been taken."""
        with self._lock:
            return self._all_cut and not self._kept

    def take(self) -> RawBatch | None:
        """Return the next batch, waiting for it; None at the end."""
        self.wait_or(())
        with self._lock:
            raw = self._kept.popleft() if self._kept else None
            self._go_on()
            return raw

    def wait_or(self, others: Iterable[Future[Any]]) -> bool:
        """Wait until a batch can be taken, or one of `others` is done; say whether one can be."""
        with self._lock:
            cutting = self._cutting
            if self._kept or cutting is None:
                return bool(self._kept)
        wait([cutting, *others], return_when=FIRST_COMPLETED)
        if cutting.done():
            cutting.result()
        with self._lock:
            return bool(self._kept)

    def go_on_until(self, done: Iterable[Future[Any]], most: int) -> None:
        """Cut on, keeping up to `most` batches, until all of `done` are."""
        left = list(done)
        self._keep(max(most, self._ahead))
        while left := [future for future in left if not future.done()]:
            with self._lock:
                cutting = self._cutting
            if cutting is None:  # enough are kept, or all are cut
                break
            wait([cutting, *left], return_when=FIRST_COMPLETED)
            if cutting.done():
                cutting.result()
        self._keep(self._ahead)

    def _keep(self, most: int) -> None:
        with self._lock:
            self._most = most
            self._go_on()

    def _cut_on(self) -> None:
        """Cut batches until enough are kept (a task)."""
        with self._lock:
            cutting = self._cutting
        while cutting is not None:
            try:
                raw = self._cut()
            except BaseException as error:
                cutting.set_exception(error)
                return
            with self._lock:
                if raw is None:
                    self._all_cut = True
                else:
                    self._kept.append(raw)
                following = self._cutting = Future() if self._wants_more() else None
            del raw  # nor its memory held while the next is cut
            cutting.set_result(None)
            cutting = following

    # With the lock held:

    def _wants_more(self) -> bool:
        return not self._all_cut and len(self._kept) < self._most

    def _go_on(self) -> None:
        """Have batches cut, unless one is being cut or enough are kept."""
        if self._cutting is None and self._wants_more():
            cutting = self._cutting = Future()

            def hear(task: Future[None]) -> None:
                if task.cancelled():  # the pool has dropped it: who waits for a batch must know
                    cutting.set_exception(CancelledError())

            self._pool.submit(READ, self._cut_on).add_done_callback(hear)


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
        parts = batch_ops.split_mixed(reads)
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
            records = copy_input_tags(batch_ops.merge_mixed(parts, batch.rows), batch.reads)
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


def freeze_insert_size(
    run: Run, reader: ReadsReader, cuts: CutAhead, most_pending: int, pool: Workers,
    pending: deque[Future[Finished]], output: RecordOutput,
) -> InsertSizeModel:  # fmt: skip
    """Return the insert-size model; queue the batches that were read to estimate it."""
    given = run.job.insert_size
    if given is not None or not reader.may_hold_pairs:
        model = given if given is not None else assumed_model()
        if reader.may_hold_pairs:
            report_insert_size(run.stats, model)
        elif given is not None:
            # No error: a workflow gives single and paired units the same options.
            log.warning("--insert-size has no effect on single-end reads (-p: the file has pairs)")
        return in_score_units(model, run.params.extend.match)
    head: list[Future[AlignedBatch]] = []
    n_pairs = n_reads = 0
    while n_pairs < ESTIMATION_PAIRS and n_reads < ESTIMATION_READS:
        raw = cuts.take()
        if raw is None:
            break
        head.append(run.start_align(pool, raw))
        n_pairs += raw.n_pairs
        n_reads += raw.n_reads
    run.flush()
    # Nothing else can begin before the model is known; but reading is what takes longest.
    cuts.go_on_until(head, most_pending - len(head))
    inserts = [np.empty(0, np.int64)]
    for future in head:
        batch = future.result()
        for rows, part in zip(batch.rows, batch.parts, strict=True):
            if part.reads.paired:
                ordinals = batch.reads.first_read + rows[::2]
                found = confident_inserts(
                    part.reads.base_offsets, part.alignments, run.params.extend
                )
                inserts.append(found[ordinals < ESTIMATION_READS])
    first = np.concatenate(inserts)[:ESTIMATION_PAIRS]
    model = estimate(first[first != 0])
    if n_pairs:
        report_insert_size(run.stats, model)
    model = in_score_units(model, run.params.extend.match)
    for future in head:
        pending.append(pool.submit(MAP, partial(run.finish, future.result(), model, output)))
    return model


def report_insert_size(stats: RunStats, model: InsertSizeModel) -> None:
    """Note the model for the statistics of the run, in bases."""
    stats.insert_size = {
        "mean": model.mean, "std": model.std, "low": model.low, "high": model.high,
        "pairs": model.n_pairs,
    }  # fmt: skip


DEVICE_SWITCH_SECONDS = 0.0002
"""How long a thread may keep Python's lock while others wait for it, with a device: threads
that queue kernels give the lock away in every call of the driver, and at Python's default of
5 ms would wait so long to have it back."""


def map_reads(index: Index, job: MapJob, session: Session | None = None) -> RunStats:
    """Map reads and write their records.

    Parameters
    ----------
    session
        What earlier runs with this index have left; None for a run on its own.

    Returns
    -------
    Counts and times. The output is complete, under its final name, when this returns; on
    any exception there is nothing under that name.

    Raises
    ------
    MapperError
        For input, options or output that will not do.
    """
    stats = RunStats()
    if session is None:
        with Session(index) as own:
            return _map_reads(own, job, stats)
    if session.index is not index:
        raise ValueError("the session is one of another index")
    return _map_reads(session, job, stats)


def _map_reads(session: Session, job: MapJob, stats: RunStats) -> RunStats:
    run = Run(session, job, stats)
    index = session.index
    contigs = index.contigs
    lanes = job.lanes or [Lane(tuple(job.reads), job.read_group)]
    if job.output_format == "cram" and job.reference is not None:
        session.check_reference(job.reference, share_threads(job.threads, 1)[0])
    pool = session.pool
    options = ReadOptions(
        interleaved=job.interleaved, keep_comments=job.keep_comments,
        tag_groups=bool(job.lanes), reference=job.input_reference,
        threads=share_threads(job.threads, 1)[1], executor=stats.timed(pool.at(READ), "inflate"),
        n_threads=run.workers, max_read_len=MAX_READ_LEN, batch_bases=run.batch_bases,
    )  # fmt: skip
    reader = ReadsReader(lanes, options)
    try:
        plan = run.share_out(reader.converts)
    except BaseException:
        reader.close()
        raise
    reader.limit_batches(min(plan.batch_bases, run.batch_bases))
    sort = job.sort
    if sort is not None and job.memory is not None:
        sort = sort._replace(memory=plan.sort_bytes)
    pool.resize(run.workers)
    run.form_groups(pool, plan.batch_bases)
    switch_interval = sys.getswitchinterval()
    if run.device is not None:
        sys.setswitchinterval(DEVICE_SWITCH_SECONDS)
    try:
        groups = [lane.read_group for lane in lanes if lane.read_group is not None]
        header = header_text(
            contigs.names, contigs.lengths.tolist(), job.command_line, groups,
            job.sort is not None, reader.headers,
        )  # fmt: skip
        # Their memory is not part of any bound.
        may_help = job.compile_ahead and job.memory is None
        parts = [FINISHING, READING] if reader.has_text else [FINISHING]
        with Helpers(parts, job.threads if may_help else 1) as helpers, open_output(
            job.output, job.output_format, header, contigs.names, contigs.lengths.tolist(),
            stats.timed(pool.at(WRITE), "compress"), sort=sort, level=job.compression,
            reference=job.reference, threads=run.helper_threads,
        ) as output:  # fmt: skip
            checked = session.check_index()
            stats.compile_seconds = compile_stages(
                index, run.params, run.names, output, run.device, from_text=reader.has_text,
                helpers=helpers,
            )  # fmt: skip
            with stats.idling(pool.idle_seconds):
                _map_all(run, reader, output, pool)
            checked.result()  # records of a damaged index must not get their name
    finally:
        sys.setswitchinterval(switch_interval)
        reader.close()
        if run.groups is not None:
            run.groups.close()
        pool.cancel_all()
        RECYCLER.clear()
    stats.finish()
    return stats


def _map_all(run: Run, reader: ReadsReader, output: RecordOutput, pool: Workers) -> None:
    """Read, map and write until the input ends; check that every read came out."""
    # Enough batches that no thread waits for another's slow one.
    most_pending = run.workers + 2 if run.groups is None else run.groups.most_pending
    pending: deque[Future[Finished]] = deque()
    written = 0
    with tqdm(
        unit=" reads", unit_scale=True, disable=not run.job.progress, file=sys.stderr,
        desc="mapping", mininterval=0.5,
    ) as progress:  # fmt: skip

        def write_next() -> None:
            nonlocal written
            finished = pending.popleft().result()
            if finished.n_primary != finished.n_reads:
                raise OutputError(
                    f"{finished.n_reads} reads came in and {finished.n_primary} primary records "
                    "would go out; this is a bug in fmwave, please report it"
                )
            output.append(finished.encoded)
            written += finished.n_reads
            progress.update(finished.n_reads)

        cuts = CutAhead(pool, partial(run.cut, reader), run.workers)
        model = freeze_insert_size(run, reader, cuts, most_pending, pool, pending, output)
        while True:
            # Asked once a turn: the input's end may show at any time, and then what waits for
            # others of its group must go before anyone waits for it.
            ended = cuts.ended
            if ended:
                run.flush()
                if not pending:
                    break
            if ended or len(pending) >= most_pending:
                write_next()
                continue
            if cuts.wait_or(list(pending)[:1]):
                raw = cuts.take()
                assert raw is not None
                pending.append(run.start(pool, raw, model, output))
            if pending and pending[0].done():
                write_next()
    if written != reader.n_reads:
        raise OutputError(
            f"{reader.n_reads} reads were read and {written} written; this is a bug in fmwave, "
            "please report it"
        )
