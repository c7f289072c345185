"""The report of the `whole_genome` benchmark in markdown."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.common import harness
from benchmarks.common.map_runs import stage_table

PEER = "minimap2 -ax sr"
RUNS = {"": "runs", ", plain gzip, one member a file": "plain_runs"}
"""How the report names the rounds, and where they are in it."""


def lines_of(report: dict[str, Any]) -> list[str]:
    """Return the report in markdown."""
    options = report["options"]
    lines = [
        f"{options['size']:,} bases in 24 contigs; {options['pairs']:,} pairs 2x150 of a donor "
        f"(seed 1), FASTQ{' in BGZF' if options['bgzf'] else '.gz'} to BAM (SAM for minimap2), "
        f"{options['threads']} threads. Memory is of the largest process; device memory is what "
        "all of the device's users had together.",
        "",
    ]
    if report["stopped"]:
        lines += [f"**Not all was done**: {report['stopped']}.", ""]
    if report["dropped"]:
        lines += ["**Left out, for want of time**: " + "; ".join(report["dropped"]) + ".", ""]
    lines += report["step_table"]
    if "index_log" in report:
        lines += ["    " + line for line in report["index_log"]] + [""]
    if report["load"]:
        names = list(next(iter(report["load"].values()))["rows"])
        lines += harness.table(
            ["loading", *report["load"]],
            [[n, *(f"{found['rows'].get(n, '–')}" for found in report["load"].values())]
             for n in names],
        )  # fmt: skip
    lines += rate_lines(report)
    runs = {device: found[-1] for device, found in report["runs"].items() if found}
    if runs:
        lines += stage_table(runs)
    if "digests" in report:
        same = len(set(report["digests"].values())) == 1
        lines += [f"Records of all devices: {'the same bytes' if same else '**DIFFERENT**'}.", ""]
    return lines + planted_lines(report) + score_lines(report)


def rate_lines(report: dict[str, Any]) -> list[str]:
    """Return reads a second: of whole processes, and without their start and compilation."""
    rows = []
    for kind, key in RUNS.items():
        for device, found in report[key].items():
            whole = [round(r["counts"]["reads"] / r["process_s"]) for r in found]
            own = [r["reads_per_second"] for r in found]
            name = f"fmwave map --device {device}{kind}"
            rows.append([name, len(found), with_range(whole), with_range(own)])
    options = report["options"]
    n_reads = 2 * (options.get("peer_pairs") or options["pairs"])
    for step in report["steps"]:
        if step["step"] == PEER:
            rate = f"{n_reads / step['wall_s']:,.0f}"
            rows.append([f"{PEER}, {n_reads:,} of the reads", 1, rate, "–"])
    header = ["", "rounds", "reads/s, whole process: median (range)", "without start"]
    return harness.table(header, rows) if rows else []


def with_range(rates: list[int]) -> str:
    """Return the median, and what it lies between."""
    return f"{median(rates):,.0f} ({min(rates):,}–{max(rates):,})"


def planted_lines(report: dict[str, Any]) -> list[str]:
    """Say what became of the k-mers that were planted."""
    lines = []
    for device, found in report["planted"].items():
        lines += [
            f"`fmwave seed --device {device}`: {found['planted']:,} planted {found['k']}-mers from "
            f"position {found['first']:,} of the text on, every second one turned round: "
            f"{found['planted'] - found['left_out']:,} found where they were cut, "
            f"{found['left_out']:,} left out for too many matches. Each of the {found['hits']:,} "
            f"lines was compared with the FASTA at its place, none differs; {found['beyond']:,} "
            f"places are from that position on. The process took {found['seed_s']:.1f} s.",
            "",
        ]
    return lines


def score_lines(report: dict[str, Any]) -> list[str]:
    scores, boundary = report["scores"], report["options"]["boundary"]
    if not scores:
        return []
    keys = ("reads", "mapped_pct", "correct_pct", "wrong_pct_of_mapped")
    lines = harness.table(
        ["first pairs, mapeval.py", "reads", "mapped %", "correct %", "wrong % of mapped",
         "MAPQ ≥ 30: mapped %", "wrong %", "problems"],
        [
            [who, *(found[k] for k in keys), found["mapq30"]["mapped_pct"],
             found["mapq30"]["wrong_pct"], found["problems"] or "none"]
            for who, found in scores.items()
        ],
    )  # fmt: skip
    lines += against_peer(scores)
    columns = ("reads", "mapped", "right", "mapq30", "mapq30_right")
    lines += harness.table(
        [f"reads from beyond position {boundary:,}", *columns[1:]],
        [
            [who, *(f"{found['far'].get(column, 0):,}" for column in columns[1:])]
            for who, found in scores.items()
        ],
    )
    n_far = max((found["far"].get("reads", 0) for found in scores.values()), default=0)
    return [*lines[:-1], "", f"(of {n_far:,} each)", ""]


def against_peer(scores: dict[str, Any]) -> list[str]:
    """Say how many points more of the reads are correct than the peer's."""
    if PEER not in scores:
        return []
    ahead = {
        who: found["correct_pct"] - scores[PEER]["correct_pct"]
        for who, found in scores.items()
        if who != PEER and found["reads"] == scores[PEER]["reads"]
    }
    return [
        f"Correct, points above minimap2's: {who} {points:+.4f}." for who, points in ahead.items()
    ] + [""]
