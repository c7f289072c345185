"""Measure what a device does of mapping: pack, seed, chain and extend, from reads to alignments.

    python -m benchmarks.kernels.device_part REF.fmw R1.fq R2.fq [--bases N ...] [--lanes N ...]

For each batch size the first batch goes through the stages in one lane, five times after two that
grow the buffers: medians of every kernel's time by CUDA events, and of the wall time with all
copies. Then batches of the last size through several lanes at a time, by the wall clock. The
MD5 of the alignments' columns is printed; ``--device cpu`` prints that of the CPU's.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import threading
import time
from collections import defaultdict
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import commit
from mapper.batch import AlignmentBatch, ReadBatch
from mapper.index.format import open_index
from mapper.index.reference import Index
from mapper.io.fastq import FastqReader
from mapper.params import DEVICE_BATCH_BASES, MapParams
from mapper.seed.plan import resolve
from mapper.stages import align_reads
from mapper.stats import RunStats

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


def time_kernels(launches: list[tuple[str, Any, Any]]) -> None:
    """From now on, append each launch of any kernel, between two events, to `launches`."""
    from mapper.device.seam import Kernel, cuda

    launch_blocks = Kernel.launch_blocks

    def timed(self: Kernel, n_blocks: int, stream: Any, *args: Any, shared_bytes: int = 0) -> None:
        start, end = cuda.event(), cuda.event()
        start.record(stream)
        launch_blocks(self, n_blocks, stream, *args, shared_bytes=shared_bytes)
        end.record(stream)
        launches.append((self.function.__name__, start, end))

    Kernel.launch_blocks = timed  # type: ignore[method-assign]


def measure_batch(index: Index, batch: ReadBatch, params: MapParams, repeats: int) -> None:
    """Print the times of a batch in one lane."""
    from mapper.device import backend
    from mapper.device.seam import Kernel

    stages = backend.DeviceStages(index, [0], lanes=1)
    launches: list[tuple[str, Any, Any]] = []
    walls, runs = [], []
    untimed = Kernel.launch_blocks
    time_kernels(launches)
    try:
        for repeat in range(WARM_UPS + repeats):
            launches.clear()
            start = time.perf_counter()
            _, _, alignments = stages.align(batch, params, RunStats())
            if repeat >= WARM_UPS:
                walls.append(time.perf_counter() - start)
                runs.append([(name, a.elapsed_time(b)) for name, a, b in launches])
    finally:
        Kernel.launch_blocks = untimed  # type: ignore[method-assign]
    kernels: dict[str, list[str]] = defaultdict(list)
    total = 0.0
    for at_once in zip(*runs, strict=True):
        milliseconds = median(ms for _, ms in at_once)
        kernels[at_once[0][0]].append(f"{milliseconds:.2f}")
        total += milliseconds
    wall = median(walls)
    print(f"\n{batch.n_reads} reads, {len(alignments.strand)} alignments, {digest(alignments)}")
    print(f"wall {1e3 * wall:.1f} ms, {batch.n_reads / wall / 1e6:.2f} M reads/s")
    parts = "; ".join(f"{name} {' + '.join(times)}" for name, times in kernels.items())
    print(f"kernels {total:.1f} ms: {parts}")


def measure_lanes(
    index: Index, batch: ReadBatch, params: MapParams, n_lanes: int, repeats: int
) -> float:
    """Return millions of reads a second with `n_lanes` threads, each in its lane."""
    from mapper.device.backend import DeviceStages

    stages = DeviceStages(index, [0], lanes=n_lanes)

    def run(times: int) -> float:
        def work() -> None:
            for _ in range(times):
                stages.align(batch, params, RunStats())

        threads = [threading.Thread(target=work) for _ in range(n_lanes)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start

    run(1)  # grows the buffers
    return n_lanes * repeats * batch.n_reads / run(repeats) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index")
    parser.add_argument("reads", nargs=2)
    parser.add_argument("--bases", type=int, nargs="+", default=[DEVICE_BATCH_BASES])
    parser.add_argument("--lanes", type=int, nargs="*", default=[1, 3, 6])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    args = parser.parse_args()
    index = open_index(args.index)
    params = MapParams()
    params = params._replace(seed=resolve(params.seed, index.fm.n_rows - 1))
    if args.device == "cpu":
        for n_bases in args.bases:
            batch = first_batch(args.reads, n_bases)
            alignments = align_reads(index, batch, params, RunStats()).alignments
            print(
                f"{batch.n_reads} reads, {len(alignments.strand)} alignments, {digest(alignments)}"
            )
        return
    from mapper.device.choose import choose_device, find_devices
    from mapper.pipeline import DEVICE_SWITCH_SECONDS

    choose_device("cuda")
    sys.setswitchinterval(DEVICE_SWITCH_SECONDS)
    print(f"{find_devices().devices[0].name}, commit {commit()}")
    for n_bases in args.bases:
        measure_batch(index, first_batch(args.reads, n_bases), params, args.repeats)
    print()
    for n_lanes in args.lanes:
        rate = measure_lanes(
            index, first_batch(args.reads, args.bases[-1]), params, n_lanes, args.repeats
        )
        print(f"{n_lanes} lanes: {rate:.2f} M reads/s")


if __name__ == "__main__":
    main()
