"""Pairs a second of edit and affine alignment on a CUDA device and on the cores, same run.

    python -m benchmarks.kernels.pairwise_cuda [--pairs 1000000] [--repeats 3]

8 000 pairs a row from the generator of ``benchmarks.kernels.pairwise``, repeated to the
number of pairs. *wall* is from flat arrays in host memory (of ASCII, or packed to 2 bits a base by
``mapper.packed_pairs`` beforehand) to results in host memory: all copies, packing, kernels and
gathering. Results of both backends are compared in full, CIGARs too. Compilation and a row's first
two calls on the device are excluded; the median of the repeats is given, and one call on the cores.

A second table says where the time of one more call from ASCII went (``flat_trace.py``): of the one
thread that queues work, and on the device, where what the streams did is added up and overlaps.
Traced calls are a little slower.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
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

PARTS = (
    "call", "host: waiting for staging", "host: queueing", "host: waiting for the device",
    "host: finishing", "host: pairs left", "device: copy in", "device: kernels",
    "device: waiting", "device: copy out",
)  # fmt: skip


def flat(sequences: list[str], copies: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences, repeated, as a flat array and offsets."""
    letters = np.tile(np.frombuffer("".join(sequences).encode(), np.uint8), copies)
    lengths = np.tile(np.array([len(s) for s in sequences], np.int64), copies)
    return letters, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def seconds_of(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median seconds of calls after two others, and what the last one returned."""
    seconds = []
    for _ in range(repeats + 2):
        begin = time.perf_counter()
        found = call()
        seconds.append(time.perf_counter() - begin)
    return median(seconds[2:]), found


def check(expected: Any, found: Any) -> None:
    """Raise BenchmarkError if two results differ anywhere."""
    for a, b in zip(expected, found, strict=True):
        if (a is None) != (b is None) or (a is not None and (a != b).any()):
            raise BenchmarkError("CPU and CUDA disagree")


def measure(
    engine: Callable[..., Any], queries: Any, refs: Any, repeats: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return seconds by what was given, and on the CPU; and where those of one call went."""
    from mapper import packed_pairs
    from mapper.pairwise.flat_trace import traced

    seconds = {}
    begin = time.perf_counter()
    expected = engine(queries, refs, device="cpu")
    cpu = time.perf_counter() - begin
    seconds["ascii"], found = seconds_of(lambda: engine(queries, refs, device="cuda:0"), repeats)
    check(expected, found)
    del found
    packed = packed_pairs(queries, refs)
    seconds["packed"], found = seconds_of(lambda: engine(packed, device="cuda:0"), repeats)
    check(expected, found)
    del found
    with traced() as trace:
        begin = time.perf_counter()
        engine(queries, refs, device="cuda:0")
        parts = {"call": time.perf_counter() - begin}
    parts |= {f"host: {name}": s for name, s in trace.host.items()}
    parts |= {f"device: {name}": s for name, s in trace.device().items()}
    return seconds | {"cpu": cpu}, parts


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
    rows, where, report = [], [], []
    for length, rate in ((150, 0.02), (150, 0.05), (300, 0.05), (1000, 0.02), (1000, 0.05)):
        distinct = min(DISTINCT, DISTINCT * 150 // length)
        copies = max(1, options.pairs * 150 // length // distinct)
        pairs = make_pairs(length, rate, distinct)
        queries = flat([query for query, _ in pairs], copies)
        refs = flat([ref for _, ref in pairs], copies)
        n = distinct * copies
        for name_of, engine, cigar in tasks:
            seconds, parts = measure(partial(engine, cigar=cigar), queries, refs, options.repeats)
            rates = {what: n / s / 1e6 for what, s in seconds.items()}
            task = f"{name_of} + CIGAR" if cigar else name_of
            rows.append([length, f"{rate:.0%}", task, n, *(f"{r:.2f}" for r in rates.values())])
            where.append(
                [length, f"{rate:.0%}", task, *(f"{1000 * parts.get(p, 0):.1f}" for p in PARTS)]
            )
            report.append(
                {"length": length, "rate": rate, "task": task, "n": n, "s": seconds,
                 "parts": parts}
            )  # fmt: skip
            print(*rows[-1], "|", *where[-1][3:], sep="  ", flush=True)
    cores = len(os.sched_getaffinity(0))
    header = [
        "length", "edits", "task", "pairs", "CUDA from ASCII, M pairs/s", "CUDA from packed",
        f"CPU, {cores} cores",
    ]  # fmt: skip
    lines = ["# Pairwise alignment on CUDA", "", *markdown_provenance(about), *table(header, rows)]
    lines += ["", "Milliseconds of one more call from ASCII:", ""]
    lines += table(["length", "edits", "task", *PARTS], where)
    write_results(options.results, "pairwise_cuda", {"about": about, "runs": report}, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
