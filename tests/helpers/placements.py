"""Alignments without sequences, as objects for the oracle and as a batch for the stages."""

from __future__ import annotations

import numpy as np

from mapper.batch import AlignmentBatch, ReadBatch, SeedBatch
from mapper.index.reference import NO_GROUPS
from mapper.pair.insert_size import InsertSizeModel
from mapper.pair.placement import PlacementBatch, place_reads
from mapper.params import ExtendParams, PairParams
from tests.helpers.alignment_views import Aligned, batch_of
from tests.helpers.read_batches import offsets_of
from tests.naive.pairing import Model, Placed


def batch_of_placed(reads: list[list[Placed]], edit_distance: int = 0) -> AlignmentBatch:
    return batch_of(
        [
            [
                Aligned(*p[:2], p.start, p.end, p.query_start, p.query_end, p.score,
                        edit_distance, f"{p.end - p.start}=")
                for p in read
            ]
            for read in reads
        ]
    )  # fmt: skip


def base_offsets_of(reads: list[list[Placed]], read_len: int = 100) -> np.ndarray:
    return offsets_of([read[0].read_len if read else read_len for read in reads])


def naive_model(model: InsertSizeModel) -> Model:
    return Model(dict(zip(range(model.low, model.high + 1), model.penalty.tolist(), strict=True)))


def no_seeds(n_reads: int) -> SeedBatch:
    """Return a SeedBatch of reads without seeds."""
    return SeedBatch(
        seed_offsets=np.zeros(n_reads + 1, np.int64),
        strand=np.empty(0, np.uint8),
        query_start=np.empty(0, np.int32),
        text_pos=np.empty(0, np.int64),
        seed_len=np.empty(0, np.int32),
        guarantee=np.zeros(n_reads, np.int32),
        thinned=np.zeros(n_reads, np.bool_),
    )


def place(
    reads: ReadBatch, seeds: SeedBatch, alignments: AlignmentBatch, model: InsertSizeModel,
    groups: np.ndarray = NO_GROUPS,
) -> PlacementBatch:  # fmt: skip
    """Run the placement stage at its defaults, for a text of 5 Mbp."""
    return place_reads(
        reads, seeds, alignments, model, PairParams(), ExtendParams(), 5_000_000, groups
    )


def random_read(
    rng: np.random.Generator, n: int, scores: tuple[int, ...], read_len: int = 100
) -> list[Placed]:
    """Return n alignments, best first, of clipped reads at distinct positions that can pair."""
    places = set()
    while len(places) < n:
        places.add((int(rng.integers(2)), int(rng.integers(2)), int(rng.integers(0, 1500))))
    read = []
    for strand, ref_id, start in places:
        query_start = int(rng.integers(0, 10))
        query_end = read_len - int(rng.integers(0, 10))
        start += 5000 * ref_id
        end = start + query_end - query_start
        score = int(rng.choice(scores))
        read.append(Placed(strand, ref_id, start, end, query_start, query_end, score, read_len))
    return sorted(read, key=lambda p: -p.score)
