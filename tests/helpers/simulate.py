"""A small genome with the difficulties of a real one, and simulated reads of known positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.helpers.read_batches import mutated, random_letters
from tests.naive.seeds import oriented


class Read(NamedTuple):
    """A record of a FASTQ file."""

    name: str
    letters: str
    quals: str


class Place(NamedTuple):
    """Origin of a read; 0-based, half-open, on the forward strand."""

    contig: str
    start: int
    end: int
    strand: int


class Sample(NamedTuple):
    """Reads, mates one after the other, and the origin of each (None: no single one)."""

    reads: list[Read]
    places: list[Place | None]


def make_genome(seed: int = 1) -> dict[str, str]:
    """Return random contigs, 56 kb in all, with repeats, lower case, N and other ambiguous bases.

    Repeats: eight copies of 400 bases, 3 % diverged, on both strands; two exact copies of 900
    bases; a tandem repeat. One contig is shorter than a read, one shorter than a seed.
    """
    rng = np.random.default_rng(seed)
    family = random_letters(rng, 400)
    exact = random_letters(rng, 900)

    def stretch(n: int) -> str:
        copy = oriented(mutated(rng, family, 0.03), int(rng.integers(2)))
        return random_letters(rng, n) + copy

    first = "".join(stretch(4000) for _ in range(5)) + exact + random_letters(rng, 3000)
    second = stretch(6000) + "N" * 200 + stretch(5000) + exact + stretch(7000)
    third = random_letters(rng, 5000) + "CAG" * 60 + random_letters(rng, 5000)
    half = len(third) // 2
    return {
        "chr1": first,
        "HLA*01:01": second[:300] + "RYK" + second[303:],
        "chr3": third[:half] + third[half:].lower(),
        "tiny": random_letters(rng, 90),
        "less": "ACGTTGCA",
    }


def write_fasta(path: Path, genome: dict[str, str]) -> None:
    path.write_text("".join(f">{name} description\n{text}\n" for name, text in genome.items()))


def write_fastq(path: Path, reads: Iterable[Read]) -> str:
    path.write_text("".join(f"@{r.name}\n{r.letters}\n+\n{r.quals}\n" for r in reads))
    return str(path)


def read_fastq(path: Path) -> list[Read]:
    """Read plain FASTQ, with names as SAM has them."""
    lines = path.read_text().splitlines()
    return [
        Read(name[1:].split()[0].removesuffix("/1").removesuffix("/2"), letters, quals)
        for name, letters, quals in zip(lines[::4], lines[1::4], lines[3::4], strict=True)
    ]


def interleaved(first: Sequence[Read], second: Sequence[Read]) -> list[Read]:
    return [read for pair in zip(first, second, strict=True) for read in pair]


def with_errors(rng: np.random.Generator, letters: str, substitutions: float) -> str:
    """Replace bases; in one read of eight also insert or delete up to 12 bases."""
    letters = mutated(rng, letters, substitutions)
    if rng.random() < 0.125:
        at, n = int(rng.integers(20, len(letters) - 20)), int(rng.integers(1, 13))
        if rng.random() < 0.5:
            return letters[:at] + random_letters(rng, n) + letters[at:]
        return letters[:at] + letters[at + n :]
    return letters


def sample_pairs(
    genome: dict[str, str], n_pairs: int, *, seed: int, length: int = 120, chimeras: float = 0.0,
    foreign: float = 0.0,
) -> Sample:  # fmt: skip
    """Simulate pairs of ordinary (FR) libraries, insert size 350 ± 40, 1 % substitutions.

    In a share `chimeras` of the pairs the first mate is joined from two positions (its origin is
    None), in a share `foreign` the second has random letters.
    """
    rng = np.random.default_rng(seed)
    names = [name for name, text in genome.items() if len(text) > 1000]
    weights = np.array([len(genome[name]) for name in names], float)
    reads: list[Read] = []
    places: list[Place | None] = []
    while len(reads) < 2 * n_pairs:
        contig = names[rng.choice(len(names), p=weights / weights.sum())]
        text = genome[contig].upper()
        insert = max(int(rng.normal(350, 40)), length + 20)
        start = int(rng.integers(0, len(text) - insert))
        fragment = text[start : start + insert]
        if fragment.count("N") > 20:
            continue
        left = Place(contig, start, start + length, 0)
        right = Place(contig, start + insert - length, start + insert, 1)
        mates = [left, right] if rng.random() < 0.5 else [right, left]
        letters = [oriented(text[p.start : p.end], p.strand) for p in mates]
        known: list[Place | None] = list(mates)
        if rng.random() < chimeras:
            other = genome["chr3"].upper()
            at = int(rng.integers(0, len(other) - length))
            letters[0] = letters[0][: length // 2] + other[at : at + length - length // 2]
            known[0] = None
        if rng.random() < foreign:
            letters[1], known[1] = random_letters(rng, length), None
        name = f"pair{len(reads) // 2}"
        for mate in letters:
            mate = with_errors(rng, mate, 0.01)
            quals = "".join(chr(33 + q) for q in rng.integers(2, 42, len(mate)))
            reads.append(Read(name, mate, quals))
        places += known
    return Sample(reads, places)
