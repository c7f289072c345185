"""Compiling every stage, or loading it compiled, before the work starts."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy as np

from mapper.accelerate import CACHE_DIR, is_compiled
from mapper.batch import ReadBatch
from mapper.extend.merge import merge_alignments
from mapper.index.reference import Index
from mapper.io.bam_out import RecordOutput
from mapper.io.carry import carry_over, with_tag
from mapper.pair.insert_size import assumed_model, confident_inserts
from mapper.pair.records import Names
from mapper.params import MapParams
from mapper.stages import align_reads, place_batch
from mapper.stats import RunStats

if TYPE_CHECKING:
    from mapper.device.backend import DeviceStages

log = logging.getLogger(__name__)


def compile_stages(
    index: Index, params: MapParams, names: Names, output: RecordOutput,
    device: DeviceStages | None = None,
) -> float:  # fmt: skip
    """Compile every stage, or load it compiled, by mapping two made-up pairs.

    Done before the work starts, so that its time is known and no thread waits in the
    middle of a batch.

    Returns
    -------
    Seconds that it took.
    """
    start = time.perf_counter()
    if not is_compiled():
        log.info("compiling for this machine, once (about a minute); kept in %s", CACHE_DIR)
    for paired in (False, True):
        reads = _made_up_reads(paired)
        quiet = RunStats()
        aligned = align_reads(index, reads, params, quiet, device)
        merged = merge_alignments(aligned.alignments, aligned.alignments)
        confident_inserts(reads.base_offsets[:1], merged, params.extend)
        _, records = place_batch(index, aligned, assumed_model(), params, names, quiet)
        output.encode(carry_over(records, with_tag(reads, b"XXi\0\0\0\0")), reads)
    return time.perf_counter() - start


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
