"""edlib and pywfa on all cores at a time, for a second or so: a process for each core.

    taskset -c 0,1 python -m benchmarks.kernels.pairwise_on_cores [--seconds 1] [--repeats 5]

Python holds its lock while these libraries align, so threads would take turns. As a command: the
CPU backend, with a thread for each core of the process, beside them, in turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from itertools import cycle
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from benchmarks.harness import (
    RESULTS,
    BenchmarkError,
    markdown_provenance,
    provenance,
    table,
    write_results,
)
from benchmarks.kernels.pairwise_peers import AFFINE, AFFINE_CIGAR, EDIT, EDIT_CIGAR

Pairs = Sequence[tuple[str, str]]
PENALTIES = (2, 3, 1)
"""Mismatch, gap open, gap extend: those of the peers' figures."""

LIBRARY = {EDIT: "edlib", EDIT_CIGAR: "edlib", AFFINE: "pywfa", AFFINE_CIGAR: "pywfa"}
START_S = 120
"""Longest that a process may take to start; then something is wrong."""

_begin: Any = None


def missing() -> list[str]:
    """Return the libraries that are not installed."""
    names = dict.fromkeys(LIBRARY.values())
    return [name for name in names if importlib.util.find_spec(name) is None]


def aligner(task: str) -> Callable[[str, str], int]:
    """Return what finds the distance or penalty of a pair, and the CIGAR with it."""
    if LIBRARY[task] == "edlib":
        import edlib

        what = "path" if task == EDIT_CIGAR else "distance"
        return lambda query, ref: int(edlib.align(query, ref, task=what)["editDistance"])
    import pywfa

    x, o, e = PENALTIES
    scope = "full" if task == AFFINE_CIGAR else "score"
    wavefronts = pywfa.WavefrontAligner(
        mismatch=x, gap_opening=o, gap_extension=e, span="end-to-end", scope=scope
    )

    def align(query: str, ref: str) -> int:
        score = -wavefronts.wavefront_align(query, ref)
        if scope == "full":
            _ = wavefronts.cigartuples
        return int(score)

    return align


def _set_barrier(barrier: Any) -> None:
    global _begin
    _begin = barrier


def _sample(task: str, pairs: Pairs, seconds: float) -> tuple[int, float, list[int]]:
    """Align pairs, again and again, for some seconds; return how many, the seconds, the scores.

    All processes begin together, when each has a sample to take.
    """
    align = aligner(task)
    align(*pairs[0])
    _begin.wait(START_S)
    scores = []
    start = time.perf_counter()
    for done, (query, ref) in enumerate(cycle(pairs), 1):
        score = align(query, ref)
        if done <= len(pairs):
            scores.append(score)
        # Python's clock takes far less than a pair does.
        if (taken := time.perf_counter() - start) >= seconds:
            return done, taken, scores
    raise AssertionError("there are no pairs")


class OnCores:
    """Processes for samples, one for each core; close it.

    Spawned, not forked: this process may hold a device.
    """

    def __init__(self, cores: int | None = None) -> None:
        self.cores = cores or len(os.sched_getaffinity(0))
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(
            self.cores, context, _set_barrier, (context.Barrier(self.cores),)
        )

    def __enter__(self) -> OnCores:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._pool.shutdown(cancel_futures=True)

    def rate(self, task: str, pairs: Pairs, expected: Sequence[int], seconds: float) -> float:
        """Return the pairs a second of all cores together.

        Parameters
        ----------
        pairs, expected
            Each core begins elsewhere among the pairs, and does them again if it comes to the
            end; the distances or penalties that it should find.

        Raises
        ------
        BenchmarkError
            If a library finds another score.
        """
        starts = [len(pairs) * core // self.cores for core in range(self.cores)]
        turned = [[*pairs[at:], *pairs[:at]] for at in starts]
        samples = [self._pool.submit(_sample, task, part, seconds) for part in turned]
        total = 0.0
        for at, sample in zip(starts, samples, strict=True):
            n, taken, scores = sample.result()
            total += n / taken
            right = [*expected[at:], *expected[:at]][: len(scores)]
            if scores != right:
                raise BenchmarkError(f"{LIBRARY[task]} and fmwave disagree: {task}")
        return total


def own_rate(task: str, pairs: Pairs, seconds: float, cores: int) -> tuple[float, list[int]]:
    """Return the CPU backend's pairs a second, lists of str to arrays, and all scores."""
    from mapper import align_affine, edit_distance

    queries, refs = [query for query, _ in pairs], [ref for _, ref in pairs]
    cigar = task in (EDIT_CIGAR, AFFINE_CIGAR)
    n, start = 0, time.perf_counter()
    while True:
        if task in (EDIT, EDIT_CIGAR):
            found = edit_distance(queries, refs, cigar=cigar, device="cpu", threads=cores)
        else:
            found = align_affine(
                queries, refs, penalties=PENALTIES, cigar=cigar, device="cpu", threads=cores
            )
        n += len(pairs)
        if (taken := time.perf_counter() - start) >= seconds:
            return n / taken, found.score.tolist()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    from benchmarks.kernels.pairwise import HEADER, VERSIONS, make_pairs, sizes

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of a sample [%(default)s]")
    parser.add_argument("--repeats", type=int, default=5, help="[%(default)s]")
    parser.add_argument("--lengths", type=int, nargs="+", default=[150, 1000], help="[%(default)s]")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder [%(default)s]")
    options = parser.parse_args(arguments)
    about = provenance({name: metadata.version(name) for name in VERSIONS})
    rows: list[list[object]] = []
    with OnCores() as peers:
        for length in options.lengths:
            for rate in (0.02, 0.05, 0.1):
                n_pairs = peers.cores * sizes(length, rate, options.seconds)
                pairs = make_pairs(length, rate, n_pairs)
                for task, library in LIBRARY.items():
                    own_rate(task, pairs, 0, peers.cores)  # compiles
                    own, other = [], []
                    for _ in range(options.repeats):
                        of_sample, scores = own_rate(task, pairs, options.seconds, peers.cores)
                        own.append(of_sample)
                        other.append(peers.rate(task, pairs, scores, options.seconds))
                    row = [
                        length,
                        f"{rate:.0%}",
                        task,
                        n_pairs,
                        _shown(own),
                        library,
                        _shown(other),
                    ]
                    rows.append([*row, f"{median(own) / median(other):.2f}"])
                    print(*rows[-1], sep="  ", flush=True)
    lines = [f"# Pairwise alignment, {peers.cores} cores", "", *markdown_provenance(about)]
    lines += ["", "A thread of fmwave, and a process of edlib or pywfa, for each core; penalties "
              f"{', '.join(map(str, PENALTIES))}.", "", *table(HEADER, rows)]  # fmt: skip
    write_results(options.results, "pairwise_cores", {"about": about, "rows": rows}, lines)
    return 0


def _shown(rates: list[float]) -> str:
    return f"{median(rates):.0f} ({min(rates):.0f}–{max(rates):.0f})"


if __name__ == "__main__":
    sys.exit(main())
