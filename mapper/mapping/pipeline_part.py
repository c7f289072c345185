"""A whole mapping run: reading, the stages, writing, overlapped and in order.

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

import sys
from collections import deque
from concurrent.futures import Future
from functools import partial

from tqdm import tqdm

from mapper.errors import OutputError
from mapper.index.reference import Index
from mapper.io.header import header_text
from mapper.io.output import RecordOutput, open_output
from mapper.io.reads import Lane, ReadOptions, ReadsReader
from mapper.mapping.compile_ahead import FINISHING, READING, Helpers
from mapper.mapping.cut_ahead import CutAhead
from mapper.mapping.first_pairs import freeze_insert_size
from mapper.mapping.job import MapJob
from mapper.mapping.pipeline import Finished, Run
from mapper.mapping.session import Session
from mapper.mapping.stats import RunStats
from mapper.mapping.warm_up import compile_stages
from mapper.parallel.buffers import RECYCLER
from mapper.parallel.pool import READ, WRITE, Workers, share_threads
from mapper.params import MAX_READ_LEN

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
