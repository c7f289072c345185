"""The k-mer presence filter: seeding with it gives the same seeds."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.index.kmer_filter import EVERY_KMER, present_kmers
from mapper.params import IndexParams, SeedParams
from mapper.seed.cpu import seed_reads
from tests.helpers.read_batches import Genome, genome_of, mutated, packed_reads, random_letters

PARAMS = SeedParams(seed_len=10, last_len=7, max_occ=30, max_hits=40)


def genome_with_table(rng: np.random.Generator, kmer_len: int, sa_sampling: int = 4) -> Genome:
    contigs = [random_letters(rng, 500), random_letters(rng, 300) + "NNNN" + "ACGT" * 20]
    return genome_of(contigs, IndexParams(64, sa_sampling, kmer_len))


def some_reads(rng: np.random.Generator, genome: Genome) -> list[str]:
    """Reads similar and dissimilar to the text, with ambiguous bases, and random reads."""
    reads = [random_letters(rng, int(rng.integers(0, 90))) for _ in range(40)]
    for rate in (0.0, 0.05, 0.15, 0.3):
        for at in rng.integers(0, len(genome.text) - 80, 20):
            reads.append(mutated(rng, genome.text[at : at + 80].replace("N", "G"), rate))
    reads += [read[:30] + "N" + read[31:] for read in reads[50:70]]
    return [*reads, "", "A", "ACGTACG", "N" * 20]


def test_a_bit_is_set_if_a_kmer_has_a_row() -> None:
    rng = np.random.default_rng(1)
    genome = genome_with_table(rng, 6)
    present = present_kmers(genome.fm)
    bits = np.unpackbits(present.view(np.uint8), bitorder="little")
    assert bits.sum() < 0.3 * len(bits) == 0.3 * 4**6
    for start in range(len(genome.text) - 5):
        kmer = genome.text[start : start + 6]
        if "N" not in kmer:
            assert bits[sum("ACGT".index(base) << 2 * (5 - i) for i, base in enumerate(kmer))]
    assert np.array_equal(bits > 0, np.diff(genome.fm.kmer_starts.astype(np.int64)) > 0)


@pytest.mark.parametrize("kmer_len", [0, 2, 4])
def test_a_table_that_has_nearly_all_tells_nothing(kmer_len: int) -> None:
    genome = genome_with_table(np.random.default_rng(2), kmer_len)
    assert present_kmers(genome.fm) is EVERY_KMER


@pytest.mark.parametrize(
    "params", [PARAMS, PARAMS._replace(last_len=6), PARAMS._replace(last_len=5)]
)
def test_seeds_are_the_same_without(params: SeedParams) -> None:
    """With seeds as long as the k-mers, and shorter, too."""
    rng = np.random.default_rng(3)
    genome = genome_with_table(rng, 6)
    reads = packed_reads(some_reads(rng, genome))
    known = seed_reads(genome.fm, *reads, params, present_kmers(genome.fm))
    unknown = seed_reads(genome.fm, *reads, params)
    assert len(known.strand) > 200
    full = genome_with_table(np.random.default_rng(3), 6, sa_sampling=1)
    in_full = seed_reads(full.fm, *reads, params, present_kmers(full.fm))
    for one, other, third in zip(known, unknown, in_full, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)


def test_what_is_not_there_is_not_searched() -> None:
    """With an empty set only the first round finds seeds, as it does not use the filter."""
    rng = np.random.default_rng(4)
    genome = genome_with_table(rng, 6)
    whole = genome.text[:60]
    spoilt = "".join("CGTA"["ACGT".index(c)] if i % 9 == 4 else c for i, c in enumerate(whole))
    reads = packed_reads([whole, spoilt])
    none = np.zeros_like(present_kmers(genome.fm))
    assert np.diff(seed_reads(genome.fm, *reads, PARAMS).seed_offsets).min() > 0
    found = seed_reads(genome.fm, *reads, PARAMS, none)
    assert found.seed_offsets.tolist() == [0, len(found.strand), len(found.strand)]
    assert found.text_pos[0] - found.query_start[0] == 0
