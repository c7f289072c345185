"""Whole `fmwave map` runs on CUDA devices: the records of the CPU, and the rate.

    python -m benchmarks.studies.map_on_gpu records [--pairs 1000000] [--devices cuda cuda:0,1]
    python -m benchmarks.studies.map_on_gpu rates [--genome-size 1G] [--pairs 4000000]

`records` maps the real reads of the shared data, short and long, and simulated pairs, with the CPU,
and then with each of the devices, of three batch sizes, and of what compresses (a device only where
nvCOMP is installed); the alignment records of all BAM files have to be the same bytes. The results
are written after each, and what is left when the time is over is named.
`rates` makes a repeat-rich genome and reads, indexes it, and maps the reads with the device, with
the CPU, and with peers (paths given), in turn, all cores each. Times are of whole processes and,
for fmwave, what it reports without compilation and start.
Results: benchmarks/results/map_on_gpu_{records,rates}.{md,json}.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from isal import igzip

from benchmarks.common import data, harness
from benchmarks.common.harness import BenchmarkError
from benchmarks.common.map_runs import (
    gpus,
    index_of,
    map_with,
    records_digest,
    run,
    stage_table,
)
from benchmarks.real_reads import SETS
from mapper.cuda import nvcomp
from mapper.mapping.device_io import COMPRESS_ON, DEVICE, HOST

UNALIGNED = {
    "ebola": ("ref/ebola20.fa.gz", "bam/ebola_ubam_12rg.bam"),
    "umi": ("ref/chr22_40kb.fa", "bam/human_umi_ubam.bam"),
}
"""Reference and reads of the real sets that are unaligned BAM."""

LONG = {
    "ecoli_ont": ("ont", "ref/ecoli_k12.fa.gz", "reads/ecoli_ont.fa.gz"),
    "sarscov2_ont": ("ont", "ref/sarscov2.fa", "reads/sarscov2_ont.fq.gz"),
    "hg002_ont": ("ont", "ref/hg002_chr6_72kb.fa.gz", "reads/hg002_ont_over64kb.fq.gz"),
    "moth_hifi": ("hifi", "ref/moth_mt.fa", "reads/moth_hifi.fa.gz"),
}
"""Preset, reference and reads of the real sets of long reads."""

BATCHES = (3_000_000, 12_000_000, 30_000_000)
RECORDS_SEED, RATES_SEED = 11, 13
SIMULATED = "simulated"
LONG_RUN_S = 15
"""A run that takes longer has compiled: the next will not."""


# -------------------------------------------------------------------------------- records


def compare_records(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Map every set on the CPU and every way on devices; compare. Yields all there is so far."""
    started, last = time.monotonic(), 0.0
    rows: list[dict[str, Any]] = []
    compress_on = options.compress_on or [HOST, *[DEVICE] * (nvcomp.load() is not None)]
    ways = list(itertools.product(options.devices, options.batches, compress_on))
    left = [(name, *way) for name in options.sets for way in ways]
    before = ""
    while left:
        begin = time.monotonic()
        if options.limit_s and begin - started + 2 * last > options.limit_s:
            break
        name, device, batch, compressed_on = left.pop(0)
        if name != before:
            index, reads, given = set_of(name, options)
            bam, report = map_with(index, reads, "cpu", options.threads, options.data, *given)
            expected, before = records_digest(bam), name
        begin = time.monotonic()
        bam, _ = map_with(
            index, reads, device, options.threads, options.data, *given, "--batch-bases", batch,
            "--compress-on", compressed_on,
        )  # fmt: skip
        same = records_digest(bam) == expected
        rows.append(
            {"set": shown(name, options), "reads": report["counts"]["reads"], "device": device,
             "batch_bases": batch, "compress_on": compressed_on, "md5": expected, "same": same}
        )  # fmt: skip
        last = min(time.monotonic() - begin, LONG_RUN_S)
        print(f"[{time.monotonic() - started:.0f} s]", rows[-1], flush=True)
        yield records_report(rows, left)
    if not rows:
        raise BenchmarkError(f"{options.limit_s} s were not enough for a single run")


def records_report(
    rows: list[dict[str, Any]], left: Sequence[tuple[str, str, int, str]]
) -> tuple[dict[str, Any], list[str]]:
    lines = harness.table(
        ["reads of", "reads", "device", "bases a batch", "compressed on", "records as the CPU's"],
        [
            [r["set"], f"{r['reads']:,}", r["device"], f"{r['batch_bases']:,}",
             r["compress_on"], "the same bytes" if r["same"] else "**DIFFERENT**"]
            for r in rows
        ],
    )  # fmt: skip
    if left:
        missing = "; ".join(
            f"{name}, {device}, {batch:,}, {compressed_on}"
            for name, device, batch, compressed_on in left
        )
        lines += [f"**Not compared, for want of time**: {missing}.", ""]
    failed = not all(r["same"] for r in rows)
    return {"rows": rows, "left": left, "failed": failed}, lines


def set_of(name: str, options: argparse.Namespace) -> tuple[Path, Sequence[Path], Sequence[str]]:
    """Return index and reads of a set, made if they are not there, and its options."""
    if name in UNALIGNED:
        reference, bam = map(data.shared_file, UNALIGNED[name])
        return index_of(reference, options.data), [bam], []
    if name in LONG:
        preset, *paths = LONG[name]
        reference, reads = map(data.shared_file, paths)
        return index_of(reference, options.data), [reads], ["--preset", preset]
    if name != SIMULATED:
        fasta, mates = SETS[name].files()
        return index_of(fasta, options.data), mates, []
    simulated = data.DataSet(
        "ecoli_pe150", "ecoli_k12", options.pairs, 150, paired=True, seed=RECORDS_SEED
    )
    files = data.make(simulated, options.data)
    return index_of(files.reference, options.data), files.reads, []


def shown(name: str, options: argparse.Namespace) -> str:
    return f"{options.pairs} simulated pairs" if name == SIMULATED else name


# ---------------------------------------------------------------------------------- rates


def measure_rates(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Map in turn with devices, CPU and peers."""
    work = options.data
    name = f"synth{options.genome_size}"
    files = data.make(
        data.DataSet(f"{name}_pe150", name, options.pairs, 150, paired=True, seed=RATES_SEED), work
    )
    index = index_of(files.reference, work)
    n_reads = 2 * options.pairs
    few = tuple(work / f"few_{path.name}" for path in files.reads)
    for source, target in zip(files.reads, few, strict=True):
        with igzip.open(source, "rb") as reads, target.open("wb") as part:
            part.writelines(next(reads) for _ in range(40_000))
    peers = [Path(path) for path in options.peers]
    processes: dict[str, list[float]] = {}
    reports: dict[str, list[dict[str, Any]]] = {}
    digests: dict[str, str] = {}
    for turn in range(options.rounds):
        for device in (*options.devices, "cpu"):
            if turn == 0:
                map_with(index, few, device, options.threads, work)  # compiles
            bam, report = map_with(index, files.reads, device, options.threads, work)
            reports.setdefault(device, []).append(report)
            processes.setdefault(f"fmwave --device {device}", []).append(report["process_s"])
            digests[device] = digests.get(device) or records_digest(bam)
            print(device, report["reads_per_second"], "reads/s", flush=True)
        for peer in peers:
            built = work / f"{files.reference.name}.{peer.name}.mmi"
            if not built.exists():
                run([peer, "-x", "sr", "-d", built, files.reference], work / f"{peer.name}.log")
            command = [peer, "-ax", "sr", "-t", str(options.threads), built, *files.reads]
            wall = run(command, work / f"{peer.name}.log", work / f"{peer.name}.sam")
            processes.setdefault(f"{peer.name} -ax sr", []).append(wall)
            print(peer.name, f"{n_reads / wall:.0f} reads/s", flush=True)
    own = {
        f"fmwave --device {device}": statistics.median(r["reads_per_second"] for r in runs)
        for device, runs in reports.items()
    }
    rows = [
        [who, f"{statistics.median(walls):.1f} ({min(walls):.1f}–{max(walls):.1f})",
         f"{n_reads / statistics.median(walls):,.0f}", f"{own[who]:,.0f}" if who in own else "–"]
        for who, walls in processes.items()
    ]  # fmt: skip
    same = len(set(digests.values())) == 1
    lines = [
        f"{name}, {n_reads:,} reads of 150 bp in pairs (seed {RATES_SEED}), FASTQ.gz to BAM (SAM "
        f"for peers), {options.threads} threads, medians of {options.rounds} rounds in turn. "
        f"Records of all devices: {'the same bytes' if same else '**DIFFERENT**'}.",
        "",
        *harness.table(
            ["", "process, s (range)", "reads/s", "reads/s without start and compilation"], rows
        ),
        *stage_table({device: runs[-1] for device, runs in reports.items()}),
    ]
    yield {"processes": processes, "reports": reports, "same": same, "failed": not same}, lines


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("what", choices=("records", "rates"))
    result.add_argument("--devices", nargs="+", default=["cuda"], help="[cuda]")
    result.add_argument("--pairs", type=int, default=1_000_000, help="[%(default)s]")
    sets = [SIMULATED, *SETS, *UNALIGNED, *LONG]
    result.add_argument("--sets", nargs="+", choices=sets, default=sets, help="of records [all]")
    result.add_argument("--batches", nargs="+", type=int, default=BATCHES, help="of records")
    result.add_argument(
        "--compress-on",
        nargs="+",
        choices=COMPRESS_ON,
        help="of records [host; device with nvCOMP]",
    )
    result.add_argument("--limit-s", type=float, help="of records: seconds for everything")
    result.add_argument("--genome-size", default="1G", help="[%(default)s]")
    result.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    result.add_argument("--peers", nargs="*", default=[], help="paths of minimap2 programs")
    result.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    harness.add_commit(result)
    result.add_argument("--data", type=Path, default=harness.DATA, help="[%(default)s]")
    result.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    return result


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Compare or measure; 1 if records differ or something fails."""
    options = parser().parse_args(arguments)
    on_gpu = any(device != "cpu" for device in options.devices)
    about = harness.provenance({}) | {"commit": options.commit, "gpus": gpus() if on_gpu else []}
    options.data.mkdir(parents=True, exist_ok=True)
    heading = [
        f"# fmwave map on CUDA: {options.what}",
        "",
        *harness.markdown_provenance(about)[:-2],
        f"{'; '.join(about['gpus'])}.",
        "",
    ]
    stem = f"map_on_gpu_{options.what}"
    failed, lines = False, list[str]()
    step = compare_records if options.what == "records" else measure_rates
    for report, lines in step(options):
        failed = report["failed"]
        harness.write_results(options.out, stem, {"about": about, **report}, heading + lines)
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
