"""Which reads are looked at a second time, and what that finds."""

from __future__ import annotations

import numpy as np

from mapper.extend.doubt import doubtful_reads, hidden_score, score_by_differences
from mapper.mapping.stages import align_reads
from mapper.mapping.stats import RunStats
from mapper.params import ExtendParams, MapParams
from mapper.seed.exact import resolve_both
from tests.helpers.alignment_views import Aligned, batch_of
from tests.helpers.read_batches import genome_of, random_letters, reads_of
from tests.helpers.stage_batches import index_of

SCORES = ExtendParams()


def doubted(
    alignments: list[list[Aligned]], guarantee: list[int], paired: bool = False
) -> list[bool]:
    reads = reads_of(["A" * 100] * len(alignments), paired=paired)
    return doubtful_reads(
        reads, np.array(guarantee, np.int32), batch_of(alignments), SCORES
    ).tolist()


def of_mismatches(n: int) -> Aligned:
    score = SCORES.match * (100 - n) - SCORES.mismatch * n
    return Aligned(0, 0, 1000, 1100, 0, 100, score, n, "3=1X" * n + f"{100 - 4 * n}=")


def test_a_read_is_in_doubt_whose_differences_come_near_its_located_seeds() -> None:
    for n in range(6):
        reads, guarantees = [[of_mismatches(n)]] * 10, list(range(10))
        assert doubted(reads, guarantees) == [guarantee <= n + 1 for guarantee in guarantees]
        assert doubted(reads, guarantees, paired=True) == [g <= n for g in guarantees]
    assert doubted([[], [of_mismatches(0)]], [0, 9]) == [False, False]


def test_a_long_gap_is_few_differences() -> None:
    score = SCORES.match * 75 - (SCORES.gap_open + 25 * SCORES.gap_extend)
    gapped = Aligned(0, 0, 1000, 1075, 0, 100, score, 25, "40=25I35=")
    found = batch_of([[gapped]])
    assert score < hidden_score(100, 6, SCORES.match, SCORES.mismatch)  # by its score alone
    assert score_by_differences(found, 0, SCORES.match, SCORES.mismatch) == 100 - 2 * 5
    assert doubted([[gapped]], [4]) == [False]
    assert doubted([[gapped._replace(text_end=1100, cigar="40=25X35=")]], [4]) == [True]


def test_the_second_look_finds_the_copy_that_the_first_has_missed() -> None:
    """A read that shares no seed of the first look with its place, but two with a worse copy."""
    rng = np.random.default_rng(5)
    template = random_letters(rng, 100)
    params = resolve_both(MapParams(), 4000)
    length = params.seed.seed_len

    def with_differences(letters: str, places: list[int]) -> str:
        changed = list(letters)
        for i in places:
            changed[i] = "CGTA"["ACGT".index(changed[i])]
        return "".join(changed)

    n_seeds = 100 // length
    starts = [i * (100 - length) // (n_seeds - 1) for i in range(n_seeds)]
    # One difference in each seed of the first look, at its end; and all but two of those seeds
    # full of them.
    near = with_differences(template, [start + length - 1 for start in starts])
    far = with_differences(template, [s + i for s in starts[2:] for i in (2, 6, 10)])
    contig = random_letters(rng, 1500) + near + random_letters(rng, 900) + far
    index = index_of(genome_of([contig + random_letters(rng, 1400)]))
    reads = reads_of([template])
    blind = params._replace(second_look=params.second_look._replace(max_occ=1, max_hits=0))
    for looks, place in ((params, 1500), (blind, 2500)):
        found = align_reads(index, reads, looks, RunStats()).alignments
        assert found.text_start[0] - found.query_start[0] == place
