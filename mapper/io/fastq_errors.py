"""Error messages for FASTQ and FASTA files that cannot be parsed."""

from __future__ import annotations

import re
from itertools import accumulate

import numpy as np

from mapper.dna import CODE_OF_ASCII, NOT_A_BASE
from mapper.errors import InputFormatError, option
from mapper.io import fastq_parser as parser

FIX_FILE = "repair or re-export the file"
_UNWRAP = "write each record on four lines, for instance with `seqtk seq`"
ALIGNMENT_STARTS = (b"BAM\x01", b"CRAM")
_FOREIGN_STARTS = {
    b"BAM\x01": "a BAM file",
    b"CRAM": "a CRAM file",
    b"@HD\t": "a SAM file",
    b"@SQ\t": "a SAM file",
    b"@RG\t": "a SAM file",
    b"@PG\t": "a SAM file",
    b"\xef\xbb\xbf@": "FASTQ behind a Unicode byte order mark; remove the first three bytes",
    b"\x89HDF": "an HDF5 file; export it as FASTQ",
}


def show(text: bytes) -> str:
    """Return bytes of a file as short printable text in quotes."""
    shown = "".join(chr(c) if 32 <= c < 127 else f"\\x{c:02x}" for c in text[:60])
    return f"'{shown}'" + ("..." if len(text) > 60 else "")


def format_error(name: str, record: int, reason: str, remedy: str = FIX_FILE) -> InputFormatError:
    """Return the error of record number `record` (1-based) of a file."""
    return InputFormatError(f"{name}: record {record}: {reason}; {remedy}")


def foreign_format(name: str, text: bytes) -> InputFormatError | None:
    """Return an error if the first bytes of a file show another format than FASTQ or FASTA."""
    for start, what in _FOREIGN_STARTS.items():
        if text.startswith(start):
            return InputFormatError(f"{name}: not FASTQ but {what}")
    if text and text[:1] not in b"@>\r\n":
        return InputFormatError(
            f"{name}: not FASTQ: it begins with {show(text[:8])} where '@' must be; check that "
            "it is the right file"
        )
    return None


def read_name(record: bytes) -> bytes:
    """Return the first word of a record's name line, without '@'."""
    words = record[1:].split(b"\n", 1)[0].split(None, 1)
    return words[0] if words else b""


_SAID = re.compile(rb".(?:\S*/([12])(?=\s|$)|\S+ ([12]):[NY]:)")


def mate_said(record: bytes) -> int:
    """Return 1 or 2 if a record's name line says that it is the first or second read of a pair.

    As ``mate_said`` of :mod:`mapper.io.fastq_parser` does for every record.
    """
    match = _SAID.match(record.split(b"\n", 1)[0])
    return int(match[1] or match[2]) if match else 0


def explain(status: int, name: str, number: int, record: bytes, where: int) -> InputFormatError:
    """Return the error for a status of :mod:`mapper.io.fastq_parser`.

    Parameters
    ----------
    status
        From the parser.
    name, number
        File, and 1-based number of the record in it.
    record
        The file's bytes from the start of the record on, as far as they are in memory.
    where
        Position of the error in `record`.
    """
    found = show(record[where : where + 1])
    if status == parser.NO_AT:
        line = show(record.split(b"\n", 1)[0].rstrip(b"\r"))
        return format_error(
            name,
            number,
            f"begins with {line} where '@' and a name must be (a line too many or too few "
            "before it, or a record of more than four lines)",
        )
    if status == parser.BLANK:
        return format_error(name, number, "an empty line where '@' and a name must be")
    if status == parser.BAD_NAME:
        return format_error(name, number, f"character {found} in the read name")
    if status == parser.NO_NAME and not (record[:1] == b"@" and record.count(b"\n") < 3):
        return format_error(name, number, "has no name", "give each record one")
    if status == parser.AT_NAME:
        return format_error(
            name, number, f"read name {show(read_name(record))} begins with '@', as only header "
            "lines of SAM do", "rename the reads",
        )  # fmt: skip
    if status == parser.LONG_NAME:
        return format_error(
            name, number, f"read name longer than {parser.MAX_NAME} characters, the limit of BAM",
            "shorten the names",
        )  # fmt: skip
    if status == parser.BAD_BASE:
        return format_error(
            name, number, f"character {found} in the sequence is no IUPAC nucleotide letter"
        )
    if status == parser.BAD_COMMENT:
        field = record[where:].split(b"\n", 1)[0].split(b"\t", 1)[0].rstrip(b"\r")
        if field.startswith(b"RG:"):
            reason = (
                f"{show(field)} in the comment: a read group is given by {option('read_group')}"
            )
            return format_error(name, number, reason, "or map the BAM file that it came from")
        before = record[:where].replace(b" ", b"\t").split(b"\t")
        if field and any(other[:3] == field[:3] for other in before):
            return format_error(
                name, number, f"{show(field)} in the comment: the tag is there already",
                "do not take comments as tags",
            )  # fmt: skip
        return format_error(
            name, number, f"{show(field)} in the comment is no SAM tag (TAG:TYPE:VALUE)",
            "do not take comments as tags",
        )  # fmt: skip
    if status == parser.NO_PLUS:
        return _explain_no_plus(name, number, record[where:])
    if status == parser.BAD_QUALITY:
        return format_error(
            name, number, f"character {found} in the quality is not between '!' and '~'"
        )
    if status == parser.QUALITY_LENGTH:
        return _explain_quality_length(name, number, record)
    return format_error(
        name, number, "the file ends inside the record (truncated)", "copy or export it again"
    )


def _explain_no_plus(name: str, number: int, rest: bytes) -> InputFormatError:
    lines = (line.rstrip(b"\r") for line in rest.split(b"\n"))
    behind = next((line for line in lines if not line or not _are_bases(line)), b"")
    if behind.startswith(b"+"):
        return format_error(
            name, number, "sequence on several lines (multi-line FASTQ), which is not read", _UNWRAP
        )
    line = show(rest.split(b"\n", 1)[0].rstrip(b"\r"))
    return format_error(name, number, f"third line is {line} where '+' must be")


def _are_bases(line: bytes) -> bool:
    return bool((CODE_OF_ASCII[np.frombuffer(line, np.uint8)] != NOT_A_BASE).all())


def _explain_quality_length(name: str, number: int, record: bytes) -> InputFormatError:
    lines = [line.rstrip(b"\r") for line in record.split(b"\n")]
    n_bases, n_quals = len(lines[1]), len(lines[3])
    for n_joined in accumulate(len(line) for line in lines[3:]):
        if n_joined == n_bases > n_quals:
            return format_error(
                name, number, "quality on several lines (multi-line FASTQ), which is not read",
                _UNWRAP,
            )  # fmt: skip
        if n_joined > n_bases:
            break
    at_least = "at least " if len(lines) == 4 and n_quals > n_bases else ""
    return format_error(name, number, f"{at_least}{n_quals} quality characters for {n_bases} bases")
