"""What a matrix alignment is asked to be, and pairs in the codes of its letters."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper.align.matrix.dp import GLOBAL, LOCAL, SEMIGLOBAL, Gaps
from mapper.align.matrix.scoring import (
    MAX_SCORE,
    SubstitutionMatrix,
    encode_letters,
    substitution_matrix,
)
from mapper.align.pairs import PairBatch
from mapper.errors import UsageError
from mapper.parallel.buffers import RECYCLER

MODES = {"global": GLOBAL, "semiglobal": SEMIGLOBAL, "local": LOCAL}
"""Needleman-Wunsch; free ends of both sequences (overlaps); Smith-Waterman."""

DEFAULT_MATRIX = "BLOSUM62"
DEFAULT_GAPS = (10, 1)
"""Gap open and gap extend: a gap of n costs 10 + n."""

DEFAULT_MEMORY = 1 << 30
"""Cells of a pair whose path is wanted, at most."""

_MAX_SUM = 2**29  # of scores along a path, in int32


class Scoring(NamedTuple):
    """A matrix alignment, checked."""

    table: SubstitutionMatrix
    gaps: Gaps
    mode: int  # GLOBAL, SEMIGLOBAL, LOCAL
    cigar: bool
    memory: int  # most cells of a pair whose path is wanted

    @property
    def scores(self) -> np.ndarray:
        return self.table.scores

    @property
    def starts_whole(self) -> bool:
        """Whether every alignment begins with the first symbols."""
        return self.mode == GLOBAL


class CodedPairs(NamedTuple):
    """Pairs in the codes of a matrix; query i is ``query_codes[query_start[i]:query_end[i]]``."""

    query_codes: np.ndarray  # uint8
    query_start: np.ndarray  # int64 (n,)
    query_end: np.ndarray  # int64 (n,)
    ref_codes: np.ndarray  # uint8
    ref_start: np.ndarray  # int64 (n,)
    ref_end: np.ndarray  # int64 (n,)

    @property
    def n_pairs(self) -> int:
        return len(self.query_start)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the symbols of each query, and of each reference, int64 (n,), to be kept."""
        n, m = (RECYCLER.empty(8 * self.n_pairs).view(np.int64) for _ in range(2))
        np.subtract(self.query_end, self.query_start, out=n)
        np.subtract(self.ref_end, self.ref_start, out=m)
        return n, m

    def cells(self) -> np.ndarray:
        """Return the cells of each matrix."""
        n, m = self.lengths()
        n *= m
        return n

    def part(self, first: int, last: int) -> CodedPairs:
        """Return pairs first:last."""
        rows = slice(first, last)
        return self._replace(
            query_start=self.query_start[rows], query_end=self.query_end[rows],
            ref_start=self.ref_start[rows], ref_end=self.ref_end[rows],
        )  # fmt: skip


def check_scoring(
    matrix: str | Path | tuple | SubstitutionMatrix, gaps: tuple[int, int], span: str, cigar: bool,
    memory: int,
) -> Scoring:  # fmt: skip
    """Return what is asked for, or raise UsageError for what cannot be meant."""
    table = matrix if isinstance(matrix, SubstitutionMatrix) else substitution_matrix(matrix)
    if span not in MODES:
        raise UsageError(f"span {span!r}: one of {', '.join(MODES)} is expected")
    return Scoring(table, check_gaps(gaps), MODES[span], cigar, memory)


def check_gaps(gaps: tuple[int, int]) -> Gaps:
    """Return gap costs, or refuse what cannot be meant."""
    if len(gaps) != 2 or any(int(cost) != cost or not 0 <= cost <= MAX_SCORE for cost in gaps):
        raise UsageError(f"gaps {gaps}: open and extend, whole numbers from 0 to {MAX_SCORE}")
    return Gaps(int(gaps[0]), int(gaps[1]))


def check_lengths(longest: int, scoring: Scoring) -> None:
    """Raise UsageError if scores could leave 32 bits, for two sequences of so many symbols."""
    greatest = max(int(np.abs(scoring.scores).max()), sum(scoring.gaps))
    if longest * greatest > _MAX_SUM:
        raise UsageError(
            f"sequences of {longest} symbols together with scores of up to {greatest}: "
            f"the product must not exceed {_MAX_SUM}"
        )


def code_pairs(batch: PairBatch, scoring: Scoring, first_pair: int, threads: int = 1) -> CodedPairs:
    """Return a batch in the codes of the matrix; `threads` have no effect on the result.

    Raises
    ------
    UsageError
        If scores could leave 32 bits.
    InputFormatError
        At the first letter that the matrix does not score.
    """
    if batch.n_pairs:
        lengths = batch.query_end - batch.query_start + batch.ref_end - batch.ref_start
        check_lengths(int(lengths.max()), scoring)
    query_codes = encode_letters(
        scoring.table, batch.queries, batch.query_start, batch.query_end, "the query", first_pair,
        threads=threads,
    )  # fmt: skip
    ref_codes = encode_letters(
        scoring.table, batch.refs, batch.ref_start, batch.ref_end, "the reference", first_pair,
        threads=threads,
    )  # fmt: skip
    return CodedPairs(
        query_codes, batch.query_start, batch.query_end, ref_codes, batch.ref_start, batch.ref_end
    )


def without_memory(pairs: CodedPairs, scoring: Scoring) -> np.ndarray:
    """Say of each pair whether its path would take more memory than is allowed: bool (n,)."""
    if not scoring.cigar:
        return np.zeros(pairs.n_pairs, np.bool_)
    over: np.ndarray = pairs.cells() > scoring.memory
    return over
