"""Asking for memory ahead changes nothing; compiled, it asks for that item's memory."""

from __future__ import annotations

import numba
import numpy as np

from mapper.jit.prefetch import prefetch


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
