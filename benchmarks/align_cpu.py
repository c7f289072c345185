"""Pairs a second of the CPU aligners beside edlib, pywfa and WFA2-lib in C.

    python -m benchmarks.align_cpu thread [--seconds 1] [--repeats 5] [--tasks "two pieces"]
    taskset -c 0,1 python -m benchmarks.align_cpu cores [--seconds 1] [--repeats 5]
    FMWAVE_WFA2=WFA2-lib python -m benchmarks.align_cpu wfa2 [--threads 1 2 16] [--repeats 7]

Pairs come from a seeded generator: ceil(length * rate) edits a pair, a third each mismatch,
insertion and deletion. Every engine gets the same lists of str and gives scores, or scores
and CIGARs, as its Python interface has them; fmwave's time includes packing. All results of
a run are compared: another score than the peer's ends it. Compilation is excluded; engines
take turns within each repeat, and the median and the range of the repeats are given.

``cores`` runs fmwave with a thread, and edlib and pywfa with a process, for each core of the
process, as these libraries hold the GIL while they align.

``wfa2`` runs WFA2-lib by a driver in C (``common/wfa2.py`` says how to fetch and build it), with an
aligner a thread, exact and with CIGARs, and fmwave with as many threads, from lists of str and from
arrays. WFA2-lib's time is that of aligning alone. Without the library it ends with the
reason, and measures nothing.

Results: benchmarks/results/align_cpu.{md,json}, align_cpu_cores.{md,json} and
align_cpu_wfa2.{md,json}.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from itertools import cycle, islice
from math import ceil
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from benchmarks.common.align_peers import AFFINE, AFFINE_CIGAR, EDIT, EDIT_CIGAR
from benchmarks.common.harness import (
    RESULTS,
    BenchmarkError,
    markdown_provenance,
    provenance,
    subcommands,
    table,
    write_results,
)
from benchmarks.common.wfa2 import Wfa2, build, version, why_missing

# --- one thread ---


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

    two_pieces = {"distance": "affine2p", "gap_opening2": 24, "gap_extension2": 1}

    def pywfa_scope(scope: str, **options: Any) -> Engine:
        aligner = pywfa.WavefrontAligner(
            mismatch=4, gap_opening=6, gap_extension=2, span="end-to-end", scope=scope, **options
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
        "affine 4,6,2 + CIGAR": {
            "fmwave": fmwave(align_affine, cigar=True),
            "pywfa": pywfa_scope("full"),
        },
        "two pieces 4,6,2,24,1 penalty": {
            "fmwave": fmwave(align_affine, cigar=False, penalties=(4, 6, 2, 24, 1)),
            "pywfa": pywfa_scope("score", **two_pieces),
        },
        "two pieces 4,6,2,24,1 + CIGAR": {
            "fmwave": fmwave(align_affine, cigar=True, penalties=(4, 6, 2, 24, 1)),
            "pywfa": pywfa_scope("full", **two_pieces),
        },
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


def thread(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of a repeat [%(default)s]")
    parser.add_argument("--repeats", type=int, default=5, help="[%(default)s]")
    parser.add_argument("--tasks", default="", help="those whose name begins so only")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder [%(default)s]")
    options = parser.parse_args(arguments)
    about = provenance({name: metadata.version(name) for name in VERSIONS})
    rows: list[list[object]] = []
    report: list[dict[str, Any]] = []
    try:
        tasks = {name: of for name, of in engines().items() if name.startswith(options.tasks)}
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
    write_results(options.results, "align_cpu", {"about": about, "runs": report}, lines)
    return 0


def _row(
    length: int, rate: float, task: str, n: int, seconds: dict[str, list[float]]
) -> list[object]:
    own, peer = seconds
    rates = {name: sorted(n / s for s in taken) for name, taken in seconds.items()}
    shown = {name: f"{median(of):.0f} ({of[0]:.0f}–{of[-1]:.0f})" for name, of in rates.items()}
    ratio = median(rates[own]) / median(rates[peer])
    return [length, f"{rate:.0%}", task, n, shown[own], peer, shown[peer], f"{ratio:.2f}"]


# --- all cores ---


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


def cores(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    from benchmarks.align_cpu import HEADER, VERSIONS, make_pairs, sizes

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
    write_results(options.results, "align_cpu_cores", {"about": about, "rows": rows}, lines)
    return 0


def _shown(rates: list[float]) -> str:
    return f"{median(rates):.0f} ({min(rates):.0f}–{max(rates):.0f})"


# --- WFA2-lib ---


WFA2_PENALTIES = (4, 6, 2)
WFA2_HEADER = ("length", "edits", "task", "threads", "pairs", "WFA2-lib, pairs/s (range)",
               "fmwave, lists (range)", "fmwave, arrays (range)", "lists / WFA2-lib",
               "arrays / WFA2-lib")  # fmt: skip
DISTINCT = 10_000
"""Most pairs that differ; they are repeated, as other objects, up to the number of a row."""


def wfa2_pairs(length: int, rate: float, task: str, n_threads: int, budget: float) -> Pairs:
    """Return pairs that take WFA2-lib about `budget` seconds."""
    edits = length * rate
    cost = 1e-7 + 1e-9 * length + (2e-9 if task == EDIT_CIGAR else 3e-8) * edits**2
    n = max(20 * n_threads, min(200_000 * n_threads, int(n_threads * budget / cost)))
    distinct = make_pairs(length, rate, min(n, DISTINCT))
    # Made anew: a string that is met again would be in the cache.
    return [(q[:1] + q[1:], r[:1] + r[1:]) for q, r in islice(cycle(distinct), n)]


def beside_wfa2(
    program: Path, folder: Path, pairs: Pairs, task: str, n_threads: int, repeats: int
) -> dict[str, list[float]]:
    """Return the pairs a second of each repeat, of WFA2-lib and of fmwave from both inputs."""
    from benchmarks.common.align_rows import flat
    from mapper import align_affine, edit_distance

    path = folder / "pairs.seq"
    path.write_text("".join(f">{query}\n<{ref}\n" for query, ref in pairs))
    lists = [query for query, _ in pairs], [ref for _, ref in pairs]
    arrays = flat(lists[0]), flat(lists[1])
    penalties = None if task == EDIT_CIGAR else WFA2_PENALTIES

    def own(sides: tuple[Any, Any]) -> Any:
        if penalties is None:
            return edit_distance(*sides, cigar=True, device="cpu", threads=n_threads)
        return align_affine(
            *sides, penalties=penalties, device="cpu", threads=n_threads, cigar=True
        )

    seconds: dict[str, list[float]] = {"WFA2-lib": [], "lists": [], "arrays": []}
    with Wfa2(program, path, n_threads, penalties) as peer:
        for repeat in range(repeats + 1):
            of_peer = peer.seconds()
            taken = []
            for sides in (lists, arrays):
                begin = time.perf_counter()
                found = own(sides)
                taken.append(time.perf_counter() - begin)
            if repeat:  # the first is a warm-up
                for name, one in zip(seconds, [of_peer, *taken], strict=True):
                    seconds[name].append(one)
        if peer.scores() != found.score.tolist():
            raise BenchmarkError(f"WFA2-lib and fmwave disagree: {task}")
    return {name: [len(pairs) / one for one in taken] for name, taken in seconds.items()}


def wfa2(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    n_cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[n for n in (1, 2, 16) if n <= n_cores]
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[150, 1000, 10_000])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.02, 0.05], help="of edits")
    parser.add_argument("--seconds", type=float, default=0.2, help="of a sample [%(default)s]")
    parser.add_argument("--repeats", type=int, default=7, help="[%(default)s]")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder [%(default)s]")
    options = parser.parse_args(arguments)
    if reason := why_missing():
        print(f"skipped: {reason}", file=sys.stderr)
        return 0
    about = provenance(
        {name: metadata.version(name) for name in VERSIONS[:2]} | {"WFA2-lib": version()}
    )
    rows: list[list[object]] = []
    report: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(folder)
        for length in options.lengths:
            for rate in options.rates:
                for task in (EDIT_CIGAR, AFFINE_CIGAR):
                    for n_threads in options.threads:
                        pairs = wfa2_pairs(length, rate, task, n_threads, options.seconds)
                        rates = beside_wfa2(
                            program, folder, pairs, task, n_threads, options.repeats
                        )
                        peer, *own = rates.values()
                        ratios = [
                            median(a / b for a, b in zip(one, peer, strict=True)) for one in own
                        ]
                        rows.append(
                            [length, f"{rate:.0%}", task, n_threads, len(pairs)]
                            + [_shown(one) for one in rates.values()]
                            + [f"{ratio:.2f}" for ratio in ratios]
                        )
                        report.append(
                            {"length": length, "rate": rate, "task": task, "threads": n_threads,
                             "pairs": len(pairs), "rates": rates}
                        )  # fmt: skip
                        print(*rows[-1], sep="  ", flush=True)
    lines = ["# Pairwise alignment beside WFA2-lib in C", "", *markdown_provenance(about)]
    lines += ["Global alignments with CIGARs, the same pairs in the same run, by turns; affine "
              f"penalties {', '.join(map(str, WFA2_PENALTIES))}. A ratio is the median of those of "
              "the turns.", "", *_slower(rows), *table(WFA2_HEADER, rows)]  # fmt: skip
    write_results(options.results, "align_cpu_wfa2", {"about": about, "runs": report}, lines)
    return 0


def _slower(rows: list[list[object]]) -> list[str]:
    """Return lines that name the rows in which WFA2-lib is faster."""
    named = [
        f"{row[0]} bases, {row[1]}, {row[2]}, {row[3]} threads ({side} {row[column]})"
        for row in rows
        for column, side in ((8, "lists"), (9, "arrays"))
        if float(str(row[column])) < 1
    ]
    return [f"WFA2-lib is faster in: {'; '.join(named) or 'no row'}.", ""]


main = subcommands(__doc__, {"thread": thread, "cores": cores, "wfa2": wfa2})
"""Run the part that the first argument names."""


if __name__ == "__main__":
    sys.exit(main())
