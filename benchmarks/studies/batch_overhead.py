"""Measure what a batch costs beside its reads: Python, calls, hand-over between threads.

    python -m benchmarks.studies.batch_overhead REF.fmw R1.fq R2.fq

Maps the same reads in large and in very small batches with one thread. What a run with more batches
takes more of the processor, divided by the batches it has more, bounds what one compiled call a
batch (instead of two dozen) could save. Prints a table in Markdown; results:
benchmarks/results/house_on_gpu.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LARGE, SMALL = 3_000_000, 10_000
ROUNDS = 3


def processor_seconds(options: argparse.Namespace, batch_bases: int, folder: Path) -> float:
    """Map all reads; return the processor's seconds of the whole process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        sys.executable, "-m", "mapper.cli.main", "map", options.index, *options.reads, "--quiet",
        "-o", folder / "out.bam", "-t", "1", "--device", "cpu", "--batch-bases", str(batch_bases),
        "--json-stats", folder / "stats.json",
    ]  # fmt: skip
    subprocess.run([str(word) for word in command], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("reads", type=Path, nargs="+")
    parser.add_argument("--bases", type=int, required=True, help="bases of all reads")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processor_seconds(options, LARGE, folder)  # compiles
        found: dict[int, list[float]] = {LARGE: [], SMALL: []}
        for _ in range(ROUNDS):
            for batch_bases, seconds in found.items():
                seconds.append(processor_seconds(options, batch_bases, folder))
        reads = json.loads((folder / "stats.json").read_text())["counts"]["reads"]
    large, small = (statistics.median(found[batch_bases]) for batch_bases in (LARGE, SMALL))
    more = options.bases / SMALL - options.bases / LARGE
    each = (small - large) / more
    share = each * options.bases / LARGE / large
    print("| reads | batches of | processor, s |\n| --- | --- | --- |")
    print(f"| {reads} | {LARGE} bases | {large:.2f} |\n| {reads} | {SMALL} bases | {small:.2f} |")
    print(f"\nA batch costs {each * 1e3:.2f} ms: {share:.2%} of a run in batches of {LARGE} bases.")


if __name__ == "__main__":
    main()
