"""Speed of fmwave beside its peers on real reads, repeated until start-up does not count.

    python -m benchmarks.end_to_end.real_repeated --rounds 3

The shared data hold some thousand real pairs of each kind: each file is written several times
into one, and all mappers run in turn, round after round, on the same machine and number of
threads. A million reads a set are the least that a sequencer's run has; of short runs (``--times
30``) starting is a good part, for every mapper. CPU seconds (user and system, of the whole run)
bear a busy machine better than wall seconds; the ratios are those of one run. Not measured: index
construction, and a first run on the reads as they are, in which fmwave may compile. What becomes
of the reads: `real_reads`.
Results: benchmarks/results/real_repeated-DATE-COMMIT.{md,json}.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import harness, mappers
from benchmarks.data import unpack
from benchmarks.end_to_end.real_reads import SETS, RealSet, count_reads
from benchmarks.end_to_end.tables import speed_rows
from benchmarks.harness import BenchmarkError
from benchmarks.mappers import Mapper

LONG_ENOUGH = ("sarscov2", "portiera", "shigella")
"""The sets of ordinary reads from all over a genome."""


LEAST_READS = 1_000_000
"""Reads of a set, both mates counted."""


def times_for(n_reads: int, least: int) -> int:
    """Return how often `n_reads` reads have to be repeated to be at least `least`."""
    return -(-least // max(n_reads, 1))


def repeat(path: Path, times: int, target: Path) -> Path:
    """Write a gzip file several times into one, which is a gzip file, too."""
    packed = path.read_bytes()
    with target.open("wb") as out:
        for _ in range(times):
            out.write(packed)
    return target


def run_once(
    mapper: Mapper, index: Path, reads: Sequence[Path], threads: int, out: Path
) -> dict[str, Any]:
    cost, log = mappers.run_mapper(mapper, index, reads, threads, out)
    if cost.exit_status:
        raise BenchmarkError(f"{mapper.name}: exit {cost.exit_status}:\n{harness.tail(log)}")
    return asdict(cost)


def time_set(
    real_set: RealSet, tools: Sequence[Mapper], times: int | None, rounds: int, threads: int,
    work: Path,
) -> dict[str, Any]:  # fmt: skip
    """Map one set with all mappers by turns; a mapper that fails ends the benchmark."""
    packed, once = real_set.files()
    n_once = count_reads(once)
    times = times or times_for(n_once, LEAST_READS)
    reference = unpack(packed, work / "ref" / packed.name.removesuffix(".gz"))
    reads = [repeat(path, times, work / f"repeated_{path.name}") for path in once]
    indexes: dict[str, Path] = {}
    results: dict[str, Any] = {}
    for mapper in tools:
        indexes[mapper.name], _ = mappers.build_index(mapper, reference, work / "index", threads)
        out = work / f"{mapper.program}{mapper.suffix}"
        first = run_once(mapper, indexes[mapper.name], once, threads, out)
        results[mapper.name] = {"first_run": first, "runs": []}
    for turn in range(rounds):
        # Each round starts with another mapper: none is always first after a pause.
        start = turn % len(tools)
        for mapper in (*tools[start:], *tools[:start]):
            out = work / f"{mapper.program}{mapper.suffix}"
            cost = run_once(mapper, indexes[mapper.name], reads, threads, out)
            results[mapper.name]["runs"].append(cost)
            print(
                f"  {mapper.name}: {cost['wall_s']:.1f} s wall, {cost['cpu_s']:.1f} s CPU",
                flush=True,
            )
    return {"n_reads": times * n_once, "times": times, "results": results}


def cpu_ratios(results: dict[str, Any]) -> dict[str, float]:
    """Return each peer's median CPU seconds over fmwave's."""
    medians = {
        name: statistics.median(run["cpu_s"] for run in result["runs"])
        for name, result in results.items()
    }
    own = medians.pop("fmwave", None)
    return {name: median / own for name, median in medians.items()} if own else {}


def markdown(report: dict[str, Any]) -> list[str]:
    """Return the report's tables."""
    lines = ["# Real reads, repeated", "", *harness.markdown_provenance(report["about"])]
    lines += [
        f"Each file several times in one; {report['threads']} threads, {report['rounds']} rounds "
        "by turns, medians; fmwave writes BAM, the others SAM.",
        "",
    ]
    for name, found in report["data_sets"].items():
        lines += [
            f"## {name}: {found['n_reads']:,} reads ({found['times']} times), {SETS[name].what}",
            "",
        ]
        header = ["mapper", "wall s", "CPU s", "reads/s", "reads/CPU s", "wall, peer's best", "MB"]
        lines += harness.table(header, speed_rows(found["results"], found["n_reads"]))
        said = (f"{peer} {ratio:.2f}" for peer, ratio in cpu_ratios(found["results"]).items())
        lines += [f"CPU seconds over fmwave's: {', '.join(said) or '–'}.", ""]
    return lines


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Time the sets; 1 if a mapper failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    parser.add_argument(
        "--times", type=int, help=f"how often each file [as often as gives {LEAST_READS:,} reads]"
    )
    mappers.add_options(parser)
    parser.add_argument(
        "--data-sets", nargs="+", default=list(LONG_ENOUGH), choices=list(LONG_ENOUGH),
        metavar="NAME", help=f"of: {', '.join(LONG_ENOUGH)} [all]",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or (options.times is not None and options.times < 1):
        parser.error("--rounds and --times are 1 at least")
    tools = mappers.chosen(options)
    report: dict[str, Any] = {
        "about": harness.provenance(mappers.versions_of(tools)),
        "threads": options.threads,
        "rounds": options.rounds,
        "data_sets": {},
    }
    for name in options.data_sets:
        print(name, flush=True)
        with tempfile.TemporaryDirectory(prefix="fmwave-bench-") as work:
            report["data_sets"][name] = time_set(
                SETS[name], tools, options.times, options.rounds, options.threads, Path(work)
            )
    stem = f"real_repeated-{report['about']['date'][:10]}-{report['about']['commit']}"
    harness.write_results(options.out, stem, report, markdown(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
