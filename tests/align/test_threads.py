"""Cutting of pairs into chunks for threads."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align import threads as run
from mapper.align.threads import run_chunks


@pytest.mark.parametrize(
    ("n_pairs", "length", "threads", "n_chunks"),
    [
        (48, 20_000, 4, 48),  # few long pairs: all threads have work
        (640, 2_000, 4, 32),
        (48, 20_000, 1, 1),  # one thread: one chunk
        (50, 100, 4, 1),  # not worth a second thread
        (100_000, 300, 2, 16),  # some for each thread
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
