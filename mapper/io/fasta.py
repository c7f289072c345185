"""Read a reference FASTA, and refuse what is not one.

pysam's parser (kseq) is lenient: it skips text before the first ``>``, takes FASTQ for
FASTA, and ends a line at a NUL. :func:`scan_fasta` therefore looks once at the raw
lines for what the parser would swallow, and measures the file on the way, so that
memory can be checked before any sequence is held.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam

from mapper.dna import CODE_OF_ASCII, NOT_A_BASE
from mapper.errors import InputFormatError, UsageError

MAX_CONTIG_LENGTH = 2**31 - 1
"""BAM and its index hold positions as signed 32-bit integers."""

_CONTIG_NAME = re.compile(r"[0-9A-Za-z!#$%&+./:;?@^_|~-][0-9A-Za-z!#$%&*+./:;=?@^_|~-]*")
"""Reference names that SAM allows (SAM specification, section 1.2.1)."""

_BGZF_EOF = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
_CHUNK = 1 << 22
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
    with _reading(path):
        _require_bgzf_end(path)
        with pysam.BGZFile(str(path), "rb", None) as file:
            n_records = n_bytes = 0
            previous = b"\n"
            while chunk := file.read(_CHUNK):
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
    with _reading(path), pysam.FastxFile(str(path)) as file:
        for number, record in enumerate(file, 1):
            name = record.name or ""
            where = f"{path}: record {number} ({name!r})"
            if not _CONTIG_NAME.fullmatch(name):
                what = "has no name" if not name else "has a name that SAM does not allow"
                raise InputFormatError(f"{where} {what}; rename the contig")
            if name in seen:
                raise InputFormatError(f"{where}: a record of this name came before; rename one")
            seen.add(name)
            yield FastaRecord(name, *_codes_and_md5(record.sequence or "", where))


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


def _codes_and_md5(sequence: str, where: str) -> tuple[np.ndarray, str]:
    if not sequence:
        raise InputFormatError(f"{where} has no bases; remove it")
    if len(sequence) > MAX_CONTIG_LENGTH:
        raise InputFormatError(
            f"{where} has {len(sequence)} bases; BAM allows {MAX_CONTIG_LENGTH}: split it"
        )
    # Whatever is not ASCII becomes "?", which is no base either.
    letters = sequence.upper().encode("ascii", "replace")
    codes = np.frombuffer(letters.translate(_CODES), np.uint8)
    if codes.max() == NOT_A_BASE:
        bad = int(np.argmax(codes == NOT_A_BASE))
        raise InputFormatError(
            f"{where}: character {sequence[bad]!r} at base {bad + 1} is no IUPAC nucleotide"
        )
    return codes, hashlib.md5(letters, usedforsecurity=False).hexdigest()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what htslib, zlib and the system say about a file into our error."""
    verbosity = pysam.set_verbosity(0)
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "damaged, truncated or not text"
        raise InputFormatError(f"{path}: cannot be read as FASTA: {reason}") from error
    finally:
        pysam.set_verbosity(verbosity)


def _require_regular_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputFormatError(f"{path}: {error.strerror}; a FASTA file is expected") from error
    if not stat.S_ISREG(mode):
        raise InputFormatError(
            f"{path}: is a directory, pipe or device; a FASTA file is expected (it is read twice)"
        )


def _require_bgzf_end(path: Path) -> None:
    """Refuse a BGZF file cut between two blocks, which htslib only warns of."""
    with path.open("rb") as file:
        head = file.read(18)
        if head[:4] == _BGZF_EOF[:4] and head[12:14] == b"BC":
            file.seek(-min(len(_BGZF_EOF), path.stat().st_size), 2)
            if file.read() != _BGZF_EOF:
                raise InputFormatError(
                    f"{path}: the BGZF end-of-file block is missing; the file is truncated"
                )


def _require_header(path: Path, chunk: bytes) -> None:
    first = chunk.lstrip()[:1]
    if first != b">":
        what = "is FASTQ" if first == b"@" else "does not begin with '>'"
        raise InputFormatError(f"{path}: {what}; a FASTA file is expected")
