"""The report's plots, as SVG (Snakemake script)."""

import csv
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
# Reproducible files, with text as text: searchable, and readable by a test.
mpl.rcParams.update({"svg.hashsalt": "fmwave", "svg.fonttype": "none", "font.size": 9})

from matplotlib import pyplot as plt  # noqa: E402  after the choice of backend
from matplotlib.axes import Axes  # noqa: E402

MANY = 20  # samples; beyond, names would overlap


def section(path: str, name: str, x: int, y: int) -> tuple[list[float], list[float]]:
    """Return two columns of a section of a samtools stats file."""
    rows = [line.split("\t") for line in Path(path).read_text().splitlines()]
    rows = [row for row in rows if row[0] == name]
    return [float(row[x]) for row in rows], [float(row[y]) for row in rows]


def name_samples(axes: Axes, samples: list[str]) -> None:
    """Write the samples below their bars, while there is room."""
    few = len(samples) <= MANY
    axes.set_xticks(range(len(samples)) if few else [], samples if few else [], rotation=45)
    if not few:
        axes.set_xlabel(f"{len(samples)} samples, in the sheet's order")


def plot_reads(axes: Axes, rows: list[dict[str, str]]) -> None:
    """Draw how many reads were mapped, and how many of them are duplicates."""
    duplicates = [int(row["duplicates"]) for row in rows]
    mapped = [int(row["mapped"]) - d for row, d in zip(rows, duplicates, strict=True)]
    unmapped = [int(row["reads"]) - int(row["mapped"]) for row in rows]
    bottom = [0] * len(rows)
    kinds = (
        ("mapped", mapped, "tab:blue"),
        ("duplicate", duplicates, "lightsteelblue"),
        ("unmapped", unmapped, "tab:gray"),
    )
    for label, counts, colour in kinds:
        axes.bar(range(len(rows)), counts, bottom=bottom, label=label, color=colour)
        bottom = [b + c for b, c in zip(bottom, counts, strict=True)]
    axes.set_ylabel("reads")
    axes.legend()
    name_samples(axes, [row["sample"] for row in rows])


def plot_coverage(axes: Axes, rows: list[dict[str, str]]) -> None:
    """Draw the mean depth of each sample."""
    axes.bar(range(len(rows)), [float(row["mean_depth"]) for row in rows])
    axes.set_ylabel("mean depth, without duplicates")
    name_samples(axes, [row["sample"] for row in rows])


def without_tail(values: list[float], counts: list[float]) -> tuple[list[float], list[float]]:
    """Leave out the largest hundredth: a few far pairs would squeeze all others into a line."""
    left = 0.99 * sum(counts)
    for n, count in enumerate(counts, start=1):
        left -= count
        if left <= 0:
            return values[:n], counts[:n]
    return values, counts


def at_every_quality(values: list[float], counts: list[float]) -> tuple[list[float], list[float]]:
    """Fill in the mapping qualities, 0 to 60, that no read has."""
    found = dict(zip(values, counts, strict=True))
    return list(range(61)), [found.get(quality, 0) for quality in range(61)]


def plot_curves(axes: Axes, samples: list[str], curves: list, x: str) -> None:
    """Draw a distribution for each sample, as parts of its total."""
    for sample, (values, counts) in zip(samples, curves, strict=True):
        whole = sum(counts) or 1
        axes.plot(values, [c / whole for c in counts], label=sample, alpha=0.8, linewidth=1)
    axes.set_xlabel(x)
    if len(samples) <= MANY:
        axes.legend()


samples = list(snakemake.params.samples)
with Path(snakemake.input.summary).open() as table:
    rows = list(csv.DictReader(table, delimiter="\t"))
names = ("reads", "coverage", "insert_size", "mapq")
figures = {name: plt.subplots(figsize=(8, 4.5), layout="constrained") for name in names}
plot_reads(figures["reads"][1], rows)
plot_coverage(figures["coverage"][1], rows)
inserts = [without_tail(*section(path, "IS", 1, 2)) for path in snakemake.input.stats]
plot_curves(figures["insert_size"][1], samples, inserts, "insert size, bases")
figures["insert_size"][1].set_ylabel("part of the pairs (but the largest 1 %)")
qualities = [at_every_quality(*section(path, "MAPQ", 1, 2)) for path in snakemake.input.stats]
plot_curves(figures["mapq"][1], samples, qualities, "mapping quality")
figures["mapq"][1].set_ylabel("part of the mapped reads")
for name, (figure, _) in figures.items():
    figure.savefig(snakemake.output[name], metadata={"Date": None, "Title": name})
