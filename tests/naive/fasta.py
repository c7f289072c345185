"""The contigs of a reference FASTA, line by line."""

from __future__ import annotations

import hashlib
import re

BASES = b"ACGTUNMRSVWYHKDB."


def contigs_of(data: bytes) -> list[tuple[str, bytes, str]]:
    """Return name, letters (upper case, U as T and ``.`` as N) and M5 of each contig.

    Raises
    ------
    ValueError
        With where it is wrong: ``start``, ``nul``, ``fastq``, ``name``, ``twice``, ``empty``, or
        record and base (both from 1) of a character that is none.
    """
    data = data.lstrip()
    if data[:1] != b">":
        raise ValueError("start")
    found: list[tuple[str, bytearray]] = []
    for line in data.split(b"\n"):
        line = line.removesuffix(b"\r")
        if line[:1] == b">":
            if found and not found[-1][1]:
                raise ValueError("empty")
            if b"\0" in line:
                raise ValueError("nul")
            word = re.split(rb"[ \t\r\v\f]", line[1:])[0]
            name = word.decode("ascii", "replace")
            if not re.fullmatch(r"[!-~]+", name) or set("\"'(),[\\]`{}<>") & set(name):
                raise ValueError("name")
            if name[0] in "*=":
                raise ValueError("name")
            if name in [before for before, _ in found]:
                raise ValueError("twice")
            found.append((name, bytearray()))
            continue
        for i, c in enumerate(line.upper()):
            if c not in BASES:
                if c == 0:
                    raise ValueError("nul")
                if i == 0 and c in b"@+":
                    raise ValueError("fastq")
                raise ValueError(f"{len(found)}:{len(found[-1][1]) + 1}")
            found[-1][1].append(c)
    if not found[-1][1]:
        raise ValueError("empty")
    return [
        (
            name,
            bytes(letters).replace(b"U", b"T").replace(b".", b"N"),
            hashlib.md5(letters).hexdigest(),
        )
        for name, letters in found
    ]
