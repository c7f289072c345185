"""Small kernels for the tests of mapper.cuda; needs CUDA or its simulator on import."""

from __future__ import annotations

import numpy as np

from mapper.align.packing import is_acgt
from mapper.cuda.api import cuda, kernel
from mapper.jit.intrinsics import leading_zeros, popcount, trailing_zeros


@kernel(32)
def count_bits(words, n_items, out):
    """Three counts of each word, through the functions that cores use."""
    i = cuda.grid(1)
    if i < n_items:
        out[3 * i] = popcount(words[i])
        out[3 * i + 1] = leading_zeros(words[i])
        out[3 * i + 2] = trailing_zeros(words[i])


@kernel(32)
def check_letters(letters, start, end, out):
    """Set `out` to True if a range of letters is A, C, G or T alone."""
    i = cuda.grid(1)
    out[i] = is_acgt(letters, start[i], end[i])


@kernel(32)
def sum_in_64_bits(values, n, out):
    """A running maximum of sums, with a loop that counts as Python does."""
    total = np.int64(0)
    for i in range(n):
        if values[np.uint64(i)] > total:
            total += values[np.uint64(i)]
    out[cuda.grid(1)] = total


@kernel(32)
def sum_in_32_bits(values, n, out):
    """The same as :func:`sum_in_64_bits`, narrowed."""
    total = np.int32(0)
    for i in range(np.int32(n)):
        value = values[np.uint32(i)]
        if value > total:
            total = np.int32(total + value)
    out[cuda.grid(1)] = total
