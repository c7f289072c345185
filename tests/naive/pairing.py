"""Best pairs by trying all: alignments as plain tuples, no index arithmetic."""

from __future__ import annotations

from typing import NamedTuple

QUARTERS = 4  # pair scores are in quarters of a score unit


class Placed(NamedTuple):
    """One alignment of a read of `read_len` bases."""

    strand: int
    ref_id: int
    start: int
    end: int
    query_start: int
    query_end: int
    score: int
    read_len: int


class Model(NamedTuple):
    """Proper insert sizes and their cost."""

    cost: dict[int, int]


def five_prime(a: Placed) -> int:
    """Where the read's first base would lie if nothing were clipped (as a boundary)."""
    return a.end + (a.read_len - a.query_end) if a.strand else a.start - a.query_start


def insert(a: Placed, b: Placed) -> int | None:
    """Reverse mate's 5' end minus the forward mate's; None if they cannot be a pair."""
    if a.ref_id != b.ref_id or a.strand == b.strand:
        return None
    forward, reverse = (b, a) if a.strand else (a, b)
    return five_prime(reverse) - five_prime(forward)


def pair_score(a: Placed, b: Placed, model: Model) -> int | None:
    """Score of a proper pair in quarters, or None."""
    size = insert(a, b)
    if size is None or size not in model.cost:
        return None
    return QUARTERS * (a.score + b.score) - model.cost[size]


def best_pairs(first: list[Placed], second: list[Placed], model: Model) -> tuple[int | None, set]:
    """Best score, and every pair of rows that reaches it."""
    scores = {
        (i, j): score
        for i, a in enumerate(first)
        for j, b in enumerate(second)
        if (score := pair_score(a, b, model)) is not None
    }
    best = max(scores.values(), default=None)
    return best, {rows for rows, score in scores.items() if score == best}


def values(mine: list[Placed], others: list[Placed], model: Model, penalty: int) -> list[int]:
    """Best score of a whole pair that each of `mine` can be part of, in quarters.

    Without a proper partner the mate stays at its best, at the cost of breaking the pair.
    """
    apart = max((b.score for b in others), default=None)
    result = []
    for a in mine:
        options = [QUARTERS * (a.score + (0 if apart is None else apart - penalty))]
        options += [s for b in others if (s := pair_score(a, b, model)) is not None]
        result.append(max(options))
    return result
