"""Pairs a second of the pairwise engines beside edlib, pywfa and parasail, one thread each.

    python -m benchmarks.kernels.pairwise [--seconds 1] [--repeats 5]

Pairs come from a seeded generator: ceil(length * rate) edits a pair, a third each mismatch,
insertion and deletion. Every engine gets the same lists of str and gives scores, or scores
and CIGARs, as its Python interface has them; fmwave's time includes packing. All results of
a run are compared: another score than the peer's ends it. Compilation is excluded; engines
take turns within each repeat, and the median and the range of the repeats are given.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import (
    RESULTS,
    BenchmarkError,
    markdown_provenance,
    provenance,
    table,
    write_results,
)

SEED = 4
VERSIONS = ("numba", "numpy", "edlib", "pywfa")
HEADER = ("length", "edits", "task", "pairs", "fmwave, pairs/s (range)", "peer",
          "peer, pairs/s (range)", "fmwave / peer")  # fmt: skip
Pairs = list[tuple[str, str]]
Engine = Callable[[list[str], list[str]], list[int]]


def make_pairs(length: int, rate: float, n: int) -> Pairs:
    """Return pairs of query and reference."""
    rng = random.Random(f"{SEED} {length} {rate}")
    pairs = []
    for _ in range(n):
        ref = rng.choices("ACGT", k=length)
        query = ref[:]
        for _ in range(ceil(length * rate)):
            kind = rng.randrange(3)
            if kind == 0:
                at = rng.randrange(len(query))
                query[at] = rng.choice([base for base in "ACGT" if base != query[at]])
            elif kind == 1:
                query.insert(rng.randrange(len(query) + 1), rng.choice("ACGT"))
            else:
                del query[rng.randrange(len(query))]
        pairs.append(("".join(query), "".join(ref)))
    return pairs


def engines() -> dict[str, dict[str, Engine]]:
    """Return, for each task, the engines by name; scores are distances or penalties."""
    import edlib
    import pywfa

    from mapper import align_affine, edit_distance

    def edlib_task(task: str) -> Engine:
        def run(queries: list[str], refs: list[str]) -> list[int]:
            found = [edlib.align(q, r, task=task) for q, r in zip(queries, refs, strict=True)]
            return [one["editDistance"] for one in found]

        return run

    def pywfa_scope(scope: str) -> Engine:
        aligner = pywfa.WavefrontAligner(
            mismatch=4, gap_opening=6, gap_extension=2, span="end-to-end", scope=scope
        )

        def run(queries: list[str], refs: list[str]) -> list[int]:
            scores = []
            for query, ref in zip(queries, refs, strict=True):
                scores.append(-aligner.wavefront_align(query, ref))
                if scope == "full":
                    _ = aligner.cigartuples
            return scores

        return run

    def fmwave(call: Callable[..., Any], **options: Any) -> Engine:
        return lambda queries, refs: call(queries, refs, threads=1, **options).score.tolist()

    return {
        "edit distance": {"fmwave": fmwave(edit_distance), "edlib": edlib_task("distance")},
        "edit distance + CIGAR": {
            "fmwave": fmwave(edit_distance, cigar=True),
            "edlib": edlib_task("path"),
        },
        "affine 4,6,2 penalty": {
            "fmwave": fmwave(align_affine, cigar=False),
            "pywfa": pywfa_scope("score"),
        },
        "affine 4,6,2 + CIGAR": {"fmwave": fmwave(align_affine), "pywfa": pywfa_scope("full")},
    }


def compare(task: dict[str, Engine], pairs: Pairs, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each repeat of each engine."""
    queries, refs = [query for query, _ in pairs], [ref for _, ref in pairs]
    seconds: dict[str, list[float]] = {name: [] for name in task}
    for repeat in range(repeats + 1):
        scores = []
        for name, engine in task.items():
            begin = time.perf_counter()
            scores.append(engine(queries, refs))
            if repeat:  # the first is a warm-up
                seconds[name].append(time.perf_counter() - begin)
        if any(other != scores[0] for other in scores[1:]):
            raise BenchmarkError(f"{' and '.join(task)} disagree")
    return seconds


def sizes(length: int, rate: float, budget: float) -> int:
    """Return a number of pairs that takes a peer about `budget` seconds."""
    cost = 2e-6 + 4e-9 * length * (40 * length * rate) ** 0.8  # of the slower peer, roughly
    return max(10, min(50_000, int(budget / cost)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of a repeat [%(default)s]")
    parser.add_argument("--repeats", type=int, default=5, help="[%(default)s]")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder [%(default)s]")
    options = parser.parse_args(arguments)
    about = provenance({name: metadata.version(name) for name in VERSIONS})
    rows: list[list[object]] = []
    report: list[dict[str, Any]] = []
    try:
        tasks = engines()
        for length in (150, 1000, 10_000):
            for rate in (0.02, 0.05, 0.1):
                pairs = make_pairs(length, rate, sizes(length, rate, options.seconds))
                for task, of_task in tasks.items():
                    seconds = compare(of_task, pairs, options.repeats)
                    rows.append(_row(length, rate, task, len(pairs), seconds))
                    report.append(
                        {"length": length, "rate": rate, "task": task, "pairs": len(pairs),
                         "seconds": seconds}
                    )  # fmt: skip
                    print(*rows[-1], sep="  ", flush=True)
    except (ImportError, BenchmarkError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    lines = ["# Pairwise alignment, one CPU thread", "", *markdown_provenance(about)]
    lines += table(HEADER, rows)
    write_results(options.results, "pairwise_cpu", {"about": about, "runs": report}, lines)
    return 0


def _row(
    length: int, rate: float, task: str, n: int, seconds: dict[str, list[float]]
) -> list[object]:
    own, peer = seconds
    rates = {name: sorted(n / s for s in taken) for name, taken in seconds.items()}
    shown = {name: f"{median(of):.0f} ({of[0]:.0f}–{of[-1]:.0f})" for name, of in rates.items()}
    ratio = median(rates[own]) / median(rates[peer])
    return [length, f"{rate:.0%}", task, n, shown[own], peer, shown[peer], f"{ratio:.2f}"]


if __name__ == "__main__":
    sys.exit(main())
