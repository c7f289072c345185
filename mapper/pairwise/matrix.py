"""Alignment with substitution matrices, of pairs and of all with all: the public calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mapper.errors import UsageError
from mapper.pairwise.dp_matrix import GLOBAL, LOCAL, SEMIGLOBAL, Gaps
from mapper.pairwise.edit import as_batch, require_cpu
from mapper.pairwise.matrices import (
    MAX_SCORE,
    SubstitutionMatrix,
    encode_letters,
    substitution_matrix,
)
from mapper.pairwise.matrix_cpu import align_matrix_pairs
from mapper.pairwise.packing import PairBatch, Sequences, batch_of
from mapper.pairwise.result import PairAlignments
from mapper.pairwise.run import run_chunks

MODES = {"global": GLOBAL, "semiglobal": SEMIGLOBAL, "local": LOCAL}
"""Needleman-Wunsch; free ends of both sequences (overlaps); Smith-Waterman."""

DEFAULT_GAPS = (10, 1)
"""Gap open and gap extend: a gap of n costs 10 + n."""

DEFAULT_MEMORY = 1 << 30
WINDOW_PAIRS = 1 << 16
"""Pairs of an all-against-all comparison whose results are held at a time."""

_CELLS_A_SYMBOL = 256  # a chunk of run_chunks holds so many cells for each symbol it counts
_MAX_SUM = 2**29  # of scores along a path, in int32


def align_matrix(
    queries: Sequences | PairBatch,
    refs: Sequences | None = None,
    *,
    matrix: str | tuple | SubstitutionMatrix = "BLOSUM62",
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
        As :func:`mapper.pairwise.matrices.substitution_matrix` takes it, or its result.
    gaps
        Gap open o and gap extend e, from 0 to 1000: a gap of n symbols costs ``o + n * e``.
    span
        ``global``; ``semiglobal``, all four ends free; or ``local``, the best parts.
    cigar
        Also find an alignment: operations ``= X I D``, I consumes the query only.
    memory
        Bytes a thread may use for one path, one a cell; a pair with more cells has the
        status ``no_memory`` and no score.
    device, threads, first_pair
        As for :func:`mapper.edit_distance`.

    Returns
    -------
    Arrays of one row a pair, in input order. A local alignment that scores nothing is
    empty: score 0, all coordinates 0.

    Raises
    ------
    UsageError, InputFormatError, DeviceError
        As for :func:`mapper.edit_distance`; for letters that the matrix does not score.

    Notes
    -----
    O(n m) time for lengths n and m.

    References
    ----------
    Blazewicz et al. (2011), BMC Bioinformatics 12:181. doi:10.1186/1471-2105-12-181

    Examples
    --------
    >>> found = align_matrix(["GATTACA"], ["GAATA"], matrix=(1, -1), gaps=(1, 1))
    >>> int(found.score[0]), found.cigar(0)
    (0, '2=1X2=2I')
    """
    batch = as_batch(queries, refs)
    table = matrix if isinstance(matrix, SubstitutionMatrix) else substitution_matrix(matrix)
    if span not in MODES:
        raise UsageError(f"span {span!r}: one of {', '.join(MODES)} is expected")
    costs = check_gaps(gaps)
    require_cpu(device)
    n, m = batch.query_end - batch.query_start, batch.ref_end - batch.ref_start
    greatest = max(int(np.abs(table.scores).max()), sum(costs))
    if batch.n_pairs and int((n + m).max()) * greatest > _MAX_SUM:
        raise UsageError(
            f"sequences of {int((n + m).max())} symbols together with scores of up to {greatest}: "
            f"the product must not exceed {_MAX_SUM}"
        )
    query_codes = encode_letters(
        table, batch.queries, batch.query_start, batch.query_end, "query", first_pair
    )
    ref_codes = encode_letters(
        table, batch.refs, batch.ref_start, batch.ref_end, "reference", first_pair
    )
    return run_chunks(
        lambda first, last, columns, counts: align_matrix_pairs(
            query_codes, batch.query_start, batch.query_end, ref_codes, batch.ref_start,
            batch.ref_end, first, last, table.scores, costs, MODES[span], memory, cigar, columns,
            counts,
        ),
        n * m // _CELLS_A_SYMBOL + 1,
        cigar,
        threads,
    )  # fmt: skip


class Window(NamedTuple):
    """Some pairs of an all-against-all comparison."""

    query: np.ndarray  # int64: index of each pair's query
    ref: np.ndarray  # int64: index of its reference
    found: PairAlignments


def align_all(
    sequences: Sequences, others: Sequences | None = None, *, window: int = WINDOW_PAIRS,
    **options: object,
) -> Iterator[Window]:  # fmt: skip
    """Align all with all: within one set each pair once, or every one with every other.

    Parameters
    ----------
    sequences, others
        The set, queries i < references j in it; or queries and, as `others`, references.
    window
        Pairs aligned at a time: what bounds the memory.
    **options
        As for :func:`align_matrix`.

    Yields
    ------
    Windows of pairs in order of query, then reference.

    Raises
    ------
    As :func:`align_matrix`.
    """
    if window < 1:
        raise UsageError(f"window {window}: at least 1 pair is expected")
    own = batch_of(sequences, _as_many(sequences))
    other = own if others is None else batch_of(others, _as_many(others))
    queries: list[np.ndarray] = []
    refs: list[np.ndarray] = []
    n_held = 0

    def aligned() -> Window:
        query, ref = np.concatenate(queries), np.concatenate(refs)
        batch = PairBatch(
            own.queries, own.query_start[query], own.query_end[query],
            other.queries, other.query_start[ref], other.query_end[ref],
        )  # fmt: skip
        return Window(query, ref, align_matrix(batch, **options))  # type: ignore[arg-type]

    for i in range(own.n_pairs):
        partners = np.arange(i + 1 if others is None else 0, other.n_pairs)
        while len(partners):
            taken, partners = partners[: window - n_held], partners[window - n_held :]
            queries.append(np.full(len(taken), i))
            refs.append(taken)
            n_held += len(taken)
            if n_held == window:
                yield aligned()
                queries, refs, n_held = [], [], 0
    if n_held:
        yield aligned()


def _as_many(sequences: Sequences) -> list[str]:
    """Return so many empty sequences: the other side of a batch that has one."""
    n = len(sequences[1]) - 1 if isinstance(sequences, tuple) else len(sequences)
    return [""] * n


def check_gaps(gaps: tuple[int, int]) -> Gaps:
    """Return gap costs, or refuse what cannot be meant."""
    if len(gaps) != 2 or any(int(cost) != cost or not 0 <= cost <= MAX_SCORE for cost in gaps):
        raise UsageError(f"gaps {gaps}: open and extend, whole numbers from 0 to {MAX_SCORE}")
    return Gaps(int(gaps[0]), int(gaps[1]))
