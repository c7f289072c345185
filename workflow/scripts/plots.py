"""The report's plots, as SVG (Snakemake script)."""

from rule_log import start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import csv
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
# Reproducible files, with text as text: searchable, and readable by a test.
mpl.rcParams.update({"svg.hashsalt": "fmwave", "svg.fonttype": "none", "font.size": 9})

from matplotlib import pyplot as plt  # after the choice of backend
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

MANY = 20  # samples; beyond, names would overlap


def section(path: str, name: str, x: int, y: int) -> tuple[list[float], list[float]]:
    """Return two columns of a section of a samtools stats file."""
    rows = [line.split("\t") for line in Path(path).read_text().splitlines()]
    rows = [row for row in rows if row[0] == name]
    return [float(row[x]) for row in rows], [float(row[y]) for row in rows]


def name_samples(axes: Axes, samples: list[str]) -> None:
    """Label the bars with their samples, the first on top, if there is room."""
    few = len(samples) <= MANY
    axes.set_yticks(range(len(samples)) if few else [], samples if few else [])
    axes.set_ylim(max(len(samples), 5) - 0.4, -0.6)  # a lone bar need not fill the picture
    axes.spines[["top", "right"]].set_visible(False)
    if not few:
        axes.set_ylabel(f"{len(samples)} samples, the sheet's first on top")


def plot_reads(axes: Axes, rows: list[dict[str, str]]) -> None:
    """Draw how many reads were mapped, and how many of them are duplicates."""
    duplicates = [int(row["duplicates"]) for row in rows]
    mapped = [int(row["mapped"]) - d for row, d in zip(rows, duplicates, strict=True)]
    unmapped = [int(row["reads"]) - int(row["mapped"]) for row in rows]
    left = [0] * len(rows)
    kinds = (
        ("mapped", mapped, "tab:blue"),
        ("duplicate", duplicates, "lightsteelblue"),
        ("unmapped", unmapped, "tab:gray"),
    )
    for label, counts, colour in kinds:
        axes.barh(range(len(rows)), counts, left=left, label=label, color=colour, height=0.7)
        left = [b + c for b, c in zip(left, counts, strict=True)]
    axes.set_xlabel("reads")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
    name_samples(axes, [row["sample"] for row in rows])


def plot_coverage(axes: Axes, rows: list[dict[str, str]]) -> None:
    """Draw the mean depth of each sample."""
    depths = [float(row["mean_depth"]) for row in rows]
    bars = axes.barh(range(len(rows)), depths, height=0.7)
    if len(rows) <= MANY:
        axes.bar_label(bars, [f"{depth:.3g}" for depth in depths], padding=3)
    axes.set_xlabel("mean depth, without duplicates")
    name_samples(axes, [row["sample"] for row in rows])


def without_tail(values: list[float], counts: list[float]) -> tuple[list[float], list[float]]:
    """Leave out the largest hundredth, and all above 4 medians, which would squeeze the rest."""
    total, seen, median = sum(counts), 0.0, None
    for n, (value, count) in enumerate(zip(values, counts, strict=True), start=1):
        seen += count
        if median is None and 2 * seen >= total:
            median = value
        if median is not None and (seen >= 0.99 * total or value >= 4 * median):
            return values[:n], counts[:n]
    return values, counts


def in_bins(values: list[float], counts: list[float]) -> tuple[list[float], list[float]]:
    """Add up neighbouring sizes, to at most 100 bins: few pairs make a curve of spikes."""
    width = max(1, round((max(values, default=0) + 1) / 100))
    bins: dict[int, float] = {}
    for value, count in zip(values, counts, strict=True):
        bins[int(value) // width] = bins.get(int(value) // width, 0) + count
    last = max(bins, default=-1)
    return [(n + 0.5) * width for n in range(last + 1)], [bins.get(n, 0) for n in range(last + 1)]


def at_least(values: list[float], counts: list[float]) -> tuple[list[float], list[float]]:
    """Return each mapping quality, 0 to 60, and the reads that have it or a higher one."""
    found = dict(zip(values, counts, strict=True))
    above = [sum(found.get(q, 0) for q in range(quality, 61)) for quality in range(61)]
    return list(range(61)), above


def plot_curves(axes: Axes, samples: list[str], curves: list, x: str) -> None:
    """Draw a curve for each sample that has values."""
    for sample, (values, counts) in zip(samples, curves, strict=True):
        if not any(counts):
            continue
        axes.plot(values, counts, label=sample, alpha=0.8, linewidth=1.2, drawstyle="steps-mid")
    axes.set_xlabel(x)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    if len(samples) <= MANY:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def parts_of(counts: list[float], whole: float) -> list[float]:
    return [count / (whole or 1) for count in counts]


samples = list(snakemake.params.samples)
with Path(snakemake.input.summary).open() as table:
    rows = list(csv.DictReader(table, delimiter="\t"))
names = ("reads", "coverage", "insert_size", "mapq")
figures = {name: plt.subplots(figsize=(8, 4.5), layout="constrained") for name in names}
plot_reads(figures["reads"][1], rows)
plot_coverage(figures["coverage"][1], rows)

inserts, qualities = [], []
for path in snakemake.input.stats:
    sizes, pairs = section(path, "IS", 1, 2)
    shown, counts = in_bins(*without_tail(sizes, pairs))
    inserts.append((shown, parts_of(counts, sum(pairs))))
    values, reads = at_least(*section(path, "MAPQ", 1, 2))
    qualities.append((values, parts_of(reads, reads[0])))
axes = figures["insert_size"][1]
plot_curves(axes, samples, inserts, "insert size, bases (without the far ones)")
axes.set_ylabel("part of the pairs, in bins")
if not any(any(counts) for _, counts in inserts):
    axes.set_title("no pairs")
axes = figures["mapq"][1]
plot_curves(axes, samples, qualities, "mapping quality")
axes.set_ylabel("part of the mapped reads with at least this quality")

for name, (figure, _) in figures.items():
    figure.savefig(snakemake.output[name], metadata={"Date": None, "Title": name})
