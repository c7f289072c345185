"""A PAF line from a SAM line."""

from __future__ import annotations

import re


def paf_line(sam: str, read_len: int, contig_lengths: dict[str, int]) -> str:
    """Return the line of a mapped record; a hard clip of it belongs to `read_len`."""
    name, flag_text, contig, pos, mapq, cigar, *rest = sam.split("\t")
    flag = int(flag_text)
    ops = [(int(n), op) for n, op in re.findall(r"(\d+)([MIDNSHP=X])", cigar)]
    left = ops[0][0] if ops and ops[0][1] in "SH" else 0
    right = ops[-1][0] if len(ops) > 1 and ops[-1][1] in "SH" else 0
    inner = [(n, op) for n, op in ops if op not in "SH"]
    on_query = sum(n for n, op in inner if op in "M=XI")
    on_ref = sum(n for n, op in inner if op in "M=XD")
    block = sum(n for n, _ in inner)
    tags = {tag[:2]: tag[5:] for tag in rest[5:]}
    edits = int(tags.get("NM", 0))
    start = right if flag & 16 else left
    suffix = "/1" if flag & 0x40 else "/2" if flag & 0x80 else ""
    fields = [
        ("" if name == "*" else name) + suffix, read_len, start, start + on_query,
        "-" if flag & 16 else "+", contig, contig_lengths[contig], int(pos) - 1,
        int(pos) - 1 + on_ref, block - edits, block, mapq, f"NM:i:{edits}",
        f"AS:i:{tags.get('AS', 0)}", f"tp:A:{'S' if flag & 0x100 else 'P'}",
        *(f"{tag}:{kind}:{tags[tag]}" for tag, kind in (("cm", "i"), ("de", "f")) if tag in tags),
        "cg:Z:" + "".join(f"{n}{op}" for n, op in inner),
        *(f"{tag}:Z:{tags[tag]}" for tag in ("cs", "ds") if tag in tags),
    ]  # fmt: skip
    return "\t".join(map(str, fields))
