"""What each job used of what it asked for, out of logs and benchmarks (Snakemake script)."""

from rule_log import start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import json
import re
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from html_tables import NA, read_table, table, write_page, write_table

COLUMNS = [
    "rule", "job", "seconds", "seconds_asked", "max_rss_mb", "mem_mb_asked", "cpu_seconds",
    "threads_asked", "gpus_asked", "device", "time", "memory", "cores", "gpu", "low",
]  # fmt: skip
SHARES = ("time", "memory", "cores", "gpu")
ON_DEVICE = ("pack", "seed", "chain", "extend", "rescue")  # stages, in the statistics of a run
LOW = 0.25  # of what was asked for
SHORT = 120  # seconds; below, a job is its start, and what it holds is soon free


def asked_for(log: str) -> dict[str, str]:
    """Return what the start of a log says was asked for; nothing of an older version's."""
    lines = re.findall(r"^asked (.*)$", log, re.MULTILINE)
    return dict(re.findall(r"(\w+)=(\S+)", " ".join(lines)))


def ratio(used: str, asked: float | None) -> str:
    return NA if NA in used or not asked else f"{float(used) / asked:.3f}"


def gpu_seconds(statistics: dict[str, Any]) -> float | None:
    """Return how long a run had reads in work on its device; None if that is not known.

    The streams of a device share the time of mapping: they work on reads, copies included, or wait
    for them. Kernels alone take less. Times of a resumed run are those of all its starts.
    """
    if "resumed" in statistics:
        return None
    seconds = statistics["seconds"]
    working = sum(seconds["stages"][name] for name in ON_DEVICE)
    if not working:
        return None
    mapping = seconds["wall"] - seconds["start"] - seconds["compile"] - seconds["writing"]
    return float(mapping * working / (working + seconds["stages"]["wait"]))


def job_row(
    rule: str, job: str, used: dict[str, str], log: str, statistics: dict[str, Any] | None = None
) -> dict[str, str]:  # fmt: skip
    """Return the line of a job.

    Parameters
    ----------
    rule
        The folder of its log, or the rule of a job that is the only one.
    job
        Sample, unit or part; empty of the only job of a rule.
    used
        The line of its benchmark, by column.
    log
        The text of its log.
    statistics
        Those of ``fmwave map``, of a mapping job.
    """
    asked = asked_for(log)
    minutes, threads = (float(asked.get(key, 0)) for key in ("runtime", "threads"))
    seconds = float(used["s"])
    device = re.search(r"computing on (.+)", log)
    on_gpu = gpu_seconds(statistics) if statistics and device and "cuda" in device[1] else None
    row = {
        "rule": rule, "job": job, "seconds": used["s"],
        "seconds_asked": f"{60 * minutes:.0f}" if minutes else NA,
        "max_rss_mb": used["max_rss"], "mem_mb_asked": asked.get("mem_mb", NA),
        "cpu_seconds": used["cpu_time"], "threads_asked": asked.get("threads", NA),
        "gpus_asked": asked.get("gpus", "0"), "device": device[1] if device else "the CPU",
        "time": ratio(used["s"], 60 * minutes),
        "memory": ratio(used["max_rss"], float(asked.get("mem_mb", 0))),
        "cores": ratio(used["cpu_time"], threads * seconds),
        "gpu": NA if on_gpu is None else ratio(str(on_gpu), seconds),
    }  # fmt: skip
    low = [name for name in SHARES if row[name] != NA and float(row[name]) < LOW]
    return row | {"low": ", ".join(low) if seconds >= SHORT else ""}


def rows_of(
    benchmarks: Path, logs: Path, names: Iterable[str], stats: Path | None = None
) -> list[dict[str, str]]:
    """Return the lines of all jobs that have left a benchmark, those of a rule together.

    Those not among `names` are left out: of samples, units and parts of earlier settings, and of
    the reports, which take seconds.
    """
    known = set(names)
    rows = []
    for path in sorted(benchmarks.rglob("*.tsv")):
        place = path.relative_to(benchmarks)
        if place.stem not in known:
            continue
        log = logs / place.with_suffix(".log")
        (used,) = read_table(path)
        rule, job = (place.stem, "") if len(place.parts) == 1 else (place.parts[0], place.stem)
        text = log.read_text(errors="replace") if log.exists() else ""
        counted = stats / f"{job}.map.json" if stats is not None and rule == "map" else None
        found = json.loads(counted.read_text()) if counted and counted.exists() else None
        rows.append(job_row(rule, job, used, text, found))
    return rows


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def rule_cells(rule: str, rows: list[dict[str, str]]) -> dict[str, str]:
    """Return the cells of a rule's line, by their headings: medians, and the most of memory."""
    cells = {"rule": rule, "jobs": str(len(rows))}
    cells["hours"] = f"{sum(float(row['seconds']) for row in rows) / 3600:.2f}"
    for share in SHARES:
        found = [float(row[share]) for row in rows if row[share] != NA]
        cells[f"{share}, median"] = percent(median(found) if found else None)
        if share in ("time", "memory"):
            cells[f"{share}, most"] = percent(max(found, default=None))
    return cells | {"low": str(sum(bool(row["low"]) for row in rows))}


def job_cells(row: dict[str, str]) -> dict[str, str]:
    """Return the cells of a job's line, by their headings."""

    def of(used: str, asked: str, unit: str) -> str:
        numbers = ("–" if text == NA else f"{float(text):,.0f}" for text in (used, asked))
        return f"{' of '.join(numbers)} {unit}"

    cells = {"rule": row["rule"], "job": row["job"]}
    cells["time"] = of(row["seconds"], row["seconds_asked"], "s")
    cells["memory"] = of(row["max_rss_mb"], row["mem_mb_asked"], "MB")
    share = None if row["cores"] == NA else float(row["cores"])
    cells["cores"] = f"{percent(share)} of {row['threads_asked']}"
    cells["GPUs asked"], cells["computed on"] = row["gpus_asked"], row["device"]
    cells["GPU"] = percent(None if row["gpu"] == NA else float(row["gpu"]))
    return cells | {"low": row["low"]}


def main() -> None:
    """Run as the rule says."""
    places = snakemake.params
    rows = rows_of(Path(places.benchmarks), Path(places.logs), places.names, Path(places.stats))
    write_table(snakemake.output.table, COLUMNS, rows)
    by_rule: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_rule.setdefault(row["rule"], []).append(row)
    body = (
        "<h2>Used of what was asked for, by kind of job</h2>\n"
        + table([rule_cells(rule, of_rule) for rule, of_rule in by_rule.items()], "rules")
        + "<h2>Job by job</h2>\n"
        + table([job_cells(row) for row in rows], "jobs")
    )
    write_page(snakemake.output.page, "Jobs", body)


if "snakemake" in globals():
    main()
