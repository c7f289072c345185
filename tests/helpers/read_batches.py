"""Batches of reads and small genomes for the tests of the stages, from letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mapper import dna
from mapper.batch import PackedReads, ReadBatch
from mapper.index.build import build_fm
from mapper.index.fm import FMIndex
from mapper.params import IndexParams
from mapper.seed.pack import pack_reads


class Genome(NamedTuple):
    """Contigs as letters, their text, and its index."""

    text: str  # every contig is followed by one N
    fm: FMIndex
    starts: np.ndarray
    lengths: np.ndarray


def offsets_of(lengths: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]).astype(np.int64)


def genome_of(contigs: Sequence[str], params: IndexParams | None = None) -> Genome:
    text = "".join(f"{contig}N" for contig in contigs)
    lengths = np.array([len(contig) for contig in contigs], np.int64)
    starts = offsets_of(lengths + 1)[:-1]
    params = params or IndexParams()
    if params.sa_sampling is None:  # as of large texts; whole runs have small ones' full array
        params = replace(params, sa_sampling=4)
    return Genome(text, build_fm(dna.encode(text), params), starts, lengths)


def text_planes(text: str) -> np.ndarray:
    """Bit planes of a text, as the index holds them."""
    codes = dna.encode(text)
    planes = np.zeros((len(text) // 64 + 3, 3), np.uint64)
    dna.pack_strand(codes, 0, len(codes), 0, planes, 0)
    planes[(len(text) + 63) // 64 :, 2] = ~np.uint64(0)
    return planes


def reads_of(
    sequences: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    quals: Sequence[Sequence[int]] | None = None,
    paired: bool = False,
) -> ReadBatch:
    """Return a batch; mates share a name if none are given."""
    if names is None:
        names = [f"read{i // 2 if paired else i}" for i in range(len(sequences))]
    encoded = [name.encode() for name in names]
    base_offsets = offsets_of([len(sequence) for sequence in sequences])
    flat = [q for row in quals for q in row] if quals else [30] * int(base_offsets[-1])
    return ReadBatch(
        bases=dna.encode("".join(sequences)),
        quals=np.array(flat, np.uint8),
        base_offsets=base_offsets,
        names=np.frombuffer(b"".join(encoded), np.uint8),
        name_offsets=offsets_of([len(name) for name in encoded]),
        first_read=0,
        paired=paired,
    )


def packed_reads(sequences: Sequence[str]) -> tuple[ReadBatch, PackedReads]:
    reads = reads_of(sequences)
    return reads, pack_reads(reads)


def random_letters(rng: np.random.Generator, n: int, letters: str = "ACGT") -> str:
    return "".join(rng.choice(list(letters), n)) if n else ""


def mutated(rng: np.random.Generator, letters: str, rate: float) -> str:
    """Replace bases, by another one each, at a rate."""
    return "".join(
        rng.choice([c for c in "ACGT" if c != base]) if rng.random() < rate else base
        for base in letters
    )
