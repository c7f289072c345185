"""A whole mapping run: reading, the stages, writing, overlapped and in order.

Batches are independent: each goes through all stages on one thread of a pool, and the
calling thread hands the encoded batches to the output in input order. Reading a batch and
compressing blocks of output are tasks of the same pool, so ``threads`` is what the run
uses (beside one read-ahead thread for each input file, which decompresses). What one
batch must know of others, the insert size, is estimated from the first pairs of the
sample before any batch is finished, and frozen.

Nothing in a batch depends on where batches are cut, on the number of threads, or on time.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from mapper.accelerate import CACHE_DIR, is_compiled
from mapper.batch import ReadBatch
from mapper.device.choose import CPU, DeviceChoice
from mapper.errors import InputFormatError, OutputError
from mapper.extend.merge import merge_alignments
from mapper.index.reference import Index
from mapper.io.bam_out import RecordOutput, SortOptions, open_output
from mapper.io.fastq import FastqReader
from mapper.io.header import header_text, parse_read_group
from mapper.io.source import source_name
from mapper.pair.insert_size import (
    ESTIMATION_PAIRS,
    InsertSizeModel,
    assumed_model,
    confident_inserts,
    estimate,
    in_score_units,
)
from mapper.pair.placement import PRIMARY, PlacementBatch
from mapper.pair.records import Names, make_names
from mapper.params import BATCH_BASES, MAX_READ_LEN, MapParams
from mapper.seed.plan import resolve
from mapper.stages import Aligned, align_reads, place_batch
from mapper.stats import RunStats

if TYPE_CHECKING:
    from mapper.device.backend import DeviceStages

log = logging.getLogger(__name__)


DEVICE_SWITCH_SECONDS = 0.0002
"""How long a thread may keep Python's lock while others wait for it, with a device: threads
that queue kernels give the lock away in every call of the driver, and at Python's default of
5 ms would wait so long to have it back."""


@dataclass(frozen=True)
class MapJob:
    """What to map, and how to write it."""

    reads: Sequence[str]
    output: str
    output_format: str
    interleaved: bool = False
    read_group: str | None = None
    command_line: str = "fmwave map"
    sort: SortOptions | None = None
    compression: int = 1
    threads: int = 1
    batch_bases: int = BATCH_BASES
    insert_size: InsertSizeModel | None = None
    progress: bool = False
    params: MapParams = field(default_factory=MapParams)
    device: DeviceChoice = field(default_factory=lambda: DeviceChoice(CPU))


class _Finished(NamedTuple):
    """A batch that is ready to be written."""

    n_reads: int
    encoded: np.ndarray
    n_primary: int


class _Run:
    """The state of one run; its methods are the steps."""

    def __init__(self, index: Index, job: MapJob, stats: RunStats) -> None:
        self.index = index
        self.job = job
        self.stats = stats
        self.params = job.params._replace(seed=resolve(job.params.seed, index.fm.n_rows - 1))
        read_group = parse_read_group(job.read_group)[1] if job.read_group else ""
        self.names: Names = make_names(index.contigs.names, index.contigs.starts, read_group)
        self.device: DeviceStages | None = None
        self.workers = job.threads
        if job.device.backend != CPU:
            from mapper.device.backend import DeviceStages

            self.device = DeviceStages(index, job.device.ordinals)
            # A worker that waits for a device leaves its core to another.
            self.workers += len(self.device.lanes)

    def read(self, reader: FastqReader) -> ReadBatch | None:
        """Read the next batch (a task)."""
        with self.stats.stage("read"):
            reads = reader.next_batch()
        if reads is not None:
            _check_lengths(reads, self.job.reads)
        return reads

    def align(self, reads: ReadBatch) -> Aligned:
        """Run the stages that need no insert size (a task)."""
        return align_reads(self.index, reads, self.params, self.stats, self.device)

    def finish(self, aligned: Aligned, model: InsertSizeModel, output: RecordOutput) -> _Finished:
        """Run the stages that need it (a task)."""
        placements, records = place_batch(
            self.index, aligned, model, self.params, self.names, self.stats
        )
        with self.stats.stage("encode"):
            encoded = output.encode(records, aligned.reads)
        self._count(aligned.reads, placements, records.n_records)
        n_primary = int(((records.flag & 0x900) == 0).sum())
        return _Finished(aligned.reads.n_reads, encoded, n_primary)

    def align_and_finish(
        self, reads: ReadBatch, model: InsertSizeModel, output: RecordOutput
    ) -> _Finished:
        """Run all stages (a task)."""
        return self.finish(self.align(reads), model, output)

    def _count(self, reads: ReadBatch, placements: PlacementBatch, n_records: int) -> None:
        self.stats.count(
            reads=reads.n_reads,
            paired=reads.n_reads if reads.paired else 0,
            bases=int(reads.base_offsets[-1]),
            mapped=int((placements.primary >= 0).sum()),
            proper=int(placements.proper.sum()),
            mapq_30=int((placements.mapq[placements.role == PRIMARY] >= 30).sum()),
            records=n_records,
        )


def map_reads(index: Index, job: MapJob) -> RunStats:
    """Map reads and write their records.

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
    run = _Run(index, job, stats)
    contigs = index.contigs
    header = header_text(
        contigs.names, contigs.lengths.tolist(), job.command_line, job.read_group,
        job.sort is not None,
    )  # fmt: skip
    pool = ThreadPoolExecutor(run.workers, thread_name_prefix="map")
    reader = FastqReader(job.reads, job.interleaved, job.batch_bases)
    switch_interval = sys.getswitchinterval()
    if run.device is not None:
        sys.setswitchinterval(DEVICE_SWITCH_SECONDS)
    try:
        with open_output(
            job.output, job.output_format, header, contigs.names, contigs.lengths.tolist(), pool,
            sort=job.sort, level=job.compression,
        ) as output:  # fmt: skip
            _compile(run, output)
            _map_all(run, reader, output, pool)
    finally:
        sys.setswitchinterval(switch_interval)
        reader.close()
        pool.shutdown(cancel_futures=True)
    stats.finish()
    return stats


def _map_all(
    run: _Run, reader: FastqReader, output: RecordOutput, pool: ThreadPoolExecutor
) -> None:
    """Read, map and write until the input ends; check that every read came out."""
    # Enough batches that no thread waits for another's slow one.
    most_pending = run.workers + 2
    pending: deque[Future[_Finished]] = deque()
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

        model = _freeze_insert_size(run, reader, pool, pending, output)
        reading: Future[ReadBatch | None] | None = pool.submit(run.read, reader)
        while reading is not None or pending:
            if reading is not None and len(pending) < most_pending:
                first: list[Future[Any]] = [reading, *list(pending)[:1]]
                wait(first, return_when=FIRST_COMPLETED)
                if reading.done():
                    reads = reading.result()
                    if reads is None:
                        reading = None
                    else:
                        pending.append(pool.submit(run.align_and_finish, reads, model, output))
                        reading = pool.submit(run.read, reader)
                if pending and pending[0].done():
                    write_next()
            else:
                write_next()
    if written != reader.n_reads:
        raise OutputError(
            f"{reader.n_reads} reads were read and {written} written; this is a bug in fmwave, "
            "please report it"
        )


def _freeze_insert_size(
    run: _Run, reader: FastqReader, pool: ThreadPoolExecutor,
    pending: deque[Future[_Finished]], output: RecordOutput,
) -> InsertSizeModel:  # fmt: skip
    """Return the insert-size model; queue the batches that were read to estimate it."""
    given = run.job.insert_size
    if given is not None or not reader.paired:
        model = given if given is not None else assumed_model()
        if reader.paired:
            _report_insert_size(run.stats, model)
        return in_score_units(model, run.params.extend.match)
    head: list[Future[Aligned]] = []
    n_pairs = 0
    while n_pairs < ESTIMATION_PAIRS:
        reads = pool.submit(run.read, reader).result()
        if reads is None:
            break
        head.append(pool.submit(run.align, reads))
        n_pairs += reads.n_reads // 2
    inserts = [np.empty(0, np.int64)]
    for future in head:
        aligned = future.result()
        inserts.append(
            confident_inserts(
                aligned.reads.base_offsets, aligned.alignments, run.params.extend.match
            )
        )
    first = np.concatenate(inserts)[:ESTIMATION_PAIRS]
    model = estimate(first[first != 0])
    _report_insert_size(run.stats, model)
    model = in_score_units(model, run.params.extend.match)
    for future in head:
        pending.append(pool.submit(run.finish, future.result(), model, output))
    return model


def _report_insert_size(stats: RunStats, model: InsertSizeModel) -> None:
    stats.insert_size = {
        "mean": model.mean, "std": model.std, "low": model.low, "high": model.high,
        "pairs": model.n_pairs,
    }  # fmt: skip


def _check_lengths(reads: ReadBatch, paths: Sequence[str]) -> None:
    lengths = np.diff(reads.base_offsets)
    if lengths.max(initial=0) <= MAX_READ_LEN:
        return
    row = int(np.flatnonzero(lengths > MAX_READ_LEN)[0])
    name = bytes(reads.names[slice(*reads.name_offsets[row : row + 2])]).decode("ascii", "replace")
    mate, record = row % len(paths), (reads.first_read + row) // len(paths) + 1
    raise InputFormatError(
        f"{source_name(paths[mate])}: record {record}: read {name!r} has {lengths[row]} bases; the "
        f"short-read mode takes up to {MAX_READ_LEN}, and there is no long-read mode yet"
    )


def _compile(run: _Run, output: RecordOutput) -> None:
    """Compile every stage, or load it compiled, by mapping two made-up pairs.

    Done before the work starts, so that its time is known and no thread waits in the
    middle of a batch.
    """
    start = time.perf_counter()
    if not is_compiled():
        log.info("compiling for this machine, once (about a minute); kept in %s", CACHE_DIR)
    for paired in (False, True):
        reads = _made_up_reads(paired)
        quiet = RunStats()
        aligned = align_reads(run.index, reads, run.params, quiet, run.device)
        merged = merge_alignments(aligned.alignments, aligned.alignments)
        confident_inserts(reads.base_offsets[:1], merged, run.params.extend.match)
        _, records = place_batch(run.index, aligned, assumed_model(), run.params, run.names, quiet)
        output.encode(records, reads)
    run.stats.compile_seconds = time.perf_counter() - start


def _made_up_reads(paired: bool) -> ReadBatch:
    n, length = 4, 100
    bases = np.random.default_rng(1).integers(0, 4, n * length).astype(np.uint8)
    return ReadBatch(
        bases=bases,
        quals=np.full(n * length, 30, np.uint8),
        base_offsets=np.arange(n + 1, dtype=np.int64) * length,
        names=np.frombuffer(b"aabb", np.uint8).copy(),
        name_offsets=np.arange(n + 1, dtype=np.int64),
        first_read=0,
        paired=paired,
    )
