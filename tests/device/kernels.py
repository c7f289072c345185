"""Small kernels for the tests of the seam; import where CUDA is there or simulated."""

from __future__ import annotations

from mapper.bits import leading_zeros, popcount, trailing_zeros
from mapper.device.seam import cuda, kernel


@kernel(32)
def count_bits(words, n_items, out):
    """Three counts of each word, through the functions that cores use."""
    i = cuda.grid(1)
    if i < n_items:
        out[3 * i] = popcount(words[i])
        out[3 * i + 1] = leading_zeros(words[i])
        out[3 * i + 2] = trailing_zeros(words[i])
