"""Numbers as text, for the compiled writers of SAM, PAF and TSV."""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import driver

_MINUS, _ZERO = b"-0"


@driver
def put_int(out, at, value):
    """Write a number in decimal; return the position after it."""
    value = np.int64(value)
    if value < 0:
        out[at] = _MINUS
        at += 1
        value = -value
    n_digits = 1
    rest = value // 10
    while rest > 0:
        n_digits += 1
        rest //= 10
    for i in range(n_digits - 1, -1, -1):
        out[at + i] = _ZERO + value % 10
        value //= 10
    return at + n_digits
