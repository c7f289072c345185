"""Compute offsets of ragged rows, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.batch_ops import join_offsets, longest_row, offsets_of
from mapper.seed.pack import packed_offsets

COUNTS = st.lists(st.integers(0, 300), max_size=12)


@given(COUNTS, st.sampled_from([np.int32, np.int64]))
def test_bounds_are_sums(counts, dtype):
    offsets = offsets_of(np.array(counts, dtype))
    assert offsets.dtype == np.int64
    assert offsets.tolist() == [0, *np.cumsum(counts).tolist()]
    assert longest_row(offsets) == max(counts, default=0)
    words = [2 * -(-n // 64) for n in counts]
    assert packed_offsets(offsets).tolist() == [0, *np.cumsum(words).tolist()]


def test_sums_leave_32_bits():
    assert offsets_of(np.full(3, 2**31 - 1, np.int32))[-1] == 3 * (2**31 - 1)


@given(st.lists(COUNTS, min_size=1, max_size=5), st.integers(0, 9))
def test_bounds_of_parts_are_joined(parts, start):
    """Parts may start at any offset, like slices; the start of the first one stays."""
    bounds = [
        start * (i + 1) + offsets_of(np.array(part, np.int64)) for i, part in enumerate(parts)
    ]
    every = [n for part in parts for n in part]
    assert join_offsets(bounds).tolist() == [start, *(start + np.cumsum(every)).tolist()]


def test_longest_of_none():
    assert longest_row(np.zeros(1, np.int64)) == 0
    with pytest.raises(IndexError):
        join_offsets([])
