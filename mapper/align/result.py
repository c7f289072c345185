"""Results of the pairwise engines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.cigar import LETTERS, from_text, to_text

OK, OVER_LIMIT, HEURISTIC, NO_MEMORY = range(4)
"""Statuses of a pair, int8."""

STATUS_NAMES = ("ok", "over_limit", "heuristic", "no_memory")
"""``ok``: the score is optimal. ``over_limit``: no alignment within the given limit; no
score, no CIGAR. ``heuristic``: the alignment is valid, but a heuristic cut the search, so a
better one may exist. ``no_memory``: the workspace would exceed the limit; no score."""

NO_SCORE = -1
"""Score of a pair without a result (scores of matrix alignments may be negative: there the
status decides)."""


class Columns(NamedTuple):
    """Result columns, one row a pair, that compiled code fills."""

    score: np.ndarray  # int64
    status: np.ndarray  # int8
    query_start: np.ndarray  # int64
    query_end: np.ndarray  # int64
    ref_start: np.ndarray  # int64
    ref_end: np.ndarray  # int64

    def rows(self, first: int, last: int) -> Columns:
        """Return the rows of pairs first:last."""
        return Columns(*(column[first:last] for column in self))


def empty_columns(n_pairs: int) -> Columns:
    """Return columns for n pairs, uninitialised."""
    spans = [np.empty(n_pairs, np.int64) for _ in range(4)]
    return Columns(np.empty(n_pairs, np.int64), np.empty(n_pairs, np.int8), *spans)


def clear_columns(columns: Columns, first: int, last: int) -> None:
    """Write that pairs first:last have no result."""
    for column in columns:
        column[first:last] = NO_SCORE
    columns.status[first:last] = OK


def new_columns(n_pairs: int) -> Columns:
    """Return columns for n pairs without a result."""
    columns = empty_columns(n_pairs)
    clear_columns(columns, 0, n_pairs)
    return columns


class PairAlignment(NamedTuple):
    """One alignment, in readable form."""

    score: int | None
    status: str
    cigar: str | None
    query_start: int
    query_end: int
    ref_start: int
    ref_end: int

    def pretty(self, query: str, ref: str, width: int = 60) -> str:
        """Return query, marks (``|`` match, ``*`` mismatch) and reference, in lines.

        What is clipped or beyond the ends is left out.

        Raises
        ------
        ValueError
            If the alignment was made without a CIGAR, or there is none.
        """
        if self.score is None:
            raise ValueError(f"there is no alignment to show: the pair's status is {self.status}")
        if self.cigar is None:
            raise ValueError("there is no CIGAR to show; align with cigar=True")
        top, marks, bottom = [], [], []
        v, h = self.query_start, self.ref_start
        for n, op in _parse(self.cigar):
            if op == "S":  # the end of the query
                break
            top.append("-" * n if op == "D" else query[v : v + n])
            bottom.append("-" * n if op == "I" else ref[h : h + n])
            marks.append({"=": "|", "X": "*"}.get(op, " ") * n)
            v += 0 if op == "D" else n
            h += 0 if op == "I" else n
        rows = ["".join(parts) for parts in (top, marks, bottom)]
        blocks = [
            "\n".join(row[i : i + width] for row in rows) for i in range(0, len(rows[0]), width)
        ]
        return "\n\n".join(blocks)


class PairAlignments(NamedTuple):
    """Columns of the alignments of n pairs, in input order; ``len()`` is that of a tuple, 8.

    Coordinates are 0-based and half-open, in symbols. ``-1`` stands for what is not known:
    everything of a pair without a result, and, without CIGARs, the start of an alignment
    whose beginning is free.
    """

    score: np.ndarray  # int64 (n,): distance, penalty or matrix score
    status: np.ndarray  # int8 (n,): index of STATUS_NAMES: ok, over_limit, heuristic, no_memory
    query_start: np.ndarray  # int64 (n,)
    query_end: np.ndarray  # int64 (n,)
    ref_start: np.ndarray  # int64 (n,)
    ref_end: np.ndarray  # int64 (n,)
    cigar_offsets: np.ndarray | None  # int64 (n + 1,); None without CIGARs
    cigar_ops: np.ndarray | None  # uint32, length << 4 | op; = X I D of start:end

    @property
    def n_pairs(self) -> int:
        return len(self.score)

    def has_results(self) -> np.ndarray:
        """Return True for each pair with a score: bool (n,)."""
        return (self.status == OK) | (self.status == HEURISTIC)

    def has_result(self, i: int) -> bool:
        """Return True if pair i has a score."""
        return bool(self.status[i] in (OK, HEURISTIC))

    def cigar(self, i: int) -> str | None:
        """Return the CIGAR of pair i as text (empty for two empty sequences), or None.

        Negative numbers count from the end.
        """
        i = range(self.n_pairs)[i]
        if self.cigar_ops is None or self.cigar_offsets is None or not self.has_result(i):
            return None
        ops = self.cigar_ops[self.cigar_offsets[i] : self.cigar_offsets[i + 1]]
        return to_text(ops) if len(ops) else ""

    def pair(self, i: int) -> PairAlignment:
        """Return pair i in readable form."""
        return PairAlignment(
            int(self.score[i]) if self.has_result(i) else None,
            STATUS_NAMES[self.status[i]],
            self.cigar(i),
            *(int(column[i]) for column in self[2:6]),
        )


def _parse(cigar: str) -> list[tuple[int, str]]:
    return [(int(op) >> 4, LETTERS[int(op) & 15]) for op in from_text(cigar)]
