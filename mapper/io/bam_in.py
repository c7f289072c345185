"""BAM, CRAM and SAM files to batches of reads."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np

from mapper.batch import ReadBatch
from mapper.errors import InputFormatError
from mapper.io import bam_scan as scan
from mapper.io.bam_errors import explain
from mapper.io.buffer import InputBuffer
from mapper.io.converted import ConvertedSource
from mapper.io.fastq_scan import MAX_NAME, MIN_COST
from mapper.io.header import header_field
from mapper.io.source import BrokenStreamError, ByteSource

BAM_MAGIC = b"BAM\x01"
CRAM_MAGIC = b"CRAM"
_SAM_START = re.compile(rb"@(HD|SQ|RG|PG|CO)\t")
_MAX_HEADER_BYTES = 1 << 30


def alignment_format(source: ByteSource) -> str | None:
    """Return ``bam``, ``cram`` or ``sam`` if a file begins like one, else None."""
    if source.raw_head.startswith(CRAM_MAGIC):
        return "cram"
    start = source.peek(4)
    if start == BAM_MAGIC:
        return "bam"
    return "sam" if _SAM_START.match(start) else None


class BamReader:
    """Reads of one BAM, CRAM or SAM file in batches.

    Mates must be next to each other (unaligned files, name-grouped ones); secondary and
    supplementary records between them are skipped. Pairs and single reads may be mixed.
    See :mod:`mapper.io.bam_scan` for what is kept of a record.

    Parameters
    ----------
    source
        The file, of the format that :func:`alignment_format` found.
    fmt
        That format.
    batch_bases
        A batch ends with the first read (pair) that brings it to so many bases. A read
        counts as no less than its name's length, its tags and ``fastq_scan.MIN_COST``.
    chunk_bytes
        Bytes read at a time; no effect on the batches.
    reference, threads
        See :class:`ConvertedSource`.

    Raises
    ------
    InputFormatError
        If the header cannot be read.
    """

    def __init__(
        self,
        source: ByteSource,
        fmt: str,
        batch_bases: int,
        chunk_bytes: int,
        reference: str | None = None,
        threads: int = 1,
    ) -> None:
        self.name = source.name
        self._source: Any = source
        if fmt != "bam":
            self._source = ConvertedSource(source, reference, threads)
        self._limit = batch_bases
        self._chunk_bytes = chunk_bytes
        self._file: InputBuffer | None = None
        self._n_records = 0
        self._n_reads = 0
        self._finished = False
        self._error: InputFormatError | None = None
        try:
            self.header = self._read_header()
        except BrokenStreamError as error:
            self.close()
            raise InputFormatError(f"{self.name}: {error} (found in the header)") from error
        except InputFormatError:
            self.close()
            raise
        ids = [
            header_field(line, "ID").encode("utf-8", "surrogateescape") for line in self.read_groups
        ]
        self._group_ids = np.frombuffer(bytearray(b"".join(ids)), np.uint8)
        self._group_offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum([len(text) for text in ids], out=self._group_offsets[1:])

    @property
    def read_groups(self) -> list[str]:
        """The header's @RG lines."""
        return [line for line in self.header if line.startswith("@RG\t")]

    @property
    def n_reads(self) -> int:
        """Reads handed out so far."""
        return self._n_reads

    def next_batch(self) -> ReadBatch | None:
        """Return the next reads, or None after the last; see ``FastqReader.next_batch``.

        Raises
        ------
        InputFormatError
            For anything wrong with the input; again, whenever called after that.
        """
        if self._error is not None:
            raise self._error
        if self._finished:
            return None
        try:
            return self._read_batch()
        except InputFormatError as error:
            self._error = error
            raise

    def close(self) -> None:
        """Close the file."""
        if isinstance(self._source, ConvertedSource):
            self._source.stop()
        if self._file is not None:
            self._file.close()
        else:
            self._source.close()

    def _read_batch(self) -> ReadBatch | None:
        if self._file is None:
            self._file = InputBuffer(self._source, self._chunk_bytes)
        file = self._file
        columns = _Columns(self._limit)
        n_reads = cost = 0
        status = scan.MORE
        while status != scan.FULL and not self._finished:
            columns.reserve(self._limit + len(file.data), n_reads)
            status, file.at, where, passed, between, n_reads, cost = scan.fill_batch(
                file.data, file.at, file.end, file.ended, self._limit, cost, n_reads,
                self._group_ids, self._group_offsets, *columns.arrays(),
            )  # fmt: skip
            self._n_records += passed
            number = self._n_records + between + 1
            if status == scan.MORE:
                file.refill(number)
            elif status == scan.DONE:
                self._finish(number)
            elif status != scan.FULL:
                record = file.data[where : file.end].tobytes()
                raise explain(status, self.name, number, record, self.header)
        if n_reads == 0:
            return None
        batch = columns.batch(n_reads, self._n_reads)
        self._n_reads += n_reads
        return batch

    def _finish(self, number: int) -> None:
        self._finished = True
        if self._source.is_bgzf and not self._source.ends_with_eof_block:
            raise InputFormatError(
                f"{self.name}: no end-of-file block after record {number - 1}: the file is "
                "truncated; copy or export it again"
            )

    def _read_header(self) -> list[str]:
        """Read up to the first record; return the header's lines."""
        if self._take(4) != BAM_MAGIC:
            raise InputFormatError(f"{self.name}: not a BAM file; check that it is the right file")
        text = self._take(self._take_size("text"))
        for _ in range(self._take_size("contigs")):
            self._take(self._take_size("name") + 4)
        lines = text.rstrip(b"\0").decode("utf-8", "surrogateescape").splitlines()
        for line in lines:
            if line.startswith("@RG\t") and not header_field(line, "ID"):
                raise InputFormatError(
                    f"{self.name}: header line {line!r} has no ID; repair it with "
                    "`samtools reheader`"
                )
        return lines

    def _take_size(self, what: str) -> int:
        (size,) = struct.unpack("<i", self._take(4))
        if not 0 <= size <= _MAX_HEADER_BYTES:
            raise InputFormatError(
                f"{self.name}: the header is damaged (size {size} of its {what}); copy or export "
                "the file again"
            )
        return int(size)

    def _take(self, n: int) -> bytes:
        data = bytearray()
        while len(data) < n:
            part = bytearray(min(n - len(data), 1 << 20))
            got = self._source.readinto(memoryview(part))
            if got == 0:
                raise InputFormatError(
                    f"{self.name}: the file ends inside the header (truncated); copy or export "
                    "it again"
                )
            data += part[:got]
        return bytes(data)


class _Columns:
    """Growing columns of the batch that is being filled (see ``bam_scan.fill_batch``)."""

    def __init__(self, limit: int) -> None:
        n_rows = limit // MIN_COST + 4
        self.bases = np.empty(0, np.uint8)
        self.quals = np.empty(0, np.uint8)
        self.base_offsets = np.zeros(n_rows, np.int64)
        self.names = np.empty(limit + 2 * (MAX_NAME + 2), np.uint8)
        self.name_offsets = np.zeros(n_rows, np.int64)
        self.flags = np.empty(n_rows, np.uint16)
        self.tags = np.empty(0, np.uint8)
        self.tag_offsets = np.zeros(n_rows, np.int64)

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return the columns in the order in which ``fill_batch`` takes them."""
        return (
            self.bases, self.quals, self.base_offsets, self.names, self.name_offsets, self.flags,
            self.tags, self.tag_offsets,
        )  # fmt: skip

    def reserve(self, capacity: int, n_reads: int) -> None:
        """Make room for `capacity` bases and bytes of tags, keeping the first `n_reads` rows."""
        if len(self.bases) >= capacity:
            return
        for column, offsets in (
            ("bases", self.base_offsets), ("quals", self.base_offsets), ("tags", self.tag_offsets),
        ):  # fmt: skip
            used = int(offsets[n_reads])
            grown = np.empty(capacity, np.uint8)
            grown[:used] = getattr(self, column)[:used]
            setattr(self, column, grown)

    def batch(self, n_reads: int, first_read: int) -> ReadBatch:
        """Return the first `n_reads` rows."""
        flags = self.flags[:n_reads]
        return ReadBatch(
            bases=self.bases[: self.base_offsets[n_reads]],
            quals=self.quals[: self.base_offsets[n_reads]],
            base_offsets=self.base_offsets[: n_reads + 1],
            names=self.names[: self.name_offsets[n_reads]],
            name_offsets=self.name_offsets[: n_reads + 1],
            first_read=first_read,
            paired=bool((flags & scan.PAIRED).all()),
            flags=flags,
            tags=self.tags[: self.tag_offsets[n_reads]],
            tag_offsets=self.tag_offsets[: n_reads + 1],
        )
