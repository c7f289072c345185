"""`fmwave seed` of k-mers planted in a large genome: every place found is looked up in the FASTA.

    python -m benchmarks.common.planted FASTA REF.fmw --from 2^32's position --json OUT

k-mers are cut at seeded random places of the text from a position on, every second one from the
opposite strand. Each has to be found where it was cut, if it is not one of those that
``--max-hits`` leaves out, and every line of the output has to name a place where the letters of
the FASTA are those of the k-mer. The FASTA is one of ``benchmarks/genome.py``: 100 bases a
line, and found in it by arithmetic, without the index.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import harness
from benchmarks.common.genome import contig_ends, contig_names
from benchmarks.common.harness import BenchmarkError
from benchmarks.common.map_runs import fmwave

LINE = 100
_COMPLEMENT = np.arange(256, dtype=np.uint8)
_COMPLEMENT[np.frombuffer(b"ACGT", np.uint8)] = np.frombuffer(b"TGCA", np.uint8)


class Genome:
    """The letters of a FASTA as `benchmarks.common.genome.write_fasta` writes it, by text position.

    Parameters
    ----------
    size
        Bases of the text, separators included.
    """

    def __init__(self, path: Path, size: int, n_contigs: int = 24) -> None:
        self.letters = np.memmap(path, np.uint8, "r")
        self.names = contig_names(n_contigs)
        ends = contig_ends(size, n_contigs)
        self.starts = np.array([0, *ends[:-1]], np.int64)
        self.lengths = np.array(ends, np.int64) - 1 - self.starts
        self.size = size
        at, begins = 0, []
        for name, length in zip(self.names, self.lengths.tolist(), strict=True):
            head = f">{name}\n".encode()
            if self.letters[at : at + len(head)].tobytes() != head:
                raise BenchmarkError(f"{path} is no genome of {size} bases by benchmarks/genome.py")
            begins.append(at + len(head))
            at = begins[-1] + length + -(-length // LINE)
        self.begins = np.array(begins, np.int64)

    def at(self, contigs: np.ndarray, positions: np.ndarray, k: int) -> np.ndarray:
        """Return k letters from each of some places of contigs: uint8 (n, k).

        Raises
        ------
        BenchmarkError
            If a place is not within its contig.
        """
        if (positions < 0).any() or (positions + k > self.lengths[contigs]).any():
            raise BenchmarkError("a place beyond the end of its contig")
        each = positions[:, None] + np.arange(k)
        return np.asarray(self.letters[self.begins[contigs][:, None] + each + each // LINE])

    def cut(self, n: int, k: int, first: int, seed: int) -> tuple[np.ndarray, ...]:
        """Return contigs, positions and letters of random k-mers of A, C, G and T from `first` on.

        There are at most n: places across ends and with other letters are left out.
        """
        texts = np.random.default_rng(seed).integers(first, self.size - k, n)
        contigs = np.searchsorted(self.starts, texts, side="right") - 1
        positions = texts - self.starts[contigs]
        inside = positions + k <= self.lengths[contigs]
        contigs, positions = contigs[inside], positions[inside]
        letters = self.at(contigs, positions, k)
        plain = np.isin(letters, np.frombuffer(b"ACGT", np.uint8)).all(axis=1)
        return contigs[plain], positions[plain], letters[plain]


def turned(letters: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return k-mers, those chosen by a mask as their reverse complements."""
    result = letters.copy()
    result[which] = _COMPLEMENT[letters[which, ::-1]]
    return result


def write_kmers(path: Path, kmers: np.ndarray) -> None:
    with path.open("w") as file:
        file.writelines(f">{i}\n{kmer.tobytes().decode()}\n" for i, kmer in enumerate(kmers))


def check(
    genome: Genome, planted: tuple[np.ndarray, ...], kmers: np.ndarray, found: Path, skipped: Path,
    first: int,
) -> dict[str, int]:  # fmt: skip
    """Look every line up; return counts.

    Parameters
    ----------
    planted
        Contigs and positions of k-mers; every second one, from 1 on, was turned round.
    first
        Position of the text from which on hits are counted as beyond.

    Raises
    ------
    BenchmarkError
        If a line names another place than one of the k-mer's, or a k-mer is not where it was cut.
    """
    number_of = {name: i for i, name in enumerate(genome.names)}
    rows = [line.split("\t") for line in found.read_text().splitlines()[1:]]
    reads, contigs, positions = (
        np.array([convert(row[column]) for row in rows], np.int64)
        for column, convert in ((0, int), (3, number_of.__getitem__), (4, int))
    )
    reverse = np.array([row[2] == "-" for row in rows], np.bool_)
    if any(row[1] != "0" or row[5] != "0" for row in rows):
        raise BenchmarkError(f"{found}: an offset or mismatches in a k-mer searched as it is")
    k = kmers.shape[1]
    for part in range(0, len(rows), 1 << 20):
        these = slice(part, part + (1 << 20))
        there = genome.at(contigs[these], positions[these], k)
        wrong = (turned(there, reverse[these]) != kmers[reads[these]]).any(axis=1)
        if wrong.any():
            row = rows[part + int(np.flatnonzero(wrong)[0])]
            raise BenchmarkError(f"{found}: another k-mer is there: {row}")
    left_out = {int(line.split("\t")[0]) for line in skipped.read_text().splitlines()[1:]}
    seen = set(zip(reads.tolist(), contigs.tolist(), positions.tolist(), strict=True))
    strands = dict(zip(zip(reads.tolist(), contigs.tolist(), positions.tolist(), strict=True),
                       reverse.tolist(), strict=True))  # fmt: skip
    missing = 0
    for i, (contig, position) in enumerate(zip(*(c.tolist() for c in planted[:2]), strict=True)):
        if i in left_out:
            continue
        where = (i, contig, position)
        # A k-mer that is its own reverse complement is found on either strand.
        own_twin = (turned(kmers[i : i + 1], np.ones(1, np.bool_)) == kmers[i]).all()
        if where not in seen or (not own_twin and strands[where] != (i % 2 == 1)):
            missing += 1
    if missing:
        raise BenchmarkError(f"{missing} k-mers are not found where they were cut")
    beyond = int((genome.starts[contigs] + positions >= first).sum())
    return {
        "planted": len(kmers), "left_out": len(left_out), "hits": len(rows), "beyond": beyond,
        "first": first,
    }  # fmt: skip


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Plant, search, check; 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("fasta", type=Path)
    parser.add_argument("index", type=Path)
    parser.add_argument("--size", type=int, required=True, help="bases of the text")
    parser.add_argument("--from", dest="first", type=int, default=0, help="text position [0]")
    parser.add_argument("-n", type=int, default=100_000, help="k-mers [%(default)s]")
    parser.add_argument("-k", type=int, default=32, help="[%(default)s]")
    parser.add_argument("--device", default="cuda", help="[%(default)s]")
    parser.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args(arguments)
    stem = options.json.with_suffix("")
    kmers_file, found, skipped = (stem.with_suffix(s) for s in (".fa", ".tsv", ".skipped.tsv"))
    genome = Genome(options.fasta, options.size)
    *planted, letters = genome.cut(options.n, options.k, options.first, 3)
    kmers = turned(letters, np.arange(len(letters)) % 2 == 1)
    write_kmers(kmers_file, kmers)
    command = fmwave(
        "seed", options.index, kmers_file, "-k", options.k, "--mismatches", 0,
        "--stride", options.k, "--device", options.device, "-t", options.threads,
        "-o", found, "--skipped", skipped,
    )  # fmt: skip
    begin = time.perf_counter()
    cost = harness.measure(command, stem.with_suffix(".log"))
    if cost.exit_status:
        raise BenchmarkError(harness.tail(stem.with_suffix(".log")))
    result: dict[str, Any] = {"seed_s": time.perf_counter() - begin, "k": options.k}
    result |= check(genome, tuple(planted), kmers, found, skipped, options.first)
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
