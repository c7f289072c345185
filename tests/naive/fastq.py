"""FASTQ as specified: all lines in memory, one record after another."""

from __future__ import annotations

from typing import NamedTuple


class NaiveRead(NamedTuple):
    name: str
    sequence: str
    quality: list[int]


def parse_fastq(text: bytes) -> list[NaiveRead]:
    """Return the reads of a valid four-line FASTQ text."""
    lines = [line.removesuffix("\r") for line in text.decode("latin-1").split("\n")]
    while lines and lines[-1] == "" and (len(lines) % 4 or lines[-4] == ""):
        lines.pop()
    reads = []
    for i in range(0, len(lines), 4):
        header, sequence, plus, quality = lines[i : i + 4]
        assert header[0] == "@" and plus[0] == "+" and len(sequence) == len(quality)
        name = (header[1:].replace("\t", " ") + " ").split(" ")[0]
        if name.endswith(("/1", "/2")):
            name = name[:-2]
        sequence = sequence.upper().replace("U", "T").replace(".", "N")
        reads.append(NaiveRead(name, sequence, [ord(c) - 33 for c in quality]))
    return reads


def pair_up(first: list[NaiveRead], second: list[NaiveRead]) -> list[NaiveRead]:
    """Return mates alternately, names without .1 .2 _1 _2 where these set them apart."""
    reads = []
    for a, b in zip(first, second, strict=True):
        if a.name != b.name:
            assert a.name[:-2] == b.name[:-2]
            assert (a.name[-2:], b.name[-2:]) in ((".1", ".2"), ("_1", "_2"))
            a, b = a._replace(name=a.name[:-2]), b._replace(name=b.name[:-2])
        reads += [a, b]
    return reads
