"""Cutting of pairs into chunks for threads."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align import threads as run
from mapper.align.threads import run_chunks


@pytest.mark.parametrize(
    ("n_pairs", "length", "threads", "least", "most"),
    [
        (48, 20_000, 4, 24, 48),  # few long pairs: all threads have work
        (640, 2_000, 4, 32, 90),
        (48, 20_000, 1, 1, 1),  # one thread: one chunk
        (50, 100, 4, 1, 1),  # not worth a second thread
        (100_000, 300, 2, 16, 50),  # some for each thread, the last ones small
        (100_000, 300, 1, 8, 8),  # at most 2^22 symbols
        (0, 0, 4, 0, 0),
    ],
)
def test_all_threads_have_work(
    n_pairs: int, length: int, threads: int, least: int, most: int
) -> None:
    chunks: list[tuple[int, int]] = []

    def driver(first: int, last: int, columns: object, counts: np.ndarray) -> np.ndarray:
        chunks.append((first, last))
        counts[first:last] = 1
        return np.arange(first, last, dtype=np.uint32)

    found = run_chunks(driver, np.full(n_pairs, length), True, threads)
    assert least <= len(chunks) <= most
    assert found.cigar_ops is not None
    assert found.cigar_ops.tolist() == list(range(n_pairs))  # whatever the threads, in order
    assert found.cigar_offsets is not None
    assert found.cigar_offsets.tolist() == list(range(n_pairs + 1))
    sizes = [last - first for first, last in sorted(chunks)]
    assert max(sizes, default=0) <= run.CHUNK_PAIRS
    assert threads == 1 or sizes == sorted(sizes, reverse=True)  # the last ones are the smallest


def test_an_error_ends_the_work_of_all_threads() -> None:
    begun: list[int] = []

    def driver(first: int, last: int, columns: object, counts: np.ndarray) -> np.ndarray:
        begun.append(first)
        raise ValueError(str(first))

    with pytest.raises(ValueError, match=r"^\d+$"):
        run_chunks(driver, np.full(10_000, 2_000), True, 3)
    assert len(begun) <= 3
