"""Gap-affine extension by the full matrix, and what a CIGAR says, from letters alone.

Every letter but A, C, G and T matches nothing, not even itself.
"""

from __future__ import annotations

from typing import NamedTuple

NEVER = -(10**9)


class Scoring(NamedTuple):
    """A gap of n bases costs ``gap_open + n * gap_extend``; penalties are positive."""

    match: int = 1
    mismatch: int = 4
    gap_open: int = 6
    gap_extend: int = 1
    end_bonus: int = 5


def same(a: str, b: str) -> bool:
    return a == b and a in "ACGT"


def best_extension(
    read: str, ref: str, scoring: Scoring, band: int | None = None, reserve: int | None = None
) -> int:
    """Best score, with the bonus where all of `read` is used, of prefixes of both.

    Only cells with ``abs(ref bases - read bases) <= band`` are used, and only such whose doubled
    score is above ``-reserve``.
    """
    a, b, o, e, bonus = scoring
    best = 0
    above: list[int] = []
    insertion_above: list[int] = []
    for i in range(len(read) + 1):
        row, insertion = [], []
        deletion = NEVER
        for j in range(len(ref) + 1):
            into = out = NEVER
            if i > 0:
                out = max(above[j] - o - e, insertion_above[j] - e)
            if j > 0:
                deletion = max(row[j - 1] - o - e, deletion - e)
            if i == j == 0:
                into = 0
            elif i > 0 and j > 0:
                into = above[j - 1] + (a if same(read[i - 1], ref[j - 1]) else -b)
            here = max(into, out, deletion)
            if band is not None and abs(j - i) > band:
                here = out = deletion = NEVER
            if reserve is not None and i + j > 0:
                here, out, deletion = (
                    score if 2 * score > -reserve else NEVER for score in (here, out, deletion)
                )
            row.append(here)
            insertion.append(out)
            best = max(best, here + (bonus if i == len(read) else 0))
        above, insertion_above = row, insertion
    return best


class Replay(NamedTuple):
    """What a CIGAR says of a read and a reference."""

    score: int
    edit_distance: int
    read_used: int
    ref_used: int


def parse_cigar(text: str) -> list[tuple[int, str]]:
    ops, digits = [], ""
    for char in "" if text == "*" else text:
        if char.isdigit():
            digits += char
        else:
            ops.append((int(digits), char))
            digits = ""
    assert not digits
    return ops


def replay(cigar: str, read: str, ref: str, scoring: Scoring) -> Replay:
    """Walk `cigar` (= X I D) from the start of both sequences; no bonus in the score.

    Raises
    ------
    AssertionError
        If an operation is empty, repeats the one before, or does not tell the truth.
    """
    score = distance = i = j = 0
    before = ""
    for length, op in parse_cigar(cigar):
        assert length > 0 and op != before and op in "=XID", cigar
        before = op
        if op in "=X":
            for _ in range(length):
                assert same(read[i], ref[j]) == (op == "="), (cigar, i, j)
                i, j = i + 1, j + 1
            score += length * (scoring.match if op == "=" else -scoring.mismatch)
        else:
            score -= scoring.gap_open + length * scoring.gap_extend
            i, j = (i + length, j) if op == "I" else (i, j + length)
            assert i <= len(read) and j <= len(ref), cigar
        distance += 0 if op == "=" else length
    return Replay(score, distance, i, j)


def shift_gaps_left(cigar: str, read: str, ref: str, *, parting: bool = False) -> str:
    """Move each gap between two runs of matches left, base by base, while both stay true.

    A run keeps at least one base. With `parting` gaps are moved between matches and a mismatch,
    and only those.
    """
    ops = [list(op) for op in parse_cigar(cigar)]
    inner = range(1, len(ops) - 1)
    for g in reversed(inner) if parting else inner:
        follows = ops[g + 1][1]
        if ops[g][1] not in "ID" or ops[g - 1][1] != "=" or follows != ("X" if parting else "="):
            continue
        if parting:
            ops.insert(g + 1, [0, "="])
        while ops[g - 1][0] > 1:
            trial = [list(op) for op in ops]
            trial[g - 1][0] -= 1
            trial[g + 1][0] += 1
            text = "".join(f"{n}{op}" for n, op in trial)
            try:
                replay(text, read, ref, Scoring())
            except AssertionError:
                break
            ops = trial
        if ops[g + 1][0] == 0:
            del ops[g + 1]
    return "".join(f"{n}{op}" for n, op in ops)
