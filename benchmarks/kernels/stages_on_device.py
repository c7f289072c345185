"""Measure the mapper's device stages with everything on the device: kernels one by one.

    python -m benchmarks.kernels.stages_on_device REF.fmw R1.fq.gz R2.fq.gz [--bases N ...]

For each batch size the second batch of the reads is uploaded, and seeding, chaining and
extension run `repeats` times after a warm-up; medians of the kernels' times by CUDA events, and of
wall times that include the launches, the counts that come back between kernels, and (extension)
the download of the result. The result is compared with the CPU's in the same run. Last,
extension alone by several lanes at a time, by the wall clock.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import defaultdict
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import commit
from mapper.batch import ReadBatch
from mapper.chain import cuda as device_chain
from mapper.device.backend import DeviceStages, Lane
from mapper.device.choose import choose_device, find_devices
from mapper.device.reads import upload_reads
from mapper.device.seam import Kernel, cuda
from mapper.extend import cuda as device_extend
from mapper.index.format import open_index
from mapper.io.fastq import FastqReader
from mapper.params import DEVICE_BATCH_BASES, MapParams
from mapper.pipeline import DEVICE_SWITCH_SECONDS
from mapper.seed import cuda as device_seed
from mapper.seed.plan import resolve
from mapper.stages import align_reads
from mapper.stats import RunStats

KERNELS = {
    "seed": (device_seed, "_seed"),
    "order seeds": (device_seed, "_gather"),
    "chain": (device_chain, "_chain"),
    "ungapped": (device_extend, "align_ungapped"),
    "begin": (device_extend, "begin"),
    "thread": (device_extend, "extend_alone"),
    "warp": (device_extend, "extend_by_warp"),
    "go on": (device_extend, "go_on"),
    "settle": (device_extend, "settle"),
    "settle alone": (device_extend, "settle_by_warp"),
    "keep": (device_extend, "keep"),
    "spell": (device_extend, "spell"),
    "count": (device_extend, "count_ops"),
    "order": (device_extend, "gather"),
}
EXTENSION = tuple(KERNELS)[3:]


class TimedKernel:
    """A kernel whose launches are enclosed in events."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.launches: list[tuple[Any, Any]] = []

    def launch(self, n_items: int, stream: Any, *args: Any) -> None:
        if n_items:
            start, end = cuda.event(), cuda.event()
            start.record(stream)
            self.kernel.launch(n_items, stream, *args)
            end.record(stream)
            self.launches.append((start, end))

    def milliseconds(self) -> list[float]:
        return [start.elapsed_time(end) for start, end in self.launches]


def second_batch(paths: list[str], n_bases: int) -> ReadBatch:
    reader = FastqReader(paths, False, n_bases)
    reader.next_batch()
    batch = reader.next_batch()
    reader.close()
    if batch is None:
        raise SystemExit(f"the reads are fewer than two batches of {n_bases} bases")
    return batch


def seeds_and_loci(lane: Lane, batch: ReadBatch, params: MapParams) -> tuple[Any, ...]:
    """Upload a batch, seed and chain it; return what extension takes."""
    longest = int(np.diff(batch.base_offsets).max())
    reads = upload_reads(lane.space, [batch])
    seeds = device_seed.seed_reads(lane.space, lane.fm, reads, longest, params.seed)
    loci = device_chain.find_loci(lane.space, lane.contigs, seeds)
    return reads, longest, loci, seeds.read


def extend(lane: Lane, given: tuple[Any, ...], params: MapParams) -> Any:
    reads, longest, loci, locus_read = given
    there = device_extend.extend_loci(
        lane.space, lane.fm.ref_planes, reads, longest, loci, locus_read, params.extend
    )
    return device_extend.download_alignments(lane.space, there)


def measure_kernels(index: Any, batch: ReadBatch, params: MapParams, repeats: int) -> str:
    """Return one row of the table, after comparing the result with the CPU's."""
    lane = DeviceStages(index, [0], lanes=1).lanes[0]
    times: dict[str, list[list[float]]] = defaultdict(list)
    walls = []
    for repeat in range(repeats + 1):
        timed = {}
        for name, (module, attribute) in KERNELS.items():
            kernel = getattr(module, attribute)
            timed[name] = TimedKernel(getattr(kernel, "kernel", kernel))
            setattr(module, attribute, timed[name])
        given = seeds_and_loci(lane, batch, params)
        lane.space.synchronize()
        start = time.perf_counter()
        result = extend(lane, given, params)
        if repeat:
            walls.append(1e3 * (time.perf_counter() - start))
            for name, kernel in timed.items():
                times[name].append(kernel.milliseconds())
    for name, (module, attribute) in KERNELS.items():
        setattr(module, attribute, timed[name].kernel)
    expected = align_reads(index, batch, params, RunStats()).alignments
    for column, other in zip(result, expected, strict=True):
        assert np.array_equal(column, other), "the device's alignments differ from the CPU's"
    launches = {
        name: [median(run[i] for run in runs) for i in range(len(runs[0]))]
        for name, runs in times.items()
    }
    n_loci = len(given[3])
    kernels_ms = sum(sum(launches[name]) for name in EXTENSION)
    cells = [" + ".join(f"{ms:.2f}" for ms in launches[name]) for name in KERNELS]
    rates = [n_loci / kernels_ms / 1e3, n_loci / median(walls) / 1e3]
    return " | ".join([f"{batch.n_reads}", f"{n_loci}", *cells, *(f"{rate:.1f}" for rate in rates)])


def measure_lanes(
    index: Any, batch: ReadBatch, params: MapParams, n_lanes: int, repeats: int
) -> float:
    """Return millions of loci a second with `n_lanes` threads that extend, each in its lane."""
    lanes = DeviceStages(index, [0], lanes=n_lanes).lanes
    given = [seeds_and_loci(lane, batch, params) for lane in lanes]

    def work(i: int) -> None:
        for _ in range(repeats):
            extend(lanes[i], given[i], params)

    for i in range(n_lanes):
        extend(lanes[i], given[i], params)  # grows the buffers
    threads = [threading.Thread(target=work, args=(i,)) for i in range(n_lanes)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    return n_lanes * repeats * len(given[0][3]) / seconds / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index")
    parser.add_argument("reads", nargs=2)
    parser.add_argument("--bases", type=int, nargs="+", default=[3_000_000, DEVICE_BATCH_BASES])
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    choose_device("cuda")
    sys.setswitchinterval(DEVICE_SWITCH_SECONDS)
    index = open_index(args.index)
    params = MapParams()
    params = params._replace(seed=resolve(params.seed, index.fm.n_rows - 1))
    print(f"{find_devices().devices[0].name}, commit {commit()}; buckets: "
          f"{device_extend.THREAD_BUCKETS}, {device_extend.WARP_BUCKETS}\n")  # fmt: skip
    header = ["reads", "loci", *(f"{name} ms" for name in KERNELS), "M loci/s", "M loci/s wall"]
    print(" | ".join(header))
    print("|".join("---" for _ in header))
    for n_bases in args.bases:
        print(measure_kernels(index, second_batch(args.reads, n_bases), params, args.repeats))
    print("\nlanes | M loci/s wall\n---|---")
    batch = second_batch(args.reads, args.bases[-1])
    for n_lanes in args.lanes:
        print(f"{n_lanes} | {measure_lanes(index, batch, params, n_lanes, args.repeats):.1f}")


if __name__ == "__main__":
    main()
