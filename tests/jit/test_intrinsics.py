"""Intrinsics: Python bodies and compiled code, against strings of digits; code of prefetches."""

from __future__ import annotations

import numba
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from mapper.jit.intrinsics import (
    bit_of_bytes,
    leading_zeros,
    popcount,
    prefetch,
    trailing_zeros,
)

WORDS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 63).map(lambda shift: 1 << shift),
    st.integers(0, 64).map(lambda n: (1 << n) - 1),
)


@numba.njit
def compiled(word):
    return popcount(word), trailing_zeros(word), leading_zeros(word)


@given(WORDS)
@example(0)
@example(2**64 - 1)
@example(2**63)
def test_counts(word: int) -> None:
    digits = f"{word:064b}"
    expected = (
        digits.count("1"),
        64 - len(digits.rstrip("0")),
        64 - len(digits.lstrip("0")),
    )
    assert compiled(np.uint64(word)) == expected
    value = np.uint64(word)
    assert (popcount(value), trailing_zeros(value), leading_zeros(value)) == expected


@numba.njit
def bits_compiled(numbers, at):
    return bit_of_bytes(numbers, at, 0), bit_of_bytes(numbers, at, 1), bit_of_bytes(numbers, at, 7)


def test_bits_of_bytes() -> None:
    numbers = np.random.default_rng(1).integers(0, 256, 70, np.uint8)
    for at in range(39):
        for bit, found in zip((0, 1, 7), bits_compiled(numbers, np.int64(at)), strict=True):
            expected = sum(int(numbers[at + i] >> bit & 1) << i for i in range(32))
            assert int(found) == expected == int(bit_of_bytes(numbers, at, bit))


@numba.njit
def sum_of(words, ahead):
    total = 0
    for i in range(words.shape[0]):
        prefetch(words, 3 * (i + ahead))
        total += words[i, 0]
    return total


def test_a_prefetch_reads_nothing_and_may_lie_outside() -> None:
    words = np.arange(300, dtype=np.uint64).reshape(100, 3)
    assert prefetch(words, 3) is None
    for ahead in (0, 8, 1 << 40, -(1 << 40)):
        assert sum_of(words, ahead) == words[:, 0].sum()
    (assembly,) = sum_of.inspect_llvm().values()
    assert "llvm.prefetch" in assembly
