"""Speed and accuracy of fmwave beside its peers on simulated reads.

    python -m benchmarks.end_to_end.compare --rounds 3

All mappers run in turn, round after round, on the same machine, reads and number of threads;
fmwave writes BAM, the peers SAM. What is not measured: fmwave's compilation (a first run on a
few reads, reported apart) and the index build (measured once, its own table). The records of
the last round are scored, all together and apart where the donor has an indel or the genome a
segmental duplication. Results: benchmarks/results/compare-DATE-COMMIT.{md,json} and plots (.svg).
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

from benchmarks import data, harness, mappers, plots, strata
from benchmarks.harness import BenchmarkError
from benchmarks.mappers import Mapper

WARM_UP_READS = 2_000  # of each file
TINY_REFERENCE = harness.ROOT / "tests" / "data" / "phix174.fa"
THRESHOLDS = (10, 20, 30, 60)
MAPQ_LEVELS = (0, 1, 10, 20, 30, 60)  # ranges of the calibration begin here


def first_reads(path: Path, target: Path) -> Path:
    with gzip.open(path, "rt") as reads, gzip.open(target, "wt", compresslevel=1) as out:
        out.writelines(itertools.islice(reads, 4 * WARM_UP_READS))
    return target


class Bench:
    """The mappers on one data set; ``results`` holds what was found, or why a mapper is out."""

    def __init__(self, data_set: data.DataSet, files: data.Files, tools: Sequence[Mapper],
                 threads: int, work: Path) -> None:  # fmt: skip
        self.files = files
        self.read_len = data_set.length
        self.kinds = {strata.INDEL: strata.indels(files.variants)}
        if files.repeats is not None:
            self.kinds[strata.DUPLICATION] = strata.duplications(files.repeats)
        self.threads = threads
        self.work = work
        self.running = list(tools)
        self.indexes: dict[str, Path] = {}
        self.results: dict[str, dict[str, Any]] = {mapper.name: {} for mapper in tools}

    def output(self, mapper: Mapper) -> Path:
        return self.work / f"{mapper.program}{mapper.suffix}"

    def for_each(self, tools: Sequence[Mapper], step: Callable[[Mapper], None]) -> None:
        """Take the step with each mapper; one that fails takes no further step."""
        for mapper in tools:
            try:
                step(mapper)
            except BenchmarkError as error:
                self.running.remove(mapper)
                self.results[mapper.name]["failed"] = str(error)
                print(f"  {mapper.name} failed: {error}", flush=True)

    def map(self, mapper: Mapper, reads: Sequence[Path]) -> dict[str, Any]:
        cost, log = mappers.run_mapper(
            mapper, self.indexes[mapper.name], reads, self.threads, self.output(mapper),
            read_len=self.read_len,
        )  # fmt: skip
        if cost.exit_status:
            raise BenchmarkError(f"exit status {cost.exit_status}:\n{harness.tail(log)}")
        return asdict(cost)

    def prepare(self, mapper: Mapper) -> None:
        """Index, then map a few reads: what compiles or fills caches does it now."""
        mappers.build_index(mapper, TINY_REFERENCE, self.work / "tiny", 1, self.read_len)
        index, cost = mappers.build_index(
            mapper, self.files.reference, self.work / "index", self.threads, self.read_len
        )
        self.indexes[mapper.name] = index
        few = [first_reads(path, self.work / f"few_{path.name}") for path in self.files.reads]
        self.results[mapper.name] = {
            "index": asdict(cost) | {"size_mb": mappers.index_bytes(index) / 1e6},
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
        self.results[mapper.name]["strata"] = strata.score(self.output(mapper), self.kinds)
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
        score = result["accuracy"]
        # Reads and wrong reads at each lower end or above, so a range is a difference.
        levels = [score, *(score[f"mapq{low}"] for low in MAPQ_LEVELS[1:]), None]
        cells = [name]
        for level, above in itertools.pairwise(levels):
            wrong, mapped = level["wrong"], level["mapped"]
            if above:
                wrong, mapped = wrong - above["wrong"], mapped - above["mapped"]
            cells.append(f"{wrong} / {mapped:,}")
        rows.append(cells)
    return rows


def strata_rows(results: dict[str, Any]) -> list[list[str]]:
    """Return one row for each mapper and kind of read that is apart."""
    rows = []
    for name, result in results.items():
        for kind, score in result.get("strata", {}).items():
            if kind == strata.ALL:
                continue
            cells = [name, kind, f"{score['reads']:,}", f"{score['correct_pct']:.3f}"]
            for threshold in THRESHOLDS:
                mapped, wrong = strata.at_least(score, threshold)
                cells.append(f"{100 * mapped / max(score['reads'], 1):.2f} / {wrong}")
            rows.append(cells)
    return sorted(rows, key=lambda row: row[1])


def preparation_rows(results: dict[str, Any]) -> list[list[str]]:
    return [
        [
            name,
            f"{result['index']['wall_s']:.1f}",
            f"{result['index']['cpu_s']:.1f}",
            f"{result['index']['peak_rss_mb']:,.0f}",
            f"{result['index']['size_mb']:,.0f}",
            f"{result['first_run']['wall_s']:.1f}",
        ]
        for name, result in results.items()
        if "index" in result
    ]


def speed_table(part: dict[str, Any]) -> list[str]:
    header = ["mapper", "wall s (range)", "CPU s", "reads/s", "reads/CPU s"]
    header += ["against the fastest peer", "peak RSS MB"]
    return harness.table(header, speed_rows(part["results"], part["n_reads"]))


def accuracy_tables(part: dict[str, Any]) -> list[str]:
    levels = [f"MAPQ ≥ {q}" for q in THRESHOLDS]
    ranges = ["0", *(f"{a}–{b - 1}" for a, b in itertools.pairwise(MAPQ_LEVELS[1:])), "60"]
    return [
        *harness.table(
            ["mapper", "mapped %", "correct %", *levels, "problems"], accuracy_rows(part["results"])
        ),
        *harness.table(["wrong / reads at MAPQ", *ranges], calibration_rows(part["results"])),
        *harness.table(
            ["mapper", "reads with or across", "reads", "correct %", *levels],
            strata_rows(part["results"]),
        ),
    ]


def preparation_table(part: dict[str, Any]) -> list[str]:
    header = ["mapper", "index wall s", "index CPU s", "index peak RSS MB", "index MB"]
    header.append(f"first run, {WARM_UP_READS:,} reads a file, s")
    return harness.table(header, preparation_rows(part["results"]))


def _by_data_set(
    report: dict[str, Any], tables: Callable[[dict[str, Any]], list[str]], level: str
) -> list[str]:
    lines = []
    for name, part in report["data_sets"].items():
        lines += [f"{level} {name}: {part['n_reads']:,} reads, seed {part['seed']}", ""]
        lines += tables(part)
    return lines


def accuracy_lines(report: dict[str, Any]) -> list[str]:
    """Return the accuracy tables of all data sets, for docs/accuracy.md."""
    return _by_data_set(report, accuracy_tables, "###")


def speed_lines(report: dict[str, Any]) -> list[str]:
    """Return where and when, and the tables of speed and memory, for docs/performance.md."""
    about = harness.markdown_provenance(report["about"])
    return about + _by_data_set(
        report, lambda part: speed_table(part) + preparation_table(part), "###"
    )


def markdown(report: dict[str, Any]) -> list[str]:
    """Return the report's tables."""

    def tables(part: dict[str, Any]) -> list[str]:
        failed = [
            f"{name}: **failed**: {result['failed']}\n"
            for name, result in part["results"].items()
            if "failed" in result
        ]
        return speed_table(part) + accuracy_tables(part) + preparation_table(part) + failed

    return [
        "# fmwave and its peers, simulated reads",
        "",
        *harness.markdown_provenance(report["about"]),
        f"{report['threads']} threads, {report['rounds']} rounds, mappers in turn; medians. "
        "FASTQ.gz to BAM for fmwave, to SAM for the peers. Whole process, index loading included; "
        "compilation and index build apart. Accuracy: mapeval.py, per cent of all reads; "
        "at each MAPQ threshold mapped % / number of wrong reads.",
        "",
        *_by_data_set(report, tables, "##"),
    ]


def parser() -> argparse.ArgumentParser:
    summary = (__doc__ or "").splitlines()[0]
    result = argparse.ArgumentParser(description=summary)
    result.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    result.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    result.add_argument(
        "--data-sets", nargs="+", metavar="NAME", help="some of them, by name [all]"
    )
    result.add_argument("--no-plots", action="store_true", help="they need matplotlib")
    result.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    mappers.add_options(result)
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
        tools = mappers.chosen(options)
        report: dict[str, Any] = {
            "about": harness.provenance(mappers.versions_of(tools)),
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
                bench = Bench(sets[name], files, tools, options.threads, Path(work))
                results = bench.run(options.rounds)
            report["data_sets"][name] = {
                "n_reads": sets[name].n_reads,
                "seed": sets[name].seed,
                "results": results,
            }
            failed |= any("failed" in result for result in results.values())
            harness.write_results(options.out, stem, report, markdown(report))
        if not options.no_plots:
            print("written:", *plots.draw_all(options.out / f"{stem}.json"))
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
