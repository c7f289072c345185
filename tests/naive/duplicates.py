"""Duplicates as samtools markdup defines them, by lists and dictionaries of pysam records."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

Record = Any  # pysam.AlignedSegment
Verdict = tuple[bool, bool]
"""Duplicate; optical."""


def is_examined(record: Record) -> bool:
    return not record.flag & (0x4 | 0x100 | 0x200 | 0x800)


def has_mate(record: Record) -> bool:
    nowhere = record.next_reference_id == -1 and record.next_reference_start == -1
    return bool(record.flag & 0x1) and not record.flag & 0x8 and not nowhere


def ends(pos: int, cigar: Sequence[tuple[str, int]]) -> tuple[int, int]:
    """Return the unclipped first and last position, 0-based."""
    first, last = pos, pos - 1
    for op, n in cigar:
        if op not in "SH":
            break
        first -= n
    for op, n in cigar:
        last += n if op in "MDN=X" else 0
    for op, n in reversed(cigar):
        if op not in "SH":
            break
        last += n
    return first, last


def parsed(cigar: str) -> list[tuple[str, int]]:
    return [(op, int(n)) for n, op in re.findall(r"(\d+)([MIDNSHP=X])", cigar)]


def coordinate(record: Record) -> int:
    """Return the unclipped position of the 5' end."""
    return ends(record.reference_start, parsed(record.cigarstring))[record.is_reverse]


def score(record: Record) -> int:
    own = sum(q for q in record.query_qualities or () if q >= 15)
    return own + (record.get_tag("ms") if has_mate(record) else 0)


def pair_key(record: Record) -> tuple:
    """Return what duplicates of a pair have in common, of the template's end at this record."""
    own = ends(record.reference_start, parsed(record.cigarstring))
    mate = ends(record.next_reference_start, parsed(record.get_tag("MC")))
    refs = record.reference_id, record.next_reference_id
    turned, mate_turned = record.is_reverse, record.mate_is_reverse
    if refs[0] != refs[1]:
        left = refs[0] < refs[1]
    elif turned and mate_turned:
        left = own[1] <= mate[1]
    elif turned:
        left = own[1] <= mate[0]
    else:
        left = own[0] <= (mate[0] if not mate_turned else mate[1])
    if turned == mate_turned:
        # One strand: outer ends, and the strand of the molecule's first read.
        at, other = (own[0], mate[1]) if left else (own[1], mate[0])
        first_is_left = bool(record.flag & 0x40) == left
        kind = "FF" if first_is_left != turned else "RR"
    else:
        at, other = own[turned], mate[mate_turned]
        kind = "FR" if left != turned else "RF"
    return refs[0], at, refs[1], other, left, kind


def flow_cell(name: str) -> tuple[str, int, int] | None:
    """Return the part of a read name before the coordinates, x and y."""
    parts = name.split(":")
    if len(parts) not in (4, 5, 7, 8):
        return None
    at = {4: 2, 5: 3, 7: 5, 8: 5}[len(parts)]
    x, y = (re.match(r"[+-]?\d+", part) for part in parts[at : at + 2])
    return (":".join(parts[:at]), int(x[0]), int(y[0])) if x and y else None


def near(a: Record, b: Record, distance: int) -> bool:
    one, other = flow_cell(a.query_name), flow_cell(b.query_name)
    if one is None or other is None or one[0] != other[0]:
        return False
    return abs(one[1] - other[1]) <= distance and abs(one[2] - other[2]) <= distance


def find_duplicates(
    records: Sequence[Record],
    distance: int = 0,
    barcode_tag: str = "",
    libraries: Mapping[str, str] | None = None,
    supplementary: bool = False,
    whole_trees: bool = False,
) -> list[Verdict]:
    """Return a verdict for each record of a sorted file.

    `libraries` has the library of each read group; None: all records are of one.

    With `whole_trees`, a single read belongs to the tree of its first pair wherever that pair's own
    key lies, as in samtools; otherwise, if that is elsewhere, to one of that pair alone.
    """
    pairs, singles = defaultdict(list), defaultdict(list)
    group_of = {}
    for i, record in enumerate(records):
        if not is_examined(record):
            continue
        common = _library(record, libraries), _barcode(record, barcode_tag)
        at = coordinate(record)
        single = (record.reference_id, at, record.is_reverse, *common)
        singles[single].append(i)
        group_of[i] = single
        if has_mate(record):
            group_of[i] = (*pair_key(record), *common)
            pairs[group_of[i]].append(i)

    duplicates, optical = set(), set()

    def beats(new: int, old: int) -> bool:
        """Return True if a later record replaces the best one of its group so far."""
        a, b = records[new], records[old]
        if has_mate(a) != has_mate(b):
            return has_mate(a)
        if score(a) != score(b):
            return score(a) > score(b)
        return has_mate(a) and a.query_name < b.query_name

    def compare(group: list[int], only_singles: bool) -> int:
        best = group[0]
        for i in group[1:]:
            if only_singles and has_mate(records[i]) and has_mate(records[best]):
                continue
            loser = best if beats(i, best) else i
            best = i if loser == best else best
            duplicates.add(loser)
            if near(records[best], records[loser], distance):
                optical.add(loser)
        return best

    best_pair = {key: compare(group, False) for key, group in pairs.items()}
    trees = defaultdict(list)
    for key, group in pairs.items():
        trees[best_pair[key]] += group
    for group in singles.values():
        best = compare(group, True)
        top = best
        if has_mate(records[best]):
            is_here = group_of[best][:2] == (records[best].reference_id, coordinate(records[best]))
            top = best_pair[group_of[best]] if whole_trees or is_here else (best, "alone")
            if top == (best, "alone"):
                trees[top].append(best)
        trees[top] += [i for i in group if not has_mate(records[i])]
    for top, members in trees.items():
        best = top[0] if isinstance(top, tuple) else top
        if flow_cell(records[best].query_name) is None:
            continue
        for i in duplicates.intersection(members) - {best}:
            optical |= {
                i for j in members
                if i != j and near(records[i], records[j], distance)
                and (j == best or _is_better(records[j], records[i]))
            }  # fmt: skip
    if not distance:
        optical.clear()
    if supplementary:
        _follow(records, libraries, duplicates, optical)
    return [(i in duplicates, i in optical) for i in range(len(records))]


def _is_better(a: Record, b: Record) -> bool:
    return (not has_mate(a), -score(a), a.query_name) < (not has_mate(b), -score(b), b.query_name)


def _library(record: Record, libraries: Mapping[str, str] | None) -> str:
    if libraries is None:
        return ""
    return libraries.get(record.get_tag("RG"), "unknown") if record.has_tag("RG") else "unknown"


def _barcode(record: Record, tag: str) -> str:
    return record.get_tag(tag) if tag and record.has_tag(tag) else ""


def _follow(
    records: Sequence[Record], libraries: Mapping[str, str] | None, duplicates: set, optical: set
) -> None:
    """Add the other records of duplicates' names."""
    is_optical: dict[tuple[str, str], bool] = {}
    for i in duplicates:
        record = records[i]
        if record.flag & 0x8 or record.has_tag("SA") or record.has_tag("XA"):
            key = record.query_name, _library(record, libraries)
            is_optical[key] = is_optical.get(key, False) or i in optical
    for i, record in enumerate(records):
        key = record.query_name, _library(record, libraries)
        if record.flag & (0x4 | 0x100 | 0x800) and key in is_optical:
            duplicates.add(i)
            if is_optical[key]:
                optical.add(i)
