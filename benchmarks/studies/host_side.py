"""What the host does of a run with a device: `fmwave map` beside a device that knows the answers.

    python -m benchmarks.studies.host_side REF.fmw R1.fq.gz R2.fq.gz [--copies 4] [-t 2]
        [--batch-bases N ...] [--device-us 0 0.3]

The CPU's alignments of the reads are recorded first. Then whole runs, FASTQ.gz → BAM, take them
from that record in place of a device: what is left is the host's part (reading, packing into
batches, placing, records, encoding, compressing, writing), as the
pipeline drives it. `--device-us` lets the pretended device, which does one batch at a time, take so
many microseconds a read: the rate should then be the lesser of the host's and the device's.
The reads are given several times over (`--copies`, gzip members one behind the other), as the
start of a run is a large part of a short one. The BAM records of the runs have to be the same.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.common.harness import commit
from benchmarks.common.map_runs import records_digest
from mapper.batch import AlignmentBatch, ReadBatch, SeedSummary
from mapper.batch_ops import (
    DeviceResults,
    ResultSlice,
    join_alignments,
    join_summaries,
)
from mapper.cuda.devices import CUDA, DeviceChoice
from mapper.index.index import Index
from mapper.io.fastq import FastqReader
from mapper.mapping.job import MapJob
from mapper.mapping.pipeline import map_reads
from mapper.mapping.stages import Aligned, align_reads, rescue_mates
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import InsertSizeModel, in_score_units, model_from
from mapper.params import DEVICE_BATCH_BASES, MapParams
from mapper.seed.exact import resolve_all

RECORDED_BASES = 3_000_000
MODEL = model_from(320.0, 50.0, 120, 520, 0)


def record(index: Index, paths: Sequence[str], threads: int) -> DeviceResults:
    """Return what the CPU makes of all reads, mates rescued."""
    params = MapParams()
    params = resolve_all(params, index.fm.n_rows - 1)
    model = in_score_units(MODEL, params.extend.match)

    def work(reads: ReadBatch) -> tuple[SeedSummary, AlignmentBatch]:
        aligned = align_reads(index, reads, params, RunStats())
        return aligned.seeds, rescue_mates(index, aligned, model, params, RunStats())

    with FastqReader(paths, False, RECORDED_BASES) as reader, ThreadPoolExecutor(threads) as pool:
        batches = []
        while (batch := reader.next_batch()) is not None:
            batches.append(pool.submit(work, batch))
        seeds, alignments = zip(*(b.result() for b in batches), strict=True)
    return DeviceResults(None, join_summaries(seeds), join_alignments(alignments))


class PretendedDevice:
    """Stands in for :class:`mapper.mapping.stages_cuda.DeviceStages`."""

    def __init__(
        self, index: Index, recorded: DeviceResults, streams: int, us_per_read: float
    ) -> None:
        self._index = index
        self.streams = [SimpleNamespace(fm=index.fm)] * streams
        self.index_bytes = self.process_bytes = 0
        self.batch_bases = DEVICE_BATCH_BASES
        self._recorded = recorded
        self._busy = threading.Lock()
        self._seconds = us_per_read * 1e-6

    def warm_up(self, reads: ReadBatch, params: MapParams, _names: object = None) -> Aligned:
        """Align the reads that are made up to compile everything before the run."""
        return align_reads(self._index, reads, params, RunStats())

    def align_batches(
        self, batches: Sequence[ReadBatch], _params: MapParams, _stats: RunStats,
        _model: InsertSizeModel | None = None,
    ) -> list[ResultSlice]:  # fmt: skip
        """Return what was recorded of these reads, which follow one another."""
        n_reads = sum(reads.n_reads for reads in batches)
        if self._seconds:
            with self._busy:
                time.sleep(n_reads * self._seconds)
        whole = self._look_up(batches[0].first_read, n_reads)
        ends = np.cumsum([reads.n_reads for reads in batches]).tolist()
        return [
            ResultSlice(whole, end - reads.n_reads, end)
            for reads, end in zip(batches, ends, strict=True)
        ]

    def _look_up(self, start: int, n: int) -> DeviceResults:
        """Return what is recorded of `n` reads of the copies, from `start` on."""
        n_known = len(self._recorded.seeds.guarantee)
        start %= n_known
        parts = []
        while n:
            end = min(start + n, n_known)
            parts.append(ResultSlice(self._recorded, start, end).cut())
            n -= end - start
            start = 0
        if len(parts) == 1:
            return parts[0]
        _, seeds, alignments = zip(*parts, strict=True)
        return DeviceResults(None, join_summaries(seeds), join_alignments(alignments))


def run(index: Index, job: MapJob, device: Callable[..., Any]) -> tuple[RunStats, float]:
    """Map with a stand-in for the device's stages; return the CPU seconds, too."""
    from mapper.mapping import stages_cuda

    before = resource.getrusage(resource.RUSAGE_SELF)
    with mock.patch.object(stages_cuda, "DeviceStages", device):
        stats = map_reads(index, job)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return stats, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("index")
    parser.add_argument("reads", nargs=2)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--batch-bases", type=int, nargs="+", default=[DEVICE_BATCH_BASES])
    parser.add_argument("--device-us", type=float, nargs="+", default=[0.0])
    parser.add_argument("--streams", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, nargs="+", default=[2])
    args = parser.parse_args()
    index = Index.open(args.index)
    recorded = record(index, args.reads, max(args.threads))
    print(f"commit {commit()}; {len(recorded.seeds.guarantee)} reads recorded", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        reads = [str(Path(folder) / f"reads_{i}.fq.gz") for i in (1, 2)]
        for source, target in zip(args.reads, reads, strict=True):
            with Path(target).open("wb") as several:
                for _ in range(args.copies):
                    with Path(source).open("rb") as one:
                        shutil.copyfileobj(one, several)
        digests = set()
        for _ in range(args.rounds):
            for threads in args.threads:
                for batch_bases in args.batch_bases:
                    for us in args.device_us:
                        out = Path(folder) / "out.bam"
                        job = MapJob(
                            reads, str(out), "bam", threads=threads, batch_bases=batch_bases,
                            insert_size=MODEL, device=DeviceChoice(CUDA, (0,)),
                        )  # fmt: skip
                        stats, cpu = run(
                            index, job,
                            lambda *_, us=us: PretendedDevice(index, recorded, args.streams, us),
                        )  # fmt: skip
                        digests.add(records_digest(out))
                        show(stats, cpu, threads, batch_bases, us)
    print("records:", *digests)
    return int(len(digests) != 1)


def show(stats: RunStats, cpu: float, threads: int, batch_bases: int, us: float) -> None:
    """Print one run; of each stage the time of threads, and that with a CPU."""
    n = stats.counts["reads"]
    mapping = stats.wall_seconds - stats.compile_seconds
    stages = " ".join(
        f"{name} {1e6 * seconds / n:.2f} ({1e6 * stats.stage_cpu_seconds[name] / n:.2f})"
        for name, seconds in stats.stage_seconds.items()
        if seconds
    )
    print(
        f"{threads} threads, batches of {batch_bases / 1e6:g} Mb, device {us:g} µs: "
        f"{n / mapping / 1e6:.3f} M reads/s, {1e6 * cpu / n:.2f} CPU µs a read; {stages}; "
        f"peak {stats.summary()['peak_memory_bytes'] / 1e9:.2f} GB",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
