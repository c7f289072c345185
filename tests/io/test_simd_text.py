"""Functions on vectors of 64 bytes agree with their plain versions."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import TypingError

from mapper.io import simd_text
from mapper.jit.accelerate import driver
from mapper.jit.simd import VECTOR

SLACK = 5  # bytes before and behind, which must stay as they are

# Most vectors hold what is expected, some one byte that is not, some anything.
LETTERS = st.sampled_from(b"ACGTacgt")
BYTES = st.integers(0, 255)


def vectors(usual, n=VECTOR):
    """Return a strategy for `n` bytes: all of them usual, all but one, or any."""
    good = st.lists(usual, min_size=n, max_size=n)
    one_other = st.builds(
        lambda vector, at, other: [*vector[:at], other, *vector[at + 1 :]],
        good,
        st.integers(0, n - 1),
        BYTES,
    )
    return st.one_of(good, one_other, st.lists(BYTES, min_size=n, max_size=n))


@driver
def _pack(source, target, reverse):
    return simd_text.pack_vector(source, SLACK, target, SLACK, reverse)


@driver
def _unpack(source, target, reverse):
    return simd_text.unpack_vector(source, SLACK, target, SLACK, reverse)


@driver
def _before_line_end(source):
    return simd_text.before_line_end(source, SLACK)


@driver
def _before_difference(text, other):
    return simd_text.before_difference(text, SLACK, other, 2 * SLACK)


@driver
def _before_unprintable(source):
    return simd_text.before_unprintable(source, SLACK)


@driver
def _copy_phred(source, target):
    return simd_text.copy_phred(source, SLACK, target, SLACK)


@driver
def _phred_sum(source, n, least):
    return simd_text.phred_sum(source, SLACK, n, least)


@driver
def _copy_visible(source, target):
    return simd_text.copy_visible(source, SLACK, target, SLACK)


@driver
def _copy_quality(source, target):
    return simd_text.copy_quality(source, SLACK, target, SLACK)


@driver
def _copy_letters(source, target):
    return simd_text.copy_letters(source, SLACK, target, SLACK)


def padded(vector):
    source = np.full(len(vector) + 2 * SLACK, 10, np.uint8)
    source[SLACK:-SLACK] = vector
    return source


def agree(compiled, plain, source, n_written, *options):
    """Check that two functions return and write the same, `n_written` bytes and no more.

    What is written has no meaning where the return value says so.
    """
    results = []
    for function in (compiled, plain):
        target = np.full(n_written + 2 * SLACK, 200, np.uint8)
        result = function(source, target, *options)
        assert (target[:SLACK] == 200).all()
        assert (target[-SLACK:] == 200).all()
        results.append((result, target))
    (result, target), (expected, expected_target) = results
    assert (result == 0) == (expected == 0)
    if result == 0:
        assert target.tobytes() == expected_target.tobytes()
    return result


@given(vector=vectors(st.integers(0, 3)), reverse=st.booleans())
def test_packing(vector, reverse):
    def plain(source, target, reverse):
        return simd_text.pack_vector(source, SLACK, target, SLACK, reverse)

    result = agree(_pack, plain, padded(vector), VECTOR // 2, reverse)
    assert (result == 0) == (max(vector) <= 3)


@given(
    vector=vectors(
        st.sampled_from([16 * a + b for a in (1, 2, 4, 8) for b in (1, 2, 4, 8)]), VECTOR // 2
    ),
    reverse=st.booleans(),
)
def test_unpacking(vector, reverse):
    def plain(source, target, reverse):
        return simd_text.unpack_vector(source, SLACK, target, SLACK, reverse)

    result = agree(_unpack, plain, padded(vector), VECTOR, reverse)
    nibbles = {n for pair in vector for n in divmod(pair, 16)}
    assert (result == 0) == (nibbles <= {1, 2, 4, 8})


@given(st.lists(st.integers(0, 3), min_size=VECTOR, max_size=VECTOR), st.booleans())
def test_unpacking_what_was_packed(vector, reverse):
    packed, again = (
        np.zeros(VECTOR // 2 + 2 * SLACK, np.uint8),
        np.zeros(VECTOR + 2 * SLACK, np.uint8),
    )
    assert _pack(padded(vector), packed, reverse) == 0
    assert _unpack(packed, again, reverse) == 0
    assert again[SLACK:-SLACK].tolist() == vector


@given(vectors(st.integers(33, 126)))
def test_the_first_that_is_not_visible(vector):
    source = padded(vector)
    target = np.zeros(VECTOR + 2 * SLACK, np.uint8)
    expected = next((i for i, c in enumerate(vector) if not 33 <= c <= 126), VECTOR)
    assert _copy_visible(source, target) == expected
    assert target[SLACK:-SLACK].tolist() == vector
    assert simd_text.copy_visible(source, SLACK, target, SLACK) == expected


@given(vectors(st.integers(11, 255)))
def test_the_first_line_end(vector):
    expected = vector.index(10) if 10 in vector else VECTOR
    assert _before_line_end(padded(vector)) == expected
    assert simd_text.before_line_end(padded(vector), SLACK) == expected


@given(vectors(st.just(65)), st.integers(0, 3))
def test_the_first_difference(vector, n_same):
    """Compare with a copy, and with a text that differs from some byte on."""
    other = vector[: 16 * n_same] + [66] * (VECTOR - 16 * n_same) if n_same else vector
    expected = next((i for i in range(VECTOR) if vector[i] != other[i]), VECTOR)
    texts = padded(vector), np.concatenate([np.zeros(SLACK, np.uint8), padded(other)])
    assert _before_difference(*texts) == expected
    assert simd_text.before_difference(texts[0], SLACK, texts[1], 2 * SLACK) == expected


@given(vectors(st.integers(32, 126)))
def test_the_first_that_is_not_printable(vector):
    expected = next((i for i, c in enumerate(vector) if not 32 <= c <= 126), VECTOR)
    assert _before_unprintable(padded(vector)) == expected
    assert simd_text.before_unprintable(padded(vector), SLACK) == expected


@given(vectors(st.integers(0, 93)), st.integers(0, VECTOR), st.integers(0, 255))
def test_the_sum_of_phred_values(vector, n, least):
    expected = sum(value for value in vector[:n] if value >= least)
    assert _phred_sum(padded(vector), n, least) == expected
    assert simd_text.phred_sum(padded(vector), SLACK, n, least) == expected


@given(vectors(st.integers(0, 93)))
def test_phred_values(vector):
    def plain(source, target):
        return simd_text.copy_phred(source, SLACK, target, SLACK)

    result = agree(_copy_phred, plain, padded(vector), VECTOR)
    assert (result == 0) == all(c <= 93 for c in vector)


@given(vectors(st.integers(33, 126)))
def test_quality(vector):
    def plain(source, target):
        return simd_text.copy_quality(source, SLACK, target, SLACK)

    result = agree(_copy_quality, plain, padded(vector), VECTOR)
    assert (result == 0) == all(33 <= c <= 126 for c in vector)


@given(vectors(LETTERS))
def test_letters(vector):
    def plain(source, target):
        return simd_text.copy_letters(source, SLACK, target, SLACK)

    result = agree(_copy_letters, plain, padded(vector), VECTOR)
    assert (result == 0) == all(c in b"ACGTacgt" for c in vector)


def test_codes_of_letters():
    target = np.zeros(VECTOR + 2 * SLACK, np.uint8)
    assert _copy_letters(padded(list(b"ACGTacgt" * 8)), target) == 0
    assert target[SLACK:-SLACK].tolist() == [0, 1, 2, 3] * 16


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize("source", [np.zeros(256, np.uint8)[::2], np.zeros(128, np.int8)])
def test_other_arrays_are_refused(source):
    with pytest.raises(TypingError, match="a run of bytes in"):
        _before_line_end(source)
