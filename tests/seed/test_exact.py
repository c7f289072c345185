"""Exact seeds: their rows are all occurrences, on both strands."""

from __future__ import annotations

import numpy as np
import pytest

from mapper import dna
from mapper.index.fm import clean_hit, locate
from mapper.params import IndexParams
from tests.helpers.read_batches import Genome, genome_of, random_letters
from tests.helpers.seed_searches import search_seed
from tests.naive.seeds import occurrences, oriented

NEVER_LENGTHEN = 10**9


def repeats(seed: int, kmer_len: int | None = None) -> Genome:
    """Two contigs full of copies of a few words, with N among them."""
    rng = np.random.default_rng(seed)
    words = [random_letters(rng, int(n)) for n in rng.integers(3, 40, 5)] + ["NN", "ACAC"]
    contigs = ["".join(rng.choice(words, 30)) for _ in range(2)]
    return genome_of(contigs, IndexParams(kmer_len=kmer_len))


def located(genome: Genome, sa_lo: int, sa_hi: int, length: int) -> list[int]:
    places = (locate(genome.fm, row) for row in range(sa_lo, sa_hi))
    return sorted(pos for pos in places if clean_hit(genome.fm, pos, length))


@pytest.mark.parametrize("kmer_len", [0, 4, None])
@pytest.mark.parametrize("strand", [0, 1])
def test_all_occurrences_and_no_others(kmer_len: int | None, strand: int) -> None:
    genome = repeats(1, kmer_len)
    rng = np.random.default_rng(2)
    n_found = 0
    for _ in range(150):
        at = int(rng.integers(0, len(genome.text) - 30))
        length = int(rng.integers(1, 25))
        read = genome.text[at : at + 30] if rng.random() < 0.8 else random_letters(rng, 30)
        start = int(rng.integers(0, 30 - length + 1))
        seed = read[start : start + length]
        if "N" in seed:
            continue
        sa_lo, sa_hi, found_len = search_seed(
            genome.fm, dna.encode(read), start, start + length, strand, 0, NEVER_LENGTHEN
        )
        expected = occurrences(genome.text, oriented(seed, strand))
        places = located(genome, sa_lo, sa_hi, length) if sa_lo < sa_hi else []
        assert places == expected
        assert found_len == length or not expected
        n_found += len(expected)
    assert n_found > 100


@pytest.mark.parametrize("strand", [0, 1])
def test_a_frequent_seed_grows_until_it_is_rare_or_stuck(strand: int) -> None:
    genome = repeats(3)
    rng = np.random.default_rng(4)
    grown = 0
    for _ in range(150):
        at = int(rng.integers(0, len(genome.text) - 60))
        read = oriented(genome.text[at : at + 60], strand)
        start, seed_len, extend_over = int(rng.integers(0, 50)), 8, int(rng.integers(1, 12))
        end = start + seed_len
        # The clean stretch that the seed may grow in, on the side where it grows.
        before = start - (read.rfind("N", 0, start) + 1)
        after = (read + "N").index("N", end) - end if "N" not in read[start:end] else 0
        room = before if strand == 0 else after
        if "N" in read[start:end]:
            continue
        sa_lo, sa_hi, length = search_seed(
            genome.fm, dna.encode(read), start, end, strand, room, extend_over
        )
        if sa_lo == sa_hi:
            assert occurrences(genome.text, oriented(read[start:end], strand)) == []
            continue
        part = read[end - length : end] if strand == 0 else read[start : start + length]
        assert seed_len <= length <= seed_len + room
        pattern = oriented(part, strand)
        assert located(genome, sa_lo, sa_hi, length) == occurrences(genome.text, pattern)
        if length > seed_len:
            grown += 1
            part = slice(end - length + 1, end) if strand == 0 else slice(start, start + length - 1)
            lo, hi, _ = search_seed(
                genome.fm, dna.encode(read), part.start, part.stop, strand, 0, NEVER_LENGTHEN
            )
            assert hi - lo > extend_over
        if sa_hi - sa_lo > extend_over and length < seed_len + room:
            more = slice(end - length - 1, end) if strand == 0 else slice(start, start + length + 1)
            assert occurrences(genome.text, oriented(read[more], strand)) == []
    assert grown > 20
