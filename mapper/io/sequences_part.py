"""Open a file of sequences whatever its format: FASTQ, FASTA, or one sequence a line."""

from __future__ import annotations

from mapper.errors import InputFormatError
from mapper.io.fastq import FastqReader
from mapper.io.fastq_errors import ALIGNMENT_STARTS
from mapper.io.input_file import STDIN, BrokenStreamError, ByteSource

FORMATS = ("fastq", "fasta", "list")

_HEAD_BYTES = 4


def open_sequences(path: str, batch_bases: int, file_format: str | None = None) -> FastqReader:
    """Open a file of sequences.

    Parameters
    ----------
    path
        File name, or ``-`` for standard input, which is FASTQ unless `file_format` says.
    batch_bases
        A batch ends with the sequence that brings it to so many bases.
    file_format
        One of FORMATS; None to go by the first character: ``@`` FASTQ, ``>`` FASTA, else a
        list.

    Raises
    ------
    InputFormatError
        If the file cannot be opened or is empty.
    """
    file_format = file_format or ("fastq" if path == STDIN else _format_of(path))
    return FastqReader([path], batch_bases=batch_bases, is_list=file_format == "list")


def _format_of(path: str) -> str:
    source = ByteSource(path)
    try:
        head = source.peek(_HEAD_BYTES)
        source.readinto(memoryview(bytearray(1)))
    except BrokenStreamError as error:
        raise InputFormatError(f"{path}: {error}") from error
    finally:
        source.close()
    if not head:
        raise InputFormatError(f"{path}: the file is empty; FASTQ, FASTA or a list is expected")
    if head.startswith(ALIGNMENT_STARTS):
        return "fastq"  # whose reader says what it is instead
    return {b"@": "fastq", b">": "fasta"}.get(head[:1], "list")
