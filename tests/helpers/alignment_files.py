"""Alignment files for tests: SAM lines of awkward reads, and the reads expected from them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam

from mapper.batch import ReadBatch
from mapper.io.reads import Lane, ReadOptions, ReadsReader
from mapper.io.tags import DROPPED_TAGS
from tests.naive.sam import CODE_LETTERS, tag_texts

HEADER = (
    "@HD\tVN:1.6\tSO:unsorted\tGO:query\n@SQ\tSN:chr1\tLN:100000\n"
    "@RG\tID:a\tSM:s\n@RG\tID:ab\tSM:s\n@PG\tID:basecaller\tPN:b\n@CO\tkept: as it is\n"
)
TAGS = (
    "RG:Z:a", "RG:Z:ab", "RX:Z:ACGT-TTTT", "QX:Z:IIII IIII", "BC:Z:", "xa:A:!", "xi:i:-1",
    "xj:i:300", "xk:i:4000000000", "xl:i:-70000", "xf:f:0.1", "xg:f:-1e+30", "xh:f:3",
    "MM:Z:C+m,0,1;", "ML:B:C,1,255", "xb:B:c,-1,2", "xs:B:S,65535", "xt:B:I,4294967295",
    "xu:B:f,1.5,-2.25e-10", "xv:B:s,-3", "xw:B:i,-70000,1", "hx:H:1AE3",
    "NM:i:3", "MD:Z:10", "AS:i:7", "SA:Z:chr1,1,+,4M,60,0;", "PG:Z:basecaller",
    "dt:Z:SQ", "do:Z:other",
)  # fmt: skip


class ExpectedRead(NamedTuple):
    name: str
    sequence: str
    quality: list[int]
    flag: int
    tags: list[str]


def random_lines(rng: np.random.Generator, n_templates: int, kinds: str = "spPxe") -> list[str]:
    """Return SAM lines of random templates.

    Kinds: s single, p pair, P pair with the last read first, x with supplementary records, e single
    without bases.
    """
    lines = []
    for i in range(n_templates):
        kind = rng.choice(list(kinds))
        name = f"r{i}" if rng.random() < 0.9 else f"{i:n>254}"
        if kind in "se":
            lines.append(_line(rng, name, 0, kind == "e"))
            continue
        mates = [_line(rng, name, 0x41, False), _line(rng, name, 0x81, False)]
        if kind == "P":
            mates.reverse()
        if kind == "x":
            mates.insert(1, _extra(rng, name, 0x841))
            mates.insert(int(rng.integers(0, 3)), _extra(rng, name, 0x181))
            mates.append(_extra(rng, name, 0x900))
        lines += mates
    return lines


def _line(rng: np.random.Generator, name: str, flag: int, empty: bool) -> str:
    n = 0 if empty else int(rng.integers(1, 80))
    bases = "".join(rng.choice(list("ACGTNRYKMSWBDHV"), n)) or "*"
    quals = "".join(chr(33 + q) for q in rng.integers(0, 94, n)) or "*"
    # A quality of one "*" is SAM's word for none.
    if rng.random() < 0.2 or quals == "*":
        quals = "*"
    flag |= int(rng.choice([0, 0x200])) | int(rng.choice([0, 0x400]))
    place = "*\t0\t0\t*\t*\t0\t0"
    if n and rng.random() < 0.5:
        flag |= int(rng.choice([0, 0x10]))
        place = f"chr1\t{rng.integers(1, 9000)}\t20\t{n}M\t*\t0\t0"
    else:
        flag |= 4 | int(rng.choice([0, 0x10]))
    tags = {tag[:2]: tag for tag in rng.choice(TAGS, int(rng.integers(0, 8)))}
    if n and rng.random() < 0.5:
        tags |= {
            "OQ": "OQ:Z:" + "".join(chr(33 + q) for q in rng.integers(0, 94, n)),
            "E2": "E2:Z:" + "".join(rng.choice(list("ACGTN"), n)),
        }
    return "\t".join([name, str(flag), place, bases, quals, *tags.values()])


def _extra(rng: np.random.Generator, name: str, flag: int) -> str:
    return f"{name}\t{flag}\tchr1\t{rng.integers(1, 900)}\t1\t2H3M\t*\t0\t0\tACG\t*\tNM:i:0"


def write_alignments(path: Path, lines: list[str], header: str = HEADER) -> Path:
    """Write BAM, CRAM or SAM, by the name's ending."""
    sam = path.with_suffix(".text")
    sam.write_text(header + "".join(f"{line}\n" for line in lines))
    modes = {".bam": "wb", ".cram": "wc", ".sam": "wh", ".ubam": "wbu"}
    options = [b"no_ref=1"] if path.suffix == ".cram" else None
    with pysam.AlignmentFile(str(sam), check_sq=False) as given, pysam.AlignmentFile(
        str(path), modes[path.suffix], template=given, format_options=options, add_sam_header=True
    ) as out:  # fmt: skip
        for record in given:
            out.write(record)
    sam.unlink()
    return path


def without_mates(rng: np.random.Generator, lines: list[str], share: float) -> list[str]:
    """Return the lines without some mates of pairs: the others of these pairs are orphans."""
    kept = []
    mates: list[str] = []
    for line in lines:
        flag = int(line.split("\t")[1])
        if flag & 0x900 or not flag & 1:
            kept.append(line)
            continue
        mates.append(line)
        if len(mates) == 2:
            if rng.random() < share:
                mates.pop(int(rng.integers(0, 2)))
            kept += mates
            mates = []
    return kept


def expected_reads(path: Path) -> list[ExpectedRead]:
    """Return the reads as pysam gives them, first mates before last ones."""
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        given = [_expected(record) for record in file.fetch(until_eof=True)]
    waiting = [read for read in given if read is not None]
    reads = []
    while waiting:
        n = 2 if waiting[0].flag & 1 else 1
        if n == 2 and [(r.name, r.flag & 1) for r in waiting[:2]] != [(waiting[0].name, 1)] * 2:
            orphan = waiting.pop(0)
            reads.append(orphan._replace(flag=orphan.flag & 0x200))
            continue
        reads += sorted(waiting[:n], key=lambda read: read.flag & 0x80)
        waiting = waiting[n:]
    return reads


def _expected(record: pysam.AlignedSegment) -> ExpectedRead | None:
    if record.flag & 0x900:
        return None
    dropped = {*DROPPED_TAGS, *(("dt", "do") if record.is_duplicate else ())}
    tags = [t for t in record.to_string().split("\t")[11:] if t[:2] not in dropped]
    if record.flag & 0x10:
        tags = [_turned(tag) for tag in tags]
    sequence = record.get_forward_sequence() or ""
    if record.query_qualities is None:
        quality = [255] * len(sequence)
    else:
        quality = list(record.get_forward_qualities())
    return ExpectedRead(record.query_name, sequence, quality, record.flag & 0x2C1, tags)


def _turned(tag: str) -> str:
    if tag.startswith(("OQ:Z:", "U2:Z:")):
        return tag[:5] + tag[:4:-1]
    if tag.startswith("E2:Z:"):
        return tag[:5] + tag[:4:-1].translate(str.maketrans("ACGT", "TGCA"))
    return tag


def reads_of_batches(batches: list[ReadBatch]) -> list[ExpectedRead]:
    reads = []
    for batch in batches:
        for i in range(batch.n_reads):
            name, bases, tags = (
                column[offsets[i] : offsets[i + 1]]
                for column, offsets in (
                    (batch.names, batch.name_offsets), (batch.bases, batch.base_offsets),
                    (batch.tags, batch.tag_offsets),
                )
            )  # fmt: skip
            quals = batch.quals[batch.base_offsets[i] : batch.base_offsets[i + 1]]
            letters = "".join(CODE_LETTERS[c] for c in bases)
            reads.append(
                ExpectedRead(
                    name.tobytes().decode(), letters, quals.tolist(), int(batch.flags[i]),
                    tag_texts(tags.tobytes()),
                )
            )  # fmt: skip
    return reads


def read_alignments(*paths: Path, **options: object) -> list[ReadBatch]:
    batches = []
    lanes = [Lane(tuple(str(path) for path in paths))]
    with ReadsReader(lanes, ReadOptions(**options)) as reader:
        while (batch := reader.next_batch()) is not None:
            assert batch.n_reads > 0
            assert batch.first_read == sum(b.n_reads for b in batches)
            batches.append(batch)
        assert reader.next_batch() is None
        assert reader.n_reads == sum(b.n_reads for b in batches)
    return batches
