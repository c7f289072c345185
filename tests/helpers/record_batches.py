"""Random batches of reads and records for the tests of io, and a view of a batch as objects."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from mapper.batch import NO_QUALITY, ReadBatch, RecordBatch
from tests.naive.fastq import NaiveRead
from tests.naive.sam import CODE_LETTERS

CONTIG_NAMES = ["chr1", "a|b:c", "long" * 20]
CONTIG_LENGTHS = [5_000_000, 1, (1 << 29) - 1]


def as_reads(batches: Sequence[ReadBatch]) -> list[NaiveRead]:
    """Return the rows of batches as the naive parser gives them."""
    reads = []
    for batch in batches:
        for i in range(batch.n_reads):
            name = batch.names[batch.name_offsets[i] : batch.name_offsets[i + 1]]
            where = slice(batch.base_offsets[i], batch.base_offsets[i + 1])
            sequence = "".join(CODE_LETTERS[c] for c in batch.bases[where])
            reads.append(
                NaiveRead(bytes(name).decode("latin-1"), sequence, batch.quals[where].tolist())
            )
    return reads


def offsets_of(lengths: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]).astype(np.int64)


def random_reads(rng: np.random.Generator, n: int, max_length: int = 200) -> ReadBatch:
    """Return reads of lengths from 0, all base codes; some without quality, some nameless."""
    lengths = rng.integers(0, max_length, n)
    names = [b"" if i % 17 == 16 else b"read%d" % i for i in range(n)]
    base_offsets = offsets_of(lengths)
    quals = rng.integers(0, 94, base_offsets[-1]).astype(np.uint8)
    for i in range(0, n, 5):
        quals[base_offsets[i] : base_offsets[i + 1]] = NO_QUALITY
    return ReadBatch(
        bases=rng.integers(0, 15, base_offsets[-1]).astype(np.uint8),
        quals=quals,
        base_offsets=base_offsets,
        names=np.frombuffer(b"".join(names), np.uint8),
        name_offsets=offsets_of([len(name) for name in names]),
        first_read=0,
        paired=False,
    )


def random_tags(rng: np.random.Generator) -> bytes:
    tags = b""
    if rng.random() < 0.7:
        tags += b"NMi" + struct.pack("<i", rng.choice([0, 7, -1, 2**31 - 1, -(2**31)]))
    if rng.random() < 0.5:
        tags += b"XTA" + bytes([rng.integers(33, 127)])
    if rng.random() < 0.5:
        tags += b"MDZ" + bytes(rng.integers(33, 127, rng.integers(1, 40)).astype(np.uint8)) + b"\0"
    if rng.random() < 0.3:
        tags += b"x1c\x80" + b"x2C\xff" + b"x3s\x00\x80" + b"x4S\xff\xff" + b"x5I\xff\xff\xff\xff"
        tags += b"HXH1AE3\0" + b"RXZ\0"
    if rng.random() < 0.3:
        floats = rng.integers(0, 2**32, 5, np.uint32).view(np.float32)
        floats[np.isnan(floats)] = 0.1
        tags += b"f0f" + floats[:1].tobytes()
        tags += (
            b"B0Bf" + struct.pack("<I", 4) + floats[1:].tobytes() + b"f1f" + floats[:1].tobytes()
        )
    if rng.random() < 0.3:
        for kind, width in zip("cCsSiI", (1, 1, 2, 2, 4, 4), strict=True):
            n = int(rng.integers(0, 6))
            tags += b"B" + kind.encode() + b"B" + kind.encode() + struct.pack("<I", n)
            tags += b"\x80" * (n * width)
    return tags


def random_records(rng: np.random.Generator, reads: ReadBatch, n: int) -> RecordBatch:
    """Return records whose CIGAR fits their SEQ; also unmapped and clipped ones."""
    read = rng.integers(0, reads.n_reads, n).astype(np.int32)
    lengths = np.diff(reads.base_offsets)[read]
    start = rng.integers(0, lengths + 1)
    end = rng.integers(start, lengths + 1)
    mapped = (rng.random(n) < 0.8) & (end > start)
    cigars = [
        _random_cigar(rng, int(e - s)) if m else []
        for s, e, m in zip(start, end, mapped, strict=True)
    ]
    tags = [random_tags(rng) for _ in range(n)]
    flag = rng.integers(0, 2, n) * 0x10 + np.where(mapped, 0, 4) + rng.integers(0, 2, n) * 0x40
    next_ref = rng.integers(-1, 3, n)
    return RecordBatch(
        read=read,
        flag=flag.astype(np.uint16),
        ref_id=np.where(mapped, rng.integers(0, 3, n), -1).astype(np.int32),
        ref_pos=np.where(mapped, rng.integers(0, 1 << 29, n), -1),
        mapq=np.where(mapped, rng.integers(0, 61, n), 0).astype(np.uint8),
        next_ref_id=next_ref.astype(np.int32),
        next_pos=np.where(next_ref >= 0, rng.integers(0, 1 << 29, n), -1),
        template_len=rng.integers(-(1 << 30), 1 << 30, n),
        cigar_offsets=offsets_of([len(cigar) for cigar in cigars]),
        cigar_ops=np.array([op for cigar in cigars for op in cigar], np.uint32),
        query_start=start.astype(np.int32),
        query_end=end.astype(np.int32),
        tag_offsets=offsets_of([len(tag) for tag in tags]),
        tags=np.frombuffer(b"".join(tags), np.uint8),
    )


def _random_cigar(rng: np.random.Generator, length: int) -> list[int]:
    """Return operations that consume `length` bases of the query."""
    ops = [int(rng.integers(1, 100)) << 4 | 5] if rng.random() < 0.2 else []
    left = length
    while left:
        n = int(rng.integers(1, left + 1))
        ops.append(n << 4 | int(rng.choice([0, 1, 7, 8])))
        left -= n
        if left:
            ops.append(int(rng.integers(1, 5000)) << 4 | int(rng.choice([2, 3])))
    return ops
