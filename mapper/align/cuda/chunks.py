"""Runs of pairs that go to a device together, and where their letters lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mapper.align.packing import PackedPairs
from mapper.align.pairs import PairBatch
from mapper.jit.accelerate import core, driver

CHUNK_PAIRS = 1 << 20
CHUNK_SYMBOLS = 1 << 27
"""Of one side, also those that lie between its sequences."""

SMALLEST = 4
"""How many of the smallest chunks make one of full size."""

TAIL_WORDS = 8
"""Words behind a chunk's last, for loads that go beyond."""


_ROWS = 64


class Chunk(NamedTuple):
    """A run of pairs, and the spans of both sides that hold their sequences.

    Spans are of letters, or of words where these are packed already.
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
    """Return chunks as compiled code takes them: int64 (n, 6)."""
    return np.array(chunks, np.int64).reshape(-1, len(Chunk._fields))


def round_to_line(n_words):
    """Round words up to a cache line, at which each side of a staged chunk begins."""
    return (n_words + 7) & ~7


round_to_line_compiled = core(round_to_line)
"""The same for compiled code; to call that from Python takes longer."""


@core
def chunk_of(table, i):
    """Chunk i of a table."""
    return Chunk(
        table[i, 0], table[i, 1], table[i, 2], table[i, 3], table[i, 4], table[i, 5]
    )  # fmt: skip


def are_adjacent(start: np.ndarray, end: np.ndarray) -> bool:
    """Whether each sequence begins where that before it ends, as both are one array."""
    return len(start) > 0 and start.ctypes.data + start.itemsize == end.ctypes.data


@core
def most_pairs_of(first, n_pairs, most):
    """Return the most pairs of the chunk that begins with pair `first`.

    Chunks are smaller at both ends of a batch, down to a SMALLEST-th of `most`: a device has
    nothing to do before it has the first, and the host nothing after it has staged the last.
    """
    fewest = max(np.int64(1), most // SMALLEST)
    return max(fewest, min(most, first + fewest, (n_pairs - first) >> 1))


@core
def _first_above(values, begin, end, value):
    """The first of ``values[begin:end]``, which rise, that is above a value; `end` if none is."""
    while begin < end:
        middle = (begin + end) >> 1
        if values[middle] > value:
            end = middle
        else:
            begin = middle + 1
    return begin


@core
def _end_of_letters(start, end, adjacent, first, last, most_symbols):
    """The pair behind those that fit from `first` on, at most `last`: at least one does."""
    if adjacent:
        return max(_first_above(end, first, last, start[first] + most_symbols), first + 1)
    begin, behind = start[first], end[first]
    for i in range(first + 1, last):
        begin = min(begin, start[i])
        behind = max(behind, end[i])
        if behind - begin > most_symbols:
            return i
    return last


@core
def _span_of_letters(start, end, adjacent, first, last):
    """The first symbol of some sequences, and that behind the last."""
    begin, behind = start[first], end[last - 1]
    if not adjacent:
        for i in range(first, last):
            begin = min(begin, start[i])
            behind = max(behind, end[i])
    return begin, behind


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
def _behind_words(start, length, shift, i):
    """The word behind a packed sequence."""
    bits = length[i] << np.int64(shift[i] & 3)  # other shifts are wrong, and found out later
    return start[i] + ((bits + 63) >> 6)


@core
def _end_of_words(start, length, shift, first, last, most_words):
    """As :func:`_end_of_letters`, of packed pairs: where the next begins, one ends."""
    most = start[first] + most_words
    above = _first_above(start, first, min(last + 1, len(start)), most)
    if above <= last:
        last = above - 1
    elif last == len(start) and _behind_words(start, length, shift, last - 1) > most:
        last -= 1
    return max(last, first + 1)


@driver
def _cut_words(packed, first, most_pairs, most_words, table):
    """As :func:`_cut_letters`, of packed pairs."""
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
        table[c, 3] = _behind_words(packed.query_start, packed.query_len, packed.shift, last - 1)
        table[c, 4] = packed.ref_start[first]
        table[c, 5] = _behind_words(packed.ref_start, packed.ref_len, packed.shift, last - 1)
        first = last
    return len(table)


def cut_letters(batch: PairBatch, most_pairs: int) -> np.ndarray:
    """Return the chunks of a batch of letters, as :func:`table_of` does."""
    adjacent = are_adjacent(*batch[1:3]), are_adjacent(*batch[4:6])
    return _all_rows(
        lambda first, table: _cut_letters(
            batch, first, *adjacent, most_pairs, CHUNK_SYMBOLS, table
        ),
        batch.n_pairs,
    )


def cut_words(packed: PackedPairs, most_pairs: int) -> np.ndarray:
    """Return the chunks of packed pairs, as :func:`table_of` does."""
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
