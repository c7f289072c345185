"""Construction of the index: on the CPU by both routes, and of a large text, checked.

    python -m benchmarks.index cpu 100M 200M 1G --threads 2 --work /tmp/index
    python -m benchmarks.index scale 3.1G --device cuda [--check 8] [--against blocks]

``cpu`` runs ``fmwave index`` by blocks and by the in-memory library, in turn, each build a process
of its own, from a repeat-rich FASTA (benchmarks/common/genome.py) to a directory on disk; the
routes differ in nothing but the sorting of suffixes. The library sorts with one thread. Compilation
happens before, on a small genome. The indexes are compared byte by byte.
Results: benchmarks/results/index_cpu.{md,json}; exit status 1 if the indexes differ.

``scale`` builds an index of a text in memory, prints the time of each stage, and checks the result:
it walks from every CHECK-th sample of the suffix array to the left until the next sampled row,
comparing each base of the BWT with the text and the position at the end with the sample there; with
``--check 1`` that is the whole inverse BWT. Random k-mers and longer patterns are searched and
located as well. The same on a real disk, with mapping: ``benchmarks.whole_genome``.
"""

from __future__ import annotations

import argparse
import filecmp
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import harness
from benchmarks.common.genome import make_text, write_fasta
from benchmarks.common.harness import BenchmarkError
from mapper.cli.sizes import size
from mapper.host_memory import available_bytes, peak_bytes
from mapper.index.build import build_fm
from mapper.index.fm import FMIndex, bwt_code, extend_left, kmer_interval, lf, locate
from mapper.index.plan import BuildPlan, choose_route, plan_blocks
from mapper.jit.accelerate import driver
from mapper.parallel.map import map_in_threads, parts
from mapper.params import IndexParams

# --- on the CPU, both routes ---


ROUTES = ("blocks", "library")
SMALL = 20_000_000

_BY_ROUTE = """
import sys
from mapper.cli.main import main
from mapper.index import plan
plan.LIBRARY_UP_TO = {limit}
sys.exit(main(["index", *sys.argv[1:]]))
"""


def build_index(fasta: Path, route: str, threads: int, work: Path) -> dict[str, Any]:
    """Build one index; return what it took, with the seconds of its phases."""
    limit = 0 if route == "blocks" else 1 << 62
    index = work / f"{route}.fmw"
    log = work / f"{route}.log"
    command = [sys.executable, "-c", _BY_ROUTE.format(limit=limit), str(fasta), "-o", str(index)]
    command += ["--device", "cpu", "-t", str(threads), "--ignore-memory"]
    cost = harness.measure(command, log)
    if cost.exit_status:
        raise BenchmarkError(f"{fasta}, {route}:\n{harness.tail(log)}")
    text = log.read_text()
    phases = {name: float(s) for name, s in re.findall(r"^fmwave: (.+): ([\d.]+) s$", text, re.M)}
    stated = re.search(r"about ([\d.]+) GB of memory are needed", text)
    sorting = {name: s for name, s in phases.items() if "sort" in name}
    return {
        "route": route, "wall_s": cost.wall_s, "cpu_s": cost.cpu_s,
        "peak_mb": cost.peak_rss_mb, "stated_gb": float(stated[1]) if stated else None,
        "sort_wall_s": max(sorting.values(), default=None), "phases": phases,
    }  # fmt: skip


def same_index(a: Path, b: Path) -> bool:
    """Compare the files of two indexes."""
    names = sorted(path.name for path in a.iterdir())
    _, differing, failing = filecmp.cmpfiles(a, b, names, shallow=False)
    return names == sorted(path.name for path in b.iterdir()) and not differing and not failing


def measure_size(n: int, options: argparse.Namespace) -> dict[str, Any]:
    fasta = options.work / "genome.fa"
    write_fasta(make_text(n, 1, options.threads), fasta, options.threads)
    builds = [
        build_index(fasta, route, options.threads, options.work)
        for _ in range(options.rounds)
        for route in options.routes
    ]
    for found in builds:
        print(n, found, flush=True)
    indexes = [options.work / f"{route}.fmw" for route in options.routes]
    same = all(same_index(indexes[0], other) for other in indexes[1:])
    for index in indexes:
        shutil.rmtree(index)
    fasta.unlink()
    return {"bases": n, "builds": builds, "same": same}


def lines_of(sizes: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        [
            f"{found['bases'] / 1e6:,.0f}", build["route"], f"{build['wall_s']:.1f}",
            f"{build['cpu_s']:.1f}", f"{1e9 * build['cpu_s'] / found['bases']:.0f}",
            f"{build['sort_wall_s']:.1f}", f"{found['bases'] / build['wall_s'] / 1e6:.2f}",
            f"{build['peak_mb'] / 1000:.2f} ({build['stated_gb']})",
            f"{build['peak_mb'] * 1e6 / found['bases']:.1f}",
        ]
        for found in sizes
        for build in found["builds"]
    ]  # fmt: skip
    same = all(found["same"] for found in sizes)
    return [
        *harness.table(
            ["Mbp", "route", "wall, s", "CPU, s", "CPU ns a base", "of it sorting, wall s",
             "Mbp/s, wall", "peak memory, GB (stated)", "bytes a base"],
            rows,
        ),
        f"Indexes of both routes: {'the same bytes' if same else '**DIFFERENT**'}.",
    ]  # fmt: skip


@harness.reports_errors
def cpu(arguments: Sequence[str] | None = None) -> int:
    """Measure each size; 1 if the routes differ or one fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sizes", type=size, nargs="+")
    parser.add_argument("--threads", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=1, help="[%(default)s]")
    parser.add_argument("--routes", nargs="+", choices=ROUTES, default=list(ROUTES))
    parser.add_argument("--work", type=Path, required=True)
    harness.add_commit(parser)
    parser.add_argument("--out", type=Path, default=harness.RESULTS)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    about = harness.provenance({}) | {"commit": options.commit}
    heading = ["# Index construction on the CPU", "", *harness.markdown_provenance(about)[:-2], ""]
    sizes: list[dict[str, Any]] = []
    measure_size(SMALL, options)  # compiles
    for n in options.sizes:
        sizes.append(measure_size(n, options))
        report = {"about": about, "threads": options.threads, "sizes": sizes}
        harness.write_results(options.out, "index_cpu", report, heading + lines_of(sizes))
    print("\n".join(lines_of(sizes)))
    return 0 if all(found["same"] for found in sizes) else 1


# --- a large text, checked ---


@driver
def walk_samples(fm, text, first, end, step):
    """Check the walks from samples ``[first, end)``; return rows walked and faults."""
    rows = 0
    faults = 0
    sampled = (1 << fm.sa_shift) - 1
    for sample in range(first, end, step):
        row = sample << fm.sa_shift
        text_pos = np.int64(fm.sa_samples[sample])
        while row != fm.primary:
            text_pos -= 1
            if bwt_code(fm, row) != np.int64(text[text_pos]):
                faults += 1
            row = lf(fm, row)
            rows += 1
            if row & sampled == 0:
                if np.int64(fm.sa_samples[row >> fm.sa_shift]) != text_pos:
                    faults += 1
                break
        if row == fm.primary and text_pos != 0:
            faults += 1
    return rows, faults


@driver
def search_patterns(fm, text, starts, length):
    """Search and locate the patterns at `starts`; return hits and faults."""
    hits = 0
    faults = 0
    for start in starts:
        at = start + length - fm.kmer_len
        kmer = 0
        for i in range(at, start + length):
            kmer = kmer << 2 | np.int64(text[i])
        sa_lo, sa_hi = kmer_interval(fm, kmer)
        if fm.kmer_len == 0:
            sa_lo, sa_hi = 0, fm.n_rows
        for i in range(at - 1, start - 1, -1):
            sa_lo, sa_hi = extend_left(fm, np.int64(text[i]), sa_lo, sa_hi)
        found = False
        for row in range(sa_lo, min(sa_hi, sa_lo + 1000)):
            text_pos = locate(fm, row)
            hits += 1
            found |= text_pos == start
            for i in range(length):
                if text_pos + i >= len(text) or text[text_pos + i] != text[start + i]:
                    faults += 1
                    break
        if not found and sa_hi - sa_lo <= 1000:
            faults += 1
    return hits, faults


def check(fm: FMIndex, text: np.ndarray, step: int, n_threads: int) -> None:
    """Compare the index with the text (ambiguous bases replaced); stop at a difference."""
    clock = time.perf_counter()
    pieces = parts(len(fm.sa_samples) // step, 64)
    walked = map_in_threads(
        lambda part: walk_samples(fm, text, part[0] * step, part[1] * step, step),
        pieces,
        n_threads,
    )
    rows, faults = (sum(column) for column in zip(*walked, strict=True))
    print(f"inverse BWT: {rows} of {len(text)} rows, {faults} faults", flush=True)
    starts = np.random.default_rng(1).integers(0, len(text) - 200, 200_000)
    searched = map_in_threads(
        lambda part: search_patterns(fm, text, starts[part[0] : part[1]], 20 + part[0] % 100),
        parts(len(starts), 256),
        n_threads,
    )
    hits, pattern_faults = (sum(column) for column in zip(*searched, strict=True))
    print(f"patterns: {len(starts)}, {hits} hits, {pattern_faults} faults")
    print(f"checked in {time.perf_counter() - clock:.1f} s", flush=True)
    if faults or pattern_faults:
        sys.exit("the index is wrong")


def scale(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("size", type=size)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--memory", type=size, help="of the host")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", type=int, default=1, help="every how many samples")
    parser.add_argument("--times", type=int, default=1, help="builds")
    parser.add_argument("--against", choices=("library", "blocks"), help="compare all arrays")
    parser.add_argument("--fasta", type=Path, help="write the text here, and stop")
    args = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    clock = time.perf_counter()
    text = make_text(args.size, args.seed, args.threads)
    print(f"text of {len(text)} bases: {time.perf_counter() - clock:.1f} s", flush=True)
    if args.fasta:
        write_fasta(text, args.fasta, args.threads)
        return 0
    params = IndexParams()
    for _ in range(args.times):
        plan = choose_route(
            "the benchmark", len(text), params, args.device, args.memory, args.threads, check=True
        )
        indexed = text.copy()  # ambiguous bases are replaced in it
        clock = time.perf_counter()
        fm = build_fm(indexed, params, plan, args.threads)
        seconds = time.perf_counter() - clock
        print(
            f"built in {seconds:.1f} s, {len(text) / seconds / 1e6:.1f} Mbp/s, by {plan.route}; "
            f"peak of the process {peak_bytes() / 1e9:.2f} GB, planned {plan.host_bytes / 1e9:.2f}",
            flush=True,
        )
    check(fm, indexed, args.check, args.threads)
    if args.against:
        clock = time.perf_counter()
        other_plan = BuildPlan("library")
        if args.against == "blocks":
            other_plan = plan_blocks(len(text), params, args.threads, available_bytes())
        other = build_fm(text, params, other_plan, args.threads)
        print(f"by the {args.against} route: {time.perf_counter() - clock:.1f} s")
        for name, column in fm._asdict().items():
            if not np.array_equal(column, getattr(other, name)):
                sys.exit(f"{name} differs from the other route's")
        print("all arrays are identical")
    return 0


main = harness.subcommands(__doc__, {"cpu": cpu, "scale": scale})
"""Run the part that the first argument names."""


if __name__ == "__main__":
    sys.exit(main())
