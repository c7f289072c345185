"""The tags cs, ds and de from letters, as minimap2's manual and release notes define them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.naive.gotoh import parse_cigar, same

PIECE = re.compile(r":(\d+)|=([ACGTN]+)|\*([acgtn])([acgtn])|([+-])([acgtn\[\]]+)")


def _pieces(
    cigar: str, letters: str, start: int, contig: str
) -> Iterator[tuple[str, int, int, int]]:
    """Yield kind (``= X I D``), length, and where read and contig are, in runs of one kind."""
    i, j = 0, start
    for n, op in parse_cigar(cigar.replace("H", "S")):
        if op == "S":
            i += n
        elif op in "ID":
            yield op, n, i, j
            i, j = i + n * (op == "I"), j + n * (op == "D")
        else:
            done = 0
            while done < n:
                run = 0
                while done + run < n and same(letters[i + done + run], contig[j + done + run]):
                    run += 1
                yield "=" if run else "X", max(run, 1), i + done, j + done
                done += max(run, 1)
            i, j = i + n, j + n


def _plain(letters: str) -> str:
    return re.sub("[^ACGT]", "N", letters.upper().replace("U", "T"))


def _gap(whole: str, at: int, n: int, first: int, end: int) -> str:
    """Spell a gap; what it shares with all its equivalent places stands outside the brackets."""
    gap = whole[at : at + n]
    places = [at]
    for step in (-1, 1):
        place = at + step
        while abs(place - at) <= n and first <= place and place + n <= end:
            # Taken out at another place, the rest is the same.
            lo, hi = min(place, at), max(place, at) + n
            if whole[lo:place] + whole[place + n : hi] != whole[lo:at] + whole[at + n : hi]:
                break
            places.append(place)
            place += step
    kept_from, kept_to = max(places) - at, n - (at - min(places))
    if kept_from >= kept_to:
        return f"[{gap}]".lower()
    head, tail = gap[:kept_from], gap[kept_to:]
    marked = (f"[{head}]" if head else "") + gap[kept_from:kept_to] + (f"[{tail}]" if tail else "")
    return marked.lower()


def differences(
    cigar: str,
    letters: str,
    start: int,
    contig: str,
    *,
    spell: bool = False,
    brackets: bool = False,
) -> str:
    """Return cs, or with `brackets` ds; `letters` are the whole read on the contig's strand."""
    letters, contig = _plain(letters), _plain(contig)
    pieces = list(_pieces(cigar, letters, start, contig))
    query, text = pieces[0][2], pieces[0][3]
    query_end = pieces[-1][2] + (pieces[-1][1] if pieces[-1][0] != "D" else 0)
    text_end = pieces[-1][3] + (pieces[-1][1] if pieces[-1][0] != "I" else 0)
    out = ""
    for kind, n, i, j in pieces:
        if kind == "=":
            out += f"={letters[i : i + n]}" if spell else f":{n}"
        elif kind == "X":
            out += f"*{contig[j]}{letters[i]}".lower()
        else:
            bounds = (
                (letters, i, n, query, query_end) if kind == "I" else (contig, j, n, text, text_end)
            )
            gap = _gap(*bounds) if brackets else bounds[0][bounds[1] :][:n].lower()
            out += ("+" if kind == "I" else "-") + gap
    return out


def divergence(cigar: str, letters: str, start: int, contig: str) -> float:
    """Return de: the share of mismatches and gaps, a gap counted once."""
    kinds = [(kind, n) for kind, n, _, _ in _pieces(cigar, _plain(letters), start, _plain(contig))]
    matches = sum(n for kind, n in kinds if kind == "=")
    others = sum(1 for kind, _ in kinds if kind != "=")
    return others / (matches + others)


def apply(cs: str, text: str) -> str:
    """Return the read that a cs or ds makes of the reference bases that it covers."""
    out, at = "", 0
    assert PIECE.sub("", cs) == ""
    for run, spelled, _, to, sign, gap in PIECE.findall(cs):
        gap = re.sub(r"[\[\]]", "", gap).upper()
        n = int(run or 0) or len(spelled)
        out += text[at : at + n] + to.upper() + (gap if sign == "+" else "")
        at += n + len(to) + (len(gap) if sign == "-" else 0)
    assert at == len(text)
    return out
