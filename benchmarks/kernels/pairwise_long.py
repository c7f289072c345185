"""Seconds for the edit distance, and the path, of one long pair on a CUDA device.

    python -m benchmarks.kernels.pairwise_long [--repeats 3] [--edlib 1e11] [--only 0,1]

Pairs by seed: random letters and a copy with ``length * rate`` edits, a third each mismatch,
insertion and deletion, or two unrelated strings. Seconds are from bytes in host memory to the
distance, or the path, there: packing, transfers, all launches. Compilation and a first call on
a small pair are excluded; the median of the repeats is given. Every path is replayed. edlib
checks the distances of pairs with ``length * distance`` up to ``--edlib`` in the same run, for
the others ``--expected`` takes distances that it found elsewhere for the same seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from benchmarks.harness import (
    RESULTS,
    BenchmarkError,
    add_commit,
    machine,
    markdown_provenance,
    table,
    write_results,
)

SEED = 5
LETTERS = np.frombuffer(b"ACGT", np.uint8)


class Task(NamedTuple):
    """One pair to be made and measured."""

    name: str
    length: int
    rate: float | None  # None: unrelated
    path: bool


TASKS = (
    Task("1 M, 90 %", 1_000_000, 0.1, True),
    Task("5 M, 97.3 %", 5_000_000, 0.0273, True),
    Task("10 M, 99.9 %", 10_000_000, 0.001, True),
    Task("10 M, 99 %", 10_000_000, 0.01, True),
    Task("two of 3 M", 3_000_000, None, True),
)


def make_pair(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Return query and reference as ASCII."""
    rng = np.random.default_rng([SEED, task.length, int(1e6 * (task.rate or 0))])
    ref = LETTERS[rng.integers(4, size=task.length)]
    if task.rate is None:
        return LETTERS[rng.integers(4, size=task.length)], ref
    n = int(task.length * task.rate) // 3
    query = ref.copy()
    at = rng.integers(task.length, size=n)
    query[at] = LETTERS[(np.searchsorted(LETTERS, query[at]) + rng.integers(1, 4, size=n)) % 4]
    query = np.delete(query, rng.choice(task.length, n, replace=False))
    new = LETTERS[rng.integers(4, size=n)]
    return np.insert(query, rng.integers(len(query) + 1, size=n), new), ref


def replayed(query: np.ndarray, ref: np.ndarray, ops: np.ndarray) -> int:
    """Return the edits of a path; raise if it does not lead from one string to the other."""
    lengths, codes = (ops >> 4).astype(np.int64), ops & 15
    is_equal, is_mismatch = codes == 7, codes == 8
    in_query, in_ref = lengths * (codes != 2), lengths * (codes != 1)
    v, h = np.cumsum(in_query) - in_query, np.cumsum(in_ref) - in_ref
    if in_query.sum() != len(query) or in_ref.sum() != len(ref):
        raise BenchmarkError("a path does not consume both strings")
    for chosen, equal in ((is_equal, True), (is_mismatch, False)):
        n = lengths[chosen]
        steps = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        same = query[np.repeat(v[chosen], n) + steps] == ref[np.repeat(h[chosen], n) + steps]
        if (same != equal).any():
            raise BenchmarkError("a path does not tell the truth")
    return int(lengths[~is_equal].sum())


def seconds_of(task: Task, device: str, repeats: int) -> tuple[int, float, float | None]:
    """Return the distance, and the median seconds of distance and path."""
    from mapper import long_edit_distance

    query, ref = make_pair(task)
    distances, paths = [], []
    distance = -1
    for _ in range(repeats):
        begin = time.perf_counter()
        found = long_edit_distance(query, ref, device=device)
        distances.append(time.perf_counter() - begin)
        distance = int(found.distance or 0)
        if task.path:
            begin = time.perf_counter()
            path = long_edit_distance(query, ref, path=True, device=device)
            paths.append(time.perf_counter() - begin)
            if path.cigar_ops is None or replayed(query, ref, path.cigar_ops) != distance:
                raise BenchmarkError(f"{task.name}: the path is worth something else")
    return distance, median(distances), median(paths) if paths else None


def by_edlib(task: Task) -> tuple[int, float]:
    """Return edlib's distance and seconds, one thread."""
    import edlib

    query, ref = (side.tobytes() for side in make_pair(task))
    begin = time.perf_counter()
    return int(edlib.align(query, ref)["editDistance"]), time.perf_counter() - begin


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--device", default="cuda:0", help="[%(default)s]")
    parser.add_argument("--edlib", type=float, default=1e11, help="largest for edlib [%(default)s]")
    parser.add_argument("--expected", type=Path, help="JSON: distances by name of the pair")
    parser.add_argument("--only", help="numbers of the pairs, comma-separated")
    parser.add_argument("--edlib-only", action="store_true", help="print distances by edlib alone")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder [%(default)s]")
    add_commit(parser)
    options = parser.parse_args(arguments)
    tasks = TASKS if options.only is None else [TASKS[int(i)] for i in options.only.split(",")]
    if options.edlib_only:
        print(json.dumps({task.name: by_edlib(task)[0] for task in tasks}))
        return 0
    from mapper import long_edit_distance
    from mapper.cuda.devices import find_devices

    about = {
        "commit": options.commit, "machine": machine(),
        "versions": {"device": ", ".join(d.name for d in find_devices().devices) or "none"},
        "command": " ".join(["python -m benchmarks.kernels.pairwise_long", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }  # fmt: skip
    expected = json.loads(options.expected.read_text()) if options.expected else {}
    small = make_pair(Task("", 30_000, 0.2, True))
    long_edit_distance(*small, path=True, device=options.device)
    rows, report = [], []
    for task in tasks:
        distance, seconds, path_seconds = seconds_of(task, options.device, options.repeats)
        peer: float | None = None
        known: int | None
        if task.length * distance <= options.edlib:
            known, peer = by_edlib(task)
        else:
            known = expected.get(task.name)
        if known is not None and known != distance:
            raise BenchmarkError(f"{task.name}: distance {distance}, by edlib {known}")
        rows.append([
            task.name, distance, f"{seconds:.3f}",
            "" if path_seconds is None else f"{path_seconds:.3f}",
            "" if peer is None else f"{peer:.1f}",
            "not checked" if known is None else "yes, here" if peer else "yes, elsewhere",
        ])  # fmt: skip
        report.append({**task._asdict(), "distance": distance, "distance_s": seconds,
                       "path_s": path_seconds, "edlib_s": peer, "edlib": known})  # fmt: skip
        print(*rows[-1], sep="  ", flush=True)
    header = ["pair", "distance", "distance, s", "path, s", "edlib, s", "equals edlib's distance"]
    lines = ["# Very long strings", "", *markdown_provenance(about), *table(header, rows)]
    write_results(options.results, "pairwise_long", {"about": about, "runs": report}, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
