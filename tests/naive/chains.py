"""Collinear chains by looking at all pairs: slow, from the definition."""

from __future__ import annotations

from typing import NamedTuple

UNITS = 64


class Item(NamedTuple):
    """An anchor, in the order of its ends; `weight` in 1 / UNITS of a base."""

    group: int
    query_start: int
    query_end: int
    text_start: int
    text_end: int
    weight: int


def log2(x: int) -> int:
    """log2(x) in 1 / UNITS, linear between powers of two, rounded down."""
    whole = x.bit_length() - 1
    return UNITS * whole + UNITS * (x - 2**whole) // 2**whole


def cost(length: int) -> int:
    return 10 * length + log2(length + 1) // 2 if length else 0


def follows(a: Item, b: Item, band: int, max_gap: int) -> bool:
    """True if b may follow a in a chain."""
    on_query, in_text = b.query_start - a.query_end, b.text_start - a.text_end
    return (
        a.group == b.group
        and a.query_start < b.query_start
        and a.text_start < b.text_start
        and a.query_end < b.query_end
        and a.text_end < b.text_end
        and on_query <= max_gap
        and in_text <= max_gap
        and abs(on_query - in_text) <= band
    )


def gained(a: Item, b: Item) -> int:
    on_query, in_text = b.query_start - a.query_end, b.text_start - a.text_end
    common = max(0, -on_query, -in_text)
    return b.weight - UNITS * common - cost(abs(on_query - in_text))


def best_scores(items: list[Item], band: int, max_gap: int) -> list[int]:
    """Score of the best chain that ends with each item; predecessors come earlier."""
    scores: list[int] = []
    for i, item in enumerate(items):
        ways = [item.weight]
        for j in range(i):
            if follows(items[j], item, band, max_gap):
                ways.append(scores[j] + gained(items[j], item))
        scores.append(max(ways))
    return scores


def take(items: list[Item], scores: list[int], parents: list[int], least: int) -> list[list[int]]:
    """Rows of the chains from the best on, first row first; each row is in one of them.

    Of the unused rows up to where one ends, a chain has those from which on its score is highest.
    """
    used: set[int] = set()
    chains = []
    for last in sorted(range(len(items)), key=lambda i: (-scores[i], i)):
        path: list[int] = []
        at = last
        while at >= 0 and at not in used:
            path.insert(0, at)
            at = parents[at]
        starts = [
            (scores[last] - scores[row] + items[row].weight, -i) for i, row in enumerate(path)
        ]
        if not starts:
            continue
        score, first = max(starts)
        used |= set(path[-first:])
        if score >= least:
            chains.append(path[-first:])
    return chains
