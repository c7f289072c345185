"""Pairs a second of edit and affine alignment on a CUDA device and on the cores, same run.

    python -m benchmarks.kernels.pairwise_cuda [--pairs 1000000] [--repeats 3]

8 000 pairs a row from the generator of ``benchmarks.kernels.pairwise``, repeated to the
number of pairs. *wall* is from flat arrays in host memory (of ASCII, or packed to 2 bits a base by
``mapper.packed_pairs`` beforehand, into ordinary or page-locked memory) to results in host memory:
all copies, packing, kernels and gathering. Results of both backends are compared in full, CIGARs
too. Compilation and a row's first two calls on the device are excluded; the median of the repeats
is given, and one call on the cores.

A second table says where the time of one more call went (``flat_trace.py``): of the one thread
that queues work (*rest*: what is done before and after the first pass), and on the device, where
what the streams did is added up and overlaps. Traced calls are a little slower.
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
    "call", "host: preparing", "host: waiting for staging", "host: queueing",
    "host: waiting for the device", "host: finishing", "host: closing", "host: pairs left",
    "host: rest", "device: copy in", "device: kernels", "device: waiting", "device: copy out",
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


def inputs_of(queries: Any, refs: Any) -> dict[str, tuple[Any, ...]]:
    """Return the same pairs in every form in which they can be given."""
    from mapper import packed_pairs

    return {
        "ASCII": (queries, refs),
        "packed": (packed_pairs(queries, refs),),
        "packed, page-locked": (packed_pairs(queries, refs, device="cuda:0"),),
    }


def traced_call(call: Callable[[], Any]) -> dict[str, float]:
    """Return where the seconds of a call went."""
    from mapper.pairwise.flat_trace import traced

    with traced() as trace:
        begin = time.perf_counter()
        call()
        seconds = time.perf_counter() - begin
    parts = {"call": seconds, "host: rest": seconds - sum(trace.host.values())}
    parts |= {f"host: {name}": s for name, s in trace.host.items()}
    return parts | {f"device: {name}": s for name, s in trace.device().items()}


def measure(
    engine: Callable[..., Any], inputs: dict[str, tuple[Any, ...]], repeats: int
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return seconds by what was given, and on the CPU; and where those of one call went."""
    begin = time.perf_counter()
    expected = engine(*inputs["ASCII"], device="cpu")
    cpu = time.perf_counter() - begin
    seconds, parts = {}, {}
    for what, given in inputs.items():

        def call(given: tuple[Any, ...] = given) -> Any:
            return engine(*given, device="cuda:0")

        seconds[what], found = seconds_of(call, repeats)
        check(expected, found)
        del found
        parts[what] = traced_call(call)
    return seconds | {"cpu": cpu}, parts


def row_of(text: str) -> tuple[int, float]:
    """Return length and rate of a row given as ``length:percent``."""
    length, _, percent = text.partition(":")
    return int(length), float(percent) / 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=3_000_000, help="of 150 [%(default)s]")
    parser.add_argument("--repeats", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder [%(default)s]")
    parser.add_argument(
        "--rows", default="150:2 150:5 300:5 1000:2 1000:5", help="length:percent [%(default)s]"
    )
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
    for length, rate in map(row_of, options.rows.split()):
        distinct = min(DISTINCT, DISTINCT * 150 // length, options.pairs)
        copies = max(1, options.pairs * 150 // length // distinct)
        pairs = make_pairs(length, rate, distinct)
        queries = flat([query for query, _ in pairs], copies)
        refs = flat([ref for _, ref in pairs], copies)
        inputs = inputs_of(queries, refs)
        n = distinct * copies
        for name_of, engine, cigar in tasks:
            seconds, parts = measure(partial(engine, cigar=cigar), inputs, options.repeats)
            rates = {what: n / s / 1e6 for what, s in seconds.items()}
            task = f"{name_of} + CIGAR" if cigar else name_of
            rows.append([length, f"{rate:.0%}", task, n, *(f"{r:.2f}" for r in rates.values())])
            of_row = [
                [length, f"{rate:.0%}", task, what, *(f"{1000 * of.get(p, 0):.1f}" for p in PARTS)]
                for what, of in parts.items()
            ]
            where += of_row
            report.append(
                {"length": length, "rate": rate, "task": task, "n": n, "s": seconds,
                 "parts": parts}
            )  # fmt: skip
            print(*rows[-1], sep="  ")
            for of in of_row:
                timed = zip(PARTS, of[4:], strict=True)
                print("   ", f"{of[3]}:", ", ".join(f"{p} {ms}" for p, ms in timed), flush=True)
    cores = len(os.sched_getaffinity(0))
    header = [
        "length", "edits", "task", "pairs", "CUDA from ASCII, M pairs/s", "from packed",
        "from packed, page-locked", f"CPU, {cores} cores",
    ]  # fmt: skip
    lines = ["# Pairwise alignment on CUDA", "", *markdown_provenance(about), *table(header, rows)]
    lines += ["", "Milliseconds of one more call:", ""]
    lines += table(["length", "edits", "task", "from", *PARTS], where)
    write_results(options.results, "pairwise_cuda", {"about": about, "runs": report}, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
