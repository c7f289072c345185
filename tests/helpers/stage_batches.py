"""Small genomes and reads with every kind of difficulty, for the tests of device stages."""

from __future__ import annotations

import numpy as np

from mapper.index.index import Index
from mapper.index.reference import Contigs, IndexMeta, make_contigs
from mapper.params import IndexParams
from tests.helpers.read_batches import Genome, genome_of, mutated, random_letters


def index_of(genome: Genome) -> Index:
    """Return an Index of a test genome, without files."""
    names = [f"chr{i}" for i in range(len(genome.starts))]
    contigs: Contigs = make_contigs(names, ["*"] * len(names), genome.lengths.tolist())
    return Index(genome.fm, contigs, IndexMeta("test.fa", 0, IndexParams(), "test"))


def small_genome(rng: np.random.Generator) -> Genome:
    """Three contigs with a repeat in near-copies, a tandem repeat, and stretches of N."""
    repeat = random_letters(rng, 180)
    contigs = []
    for _ in range(3):
        parts = [random_letters(rng, 300)]
        for _ in range(3):
            parts += [mutated(rng, repeat, 0.02), random_letters(rng, 90)]
        contigs.append("".join(parts))
    contigs[1] += "N" * 20 + "ACG" * 60 + random_letters(rng, 50)
    return genome_of(contigs)


def opposite(letters: str) -> str:
    """Return the reverse complement."""
    return letters[::-1].translate(str.maketrans("ACGTN", "TGCAN"))


def some_pairs(rng: np.random.Generator, genome: Genome, n: int) -> list[str]:
    """Mates in turn, 5' ends 100 to 200 bases apart; every second pair has one without a seed.

    That one differs from the genome at every ninth base.
    """
    other = str.maketrans("ACGTN", "CGTAN")
    reads = [random_letters(rng, 80), random_letters(rng, 80)]
    while len(reads) < 2 * n:
        size = int(rng.integers(100, 200))
        start = int(rng.integers(0, len(genome.text) - size))
        fragment = genome.text[start : start + size]
        mates = [fragment[:80], opposite(fragment)[:80]]
        if len(reads) % 4 == 0:
            mates[1] = "".join(
                letter.translate(other) if i % 9 == 4 else letter
                for i, letter in enumerate(mates[1])
            )
        reads += mates if rng.random() < 0.5 else mates[::-1]
    return reads


def some_reads(rng: np.random.Generator, genome: Genome, n: int) -> list[str]:
    """Return reads with mismatches and gaps, of both strands, over contig ends, and random ones."""
    reads = ["A", "ACGTN" * 3, "N" * 70, random_letters(rng, 64), "ACG" * 40]
    while len(reads) < n:
        length = int(rng.integers(30, 151))
        start = int(rng.integers(0, len(genome.text) - length))
        letters = mutated(rng, genome.text[start : start + length], rng.choice([0, 0.01, 0.06]))
        for _ in range(rng.integers(3)):
            at, size = int(rng.integers(5, length - 5)), int(rng.integers(1, 9))
            if rng.random() < 0.5:
                letters = letters[:at] + letters[at + size :]
            else:
                letters = letters[:at] + random_letters(rng, size) + letters[at:]
        reads.append(opposite(letters) if rng.random() < 0.5 else letters)
    return reads
