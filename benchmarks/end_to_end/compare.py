"""Speed and accuracy of fmwave beside its peers on simulated reads.

    python -m benchmarks.end_to_end.compare --rounds 3

All mappers run in turn, round after round, on the same machine, reads and number of threads;
fmwave writes BAM, the peers SAM. What is not measured: fmwave's compilation (a first run on a
few reads, reported apart) and the index build (measured once, its own table). The records of
the last round are scored. Results: benchmarks/results/compare-DATE-COMMIT.{md,json}.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import data, harness
from benchmarks.harness import BenchmarkError, Mapper

WARM_UP_READS = 2_000  # of each file
TINY_REFERENCE = harness.ROOT / "tests" / "data" / "phix174.fa"
THRESHOLDS = (10, 20, 30, 60)
MAPQ_RANGES = ((0, 0), (1, 9), (10, 19), (20, 29), (30, 39), (40, 59), (60, 255))


def first_reads(path: Path, target: Path) -> Path:
    with gzip.open(path, "rt") as reads, gzip.open(target, "wt", compresslevel=1) as out:
        out.writelines(itertools.islice(reads, 4 * WARM_UP_READS))
    return target


class Bench:
    """The mappers on one data set; ``results`` holds what was found, or why a mapper is out."""

    def __init__(self, files: data.Files, mappers: Sequence[Mapper], threads: int, work: Path):
        self.files = files
        self.threads = threads
        self.work = work
        self.running = list(mappers)
        self.indexes: dict[str, Path] = {}
        self.results: dict[str, dict[str, Any]] = {mapper.name: {} for mapper in mappers}

    def output(self, mapper: Mapper) -> Path:
        return self.work / f"{mapper.program}{mapper.suffix}"

    def for_each(self, mappers: Sequence[Mapper], step: Callable[[Mapper], None]) -> None:
        """Take the step with each mapper; one that fails takes no further step."""
        for mapper in mappers:
            try:
                step(mapper)
            except BenchmarkError as error:
                self.running.remove(mapper)
                self.results[mapper.name]["failed"] = str(error)
                print(f"  {mapper.name} failed: {error}", flush=True)

    def map(self, mapper: Mapper, reads: Sequence[Path]) -> dict[str, Any]:
        cost, log = harness.run_mapper(
            mapper, self.indexes[mapper.name], reads, self.threads, self.output(mapper)
        )
        if cost.exit_status:
            raise BenchmarkError(f"exit status {cost.exit_status}:\n{harness.tail(log)}")
        return asdict(cost)

    def prepare(self, mapper: Mapper) -> None:
        """Index, then map a few reads: what compiles or fills caches does it now."""
        harness.build_index(mapper, TINY_REFERENCE, self.work / "tiny")
        index, cost = harness.build_index(mapper, self.files.reference, self.work / "index")
        self.indexes[mapper.name] = index
        few = [first_reads(path, self.work / f"few_{path.name}") for path in self.files.reads]
        self.results[mapper.name] = {
            "index": asdict(cost),
            "first_run": self.map(mapper, few),
            "runs": [],
        }

    def measure(self, mapper: Mapper) -> None:
        cost = self.map(mapper, self.files.reads)
        self.results[mapper.name]["runs"].append(cost)
        print(
            f"  {mapper.name}: {cost['wall_s']:.1f} s wall, {cost['cpu_s']:.1f} s CPU, "
            f"{cost['peak_rss_mb']:.0f} MB",
            flush=True,
        )

    def score(self, mapper: Mapper) -> None:
        accuracy = harness.evaluate(self.output(mapper), self.files.reference, self.files.truth)
        self.results[mapper.name]["accuracy"] = accuracy
        print(f"  {mapper.name}: {accuracy['correct_pct']:.3f} % correct", flush=True)

    def run(self, rounds: int) -> dict[str, dict[str, Any]]:
        self.for_each(tuple(self.running), self.prepare)
        for turn in range(rounds):
            # Each round starts with another mapper: none is always first after a pause.
            start = turn % len(self.running) if self.running else 0
            self.for_each((*self.running[start:], *self.running[:start]), self.measure)
        self.for_each(tuple(self.running), self.score)
        return self.results


def speed_rows(results: dict[str, Any], n_reads: int) -> list[list[str]]:
    """Return one row for each mapper: medians, the spread of wall, and rates."""
    walls = {
        name: statistics.median(run["wall_s"] for run in result["runs"])
        for name, result in results.items()
        if result.get("runs")
    }
    best_peer = min((wall for name, wall in walls.items() if name != "fmwave"), default=None)
    rows = []
    for name, wall in walls.items():
        runs = results[name]["runs"]
        cpu = statistics.median(run["cpu_s"] for run in runs)
        spread = [run["wall_s"] for run in runs]
        rows.append(
            [
                name,
                f"{wall:.1f} ({min(spread):.1f}–{max(spread):.1f})",
                f"{cpu:.1f}",
                f"{n_reads / wall:,.0f}",
                f"{n_reads / cpu:,.0f}",
                f"{best_peer / wall:.2f}×" if best_peer else "–",
                f"{max(run['peak_rss_mb'] for run in runs):,.0f}",
            ]
        )
    return rows


def accuracy_rows(results: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, result in results.items():
        if "accuracy" not in result:
            continue
        score = result["accuracy"]
        cells = [name, f"{score['mapped_pct']:.3f}", f"{score['correct_pct']:.3f}"]
        for threshold in THRESHOLDS:
            level = score[f"mapq{threshold}"]
            cells.append(f"{level['mapped_pct']:.2f} / {level['wrong']}")
        problems = "; ".join(f"{n} × {what}" for what, n in score["problems"].items())
        rows.append([*cells, problems or "none"])
    return rows


def calibration_rows(results: dict[str, Any]) -> list[list[str]]:
    """Return, for each mapper and range of MAPQ, the wrong of the reads."""
    rows = []
    for name, result in results.items():
        if "accuracy" not in result:
            continue
        cells = [name]
        for low, high in MAPQ_RANGES:
            inside = [row for row in result["accuracy"]["by_mapq"] if low <= row[0] <= high]
            cells.append(f"{sum(row[2] for row in inside)} / {sum(row[1] for row in inside):,}")
        rows.append(cells)
    return rows


def preparation_rows(results: dict[str, Any]) -> list[list[str]]:
    return [
        [
            name,
            f"{result['index']['wall_s']:.1f}",
            f"{result['index']['cpu_s']:.1f}",
            f"{result['index']['peak_rss_mb']:,.0f}",
            f"{result['first_run']['wall_s']:.1f}",
        ]
        for name, result in results.items()
        if "index" in result
    ]


def markdown(report: dict[str, Any]) -> list[str]:
    """Return the report's tables."""
    lines = ["# fmwave and its peers, simulated reads", ""]
    lines += harness.markdown_provenance(report["about"])
    lines += [
        f"{report['threads']} threads, {report['rounds']} rounds, mappers in turn; medians. "
        "FASTQ.gz to BAM for fmwave, to SAM for the peers. Whole process, index loading included; "
        "compilation and index build apart. Accuracy: mapeval.py, per cent of all reads; "
        "at each MAPQ threshold mapped % / number of wrong reads.",
        "",
    ]
    for name, part in report["data_sets"].items():
        results = part["results"]
        lines += [f"## {name}: {part['n_reads']:,} reads, seed {part['seed']}", ""]
        lines += harness.table(
            [
                "mapper",
                "wall s (range)",
                "CPU s",
                "reads/s",
                "reads/CPU s",
                "against the fastest peer",
                "peak RSS MB",
            ],
            speed_rows(results, part["n_reads"]),
        )
        lines += harness.table(
            ["mapper", "mapped %", "correct %", *(f"MAPQ ≥ {q}" for q in THRESHOLDS), "problems"],
            accuracy_rows(results),
        )
        ranges = [str(low) if low == high else f"{low}–{high}" for low, high in MAPQ_RANGES]
        ranges[-1] = str(MAPQ_RANGES[-1][0])
        lines += harness.table(
            ["wrong / reads at MAPQ", *ranges],
            calibration_rows(results),
        )
        lines += harness.table(
            [
                "mapper",
                "index wall s",
                "index CPU s",
                "index peak RSS MB",
                f"first run, {WARM_UP_READS:,} reads a file, s",
            ],
            preparation_rows(results),
        )
        lines += [f"{k}: **failed**: {v['failed']}\n" for k, v in results.items() if "failed" in v]
    return lines


def parser() -> argparse.ArgumentParser:
    summary = (__doc__ or "").splitlines()[0]
    result = argparse.ArgumentParser(description=summary)
    result.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    result.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    result.add_argument(
        "--mappers",
        nargs="+",
        default=list(harness.MAPPERS),
        choices=list(harness.MAPPERS),
        metavar="NAME",
        help=f"of: {', '.join(harness.MAPPERS)} [all]",
    )
    result.add_argument(
        "--data-sets", nargs="+", metavar="NAME", help="some of them, by name [all]"
    )
    result.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    data.add_options(result)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 1 if a mapper failed or something is missing."""
    options = parser().parse_args(arguments)
    sets = data.data_sets_of(options)
    names = options.data_sets or list(sets)
    try:
        if options.rounds < 1:
            raise BenchmarkError(f"--rounds {options.rounds}: at least 1")
        if unknown := [name for name in names if name not in sets]:
            raise BenchmarkError(f"No data set {unknown[0]}. There are: {', '.join(sets)}")
        harness.kit("mapeval.py")
        mappers = harness.available(options.mappers)
        report: dict[str, Any] = {
            "about": harness.provenance(mappers),
            "threads": options.threads,
            "rounds": options.rounds,
            "data_sets": {},
        }
        stem = f"compare-{report['about']['date'][:10]}-{report['about']['commit']}"
        failed = False
        for name in names:
            files = data.make(sets[name], options.data)
            print(f"{name}: {sets[name].n_reads:,} reads", flush=True)
            with tempfile.TemporaryDirectory(prefix="fmwave-bench-") as work:
                bench = Bench(files, mappers, options.threads, Path(work))
                results = bench.run(options.rounds)
            report["data_sets"][name] = {
                "n_reads": sets[name].n_reads,
                "seed": sets[name].seed,
                "results": results,
            }
            failed |= any("failed" in result for result in results.values())
            harness.write_results(options.out, stem, report, markdown(report))
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
