"""Chromosome 22 of human, chimpanzee and gorilla, from an alignment of them, and how places map.

The EPO alignment (Ensembl Compara) has 21.6 Mb of each in 9,627 blocks. A genome here is one
contig: its bases of all blocks, one block after the other.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SPECIES = {"human22": b"Hsap", "chimp22": b"Ptro", "gorilla22": b"Ggor"}
"""Contigs, and the species' names in the alignment."""

GAP = ord("-")


def blocks(alignment: Path) -> Iterator[dict[bytes, np.ndarray]]:
    """Yield the rows of each block of a MAF file, gzip, by species: uint8 letters and gaps."""
    rows: dict[bytes, np.ndarray] = {}
    with gzip.open(alignment) as lines:
        for line in lines:
            fields = line.split()
            if fields[:1] == [b"a"] and rows:
                yield rows
                rows = {}
            elif fields[:1] == [b"s"]:
                rows[fields[1].split(b".")[0]] = np.frombuffer(fields[6], np.uint8)
    if rows:
        yield rows


def write_genome(alignment: Path, contigs: list[str], target: Path) -> None:
    """Write contigs of SPECIES as FASTA, gzip."""
    parts: dict[str, list[bytes]] = {contig: [] for contig in contigs}
    for rows in blocks(alignment):
        for contig, letters in parts.items():
            row = rows[SPECIES[contig]]
            letters.append(row[row != GAP].tobytes())
    with gzip.open(target, "wb", compresslevel=1) as fasta:
        for contig, letters in parts.items():
            fasta.write(b">%s\n%s\n" % (contig.encode(), b"".join(letters)))


def places_of(alignment: Path, contig: str, reference: str) -> np.ndarray:
    """Return where each base of `contig` lies on `reference`, and its end: int64, ascending.

    A base that is aligned to none has the place of the next that is.
    """
    places = []
    n_before = 0
    for rows in blocks(alignment):
        of_contig, of_reference = rows[SPECIES[contig]] != GAP, rows[SPECIES[reference]] != GAP
        before = np.cumsum(of_reference) - of_reference
        places.append(n_before + before[of_contig])
        n_before += int(of_reference.sum())
    return np.append(np.concatenate(places), n_before)


def partners_of(alignment: Path, contig: str, reference: str) -> np.ndarray:
    """Return the base of `reference` that each base of `contig` is aligned to, or -1: int64."""
    partners = []
    n_before = 0
    for rows in blocks(alignment):
        of_contig, of_reference = rows[SPECIES[contig]] != GAP, rows[SPECIES[reference]] != GAP
        places = n_before + np.cumsum(of_reference) - 1
        partners.append(np.where(of_reference, places, -1)[of_contig])
        n_before += int(of_reference.sum())
    return np.concatenate(partners)


def lift_name(name: bytes, places: np.ndarray, reference: bytes) -> bytes:
    """Return a read's name of ``simulate.py`` with its true place on the other genome."""
    number, _, starts, ends, strands = name.split(b"!")

    def lifted(positions: bytes, back: int) -> bytes:
        return b"_".join(b"%d" % (places[int(p) - back] + back) for p in positions.split(b"_"))

    return b"!".join((number, reference, lifted(starts, 0), lifted(ends, 1), strands))


def lift_reads(reads: Path, places: np.ndarray, reference: str) -> None:
    """Replace the names of a FASTQ file, gzip, by :func:`lift_name`."""
    partial = reads.with_name(reads.name + ".part")
    with gzip.open(reads) as lines, gzip.open(partial, "wb", compresslevel=1) as target:
        for number, line in enumerate(lines):
            if number % 4 == 0:
                name, *mate = line[1:].split()
                line = (
                    b" ".join((b"@" + lift_name(name, places, reference.encode()), *mate)) + b"\n"
                )
            target.write(line)
    partial.rename(reads)
