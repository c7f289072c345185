"""Chunks: consecutive pairs that go to a device together, and the spans of their symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mapper.align.packing import PackedPairs
from mapper.align.pairs import PairBatch
from mapper.jit.accelerate import core, driver

CHUNK_PAIRS = 1 << 20
"""Most pairs of a chunk."""

CHUNK_SYMBOLS = 1 << 27
"""Most symbols in the span of one side, between its sequences, too."""

SMALLEST = 4
"""Number of smallest chunks in one of full size."""

TAIL_WORDS = 8
"""Words after the last one of a chunk, for loads beyond it."""

_ROWS = 64
"""Chunks that are cut in one call."""


class Chunk(NamedTuple):
    """Pairs first:last, and the spans of both sides that hold their sequences.

    Spans are in letters, or in words for packed pairs.
    """

    first: int
    last: int
    query_begin: int
    query_end: int
    ref_begin: int
    ref_end: int

    @property
    def n_pairs(self) -> int:
        return self.last - self.first


def table_of(chunks: Sequence[Chunk]) -> np.ndarray:
    """Return chunks in the form for compiled code: int64 (n, 6)."""
    return np.array(chunks, np.int64).reshape(-1, len(Chunk._fields))


def round_to_line(n_words):
    """Round words up to a cache line, at which each side of a staged chunk starts."""
    return (n_words + 7) & ~7


round_to_line_compiled = core(round_to_line)
"""The same for compiled code; calling this one from Python takes longer."""


@core
def chunk_of(table, i):
    """Return chunk i of a table."""
    return Chunk(
        table[i, 0], table[i, 1], table[i, 2], table[i, 3], table[i, 4], table[i, 5]
    )  # fmt: skip


def are_adjacent(start: np.ndarray, end: np.ndarray) -> bool:
    """Return True if `start` and `end` are views of one offsets array.

    Not if they are the columns of a table of bounds, whose sequences may lie in any order.
    """
    is_next = len(start) > 0 and start.ctypes.data + start.itemsize == end.ctypes.data
    return is_next and start.strides == end.strides == (start.itemsize,)


@core
def most_pairs_of(first, n_pairs, most):
    """Return the most pairs of the chunk that begins with pair `first`.

    Chunks are smaller at both ends of a batch, down to 1 / SMALLEST of `most`: the device idles
    until it has the first, and the host after it has staged the last.
    """
    fewest = max(np.int64(1), most // SMALLEST)
    return max(fewest, min(most, first + fewest, (n_pairs - first) >> 1))


@core
def _first_above(values, begin, end, value):
    """Return the index of the first of ``values[begin:end]`` (ascending) above `value`, or end."""
    while begin < end:
        middle = (begin + end) >> 1
        if values[middle] > value:
            end = middle
        else:
            begin = middle + 1
    return begin


@core
def _end_of_letters(start, end, adjacent, first, last, most_symbols):
    """Return the end of the pairs from `first` on that fit, at most `last`; at least one fits."""
    if adjacent:
        return max(_first_above(end, first, last, start[first] + most_symbols), first + 1)
    lowest, highest = start[first], end[first]
    for i in range(first + 1, last):
        lowest = min(lowest, start[i])
        highest = max(highest, end[i])
        if highest - lowest > most_symbols:
            return i
    return last


@core
def _span_of_letters(start, end, adjacent, first, last):
    """Return the first symbol of the sequences first:last, and the end of their last one."""
    lowest, highest = start[first], end[last - 1]
    if not adjacent:
        for i in range(first, last):
            lowest = min(lowest, start[i])
            highest = max(highest, end[i])
    return lowest, highest


@driver
def _cut_letters(batch, first, query_adjacent, ref_adjacent, most_pairs, most_symbols, table):
    """Fill rows of a table with the chunks from pair `first` on; return their number."""
    n = len(batch.query_start)
    for c in range(len(table)):
        if first == n:
            return c
        last = min(first + most_pairs_of(first, n, most_pairs), n)
        last = _end_of_letters(
            batch.query_start, batch.query_end, query_adjacent, first, last, most_symbols
        )
        last = _end_of_letters(
            batch.ref_start, batch.ref_end, ref_adjacent, first, last, most_symbols
        )
        query = _span_of_letters(batch.query_start, batch.query_end, query_adjacent, first, last)
        ref = _span_of_letters(batch.ref_start, batch.ref_end, ref_adjacent, first, last)
        table[c, 0], table[c, 1], table[c, 2] = first, last, query[0]
        table[c, 3], table[c, 4], table[c, 5] = query[1], ref[0], ref[1]
        first = last
    return len(table)


@core
def _end_word(start, length, shift, i):
    """Return the end of the words of packed sequence i."""
    bits = length[i] << np.int64(shift[i] & 3)  # other shifts are invalid, which staging finds
    return start[i] + ((bits + 63) >> 6)


@core
def _end_of_words(start, length, shift, first, last, most_words):
    """Return the same as :func:`_end_of_letters` for packed pairs, which are consecutive."""
    most = start[first] + most_words
    above = _first_above(start, first, min(last + 1, len(start)), most)
    if above <= last:
        last = above - 1
    elif last == len(start) and _end_word(start, length, shift, last - 1) > most:
        last -= 1
    return max(last, first + 1)


@driver
def _cut_words(packed, first, most_pairs, most_words, table):
    """Fill rows of a table as :func:`_cut_letters`, for packed pairs."""
    n = len(packed.shift)
    for c in range(len(table)):
        if first == n:
            return c
        last = min(first + most_pairs_of(first, n, most_pairs), n)
        last = _end_of_words(
            packed.query_start, packed.query_len, packed.shift, first, last, most_words
        )
        last = _end_of_words(
            packed.ref_start, packed.ref_len, packed.shift, first, last, most_words
        )
        table[c, 0], table[c, 1], table[c, 2] = first, last, packed.query_start[first]
        table[c, 3] = _end_word(packed.query_start, packed.query_len, packed.shift, last - 1)
        table[c, 4] = packed.ref_start[first]
        table[c, 5] = _end_word(packed.ref_start, packed.ref_len, packed.shift, last - 1)
        first = last
    return len(table)


def cut_letters(batch: PairBatch, most_pairs: int) -> np.ndarray:
    """Return the chunks of a batch of letters, in the form of :func:`table_of`."""
    adjacent = are_adjacent(*batch[1:3]), are_adjacent(*batch[4:6])
    return _all_rows(
        lambda first, table: _cut_letters(
            batch, first, *adjacent, most_pairs, CHUNK_SYMBOLS, table
        ),
        batch.n_pairs,
    )


def cut_words(packed: PackedPairs, most_pairs: int) -> np.ndarray:
    """Return the chunks of packed pairs, in the form of :func:`table_of`."""
    return _all_rows(
        lambda first, table: _cut_words(packed, first, most_pairs, CHUNK_SYMBOLS >> 5, table),
        packed.n_pairs,
    )


def _all_rows(cut: Callable[[int, np.ndarray], int], n_pairs: int) -> np.ndarray:
    tables, first = [np.empty((0, len(Chunk._fields)), np.int64)], 0
    while first < n_pairs:
        table = np.empty((_ROWS, len(Chunk._fields)), np.int64)
        tables.append(table[: cut(first, table)])
        first = int(tables[-1][-1, 1])
    return np.concatenate(tables)


def chunks_of(table: np.ndarray) -> list[Chunk]:
    """Return the chunks of a table."""
    return [Chunk(*row) for row in table.tolist()]
