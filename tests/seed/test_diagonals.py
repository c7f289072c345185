"""Diagonals of a read's seeds: the same as with every row located."""

from __future__ import annotations

import numpy as np
import pytest

from mapper import dna
from mapper.index.fm import RowsInWork, clean_hit, locate
from mapper.jit.lanes import ONE_LANE
from mapper.params import IndexParams
from mapper.seed.diagonals import (
    DIAGONALS_FULL,
    add_diagonals,
    clear_diagonals,
    find_diagonals,
)
from tests.helpers.read_batches import Genome, genome_of, mutated, random_letters
from tests.helpers.seed_searches import Seed, scratch_of, search_seed
from tests.naive.seeds import oriented

MANY = 5000


def working(n: int) -> RowsInWork:
    return RowsInWork(np.empty(n, np.int64), np.empty(n, np.int32))


def some_seeds(genome: Genome, read: str, rng: np.random.Generator) -> list[Seed]:
    """Return occurring seeds of a read: start on its strand, length, strand, rows."""
    seeds = []
    for _ in range(8):
        length = int(rng.integers(6, 16))
        start = int(rng.integers(0, len(read) - length + 1))
        strand = int(rng.integers(2))
        if "N" in read[start : start + length]:
            continue
        sa_lo, sa_hi, _ = search_seed(
            genome.fm, dna.encode(read), start, start + length, strand, 0, 10**9
        )
        if sa_lo < sa_hi:
            own_start = start if strand == 0 else len(read) - start - length
            seeds.append((own_start, length, strand, sa_lo, sa_hi))
    return seeds


@pytest.mark.parametrize("kmer_len", [0, 5])
@pytest.mark.parametrize("sa_sampling", [1, 4])
def test_rows_located_together_are_those_located_alone(kmer_len: int, sa_sampling: int) -> None:
    rng = np.random.default_rng(kmer_len)
    words = [random_letters(rng, 60) for _ in range(3)]
    contigs = [
        "".join(mutated(rng, words[rng.integers(3)], 0.03) + "N" * rng.integers(2)
                for _ in range(8))
        for _ in range(3)
    ]  # fmt: skip
    genome = genome_of(contigs, IndexParams(kmer_len=kmer_len, sa_sampling=sa_sampling))
    n_seeds = n_diagonals = 0
    for _ in range(150):
        at = int(rng.integers(0, len(genome.text) - 50))
        read = oriented(genome.text[at : at + 50], int(rng.integers(2)))
        seeds = some_seeds(genome, read, rng)
        expected = set()
        for start, length, strand, sa_lo, sa_hi in seeds:
            for row in range(sa_lo, sa_hi):
                pos = locate(genome.fm, row)
                if clean_hit(genome.fm, pos, length):
                    expected.add((strand, pos - start))
        scratch = scratch_of(seeds)
        n_diags, n_over_budget = find_diagonals(
            genome.fm, scratch, len(seeds), MANY, MANY, working(MANY), ONE_LANE
        )
        found = [(d & 1, d >> 1) for d in scratch.diag[:n_diags].tolist()]
        assert len(set(found)) == len(found)
        assert set(found) == expected
        assert n_over_budget == 0
        n_seeds += len(seeds)
        n_diagonals += n_diags
        for d in range(n_diags):  # and each names a seed that really leads there
            start, length, strand, *_ = seeds[scratch.diag_seed[d]]
            pos = (scratch.diag[d] >> 1) + start
            own = oriented(read, strand)[start : start + length]
            assert genome.text[pos : pos + length] == own and strand == scratch.diag[d] & 1
    assert n_diagonals > n_seeds > 500


def test_over_the_cap_only_a_sample_is_located() -> None:
    rng = np.random.default_rng(7)
    word = random_letters(rng, 40)
    genome = genome_of(["".join(word + random_letters(rng, 5) for _ in range(50))])
    rows = search_seed(genome.fm, dna.encode(word), 0, 20, 0, 0, 10**9)[:2]
    more = search_seed(genome.fm, dna.encode(word), 20, 40, 0, 0, 10**9)[:2]
    assert rows[1] - rows[0] == 50
    scratch = scratch_of([(0, 20, 0, *rows), (20, 20, 0, *more)])
    n_diags, n_over_budget = find_diagonals(
        genome.fm, scratch, 2, 10, MANY, working(MANY), ONE_LANE
    )
    assert 1 <= n_diags <= 10
    assert n_over_budget == 0
    for d in range(n_diags):
        assert genome.text[scratch.diag[d] >> 1 :].startswith(word)


def test_the_longest_seed_comes_first() -> None:
    """Before rarer ones, which come in the order of their rows; a sample of it if it has many."""
    rng = np.random.default_rng(12)
    word, other = random_letters(rng, 30), random_letters(rng, 40)
    genome = genome_of(
        ["".join(word + random_letters(rng, 5) for _ in range(50)), *[other + "A", other + "C"]]
    )
    rows = search_seed(genome.fm, dna.encode(word), 0, 30, 0, 0, 10**9)[:2]
    rarer = [
        search_seed(genome.fm, dna.encode(other), at, at + 20, 0, 0, 10**9)[:2] for at in (0, 20)
    ]
    seeds = [(0, 20, 0, *rarer[0]), (0, 30, 0, *rows), (20, 20, 0, *rarer[1])]
    for max_occ, max_hits, expected in ((100, 52, [50, 2]), (10, 11, [10]), (10, 12, [10, 2])):
        scratch = scratch_of(seeds)
        n_diags, _ = find_diagonals(
            genome.fm, scratch, 3, max_occ, max_hits, working(MANY), ONE_LANE
        )
        found = scratch.diag_seed[:n_diags].tolist()
        assert found == [1] * expected[0] + [0] * sum(expected[1:]), (max_occ, max_hits)


def test_hits_over_the_budget_are_counted() -> None:
    rng = np.random.default_rng(8)
    word = random_letters(rng, 40)
    # The word's first half 4 times on its own, then its second half 6 times.
    genome = genome_of(
        [
            "".join(word[:20] + random_letters(rng, 5) for _ in range(4))
            + "".join(word[20:] + random_letters(rng, 5) for _ in range(6))
        ]
    )
    rows = search_seed(genome.fm, dna.encode(word), 0, 20, 0, 0, 10**9)[:2]
    more = search_seed(genome.fm, dna.encode(word), 20, 40, 0, 0, 10**9)[:2]
    for max_hits, expected in ((10, (10, 0)), (9, (4, 1)), (3, (0, 2))):
        scratch = scratch_of([(0, 20, 0, *rows), (20, 20, 0, *more)])
        found = find_diagonals(genome.fm, scratch, 2, 10, max_hits, working(max_hits), ONE_LANE)
        if max_hits == 3:  # a sample, so that the read is placed at all
            assert 1 <= found[0] <= 3 and found[1:] == expected[1:]
        else:
            assert found == expected


def test_a_known_place_is_taken_as_it_is() -> None:
    """Seeds with a known occurrence have a text position instead of rows."""
    rng = np.random.default_rng(9)
    genome = genome_of([random_letters(rng, 400)])
    places = [(0, 0, 100), (40, 0, 140), (20, 1, 300)]
    seeds = [(start, 20, strand, ~place, -place) for start, strand, place in places]
    scratch = scratch_of(seeds)
    n_diags, n_over_budget = find_diagonals(
        genome.fm, scratch, 3, 10, MANY, working(MANY), ONE_LANE
    )
    assert n_over_budget == 0
    assert scratch.diag[:n_diags].tolist() == [2 * 100, 2 * 280 + 1]
    assert scratch.diag_seed[:n_diags].tolist() == [0, 2]


def test_the_table_of_many_diagonals_knows_what_a_set_knows() -> None:
    """Both strands, small and large and negative diagonals; half of the slots used at the end."""
    rng = np.random.default_rng(10)
    near = range(-80, 80)
    far = rng.integers(2**34, size=96).tolist()
    # Equal in the hashed bits: all have the same first slot.
    alike = [5 + (i << 31) for i in range(8)]
    wanted = np.array(list(dict.fromkeys([*near, *far, *alike]))[:256])
    rng.shuffle(wanted)
    scratch = scratch_of([(0, 1, 0, 0, 0)], max_hits=256)
    clear_diagonals(scratch, ONE_LANE)
    for i, diagonal in enumerate([*wanted, *wanted]):
        n = add_diagonals(scratch, min(i, len(wanted)), 0, diagonal, True, ONE_LANE)
        assert n == min(i + 1, len(wanted))
    assert (scratch.diag == wanted).all()
    assert len(scratch.slots) == 512
    assert add_diagonals(scratch, 256, 0, np.int64(10**6), True, ONE_LANE) == DIAGONALS_FULL
