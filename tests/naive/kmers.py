"""Matches of k-mers by comparing them with every window of every contig."""

from __future__ import annotations

from typing import NamedTuple

from tests.naive.seeds import opposite


class Match(NamedTuple):
    read: int
    offset: int
    strand: int  # 0 the k-mer itself, 1 its reverse complement
    contig: int
    position: int
    mismatches: int


def distance(a: str, b: str) -> int:
    """Hamming distance in which a letter other than A, C, G, T differs from all."""
    return sum(x != y or x not in "ACGT" for x, y in zip(a, b, strict=True))


def places(contigs: list[str], pattern: str, most: int) -> list[tuple[int, int, int]]:
    """(contig, position, mismatches) of every window within `most` mismatches, in order."""
    return [
        (contig, position, mismatches)
        for contig, letters in enumerate(contigs)
        for position in range(len(letters) - len(pattern) + 1)
        if (mismatches := distance(pattern, letters[position : position + len(pattern)])) <= most
    ]


def search(
    contigs: list[str], reads: list[str], kmer_len: int, stride: int, most: int, max_hits: int
) -> tuple[list[Match], list[tuple[int, int]], int]:
    """All matches in order; (read, offset) of the k-mers skipped; how many held an N."""
    matches, skipped, n_ambiguous = [], [], 0
    for read, letters in enumerate(reads):
        for offset in range(0, len(letters) - kmer_len + 1, stride):
            kmer = letters[offset : offset + kmer_len]
            if set(kmer) - set("ACGT"):
                n_ambiguous += 1
                continue
            found = [
                Match(read, offset, strand, *place)
                for strand, pattern in enumerate((kmer, opposite(kmer)))
                for place in places(contigs, pattern, most)
            ]
            if len(found) > max_hits:
                skipped.append((read, offset))
            else:
                matches += found
    return matches, skipped, n_ambiguous
