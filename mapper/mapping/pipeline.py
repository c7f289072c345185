"""A whole mapping run: read, map, write, overlapped and in input order.

Read: a task of a thread pool cuts the input into batches (:mod:`mapper.mapping.prefetch`).
Map: each batch is parsed, aligned, placed and encoded on one thread of the pool; with a CUDA
device most of that is done there (:mod:`mapper.mapping.backend`). Write: the calling thread passes
the encoded batches to the output in input order. Decompressing the input and compressing the
output are tasks of the same pool, so a run uses ``threads`` threads.

Batches are independent but for the insert size. It is estimated from the first pairs of the sample
before any batch is finished, and frozen. So the records do not depend on where batches are cut,
on the number of threads, or on time.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from mapper import batch_ops
from mapper.batch import BatchSize, EncodedBatch, ReadBatch, RecordBatch
from mapper.errors import OutputError, option
from mapper.index.index import Index
from mapper.io.batch_reader import RawBatch
from mapper.io.bgzf_reader import SharedInflating
from mapper.io.header import header_text, parse_read_group
from mapper.io.input_tags import copy_input_tags
from mapper.io.output import ResumableOutput, open_output
from mapper.io.progress import progress_bar
from mapper.io.reads import Lane, LengthLimits, ReadOptions, ReadsReader
from mapper.mapping.device_io import DeviceIO
from mapper.mapping.job import MapJob
from mapper.mapping.memory_plan import SAMTOOLS_BYTES, MemoryPlan, log_memory, plan_memory
from mapper.mapping.prefetch import BatchPrefetcher
from mapper.mapping.resume import Checkpoints, open_checkpoints
from mapper.mapping.session import Session
from mapper.mapping.stages import AlignedBatch, EncodedReads, place_batch
from mapper.mapping.stats import ORPHANS_MAPPED, ORPHANS_SKIPPED, RunStats
from mapper.mapping.warm_up import FINISHING, READING, Helpers, compile_stages
from mapper.pair.insert_size import (
    ESTIMATION_PAIRS,
    ESTIMATION_READS,
    MIN_PAIRS,
    InsertSizeModel,
    assumed_model,
    confident_inserts,
    estimate,
    in_score_units,
    model_of,
    numbers_of,
)
from mapper.pair.placement import Tally, n_recorded, tally, tally_encoded
from mapper.parallel.buffers import RECYCLER
from mapper.parallel.pool import MAP, READ, SPARE, SPILL, WRITE, PriorityPool, share_threads
from mapper.params import MAX_LONG_READ, MAX_READ_LEN, PRESETS
from mapper.sam_flags import NOT_PRIMARY
from mapper.seed.exact import resolve_all

log = logging.getLogger(__name__)

LENGTH_LIMITS = LengthLimits(mate=MAX_READ_LEN, single=MAX_LONG_READ)
"""The most bases of reads."""


def map_reads(index: Index, job: MapJob, session: Session | None = None) -> RunStats:
    """Map reads and write their records.

    Parameters
    ----------
    session
        State that runs with this index share; None for a single run.

    Returns
    -------
    Counts and times. The output is complete, under its final name, when this returns; on
    any exception there is nothing under that name.

    Raises
    ------
    MapperError
        If input, options or output cannot be used.
    """
    stats = RunStats()
    if session is not None and session.index is not index:
        raise ValueError("the session is one of another index")
    with ExitStack() as stack:
        if session is None:
            session = stack.enter_context(Session(index))
        checkpoints = None
        if job.resume is not None:
            checkpoints = stack.enter_context(open_checkpoints(job))
            job = replace(job, command_line=checkpoints.command_line)
        return _map_reads(session, job, stats, checkpoints)


def _map_reads(
    session: Session, job: MapJob, stats: RunStats, checkpoints: Checkpoints | None
) -> RunStats:
    """Open input and output, compile the stages, and map all reads."""
    run = Run(session, job, stats, checkpoints)
    index = session.index
    contigs = index.contigs
    lanes = job.lanes or [Lane(tuple(job.reads), job.read_group)]
    if job.output_format == "cram" and job.reference is not None:
        session.check_reference(job.reference, share_threads(job.threads, 1)[0])
    pool = session.pool
    device_io = session.device_io(job.device, job.compressor, job.compression, job.threads)
    options = ReadOptions(
        interleaved=job.interleaved, orphans=job.orphans, keep_comments=job.keep_comments,
        tag_groups=bool(job.lanes), reference=job.input_reference,
        threads=share_threads(job.threads, 1)[1], executor=stats.timed(pool.at(READ), "inflate"),
        n_threads=run.workers, limits=LENGTH_LIMITS, batch_bases=run.member_bases,
        inflating=_inflating(device_io, pool, stats),
        input_memory=run.backend.input_memory if job.output_format == "bam" else RECYCLER.empty,
        # One batch is enough to estimate the insert size, and the host finishes it, on a thread.
        most_first=2 * ESTIMATION_PAIRS if run.backend.n_streams else 0,
        keeps_places=checkpoints is not None,
    )  # fmt: skip
    reader = ReadsReader(lanes, options)
    if run.backend.n_streams and (name := reader.large_serial_gzip):
        log.info(
            "%s: one thread decompresses this gzip file, and a device may wait for it; what bgzip "
            "writes is decompressed by all", name,
        )  # fmt: skip
    try:
        plan = run.plan_resources(reader.converts)
    except BaseException:
        reader.close()
        raise
    reader.limit_batches(plan.member_bases)
    pool.resize(run.workers)
    group_size = plan.batch_bases // plan.member_bases
    run.backend.start(pool, run.workers, group_size)
    try:
        groups = [lane.read_group for lane in lanes if lane.read_group is not None]
        header = header_text(
            contigs.names, contigs.lengths.tolist(), job.command_line, groups,
            job.sort is not None, reader.headers, contigs.alt_names, reader.header_names,
        )  # fmt: skip
        parts = [FINISHING, READING] if reader.has_text else [FINISHING]
        # The memory of helper processes is not part of the plan.
        n_processes = 0 if job.memory is not None else job.threads - 1
        with (
            Helpers(job.compile_command, parts, n_processes) as helpers,
            _output(run, header, plan, device_io) as output,
        ):

            @cache
            def batches() -> BatchPrefetcher:
                """Begin to read, at the first call."""
                return BatchPrefetcher(pool, partial(run.cut, reader), run.workers, group_size)

            checked = session.check_index()
            if output.encode_bam is not None:
                run.backend.enable_records(run.names, reader.has_text)
            stats.compile_seconds = compile_stages(
                index, run.params, run.names, output, run.backend, from_text=reader.has_text,
                singles=reader.may_hold_singles and run.params.longest_short >= 0,
                pairs=reader.may_hold_pairs,
                helpers=helpers, begin_reading=batches if checkpoints is None else None,
            )  # fmt: skip
            if checkpoints is not None:
                checkpoints.go_to(reader)
            with stats.idling(pool.idle_seconds):
                _map_batches(run, reader, batches, output)
            if reader.n_orphans:
                counter = ORPHANS_SKIPPED if job.orphans == "skip" else ORPHANS_MAPPED
                stats.count(**{counter: reader.n_orphans})
            checked.result()  # records of a damaged index must not get their name
            run.end_of_mapping()
    finally:
        reader.close()
        run.backend.close()
        pool.cancel_all()
        RECYCLER.clear()
    stats.finish()
    return stats


def _inflating(io: DeviceIO, pool: PriorityPool, stats: RunStats) -> SharedInflating | None:
    if io.inflater is None:
        return None
    return SharedInflating(io.inflater, stats.timed(pool.at(SPARE), "inflate"))


@contextmanager
def _output(
    run: Run, header: str, plan: MemoryPlan, device_io: DeviceIO
) -> Iterator[ResumableOutput[Any]]:
    """Open the output of a run; the end of the block writes sorted records."""
    job, contigs = run.job, run.index.contigs
    executor = run.stats.timed(run.pool.at(WRITE), "compress")
    partial = None if run.checkpoints is None else run.checkpoints.partial
    if job.sort is None:
        with open_output(
            job.output, job.output_format, header, contigs.names, contigs.lengths.tolist(),
            executor, level=job.compression, reference=job.reference, threads=run.helper_threads,
            compressor=device_io.deflater, partial=partial,
        ) as output:  # fmt: skip
            yield output
        return
    # Not needed by the others, which would wait a tenth of a second for it.
    from mapper.sorting.output import SortedTarget, open_sorted_output

    target = SortedTarget(
        job.output, job.output_format, job.command_line, header, contigs.names,
        contigs.lengths.tolist(), job.compression, job.reference, job.threads,
        device_io.deflater, device_io.open_inflater, device_io.open_store,
        run.backend.n_streams > 0, partial,
    )  # fmt: skip
    with open_sorted_output(
        target,
        job.sort,
        executor,
        job.threads,
        memory=plan.sort_bytes,
        freed=plan.freed_bytes,
        spilling=run.stats.timed(run.pool.at(SPILL), "spill"),
        progress=job.progress,
    ) as sorted_output:
        yield sorted_output
        run.stats.begin_writing()
    run.stats.duplicates = sorted_output.duplicates


class FirstPairs:
    """The first pairs of a run, in input order: a warning is given if none of them is proper.

    Parameters
    ----------
    saved
        What :meth:`saved` returned in an earlier process.
    """

    def __init__(self, saved: Sequence[int] = (0, 0, 0, 0)) -> None:
        self._paired, self._mapped, self._proper, ended = saved
        self._ended = bool(ended)

    def saved(self) -> list[int]:
        """Return the counts of these pairs, from which another process goes on."""
        return [self._paired, self._mapped, self._proper, int(self._ended)]

    def add(self, batch: Finished) -> None:
        """Add the next batch; judge if there are ESTIMATION_PAIRS."""
        self._paired += batch.n_paired
        self._mapped += batch.n_mapped
        self._proper += batch.n_proper
        if self._paired >= 2 * ESTIMATION_PAIRS:
            self.end()

    def end(self) -> None:
        """Judge the pairs, once. A few mapped reads may be of anything, and are no evidence."""
        if not self._ended and self._proper == 0 and self._mapped >= 2 * MIN_PAIRS:
            log.warning(
                "none of the first %d pairs is proper, though %d of their reads are mapped: look "
                "whether one file was given for both mates, the files belong to different samples, "
                "or the insert size (%s) is wrong",
                self._paired // 2, self._mapped, option("insert_size"),
            )  # fmt: skip
        self._ended = True


class Finished(NamedTuple):
    """A batch that is ready to be written."""

    n_reads: int
    encoded: Any  # what the output made of it
    counts: dict[str, int]  # for the statistics
    n_primary: int
    n_paired: int  # reads of pairs
    n_mapped: int  # of these
    n_proper: int  # of these


class Batches(Protocol):
    """The batches of a run, in input order; for one thread."""

    @property
    def ended(self) -> bool:
        """True if all batches have been taken."""

    def take(self) -> RawBatch | None:
        """Return the next batch, waiting for it; None at the end."""

    def wait_or(self, others: Iterable[Future[Any]]) -> bool:
        """Wait for a batch or for one of `others`; return True if there is a batch to take."""


class Encoder(NamedTuple):
    """Turns records into the form that a run keeps. Any thread may call its functions."""

    encode: Callable[[RecordBatch, ReadBatch], Any]
    encode_bam: Callable[[np.ndarray], Any] | None = None
    """The same of BAM records, for backends that were told to make them."""


def _map_batches(
    run: Run, reader: ReadsReader, batches: Callable[[], Batches], output: ResumableOutput[Any]
) -> None:
    """Read, map and write until the input ends; check that every read came out."""
    checkpoints = run.checkpoints
    written = 0 if checkpoints is None else reader.n_reads  # by processes that were killed
    first_pairs = FirstPairs()
    if checkpoints is not None and checkpoints.state is not None:
        first_pairs = FirstPairs(checkpoints.state["first_pairs"])
        run.restore(checkpoints.state, checkpoints.n_starts)

    def state() -> dict[str, Any]:
        return {**run.saved(), "first_pairs": first_pairs.saved()}

    encoder = Encoder(output.encode, output.encode_bam)
    with (
        nullcontext() if checkpoints is None else checkpoints.mapping(),
        progress_bar(run.job.progress, "reads", "mapping", initial=written) as progress,
    ):
        for finished in finished_batches(run, batches(), reader.may_hold_pairs, encoder):
            output.append(finished.encoded)
            written += finished.n_reads
            first_pairs.add(finished)
            if share := reader.share_read:
                progress.total = max(round(reader.n_reads / share), written)
            progress.update(finished.n_reads)
            if run.job.report is not None:
                run.job.report(written)
            del finished  # its memory would stay in use while the next batch is awaited
            if checkpoints is not None:
                checkpoints.written(output, state)
        if checkpoints is not None and run.job.sort is not None:
            checkpoints.all_written(output, state)
    first_pairs.end()
    if written != reader.n_reads:
        raise OutputError(
            f"{reader.n_reads} reads were read and {written} written; this is a bug in fmwave, "
            "please report it"
        )


def finished_batches(
    run: Run, batches: Batches, may_hold_pairs: bool, encoder: Encoder
) -> Iterator[Finished]:
    """Map batches; yield what became of each, in input order.

    As many batches are in work as the backend wants. Those that are not wanted any more, because
    of an error or because the caller takes no more, are dropped.

    Parameters
    ----------
    may_hold_pairs
        False if it is known that no reads are paired.
    """
    backend = run.backend
    pending: deque[Future[Finished]] = deque()

    def next_finished() -> Finished:
        finished = pending[0].result()
        pending.popleft()
        if finished.n_primary != finished.n_reads:
            raise OutputError(
                f"{finished.n_reads} reads came in and {finished.n_primary} primary records "
                "would go out; this is a bug in fmwave, please report it"
            )
        # Not by the task: an interrupted run must not count batches behind the last written one.
        run.stats.count(**finished.counts)
        return finished

    try:
        model, ahead = _freeze_insert_size(run, batches, may_hold_pairs, pending, encoder)

        def finish(batch: AlignedBatch | EncodedReads) -> Finished:
            return run.finish(batch, model, encoder)

        while ahead:
            pending.append(ahead.popleft().submit(model, finish))
        while True:
            # Evaluated once a turn: the end of the input may be found at any time, and then the
            # last group must be started before its batches are waited for.
            ended = batches.ended
            if ended:
                backend.flush()
                if not pending:
                    break
            if ended or len(pending) >= backend.most_pending:
                yield next_finished()
                continue
            if batches.wait_or(list(pending)[:1]):
                raw = batches.take()
                assert raw is not None
                pending.append(backend.submit(partial(run.parse, raw), model, finish, raw.text))
            if pending and pending[0].done():
                yield next_finished()
    finally:
        for future in pending:
            future.cancel()


# --- the insert size ---


def _freeze_insert_size(
    run: Run, batches: Batches, may_hold_pairs: bool, pending: deque[Future[Finished]],
    encoder: Encoder,
) -> tuple[InsertSizeModel, deque[_BatchAhead]]:  # fmt: skip
    """Return the insert-size model; queue the batches that were aligned to estimate it.

    The batches that follow these, and have been taken meanwhile, are returned, too.
    """
    if run.frozen is not None:
        return in_score_units(run.frozen, run.params.extend.match), deque()
    given = run.job.insert_size
    if given is not None or not may_hold_pairs:
        model = given if given is not None else assumed_model()
        if may_hold_pairs:
            run.use_insert_size(model)
        elif given is not None:
            # Not an error: a workflow gives single and paired units the same options.
            log.warning(
                "%s has no effect on single-end reads (%s: the file has pairs)",
                option("insert_size"), option("interleaved"),
            )  # fmt: skip
        return in_score_units(model, run.params.extend.match), deque()
    first: list[Future[AlignedBatch | EncodedReads]] = []
    n_pairs = n_reads = 0
    while n_pairs < ESTIMATION_PAIRS and n_reads < ESTIMATION_READS:
        raw = batches.take()
        if raw is None:
            break
        first.append(run.backend.submit(partial(run.parse, raw), None, lambda aligned: aligned))
        n_pairs += raw.n_pairs
        n_reads += raw.n_reads
    run.backend.flush()
    ahead = _take_until(run, batches, first, run.backend.most_pending - len(first))
    inserts = [np.empty(0, np.int64)]
    for future in first:
        batch = future.result()
        assert isinstance(batch, AlignedBatch)  # without a model there are no records
        for rows, part in zip(batch.rows, batch.parts, strict=True):
            if part.reads.paired:
                ordinals = batch.reads.first_read + rows[::2]
                confident = confident_inserts(
                    part.reads.base_offsets, part.alignments, run.params.extend,
                    run.index.contigs.groups,
                )  # fmt: skip
                inserts.append(confident[ordinals < ESTIMATION_READS])
    sample = np.concatenate(inserts)[:ESTIMATION_PAIRS]
    model = estimate(sample[sample != 0])
    if n_pairs:
        run.use_insert_size(model)
    model = in_score_units(model, run.params.extend.match)
    for future in first:
        pending.append(run.pool.submit(MAP, partial(run.finish, future.result(), model, encoder)))
    return model, ahead


class _BatchAhead:
    """A batch that a task parses, unless it is needed before, or a device is to parse it."""

    def __init__(self, run: Run, raw: RawBatch) -> None:
        self._run = run
        self._raw: RawBatch | None = raw
        self._text = raw.text if run.backend.parses_fastq else None
        self._task = None if self._text is not None else run.pool.submit(READ, self._parse)

    def _parse(self) -> ReadBatch:
        raw, self._raw = self._raw, None  # the text is not needed any more
        assert raw is not None
        return self._run.parse(raw)

    def result(self) -> ReadBatch:
        """Return the batch; the thread parses it, unless another one does."""
        if self._task is None or self._task.cancel():
            return self._parse()
        return self._task.result()

    def submit(
        self, model: InsertSizeModel, finish: Callable[[AlignedBatch | EncodedReads], Finished]
    ) -> Future[Finished]:
        """Give the batch to the backend."""
        return self._run.backend.submit(self.result, model, finish, self._text)


def _take_until(
    run: Run, batches: Batches, done: Sequence[Future[Any]], most: int
) -> deque[_BatchAhead]:
    """Take and parse up to `most` batches until all of `done` are: none can be aligned before."""
    ahead: deque[_BatchAhead] = deque()
    while len(ahead) < most and not batches.ended:
        waited_for = [future for future in done if not future.done()]
        if not waited_for:
            break
        if batches.wait_or(waited_for):
            raw = batches.take()
            assert raw is not None
            ahead.append(_BatchAhead(run, raw))
    return ahead


def report_insert_size(stats: RunStats, model: InsertSizeModel) -> None:
    """Add the model, in bases, to the statistics of the run."""
    stats.insert_size = numbers_of(model)


# --- the steps of a run ---


def _input_bytes(job: MapJob) -> int:
    """Return the size of the files of reads; pipes count as empty."""
    paths = [path for lane in job.lanes or () for path in lane.paths] or job.reads
    n_bytes = 0
    for path in paths:
        with suppress(OSError):
            n_bytes += Path(path).stat().st_size
    return n_bytes


class Run:
    """The state of one run; its methods are the steps."""

    def __init__(
        self, session: Session, job: MapJob, stats: RunStats,
        checkpoints: Checkpoints | None = None,
    ) -> None:  # fmt: skip
        self.index = index = session.index
        self.job = job
        self.stats = stats
        self.checkpoints = checkpoints
        self.frozen: InsertSizeModel | None = None
        """The model, in bases, that an earlier process has frozen."""
        params = resolve_all(job.params, index.fm.n_rows - 1)
        contigs = index.contigs
        self.params = params.for_contigs(len(contigs.group_names), bool(contigs.alt_names))
        # With several lanes, the reader tags each read with its read group.
        group = None if job.lanes else job.read_group
        self.names = session.names(parse_read_group(group)[1] if group else "")
        self.insert_size: InsertSizeModel | None = None
        """The model of its pairs; None before it is known, and without pairs."""
        self.workers = job.threads  # plan_resources() leaves some to samtools
        self.helper_threads = 1
        self.pool = session.pool
        # With a bound, sorted records or larger batches have what is left of it.
        input_bytes = _input_bytes(job)
        self.backend = session.backend(
            job.device, self.params, stats, may_copy=job.memory is None, input_bytes=input_bytes,
            threads=job.threads,
        )  # fmt: skip
        self.batch_bases = job.batch_bases or self.backend.default_batch_bases
        """Bases to align at a time."""
        self.member_bases = self.backend.member_bases(self.batch_bases, job.threads, input_bytes)
        """Bases of the batches to read; a device aligns groups of them."""

    def plan_resources(self, converts_input: bool) -> MemoryPlan:
        """Divide threads and memory between this process and samtools processes that it starts."""
        job = self.job
        writes_cram = job.output_format == "cram" and job.sort is None
        n_helpers = int(converts_input) + int(writes_cram)
        pool, self.helper_threads = share_threads(job.threads, n_helpers)
        self.workers -= job.threads - pool
        helper_bytes = n_helpers * SAMTOOLS_BYTES
        if n_helpers:
            helper_bytes += int(self.index.contigs.lengths.max())  # CRAM's reference
        n_streams = self.backend.n_streams
        plan = plan_memory(
            job.memory, self.index.n_bytes, self.workers, self.batch_bases,
            sorts=job.sort is not None, helper_bytes=helper_bytes,
            process_bytes=self.backend.process_bytes, n_streams=n_streams,
            member_bases=self.member_bases,
        )  # fmt: skip
        helper_bytes += self.backend.process_bytes
        log_memory(self.index.n_bytes, self.workers, plan, helper_bytes, n_streams)
        return plan

    def end_of_mapping(self) -> None:
        """Give back what only mapping needs, before sorted records are written."""
        self.backend.close()
        RECYCLER.clear()
        if self.job.sort is not None:
            self.backend.free_memory()
            self.pool.resize(self.job.threads)

    def cut(self, reader: ReadsReader) -> RawBatch | None:
        """Cut the next batch off the input (a task)."""
        with self.stats.stage("read"):
            raw = reader.next_raw()
        if raw is not None and self.checkpoints is not None:
            self.checkpoints.cut(reader.position())
        return raw

    def parse(self, raw: RawBatch) -> ReadBatch:
        """Parse a batch (a task)."""
        with self.stats.stage("read"):
            reads = raw.parse()
        if reads.first_read == 0 and not reads.paired and not len(reads.flags):
            _warn_of_mates(reads)
        if reads.first_read == 0 and reads.paired and self.params.longest_short < 0:
            scores = ""
            if self.job.params.long not in PRESETS.values():
                given = f"those given ({option('match')} to {option('min_score')})"
                scores = f" with their default scores, and {given} are not used"
            log.warning(
                "pairs are mapped as short reads%s; %s hifi, ont or asm is for single reads",
                scores, option("preset"),
            )  # fmt: skip
        return reads

    def use_insert_size(self, model: InsertSizeModel) -> None:
        """Note the model of this run, in bases, which is frozen from now on."""
        self.insert_size = model
        report_insert_size(self.stats, model)

    def saved(self) -> dict[str, Any]:
        """Return the state of this run after the batches that have been written."""
        return {"insert_size": self.stats.insert_size, "statistics": self.stats.saved()}

    def restore(self, saved: dict[str, Any], n_starts: int) -> None:
        """Go on from the state of an earlier process, the `n_starts`-th."""
        self.frozen = model_of(saved["insert_size"])
        self.stats.insert_size = saved["insert_size"]
        self.stats.restore(saved["statistics"], n_starts)

    def finish(
        self, batch: AlignedBatch | EncodedReads, model: InsertSizeModel, encoder: Encoder
    ) -> Finished:
        """Run the stages that need the insert size, and encode (a task)."""
        if isinstance(batch, EncodedReads):
            return self._finish_encoded(batch.size, batch.records, encoder)
        parts = []
        n_paired = n_mapped = n_proper = 0
        counts: Counter[str] = Counter()
        for aligned in batch.parts:
            placements, made = place_batch(
                self.index, aligned, model, self.params, self.names, self.stats
            )
            parts.append(made)
            placed = tally(placements)
            counts.update(_counts(aligned.reads.size, placed, made.n_records))
            if aligned.reads.paired:
                n_paired, n_mapped = aligned.reads.n_reads, placed.mapped
                n_proper = int(placed.proper)  # not compiled, NumPy gives one of its own
        with self.stats.stage("records"):
            records = copy_input_tags(batch_ops.merge_mixed(parts, batch.rows), batch.reads)
        with self.stats.stage("encode"):
            encoded = encoder.encode(records, batch.reads)
        n_primary = int(((records.flag & NOT_PRIMARY) == 0).sum())
        return Finished(
            batch.reads.n_reads, encoded, counts, n_primary, n_paired, n_mapped, n_proper
        )  # fmt: skip

    def _finish_encoded(self, reads: BatchSize, made: EncodedBatch, encoder: Encoder) -> Finished:
        """Take the records that a device has made."""
        assert encoder.encode_bam is not None  # else the backend makes none
        with self.stats.stage("encode"):
            encoded = encoder.encode_bam(made.data)
        placed = tally_encoded(made)
        n_paired, n_mapped, n_proper = 0, 0, 0
        if reads.paired:
            n_paired, n_mapped, n_proper = reads.n_reads, placed.mapped, placed.proper
        return Finished(
            reads.n_reads, encoded, _counts(reads, placed, made.n_records), n_recorded(made),
            n_paired, n_mapped, n_proper,
        )  # fmt: skip


def _counts(reads: BatchSize, placed: Tally, n_records: int) -> dict[str, int]:
    """Return the counts of reads that have been placed."""
    return {
        "reads": reads.n_reads,
        "paired": reads.n_reads if reads.paired else 0,
        "bases": reads.n_bases,
        "mapped": placed.mapped,
        "proper": placed.proper,
        "mapq_30": placed.sure,
        "records": n_records,
    }


def _warn_of_mates(reads: ReadBatch) -> None:
    """Log a warning if single reads seem to be mates that alternate."""
    if reads.n_reads < 2:
        return
    start, middle, end = reads.name_offsets[:3]
    first = reads.names[start:middle].tobytes()
    if first == reads.names[middle:end].tobytes():
        log.warning(
            "the first two single reads have one name, %s; if mates alternate, give %s",
            first.decode(errors="replace"), option("interleaved", None),
        )  # fmt: skip
