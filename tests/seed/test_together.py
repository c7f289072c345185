"""Seeds of several reads searched together: the same as of each read alone, as a device does."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.batch import PackedReads, ReadBatch, SeedBatch
from mapper.jit.lanes import ONE_LANE
from mapper.params import IndexParams, SeedParams
from mapper.seed.cpu import seed_reads
from mapper.seed.rounds import most_seeds, seed_read
from mapper.seed.together import READS_TOGETHER, ROWS_TOGETHER
from tests.helpers.read_batches import Genome, genome_of, mutated, packed_reads, random_letters
from tests.helpers.seed_searches import scratch_of
from tests.naive.seeds import oriented

SEED_LEN = 12
PARAMS = {
    "all": SeedParams(SEED_LEN, extend_over=10**9, max_occ=10**4, max_hits=4000, last_len=9),
    "usual": SeedParams(SEED_LEN, last_len=9),
    "little room": SeedParams(SEED_LEN, extend_over=2, max_occ=3, max_hits=5, last_len=9),
    "one of each": SeedParams(SEED_LEN, extend_over=1, max_occ=1, max_hits=1, last_len=9),
    "overlapping": SeedParams(SEED_LEN, dense_step=3, last_len=9, first_round=1),
    "few that overlap": SeedParams(
        SEED_LEN, extend_over=2, max_occ=3, max_hits=5, dense_step=5, last_len=9, first_round=1
    ),
}
Seeds = tuple[list[tuple[int, ...]], int, bool]


def alone(genome: Genome, batch: ReadBatch, packed: PackedReads, params: SeedParams) -> list[Seeds]:
    """Return the seeds, guarantee and thinned of each read by the text that devices run."""
    found: list[Seeds] = []
    for i in range(batch.n_reads):
        start, end = batch.base_offsets[i : i + 2]
        scratch = scratch_of([(0, 0, 0, 0, 0)] * most_seeds(int(end - start)), params.max_hits)
        n, guarantee, thinned = seed_read(
            genome.fm, None, batch.bases, start, end, packed.planes, packed.word_offsets[i], params,
            params.max_hits, scratch, None, ONE_LANE,
        )  # fmt: skip
        diagonals, seeds = scratch.diag[:n], scratch.diag_seed[:n]
        rows = zip(
            (diagonals & 1).tolist(), (diagonals >> 1).tolist(), scratch.start[seeds].tolist(),
            scratch.length[seeds].tolist(), strict=True,
        )  # fmt: skip
        found.append((list(rows), int(guarantee), bool(thinned)))
    return found


def of_batch(seeds: SeedBatch) -> list[Seeds]:
    found: list[Seeds] = []
    for i, (first, end) in enumerate(
        zip(seeds.seed_offsets[:-1], seeds.seed_offsets[1:], strict=True)
    ):
        rows = zip(
            seeds.strand[first:end].tolist(),
            (seeds.text_pos[first:end] - seeds.query_start[first:end]).tolist(),
            seeds.query_start[first:end].tolist(), seeds.seed_len[first:end].tolist(), strict=True,
        )  # fmt: skip
        found.append((list(rows), int(seeds.guarantee[i]), bool(seeds.thinned[i])))
    return found


def many_reads(rng: np.random.Generator, text: str) -> list[str]:
    """Return reads from nothing to more seeds than a group holds, some with ambiguous bases."""
    too_long = (ROWS_TOGETHER // 2 + 1) * SEED_LEN
    lengths = [*rng.integers(0, 200, 12 * READS_TOGETHER), 0, 1, SEED_LEN, too_long, too_long - 1]
    reads = []
    for length in rng.permutation(lengths).tolist():
        at = int(rng.integers(0, len(text) - length + 1))
        read = mutated(rng, text[at : at + length].replace("N", "A"), rng.choice([0.0, 0.03, 0.2]))
        if rng.random() < 0.2 and read:
            cut = int(rng.integers(len(read)))
            read = read[:cut] + "N" + read[cut + 1 :]
        reads.append(oriented(read, int(rng.integers(2))))
    return reads


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize(("kmer_len", "sampling"), [(0, 1), (6, 4), (11, 4)])
def test_seeds_are_those_of_each_read_alone(name: str, kmer_len: int, sampling: int) -> None:
    rng = np.random.default_rng(kmer_len)
    words = [random_letters(rng, 300) for _ in range(4)]
    contigs = ["".join(mutated(rng, words[rng.integers(4)], 0.05) for _ in range(8)) for _ in "abc"]
    contigs += [random_letters(rng, 3000), "AC" * 60 + "N" * 9 + "A" * 80]
    genome = genome_of(contigs, IndexParams(kmer_len=kmer_len, sa_sampling=sampling))
    reads = many_reads(rng, genome.text)
    batch, packed = packed_reads(reads)
    expected = alone(genome, batch, packed, PARAMS[name])
    assert of_batch(seed_reads(genome.fm, batch, packed, PARAMS[name])) == expected
    assert sum(len(rows) for rows, _, _ in expected) > len(reads) // 2
    # Which reads are searched together is of no effect, nor are those that are left out.
    order = rng.permutation(len(reads))
    chosen = rng.random(len(reads)) < 0.5
    batch, packed = packed_reads([reads[i] for i in order])
    found = of_batch(seed_reads(genome.fm, batch, packed, PARAMS[name], chosen=chosen))
    nothing: Seeds = ([], 0, False)
    assert found == [
        expected[i] if is_chosen else nothing for i, is_chosen in zip(order, chosen, strict=True)
    ]
