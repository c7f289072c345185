"""Measure what a device does of mapping: pack, seed, chain, extend and rescue, reads to alignments.

    python -m benchmarks.studies.device_part REF.fmw R1.fq R2.fq [--bases N ...] [--streams N ...]

For each batch size the first batch goes through the stages in one stream, five times after two that
grow the buffers. Tables of the first time and the last: wall and CPU time of every part, kernels
by CUDA events, launches, waiting, copies, allocations and page faults (`lane_probe.py`). Then
batches of the last size through several streams at a time, by the wall clock; then once more with
events around every kernel, which tell how many run at a time. The MD5 of the
alignments' columns is printed; ``--device cpu`` prints that of the CPU's.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import threading
import time
from statistics import median

import numpy as np

from benchmarks.common import harness
from benchmarks.studies.lane_probe import COLUMNS, Overlap, Probe, rows
from mapper.batch import AlignmentBatch, ReadBatch
from mapper.index.index import Index
from mapper.io.fastq import FastqReader
from mapper.mapping.stages import align_reads, rescue_mates
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import (
    InsertSizeModel,
    confident_inserts,
    estimate,
    in_score_units,
)
from mapper.params import DEVICE_BATCH_BASES, MapParams
from mapper.seed.exact import resolve_all

WARM_UPS = 2


def first_batch(paths: list[str], n_bases: int) -> ReadBatch:
    reader = FastqReader(paths, False, n_bases)
    batch = reader.next_batch()
    reader.close()
    if batch is None:
        raise SystemExit("there are no reads")
    return batch


def digest(alignments: AlignmentBatch) -> str:
    md5 = hashlib.md5()
    for column in alignments:
        md5.update(np.ascontiguousarray(column).tobytes())
    return md5.hexdigest()


def model_of(batch: ReadBatch, alignments: AlignmentBatch, params: MapParams) -> InsertSizeModel:
    """Return the insert-size model of the batch's pairs, as a run estimates it."""
    inserts = confident_inserts(batch.base_offsets, alignments, params.extend)
    return in_score_units(estimate(inserts[inserts != 0]), params.extend.match)


def measure_batch(
    index: Index, batch: ReadBatch, params: MapParams, repeats: int
) -> InsertSizeModel:
    """Print what a batch takes in one stream: the first time, and when all buffers have grown."""
    from mapper.mapping import stages_cuda

    stages = stages_cuda.DeviceStages(index, [0], n_streams=1)
    model = model_of(batch, stages.align(batch, params, RunStats()).alignments, params)
    for stream in stages.streams:
        stream.space.release()
    probe = Probe()
    walls = []
    with probe:
        for repeat in range(WARM_UPS + repeats):
            probe.clear()
            start = time.perf_counter()
            found = stages.align(batch, params, RunStats(), model)
            alignments = found.alignments
            if repeat >= WARM_UPS:
                walls.append(time.perf_counter() - start)
            if repeat in (0, WARM_UPS + repeats - 1):
                print(f"\n{'first' if repeat == 0 else 'last'} of {WARM_UPS + repeats} times")
                print("\n".join(harness.table(list(COLUMNS), rows(probe.parts))))
                print("; ".join(f"{name}: {n}" for name, n in probe.counts.items()))
    for name, part in probe.parts.items():
        print(f"kernels of {name}, ms: {part.by_kernel()}")
    wall = median(walls)
    total = sum(part.kernel_ms() for part in probe.parts.values())
    print(f"{batch.n_reads} reads, {len(alignments.strand)} alignments, {digest(alignments)}")
    print(
        f"wall {1e3 * wall:.1f} ms ({1e3 * min(walls):.1f}-{1e3 * max(walls):.1f}), "
        f"{batch.n_reads / wall / 1e6:.2f} M reads/s; kernels {total:.1f} ms"
    )
    return model


def measure_streams(
    index: Index, batch: ReadBatch, params: MapParams, model: InsertSizeModel, n_streams: int,
    repeats: int,
) -> None:  # fmt: skip
    """Print millions of reads a second with `n_streams` threads, each in its stream."""
    from mapper.mapping.stages_cuda import DeviceStages

    stages = DeviceStages(index, [0], n_streams=n_streams)

    def run(times: int) -> float:
        def work() -> None:
            for _ in range(times):
                stages.align(batch, params, RunStats(), model)

        threads = [threading.Thread(target=work) for _ in range(n_streams)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start

    first = n_streams * batch.n_reads / run(1) / 1e6
    rate = n_streams * repeats * batch.n_reads / run(repeats) / 1e6
    cpu = time.process_time()
    run(repeats)
    cpu = (time.process_time() - cpu) / (n_streams * repeats)
    with Overlap() as overlap:
        run(repeats)
    print(
        f"{n_streams} streams: {rate:.2f} M reads/s; while the buffers grow {first:.2f}; CPU "
        f"{1e3 * cpu:.1f} ms a batch; {overlap.summary()}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index")
    parser.add_argument("reads", nargs=2)
    parser.add_argument("--bases", type=int, nargs="+", default=[DEVICE_BATCH_BASES])
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 3, 6])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    args = parser.parse_args()
    index = Index.open(args.index)
    params = MapParams()
    params = resolve_all(params, index.fm.n_rows - 1)
    if args.device == "cpu":
        for n_bases in args.bases:
            batch = first_batch(args.reads, n_bases)
            aligned = align_reads(index, batch, params, RunStats())
            model = model_of(batch, aligned.alignments, params)
            alignments = rescue_mates(index, aligned, model, params, RunStats())
            print(
                f"{batch.n_reads} reads, {len(alignments.strand)} alignments, {digest(alignments)}"
            )
        return
    from mapper.cuda.devices import choose_device, find_devices
    from mapper.mapping.device_batches import SWITCH_SECONDS

    choose_device("cuda")
    sys.setswitchinterval(SWITCH_SECONDS)
    print(f"{find_devices().devices[0].name}, commit {harness.commit()}")
    for n_bases in args.bases:
        batch = first_batch(args.reads, n_bases)
        model = measure_batch(index, batch, params, args.repeats)
    print()
    for n_streams in args.streams:
        measure_streams(index, batch, params, model, n_streams, args.repeats)


if __name__ == "__main__":
    main()
