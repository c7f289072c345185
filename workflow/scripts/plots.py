"""The report's plots, as SVG (Snakemake script).

Up to ten samples are drawn as curves, each of a colour of its own; more as a heat map, a line each.
"""

from rule_log import start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import csv
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np

mpl.use("svg")
# Reproducible files, with text as text: searchable, and readable by a test.
mpl.rcParams.update({"svg.hashsalt": "fmwave", "svg.fonttype": "none", "font.size": 9})

from matplotlib import pyplot as plt  # after the choice of backend
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import NullFormatter

CURVES = 10  # samples; as many colours can be told apart
NAMED = 60  # samples; beyond, names would overlap
BINS = 100  # at most, of sizes and depths
FENCES = 3  # interquartile ranges around the quartiles, to which insert sizes are shown


class Counts(NamedTuple):
    """How often each value was found, in a sample."""

    values: np.ndarray
    """int64, ascending."""
    counts: np.ndarray
    """int64."""

    def quantile(self, part: float) -> int:
        """Return the least value up to which this part of all was found."""
        seen = np.cumsum(self.counts)
        return int(self.values[np.searchsorted(seen, part * seen[-1])])


def counts_of(rows: list[list[str]]) -> Counts:
    """Return what rows of value and count tell, without values that were not found."""
    table = np.array(rows, np.int64).reshape(-1, 2)
    table = table[table[:, 1] > 0]
    return Counts(table[:, 0], table[:, 1])


def section(path: str, name: str) -> Counts:
    """Return the first two columns of a section of a samtools stats file."""
    rows = (line.split("\t") for line in Path(path).read_text().splitlines())
    return counts_of([row[1:3] for row in rows if row[0] == name])


def two_columns(path: str) -> Counts:
    """Return a table of values and counts below a line of headings."""
    lines = Path(path).read_text().splitlines()[1:]
    return counts_of([line.split("\t") for line in lines])


# --- what is drawn of each sample ---


class Curves(NamedTuple):
    """A curve for each sample, all over the same axis."""

    edges: np.ndarray
    """float64 (n + 1,): of the n bins."""
    heights: list[np.ndarray | None]
    """float64 (n,) each; None for samples without values."""


def shown_sizes(sizes: Counts) -> tuple[int, int]:
    """Return the insert sizes between which a sample is shown."""
    low, high = sizes.quantile(0.25), sizes.quantile(0.75)
    reach = FENCES * max(high - low, 1)
    return (
        max(sizes.quantile(0.005), low - reach),
        min(sizes.quantile(0.995), high + reach),
    )


def bin_width(samples: list[Counts], low: int, high: int) -> int:
    """Return the width of bins for all samples: that of Freedman and Diaconis (1981).

    Of their widths the median; BINS bins at most.
    """
    widths = [
        2 * (sizes.quantile(0.75) - sizes.quantile(0.25)) / sizes.counts.sum() ** (1 / 3)
        for sizes in samples
    ]
    return max(1, round(float(np.median(widths))), -(-(high + 1 - low) // BINS))


def insert_size_curves(samples: list[Counts]) -> tuple[Curves, int]:
    """Return the part of each sample's pairs in bins of one width, and this width."""
    found = [sizes for sizes in samples if sizes.counts.size]
    if not found:
        return Curves(np.arange(2.0), [None] * len(samples)), 1
    lows, highs = zip(*map(shown_sizes, found), strict=True)
    low, high = min(lows), max(highs)
    width = bin_width(found, low, high)
    edges = np.arange(low - low % width, high + width + 1, width)
    heights = [
        np.histogram(sizes.values, edges, weights=sizes.counts)[0] / sizes.counts.sum()
        if sizes.counts.size
        else None
        for sizes in samples
    ]
    return Curves(edges, heights), width


def depth_curves(samples: list[Counts]) -> Curves:
    """Return the part of the reference that has at least each depth.

    The axis ends where all but a hundredth of the covered positions of every sample are shown.
    """
    ends = [1]
    for depths in samples:
        covered = Counts(*(column[depths.values > 0] for column in depths))
        if covered.counts.size:
            ends.append(covered.quantile(0.99))
    step = -(-max(ends) // BINS)
    least = np.arange(1, max(ends) + 1, step)
    heights = [at_or_above(depths, least) / depths.counts.sum() for depths in samples]
    return Curves(np.append(least, least[-1] + step) - 0.5, list(heights))


def mapq_curves(samples: list[Counts]) -> Curves:
    """Return the part of each sample's mapped reads below each mapping quality, 1 to 60."""
    least = np.arange(1, 61)
    heights = [
        (qualities.counts.sum() - at_or_above(qualities, least)) / qualities.counts.sum()
        if qualities.counts.size
        else None
        for qualities in samples
    ]
    return Curves(np.arange(0.5, 61), heights)


def length_curves(samples: list[Counts]) -> Curves:
    """Return the part of each sample's bases that lie in reads of at least each length.

    The axis has the decimal logarithms of lengths.
    """
    found = [lengths for lengths in samples if lengths.counts.size]
    low = min((lengths.quantile(0.01) for lengths in found), default=1)
    high = max((lengths.values[-1] for lengths in found), default=10)
    edges = np.geomspace(max(low, 1), max(high, low + 1), BINS + 1)
    least = np.unique(edges.round().astype(np.int64))
    heights: list[np.ndarray | None] = []
    for lengths in samples:
        bases = Counts(lengths.values, lengths.values * lengths.counts)
        total = bases.counts.sum()
        heights.append(at_or_above(bases, least[:-1]) / total if total else None)
    return Curves(np.log10(least), heights)


def identity_curves(samples: list[Counts]) -> Curves:
    """Return the part of each sample's reads below each identity in percent.

    The axis begins where a hundredth of the reads of some sample is left out.
    """
    low = min((found.quantile(0.01) for found in samples if found.counts.size), default=9900)
    least = np.unique(np.linspace(min(low, 9999), 10_000, BINS + 1).round().astype(np.int64))
    heights = [
        1 - at_or_above(found, least[1:]) / found.counts.sum() if found.counts.size else None
        for found in samples
    ]
    return Curves(least / 100, heights)


def at_or_above(found: Counts, least: np.ndarray) -> np.ndarray:
    """Return how often each value or a larger one was found."""
    above = np.append(np.cumsum(found.counts[::-1])[::-1], 0)
    return above[np.searchsorted(found.values, least)]


# --- drawing ---


def percent(part: float, _: object = None) -> str:
    return f"{100 * part:.3g} %"


def figure_of(n_lines: int) -> tuple[plt.Figure, Axes]:
    """Return a figure that has room for the names of so many samples, if they are named."""
    height = 0.16 * n_lines + 1 if n_lines <= NAMED else 0
    return plt.subplots(figsize=(8, max(4.5, height)), layout="constrained")


def name_samples(axes: Axes, samples: list[str]) -> None:
    """Label lines with their samples, the first on top, if there is room."""
    few = len(samples) <= NAMED
    axes.set_yticks(range(len(samples)) if few else [], samples if few else [])
    if not few:
        axes.set_ylabel(f"{len(samples)} samples, the sheet's first on top")


def plot_bars(axes: Axes, samples: list[str]) -> None:
    """Finish a plot of a bar for each sample."""
    name_samples(axes, samples)
    axes.set_ylim(max(len(samples), 5) - 0.4, -0.6)  # a lone bar need not fill the picture
    axes.spines[["top", "right"]].set_visible(False)


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
    plot_bars(axes, [row["sample"] for row in rows])


def plot_coverage(axes: Axes, rows: list[dict[str, str]]) -> None:
    """Draw the mean depth of each sample."""
    depths = [float(row["mean_depth"]) for row in rows]
    bars = axes.barh(range(len(rows)), depths, height=0.7)
    if len(rows) <= NAMED:
        axes.bar_label(bars, [f"{depth:.3g}" for depth in depths], padding=3)
    axes.set_xlabel("mean depth, without duplicates")
    plot_bars(axes, [row["sample"] for row in rows])


def plot_curves(
    axes: Axes, samples: list[str], curves: Curves, x: str, y: str, is_log: bool = False
) -> None:
    """Draw the samples that have values, as curves or as a heat map.

    Parameters
    ----------
    x, y
        Labels of the axes; the heights of the curves are parts of 1.
    is_log
        Draw the heights on a logarithmic scale, on which those of 0 are not seen.
    """
    drawn = [
        (sample, height)
        for sample, height in zip(samples, curves.heights, strict=True)
        if height is not None
    ]
    axes.set_xlabel(x)
    axes.set_xlim(curves.edges[0], curves.edges[-1])
    positive = np.concatenate([height[height > 0] for _, height in drawn] or [np.ones(0)])
    if not positive.size:
        axes.set_yticks([])
        return
    low, high = float(positive.min()), float(positive.max())
    if is_log:  # whole decades, whose ends are labelled
        low, high = 10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high))
        low = min(low, high / 10)
    if len(drawn) > CURVES:
        heat_map(axes, drawn, curves.edges, y, LogNorm(low, high) if is_log else Normalize(0, high))
        return
    for sample, height in drawn:
        kept = np.where(height > 0, height, np.nan) if is_log else height
        axes.stairs(kept, curves.edges, baseline=None, label=sample, linewidth=1.3)
    axes.set_ylabel(y)
    if is_log:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(low if is_log else 0, high if is_log else 1.05 * high)
    axes.yaxis.set_major_formatter(percent)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def heat_map(
    axes: Axes, drawn: list[tuple[str, np.ndarray]], edges: np.ndarray, label: str, norm: Normalize
) -> None:
    """Draw a line for each sample, its heights as colours; of 0, if logarithmic, none."""
    heights = np.array([height for _, height in drawn])
    if isinstance(norm, LogNorm):
        heights = np.ma.masked_equal(heights, 0)
    extent = (edges[0], edges[-1], len(drawn) - 0.5, -0.5)
    image = axes.imshow(
        heights, aspect="auto", interpolation="none", extent=extent, norm=norm, cmap="viridis"
    )
    bar = axes.figure.colorbar(image, label=label, format=percent)
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    name_samples(axes, [sample for sample, _ in drawn])


def name_decades(axes: Axes) -> None:
    """Label an axis of decimal logarithms with 1, 2 and 5 times the powers of ten."""
    low, high = axes.get_xlim()
    values = [digit * 10**power for power in range(9) for digit in (1, 2, 5)]
    values = [value for value in values if low <= np.log10(value) <= high]
    axes.set_xticks(np.log10(values), [f"{value:,}" for value in values])


def title_if_none(axes: Axes, samples: list[Counts]) -> None:
    """Say so where a plot of long reads has nothing to show."""
    if not any(found.counts.size for found in samples):
        axes.set_title("no long reads")


def main() -> None:
    """Run as the rule says."""
    with Path(snakemake.input.summary).open() as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    samples = [row["sample"] for row in rows]
    inserts = [section(path, "IS") for path in snakemake.input.stats]
    qualities = [section(path, "MAPQ") for path in snakemake.input.stats]
    depths = [two_columns(path) for path in snakemake.input.depth]
    identities = [two_columns(path) for path in snakemake.input.identity]
    lengths = [
        section(path, "RL") if found.counts.size else found  # of long reads only
        for path, found in zip(snakemake.input.stats, identities, strict=True)
    ]

    figures = {name: figure_of(len(rows)) for name in snakemake.output.keys()}  # noqa: SIM118
    plot_reads(figures["reads"][1], rows)
    plot_coverage(figures["coverage"][1], rows)

    axes = figures["insert_size"][1]
    curves, width = insert_size_curves(inserts)
    unit = "each base" if width == 1 else f"each {width} bases"
    plot_curves(axes, samples, curves, "insert size, bases", f"part of the pairs in {unit}")
    if all(height is None for height in curves.heights):
        axes.set_title("no pairs")

    axes = figures["depth"][1]
    y = "part of the reference with at least this depth"
    plot_curves(axes, samples, depth_curves(depths), "depth, without duplicates", y)

    axes = figures["mapq"][1]
    curves = mapq_curves(qualities)
    y = "part of the mapped reads below this quality"
    plot_curves(axes, samples, curves, "mapping quality", y, is_log=True)
    if not any(height is not None and height.any() for height in curves.heights):
        axes.set_title("no mapped read below 60")

    axes = figures["read_length"][1]
    y = "part of the bases in reads at least as long"
    plot_curves(axes, samples, length_curves(lengths), "read length, bases", y)
    name_decades(axes)
    title_if_none(axes, lengths)

    axes = figures["identity"][1]
    y = "part of the mapped reads below this identity"
    plot_curves(axes, samples, identity_curves(identities), "identity, %", y)
    title_if_none(axes, identities)

    for name, (figure, _) in figures.items():
        figure.savefig(snakemake.output[name], metadata={"Date": None, "Title": name})


if "snakemake" in globals():
    main()
