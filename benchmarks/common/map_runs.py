"""Whole runs of ``fmwave`` as processes: commands, reports, and digests of records."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isal import igzip

from benchmarks.common import harness
from benchmarks.common.harness import BenchmarkError


def fmwave(*arguments: object) -> list[str]:
    """Return the command with this interpreter, installed or not."""
    return [sys.executable, "-m", "mapper.cli.main", *map(str, arguments)]


def run(command: Sequence[str | Path], log: Path, stdout: Path | None = None) -> float:
    """Run; return the wall time. Raise, with the end of the log, if it fails."""
    cost = harness.measure(command, log, stdout)
    if cost.exit_status:
        raise BenchmarkError(f"{' '.join(map(str, command))}:\n{harness.tail(log)}")
    return cost.wall_s


def gpus() -> list[str]:
    """Return name and driver of every device that nvidia-smi sees."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    run = subprocess.run(query, capture_output=True, text=True, check=True)
    return run.stdout.strip().splitlines()


def index_of(reference: Path, work: Path) -> Path:
    """Return the index of a FASTA file, built in `work` if it is not there."""
    index = work / f"{reference.name}.fmw"
    if not index.exists():
        seconds = run(fmwave("index", reference, "-o", index), work / f"{reference.name}.log")
        print(f"index of {reference.name}: {seconds:.1f} s", flush=True)
    return index


def map_with(
    index: Path, reads: Sequence[Path], device: str, threads: int, work: Path, *options: object
) -> tuple[Path, dict[str, Any]]:
    """Map; return the BAM and the run's own report, with the wall time of the process."""
    out, stats = work / "fmwave.bam", work / "fmwave.json"
    command = fmwave(
        "map", index, *reads, "-o", out, "-t", threads, "--device", device, "--json-stats", stats,
        *options,
    )  # fmt: skip
    wall = run(command, work / "fmwave.log")
    report: dict[str, Any] = json.loads(stats.read_text())
    return out, report | {"process_s": wall}


def records_digest(bam: Path) -> str:
    """Return the MD5 of a BAM file's records; the header, which has the command, is left out."""
    with igzip.open(bam, "rb") as file:
        if file.read(4) != b"BAM\1":
            raise BenchmarkError(f"{bam} is not a BAM file")
        file.read(int.from_bytes(file.read(4), "little"))
        for _ in range(int.from_bytes(file.read(4), "little")):
            file.read(int.from_bytes(file.read(4), "little") + 4)
        digest = hashlib.md5()
        while part := file.read(1 << 22):
            digest.update(part)
    return digest.hexdigest()


def stage_table(reports: dict[str, dict[str, Any]]) -> list[str]:
    """Return thread time of each stage, µs a read, of the last run of each device."""
    names = list(reports)
    stages = list(next(iter(reports.values()))["seconds"]["stages"])
    rows = [
        [stage, *(
            f"{1e6 * reports[n]['seconds']['stages'][stage] / reports[n]['counts']['reads']:.2f}"
            for n in names
        )]
        for stage in stages
    ]  # fmt: skip
    return harness.table(["stage, thread µs a read", *names], rows)
