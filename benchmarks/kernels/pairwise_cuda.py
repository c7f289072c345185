"""Pairs a second of edit and affine alignment on a CUDA device and on the cores, same run.

    python -m benchmarks.kernels.pairwise_cuda [--rows 150:2,1000:5] [--limit-s 570] [--resume]

Lengths 150 to 10 000 with 2, 5 and 10 % edits; edit distance and gap-affine penalty (2,3,1; the
same search as 4,6,2), with CIGARs and without, the affine ones exact and in an adaptive band.
Pairs from the generator of ``benchmarks.kernels.pairwise``, repeated to as many as a call does in
``--call-s``, at most 3 M of 150 bases and as many bases of others.

*wall* is from flat arrays in host memory (of ASCII, or packed to 2 bits a base by
``mapper.packed_pairs`` beforehand, into ordinary or page-locked memory) to results in host
memory: all copies, packing, kernels and gathering. *kernel* adds up the kernels of one more call,
by events (``kernel_time.py``); pairs that are left to the CPU are not in it, and their share is
said. All results are compared with the CPU's, CIGARs too; those of a band also with the exact
penalties: the share that lies above is given. Compilation and the first two calls are excluded; the
median of the repeats is given.

Beside it, in the same run: the cores' own rate of these engines, and edlib and pywfa on all cores
(``pairwise_on_cores.py``). The best peers on the same kind of card, and what is asked for, are in
``pairwise_peers.py``.

Every result is written as soon as it is there, to pairwise_cuda.json and .md. When the time is
over the rest is named; ``--resume`` goes on with the file of an earlier run of the same commit,
device and options. A last table says where the time of a call from ASCII and of one from
page-locked memory went (``mapper/align/cuda/trace.py``); such calls are a little slower.
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

from benchmarks import harness
from benchmarks.harness import BenchmarkError
from benchmarks.kernels.kernel_time import kernel_times
from benchmarks.kernels.pairwise_on_cores import LIBRARY, PENALTIES, OnCores, missing
from benchmarks.kernels.pairwise_peers import (
    AFFINE,
    AFFINE_CIGAR,
    BAND,
    BAND_CIGAR,
    COLUMNS,
    EDIT,
    EDIT_CIGAR,
)
from benchmarks.kernels.pairwise_rows import Row, check, flat, inputs_of, repeated, row_of
from benchmarks.kernels.pairwise_tables import Report

FIRST_ROWS = ((150, 2), (1000, 2), (150, 5), (1000, 5), (10_000, 5))
"""Those of which something is asked; the others follow."""
ROWS = (*FIRST_ROWS, *(row for row in COLUMNS if row not in FIRST_ROWS))
TASKS = (EDIT, EDIT_CIGAR, AFFINE, AFFINE_CIGAR, BAND, BAND_CIGAR)
BASES = 450_000_000
"""Most bases of one side: 3 M pairs of 150."""
REPEATS = 3
WARM_UPS = 2


def seconds_of(call: Callable[[], Any], repeats: int, short_s: float) -> tuple[list[float], Any]:
    """Return the seconds of calls after two others, and what the last one returned.

    Of calls that take more than `short_s` there is one, after one other.
    """
    seconds: list[float] = []
    n = repeats + WARM_UPS
    while len(seconds) < n:
        begin = time.perf_counter()
        found = call()
        seconds.append(time.perf_counter() - begin)
        if len(seconds) == 2 and min(seconds) > short_s:
            return seconds[1:], found
    return seconds[WARM_UPS:], found


def traced_call(call: Callable[[], Any]) -> dict[str, float]:
    """Return where the seconds of a call went."""
    from mapper.align.cuda.trace import traced

    with traced() as trace:
        begin = time.perf_counter()
        call()
        seconds = time.perf_counter() - begin
    parts = {"call": seconds, "host: rest": seconds - sum(trace.host.values())}
    parts |= {f"host: {name}": s for name, s in trace.host.items()}
    return parts | {f"device: {name}": s for name, s in trace.device().items()}


def kernels_of(call: Callable[[], Any], *, twice: bool) -> tuple[dict[str, float], int]:
    """Return the seconds of the kernels of a call, and how many pairs came to the CPU.

    `twice`: of the second call; the first one makes buffers of other sizes than before.
    """
    if twice:
        with kernel_times():
            call()
    with kernel_times() as times:
        call()
        return times.seconds(), times.pairs_on_cpu


def on_all_cores(call: Callable[..., Any], row: Row, seconds: float) -> tuple[float, Any]:
    """Return the pairs a second of a call on the CPU, and the results of the distinct pairs.

    The pairs are repeated until a call takes long enough for all cores to have work.
    """
    some = [flat([pair[side] for pair in row.pairs[:2]]) for side in (0, 1)]
    call(*some, device="cpu")  # compiles
    copies, expected = 1, None
    while True:
        given = repeated(row.queries, copies), repeated(row.refs, copies)
        begin = time.perf_counter()
        found = call(*given, device="cpu")
        taken = time.perf_counter() - begin
        expected = expected or found
        if taken >= seconds / 2 or copies * len(row.pairs) * row.length >= BASES:
            return copies * len(row.pairs) / taken, expected
        copies *= max(2, min(16, int(seconds / taken)))


def measure(row: Row, task: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return all that is measured of a task on a row's pairs; rates in pairs a second."""
    call = engine(task, options.band)
    cpu, expected = on_all_cores(call, row, options.call_s)
    found: dict[str, Any] = {
        "length": row.length, "percent": row.percent, "task": task, "distinct": len(row.pairs),
        "cpu": cpu,
    }  # fmt: skip
    # How many pairs a call is to have: what few take says it where the CPU has to help.
    long_s = 2 * options.call_s
    few = seconds_of(lambda: call(row.queries, row.refs, device=options.device), 1, long_s)[0][0]
    most = max(1, min(options.pairs * 150, BASES) // (row.length * len(row.pairs)))
    copies = max(1, min(most, int(options.call_s / few)))
    if 1 < copies < most:
        given = repeated(row.queries, copies), repeated(row.refs, copies)
        more = seconds_of(lambda: call(*given, device=options.device), 1, long_s)[0][0]
        copies = max(1, min(most, int(copies * options.call_s / more)))
        del given
    inputs = inputs_of(repeated(row.queries, copies), repeated(row.refs, copies), options.device)
    found |= {"pairs": copies * len(row.pairs), "seconds": {}, "parts": {}}
    for what, given in inputs.items():
        from_there = partial(call, *given, device=options.device)
        found["seconds"][what], result = seconds_of(from_there, options.repeats, long_s)
        check(expected, result, copies)
        del result
        if what != "packed" and few <= long_s:
            found["parts"][what] = traced_call(from_there)
    found["kernels"], found["pairs_on_cpu"] = kernels_of(
        partial(call, *inputs["page-locked"], device=options.device), twice=few <= long_s
    )
    if task in (BAND, BAND_CIGAR):
        from mapper import align_affine
        from mapper.align.result import HEURISTIC

        exact = align_affine(
            row.queries, row.refs, cigar=False, penalties=PENALTIES, device="cpu"
        )  # fmt: skip
        found["cut"] = int((expected.status == HEURISTIC).sum())
        found["suboptimal"] = int((expected.score > exact.score).sum())
        if (expected.score < exact.score).any():
            raise BenchmarkError("a band found a lower penalty than the exact search")
    found["scores"] = expected.score.tolist()
    return found


def engine(task: str, band: tuple[int, int]) -> Callable[..., Any]:
    """Return the call of a task."""
    from mapper import align_affine, edit_distance

    if task in (EDIT, EDIT_CIGAR):
        return partial(edit_distance, cigar=task == EDIT_CIGAR)
    options: dict[str, Any] = {"cigar": task in (AFFINE_CIGAR, BAND_CIGAR), "penalties": PENALTIES}
    if task in (BAND, BAND_CIGAR):
        options["band"] = band
    return partial(align_affine, **options)


def run(options: argparse.Namespace, report: Report, cores: OnCores | None) -> None:
    """Measure all that is not there yet, as long as there is time for it."""
    started, longest = time.monotonic(), 0.0
    wanted = [(row, task) for row in options.rows for task in TASKS if task in options.tasks]
    wanted = [(row, task) for row, task in wanted if not report.has(row, task)]
    report.left = [f"{row[0]} bases, {row[1]} %: {task}" for row, task in wanted]
    row = None
    for (length, percent), task in wanted:
        begin = time.monotonic()
        # The longest so far takes about as long again, at worst with more to compile.
        if options.limit_s and begin - started + 1.5 * longest > options.limit_s:
            break
        if row is None or (row.length, row.percent) != (length, percent):
            row = row_of(length, percent, options.pairs)
        found = measure(row, task, options)
        scores = found.pop("scores")
        if cores is not None and task in LIBRARY and LIBRARY[task] not in missing():
            found["library"] = LIBRARY[task]
            found["library_rate"] = cores.rate(task, row.pairs, scores, options.sample_s)
        found["took_s"] = time.monotonic() - begin
        longest = max(longest, found["took_s"])
        report.runs.append(found)
        report.left.pop(0)
        report.write()
        rates = {what: found["pairs"] / median(s) / 1e6 for what, s in found["seconds"].items()}
        shown = ", ".join(f"{what} {rate:.4g}" for what, rate in rates.items())
        print(f"{length} bases, {percent} %, {task}: {shown} M pairs/s", flush=True)
    report.write()


def rows_of(text: str) -> list[tuple[int, int]]:
    """Return the rows given as ``length:percent``, with commas or spaces between."""
    rows = []
    for part in text.replace(",", " ").split():
        length, _, percent = part.partition(":")
        rows.append((int(length), int(percent)))
    return rows


def band_of(text: str) -> tuple[int, int]:
    width, _, interval = text.partition(",")
    return int(width), int(interval)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("--pairs", type=int, default=3_000_000, help="most of 150 [%(default)s]")
    result.add_argument("--repeats", type=int, default=REPEATS, help="[%(default)s]")
    result.add_argument("--device", default="cuda:0", help="[%(default)s]")
    result.add_argument("--band", type=band_of, default=(32, 8), help="width,interval [32,8]")
    result.add_argument("--rows", type=rows_of, default=list(ROWS), help="length:percent,... [all]")
    result.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="[all]")
    result.add_argument("--call-s", type=float, default=0.3, help="of a call [%(default)s]")
    result.add_argument("--sample-s", type=float, default=0.5, help="of a library [%(default)s]")
    result.add_argument("--no-libraries", action="store_true", help="without edlib and pywfa")
    result.add_argument("--limit-s", type=float, help="seconds for everything")
    result.add_argument("--resume", action="store_true", help="go on with the results there are")
    result.add_argument(
        "--results", type=Path, default=harness.RESULTS, help="folder [%(default)s]"
    )
    harness.add_commit(result)
    return result


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write after each result; 1 if something is wrong, 0 also without time."""
    options = parser().parse_args(arguments)
    from mapper.cuda.devices import find_devices

    found = find_devices()
    if found.problem:
        print(f"error: {found.problem}", file=sys.stderr)
        return 1
    lacking = [] if options.no_libraries else missing()
    about = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "commit": options.commit,
        "command": " ".join(
            ["python -m benchmarks.kernels.pairwise_cuda", *(arguments or sys.argv[1:])]
        ),
        "machine": harness.machine(),
        "versions": {"device": str(found.devices[0].name)},
        "options": {name: getattr(options, name) for name in ("pairs", "repeats", "call_s")}
        | {"band": list(options.band)},
        "lacking": lacking,
    }  # fmt: skip
    for name in lacking:
        print(f"{name} is not installed: it is left out", file=sys.stderr, flush=True)
    report = Report(options.results, about, resume=options.resume)
    if options.no_libraries:
        run(options, report, None)
    else:
        with OnCores(len(os.sched_getaffinity(0))) as cores:
            run(options, report, cores)
    print(f"written: {report.path}, .md; left: {', '.join(report.left) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
