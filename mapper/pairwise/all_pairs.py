"""Alignment of all with all: the public call."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mapper.accelerate import driver
from mapper.errors import UsageError
from mapper.pairwise.matrices import SubstitutionMatrix, encode_letters
from mapper.pairwise.matrix_engine import MatrixEngine
from mapper.pairwise.matrix_scoring import (
    DEFAULT_GAPS,
    DEFAULT_MATRIX,
    DEFAULT_MEMORY,
    CodedPairs,
    Scoring,
    check_lengths,
    check_scoring,
)
from mapper.pairwise.packing import Sequences, sequence_set
from mapper.pairwise.result import PairAlignments
from mapper.recycled import RECYCLER

WINDOW_PAIRS = 1 << 18
"""Most pairs of a window."""


class Window(NamedTuple):
    """Some pairs of an all-against-all comparison."""

    query: np.ndarray  # int64: index of each pair's query
    ref: np.ndarray  # int64: index of its reference
    found: PairAlignments


class _CodedSet(NamedTuple):
    codes: np.ndarray  # uint8
    start: np.ndarray  # int64 (n,)
    end: np.ndarray  # int64 (n,)

    def longest(self) -> int:
        return int((self.end - self.start).max(initial=0))


def align_all(
    sequences: Sequences,
    others: Sequences | None = None,
    *,
    matrix: str | tuple | SubstitutionMatrix = DEFAULT_MATRIX,
    gaps: tuple[int, int] = DEFAULT_GAPS,
    span: str = "global",
    cigar: bool = True,
    memory: int = DEFAULT_MEMORY,
    window: int = WINDOW_PAIRS,
    device: str = "auto",
    threads: int | None = None,
) -> Iterator[Window]:
    """Align all with all: within one set each pair once, or every one with every other.

    Parameters
    ----------
    sequences, others
        The set, queries i < references j in it; or queries and, as `others`, references.
    window
        Most pairs of a window. It may have fewer: what is aligned at a time is chosen by the
        cells of its matrices, and by the memory of the devices. No effect on the results.
    matrix, gaps, span, cigar, memory, device, threads
        As for :func:`mapper.align_matrix`.

    Yields
    ------
    Windows of pairs in order of query, then reference. No more than a few are held at a time:
    memory is that of the sets and of these. Windows go to whichever device is free.

    Raises
    ------
    As :func:`mapper.align_matrix`.

    References
    ----------
    Blazewicz et al. (2011), BMC Bioinformatics 12:181 (windows sized by a device's memory).
    """
    if window < 1:
        raise UsageError(f"window {window}: at least 1 pair is expected")
    scoring = check_scoring(matrix, gaps, span, cigar, memory)
    engine = MatrixEngine(scoring, device, threads)
    own = _coded(sequences, scoring, "the first set" if others is not None else "the set")
    other = own if others is None else _coded(others, scoring, "the second set")
    check_lengths(own.longest() + other.longest(), scoring)
    windows: deque[tuple[np.ndarray, np.ndarray]] = deque()

    def batches() -> Iterator[CodedPairs]:
        for query, ref, pairs in _windows(own, other, others is None, window, engine):
            windows.append((query, ref))
            yield pairs

    for found in engine.align_each(batches()):
        yield Window(*windows.popleft(), found)


def _coded(sequences: Sequences, scoring: Scoring, name: str) -> _CodedSet:
    letters, offsets = sequence_set(sequences, name)
    start, end = offsets[:-1], offsets[1:]
    return _CodedSet(
        encode_letters(scoring.table, letters, start, end, name, 0, "sequence"), start, end
    )


def _windows(
    own: _CodedSet, other: _CodedSet, within: bool, window: int, engine: MatrixEngine
) -> Iterator[tuple[np.ndarray, np.ndarray, CodedPairs]]:
    """Yield the queries and references of pairs, and what these are, window by window."""
    n, m = own.end - own.start, other.end - other.start
    total = int(n.sum()) * int(m.sum())
    if within:
        total = (total - int((n * n).sum())) // 2
    i, j = 0, 1 if within else 0
    query, ref = np.empty(window, np.int64), np.empty(window, np.int64)
    left, number = total, 0
    while True:
        most = engine.window_cells(number, left, total)
        size, i, j, cells = _next_window(n, m, within, i, j, most, query, ref)
        if size == 0:
            return
        left -= cells
        number += 1
        yield _pairs(query[:size], ref[:size], own, other)


def _pairs(
    query: np.ndarray, ref: np.ndarray, own: _CodedSet, other: _CodedSet
) -> tuple[np.ndarray, np.ndarray, CodedPairs]:
    """Return copies of the numbers of queries and references, and these pairs."""
    columns = [RECYCLER.empty(query.nbytes).view(np.int64) for _ in range(6)]
    _look_up(query, ref, own.start, own.end, other.start, other.end, *columns)
    queries, refs, query_start, query_end, ref_start, ref_end = columns
    pairs = CodedPairs(own.codes, query_start, query_end, other.codes, ref_start, ref_end)
    return queries, refs, pairs


@driver
def _look_up(query, ref, own_start, own_end, other_start, other_end, queries, refs, query_start,
             query_end, ref_start, ref_end):  # fmt: skip
    for x in range(len(query)):
        i, j = query[x], ref[x]
        queries[x] = i
        refs[x] = j
        query_start[x] = own_start[i]
        query_end[x] = own_end[i]
        ref_start[x] = other_start[j]
        ref_end[x] = other_end[j]


@driver
def _next_window(n, m, within, i, j, most_cells, query, ref):
    """Write the pairs from (i, j) on until `ref` is full or the cells are enough.

    Returns
    -------
    size, i, j, cells
        Pairs written, the pair that follows, and the cells of those written.
    """
    size = 0
    cells = 0
    while i < len(n):
        if j >= len(m):
            i += 1
            j = i + 1 if within else 0
            continue
        if size == len(ref) or (size > 0 and cells + n[i] * m[j] > most_cells):
            break
        query[size] = i
        ref[size] = j
        cells += n[i] * m[j]
        size += 1
        j += 1
    return size, i, j, cells
