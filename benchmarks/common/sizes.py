"""Time, memory and map rate against genome size: plots and tables from committed results.

    python -m benchmarks.common.sizes benchmarks/results/{index_cpu,whole_genome_*}.json

writes benchmarks/results/genome_sizes.svg, and the tables of docs/index-format.md between their
marks (benchmarks/common/document.py). Needs matplotlib (extra ``workflow`` or ``dev``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import harness
from benchmarks.common.document import DOCS, fill
from benchmarks.common.plots import COLOURS
from benchmarks.common.whole_genome_report import PEER

PLOT = harness.RESULTS / "genome_sizes.svg"


class IndexPoint(NamedTuple):
    """One way of building an index, of one size; medians of the runs of one result."""

    bases: int
    how: str
    wall_s: float
    cpu_s: float
    peak_bytes: float


class MapPoint(NamedTuple):
    """One mapper at one genome size."""

    bases: int
    how: str
    reads_per_second: float
    busy_cores: float
    """CPU time over wall time of its process: fewer than its threads wait, or others disturb it."""


def index_points(report: dict[str, Any]) -> list[IndexPoint]:
    """Return what a result of `index cpu` or whole_genome says of building."""
    points = []
    if "sizes" in report:
        for found in report["sizes"]:
            for route in dict.fromkeys(build["route"] for build in found["builds"]):
                builds = [build for build in found["builds"] if build["route"] == route]
                wall, cpu, peak = (
                    statistics.median(build[key] for build in builds)
                    for key in ("wall_s", "cpu_s", "peak_mb")
                )
                how = f"{where(report, report['threads'])}, {route}"
                points.append(IndexPoint(found["bases"], how, wall, cpu, 1e6 * peak))
        return points
    for step in report["steps"]:
        if step["step"].startswith("fmwave index"):
            device = step["step"].split()[-1]
            how = f"{where(report, report['options']['threads'])}, --device {device}"
            points.append(
                IndexPoint(report["options"]["size"], how, step["wall_s"], step["cpu_s"],
                           1e6 * step["peak_rss_mb"])
            )  # fmt: skip
    return points


def map_points(report: dict[str, Any]) -> list[MapPoint]:
    """Return the rates in a result of whole_genome; a peer's is that of its whole process."""
    if "runs" not in report:
        return []
    options = report["options"]
    place = where(report, options["threads"])
    points = []
    for device, runs in report["runs"].items():
        name = f"fmwave --device {device}"
        if runs:
            rate = statistics.median(run["reads_per_second"] for run in runs)
            busy = busy_cores(report, f"fmwave map --device {device}")
            points.append(MapPoint(options["size"], f"{place}, {name}", rate, busy))
    for step in report["steps"]:
        # On a part of the reads it would be the time to load its index.
        if step["step"] == PEER and not options.get("peer_pairs"):
            rate = 2 * options["pairs"] / step["wall_s"]
            busy = busy_cores(report, PEER)
            points.append(MapPoint(options["size"], f"{place}, minimap2", rate, busy))
    return points


def busy_cores(report: dict[str, Any], step: str) -> float:
    """Return how many cores the processes of a step kept busy, the median of its rounds."""
    steps = [row for row in report["steps"] if row["step"] == step]
    return statistics.median(row["cpu_s"] / row["wall_s"] for row in steps)


def where(report: dict[str, Any], threads: int) -> str:
    """Name machine and threads in a few words."""
    about = report["about"]
    gpus = about.get("gpus", [])
    host = gpus[0].split(",")[0].removeprefix("NVIDIA ") + " host" if gpus else "CPU machine"
    return f"{host}, {threads} threads"


def index_table(points: Iterable[IndexPoint]) -> list[str]:
    return harness.table(
        ["Mbp", "", "wall, s", "Mbp/s", "CPU ns a base", "peak memory, GB", "bytes a base"],
        [
            [f"{p.bases / 1e6:,.0f}", p.how, f"{p.wall_s:.1f}", f"{p.bases / 1e6 / p.wall_s:.1f}",
             f"{1e9 * p.cpu_s / p.bases:.0f}", f"{p.peak_bytes / 1e9:.2f}",
             f"{p.peak_bytes / p.bases:.1f}"]
            for p in sorted(points)
        ],
    )  # fmt: skip


def map_table(points: Iterable[MapPoint]) -> list[str]:
    return harness.table(
        ["Mbp", "", "reads/s", "cores busy"],
        [
            [f"{p.bases / 1e6:,.0f}", p.how, f"{p.reads_per_second:,.0f}", f"{p.busy_cores:.1f}"]
            for p in sorted(points)
        ],
    )


def draw(built: Sequence[IndexPoint], mapped: Sequence[MapPoint], target: Path) -> None:
    """Draw time and memory of construction, and the map rate, against the size."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "fmwave"  # the same input, the same file
    figure, (time, memory, rate) = pyplot.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    for colour, how in zip(COLOURS, dict.fromkeys(p.how for p in sorted(built)), strict=False):
        line = sorted(p for p in built if p.how == how)
        sizes = [p.bases / 1e6 for p in line]
        time.plot(sizes, [p.wall_s for p in line], "o-", color=colour, label=how)
        memory.plot(sizes, [p.peak_bytes / 1e9 for p in line], "o-", color=colour, label=how)
    for colour, how in zip(COLOURS, dict.fromkeys(p.how for p in sorted(mapped)), strict=False):
        rates = sorted(p for p in mapped if p.how == how)
        rate.plot(
            [p.bases / 1e6 for p in rates], [p.reads_per_second for p in rates], "o-",
            color=colour, label=how,
        )  # fmt: skip
    time.set(ylabel="fmwave index: wall time, s", yscale="log")
    memory.set(ylabel="fmwave index: peak memory, GB", yscale="log")
    rate.set(ylabel="mapping 2x150: reads/s", yscale="log")
    for plot in (time, memory, rate):
        plot.set(xlabel="genome, Mbp", xscale="log")
        if plot.lines:
            plot.legend(fontsize=7)
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT.json")
    parser.add_argument("--plot", type=Path, default=PLOT, help="[%(default)s]")
    parser.add_argument("--docs", type=Path, default=DOCS, help="[%(default)s]")
    options = parser.parse_args(arguments)
    reports = [json.loads(path.read_text()) for path in options.results]
    built = [point for report in reports for point in index_points(report)]
    mapped = [point for report in reports for point in map_points(report)]
    draw(built, mapped, options.plot)
    print(f"written: {options.plot}")
    names = ", ".join(f"`{path.with_suffix('.md').name}`" for path in sorted(options.results))
    source = [f"From {names} in `benchmarks/results/`.", ""]
    page = options.docs / "index-format.md"
    tables = {
        "sizes-index": source + index_table(built), "sizes-map": source + map_table(mapped),
    }  # fmt: skip
    page.write_text(fill(page.read_text(), tables))
    print(f"written: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
