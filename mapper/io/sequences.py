"""Read a FASTA or FASTQ file of sequences to be aligned, one after the other.

Any letters of either case are kept, so that proteins can be read; a record may be empty and of any
length. Plain or gzip, LF or CRLF; FASTA may be wrapped, FASTQ has four lines a record and loses its
qualities. Reads have a compiled reader (:mod:`mapper.io.fastq_parser`) that takes nucleotides only
and encodes them; a test compares the two.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from mapper.errors import InputFormatError
from mapper.io.fastq_errors import format_error, show
from mapper.io.input_file import BrokenStreamError, ByteSource

_CHUNK = 1 << 20


class _Raw(io.RawIOBase):
    """A byte source as a raw file, for Python's line reader."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.readinto(memoryview(buffer))


def read_sequences(path: str) -> Iterator[bytes]:
    """Yield the sequences of a FASTA or FASTQ file in order.

    As :func:`read_named_sequences`, without the names.
    """
    return (sequence for _, sequence in read_named_sequences(path))


def only_sequence(path: str) -> bytes:
    """Return the sequence of a FASTA or FASTQ file that holds just one.

    Raises
    ------
    InputFormatError
        If it holds none, or several, or as :func:`read_sequences`.
    """
    sequences = read_sequences(path)
    first = next(sequences, None)
    if first is None:
        raise InputFormatError(f"{path}: holds no sequence; one is expected")
    if next(sequences, None) is not None:
        raise InputFormatError(
            f"{path}: holds more than one sequence; give a file with one (for many pairs there is "
            "fmwave align)"
        )
    return first


def read_named_sequences(path: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield names and sequences of a FASTA or FASTQ file in order.

    A name is the first word behind the mark, and may be empty.

    Parameters
    ----------
    path
        File name, or ``-`` for standard input.

    Raises
    ------
    InputFormatError
        If the file cannot be read, is neither, or a record breaks its format; names file
        and record.
    """
    source = ByteSource(path)
    lines = io.BufferedReader(_Raw(source), _CHUNK)
    try:
        first = _next_solid_line(lines)
        if first.startswith(b">"):
            yield from _fasta(lines, first)
        elif first.startswith(b"@"):
            yield from _fastq(lines, first, source.name)
        elif first:
            raise InputFormatError(
                f"{source.name}: begins with {show(first[:8])}; FASTA ('>') or FASTQ ('@') is "
                "expected"
            )
    except BrokenStreamError as error:
        raise InputFormatError(f"{source.name}: {error}") from error
    finally:
        source.close()


def _next_solid_line(lines: io.BufferedReader[_Raw]) -> bytes:
    """Return the next line that is not blank, without its end; nothing at the file's end."""
    while line := lines.readline():
        if stripped := line.rstrip(b"\r\n"):
            return stripped
    return b""


def _name_of(header: bytes) -> bytes:
    return (header.split(None, 1) or [b""])[0]


def _fasta(lines: io.BufferedReader[_Raw], header: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield names and sequences; the first header line has been read."""
    parts: list[bytes] = []
    for line in lines:
        if line.startswith(b">"):
            yield _name_of(header[1:]), b"".join(parts)
            header, parts = line, []
        else:
            parts.append(line.removesuffix(b"\n").removesuffix(b"\r"))
    yield _name_of(header[1:]), b"".join(parts)


def _fastq(
    lines: io.BufferedReader[_Raw], header: bytes, name: str
) -> Iterator[tuple[bytes, bytes]]:
    number = 1
    while header:
        if not header.startswith(b"@"):
            raise format_error(
                name, number, f"begins with {show(header)}, and '@' must be there",
                "write each record on four lines, for instance with `seqtk seq`",
            )  # fmt: skip
        bases, plus, quals = (lines.readline() for _ in range(3))
        if not plus.startswith(b"+") or not quals:
            raise format_error(
                name, number, "has no third line '+' with a line of qualities",
                "the file is truncated, or wrapped: write each record on four lines",
            )  # fmt: skip
        bases, quals = bases.rstrip(b"\r\n"), quals.rstrip(b"\r\n")
        if len(bases) != len(quals):
            raise format_error(name, number, f"{len(bases)} bases and {len(quals)} qualities")
        yield _name_of(header[1:]), bases
        header = _next_solid_line(lines)
        number += 1
