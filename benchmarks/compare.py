"""Speed and accuracy of fmwave beside its peers on simulated reads.

    python -m benchmarks.compare --rounds 3

All mappers run in turn, round after round, on the same machine, reads and number of threads;
fmwave writes BAM, the peers SAM. What is not measured: fmwave's compilation (a first run on a
few reads, reported apart) and the index build (measured once, its own table). The records of
the last round are scored, all together and apart where the donor has an indel or the genome a
segmental duplication. Results: benchmarks/results/compare.{md,json} and plots (.svg).
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import data, harness, mappers, plots, strata
from benchmarks.common.compare_tables import WARM_UP_READS, markdown
from benchmarks.common.harness import BenchmarkError
from benchmarks.common.mappers import Mapper

TINY_REFERENCE = harness.ROOT / "tests" / "data" / "phix174.fa"


def first_reads(path: Path, target: Path) -> Path:
    with gzip.open(path, "rt") as reads, gzip.open(target, "wt", compresslevel=1) as out:
        out.writelines(itertools.islice(reads, 4 * WARM_UP_READS))
    return target


class Bench:
    """The mappers on one data set; ``results`` holds what was found, or why a mapper is out."""

    def __init__(
        self, data_set: data.DataSet, files: data.Files, tools: Sequence[Mapper], threads: int,
        work: Path, built: dict[Path, harness.Measurement],
    ) -> None:  # fmt: skip
        self.files = files
        self.read_len = data_set.length
        self.kinds = {strata.INDEL: strata.indels(files.variants)}
        if files.repeats is not None:
            self.kinds[strata.DUPLICATION] = strata.duplications(files.repeats)
        self.threads = threads
        self.work = work
        self.built = built  # indexes, those of other data sets of this reference too
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
        folder = self.work / f"index_{self.read_len if mapper.per_length else 0}"
        index = mappers.index_path(mapper, self.files.reference, folder)
        if index not in self.built:
            _, self.built[index] = mappers.build_index(
                mapper, self.files.reference, folder, self.threads, self.read_len
            )
        cost = self.built[index]
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


def parser() -> argparse.ArgumentParser:
    summary = (__doc__ or "").splitlines()[0]
    result = argparse.ArgumentParser(description=summary)
    result.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    result.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    result.add_argument(
        "--data-sets",
        nargs="+",
        metavar="NAME",
        help="by name; `human_*` and `falciparum_*` are of real sequence [all others]",
    )
    result.add_argument("--no-plots", action="store_true", help="they need matplotlib")
    result.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    result.add_argument("--stem", default="compare", help="name of the results [%(default)s]")
    result.add_argument(
        "--score-again", type=Path, metavar="RESULT.json",
        help="replace the accuracy in an earlier result, of the same reads, by that of this run",
    )  # fmt: skip
    mappers.add_options(result)
    data.add_options(result)
    return result


def score_again(earlier: Path, report: dict[str, Any]) -> None:
    """Replace the accuracy in an earlier result by that of a report, for the mappers that it has.

    Raises
    ------
    BenchmarkError
        If the reads of a data set are others.
    """
    before = json.loads(earlier.read_text())
    for name, part in report["data_sets"].items():
        old = before["data_sets"].get(name)
        if old is None or (old["n_reads"], old["seed"]) != (part["n_reads"], part["seed"]):
            raise BenchmarkError(f"{earlier} has no {name} of the same reads")
        for mapper, result in part["results"].items():
            scores = {key: result[key] for key in ("accuracy", "strata") if key in result}
            old["results"][mapper] |= scores
            about = report["about"]
            before.setdefault("scored_again", {})[mapper] = f"{about['date']}, {about['commit']}"
    harness.write_results(earlier.parent, earlier.stem, before, markdown(before))


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 1 if a mapper failed or something is missing."""
    options = parser().parse_args(arguments)
    sets = data.data_sets_of(options)
    names = options.data_sets or [n for n in sets if not data.is_real(sets[n])]
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
    failed = False
    with tempfile.TemporaryDirectory(prefix="fmwave-bench-") as work:
        built: dict[Path, harness.Measurement] = {}
        for name in names:
            files = data.make(sets[name], options.data)
            print(f"{name}: {sets[name].n_reads:,} reads", flush=True)
            bench = Bench(sets[name], files, tools, options.threads, Path(work), built)
            results = bench.run(options.rounds)
            report["data_sets"][name] = {
                "n_reads": sets[name].n_reads,
                "seed": sets[name].seed,
                "results": results,
            }
            failed |= any("failed" in result for result in results.values())
            harness.write_results(options.out, options.stem, report, markdown(report))
    if options.score_again is not None:
        score_again(options.score_again, report)
    if not options.no_plots:
        print("written:", *plots.draw_all(options.out / f"{options.stem}.json"))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
