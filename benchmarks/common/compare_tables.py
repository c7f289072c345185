"""Tables of a comparison: speed, accuracy, reads apart, index and first run."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.common import harness, strata

WARM_UP_READS = 2_000
"""Reads of each file in a mapper's first run."""
THRESHOLDS = (1, 10, 20, 30, 60)
MAPQ_LEVELS = (0, 1, 10, 20, 30, 60)  # ranges of the calibration begin here


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


def _scored_again(report: dict[str, Any]) -> list[str]:
    """Return which mappers' accuracy is of a later version."""
    lines = [
        f"Accuracy of {mapper}: of {when}, the same reads."
        for mapper, when in report.get("scored_again", {}).items()
    ]
    return [*lines, ""] if lines else []


def accuracy_lines(report: dict[str, Any]) -> list[str]:
    """Return the accuracy tables of all data sets, for docs/accuracy.md."""
    return _scored_again(report) + _by_data_set(report, accuracy_tables, "###")


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
        *_scored_again(report),
        *_by_data_set(report, tables, "##"),
    ]
