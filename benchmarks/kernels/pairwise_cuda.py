"""Pairs a second of edit and affine alignment on a CUDA device and on the cores, same run.

    python -m benchmarks.kernels.pairwise_cuda [--pairs 1000000] [--repeats 3]

8 000 pairs a row from the generator of ``benchmarks.kernels.pairwise``, repeated to the
number of pairs. *wall* is from flat arrays of ASCII in host memory to results in host memory: all
copies, packing, kernels and gathering. Results of both backends are compared in full, CIGARs
too. Compilation and a row's first call on the device are excluded; the median of the repeats is
given, and one call on the cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import (
    RESULTS,
    BenchmarkError,
    commit,
    machine,
    markdown_provenance,
    table,
    write_results,
)
from benchmarks.kernels.pairwise import make_pairs

DISTINCT = 8_000


def flat(sequences: list[str], copies: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences, repeated, as a flat array and offsets."""
    letters = np.tile(np.frombuffer("".join(sequences).encode(), np.uint8), copies)
    lengths = np.tile(np.array([len(s) for s in sequences], np.int64), copies)
    return letters, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def measure(
    engine: Callable[..., Any], queries: Any, refs: Any, repeats: int, cigar: bool
) -> dict[str, float]:
    """Return the median seconds on the device, and those of one call on the CPU."""
    seconds = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        found = engine(queries, refs, cigar=cigar, device="cuda:0")
        seconds.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    expected = engine(queries, refs, cigar=cigar, device="cpu")
    cpu = time.perf_counter() - begin
    for a, b in zip(expected, found, strict=True):
        if (a is None) != (b is None) or (a is not None and (a != b).any()):
            raise BenchmarkError("CPU and CUDA disagree")
    return {"cuda": median(seconds[1:]), "cpu": cpu}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=3_000_000, help="of 150 [%(default)s]")
    parser.add_argument("--repeats", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder [%(default)s]")
    options = parser.parse_args(arguments)
    from mapper import align_affine, edit_distance
    from mapper.device.choose import find_devices

    found = find_devices()
    if found.problem:
        print(f"error: {found.problem}", file=sys.stderr)
        return 1
    name = found.devices[0].name
    about = {
        "commit": commit(), "machine": machine(), "versions": {"device": str(name)},
        "command": " ".join(["python -m benchmarks.kernels.pairwise_cuda", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }  # fmt: skip
    small = [flat([side], 1) for side in ("ACGT" * 20, "ACGT" * 20 + "T")]
    for engine in (edit_distance, align_affine):
        for cigar in (False, True):
            engine(*small, cigar=cigar, device="cpu")
    tasks = (
        ("edit distance", edit_distance, False),
        ("edit distance", edit_distance, True),
        ("affine 4,6,2", align_affine, True),
    )
    rows, report = [], []
    for length, rate in ((150, 0.02), (150, 0.05), (300, 0.05), (1000, 0.02), (1000, 0.05)):
        distinct = min(DISTINCT, DISTINCT * 150 // length)
        copies = max(1, options.pairs * 150 // length // distinct)
        pairs = make_pairs(length, rate, distinct)
        queries = flat([query for query, _ in pairs], copies)
        refs = flat([ref for _, ref in pairs], copies)
        n = distinct * copies
        for name_of, engine, cigar in tasks:
            seconds = measure(engine, queries, refs, options.repeats, cigar)
            rates = {what: n / s / 1e6 for what, s in seconds.items()}
            task = f"{name_of} + CIGAR" if cigar else name_of
            rows.append([length, f"{rate:.0%}", task, n, *(f"{r:.2f}" for r in rates.values())])
            report.append({"length": length, "rate": rate, "task": task, "n": n, "s": seconds})
            print(*rows[-1], sep="  ", flush=True)
    cores = len(os.sched_getaffinity(0))
    header = [
        "length", "edits", "task", "pairs", "CUDA wall, M pairs/s", f"CPU, {cores} cores"
    ]  # fmt: skip
    lines = ["# Pairwise alignment on CUDA", "", *markdown_provenance(about), *table(header, rows)]
    write_results(options.results, "pairwise_cuda", {"about": about, "runs": report}, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
