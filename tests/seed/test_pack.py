"""Packing reads 64 bases at a time, against base by base."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mapper import dna
from tests.helpers.read_batches import packed_reads


@given(st.lists(st.text("ACGTACGTACGTACGTNR", max_size=300), max_size=8))
def test_planes_are_those_of_single_bases(reads: list[str]) -> None:
    """The last read has no 64 bases behind it to be loaded."""
    _, packed = packed_reads(reads)
    assert packed.word_offsets[0] == 0
    for i, letters in enumerate(reads):
        n = dna.n_words(len(letters))
        assert packed.word_offsets[i + 1] - packed.word_offsets[i] == 2 * n
        for strand in range(2):
            expected = np.zeros((n + 1, 3), np.uint64)
            dna.pack_strand(dna.encode(letters), 0, len(letters), strand, expected, 0)
            first = packed.word_offsets[i] + strand * n
            assert packed.planes[first : first + n].tolist() == expected[:n].tolist()
