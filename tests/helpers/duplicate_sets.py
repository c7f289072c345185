"""Random templates at few places, so that many are duplicates, as sorted BAM files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam

CONTIGS = "@HD\tVN:1.6\tSO:unsorted\n@SQ\tSN:c1\tLN:5000\n@SQ\tSN:c2\tLN:5000\n"
READ_GROUPS = (
    "@RG\tID:a\tSM:s\tLB:one\n@RG\tID:b\tSM:s\tLB:one\n@RG\tID:c\tSM:s\tLB:two\n@RG\tID:d\tSM:s\n"
)
LIBRARIES = {"a": "one", "b": "one", "c": "two", "d": "unknown"}
_CIGARS = (
    "20M", "20M", "20M", "3S17M", "17M3S", "2H20M", "20M2H", "5M2D15M", "4S14M2I", "1H2S18M",
    "10M5N10M", "18M2S1H", "2I18M", "1S19=", "8M1P12X",
)  # fmt: skip
_BASES = "ACGTACGTTGCATGCATGCA"


class Kind(NamedTuple):
    """What random templates may have."""

    groups: Sequence[str] = ("",)  # values of RG; empty: none
    barcodes: bool = False
    names: str = "usual"  # x and y behind five colons; other "shapes"; "any", some without x and y
    same_strand: bool = True  # pairs with both reads on one strand
    marked: bool = False  # records that an earlier run has marked


def random_template(rng: np.random.Generator, name: str, kind: Kind) -> list[str]:
    """Return SAM lines of the records of a template, without MC and ms."""
    what = rng.choice(["pair", "pair", "pair", "half", "single", "orphan", "none"])
    tags = []
    if group := rng.choice(list(kind.groups)):
        tags.append(f"RG:Z:{group}")
    if kind.barcodes and (barcode := rng.choice(["", "ACG", "ACT", "none"])) != "none":
        tags.append(f"RX:Z:{barcode}")
    reverse = rng.random(2) < 0.5
    if not kind.same_strand:
        reverse[1] = not reverse[0]
    flags = {"single": [0], "orphan": [0x41], "none": [0x45, 0x85]}.get(what, [0x41, 0x81])
    lines = []
    unmapped = rng.integers(2) if what == "half" else -1
    for i, first in enumerate(flags):
        flag = first | (0x10 if reverse[i] else 0) | (0x200 if rng.random() < 0.05 else 0)
        if i == unmapped or what == "none":
            lines.append(_line(rng, name, flag & ~0x10 | 4, "*\t0\t0\t*", tags))
            continue
        extra = list(tags)
        if rng.random() < 0.4:
            extra.append(rng.choice(["SA:Z:c1,9,+,20M,0,0;", "XA:Z:c2,+9,20M,0;"]))
        if kind.marked and rng.random() < 0.3:
            flag |= 0x400
            extra += ["dt:Z:SQ", "do:Z:other"][: rng.integers(3)]
        if kind.marked and rng.random() < 0.1:
            extra.insert(0, "dt:Z:LB")
        if len({tag[:2] for tag in extra}) < len(extra):
            extra = list(tags)
        lines.append(_line(rng, name, flag, _place(rng), extra))
        if rng.random() < 0.2:
            other = rng.choice([0x100, 0x800])
            lines.append(_line(rng, name, flag & ~0x400 | other, _place(rng), tags))
    return lines


def _place(rng: np.random.Generator) -> str:
    contig, start = rng.choice(["c1", "c1", "c1", "c2"]), rng.choice([1, 100, 101, 103, 118])
    return f"{contig}\t{start + rng.integers(4)}\t30\t{rng.choice(_CIGARS)}"


def _line(rng: np.random.Generator, name: str, flag: int, place: str, tags: list[str]) -> str:
    quals = "".join([rng.choice(list("#/0I"))] * 20)
    fields = [name, str(flag), place, "*", "0", "0", _BASES, quals, *tags]
    return "\t".join(fields)


def random_names(rng: np.random.Generator, n: int, kind: str) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < n:
        lane, tile = rng.integers(1, 3), rng.choice(["11", "12"])
        x, y = rng.integers(0, 60, 2)
        name = f"M:1:F:{lane}:{tile}:{x}:{y}"
        shapes = [
            f"M:1:F:{lane}:1{tile}:{x}:{y}", f"M:{tile}:{x}:{y}", f"M:{lane}:{tile}:{x}:{y}#0/1",
            f"M:1:F:{lane}:{tile}:{x}:{y}:ACGT", f"M:1:F:{lane}:{tile}:-{x}:+{y}",
        ]  # fmt: skip
        if kind == "any":
            shapes += [f"q{len(names)}", f"M:1:F:{lane}:{tile}:{x}:y{y}", f"a:b{len(names)}"]
        if kind != "usual" and rng.random() < 0.5:
            name = rng.choice(shapes)
        names[name] = None
    return list(names)


def write_set(rng: np.random.Generator, n: int, kind: Kind, folder: Path) -> Path:
    """Write a sorted BAM file of `n` templates with MC and ms."""
    lines = [
        line
        for name in random_names(rng, n, kind.names)
        for line in random_template(rng, name, kind)
    ]
    text, fixed, path = (folder / name for name in ("set.sam", "fixed.bam", "set.bam"))
    header = CONTIGS + (READ_GROUPS if any(kind.groups) else "")
    text.write_text(header + "".join(f"{line}\n" for line in lines))
    pysam.fixmate("-m", "--no-PG", str(text), str(fixed))
    pysam.sort("--no-PG", "-o", str(path), str(fixed))
    return path


def read_records(path: Path) -> list[pysam.AlignedSegment]:
    with pysam.AlignmentFile(str(path)) as file:
        return list(file)
