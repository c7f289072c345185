"""Read a reference FASTA, and refuse what is not one.

:func:`scan_fasta` looks once at the raw lines for what would make wrong contigs, and measures
the file on the way, so that memory can be checked before any sequence is held.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper.dna import CODE_OF_ASCII, NOT_A_BASE
from mapper.errors import InputFormatError, UsageError
from mapper.io.fasta_text import CHUNK_BYTES, fasta_records
from mapper.io.source import BrokenStreamError, ByteSource

MAX_CONTIG_LENGTH = 2**31 - 1
"""BAM and its index hold positions as signed 32-bit integers."""

_CONTIG_NAME = re.compile(r"[0-9A-Za-z!#$%&+./:;?@^_|~-][0-9A-Za-z!#$%&*+./:;=?@^_|~-]*")
"""Reference names that SAM allows (SAM specification, section 1.2.1)."""

_FIRST_WORD = re.compile(rb"\S*")
_CODES = CODE_OF_ASCII.tobytes()


class FastaSize(NamedTuple):
    """What a FASTA holds at most: known before its sequences are read."""

    n_records: int
    n_bytes: int  # of the decompressed file: an upper bound of its bases


class FastaRecord(NamedTuple):
    """One contig."""

    name: str  # first word of the header line
    codes: np.ndarray  # uint8 codes of mapper.dna
    md5: str  # of the upper-case letters as given, the M5 of SAM's @SQ line


def scan_fasta(path: Path) -> FastaSize:
    """Check the layout of a FASTA file (plain, gzip or BGZF) and measure it.

    Raises
    ------
    InputFormatError
        If the file cannot be read, is truncated, is empty or is no FASTA.
    """
    _require_regular_file(path)
    n_records = n_bytes = 0
    previous = b"\n"
    for chunk in _chunks(path):
        if n_bytes == 0:
            _require_header(path, chunk)
        n_bytes += len(chunk)
        joined = previous + chunk
        n_records += joined.count(b"\n>")
        if b"\0" in chunk:
            raise InputFormatError(f"{path}: holds a NUL byte; it is no text file")
        for mark in (b"\n@", b"\n+"):
            if mark in joined:
                raise InputFormatError(
                    f"{path}: after record {n_records} a line begins with "
                    f"{mark[1:].decode()!r}; is this FASTQ? A FASTA file is expected"
                )
        previous = chunk[-1:]
    if n_bytes == 0:
        raise InputFormatError(f"{path}: the file is empty; a FASTA file is expected")
    return FastaSize(n_records, n_bytes)


def read_fasta(path: Path) -> Iterator[FastaRecord]:
    """Yield the contigs of a FASTA file that :func:`scan_fasta` has passed.

    Raises
    ------
    InputFormatError
        At a record without name or bases, with a name that SAM forbids or that came
        before, with a character that is no IUPAC nucleotide, or too long for BAM.
    """
    seen: set[str] = set()
    for number, (header, sequence) in enumerate(fasta_records(_chunks(path)), 1):
        name = _name_of(header, path)
        where = f"{path}: record {number} ({name!r})"
        if not _CONTIG_NAME.fullmatch(name):
            what = "has no name" if not name else "has a name that SAM does not allow"
            raise InputFormatError(f"{where} {what}; rename the contig")
        if name in seen:
            raise InputFormatError(f"{where}: a record of this name came before; rename one")
        seen.add(name)
        yield FastaRecord(name, *_codes_and_md5(sequence, where))


def check_reference(path: Path, names: Sequence[str], md5: Sequence[str]) -> None:
    """Raise UsageError unless a FASTA file holds these contigs, in this order.

    For CRAM, which is written against the file and read back with it: another one of the
    same names would give other bases.
    """
    scan_fasta(path)
    for number, record in enumerate(read_fasta(path)):
        if number >= len(names) or (record.name, record.md5) != (names[number], md5[number]):
            expected = repr(names[number]) if number < len(names) else "no further contig"
            raise UsageError(
                f"{path}: contig {record.name!r} is not that of the index ({expected}, the same "
                "bases); give the FASTA file that the index was built from"
            )
    if number + 1 != len(names):
        raise UsageError(f"{path}: {number + 1} contigs, and the index has {len(names)}")


def _name_of(header: bytes, path: Path) -> str:
    """Return the first word of a header line, which must follow the ``>`` at once."""
    word = _FIRST_WORD.match(header)
    assert word is not None  # it may be empty
    try:
        return word[0].decode()
    except UnicodeDecodeError as error:
        raise InputFormatError(f"{path}: cannot be read as FASTA: not text") from error


def _codes_and_md5(sequence: bytes, where: str) -> tuple[np.ndarray, str]:
    if not sequence:
        raise InputFormatError(f"{where} has no bases; remove it")
    if len(sequence) > MAX_CONTIG_LENGTH:
        raise InputFormatError(
            f"{where} has {len(sequence)} bases; BAM allows {MAX_CONTIG_LENGTH}: split it"
        )
    letters = sequence.upper()
    codes = np.frombuffer(letters.translate(_CODES), np.uint8)
    if codes.max() == NOT_A_BASE:
        bad = int(np.argmax(codes == NOT_A_BASE))
        character = sequence[bad : bad + 4].decode("utf-8", "replace")[0]
        raise InputFormatError(
            f"{where}: character {character!r} at base {bad + 1} is no IUPAC nucleotide"
        )
    return codes, hashlib.md5(letters, usedforsecurity=False).hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    """Yield the plain text of a file.

    Raises
    ------
    InputFormatError
        If it cannot be read, is truncated or damaged.
    """
    source = ByteSource(str(path))
    buffer = bytearray(CHUNK_BYTES)
    try:
        while n := source.readinto(memoryview(buffer)):
            yield bytes(memoryview(buffer)[:n])
        if source.is_bgzf and not source.ends_with_eof_block:
            raise InputFormatError(
                f"{path}: the BGZF end-of-file block is missing; the file is truncated"
            )
    except BrokenStreamError as error:
        raise InputFormatError(f"{path}: {error}") from error
    finally:
        source.close()


def _require_regular_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputFormatError(f"{path}: {error.strerror}; a FASTA file is expected") from error
    if not stat.S_ISREG(mode):
        raise InputFormatError(
            f"{path}: is a directory, pipe or device; a FASTA file is expected (it is read twice)"
        )


def _require_header(path: Path, chunk: bytes) -> None:
    first = chunk.lstrip()[:1]
    if first != b">":
        what = "is FASTQ" if first == b"@" else "does not begin with '>'"
        raise InputFormatError(f"{path}: {what}; a FASTA file is expected")
