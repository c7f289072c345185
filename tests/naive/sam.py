"""SAM lines from a batch of records, field by field."""

from __future__ import annotations

import struct
from typing import Any

CODE_LETTERS = "ACGTNMRSVWYHKDB"
COMPLEMENT = dict(zip("ACGTNMRSVWYHKDB", "TGCANKYSBWRDMHV", strict=True))


def sam_lines(records: Any, reads: Any, contig_names: list[str]) -> list[str]:
    """Return one line (without newline) per record."""
    return [sam_line(records, reads, contig_names, i) for i in range(len(records.flag))]


def sam_line(records: Any, reads: Any, contig_names: list[str], i: int) -> str:
    read = int(records.read[i])
    name = reads.names[reads.name_offsets[read] : reads.name_offsets[read + 1]]
    sequence, quality = read_on_strand(reads, read, bool(records.flag[i] & 16))
    start, end = int(records.query_start[i]), int(records.query_end[i])
    sequence, quality = sequence[start:end], quality[start:end]
    ref, next_ref = int(records.ref_id[i]), int(records.next_ref_id[i])
    rname = contig_names[ref] if ref >= 0 else "*"
    rnext = contig_names[next_ref] if next_ref >= 0 else "*"
    cigar = records.cigar_ops[records.cigar_offsets[i] : records.cigar_offsets[i + 1]]
    fields = [
        bytes(name).decode() or "*",
        str(records.flag[i]),
        rname,
        str(records.ref_pos[i] + 1),
        str(records.mapq[i]),
        "".join(f"{op >> 4}{'MIDNSHP=X'[op & 15]}" for op in cigar.tolist()) or "*",
        "=" if rnext == rname and rname != "*" else rnext,
        str(records.next_pos[i] + 1),
        str(records.template_len[i]),
        sequence or "*",
        "*" if not quality or quality[0] == 255 else "".join(chr(33 + q) for q in quality),
    ]
    tags = bytes(records.tags[records.tag_offsets[i] : records.tag_offsets[i + 1]])
    return "\t".join(fields + tag_texts(tags))


def read_on_strand(reads: Any, read: int, reverse: bool) -> tuple[str, list[int]]:
    where = slice(reads.base_offsets[read], reads.base_offsets[read + 1])
    sequence = "".join(CODE_LETTERS[c] for c in reads.bases[where])
    quality = reads.quals[where].tolist()
    if reverse:
        sequence = "".join(COMPLEMENT[c] for c in reversed(sequence))
        quality.reverse()
    return sequence, quality


NUMBERS = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "f": "f"}


def tag_texts(tags: bytes) -> list[str]:
    """Return BAM-encoded tags as SAM text, one item each."""
    texts = []
    while tags:
        key, kind, rest = tags[:2].decode(), chr(tags[2]), tags[3:]
        if kind == "A":
            value, tags = chr(rest[0]), rest[1:]
        elif kind in "ZH":
            raw, _, tags = rest.partition(b"\0")
            value = raw.decode()
        elif kind == "B":
            subtype, (count,) = chr(rest[0]), struct.unpack("<I", rest[1:5])
            form = f"<{count}{NUMBERS[subtype]}"
            size = struct.calcsize(form)
            numbers = struct.unpack(form, rest[5 : 5 + size])
            value = ",".join([subtype, *(f"{x:g}" if subtype == "f" else str(x) for x in numbers)])
            tags = rest[5 + size :]
        else:
            form = f"<{NUMBERS[kind]}"
            size = struct.calcsize(form)
            (number,) = struct.unpack(form, rest[:size])
            value, tags = (f"{number:g}" if kind == "f" else str(number)), rest[size:]
            kind = "f" if kind == "f" else "i"
        texts.append(f"{key}:{kind}:{value}")
    return texts
