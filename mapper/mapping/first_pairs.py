"""The first pairs of a sample: mapped as far as the insert size, which is then frozen."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future
from functools import partial

import numpy as np

from mapper.io.output import RecordOutput
from mapper.io.reads import ReadsReader
from mapper.mapping.cut_ahead import CutAhead
from mapper.mapping.pipeline import Finished, Run
from mapper.mapping.stages import AlignedBatch
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import (
    ESTIMATION_PAIRS,
    ESTIMATION_READS,
    InsertSizeModel,
    assumed_model,
    confident_inserts,
    estimate,
    in_score_units,
)
from mapper.parallel.pool import MAP, Workers

log = logging.getLogger(__name__)


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
