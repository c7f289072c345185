"""Public calls of matrix alignment: of pairs, and of all pairs of one or two sets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from mapper.align.dispatch import as_batch
from mapper.align.matrix.cpu import align_one_matrix
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
    numbers_for,
)
from mapper.align.pairs import PairBatch, Sequences, sequence_set
from mapper.align.result import PairAlignment, PairAlignments
from mapper.align.single import (
    BAD,
    N_ROW,
    PairResult,
    is_cpu,
    is_single,
    joined_letters,
    result_of,
    scalar_of,
)
from mapper.align.threads import check_threads, thread_count
from mapper.errors import UsageError
from mapper.jit.accelerate import driver
from mapper.parallel.buffers import RECYCLER

WINDOW_PAIRS = 1 << 18
"""Most pairs of a window."""


_kept_scoring = lru_cache(maxsize=16)(check_scoring)
"""For calls of two strings: looking a matrix up takes longer than aligning."""


class Window(NamedTuple):
    """Consecutive pairs of an all-against-all comparison."""

    query: np.ndarray  # int64: index of each pair's query
    ref: np.ndarray  # int64: index of its reference
    found: PairAlignments


class _Rows(NamedTuple):
    """Consecutive pairs by number, as the calling thread passes them to workers."""

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
    cigar: bool = False,
    memory: int = DEFAULT_MEMORY,
    window: int = WINDOW_PAIRS,
    device: str = "auto",
    threads: int | None = None,
) -> Iterator[Window]:
    """Align all pairs of one set, each once, or all sequences of one set with all of another.

    Parameters
    ----------
    sequences, others
        One set, of which queries i and references j > i are aligned; or queries and, in `others`,
        references.
    window
        Most pairs of a window. Its number of pairs also depends on the cells of the matrices and
        on the memory of the devices. No effect on the results.
    matrix, gaps, span, cigar, memory, device, threads
        As for :func:`mapper.align_matrix`.

    Yields
    ------
    Windows of pairs in order of query, then reference: :class:`Window`, whose ``query`` and ``ref``
    (int64) number the sequences of each pair, and whose ``found`` holds the alignments, as
    :class:`mapper.align.result.PairAlignments`. Idle devices take the next window; only a few are
    in memory at a time.

    Raises
    ------
    As :func:`mapper.align_matrix`.

    References
    ----------
    Blazewicz et al. (2011), BMC Bioinformatics 12:181 (windows sized by a device's memory).

    Examples
    --------
    >>> for window in align_all(["ACGT", "ACGA", "TTTT"], matrix=(2, -3), span="local"):
    ...     for query, ref, score in zip(window.query, window.ref, window.found.score, strict=True):
    ...         print(query, ref, score)
    0 1 6
    0 2 2
    1 2 0
    """
    if window < 1:
        raise UsageError(f"window {window}: at least 1 pair is expected")
    scoring = check_scoring(matrix, gaps, span, cigar, memory)
    engine = MatrixEngine(scoring, device, threads)
    n_threads = thread_count(threads)
    name = "the first set" if others is not None else "the set"
    own = _coded(sequences, "sequences", scoring, name, n_threads)
    other = own
    if others is not None:
        other = _coded(others, "others", scoring, "the second set", n_threads)
    check_lengths(own.longest() + other.longest(), scoring)
    within = others is None

    def aligned(align: Align, rows: _Rows) -> Window:
        query, ref, pairs = _pairs(rows, own, other, within)
        return Window(query, ref, align(pairs))

    yield from engine.map_each(aligned, _windows(own, other, within, window, engine))


def _coded(
    sequences: Sequences, argument: str, scoring: Scoring, name: str, threads: int
) -> _CodedSet:
    letters, offsets = sequence_set(sequences, argument)
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
    """Write the pairs from (i, j) on, as many as the columns hold."""
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
    """Find the extent of a window from pair (i, j) on: up to the most pairs or cells.

    Parameters
    ----------
    n
        Length of each query.
    before
        Total length of the references before each, and of all.

    Returns
    -------
    first, size, i, j, cells
        The first pair and the number of pairs; the next pair; cells of all.
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
        # Binary search: `some` pairs of this query fit, `none` do not.
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
            some = 1  # a pair that exceeds the limit goes alone
        cells += n[i] * (before[j + some] - before[j])
        size += some
        j += some
    return first, size, i, j, cells


@overload
def align_matrix(  # type: ignore[overload-overlap]
    queries: str | bytes,
    refs: str | bytes,
    *,
    matrix: str | Path | tuple | SubstitutionMatrix = DEFAULT_MATRIX,
    gaps: tuple[int, int] = DEFAULT_GAPS,
    span: str = "global",
    cigar: Literal[False] = False,
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> int | None: ...


@overload
def align_matrix(  # type: ignore[overload-overlap]
    queries: str | bytes,
    refs: str | bytes,
    *,
    matrix: str | Path | tuple | SubstitutionMatrix = DEFAULT_MATRIX,
    gaps: tuple[int, int] = DEFAULT_GAPS,
    span: str = "global",
    cigar: Literal[True],
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignment: ...


@overload
def align_matrix(
    queries: Sequences | PairBatch,
    refs: Sequences | None = None,
    *,
    matrix: str | Path | tuple | SubstitutionMatrix = DEFAULT_MATRIX,
    gaps: tuple[int, int] = DEFAULT_GAPS,
    span: str = "global",
    cigar: bool = False,
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments: ...


def align_matrix(
    queries: Any,
    refs: Any = None,
    *,
    matrix: str | Path | tuple | SubstitutionMatrix = DEFAULT_MATRIX,
    gaps: tuple[int, int] = DEFAULT_GAPS,
    span: str = "global",
    cigar: bool = False,
    memory: int = DEFAULT_MEMORY,
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairAlignments | PairResult:
    """Align pairs with the highest score by a substitution matrix.

    Parameters
    ----------
    queries, refs
        As for :func:`mapper.edit_distance`; letters of the matrix in either case.
    matrix
        As :func:`mapper.align.matrix.scoring.substitution_matrix` takes it, or its result. The
        default is for nucleotides: 5 for equal bases, -4 for different ones, and scores of IUPAC
        letters between; for amino acids give ``"BLOSUM62"`` or another one.
    gaps
        Gap open o and gap extend e, from 0 to 1000: a gap of n symbols costs ``o + n * e``.
    span
        ``global``; ``semiglobal``, all four ends free; or ``local``, the best parts.
    cigar
        Also return an alignment: operations ``= X I D``, where I consumes the query only.
    memory
        Most cells of a pair whose path is requested (a byte each on the CPU, half a byte on a
        device); a pair with more has the status ``no_memory`` and no score.
    device, threads, first_pair
        As for :func:`mapper.edit_distance`. No effect on the result.

    Returns
    -------
    Of two strings a scalar, else :class:`mapper.align.result.PairAlignments`, as for
    :func:`mapper.edit_distance`; scores may be negative, so that the status alone tells which pairs
    have none. Ties: the alignment that ends first in the reference, then in the query. A local
    alignment without a positive score is empty: score 0, all coordinates 0.

    Raises
    ------
    UsageError, InputFormatError, DeviceError
        As for :func:`mapper.edit_distance`; for letters that the matrix does not score.

    Notes
    -----
    O(n m) time for lengths n and m. A device of compute capability 9.0 computes two cells at a
    time, in 16 bits each, if no score can exceed them; else one, in 32 bits. The two cells are
    of one pair or, if queries share references, of two queries.

    References
    ----------
    Blazewicz et al. (2011), BMC Bioinformatics 12:181. doi:10.1186/1471-2105-12-181

    Examples
    --------
    >>> align_matrix("HEAGAWGHEE", "PAWHEAE", matrix="BLOSUM62", span="local")
    17
    >>> found = align_matrix(
    ...     ["GATTACA"], ["GAATA"], matrix=(1, -1), gaps=(1, 1), cigar=True
    ... )
    >>> int(found.score[0]), found.cigar(0)
    (0, '2=2I1=1X1=')
    """
    if is_single(queries, refs):
        letters = joined_letters(queries, refs)
        if letters is not None and is_cpu(device):
            check_threads(threads)
            kept = _is_small_key(matrix) and isinstance(gaps, tuple)
            check = _kept_scoring if kept else check_scoring
            scoring = check(matrix, gaps, span, cigar, memory)
            row = np.empty(N_ROW, np.int64)
            # Scores of so few letters fit 32 bits, whatever the matrix.
            ops = align_one_matrix(
                *letters, scoring.table.code_of, scoring.scores,
                numbers_for(len(letters[0]), scoring), *scoring.gaps, scoring.mode, memory, cigar,
                row,
            )  # fmt: skip
            if row[BAD] < 0:
                return result_of(row, ops, cigar)
        return scalar_of(
            align_matrix(
                [queries], [refs], matrix=matrix, gaps=gaps, span=span, cigar=cigar,
                memory=memory, device=device, threads=threads, first_pair=first_pair,
            )
        )  # fmt: skip
    scoring = check_scoring(matrix, gaps, span, cigar, memory)
    pairs = code_pairs(as_batch(queries, refs), scoring, first_pair, thread_count(threads))
    return MatrixEngine(scoring, device, threads).align(pairs)


def _is_small_key(matrix: object) -> bool:
    """Return True for a name or two scores: what options of a call can be kept under."""
    if isinstance(matrix, str):
        return True
    return isinstance(matrix, tuple) and all(isinstance(score, int) for score in matrix)
