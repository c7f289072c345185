"""BAM, CRAM and SAM files to batches of reads."""

from __future__ import annotations

import re
import struct
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import ReadBatch
from mapper.errors import InputFormatError
from mapper.io import bam_reader as scan
from mapper.io.bam_errors import explain
from mapper.io.batch_reader import BatchReader, RawBatch, bytes_ahead, giving
from mapper.io.converted import ConvertedSource
from mapper.io.fastq_parser import MIN_COST
from mapper.io.header import header_field
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import BrokenStreamError, ByteSource
from mapper.parallel.buffers import RECYCLER

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


class BamReader(BatchReader):
    """Reads of one BAM, CRAM or SAM file in batches.

    Mates must be next to each other (unaligned files, name-grouped ones); secondary and
    supplementary records between them are skipped. Pairs and single reads may be mixed.
    See :mod:`mapper.io.bam_reader` for what is kept of a record.

    Parameters
    ----------
    source
        The file, of the format that :func:`alignment_format` found.
    fmt
        That format.
    batch_bases
        A batch takes as many whole reads or pairs as there are in ``2 * batch_bases`` bytes of
        uncompressed BAM, but one at least, and no more than one for each
        ``fastq_scan.MIN_COST`` bases (a pair may exceed that by one).
    chunk_bytes
        Bytes read at a time; no effect on the batches.
    reference, threads
        See :class:`ConvertedSource`.
    executor
        Its threads read ahead.
    n_threads
        Of `executor`; no effect on the batches.

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
        executor: Executor | None = None,
        n_threads: int = 1,
    ) -> None:
        super().__init__()
        self.name = source.name
        self._source: Any = source
        if fmt != "bam":
            self._source = ConvertedSource(source, reference, threads)
        self.limit_batches(batch_bases)
        self._chunk_bytes = chunk_bytes
        self._executor, self._n_threads = executor, n_threads
        self._file: InputBuffer | None = None
        self._n_records = 0
        self._finished = False
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
        group_offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum([len(text) for text in ids], out=group_offsets[1:])
        self._groups = np.frombuffer(bytearray(b"".join(ids)), np.uint8), group_offsets

    @property
    def read_groups(self) -> list[str]:
        """The header's @RG lines."""
        return [line for line in self.header if line.startswith("@RG\t")]

    def limit_batches(self, batch_bases: int) -> None:
        """Set the size of the batches that are still to come."""
        self._window_bytes = 2 * batch_bases
        self._most_reads = max(batch_bases // MIN_COST, 1)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        else:
            self._source.stop()
            self._source.close()

    def _cut(self) -> RawBatch | None:
        if self._finished:
            return None
        if self._file is None:
            chunk = self._chunk_bytes
            ahead = bytes_ahead(self._n_threads, self._window_bytes // 2, chunk)
            self._file = InputBuffer(self._source, chunk, self._executor, ahead)
        size, most = self._window_bytes, self._most_reads
        while True:
            data, all_left = self._file.unread(size + 1)
            is_rest = all_left and len(data) <= size
            data = data[:size]
            n_reads, n_pairs, n_records, end, status = scan.whole_reads(
                data, is_rest and self._file.broken is None, most
            )
            if status not in (scan.OK, scan.MORE) or (is_rest and status == scan.MORE):
                return self._last_batch(len(data), n_reads, is_rest)
            if n_reads:
                break
            size, most = self._file.larger(size, self._n_records + 1), 1
        part = self._part(end, n_reads, True)
        self._n_records += n_records
        return RawBatch(n_reads, n_pairs, part.parse)

    def _part(self, n_bytes: int, n_reads: int, ended: bool) -> _BamPart:
        assert self._file is not None
        data = self._file.take(n_bytes)
        return _BamPart(
            self.name, data, ended, n_reads, self.n_reads, self._n_records, self.header,
            self._groups, self._file.broken,
        )  # fmt: skip

    def _last_batch(self, n_bytes: int, n_reads: int, is_rest: bool) -> RawBatch | None:
        """Parse what must be the last batch, if the input is in order; raise if it is not."""
        self._finished = True
        assert self._file is not None
        ended = is_rest and self._file.broken is None
        part = self._part(n_bytes, n_reads + 2, ended)
        batch = part.parse()
        self._check_end(self._n_records + part.count_records())
        return giving(batch) if batch.n_reads else None

    def _check_end(self, n_records: int) -> None:
        """Raise if the file, of so many records, lacks its last block."""
        if self._source.is_bgzf and not self._source.ends_with_eof_block:
            raise InputFormatError(
                f"{self.name}: no end-of-file block after record {n_records}: the file is "
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


class _BamPart(NamedTuple):
    """The bytes of one batch."""

    name: str
    data: np.ndarray  # uint8, begins with a record
    ended: bool  # records, or the file, end where `data` does
    most_reads: int
    first_read: int  # reads that came before
    first_record: int  # records that came before, skipped ones included
    header: list[str]
    groups: tuple[np.ndarray, np.ndarray]  # IDs of the read groups, flat, and their offsets
    broken: BrokenStreamError | None

    def parse(self) -> ReadBatch:
        """Return the reads.

        Raises
        ------
        InputFormatError
            For the first thing that is wrong with the records.
        """
        n_bytes, n_rows = len(self.data), self.most_reads + 1
        bases, quals, names, tags = (RECYCLER.empty(n_bytes) for _ in range(4))
        base_offsets, name_offsets, tag_offsets = offsets = np.empty((3, n_rows), np.int64)
        offsets[:, 0] = 0
        flags = np.empty(n_rows, np.uint16)
        status, where, n_passed, n = scan.fill_batch(
            self.data, self.ended, *self.groups, bases, quals, base_offsets, names, name_offsets,
            flags, tags, tag_offsets,
        )  # fmt: skip
        if status == scan.MORE:
            raise InputFormatError(
                f"{self.name}: {self.broken} (found after record {self.first_record + n_passed} or "
                "later)"
            )
        if status != scan.DONE:
            number = self.first_record + n_passed + 1
            record = self.data[where:].tobytes()
            raise explain(status, self.name, number, record, self.header)
        return ReadBatch(
            bases=bases[: base_offsets[n]],
            quals=quals[: base_offsets[n]],
            base_offsets=base_offsets[: n + 1],
            names=names[: name_offsets[n]],
            name_offsets=name_offsets[: n + 1],
            first_read=self.first_read,
            paired=bool((flags[:n] & scan.PAIRED).all()),
            flags=flags[:n],
            tags=tags[: tag_offsets[n]],
            tag_offsets=tag_offsets[: n + 1],
        )

    def count_records(self) -> int:
        """Return how many records there are, skipped ones included; all must be whole."""
        n = at = 0
        while at < len(self.data):
            at += 4 + int.from_bytes(self.data[at : at + 4].tobytes(), "little")
            n += 1
        return n
