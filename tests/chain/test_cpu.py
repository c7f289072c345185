"""Loci of seeds: their diagonals, and the contigs that bound them."""

from __future__ import annotations

import numpy as np

from mapper.batch import SeedBatch
from mapper.chain.cpu import find_loci
from tests.helpers.placements import no_seeds
from tests.helpers.read_batches import offsets_of


def seeds_at(per_read: list[list[tuple[int, int, int]]]) -> SeedBatch:
    """Return seeds of reads from (strand, start in the read, text position)."""
    flat = [seed for read in per_read for seed in read]
    columns = list(zip(*flat, strict=True)) if flat else [[], [], []]
    return no_seeds(len(per_read))._replace(
        seed_offsets=offsets_of([len(read) for read in per_read]),
        strand=np.array(columns[0], np.uint8),
        query_start=np.array(columns[1], np.int32),
        text_pos=np.array(columns[2], np.int64),
        seed_len=np.full(len(flat), 1, np.int32),
    )


def test_each_seed_gives_its_diagonal_and_its_contig() -> None:
    rng = np.random.default_rng(1)
    lengths = [1, 40, 7, 300, 2]
    starts = offsets_of([n + 1 for n in lengths])[:-1]  # a separator after each
    # Every position of every contig, and the contig it lies in.
    places = [
        (ref_id, int(start) + i)
        for ref_id, (start, n) in enumerate(zip(starts, lengths, strict=True))
        for i in range(n)
    ]
    reads, expected = [], []
    for read in np.array_split(rng.permutation(len(places)), 50):
        seeds = []
        for ref_id, text_pos in (places[i] for i in read):
            strand, query_start = int(rng.integers(2)), int(rng.integers(0, 150))
            seeds.append((strand, query_start, text_pos))
            bounds = (int(starts[ref_id]), int(starts[ref_id]) + lengths[ref_id])
            expected.append((strand, text_pos - query_start, ref_id, *bounds))
        reads.append(seeds)
    seeds = seeds_at([*reads, []])
    loci = find_loci(seeds, starts, np.array(lengths, np.int64))
    assert loci.locus_offsets.tolist() == seeds.seed_offsets.tolist()
    assert list(zip(*(column.tolist() for column in loci[1:]), strict=True)) == expected


def test_no_seeds_give_no_loci() -> None:
    loci = find_loci(seeds_at([[], []]), np.array([0]), np.array([10]))
    assert loci.locus_offsets.tolist() == [0, 0, 0]
    assert all(len(column) == 0 for column in loci[1:])
