"""Texts whose suffixes are hard to sort, and the array sorter's kernels on the host."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import strategies as st

from mapper.index.packed_text import n_words, pack_words
from mapper.index.plan import has_library

needs_library = pytest.mark.skipif(
    not has_library(), reason="compares with libdivsufsort: pydivsufsort is not installed"
)


@st.composite
def repetitive(draw: st.DrawFn, max_size: int = 400) -> np.ndarray:
    """Codes 0 to 3, uint8, n > 0: random, runs, periods, Fibonacci strings, planted copies."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n = draw(st.integers(1, max_size))
    kind = draw(st.sampled_from(["random", "run", "period", "fibonacci", "copies", "two"]))
    text = rng.integers(0, 4, n, dtype=np.uint8)
    if kind == "run":
        text[draw(st.integers(0, n - 1)) :] = draw(st.integers(0, 3))
    elif kind == "period":
        text = np.resize(text[: draw(st.integers(1, 70))], n)
    elif kind == "fibonacci":
        text = fibonacci(n)
    elif kind == "copies":
        text = np.concatenate([text, text[n // 2 :], text, text[: n // 3 + 1]])
    elif kind == "two":
        text = 3 * (text & 1)
    return text


def fibonacci(n: int) -> np.ndarray:
    """The first n letters of the infinite Fibonacci word over A and C: repeats at every scale."""
    shorter, word = [0], [0, 1]
    while len(word) < n:
        shorter, word = word, word + shorter
    return np.array(word[:n], np.uint8)


def words_of(text: np.ndarray) -> np.ndarray:
    words = np.zeros(n_words(len(text)), np.uint64)
    pack_words(text, 0, len(words), words)
    return words


class HostKernels:
    """mapper.index.suffix_sort_cuda.Kernels in NumPy, on a text of one base a byte."""

    def __init__(self, text: np.ndarray) -> None:
        self.text = text
        self.n = len(text)

    def memory(self, what: str) -> nullcontext[None]:
        return nullcontext()

    def _bases(self, positions: np.ndarray, count: int) -> np.ndarray:
        """The bases from each position on as one number, A beyond the end."""
        keys = np.zeros(len(positions), np.uint64)
        for step in range(count):
            at = positions.astype(np.int64) + step
            base = np.where(at < self.n, self.text[np.minimum(at, self.n - 1)], 0)
            keys = keys << np.uint64(2) | base.astype(np.uint64)
        return keys

    def leading_counts(self, kmer_len: int) -> np.ndarray:
        kmers = self._bases(np.arange(self.n), kmer_len)
        return np.bincount(kmers.astype(np.int64), minlength=4**kmer_len)

    def collect(
        self, kmer_len: int, first_kmer: int, end_kmer: int, size: int, row_type: np.dtype
    ) -> np.ndarray:
        kmers = self._bases(np.arange(self.n), kmer_len)
        found = np.flatnonzero((first_kmer <= kmers) & (kmers < end_kmer))
        assert len(found) == size
        # In the opposite order of the device's: it must not matter.
        return found[::-1].astype(row_type)

    def keys_at(self, positions: np.ndarray, depth: int) -> np.ndarray:
        return self._bases(positions.astype(np.int64) + depth, 32)

    def scatter(self, array: np.ndarray, positions: np.ndarray, values: np.ndarray) -> None:
        array[positions] = values

    def ranks_after(
        self, rank: np.ndarray, positions: np.ndarray, depth: int, offset: int
    ) -> np.ndarray:
        after = positions.astype(np.int64) + depth
        inside = after < self.n
        keys = np.where(inside, rank[np.where(inside, after, 0)].astype(np.int64), self.n - after)
        return (keys + offset).astype(np.uint64)

    def write_rows(
        self, rank: np.ndarray, first_row: int, sa_shift: int, to_bwt: np.ndarray,
        to_samples: np.ndarray,
    ) -> None:  # fmt: skip
        for text_pos, row in enumerate(rank.tolist()):
            if first_row <= row < first_row + len(to_bwt):
                to_bwt[row - first_row] = self.text[text_pos - 1] if text_pos else 0
                if row % 2**sa_shift == 0:
                    to_samples[(row - first_row) >> sa_shift] = text_pos

    def last_base(self) -> int:
        return int(self.text[-1])
