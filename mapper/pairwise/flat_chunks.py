"""Runs of pairs that go to a device together, and where their letters lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mapper.accelerate import driver

CHUNK_PAIRS = 1 << 20
CHUNK_SYMBOLS = 1 << 27
"""Of one side, also those that lie between its sequences."""

BEHIND = 8
"""Words behind a chunk's last, for loads that go beyond."""

Job = Callable[[int], None]
"""Does one of several parts of the work, given by its number."""


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
