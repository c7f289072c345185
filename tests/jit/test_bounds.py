"""With NUMBA_BOUNDSCHECK=1, compiled code that leaves an array raises IndexError."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import pytest

from mapper.align.matches import unaligned_half, unaligned_word
from mapper.jit import intrinsics, simd
from mapper.jit.accelerate import core, driver

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")

SIZE = 128


@core
def item(array, at):
    return array[at]


@driver
def of_a_core(array, at):
    return item(array, at)


@driver
def of_a_word(array, at):
    return unaligned_word(array, at)


@driver
def of_a_word_in_words(array, at):
    return unaligned_word(array.view(np.uint64), at)


@driver
def of_half_a_word(array, at):
    return unaligned_half(array, at)


@driver
def of_a_vector(array, at):
    return simd.bytes_with(array, at, 1)


@driver
def of_bits(array, at):
    return intrinsics.bit_of_bytes(array, at, 0)


@driver
def of_a_number(array, at):
    simd.put32(array, at, 0)


@driver
def of_a_copy(array, at):
    simd.copy(array, at, array, 0, 10)


ACCESSES = {
    of_a_core: 1, of_a_word: 8, of_a_word_in_words: 8, of_half_a_word: 4, of_a_vector: simd.VECTOR,
    of_bits: 32, of_a_number: 4, of_a_copy: 10,
}  # fmt: skip


@pytest.mark.parametrize(("access", "n"), ACCESSES.items())
def test_items_outside_an_array_are_refused(
    access: Callable[..., object], n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.zeros(SIZE, np.uint8)
    monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1)
    access(array, SIZE - n)
    for at in (SIZE - n + 1, -SIZE - 1):
        with pytest.raises(IndexError, match="out of bounds"):
            access(array, at)
