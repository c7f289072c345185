"""Measure extension on a device: read–locus pairs a second with CIGAR, data on the device.

    python -m benchmarks.studies.extension_rate REF.fmw R1.fq R2.fq [--bases 30M 120M] [--streams 1
    4]

For each batch size the first reads are uploaded, seeded and chained once; their loci are then
extended `repeats` times after two that grow the buffers: every locus aligned, CIGARs of the
alignments that are kept (`--keep all`: of all; `mapping`: of those that may matter to a mapper's
records). Rates count all loci. *kernels*: the sum of the kernels' times by CUDA events; *wall*:
from the first launch to the last result on the device, the counts that come to the host in between
included; *streams*: the same batch in several streams at a time, by the wall clock. Medians, with
the lowest and the highest. The alignments of the smallest batch are compared with the CPU's.
Results: OUT/extension_rate.{md,json}.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import harness
from benchmarks.common.map_runs import gpus
from benchmarks.studies.device_part import first_batch
from benchmarks.studies.lane_probe import Probe
from mapper.batch import ReadBatch
from mapper.cli.sizes import size
from mapper.index.index import Index
from mapper.mapping.stages import align_reads
from mapper.mapping.stats import RunStats
from mapper.params import DEVICE_BATCH_BASES, DEVICE_STREAMS, KEEP_ALL, KeepParams, MapParams
from mapper.seed.exact import resolve_all

WARM_UPS = 2
GOAL = 50e6
"""Extensions a second that are asked for."""


class Extension:
    """A batch whose loci are on the device, in one stream."""

    def __init__(self, stream: Any, batch: ReadBatch, params: MapParams, keep: KeepParams) -> None:
        from mapper.chain.cuda import find_loci
        from mapper.seed.cuda import seed_reads, upload_reads

        self.stream, self.params, self.keep = stream, params, keep
        self.reads, self.longest = upload_reads(stream.space, [batch])
        self.seeds = seed_reads(stream.space, stream.fm, self.reads, self.longest, params.seed)
        self.loci = find_loci(stream.space, stream.contigs, self.seeds)

    @property
    def n_loci(self) -> int:
        return len(self.seeds.read)

    def __call__(self) -> Any:
        """Extend all loci; return the alignments, which stay on the device."""
        from mapper.extend.cuda import extend_loci

        space = self.stream.space
        there = extend_loci(
            space, self.stream.fm.ref_planes, self.reads, self.longest, self.loci, self.seeds.read,
            self.params.extend, self.keep,
        )  # fmt: skip
        space.synchronize()
        return there


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median, the lowest and the highest."""
    return {"median": median(values), "lowest": min(values), "highest": max(values)}


def measure_batch(
    index: Index, batch: ReadBatch, params: MapParams, keep: KeepParams, repeats: int,
    *, compare: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return the rates of a batch in one stream, and its kernels' times."""
    from mapper.extend.cuda import download_alignments
    from mapper.mapping.stages_cuda import DeviceStages

    extend = Extension(DeviceStages(index, [0], n_streams=1).streams[0], batch, params, keep)
    for _ in range(WARM_UPS):
        there = extend()
    same = None
    if compare:
        found = download_alignments(extend.stream.space, there)
        expected = align_reads(index, batch, params, RunStats()).alignments
        same = all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    walls = []
    for _ in range(repeats):
        start = time.perf_counter()
        extend()
        walls.append(time.perf_counter() - start)
    kernels, totals = [], []
    probe = Probe()
    for _ in range(repeats):
        with probe, probe.part("extend") as part:
            extend()
        times: Counter[str] = Counter()
        for name, first, last in part.kernels:
            times[name] += first.elapsed_time(last)
        kernels.append(times)
        totals.append(times.total())
        probe.clear()
    row = {
        "reads": batch.n_reads, "loci": extend.n_loci, "spelled": there.n_rows,
        "kernels_ms": spread(totals), "wall_ms": spread([1e3 * wall for wall in walls]),
        "by_kernel_ms": {name: median(t[name] for t in kernels) for name in kernels[0]},
        "as_the_cpu": same,
    }  # fmt: skip
    extend.stream.space.release()
    return row


def measure_streams(
    index: Index,
    batch: ReadBatch,
    params: MapParams,
    keep: KeepParams,
    n_streams: int,
    repeats: int,
) -> dict[str, Any]:
    """Return loci a second with `n_streams` threads that extend the batch, each in its stream."""
    from mapper.cuda.api import device_context
    from mapper.mapping.stages_cuda import DeviceStages

    streams = DeviceStages(index, [0], n_streams=n_streams).streams
    work = [Extension(stream, batch, params, keep) for stream in streams]

    def run(extend: Extension, times: int) -> None:
        with device_context(0):
            for _ in range(times):
                extend()

    rates = []
    for times in (WARM_UPS, *(repeats for _ in range(repeats))):
        threads = [threading.Thread(target=run, args=(extend, times)) for extend in work]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rates.append(n_streams * times * work[0].n_loci / (time.perf_counter() - start))
    for stream in streams:
        stream.space.release()
    return {
        "streams": n_streams, "reads": batch.n_reads, "loci": work[0].n_loci,
        "loci_per_s": spread(rates[1:]),
    }  # fmt: skip


def millions(loci: int, ms: dict[str, float]) -> str:
    """Return the median rate, and the range, in millions a second."""
    rates = [1e-3 * loci / ms[key] for key in ("median", "highest", "lowest")]
    return f"**{rates[0]:.1f}** ({rates[1]:.1f}–{rates[2]:.1f})"


def lines_of(report: dict[str, Any]) -> list[str]:
    """Return the report in markdown."""
    about = report["about"]
    lines = [
        "# Extension on a device", "", *harness.markdown_provenance(about)[:-1],
        "; ".join(about["gpus"]), "",
        f"{report['what']}. Loci are read–locus pairs, both mates of pairs; asked for are "
        f"{GOAL / 1e6:.0f} M a second. M loci/s: medians of {report['repeats']} "
        "(lowest–highest), data on the device, every locus aligned.",
        "",
    ]  # fmt: skip
    lines += harness.table(
        [
            *("CIGARs of", "reads a batch", "loci", "CIGARs", "kernels", "wall, one stream"),
            "the CPU's",
        ],
        [
            [row["keep"], f"{row['reads']:,}", f"{row['loci']:,}", f"{row['spelled']:,}",
             millions(row["loci"], row["kernels_ms"]), millions(row["loci"], row["wall_ms"]),
             {None: "–", True: "the same", False: "**DIFFERENT**"}[row["as_the_cpu"]]]
            for row in report["batches"]
        ],
    )  # fmt: skip
    lines += harness.table(
        ["CIGARs of", "streams at a time", "reads a batch", "wall"],
        [
            [row["keep"], row["streams"], f"{row['reads']:,}",
             f"**{1e-6 * row['loci_per_s']['median']:.1f}** "
             f"({1e-6 * row['loci_per_s']['lowest']:.1f}–"
             f"{1e-6 * row['loci_per_s']['highest']:.1f})"]
            for row in report["streams"]
        ],
    )  # fmt: skip
    if report["batches"]:
        names = list(report["batches"][0]["by_kernel_ms"])
        lines += harness.table(
            ["kernel, ms", *(f"{r['reads']:,} reads, {r['keep']}" for r in report["batches"])],
            [
                [name, *(f"{row['by_kernel_ms'].get(name, 0):.2f}" for row in report["batches"])]
                for name in names
            ],
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write what is known after every row; 1 if alignments are not the CPU's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("index")
    parser.add_argument("reads", nargs=2)
    parser.add_argument("--bases", type=size, nargs="+", default=[DEVICE_BATCH_BASES])
    parser.add_argument("--streams", type=int, nargs="*", default=[1, DEVICE_STREAMS])
    parser.add_argument("--keep", nargs="+", choices=["all", "mapping"], default=["all", "mapping"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--what", default="", help="what the reads are, for the report")
    parser.add_argument("--stem", default="extension_rate", help="of the results [%(default)s]")
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="folder [%(default)s]")
    harness.add_commit(parser)
    options = parser.parse_args(arguments)
    from mapper.cuda.devices import choose_device
    from mapper.mapping.device_batches import SWITCH_SECONDS

    choose_device("cuda")
    sys.setswitchinterval(SWITCH_SECONDS)
    index = Index.open(options.index)
    params = MapParams()
    params = resolve_all(params, index.fm.n_rows - 1)
    kept = {"all": KEEP_ALL, "mapping": params.keep}
    versions = {name: metadata.version(name) for name in ("numba", "numba-cuda", "numpy")}
    about = harness.provenance(versions) | {"commit": options.commit, "gpus": gpus()}
    what = options.what or " ".join(Path(path).name for path in options.reads)
    report: dict[str, Any] = {
        "about": about, "what": what, "repeats": options.repeats, "batches": [], "streams": [],
    }  # fmt: skip
    batches = [first_batch(options.reads, n_bases) for n_bases in sorted(options.bases)]
    for name in options.keep:
        for batch in batches:
            compare = batch is batches[0] and kept[name] == params.keep
            row = measure_batch(index, batch, params, kept[name], options.repeats, compare=compare)
            report["batches"].append({"keep": name, **row})
            harness.write_results(options.out, options.stem, report, lines_of(report))
    for n_streams in options.streams:
        row = measure_streams(index, batches[0], params, KEEP_ALL, n_streams, options.repeats)
        report["streams"].append({"keep": "all", **row})
        harness.write_results(options.out, options.stem, report, lines_of(report))
    print("\n".join(lines_of(report)))
    return 1 if any(row["as_the_cpu"] is False for row in report["batches"]) else 0


if __name__ == "__main__":
    sys.exit(main())
