"""Runs of pairs that go to a device together, and where their letters lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapper.accelerate import core, driver

CHUNK_PAIRS = 1 << 20
CHUNK_SYMBOLS = 1 << 27
"""Of one side, also those that lie between its sequences."""

BEHIND = 8
"""Words behind a chunk's last, for loads that go beyond."""


class Chunk(NamedTuple):
    """A run of pairs, and the spans of both sides that hold their sequences.

    Spans are of letters, or of words where these are packed already.
    """

    first: int
    last: int
    query_begin: int
    query_behind: int
    ref_begin: int
    ref_behind: int

    @property
    def n_pairs(self) -> int:
        return self.last - self.first


def table_of(chunks: Sequence[Chunk]) -> np.ndarray:
    """Return chunks as compiled code takes them: int64 (n, 6)."""
    return np.array(chunks, np.int64).reshape(-1, len(Chunk._fields))


@core
def whole_lines(n_words):
    """Round words up to a cache line, at which each side of a staged chunk begins."""
    return (n_words + 7) & ~7


@core
def chunk_of(table, i):
    """Chunk i of a table."""
    return Chunk(
        table[i, 0], table[i, 1], table[i, 2], table[i, 3], table[i, 4], table[i, 5]
    )  # fmt: skip


def chunk_end(
    start: np.ndarray, end: np.ndarray, first: int, most_pairs: int, most_symbols: int
) -> int:
    """Return where a chunk ends: at least one pair, within both limits."""
    if _in_turn(start, end):
        last = int(np.searchsorted(end, start[first] + most_symbols, side="right"))
        return min(max(last, first + 1), first + most_pairs, len(start))
    return int(_end_of_any(start, end, first, most_pairs, most_symbols))


def _in_turn(start: np.ndarray, end: np.ndarray) -> bool:
    """Whether each sequence begins where that before it ends, as both are one array."""
    return len(start) > 0 and start.ctypes.data + start.itemsize == end.ctypes.data


def span_of(start: np.ndarray, end: np.ndarray, first: int, last: int) -> tuple[int, int]:
    """Return the first symbol of some sequences, and that behind the last."""
    if _in_turn(start, end):
        return int(start[first]), int(end[last - 1])
    begin, behind = _span_of_any(start, end, first, last)
    return int(begin), int(behind)


@driver
def _end_of_any(start, end, first, most_pairs, most_symbols):
    begin, behind = start[first], end[first]
    last = min(first + most_pairs, len(start))
    for i in range(first + 1, last):
        begin = min(begin, start[i])
        behind = max(behind, end[i])
        if behind - begin > most_symbols:
            return i
    return last


@driver
def _span_of_any(start, end, first, last):
    begin, behind = start[first], end[first]
    for i in range(first + 1, last):
        begin = min(begin, start[i])
        behind = max(behind, end[i])
    return begin, behind
