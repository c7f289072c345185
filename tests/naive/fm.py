"""The FM-index by its definitions: slow, obvious, importing nothing of the package.

A text is ``bytes`` of base codes 0 to 3. Rows are those of its suffixes sorted, the
empty one (the sentinel's) first.
"""

from __future__ import annotations

SENTINEL = -1


def suffix_array(text: bytes) -> list[int]:
    """Start of each suffix, in sorted order; a suffix sorts before its extensions."""
    return sorted(range(len(text) + 1), key=lambda start: text[start:])


def bwt(text: bytes) -> list[int]:
    """Character before each suffix, in sorted order; before the whole text, SENTINEL."""
    return [text[start - 1] if start else SENTINEL for start in suffix_array(text)]


def occ(transform: list[int], code: int, row: int) -> int:
    """How often `code` stands before `row`."""
    return transform[:row].count(code)


def find_all(text: bytes, query: bytes) -> list[int]:
    """Every position of `query`, overlapping ones too, ascending."""
    return [i for i in range(len(text) - len(query) + 1) if text[i : i + len(query)] == query]


def first_row_from(text: bytes, query: bytes) -> int:
    """How many suffixes sort before `query`."""
    return sum(text[start:] < query for start in range(len(text) + 1))
