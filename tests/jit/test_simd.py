"""Loads, stores and copies of bytes: the compiled functions equal the plain ones."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import TypingError

from mapper.jit import simd
from mapper.jit.accelerate import driver

SIZE = 400


@driver
def _put16(out, at, value):
    simd.put16(out, at, value)


@driver
def _put32(out, at, value):
    simd.put32(out, at, value)


@driver
def _get16(data, at):
    return simd.get16(data, at)


@driver
def _get32(data, at):
    return simd.get32(data, at)


@driver
def _copy(source, start, target, at, n):
    simd.copy(source, start, target, at, n)


@driver
def _bytes_with(data, at, mask):
    return simd.bytes_with(data, at, mask)


@given(st.integers(0, SIZE - simd.VECTOR), st.integers(0, 255), st.integers(0, 2**32))
def test_bytes_with_a_bit(at, mask, seed):
    data = np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)
    expected = sum(1 << i for i in range(simd.VECTOR) if data[at + i] & mask)
    assert int(_bytes_with(data, at, mask)) == expected
    assert int(simd.bytes_with(data, at, mask)) == expected


@driver
def _falling_maximum(values, start, n, before, fall):
    simd.falling_maximum(values, start, n, before, fall)


@pytest.mark.parametrize("kind", [np.int16, np.int32])
@given(
    st.integers(0, 9), st.integers(0, 3), st.integers(-(2**14), 2**13), st.integers(0, 128),
    st.integers(0, 2**32),
)  # fmt: skip
def test_a_maximum_falls(kind, start, blocks, before, fall, seed):
    n = blocks * simd.SCANNED
    values = np.random.default_rng(seed).integers(-(2**14), 2**13, 120).astype(kind)
    expected = values.copy()
    for i in range(n):
        passed = [before - (i + 1) * fall, *(int(values[start + j]) - (i - j) * fall
                                             for j in range(i + 1))]  # fmt: skip
        expected[start + i] = max(passed)
    for function in (_falling_maximum, simd.falling_maximum):
        found = values.copy()
        function(found, start, n, before, fall)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("n_bytes", "compiled"), [(2, _put16), (4, _put32)])
@given(st.integers(0, SIZE - 4), st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_are_written_lowest_byte_first(n_bytes, compiled, at, value):
    expected = np.full(SIZE, 200, np.uint8)
    expected[at : at + n_bytes] = list((value % (1 << 64)).to_bytes(8, "little")[:n_bytes])
    for function in (compiled, getattr(simd, f"put{8 * n_bytes}")):
        out = np.full(SIZE, 200, np.uint8)
        function(out, at, value)
        np.testing.assert_array_equal(out, expected)


@given(st.integers(0, 9), st.binary(min_size=14, max_size=14))
def test_numbers_are_read_lowest_byte_first(at, given_bytes):
    data = np.frombuffer(bytearray(given_bytes), np.uint8)
    for get16, get32 in ((_get16, _get32), (simd.get16, simd.get32)):
        assert get16(data, at) == int.from_bytes(given_bytes[at : at + 2], "little")
        assert get32(data, at) == int.from_bytes(given_bytes[at : at + 4], "little", signed=True)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 300))
def test_bytes_are_copied_and_no_others(start, at, n):
    source = np.random.default_rng(n).integers(0, 256, SIZE, np.uint8)
    expected = np.full(SIZE, 200, np.uint8)
    for i in range(n):
        expected[at + i] = source[start + i]
    for function in (_copy, simd.copy):
        target = np.full(SIZE, 200, np.uint8)
        function(source, start, target, at, n)
        np.testing.assert_array_equal(target, expected)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")
def test_nothing_but_neighbouring_bytes():
    numbers, bytes_ = np.zeros(8, np.int32), np.zeros(16, np.uint8)
    for source, target in ((numbers, bytes_), (bytes_, numbers), (bytes_[::2], bytes_)):
        with pytest.raises(TypingError, match="a run of bytes in"):
            _copy(source, 0, target, 0, 1)
    with pytest.raises(TypingError, match="a run of bytes in"):
        _put32(numbers, 0, 1)
