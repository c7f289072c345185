"""Alignment scores by the plainest recurrence: every gap length is tried at every cell."""

from __future__ import annotations

from collections.abc import Callable

from tests.naive.pairwise import parse_cigar

Score = Callable[[str, str], int]


def best_score(query: str, ref: str, score: Score, gaps: tuple[int, int], mode: str) -> int:
    """Highest score; mode: global, semiglobal or local."""
    n, m = len(query), len(ref)
    cost = [0] + [gaps[0] + length * gaps[1] for length in range(1, max(n, m) + 1)]
    h = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(n + 1):
        for j in range(m + 1):
            if i == 0 or j == 0:
                h[i][j] = -cost[i + j] if mode == "global" else 0
                continue
            ways = [h[i - 1][j - 1] + score(query[i - 1], ref[j - 1])]
            ways += [h[i - k][j] - cost[k] for k in range(1, i + 1)]
            ways += [h[i][j - k] - cost[k] for k in range(1, j + 1)]
            h[i][j] = max(*ways, 0) if mode == "local" else max(ways)
    if mode == "global":
        return h[n][m]
    if mode == "local":
        return max(max(row) for row in h)
    if n == 0 or m == 0:
        return 0
    return max(max(h[n][1:]), max(row[m] for row in h[1:]))


def score_of(cigar: str, query: str, ref: str, score: Score, gaps: tuple[int, int]) -> int:
    """Walk a CIGAR (= X I D) over both sequences, all of them, and add up its scores."""
    total = i = j = 0
    before = ""
    for length, op in parse_cigar(cigar):
        assert length > 0 and op != before and op in "=XID", cigar
        before = op
        if op in "=X":
            for _ in range(length):
                assert (query[i].upper() == ref[j].upper()) == (op == "="), cigar
                total += score(query[i], ref[j])
                i, j = i + 1, j + 1
        else:
            total -= gaps[0] + length * gaps[1]
            i, j = (i + length, j) if op == "I" else (i, j + length)
    assert (i, j) == (len(query), len(ref)), cigar
    return total
