"""`fmwave index` on the CPU: by blocks, and by the in-memory library, in turn, with peak memory.

    python -m benchmarks.kernels.index_on_cpu 100M 200M 1G --threads 2 --work /tmp/index

Each build is a process of its own, from a repeat-rich FASTA (benchmarks/genome.py) to a directory
on disk; the routes do everything alike but the sorting of suffixes. The library sorts with
one thread. Compilation happens before, on a small genome. The indexes are compared byte by byte.
Results: OUT/index_on_cpu-DATE-COMMIT.{md,json}; exit status 1 if they differ.
"""

from __future__ import annotations

import argparse
import filecmp
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.genome import make_text, write_fasta
from benchmarks.harness import BenchmarkError
from mapper.cli.sizes import size

ROUTES = ("blocks", "library")
SMALL = 20_000_000

_BY_ROUTE = """
import sys
from mapper.cli.main import main
from mapper.index import plan
plan.LIBRARY_UP_TO = {limit}
sys.exit(main(["index", *sys.argv[1:]]))
"""


def build(fasta: Path, route: str, threads: int, work: Path) -> dict[str, Any]:
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
        build(fasta, route, options.threads, options.work)
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
def main(arguments: Sequence[str] | None = None) -> int:
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
    stem = f"index_on_cpu-{about['date'][:10]}-{about['commit']}"
    heading = ["# Index construction on the CPU", "", *harness.markdown_provenance(about)[:-2], ""]
    sizes: list[dict[str, Any]] = []
    measure_size(SMALL, options)  # compiles
    for n in options.sizes:
        sizes.append(measure_size(n, options))
        report = {"about": about, "threads": options.threads, "sizes": sizes}
        harness.write_results(options.out, stem, report, heading + lines_of(sizes))
    print("\n".join(lines_of(sizes)))
    return 0 if all(found["same"] for found in sizes) else 1


if __name__ == "__main__":
    sys.exit(main())
