"""The rule of bwa mem for reads with hits on ALT contigs, by its definition.

Hits are marked twice: among all of them, and once more among those of the primary assembly alone.
"""

from __future__ import annotations

from typing import NamedTuple


class Hit(NamedTuple):
    """Bases ``start:end`` of the read as given, aligned with a score."""

    start: int
    end: int
    score: int
    is_alt: bool


def marked(hits: list[Hit], rows: list[int]) -> dict[int, int]:
    """Return the hit that each is secondary to; those that are to none are their own.

    A hit is secondary to the best one, itself secondary to none, that covers half of the shorter
    of the two. Of equals, those of the primary assembly come first.
    """
    found: dict[int, int] = {}
    for i in sorted(rows, key=lambda row: (-hits[row].score, hits[row].is_alt, row)):
        hit = hits[i]
        found[i] = i
        for j in [row for row in found if found[row] == row and row != i]:
            other = hits[j]
            common = min(hit.end, other.end) - max(hit.start, other.start)
            if common >= 0.5 * min(hit.end - hit.start, other.end - other.start):
                found[i] = j
                break
    return found


class Lines(NamedTuple):
    """The records of a read."""

    primary: int
    supplementary: set[int]
    better: dict[int, int]
    """For records on the primary assembly, the ALT hit that they lose to."""


def lines(hits: list[Hit]) -> Lines:
    """Return the records of a read; `hits` are rows, none of them below the lowest score."""
    everywhere = marked(hits, list(range(len(hits))))
    primary_rows = [i for i, hit in enumerate(hits) if not hit.is_alt]
    main = marked(hits, primary_rows or list(range(len(hits))))
    heads = [i for i in main if main[i] == i]
    primary = max(heads, key=lambda i: (hits[i].score, -i))
    alt_heads = {i for i in everywhere if everywhere[i] == i and hits[i].is_alt}
    better = {i: everywhere[i] for i in heads if hits[everywhere[i]].is_alt and not hits[i].is_alt}
    return Lines(primary, (set(heads) | alt_heads) - {primary}, better)
