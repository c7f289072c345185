"""Read the header of a BAM file: its text, and the contigs that records refer to."""

from __future__ import annotations

import struct
from typing import NamedTuple

from mapper.errors import InputFormatError
from mapper.io.header import header_field, header_lines
from mapper.io.input_file import BrokenStreamError, PlainBytes

BAM_MAGIC = b"BAM\x01"

_MAX_HEADER_BYTES = 1 << 30
_MAX_CONTIG = (1 << 31) - 1


class BamHeader(NamedTuple):
    """The start of a BAM file, up to its first record."""

    lines: list[str]
    """Lines of the text."""
    contig_names: list[str]
    """In the order of their ``ref_id``."""
    contig_lengths: list[int]
    raw: bytes
    """All of it, uncompressed."""


def read_bam_header(source: PlainBytes) -> BamHeader:
    """Read an uncompressed BAM stream up to its first record.

    Raises
    ------
    InputFormatError
        If it is no BAM, or its header is cut off or damaged.
    """
    try:
        return _HeaderBytes(source).parse()
    except BrokenStreamError as error:
        raise InputFormatError(f"{source.name}: {error} (found in the header)") from error


class _HeaderBytes:
    """The bytes of a header, taken off a stream one field after another."""

    def __init__(self, source: PlainBytes) -> None:
        self._source = source
        self._taken: list[bytes] = []

    def parse(self) -> BamHeader:
        name = self._source.name
        if self._take(4) != BAM_MAGIC:
            raise InputFormatError(f"{name}: not a BAM file; check that it is the right file")
        text = self._take(self._take_size("text"))
        names, lengths = [], []
        for _ in range(self._take_size("contigs")):
            contig = self._take(self._take_size("name"))
            names.append(contig.rstrip(b"\0").decode("utf-8", "surrogateescape"))
            lengths.append(self._take_size("contigs", _MAX_CONTIG))
        lines = header_lines(text.rstrip(b"\0").decode("utf-8", "surrogateescape"))
        for line in lines:
            if line.startswith("@RG\t") and not header_field(line, "ID"):
                raise InputFormatError(
                    f"{name}: header line {line!r} has no ID; repair it with `samtools reheader`"
                )
        return BamHeader(lines, names, lengths, b"".join(self._taken))

    def _take_size(self, what: str, most: int = _MAX_HEADER_BYTES) -> int:
        (size,) = struct.unpack("<i", self._take(4))
        if not 0 <= size <= most:
            raise InputFormatError(
                f"{self._source.name}: the header is damaged (size {size} of its {what}); copy or "
                "export the file again"
            )
        return int(size)

    def _take(self, n: int) -> bytes:
        data = bytearray()
        while len(data) < n:
            part = bytearray(min(n - len(data), 1 << 20))
            got = self._source.readinto(memoryview(part))
            if got == 0:
                raise InputFormatError(
                    f"{self._source.name}: the file ends inside the header (truncated); copy or "
                    "export it again"
                )
            data += part[:got]
        self._taken.append(bytes(data))
        return self._taken[-1]
