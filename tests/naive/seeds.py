"""Exact seeds by comparing every position: letters in, positions out."""

from __future__ import annotations

COMPLEMENT = dict(zip("ACGTNRYSWKMBVDH", "TGCANYRSWMKVBHD", strict=True))


def opposite(letters: str) -> str:
    return "".join(COMPLEMENT[letter] for letter in reversed(letters))


def oriented(read: str, strand: int) -> str:
    return opposite(read) if strand else read


def occurrences(text: str, pattern: str) -> list[int]:
    """Every place of a pattern of A, C, G and T; a pattern with others has none."""
    if set(pattern) - set("ACGT"):
        return []
    last = len(text) - len(pattern)
    return [i for i in range(last + 1) if text[i : i + len(pattern)] == pattern]


def diagonals(text: str, read: str, starts: list[int], length: int) -> set[tuple[int, int]]:
    """(strand, diagonal) of every occurrence of the seeds that start at `starts`.

    `starts` count on the read as given, on either strand.
    """
    found = set()
    for start in starts:
        seed = read[start : start + length]
        if len(seed) < length:
            continue
        for strand in (0, 1):
            query_start = start if strand == 0 else len(read) - start - length
            for pos in occurrences(text, oriented(seed, strand)):
                found.add((strand, pos - query_start))
    return found


def all_diagonals(text: str, read: str, length: int) -> set[tuple[int, int]]:
    """(strand, diagonal) of every exact match of `length` bases."""
    return diagonals(text, read, list(range(len(read) - length + 1)), length)
