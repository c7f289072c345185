"""Pairwise alignment by the full matrix, and what a CIGAR says, from letters alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Same = Callable[[str, str], bool]
FAR = 10**9


def same_dna(a: str, b: str) -> bool:
    """The rule `dna`: nothing but A, C, G and T (or U) matches."""
    a, b = a.upper().replace("U", "T"), b.upper().replace("U", "T")
    return a == b and a in "ACGT"


def same_iupac(a: str, b: str) -> bool:
    """The rule `iupac`: letters match themselves."""
    return a.upper().replace("U", "T") == b.upper().replace("U", "T")


def same_bytes(a: str, b: str) -> bool:
    return a == b


RULES: dict[str, Same] = {"dna": same_dna, "iupac": same_iupac, "bytes": same_bytes}

GLOBAL = (0, 0, 0, 0)


def free_ends(span: str | Sequence[int], ref: str) -> tuple[int, int, int, int]:
    """Free symbols at the query's begin and end, and the reference's."""
    if span == "global":
        return GLOBAL
    if span == "semiglobal":
        return (0, 0, len(ref), len(ref))
    if span == "prefix":
        return (0, 0, 0, len(ref))
    a, b, c, d = (int(free) for free in span)
    return (a, b, c, d)


def lowest_penalty(
    query: str,
    ref: str,
    same: Same,
    penalties: tuple[int, int, int] = (1, 0, 1),
    free: tuple[int, int, int, int] = GLOBAL,
) -> int:
    """Gotoh's recurrences; penalties: mismatch, gap open, gap extend (1, 0, 1: edits)."""
    x, o, e = penalties
    query_begin, query_end, ref_begin, ref_end = free
    n, m = len(query), len(ref)
    best = FAR
    above: list[int] = []
    insertion_above: list[int] = []
    for i in range(n + 1):
        row: list[int] = []
        insertion: list[int] = []
        deletion = FAR
        for j in range(m + 1):
            here = FAR
            gap = FAR
            if (i == 0 and j <= ref_begin) or (j == 0 and i <= query_begin):
                here = 0
            if i and j:
                here = min(here, above[j - 1] + (0 if same(query[i - 1], ref[j - 1]) else x))
            if i:
                gap = min(above[j] + o + e, insertion_above[j] + e)
            if j:
                deletion = min(row[j - 1] + o + e, deletion + e)
            row.append(min(here, gap, deletion))
            insertion.append(gap)
            if (i == n and m - j <= ref_end) or (j == m and n - i <= query_end):
                best = min(best, row[j])
        above, insertion_above = row, insertion
    return best


def parse_cigar(text: str) -> list[tuple[int, str]]:
    ops, digits = [], ""
    for char in text:
        if char.isdigit():
            digits += char
        else:
            ops.append((int(digits), char))
            digits = ""
    assert not digits
    return ops


def penalty_of(
    cigar: str, query: str, ref: str, same: Same, penalties: tuple[int, int, int] = (1, 0, 1)
) -> int:
    """Walk a CIGAR (= X I D) over both sequences, all of them, and add up its penalties.

    Raises
    ------
    AssertionError
        If an operation is empty, repeats the one before, or does not tell the truth, or
        something is left over.
    """
    x, o, e = penalties
    penalty = i = j = 0
    before = ""
    for length, op in parse_cigar(cigar):
        assert length > 0 and op != before and op in "=XID", cigar
        before = op
        if op in "=X":
            for _ in range(length):
                assert same(query[i], ref[j]) == (op == "="), (cigar, i, j)
                i, j = i + 1, j + 1
            penalty += length * x if op == "X" else 0
        else:
            penalty += o + length * e
            i, j = (i + length, j) if op == "I" else (i, j + length)
    assert (i, j) == (len(query), len(ref)), cigar
    return penalty


def with_equalities(same: Same, equalities: Sequence[Sequence[str]]) -> Same:
    """A rule, and pairs of letters that match in addition, in either order."""

    def plain(letter: str) -> str:
        return letter if same is same_bytes else letter.upper().replace("U", "T")

    pairs = {(plain(a), plain(b)) for a, b in equalities}
    pairs |= {(b, a) for a, b in pairs}
    return lambda a, b: same(a, b) or (plain(a), plain(b)) in pairs


def places(query: str, ref: str, same: Same, span: str) -> tuple[int, list[tuple[int, int]]]:
    """Lowest edit distance of the whole query, and all ends with it, each with its lowest start."""
    starts = range(len(ref) + 1) if span == "semiglobal" else [0]
    ends = [len(ref)] if span == "global" else range(len(ref) + 1)
    found = {
        (start, end): lowest_penalty(query, ref[start:end], same)
        for end in ends
        for start in starts
        if start <= end
    }
    best = min(found.values())
    first: dict[int, int] = {}
    for (start, end), distance in found.items():
        if distance == best:
            first[end] = min(start, first.get(end, start))
    return best, sorted((start, end) for end, start in first.items())
