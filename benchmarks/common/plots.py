"""Plots of a comparison: speed against accuracy, and wrong against mapped by MAPQ.

    python -m benchmarks.common.plots benchmarks/results/compare.json

writes RESULT.DATASET.svg beside the result. Needs matplotlib (extra ``workflow`` or ``dev``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import strata

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")


def roc(by_mapq: Sequence[Sequence[int]], n_reads: int) -> tuple[list[float], list[float]]:
    """Return share of wrong among mapped, and share mapped of all, at each MAPQ threshold.

    From the highest threshold down; rates of 0 cannot be drawn on a logarithmic axis and
    stand as half a read.
    """
    mapped = wrong = 0
    error, placed = [], []
    for _, n_mapped, n_wrong in by_mapq:
        mapped += n_mapped
        wrong += n_wrong
        error.append(max(wrong, 0.5) / max(mapped, 1))
        placed.append(mapped / max(n_reads, 1))
    return error, placed


def draw(name: str, part: dict[str, Any], target: Path) -> None:
    """Draw one data set's two plots side by side; without times, the second one alone."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    results = {mapper: of for mapper, of in part["results"].items() if "strata" in of}
    is_timed = any(of.get("runs") for of in results.values())
    n_plots = 2 if is_timed else 1
    figure, axes = pyplot.subplots(
        1, n_plots, figsize=(5.5 * n_plots, 4.5), layout="constrained", squeeze=False
    )
    speed, curve = axes[0, 0], axes[0, -1]
    for (mapper, result), colour in zip(results.items(), COLOURS, strict=False):
        whole = result["strata"][strata.ALL]
        if is_timed:
            if not result.get("runs"):
                continue
            rate = part["n_reads"] / statistics.median(run["wall_s"] for run in result["runs"])
            speed.plot(rate, whole["correct_pct"], "o", color=colour, label=mapper)
        error, placed = roc(whole["by_mapq"], whole["reads"])
        curve.plot(error, placed, ".-", color=colour, label=mapper, linewidth=1)
    if is_timed:
        speed.set(xlabel="reads/s", ylabel="correct, % of all reads", xscale="log")
    curve.set(
        xlabel="wrong among mapped (none: half a read)", ylabel="mapped, share of all reads",
        xscale="log",
    )  # fmt: skip
    # Below the plots: within one it lies on points.
    figure.legend(
        *curve.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8
    )
    figure.suptitle(f"{name}: {part['n_reads']:,} reads")
    figure.savefig(target)
    pyplot.close(figure)


def draw_all(result: Path) -> list[Path]:
    """Draw every data set of a result of ``compare``; returns the files."""
    report = json.loads(result.read_text())
    targets = []
    for name, part in report["data_sets"].items():
        target = result.with_suffix(f".{name}.svg")
        draw(name, part, target)
        targets.append(target)
    return targets


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, metavar="compare.json")
    for result in parser.parse_args(arguments).results:
        print(*draw_all(result), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
