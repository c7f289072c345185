"""Alignment with two-piece gap costs by the full matrix, from letters alone.

Without another rule, every letter but A, C, G and T is ambiguous and matches nothing, not even
itself; beside one, a mismatch may cost less.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.naive.gotoh import parse_cigar, same
from tests.naive.pairwise import Same

NEVER = -(10**9)


class Scoring(NamedTuple):
    """A gap of n bases costs ``min(o1 + n * e1, o2 + n * e2)``; penalties are positive."""

    match: int = 2
    mismatch: int = 8
    o1: int = 12
    e1: int = 2
    o2: int = 23
    e2: int = 1
    ambiguous: int | None = 1  # None: as a mismatch

    def difference(self, a: str, b: str) -> int:
        is_ambiguous = a not in "ACGT" or b not in "ACGT"
        if self.ambiguous is None or not is_ambiguous:
            return self.mismatch
        return min(self.ambiguous, self.mismatch)

    def gap(self, n: int) -> int:
        return min(self.o1 + n * self.e1, self.o2 + n * self.e2) if n else 0


def all_scores(
    query: str, ref: str, scoring: Scoring, matches: Same = same,
    query_begin: int = 0, ref_begin: int = 0,
) -> list[list[int]]:  # fmt: skip
    """Best score of each prefix of `query` (row) with each prefix of `ref` (column).

    The first `query_begin` or `ref_begin` symbols may stay unaligned.
    """
    pieces = ((scoring.o1, scoring.e1), (scoring.o2, scoring.e2))
    scores = []
    insertions = [[NEVER] * (len(ref) + 1) for _ in pieces]  # of the row above, and its own
    for i in range(len(query) + 1):
        row: list[int] = []
        deletions = [NEVER for _ in pieces]
        for j in range(len(ref) + 1):
            ways = []
            if (i == 0 and j <= ref_begin) or (j == 0 and i <= query_begin):
                ways.append(0)
            for p, (o, e) in enumerate(pieces):
                if j:
                    deletions[p] = max(row[j - 1] - o, deletions[p]) - e
                if i:
                    insertions[p][j] = max(scores[i - 1][j] - o, insertions[p][j]) - e
                ways += [deletions[p], insertions[p][j]]
            if i and j:
                a, b = query[i - 1], ref[j - 1]
                score = scoring.match if matches(a, b) else -scoring.difference(a, b)
                ways.append(scores[i - 1][j - 1] + score)
            row.append(max(ways))
        scores.append(row)
    return scores


def best_score(query: str, ref: str, scoring: Scoring, matches: Same = same) -> int:
    """Score of the best alignment of all of both."""
    return all_scores(query, ref, scoring, matches)[-1][-1]


def best_end(
    query: str, ref: str, scoring: Scoring, free: tuple[int, int, int, int], matches: Same = same
) -> tuple[int, int, int]:
    """Best score with free ends (query's begin and end, reference's), and where it ends.

    Of several ends that on the lowest diagonal, reference less query.
    """
    query_begin, query_end, ref_begin, ref_end = free
    n, m = len(query), len(ref)
    scores = all_scores(query, ref, scoring, matches, query_begin, ref_begin)
    ends = [(n, j) for j in range(m + 1) if m - j <= ref_end]
    ends += [(i, m) for i in range(n + 1) if n - i <= query_end]
    i, j = max(ends, key=lambda end: (scores[end[0]][end[1]], end[0] - end[1]))
    return scores[i][j], i, j


def best_extension(query: str, ref: str, scoring: Scoring, end_bonus: int) -> tuple[int, bool]:
    """Score of the best alignment of prefixes, without bonus, and True if it uses all of `query`.

    All of it is used if that scores at least as much with the bonus.
    """
    scores = all_scores(query, ref, scoring)
    best, whole = max(map(max, scores)), max(scores[-1])
    return (whole, True) if whole + end_bonus >= best else (best, False)


class Replay(NamedTuple):
    """What a CIGAR says of a query and a reference."""

    score: int
    query_used: int
    ref_used: int


def replay(cigar: str, query: str, ref: str, scoring: Scoring, matches: Same = same) -> Replay:
    """Walk `cigar` (= X I D) from the start of both sequences.

    Raises
    ------
    AssertionError
        If an operation is empty, repeats the one before, or does not tell the truth.
    """
    score = i = j = 0
    before = ""
    for length, op in parse_cigar(cigar):
        assert length > 0 and op != before and op in "=XID", cigar
        before = op
        if op in "=X":
            for _ in range(length):
                assert matches(query[i], ref[j]) == (op == "="), (cigar, i, j)
                score += scoring.match if op == "=" else -scoring.difference(query[i], ref[j])
                i, j = i + 1, j + 1
        else:
            score -= scoring.gap(length)
            i, j = (i + length, j) if op == "I" else (i, j + length)
            assert i <= len(query) and j <= len(ref), cigar
    return Replay(score, i, j)
