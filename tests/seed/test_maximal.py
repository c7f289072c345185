"""Anchors of long reads: maximal exact matches, all that sampled windows promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.batch import AnchorBatch
from mapper.jit.accelerate import driver
from mapper.jit.lanes import ONE_LANE
from mapper.params import AnchorParams, IndexParams
from mapper.seed.cpu import find_anchors
from mapper.seed.maximal import anchor_key, anchor_of, drop_duplicates, sort_together
from tests.helpers.read_batches import Genome, genome_of, mutated, packed_reads, random_letters
from tests.naive.seeds import occurrences, oriented

PARAMS = AnchorParams(seed_len=12, step=5, least_windows=1, extend_over=4, max_occ=10)


def anchors_of(genome: Genome, sequences: list[str], params: AnchorParams = PARAMS) -> AnchorBatch:
    reads, packed = packed_reads(sequences)
    return find_anchors(genome.fm, reads, packed, params)


def rows_of(anchors: AnchorBatch, i: int) -> list[tuple[int, int, int, int]]:
    rows = slice(*anchors.anchor_offsets[i : i + 2])
    columns = anchors.strand, anchors.query_start, anchors.text_pos, anchors.length
    return list(zip(*(column[rows].tolist() for column in columns), strict=True))


def maximal_matches(text: str, read: str, least: int) -> set[tuple[int, int, int, int]]:
    """(strand, query_start, text_pos, length) of every maximal match, by comparing diagonals."""
    found = set()
    for strand in (0, 1):
        query = oriented(read, strand)
        for diagonal in range(-len(query), len(text)):
            run = 0
            for i in range(max(0, -diagonal), len(query) + 1):
                j = i + diagonal
                same = i < len(query) and j < len(text) and query[i] == text[j] in "ACGT"
                if same:
                    run += 1
                    continue
                if run >= least:
                    found.add((strand, i - run, j - run, run))
                run = 0
    return found


@pytest.fixture(scope="module", params=[0, 6])
def genome(request: pytest.FixtureRequest) -> Genome:
    rng = np.random.default_rng(1)
    repeat = random_letters(rng, 60)
    contigs = [
        "".join(random_letters(rng, 150) + mutated(rng, repeat, 0.05) for _ in range(4)),
        random_letters(rng, 130) + "NNN" + random_letters(rng, 90) + repeat,
        "ACGTACGTTT",
    ]
    return genome_of(contigs, IndexParams(kmer_len=request.param))


def sampled(rng: np.random.Generator, genome: Genome, rate: float) -> list[str]:
    reads = ["", "A", "N" * 40, random_letters(rng, 11), random_letters(rng, 300)]
    for _ in range(8):
        start = int(rng.integers(0, len(genome.text) - 200))
        read = genome.text[start : start + int(rng.integers(12, 200))].replace("N", "A")
        read = mutated(rng, read, rate)
        at = int(rng.integers(len(read)))
        if rng.random() < 0.5:
            read = read[:at] + "NR" + read[at + 2 :]
        reads.append(oriented(read, int(rng.integers(2))))
    return reads


@pytest.mark.parametrize("rate", [0.0, 0.03, 0.1])
def test_anchors_are_maximal_matches_and_none_that_is_rare_is_missed(
    genome: Genome, rate: float
) -> None:
    reads = sampled(np.random.default_rng(2), genome, rate)
    anchors = anchors_of(genome, reads)
    n_missed = 0
    for i, read in enumerate(reads):
        found = rows_of(anchors, i)
        ordered = sorted(found, key=lambda row: (row[0], row[2] + row[3], row[1] + row[3]))
        assert found == ordered
        assert len(set(found)) == len(found)
        possible = maximal_matches(genome.text, read, PARAMS.seed_len)
        assert set(found) <= possible
        for match in possible - set(found):
            strand, query_start, _, length = match
            if length < PARAMS.seed_len + PARAMS.step - 1:
                n_missed += 1
                continue
            # A window in it must have been frequent.
            letters = oriented(read, strand)[query_start : query_start + length]
            windows = [letters[j : j + 12] for j in range(length - 11)]
            often = [len(occurrences(genome.text, w)) > PARAMS.extend_over for w in windows]
            assert any(often), match
    assert n_missed < sum(len(rows_of(anchors, i)) for i in range(len(reads)))


def test_frequent_windows_are_counted() -> None:
    rng = np.random.default_rng(3)
    unit = random_letters(rng, 40)
    genome = genome_of(["".join(random_letters(rng, 20) + unit for _ in range(30))])
    anchors = anchors_of(genome, [unit, random_letters(rng, 40)])
    assert anchors.frequent.tolist()[1] == 0
    assert anchors.frequent[0] >= 30  # PARAMS.step for each window
    assert rows_of(anchors, 0) == []


def test_short_reads_have_windows_at_every_base() -> None:
    rng = np.random.default_rng(4)
    text = random_letters(rng, 500)
    genome = genome_of([text])
    params = AnchorParams(seed_len=12, step=32, least_windows=96)
    for start in range(10):  # a match of 12 bases anywhere in a read of 60
        read = random_letters(rng, start) + text[200:212] + random_letters(rng, 48 - start)
        found = rows_of(anchors_of(genome, [read], params), 0)
        assert any(q <= start and q + n >= start + 12 and s == 0 for s, q, _, n in found)


# --- the order of anchors, by lanes ---


@driver
def _sort(keys, lengths):
    sort_together(keys, lengths, len(keys), ONE_LANE)
    return drop_duplicates(keys, lengths, len(keys), ONE_LANE)


@driver
def _key_and_back(strand, text_pos, query_start, length):
    return anchor_of(anchor_key(strand, text_pos, query_start, length), length)


@given(st.lists(st.integers(0, 60), max_size=70))
def test_distinct_anchors_are_sorted(numbers: list[int]) -> None:
    keys = np.array(numbers, np.int64) << 40
    lengths = np.array(numbers, np.int32) + 5
    expected = sorted(set(numbers))
    n = _sort(keys, lengths)
    assert (keys[:n] >> 40).tolist() == expected
    assert lengths[:n].tolist() == [number + 5 for number in expected]


@given(
    st.integers(0, 1), st.integers(0, (1 << 35) - (1 << 27)), st.integers(0, 1 << 20),
    st.integers(1, 1 << 26),
)  # fmt: skip
def test_keys_hold_anchors(strand: int, text_pos: int, query_start: int, length: int) -> None:
    found = _key_and_back(strand, text_pos, query_start, length)
    assert found == (strand, query_start, text_pos)
