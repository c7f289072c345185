"""The search core on built indexes, against the definitions in tests/naive/fm.py.

k-mer tables and suffix arrays expanded after opening equal those of the build.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper import dna
from mapper.index import fm as core
from mapper.index.build import build_fm
from mapper.index.fm import FMIndex, fill_from_sample, with_table
from mapper.params import IndexParams
from tests.helpers.read_batches import random_letters
from tests.naive import fm as naive


@pytest.mark.parametrize("own", [0, 2, 5])
@pytest.mark.parametrize("wanted", [0, 1, 4, 6])
def test_a_table_of_another_length_is_the_one_built_so(own, wanted):
    text = dna.encode(random_letters(np.random.default_rng(1), 3000) + "NNN" + "A" * 20 + "N")
    made = with_table(build_fm(text.copy(), IndexParams(kmer_len=own)), wanted)
    built = build_fm(text.copy(), IndexParams(kmer_len=wanted))
    assert made.kmer_len == built.kmer_len == wanted
    assert made.kmer_starts.dtype == built.kmer_starts.dtype
    assert np.array_equal(made.kmer_starts, built.kmer_starts)


@pytest.mark.parametrize("sa_sampling", [1, 4, 64, 1024])
@pytest.mark.parametrize("n", [1, 63, 5000])
def test_the_expanded_suffix_array_is_the_one_built_so(sa_sampling, n):
    text = dna.encode(random_letters(np.random.default_rng(n), n) + "A" * 7 + "N")
    sampled = build_fm(text.copy(), IndexParams(sa_sampling=sa_sampling))
    full = build_fm(text.copy(), IndexParams(sa_sampling=1))
    expanded = np.full(sampled.n_rows, sampled.n_rows, sampled.sa_samples.dtype)
    for sample in range(len(sampled.sa_samples)):
        fill_from_sample(sampled, sample, expanded)
    assert np.array_equal(expanded, full.sa_samples)


PARAMS = st.builds(
    IndexParams,
    occ_spacing=st.sampled_from([64, 128, 256]),
    sa_sampling=st.sampled_from([1, 2, 4, 32]),
    kmer_len=st.sampled_from([None, 0, 1, 3, 5]),
)


@st.composite
def texts(draw: st.DrawFn) -> np.ndarray:
    """Contigs of few words (so that they repeat), N runs, and a separator after each."""
    word = st.one_of(
        st.text("ACGT", min_size=1, max_size=12),
        st.text("AC", min_size=1, max_size=4),
        st.integers(1, 70).map(lambda n: "N" * n),
        st.sampled_from(["A" * 40, "ACG" * 30, "R", "T" * 64]),
    )
    words = draw(st.lists(word, min_size=1, max_size=3))
    contig = st.lists(st.sampled_from(words), min_size=1, max_size=6).map("".join)
    contigs = draw(st.lists(contig, min_size=1, max_size=3))
    return dna.encode("".join(f"{letters}N" for letters in contigs))


def indexed(given_text: np.ndarray, params: IndexParams) -> tuple[FMIndex, bytes]:
    """Return the index and its text, with ambiguous bases replaced."""
    text = given_text.copy()
    fm = build_fm(text, params)
    return fm, text.tobytes()


def interval(fm: FMIndex, query: bytes) -> tuple[int, int]:
    """Search as the mapper does: table first, then base by base."""
    rest = len(query) - fm.kmer_len
    if fm.kmer_len and rest >= 0:
        kmer = 0
        for code in query[rest:]:
            kmer = kmer * 4 + code
        lo, hi = core.kmer_interval(fm, kmer)
    else:
        rest = len(query)
        lo, hi = 0, fm.n_rows
    for code in reversed(query[:rest]):
        lo, hi = core.extend_left(fm, code, lo, hi)
    return lo, hi


@pytest.mark.medium
@given(texts(), PARAMS)
def test_occ_lf_and_locate_are_the_naive_ones(given_text: np.ndarray, params: IndexParams) -> None:
    fm, text = indexed(given_text, params)
    suffixes, transform = naive.suffix_array(text), naive.bwt(text)
    assert fm.n_rows == len(text) + 1
    assert fm.primary == suffixes.index(0)
    for code in range(4):
        first = 1 + sum(base < code for base in text)
        assert fm.first_row[code] == first
        for row in range(fm.n_rows + 1):
            assert core.occ(fm, code, row) == naive.occ(transform, code, row)
    row_of = {start: row for row, start in enumerate(suffixes)}
    for row, start in enumerate(suffixes):
        assert core.locate(fm, row) == start
        if start:
            assert core.lf(fm, row) == row_of[start - 1]


@pytest.mark.medium
@given(texts(), PARAMS, st.data())
def test_a_planted_substring_is_found_everywhere_it_is(
    given_text: np.ndarray, params: IndexParams, data: st.DataObject
) -> None:
    fm, text = indexed(given_text, params)
    start = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(1, min(40, len(text) - start)))
    query = text[start : start + length]
    lo, hi = interval(fm, query)
    located = sorted(core.locate(fm, row) for row in range(lo, hi))
    # The table may add suffixes shorter than k: their hits exceed the text.
    inside = [pos for pos in located if pos + length <= len(text)]
    assert inside == naive.find_all(text, query)
    clean = [pos for pos in located if core.clean_hit(fm, pos, length)]
    assert clean == naive.find_all(given_text.tobytes(), query)


@pytest.mark.medium
@given(texts(), PARAMS)
def test_kmer_table_holds_the_first_row_of_every_kmer(
    given_text: np.ndarray, params: IndexParams
) -> None:
    fm, text = indexed(given_text, params)
    if fm.kmer_len == 0:
        assert len(fm.kmer_starts) == 1
        return
    step = max(1, 4**fm.kmer_len // 64)
    for kmer in range(0, 4**fm.kmer_len, step):
        letters = bytes(kmer >> 2 * (fm.kmer_len - 1 - i) & 3 for i in range(fm.kmer_len))
        assert fm.kmer_starts[kmer] == naive.first_row_from(text, letters)
    assert fm.kmer_starts[-1] == fm.n_rows


@pytest.mark.medium
@given(texts(), PARAMS)
def test_planes_hold_the_text_and_mark_what_is_ambiguous(
    given_text: np.ndarray, params: IndexParams
) -> None:
    fm, text = indexed(given_text, params)
    n = len(text)
    assert fm.ref_planes.shape == ((n + 63) // 64 + 2, 3)
    bits = [
        [int(fm.ref_planes[i >> 6, plane]) >> (i & 63) & 1 for i in range(64 * len(fm.ref_planes))]
        for plane in range(3)
    ]
    assert bits[2][:n] == (given_text > 3).astype(int).tolist()
    assert all(bits[2][n:])
    for i in np.flatnonzero(given_text <= 3):
        assert text[i] == given_text[i] == bits[0][i] + 2 * bits[1][i]


@pytest.mark.medium
@pytest.mark.parametrize("occ_spacing", [64, 128, 256, 512, 1024])
@pytest.mark.parametrize("sa_sampling", [1, 8, 1024])
@pytest.mark.parametrize("kmer_len", [0, 2, 8])
@pytest.mark.parametrize("n", [1, 63, 64, 2049])
def test_every_parameter_at_block_edges(
    occ_spacing: int, sa_sampling: int, kmer_len: int, n: int
) -> None:
    given_text = np.random.default_rng(n).integers(0, 4, n, dtype=np.uint8)
    fm, text = indexed(given_text, IndexParams(occ_spacing, sa_sampling, kmer_len))
    suffixes = naive.suffix_array(text)
    for row in range(0, fm.n_rows, 1 + n // 50):
        assert core.locate(fm, row) == suffixes[row]
    for start in range(0, n, 1 + n // 20):
        query = text[start : start + 12]
        lo, hi = interval(fm, query)
        assert start in [core.locate(fm, row) for row in range(lo, hi)]


def test_a_run_of_n_is_no_repeat() -> None:
    fm, text = indexed(dna.encode("N" * 5000), IndexParams())
    longest = max(len(run) for code in range(4) for run in text.split(bytes([code ^ 1])))
    assert longest < 100
    assert not core.clean_hit(fm, 0, 20)
