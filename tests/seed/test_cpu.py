"""The seeding stage: its guarantee, and bases that never seed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mapper.batch import SeedBatch
from mapper.params import SECOND_LOOK, IndexParams, MapParams, SeedParams
from mapper.seed.cpu import seed_reads
from mapper.seed.exact import disjoint_start, n_disjoint, resolve, resolve_all
from tests.helpers.read_batches import Genome, genome_of, mutated, packed_reads, random_letters
from tests.naive.seeds import all_diagonals, diagonals, occurrences, opposite, oriented

EVERYTHING = SeedParams(seed_len=12, last_len=9, extend_over=10**9, max_occ=10**4, max_hits=10**4)


def seeds_of(genome: Genome, sequences: list[str], params: SeedParams = EVERYTHING) -> SeedBatch:
    return seed_reads(genome.fm, *packed_reads(sequences), params)


def found_of(seeds: SeedBatch, i: int) -> list[tuple[int, int]]:
    rows = slice(seeds.seed_offsets[i], seeds.seed_offsets[i + 1])
    diagonal = seeds.text_pos[rows] - seeds.query_start[rows]
    return list(zip(seeds.strand[rows].tolist(), diagonal.tolist(), strict=True))


def repeat_genome(rng: np.random.Generator, kmer_len: int | None = None) -> Genome:
    words = [random_letters(rng, 90) for _ in range(4)]
    contigs = [
        "".join(mutated(rng, words[rng.integers(4)], 0.05) for _ in range(6)) + "N" * 3 + "ACGTA"
        for _ in range(3)
    ]
    return genome_of(contigs, IndexParams(kmer_len=kmer_len))


def sampled_reads(rng: np.random.Generator, genome: Genome, n: int, rate: float) -> list[str]:
    reads = []
    for _ in range(n):
        length = int(rng.integers(0, 100))
        at = int(rng.integers(0, len(genome.text) - length))
        letters = "".join("N" if rng.random() < 0.01 else c for c in genome.text[at : at + length])
        clean = "".join(c if c != "N" or rng.random() < 0.5 else "A" for c in letters)
        read = mutated(rng, clean, rate) if "N" not in clean else clean
        reads.append(oriented(read, int(rng.integers(2))))
    return reads


@pytest.mark.medium
@pytest.mark.parametrize("rate", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("kmer_len", [0, 6])
def test_every_seed_is_exact_and_every_diagonal_unique(rate: float, kmer_len: int) -> None:
    rng = np.random.default_rng(1)
    genome = repeat_genome(rng, kmer_len)
    reads = sampled_reads(rng, genome, 150, rate)
    seeds = seeds_of(genome, reads)
    assert len(seeds.strand) > 100
    for i, read in enumerate(reads):
        found = found_of(seeds, i)
        assert len(set(found)) == len(found)
        assert set(found) <= all_diagonals(genome.text, read, EVERYTHING.last_len)
        for s in range(seeds.seed_offsets[i], seeds.seed_offsets[i + 1]):
            start, length = seeds.query_start[s], seeds.seed_len[s]
            pattern = oriented(read, seeds.strand[s])[start : start + length]
            assert len(pattern) == length >= EVERYTHING.last_len
            assert set(pattern) <= set("ACGT")
            assert genome.text[seeds.text_pos[s] :].startswith(pattern)


def test_hits_are_all_those_of_the_planned_seeds() -> None:
    rng = np.random.default_rng(2)
    genome = repeat_genome(rng)
    reads = [read for read in sampled_reads(rng, genome, 150, 0.03) if "N" not in read]
    seeds = seeds_of(genome, reads)
    length = EVERYTHING.seed_len
    compared = 0
    for i, read in enumerate(reads):
        n = n_disjoint(len(read), length)
        starts = [disjoint_start(len(read), length, n, j) for j in range(n)]
        expected = diagonals(genome.text, read, starts, length)
        n_occurring = sum(
            bool(occurrences(genome.text, oriented(read[s : s + length], strand)))
            for s in starts
            for strand in (0, 1)
        )
        if n_occurring > 1 or (n == 1 and n_occurring):
            assert set(found_of(seeds, i)) == expected
            compared += 1
        else:
            assert set(found_of(seeds, i)) >= expected
    assert compared > 60


def test_reads_without_a_long_match_are_searched_at_every_base() -> None:
    rng = np.random.default_rng(3)
    genome = genome_of([random_letters(rng, 2000)])
    params = EVERYTHING._replace(last_len=10)
    reads = []
    for at in range(100, 1900, 100):  # a mismatch every 11 bases: runs of 10 only
        piece = genome.text[at : at + 66]
        reads.append("".join("CGTA"["ACGT".index(c)] if i % 11 == 5 else c
                             for i, c in enumerate(piece)))  # fmt: skip
    seeds = seeds_of(genome, reads, params)
    for i, read in enumerate(reads):
        if not all_diagonals(genome.text, read, params.seed_len):
            assert set(found_of(seeds, i)) == all_diagonals(genome.text, read, 10)
            assert (0, 100 + 100 * i) in found_of(seeds, i)


def test_strands_are_symmetrical() -> None:
    """The seeds of a reverse-complemented read are the same, with the strands swapped."""
    rng = np.random.default_rng(4)
    genome = repeat_genome(rng)
    # Disjoint seeds that divide the read evenly start at the same places from both ends.
    reads = [
        mutated(rng, genome.text[at : at + 4 * 12].replace("N", "A"), 0.02)
        for at in rng.integers(0, len(genome.text) - 48, 80)
    ]
    forward = seeds_of(genome, reads)
    backward = seeds_of(genome, [opposite(read) for read in reads])
    for i in range(len(reads)):
        swapped = {(1 - strand, diagonal) for strand, diagonal in found_of(backward, i)}
        assert set(found_of(forward, i)) == swapped
    assert len(forward.strand) > 80


def test_a_read_and_a_reversed_genome_give_mirrored_seeds() -> None:
    rng = np.random.default_rng(5)
    contig = "".join(mutated(rng, random_letters(rng, 80), 0.05) for _ in range(6)) * 2
    there, back = genome_of([contig]), genome_of([opposite(contig)])
    reads = [mutated(rng, contig[at : at + 70], 0.05) for at in range(0, 800, 23)]
    seeds, mirrored = seeds_of(there, reads), seeds_of(back, reads)
    for i, read in enumerate(reads):
        expected = {(1 - s, len(contig) - d - len(read)) for s, d in found_of(mirrored, i)}
        assert set(found_of(seeds, i)) == expected


@pytest.mark.parametrize("read_len", [24, 25, 47, 60, 150])
def test_pigeonhole(read_len: int) -> None:
    """A locus with fewer mismatches than disjoint seeds is among the hits."""
    rng = np.random.default_rng(read_len)
    seed_len = EVERYTHING.seed_len
    n_seeds = int(n_disjoint(read_len, seed_len))
    starts = [int(disjoint_start(read_len, seed_len, n_seeds, i)) for i in range(n_seeds)]
    assert starts[0] == 0 and starts[-1] == read_len - seed_len
    assert all(b - a >= seed_len for a, b in pairwise(starts))
    contig = random_letters(rng, 12_000)
    genome = genome_of([contig])
    reads, planted = [], []
    for _ in range(60):
        at = int(rng.integers(0, len(contig) - read_len))
        read = list(contig[at : at + read_len])
        # One mismatch in each seed but one: the worst case.
        spared = int(rng.integers(n_seeds))
        for start in [s for i, s in enumerate(starts) if i != spared]:
            where = start + int(rng.integers(seed_len))
            read[where] = str(rng.choice([c for c in "ACGT" if c != read[where]]))
        strand = int(rng.integers(2))
        reads.append(oriented("".join(read), strand))
        planted.append((strand, at))
    seeds = seeds_of(genome, reads)
    for i, place in enumerate(planted):
        assert place in found_of(seeds, i), (reads[i], place)


def test_a_second_look_does_not_forget_the_first() -> None:
    """One seed of round 1 occurs; round 2 has other starts, and hits only another locus."""
    rng = np.random.default_rng(6)
    params = EVERYTHING._replace(dense_step=4)
    seed_len = params.seed_len
    read = random_letters(rng, 50)
    n = int(n_disjoint(50, seed_len))
    starts = [int(disjoint_start(50, seed_len, n, i)) for i in range(n)]
    start = next(s for s in starts if s % 4)
    other = next(s for s in range(0, 39, 4) if all(abs(s - t) > 0 for t in starts))
    flip = str.maketrans("ACGT", "CGTA")

    def only(first: int) -> str:
        """Return the read with a mismatch in every seed but one."""
        end = first + seed_len
        return read[:first].translate(flip) + read[first:end] + read[end:].translate(flip)

    contig = random_letters(rng, 300) + only(start) + random_letters(rng, 300) + only(other)
    seeds = seeds_of(genome_of([contig]), [read], params)
    assert (0, 300) in found_of(seeds, 0)


def test_ambiguous_bases_never_seed() -> None:
    rng = np.random.default_rng(8)
    left, right = random_letters(rng, 40), random_letters(rng, 40)
    genome = genome_of([left + "N" + right, "N" * 100, left + "R" + right])
    assert found_of(seeds_of(genome, ["N" * 80]), 0) == []
    assert found_of(seeds_of(genome, ["NACGTRACGTN" * 8]), 0) == []
    spanning = left[-10:] + "N" + right[:10]
    params = EVERYTHING._replace(last_len=11)
    for letters in (spanning, spanning.replace("N", "A"), spanning.replace("N", "R")):
        assert found_of(seeds_of(genome, [letters], params), 0) == []
    # No read base matches the base by which the index replaced an N.
    for base in "ACGT":
        read = left[-15:] + base + right[:15]
        for i in range(seeds_of(genome, [read]).seed_offsets[1]):
            seeds = seeds_of(genome, [read])
            start, end = seeds.query_start[i], seeds.query_start[i] + seeds.seed_len[i]
            assert not start <= 15 < end


def test_reads_with_a_bad_base_in_the_middle_seed_on_both_sides() -> None:
    rng = np.random.default_rng(9)
    contig = random_letters(rng, 500)
    read = contig[200:230] + "N" + contig[231:260]
    genome = genome_of([contig])
    assert found_of(seeds_of(genome, [read, opposite(read)]), 0) == [(0, 200)]
    alone = contig[200:212] + "N" * 30
    assert (0, 200) in found_of(seeds_of(genome, [alone]), 0)
    assert (1, 200 - 30) in found_of(seeds_of(genome, [opposite(alone)]), 0) or (
        1, 200) in found_of(seeds_of(genome, [opposite(alone)]), 0)  # fmt: skip


def test_short_empty_and_no_reads() -> None:
    genome = genome_of(["ACGTTGCAAGCTTACGGATCCA" * 4])
    seeds = seeds_of(genome, ["", "A", "ACGTTGCA", "N", ""])
    assert seeds.seed_offsets.tolist() == [0] * 6
    nothing = seeds_of(genome, [])
    assert nothing.seed_offsets.tolist() == [0]
    params = EVERYTHING._replace(last_len=8)
    assert found_of(seeds_of(genome, ["ACGTTGCA"], params), 0) != []


def test_too_frequent_reads_are_placed_all_the_same() -> None:
    rng = np.random.default_rng(10)
    word = random_letters(rng, 60)
    genome = genome_of(["".join(word + random_letters(rng, 3) for _ in range(300))])
    params = EVERYTHING._replace(max_occ=16, max_hits=40)
    seeds = seeds_of(genome, [word, opposite(word)], params)
    for i, strand in enumerate((0, 1)):
        found = found_of(seeds, i)
        assert 0 < len(found) <= 40
        for found_strand, diagonal in found:
            assert found_strand == strand
            assert genome.text[diagonal:].startswith(word)


def test_a_batch_is_its_reads() -> None:
    rng = np.random.default_rng(11)
    genome = repeat_genome(rng)
    reads = sampled_reads(rng, genome, 40, 0.05)
    params = resolve(SeedParams(), len(genome.text))
    together = seeds_of(genome, reads, params)
    for i, read in enumerate(reads):
        alone = seeds_of(genome, [read], params)
        assert found_of(alone, 0) == found_of(together, i)
        assert alone.guarantee[0] == together.guarantee[i]
        assert alone.thinned[0] == together.thinned[i]


def test_reads_that_are_not_chosen_have_no_seeds() -> None:
    rng = np.random.default_rng(12)
    genome = repeat_genome(rng)
    reads = sampled_reads(rng, genome, 40, 0.02)
    batch, packed = packed_reads(reads)
    chosen = rng.random(len(reads)) < 0.4
    every = seed_reads(genome.fm, batch, packed, EVERYTHING)
    some = seed_reads(genome.fm, batch, packed, EVERYTHING, chosen=chosen)
    assert 0 < len(some.strand) < len(every.strand)
    for i in range(len(reads)):
        assert found_of(some, i) == (found_of(every, i) if chosen[i] else [])
    assert (some.guarantee == np.where(chosen, every.guarantee, 0)).all()


def test_lengths_grow_with_the_text_and_given_ones_stay() -> None:
    lengths = [resolve(SeedParams(), 10**e) for e in range(1, 11)]
    assert all(a.seed_len <= b.seed_len and a.last_len <= b.last_len
               for a, b in pairwise(lengths))  # fmt: skip
    assert all(p.last_len < p.seed_len for p in lengths)
    given = resolve(SeedParams(seed_len=31, last_len=17), 10**6)
    assert (given.seed_len, given.last_len) == (31, 17)


@pytest.mark.parametrize("extend_over", [2, 8, 10**9])
@pytest.mark.parametrize("max_hits", [6, 256])
def test_places_with_fewer_differences_than_guaranteed_are_found(
    extend_over: int, max_hits: int
) -> None:
    """In a genome of near copies, where lengthened seeds hide most of them."""
    rng = np.random.default_rng(9)
    word = random_letters(rng, 120)
    genome = genome_of(
        ["".join(mutated(rng, word, 0.04) + random_letters(rng, 7) for _ in range(12))]
    )
    text = np.frombuffer(genome.text.encode(), np.uint8)
    params = SeedParams(seed_len=12, last_len=9, extend_over=extend_over, max_occ=20,
                        max_hits=max_hits)  # fmt: skip
    reads = [oriented(mutated(rng, genome.text[at : at + 90], 0.01), int(rng.integers(2)))
             for at in rng.integers(0, len(text) - 90, 120)]  # fmt: skip
    seeds = seeds_of(genome, reads, params)
    n_promised = 0
    for i, read in enumerate(reads):
        found = set(found_of(seeds, i))
        for strand in (0, 1):
            letters = np.frombuffer(oriented(read, strand).encode(), np.uint8)
            windows = np.lib.stride_tricks.sliding_window_view(text, len(letters))
            differences = (windows != letters).sum(axis=1)
            near = np.flatnonzero(differences < seeds.guarantee[i])
            assert {(strand, int(at)) for at in near} <= found
            n_promised += len(near)
    assert n_promised > 30
    assert seeds.thinned.any() == (extend_over < 12 or max_hits < 12)


@pytest.mark.parametrize("look", [SeedParams(), SECOND_LOOK])
def test_a_read_within_a_microsatellite_is_located_there(look: SeedParams) -> None:
    """Though it has so many places there, and seeds of imperfect copies, reversed, have fewer."""
    rng = np.random.default_rng(10)
    perfect = "TTTG" * 100
    imperfect = [mutated(rng, "CAAA" * 9, 0.04) for _ in range(40)]
    around = random_letters(rng, 500), random_letters(rng, 500)
    genome = genome_of([perfect.join(around), random_letters(rng, 40).join(imperfect)])
    params = resolve(look, len(genome.text))
    seeds = seeds_of(genome, [perfect[2:152], perfect[1:131] + random_letters(rng, 20)], params)
    for i in range(2):
        assert any(strand == 0 and 500 <= at < 900 for strand, at in found_of(seeds, i))


@pytest.mark.parametrize("n_errors", [0, 1, 4])
def test_seeds_of_unique_reads_are_placed_by_comparison(n_errors: int) -> None:
    """Most seeds of unique reads are compared with the text, not searched to their end."""
    rng = np.random.default_rng(12)
    genome = genome_of([random_letters(rng, 3000), random_letters(rng, 200)])
    params = resolve(SeedParams(), len(genome.text))
    reads, places = [], []
    for _ in range(200):
        at = int(rng.choice([0, 2850, 3001, 3051, rng.integers(0, 2850)]))
        letters = list(genome.text[at : at + 150])
        for i in rng.choice(150, n_errors, replace=False):
            letters[i] = {"A": "C", "C": "G", "G": "T", "T": "A"}[letters[i]]
        strand = int(rng.integers(2))
        reads.append(oriented("".join(letters), strand))
        places.append((strand, at))
    seeds = seeds_of(genome, reads, params)
    for i, place in enumerate(places):
        assert place in found_of(seeds, i)
        if n_errors == 0:
            row = seeds.seed_offsets[i]
            assert (seeds.query_start[row], seeds.seed_len[row]) == (
                0 if place[0] == 0 else 150 - params.seed_len,
                params.seed_len,
            )
    assert (seeds.guarantee == 150 // params.seed_len).all()


def test_the_second_look_finds_what_shares_one_short_run_of_bases() -> None:
    """Its seeds start every third base: a run three bases short of two seeds is in one of them."""
    rng = np.random.default_rng(13)
    genome = genome_of([random_letters(rng, 5000)])
    params = resolve_all(MapParams(), len(genome.text))
    first, again = params.seed, params.second_look
    assert again.seed_len <= first.seed_len
    run = again.seed_len + again.dense_step - 1
    n_missed = 0
    for _ in range(100):
        at = int(rng.integers(0, len(genome.text) - 100))
        begin = int(rng.integers(0, 100 - run))
        letters = list(genome.text[at : at + 100])
        # Beside the run, differences leave nothing that any seed of the last resort would find.
        for i in [*range(begin - 1, -1, -5), *range(begin + run, 100, 5)]:
            letters[i] = "CGTA"["ACGT".index(letters[i])]
        read = oriented("".join(letters), int(rng.integers(2)))
        seeds = seeds_of(genome, [read], again)
        assert at in {text_pos for _, text_pos in found_of(seeds, 0)}
        n_missed += len(seeds_of(genome, [read], first._replace(last_len=99)).strand) == 0
    assert n_missed > 20  # by the first look, where no last round helps
