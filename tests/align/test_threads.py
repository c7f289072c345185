"""Cutting of pairs into chunks for threads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mapper.align import threads as run
from mapper.align.threads import guided_bounds, run_chunks


@pytest.mark.parametrize(
    ("n_pairs", "length", "threads", "n_chunks"),
    [
        (48, 20_000, 4, 25),  # few long pairs: all threads have work
        (640, 2_000, 4, 26),
        (48, 20_000, 1, 1),  # one thread: one chunk
        (50, 100, 4, 1),  # not worth a second thread
        (100_000, 300, 2, 18),  # some for each thread
        (100_000, 300, 1, 8),  # at most 2^22 symbols
        (0, 0, 4, 0),
    ],
)
def test_all_threads_have_work(n_pairs: int, length: int, threads: int, n_chunks: int) -> None:
    chunks: list[tuple[int, int]] = []

    def driver(first: int, last: int, columns: object, counts: np.ndarray) -> np.ndarray:
        chunks.append((first, last))
        counts[first:last] = 1
        return np.arange(first, last, dtype=np.uint32)

    found = run_chunks(driver, np.full(n_pairs, length), True, threads)
    assert len(chunks) == n_chunks
    assert found.cigar_ops is not None
    assert found.cigar_ops.tolist() == list(range(n_pairs))  # whatever the threads, in order
    assert max((last - first for first, last in chunks), default=0) <= run.CHUNK_PAIRS


@pytest.mark.parametrize("threads", [2, 16])
def test_chunks_get_smaller_so_that_threads_end_together(threads: int) -> None:
    sizes = [last - first for first, last in guided_bounds(np.full(20_000, 2_000), threads)]
    assert sum(sizes) == 20_000
    assert all(b <= a for a, b in pairwise(sizes))
    assert sizes[0] <= 20_000 / (2 * threads)
    assert sizes[-1] <= 20_000 / (64 * threads) + 1
    assert len(sizes) < 10 * threads
