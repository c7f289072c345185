"""k-mers with mismatches on the CPU against comparison with every window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper import dna
from mapper.index.build import build_fm
from mapper.index.fm import locate
from mapper.kmers.cpu import CpuKmerSearch, fit_table, table_len_for_work
from mapper.kmers.cut import cut_kmers
from mapper.kmers.hits import BUFFERED, LONG_ROW, StepMasks
from mapper.kmers.search import KmerQuery, table_index
from mapper.params import IndexParams, KmerParams
from tests.helpers.kmer_searches import (
    SearchAsOnDevice,
    bounds_of,
    genomes,
    letters_of,
    reads_from,
    run_search,
)
from tests.helpers.read_batches import genome_of, mutated, random_letters, reads_of
from tests.naive import kmers as naive


def searcher(genome, params, **options):
    return CpuKmerSearch(genome.fm, bounds_of(genome), params, **options)


@pytest.mark.medium
@settings(max_examples=80)
@given(st.data())
def test_matches_are_those_of_every_window(data):
    contigs = data.draw(genomes())
    reads = data.draw(reads_from(contigs))
    table = data.draw(st.sampled_from([None, 0, 1, 3, 5]))
    genome = genome_of(contigs, IndexParams(64, data.draw(st.sampled_from([1, 4])), table))
    kmer_len = data.draw(st.sampled_from([1, 2, 4, 5, 6, 8, 11, 20, 33, 64]))
    stride = data.draw(st.sampled_from([1, 2, 7]))
    most = data.draw(st.integers(0, 2))
    max_hits = data.draw(st.sampled_from([1, 3, 20, 10**6]))
    params = KmerParams(kmer_len, most, max_hits, data.draw(st.sampled_from([0, 1, 4, 100])))
    capacity = data.draw(st.sampled_from([1, 10, 10**5]))
    found = run_search(
        genome, searcher(genome, params, list_capacity=capacity), reads, kmer_len, stride
    )
    assert found == naive.search(contigs, reads, kmer_len, stride, most, max_hits)


@pytest.mark.medium
@settings(max_examples=80)
@given(st.data())
def test_rows_are_ruled_out_by_contexts_and_searched_in_parts(data):
    """As on a device: rows that take many turns are deferred and searched in parts."""
    contigs = data.draw(genomes())
    reads = data.draw(reads_from(contigs))
    sampling, table = data.draw(st.sampled_from([1, 4])), data.draw(st.sampled_from([1, 3, 5]))
    genome = genome_of(contigs, IndexParams(64, sampling, table))
    kmer_len = data.draw(st.sampled_from([2, 5, 6, 11, 20, 33, 64]))
    most = data.draw(st.integers(1, 2))
    max_hits = data.draw(st.sampled_from([1, 3, 20, 10**6]))
    params = KmerParams(kmer_len, most, max_hits, data.draw(st.sampled_from([0, 1, 4, 64])))
    max_turns = data.draw(st.sampled_from([1, 5, 50, 10**4]))
    step_masks = data.draw(st.sampled_from([StepMasks(), StepMasks(7, 3, 1), StepMasks(0, 1, 3)]))
    search = SearchAsOnDevice(genome.fm, bounds_of(genome), params, max_turns, step_masks)
    found = run_search(genome, search, reads, kmer_len, 2)
    assert found == naive.search(contigs, reads, kmer_len, 2, most, max_hits)


def test_contexts_are_the_bases_around_each_suffix():
    rng = np.random.default_rng(2)
    genome = genome_of([random_letters(rng, 300), random_letters(rng, 90)], IndexParams(64, 4, 3))
    search = SearchAsOnDevice(genome.fm, bounds_of(genome), KmerParams(20, 1), 1, StepMasks())
    left_len, n_seen = 20 - 3, 0
    for row in range(genome.fm.n_rows):
        pos = int(locate(genome.fm, row))
        for side, start in ((0, pos - 16), (1, pos + left_len)):
            wanted = genome.text[max(start, 0) : start + 16].rjust(16, "A")
            if len(wanted) == 16 and "N" not in wanted:
                word = int(search.contexts[side, row])
                letters = "".join("ACGT"[(word >> i & 1) + 2 * (word >> 16 + i & 1)]
                                  for i in range(16))  # fmt: skip
                assert letters == wanted, (row, side)
                n_seen += 1
    assert n_seen > 600


def test_some_rows_are_searched_in_parts_and_some_are_not():
    rng = np.random.default_rng(9)
    unit = random_letters(rng, 60)
    contigs = [random_letters(rng, 500) + "".join(mutated(rng, unit, 0.1) for _ in range(40))]
    genome = genome_of(contigs, IndexParams(64, 4, 3))
    reads = [contigs[0][:40], contigs[0][1000:1040]]
    n_deferred = []
    for max_turns in (100, 10**6):
        params = KmerParams(16, 2, 50)
        search = SearchAsOnDevice(genome.fm, bounds_of(genome), params, max_turns, StepMasks())
        found = run_search(genome, search, reads, 16, 4)
        assert found == naive.search(contigs, reads, 16, 4, 2, 50)
        n_deferred.append(search.n_deferred)
    assert 0 < n_deferred[0] < 2 * 14
    assert n_deferred[1] == 0


def test_hits_of_skipped_kmers_take_no_room_in_the_list():
    contigs = ["AC" * 200 + "GATTACA"]
    genome = genome_of(contigs)
    for max_hits, room in ((BUFFERED - 1, 1), (10**6, 400)):
        search = searcher(genome, KmerParams(10, 0, max_hits), list_capacity=room)
        found = run_search(genome, search, ["ACACACACAC"], 10, 1)
        assert found == naive.search(contigs, ["ACACACACAC"], 10, 1, 0, max_hits)
        assert search.most_listed == (0 if room == 1 else 195)


@pytest.mark.medium
@pytest.mark.parametrize("most", [0, 1, 2])
@pytest.mark.parametrize("kmer_len", [9, 16])
def test_random_genome_with_repeats(most, kmer_len):
    rng = np.random.default_rng(20 * most + kmer_len)
    unit = random_letters(rng, 150)
    contigs = [
        random_letters(rng, 700) + unit + mutated(rng, unit, 0.1) + "N" * 5 + unit[:80],
        mutated(rng, unit, 0.05) + random_letters(rng, 300) + "AC" * 30,
    ]
    reads = [mutated(rng, contigs[0][start : start + 60], 0.04) for start in range(0, 1000, 97)]
    reads += [naive.opposite(mutated(rng, contigs[1][-100:], 0.02)), random_letters(rng, 50)]
    genome = genome_of(contigs)
    params = KmerParams(kmer_len, most, 40)
    found = run_search(genome, searcher(genome, params), reads, kmer_len, 3)
    expected = naive.search(contigs, reads, kmer_len, 3, most, 40)
    assert found == expected
    assert len({match.mismatches for match in expected[0]}) == most + 1


@given(
    st.lists(st.text("ACGTN", max_size=40), max_size=5),
    st.integers(1, 30), st.integers(1, 9), st.integers(1, 7),
)  # fmt: skip
def test_cutting_in_batches_of_any_size(reads, kmer_len, stride, max_kmers):
    cut, n_ambiguous = [], 0
    for kmers, ambiguous in cut_kmers(reads_of(reads), kmer_len, stride, max_kmers):
        assert kmers.n_kmers <= max_kmers
        cut += zip(kmers.read.tolist(), kmers.offset.tolist(), letters_of(kmers, kmer_len),
                   strict=True)  # fmt: skip
        n_ambiguous += ambiguous
    windows = [
        (read, offset, letters[offset : offset + kmer_len])
        for read, letters in enumerate(reads)
        for offset in range(0, len(letters) - kmer_len + 1, stride)
    ]
    assert cut == [window for window in windows if "N" not in window[2]]
    assert n_ambiguous == len(windows) - len(cut)


def test_the_table_is_no_longer_than_the_kmers():
    fm = build_fm(dna.encode("ACGGT" * 100), IndexParams(kmer_len=0))
    assert fit_table(fm, 2).kmer_len == 2
    assert 1 <= fit_table(fm, 40).kmer_len <= 12


def test_the_table_is_as_long_as_the_work_is_worth():
    fm = build_fm(dna.encode("ACGGT" * 100), IndexParams(kmer_len=2))._replace(n_rows=10**9)
    much = 10**12

    def length(kmer_len=30, most=2, n_kmers=10.0**9, free=much, fm=fm):
        return table_len_for_work(fm, KmerParams(kmer_len, most), n_kmers, free)

    assert length() == 15  # 4**15 entries are 1.1 a base
    assert length(fm=fm._replace(n_rows=5 * 10**8)) == 15
    assert length(fm=fm._replace(n_rows=4 * 10**8)) == 14
    assert length(kmer_len=10) == 10
    assert length(n_kmers=10.0**5) == 13
    assert length(n_kmers=0.0) == length(most=0) == length(free=0) == 2
    assert length(free=4 * 4**14) == 13


def test_a_row_of_many_hits_is_sorted():
    """Rows of more than LONG_ROW hits take the heap sort."""
    rng = np.random.default_rng(6)
    contigs = ["AC" * 200 + random_letters(rng, 50) + "AC" * 150 + "G"]
    genome = genome_of(contigs)
    found = run_search(genome, searcher(genome, KmerParams(10, 1, 10**6)), ["ACACACACAC"], 10, 1)
    assert found == naive.search(contigs, ["ACACACACAC"], 10, 1, 1, 10**6)
    assert len(found[0]) > LONG_ROW


def test_rows_of_64_bits():
    """As in an index of 2**32 bases and more, whose rows and positions are uint64."""
    rng = np.random.default_rng(7)
    contigs = [random_letters(rng, 300) + "ACGGT" * 8]
    genome = genome_of(contigs)
    wide = {
        name: getattr(genome.fm, name).astype(np.uint64) for name in ("sa_samples", "kmer_starts")
    }
    for column in wide.values():
        column.flags.writeable = False
    genome = genome._replace(fm=genome.fm._replace(**wide))
    reads = [mutated(rng, contigs[0][100:140], 0.05), contigs[0][-40:]]
    found = run_search(genome, searcher(genome, KmerParams(12, 2, 50)), reads, 12, 1)
    assert found == naive.search(contigs, reads, 12, 1, 2, 50)


@settings(max_examples=300)
@given(st.text("ACGT", min_size=1, max_size=64), st.data())
def test_a_table_of_up_to_16_bases_is_looked_up(letters, data):
    """Its indexes take all 32 bits; a search lengthens its table as far as memory allows."""
    start = data.draw(st.integers(0, len(letters) - 1))
    length = data.draw(st.integers(1, min(16, len(letters) - start)))
    assert looked_up(letters, start, length) == naive_index(letters[start : start + length])


@pytest.mark.parametrize("letters", ["G" + 15 * "A", 16 * "T", "GATTACAGATTACAGC"])
def test_the_longest_indexes(letters):
    assert looked_up(letters, 0, 16) == naive_index(letters) >= 1 << 31


def looked_up(letters: str, start: int, length: int) -> int:
    codes = dna.encode(letters)
    low, high = (sum(((int(c) >> plane) & 1) << i for i, c in enumerate(codes)) for plane in (0, 1))
    query = KmerQuery(np.uint64(low), np.uint64(high), np.uint64(0), np.uint64(0))
    return int(table_index(query, start, length))


def naive_index(letters: str) -> int:
    return sum("ACGT".index(c) << 2 * i for i, c in enumerate(reversed(letters)))
