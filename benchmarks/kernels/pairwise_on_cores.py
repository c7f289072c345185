"""edlib and pywfa on all cores at a time, for a second or so: a process for each core.

Python holds its lock while these libraries align, so threads would take turns.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle
from types import TracebackType
from typing import Any

from benchmarks.harness import BenchmarkError
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
