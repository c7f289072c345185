"""Measure what the index parameters cost and bring: size, searches/s, locates/s.

    python -m benchmarks.studies.index_parameters REF.fa OUT.md [--queries N] [--repeats R]

One thread. Each parameter is varied with the others at their defaults. A search takes
the interval of a 20-mer of the text and of its reverse complement (k-mer table, then
backward search); a locate takes the text position of a random row. Every located row is
checked against the text. Compilation is excluded; the median and the range of the
repeats are given.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import numba
import numpy as np

from mapper.index.build import build_fm, read_text
from mapper.index.fm import FMIndex, extend_left, kmer_interval, locate
from mapper.index.storage import index_bytes
from mapper.jit.accelerate import driver
from mapper.params import IndexParams

QUERY_LEN = 20
SEED = 20


@driver
def search_both_strands(fm, text, starts, total):
    """Search the query at each text position and its reverse complement.

    Returns
    -------
    Rows found, forward and reverse; a query's own position is among the former.
    """
    for i in range(len(starts)):
        for strand in range(2):
            kmer = 0
            for j in range(fm.kmer_len):
                kmer = kmer << 2 | base_of(text, starts[i], strand, QUERY_LEN - fm.kmer_len + j)
            if fm.kmer_len:
                lo, hi = kmer_interval(fm, kmer)
            else:
                lo, hi = 0, fm.n_rows
            for j in range(QUERY_LEN - fm.kmer_len - 1, -1, -1):
                if lo >= hi:
                    break
                lo, hi = extend_left(fm, base_of(text, starts[i], strand, j), lo, hi)
            total[strand] += max(0, hi - lo)
    return total


@driver
def base_of(text, start, strand, j):
    """Return base j of the query at `start`, or of its reverse complement."""
    return np.int64(text[start + j]) if strand == 0 else 3 - text[start + QUERY_LEN - 1 - j]


@driver
def locate_all(fm, rows, positions):
    """Write the text position of each row."""
    for i in range(len(rows)):
        positions[i] = locate(fm, rows[i])


def measure(fm: FMIndex, text: np.ndarray, n_queries: int, repeats: int) -> dict[str, str]:
    """Return the rates of one index, as text."""
    rng = np.random.default_rng(SEED)
    starts = rng.integers(0, len(text) - QUERY_LEN, n_queries)
    rows = rng.integers(0, fm.n_rows, n_queries)
    positions = np.empty(n_queries, np.int64)
    search_times, locate_times = [], []
    for _ in range(repeats + 1):
        total = np.zeros(2, np.int64)
        begin = time.perf_counter()
        search_both_strands(fm, text, starts, total)
        middle = time.perf_counter()
        locate_all(fm, rows, positions)
        locate_times.append(time.perf_counter() - middle)
        search_times.append(middle - begin)
    if total[0] < n_queries or not _sorted_alike(text, rows, positions):
        raise SystemExit("wrong result: a query or a row was not found where it is")
    return {
        "searches": _rate(2 * n_queries, search_times[1:]),
        "locates": _rate(n_queries, locate_times[1:]),
    }


def _sorted_alike(text: np.ndarray, rows: np.ndarray, positions: np.ndarray) -> bool:
    """Return True if suffixes (their first 64 bases) ascend in row order."""
    order = np.argsort(rows, kind="stable")[:2000]
    suffixes = [text[positions[i] : positions[i] + 64].tobytes() for i in order]
    return all(a <= b for a, b in pairwise(suffixes))


def _rate(items: int, times: list[float]) -> str:
    rates = [items / t / 1e6 for t in times]
    return f"{median(rates):.2f} ({min(rates):.2f}–{max(rates):.2f})"


def variants(n: int) -> list[IndexParams]:
    """Return the parameters to compare: one varied at a time."""
    base = IndexParams()
    k = base.table_kmer_len(n)
    return [
        *(replace(base, occ_spacing=q) for q in (64, 128, 256, 512)),
        *(replace(base, sa_sampling=p) for p in (1, 2, 4, 8, 16, 32)),
        *(replace(base, kmer_len=x) for x in (0, k - 2, k - 1, k, k + 1, k + 2) if x <= 14),
    ]


def machine() -> str:
    """Return processor, versions and commit, for the head of the table."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return f"{model}, 1 thread; numba {numba.__version__}, numpy {np.__version__}; commit {commit}"


def main() -> None:
    """Write the table of one reference."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("fasta", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--queries", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()

    contigs, codes = read_text(args.fasta)
    lines = [
        f"# Index parameters, {args.fasta.name}: {len(codes)} bases, {len(contigs.names)} contigs",
        "",
        f"{machine()}. {args.queries} queries, median (range) of {args.repeats} repeats.",
        "",
        "| q | p | k | bytes/base | build s | M searches/s | M locates/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for params in variants(len(codes)):
        text = codes.copy()
        begin = time.perf_counter()
        fm = build_fm(text, params)
        seconds = time.perf_counter() - begin
        rates = measure(fm, text, args.queries, args.repeats)
        lines.append(
            f"| {params.occ_spacing} | {params.sa_sampling} | {fm.kmer_len} "
            f"| {index_bytes(len(text), params) / len(text):.2f} | {seconds:.1f} "
            f"| {rates['searches']} | {rates['locates']} |"
        )
        print(lines[-1], flush=True)
    args.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
