"""Text of a FASTA file to its records, for sequences to be aligned.

Reads in FASTA, which come in batches and in millions, have a compiled reader
(:mod:`mapper.io.fasta_scan`; a test compares the two), and so have references, which are read by
all threads (:mod:`mapper.io.fasta_codes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def fasta_records(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the header line, without its ``>``, and the sequence of each record.

    Lines end with LF or CRLF, and blank ones are skipped; any other character stays. Memory is
    three times the longest record at most.

    Parameters
    ----------
    chunks
        The text, cut anywhere. Apart from white space it begins with ``>``.
    """
    parts: list[bytes] = []  # of the record, its ">" left out
    held = b""  # a line end that a ">" may follow
    begun = False
    for chunk in chunks:
        if not begun:
            chunk = chunk.lstrip()
            if not chunk:
                continue
            begun = True
            chunk = chunk[1:]
        pieces = (held + chunk).split(b"\n>")
        held = b"\n" if pieces[-1].endswith(b"\n") else b""
        pieces[-1] = pieces[-1][: len(pieces[-1]) - len(held)]
        for piece in pieces[:-1]:
            parts.append(piece)
            yield _record(parts)
            parts = []
        parts.append(pieces[-1])
    if begun:
        yield _record(parts)


def _record(parts: list[bytes]) -> tuple[bytes, bytes]:
    text = b"".join(parts)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
    header, _, lines = text.partition(b"\n")
    del text
    return header, lines.translate(None, b"\n")
