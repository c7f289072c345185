"""Tables and suffix arrays made after opening against those that are built."""

from __future__ import annotations

import numpy as np
import pytest

from mapper import dna
from mapper.index.build import build_fm
from mapper.index.expand import fill_from_sample, with_table
from mapper.params import IndexParams
from tests.reads import random_letters


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
