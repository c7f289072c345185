"""Pairs of the benchmarks of pairwise alignment on devices, and the checks of their results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks.align_cpu import Pairs, make_pairs
from benchmarks.common.harness import BenchmarkError

DISTINCT_BASES, FEWEST = 1_200_000, 250
"""Of pairs that differ."""


class Row(NamedTuple):
    """Distinct pairs, as lists and flat."""

    length: int
    percent: int
    pairs: Pairs
    queries: tuple[np.ndarray, np.ndarray]
    refs: tuple[np.ndarray, np.ndarray]


def row_of(length: int, percent: int, most: int) -> Row:
    """Return at most so many distinct pairs."""
    n = min(max(FEWEST, DISTINCT_BASES // length), most)
    pairs = make_pairs(length, percent / 100, n)
    sides = [flat([pair[side] for pair in pairs]) for side in (0, 1)]
    return Row(length, percent, pairs, *sides)


def flat(sequences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences as a flat array and offsets."""
    lengths = [len(s) for s in sequences]
    letters = np.frombuffer("".join(sequences).encode(), np.uint8)
    return letters, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def repeated(side: tuple[np.ndarray, np.ndarray], copies: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sequences several times over."""
    letters, offsets = side
    lengths = np.tile(np.diff(offsets), copies)
    return np.tile(letters, copies), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def check(expected: Any, found: Any, copies: int) -> None:
    """Raise BenchmarkError unless a result is another one, so many times over."""
    for name, once, many in zip(expected._fields, expected, found, strict=True):
        if once is None or many is None:
            same = once is many
        elif name == "cigar_offsets":
            same = np.array_equal(np.tile(np.diff(once), copies), np.diff(many))
        else:
            same = np.array_equal(np.tile(once, copies), many)
        if not same:
            raise BenchmarkError(f"CPU and CUDA disagree in {name}")


def inputs_of(queries: Any, refs: Any, device: str) -> dict[str, tuple[Any, ...]]:
    """Return the same pairs in every form in which they can be given."""
    from mapper import packed_pairs

    return {
        "ASCII": (queries, refs),
        "packed": (packed_pairs(queries, refs),),
        "page-locked": (packed_pairs(queries, refs, device=device),),
    }
