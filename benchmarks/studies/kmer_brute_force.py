"""`fmwave seed` against a comparison of every k-mer with every window of a small genome.

    python -m benchmarks.studies.kmer_brute_force [REF.fa] --device cpu cuda cuda:0,0

k-mers are cut from seeded random places, every second one from the opposite strand, with 0 to M
substitutions, one in ten of them made up. The output has to be, byte for byte, what the comparison
of their letters with those of every window gives on both strands, without a limit on matches.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numba
import numpy as np

from benchmarks.common import harness
from benchmarks.common.harness import BenchmarkError
from benchmarks.common.map_runs import fmwave, gpus, index_of, run

SETS = ((11, 0), (15, 0), (20, 1), (24, 1), (30, 2), (64, 2))  # k, mismatches
"""Paper 3's, and the longest."""
HEADER = "read\toffset\tstrand\tcontig\tposition\tmismatches\n"
AMBIGUOUS = 4


def read_contigs(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and codes (A, C, G, T: 0 to 3; anything else 4) of each contig."""
    codes = np.full(256, AMBIGUOUS, np.uint8)
    for upper, lower, code in zip(b"ACGT", b"acgt", range(4), strict=True):
        codes[upper] = codes[lower] = code
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for record in text.decode().split(">")[1:]:
        head, *lines = record.splitlines()
        yield head.split()[0], codes[np.frombuffer("".join(lines).encode(), np.uint8)]


def sample(rng: np.random.Generator, text: np.ndarray, n: int, k: int, most: int) -> np.ndarray:
    """Return codes, uint8 (n, k), without ambiguous bases."""
    starts = rng.integers(0, len(text) - k, n)
    kmers = text[starts[:, None] + np.arange(k)]
    kmers[kmers == AMBIGUOUS] = 0
    for row in range(n):
        at = rng.choice(k, rng.integers(0, most + 1), replace=False)
        kmers[row, at] = (kmers[row, at] + rng.integers(1, 4, len(at))) % 4
    kmers[1::2] = opposite(kmers[1::2])
    kmers[::10] = rng.integers(0, 4, kmers[::10].shape)
    return kmers


def opposite(kmers: np.ndarray) -> np.ndarray:
    """Return the reverse complement of each row."""
    return 3 - kmers[:, ::-1]


@numba.njit(parallel=True)
def scan(kmers, text, most):
    """Return for each k-mer and window the mismatches, int8; -1 where there are too many."""
    n, k = kmers.shape
    n_windows = max(0, len(text) - k + 1)
    found = np.full((n, n_windows), -1, np.int8)
    for i in numba.prange(n):
        for start in range(n_windows):
            mismatches = 0
            for j in range(k):
                if kmers[i, j] != text[start + j]:
                    mismatches += 1
                    if mismatches > most:
                        break
            if mismatches <= most:
                found[i, start] = mismatches
    return found


def expected(kmers: np.ndarray, contigs: Sequence[tuple[str, np.ndarray]], most: int) -> list[str]:
    """Return the lines that the command should write."""
    lines = []
    for first in range(0, len(kmers), 50):
        some = kmers[first : first + 50]
        found = {
            strand: [(name, scan(rows, text, most)) for name, text in contigs]
            for strand, rows in (("+", some), ("-", opposite(some)))
        }
        for i in range(len(some)):
            for strand, of_contigs in found.items():
                for name, mismatches in of_contigs:
                    for position in np.flatnonzero(mismatches[i] >= 0).tolist():
                        lines.append(
                            f"k{first + i}\t0\t{strand}\t{name}\t{position}\t"
                            f"{mismatches[i, position]}\n"
                        )
    return lines


def check(
    index: Path, contigs: Sequence[tuple[str, np.ndarray]], options: argparse.Namespace, work: Path
) -> Iterator[dict[str, Any]]:
    """Yield a row for each set of k-mers and device."""
    text = np.concatenate([codes for _, codes in contigs])
    for k, most in SETS:
        kmers = sample(np.random.default_rng(k), text, options.kmers, k, most)
        reads = work / f"{k}.fa"
        reads.write_text(
            "".join(f">k{i}\n{''.join(map('ACGT'.__getitem__, row))}\n"
                    for i, row in enumerate(kmers.tolist()))
        )  # fmt: skip
        start = time.perf_counter()
        wanted = HEADER + "".join(expected(kmers, contigs, most))
        scan_s = time.perf_counter() - start
        for device in options.device:
            out = work / "out.tsv"
            seconds = run(
                fmwave("seed", index, reads, "-k", k, "--mismatches", most, "--max-hits", 0,
                       "--device", device, "-o", out), work / "seed.log",
            )  # fmt: skip
            row = {
                "k": k, "mismatches": most, "kmers": len(kmers), "device": device,
                "matches": wanted.count("\n") - 1, "same": out.read_text() == wanted,
                "scan_s": round(scan_s, 2), "seed_s": round(seconds, 2),
            }  # fmt: skip
            print(row, flush=True)
            yield row


def lines_of(report: dict[str, Any]) -> list[str]:
    """Return the result as Markdown."""
    header = ["k", "mismatches", "k-mers", "device", "matches", "lines as the scan's"]
    rows = [
        [r["k"], r["mismatches"], f"{r['kmers']:,}", r["device"], f"{r['matches']:,}",
         "the same bytes" if r["same"] else "**differ**"]
        for r in report["rows"]
    ]  # fmt: skip
    gpus = "; ".join(report["about"]["gpus"]) or "No GPU"
    return [
        "# k-mers against every window of a genome", "",
        *harness.markdown_provenance(report["about"]),
        f"{gpus}. {report['reference']}: {report['bases']:,} bases, both strands; every k-mer was "
        "compared with every window, letter by letter, and `fmwave seed --max-hits 0` wrote:", "",
        *harness.table(header, rows),
    ]  # fmt: skip


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Search and scan; 1 if a line differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "reference", type=Path, nargs="?", default=harness.SHARED / "data/ref/ecoli_k12.fa.gz"
    )
    parser.add_argument("--device", nargs="+", default=["cpu"], help="[%(default)s]")
    parser.add_argument("--kmers", type=int, default=1000, help="of each set [%(default)s]")
    parser.add_argument("--out", type=Path, default=harness.RESULTS)
    harness.add_commit(parser)
    options = parser.parse_args(arguments)
    if not options.reference.exists():
        raise BenchmarkError(f"{options.reference}: no such file")
    versions = {name: metadata.version(name) for name in ("numba", "numba-cuda", "numpy")}
    on_gpu = any(device != "cpu" for device in options.device)
    about = harness.provenance(versions)
    about |= {"commit": options.commit, "gpus": gpus() if on_gpu else []}
    contigs = list(read_contigs(options.reference))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        rows = list(check(index_of(options.reference, work), contigs, options, work))
    report = {
        "about": about, "reference": options.reference.name,
        "bases": sum(len(codes) for _, codes in contigs), "rows": rows,
    }  # fmt: skip
    harness.write_results(options.out, "kmer_brute_force", report, lines_of(report))
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
