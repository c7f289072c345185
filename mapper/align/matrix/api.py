"""Alignment of all with all: the public call.

Alignment of pairs with substitution matrices: the public call.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper.align.dispatch import as_batch
from mapper.align.matrix.engine import Align, MatrixEngine
from mapper.align.matrix.scoring import (
    DEFAULT_GAPS,
    DEFAULT_MATRIX,
    DEFAULT_MEMORY,
    CodedPairs,
    Scoring,
    SubstitutionMatrix,
    check_lengths,
    check_scoring,
    code_pairs,
    encode_letters,
)
from mapper.align.pairs import PairBatch, Sequences, sequence_set
from mapper.align.result import PairAlignments
from mapper.align.threads import thread_count
from mapper.errors import UsageError
from mapper.jit.accelerate import driver
from mapper.parallel.buffers import RECYCLER

WINDOW_PAIRS = 1 << 18
"""Most pairs of a window."""


class Window(NamedTuple):
    """Some pairs of an all-against-all comparison."""

    query: np.ndarray  # int64: index of each pair's query
    ref: np.ndarray  # int64: index of its reference
    found: PairAlignments


class _Rows(NamedTuple):
    """Pairs that follow one another, by their number: what the calling thread hands to workers."""

    query: int  # of the first pair
    ref: int
    n_pairs: int


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
    matrix: str | Path | tuple | SubstitutionMatrix = DEFAULT_MATRIX,
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
    n_threads = thread_count(threads)
    name = "the first set" if others is not None else "the set"
    own = _coded(sequences, scoring, name, n_threads)
    other = own if others is None else _coded(others, scoring, "the second set", n_threads)
    check_lengths(own.longest() + other.longest(), scoring)
    within = others is None

    def aligned(align: Align, rows: _Rows) -> Window:
        query, ref, pairs = _pairs(rows, own, other, within)
        return Window(query, ref, align(pairs))

    yield from engine.run_each(aligned, _windows(own, other, within, window, engine))


def _coded(sequences: Sequences, scoring: Scoring, name: str, threads: int) -> _CodedSet:
    letters, offsets = sequence_set(sequences, name)
    start, end = offsets[:-1], offsets[1:]
    codes = encode_letters(scoring.table, letters, start, end, name, 0, "sequence", threads)
    return _CodedSet(codes, start, end)


def _windows(
    own: _CodedSet, other: _CodedSet, within: bool, window: int, engine: MatrixEngine
) -> Iterator[_Rows]:
    """Cut all pairs into windows."""
    n, m = own.end - own.start, other.end - other.start
    total = int(n.sum()) * int(m.sum())
    if within:
        total = (total - int((n * n).sum())) // 2
    before = np.zeros(len(m) + 1, np.int64)
    np.cumsum(m, out=before[1:])
    i, j = 0, 1 if within else 0
    left, number = total, 0
    while True:
        most = engine.window_cells(number, left, total)
        first, size, i, j, cells = _next_window(n, before, within, i, j, window, most)
        if size == 0:
            return
        left -= cells
        number += 1
        yield _Rows(first[0], first[1], size)


def _pairs(
    rows: _Rows, own: _CodedSet, other: _CodedSet, within: bool
) -> tuple[np.ndarray, np.ndarray, CodedPairs]:
    """Return the numbers of queries and references, and these pairs."""
    columns = [RECYCLER.empty(8 * rows.n_pairs).view(np.int64) for _ in range(6)]
    _look_up(*rows[:2], within, own.start, own.end, other.start, other.end, *columns)
    queries, refs, query_start, query_end, ref_start, ref_end = columns
    pairs = CodedPairs(own.codes, query_start, query_end, other.codes, ref_start, ref_end)
    return queries, refs, pairs


@driver
def _look_up(i, j, within, own_start, own_end, other_start, other_end, queries, refs,
             query_start, query_end, ref_start, ref_end):  # fmt: skip
    """Write the pairs from (i, j) on, as many as there is room for."""
    x = 0
    while x < len(queries):
        if j >= len(other_start):
            i += 1
            j = i + 1 if within else 0
            continue
        for _ in range(min(len(queries) - x, len(other_start) - j)):
            queries[x] = i
            refs[x] = j
            query_start[x] = own_start[i]
            query_end[x] = own_end[i]
            ref_start[x] = other_start[j]
            ref_end[x] = other_end[j]
            x += 1
            j += 1


@driver
def _next_window(n, before, within, i, j, most_pairs, most_cells):
    """Find how far a window goes from pair (i, j) on: until there are enough pairs, or cells.

    Parameters
    ----------
    n
        Symbols of each query.
    before
        Symbols of all references before each, and of all.

    Returns
    -------
    first, size, i, j, cells
        The first pair, and how many there are; the pair that follows; cells of all.
    """
    first = (i, j)
    n_refs = len(before) - 1
    size = 0
    cells = 0
    while i < len(n) and size < most_pairs:
        if j >= n_refs:
            i += 1
            j = i + 1 if within else 0
            if size == 0:
                first = (i, j)
            continue
        # So many pairs of this query fit: at least `some`, and fewer than `none`.
        some, none = 0, min(most_pairs - size, n_refs - j) + 1
        while none - some > 1:
            middle = (some + none) >> 1
            if cells + n[i] * (before[j + middle] - before[j]) > most_cells:
                none = middle
            else:
                some = middle
        if some == 0:
            if size > 0:
                break
            some = 1  # a pair that is too large alone goes alone
        cells += n[i] * (before[j + some] - before[j])
        size += some
        j += some
    return first, size, i, j, cells


def align_matrix(
    queries: Sequences | PairBatch,
    refs: Sequences | None = None,
    *,
    matrix: str | Path | tuple | SubstitutionMatrix = DEFAULT_MATRIX,
    gaps: tuple[int, int] = DEFAULT_GAPS,
    span: str = "global",
    cigar: bool = True,
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments:
    """Align with the highest score of a substitution matrix, pair by pair.

    Parameters
    ----------
    queries, refs
        As for :func:`mapper.edit_distance`; letters of the matrix in either case.
    matrix
        As :func:`mapper.align.matrix.scoring.substitution_matrix` takes it, or its result.
    gaps
        Gap open o and gap extend e, from 0 to 1000: a gap of n symbols costs ``o + n * e``.
    span
        ``global``; ``semiglobal``, all four ends free; or ``local``, the best parts.
    cigar
        Also find an alignment: operations ``= X I D``, I consumes the query only.
    memory
        Cells of a pair whose path is wanted, at most (a byte each on the CPU, half a byte on a
        device); one with more has the status ``no_memory`` and no score.
    device, threads, first_pair
        As for :func:`mapper.edit_distance`. No effect on the result.

    Returns
    -------
    Arrays of one row a pair, in input order. Of several best alignments that which ends first
    in the reference, then in the query. A local alignment that scores nothing is empty: score
    0, all coordinates 0.

    Raises
    ------
    UsageError, InputFormatError, DeviceError
        As for :func:`mapper.edit_distance`; for letters that the matrix does not score.

    Notes
    -----
    O(n m) time for lengths n and m. On a device of compute capability 9.0 two cells are
    computed at a time, in 16 bits each, where no score can leave them; else one, in 32 bits.
    The two are of one pair, or, where queries have references in common, of two queries.

    References
    ----------
    Blazewicz et al. (2011), BMC Bioinformatics 12:181. doi:10.1186/1471-2105-12-181

    Examples
    --------
    >>> found = align_matrix(["GATTACA"], ["GAATA"], matrix=(1, -1), gaps=(1, 1))
    >>> int(found.score[0]), found.cigar(0)
    (0, '2=1X2=2I')
    """
    scoring = check_scoring(matrix, gaps, span, cigar, memory)
    pairs = code_pairs(as_batch(queries, refs), scoring, first_pair, thread_count(threads))
    return MatrixEngine(scoring, device, threads).align(pairs)
