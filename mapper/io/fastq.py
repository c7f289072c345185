"""FASTQ files to batches of reads."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import numpy as np

from mapper.batch import NO_OFFSETS, NO_TAGS, ReadBatch
from mapper.errors import InputFormatError, UsageError
from mapper.io import fastq_scan as scan
from mapper.io.buffer import InputBuffer
from mapper.io.fastq_errors import explain, foreign_format, read_name, show
from mapper.io.fastq_fill import fill_batch
from mapper.io.source import ByteSource, same_file

_START_BYTES = 64
DEFAULT_BATCH_BASES = 10_000_000
DEFAULT_CHUNK_BYTES = 4 << 20


class _Columns:
    """Growing columns of the batch that is being filled (see ``fill_batch``)."""

    def __init__(self, limit: int, has_tags: bool) -> None:
        n_rows = limit // scan.MIN_COST + 4
        self.bases = np.empty(0, np.uint8)
        self.quals = np.empty(0, np.uint8)
        self.base_offsets = np.zeros(n_rows, np.int64)
        self.names = np.empty(limit + 2 * (scan.MAX_NAME + 2), np.uint8)
        self.name_offsets = np.zeros(n_rows, np.int64)
        self._has_tags = has_tags
        self.tags = np.empty(0, np.uint8)
        self.tag_offsets = np.zeros(n_rows, np.int64)

    def reserve(self, limit: int, buffered: int, n_reads: int) -> None:
        """Make room for `limit` and what is buffered, keeping the first `n_reads` rows."""
        if len(self.bases) >= limit + buffered:
            return
        for column, offsets, capacity in (
            ("bases", self.base_offsets, limit + buffered),
            ("quals", self.base_offsets, limit + buffered),
            ("tags", self.tag_offsets, limit + 2 * buffered if self._has_tags else 0),
        ):
            used = int(offsets[n_reads])
            grown = np.empty(capacity, np.uint8)
            grown[:used] = getattr(self, column)[:used]
            setattr(self, column, grown)

    def batch(self, n_reads: int, first_read: int, paired: bool) -> ReadBatch:
        """Return the first `n_reads` rows."""
        n_bases, n_names = self.base_offsets[n_reads], self.name_offsets[n_reads]
        return ReadBatch(
            self.bases[:n_bases],
            self.quals[:n_bases],
            self.base_offsets[: n_reads + 1],
            self.names[:n_names],
            self.name_offsets[: n_reads + 1],
            first_read,
            paired,
            tags=self.tags[: self.tag_offsets[n_reads]] if self._has_tags else NO_TAGS,
            tag_offsets=self.tag_offsets[: n_reads + 1] if self._has_tags else NO_OFFSETS,
        )


class FastqReader:
    """Reads of one or two FASTQ or FASTA files in batches.

    FASTQ has four lines a record; FASTA (recognised by the ``>``) any number, and gives reads
    without qualities. LF or CRLF; plain or gzip. What follows ``+`` is ignored. Names
    end at the first white space and lose one trailing ``/1`` or ``/2``; mates must then
    have equal names, or names that differ only by ``.1``/``.2`` or ``_1``/``_2``, which
    is removed as well.

    Parameters
    ----------
    paths
        One file, or two files of mates; ``-`` is standard input. Files that are open
        already are closed by this reader.
    interleaved
        The one file holds mates alternately.
    batch_bases
        A batch ends with the first read (pair) that brings it to so many bases. A read
        counts as no less than its name's length and ``fastq_scan.MIN_COST``.
    chunk_bytes
        Bytes of text read at a time from each file; no effect on the batches.
    keep_comments
        Take what follows the name as SAM tags (``TAG:TYPE:VALUE``, separated by tabs). Those
        that describe an alignment (``bam_scan.DROPPED_TAGS``) are left out.

    Raises
    ------
    UsageError
        For a number of files, or the same file twice, that cannot be meant.
    InputFormatError
        If a file cannot be opened.
    """

    def __init__(
        self,
        paths: Sequence[str | ByteSource],
        interleaved: bool = False,
        batch_bases: int = DEFAULT_BATCH_BASES,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        keep_comments: bool = False,
    ) -> None:
        check_files([p if isinstance(p, str) else p.path for p in paths], interleaved)
        if len(paths) == 2:
            self._layout = scan.TWO_FILES
        else:
            self._layout = scan.INTERLEAVED if interleaved else scan.SINGLE
        self._limit = batch_bases
        self._keep_comments = keep_comments
        self._is_fasta = [False] * len(paths)
        self._n_reads = 0
        self._finished = False
        self._error: InputFormatError | None = None
        self._files: list[InputBuffer] = []
        try:
            for path in paths:
                source = ByteSource(path) if isinstance(path, str) else path
                self._files.append(InputBuffer(source, chunk_bytes))
        except InputFormatError:
            self.close()
            raise

    @property
    def paired(self) -> bool:
        return self._layout != scan.SINGLE

    @property
    def n_reads(self) -> int:
        """Reads handed out so far."""
        return self._n_reads

    def next_batch(self) -> ReadBatch | None:
        """Return the next reads, or None after the last.

        To be called by one thread at a time, whichever; the GIL is released for most of
        the work.

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
        """Close the files."""
        for file in self._files:
            file.close()

    def __enter__(self) -> FastqReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read_batch(self) -> ReadBatch | None:
        columns = _Columns(self._limit, self._keep_comments)
        first, second = self._files[0], self._files[-1]
        n_reads = cost = 0
        status = scan.MORE
        while status != scan.FULL and not self._finished:
            columns.reserve(self._limit, len(first.data) + len(second.data), n_reads)
            status, mate, first.at, at2, where, n_reads, cost = fill_batch(
                self._layout,
                *(self._is_fasta[0], first.data, first.at, first.end, first.ended),
                *(self._is_fasta[-1], second.data, second.at, second.end, second.ended),
                *(self._limit, cost, n_reads, self._keep_comments),
                *(columns.bases, columns.quals, columns.base_offsets),
                *(columns.names, columns.name_offsets, columns.tags, columns.tag_offsets),
            )
            if self._layout == scan.TWO_FILES:
                second.at = at2
            if status != scan.FULL:
                self._go_on(status, mate, where, self._n_reads + n_reads)
        if n_reads == 0:
            return None
        batch = columns.batch(n_reads, self._n_reads, self.paired)
        self._n_reads += n_reads
        return batch

    def _go_on(self, status: int, mate: int, where: int, n_whole: int) -> None:
        """Do what the scan's `status` asks for: read on, finish, or raise.

        `n_whole` is the number of reads before the read or pair at which it stopped.
        """
        file, number = self._place(mate, n_whole)
        if status == scan.MORE:
            at_start = number == 1 and file.end == 0
            file.refill(number)
            if at_start:
                head = file.data[: min(file.end, _START_BYTES)].tobytes()
                self._is_fasta[self._files.index(file)] = head.startswith(b">")
                if error := foreign_format(file.name, head):
                    raise error
        elif status == scan.DONE:
            self._finish(mate, n_whole)
        elif status == scan.BLANK:
            file.at = where
            if not file.only_blank_lines_left(number):
                raise explain(status, file.name, number, b"", 0)
            self._finish(mate, n_whole)
        elif status == scan.MATES_DIFFER:
            raise self._mates_differ(n_whole)
        else:
            start = self._record_start(mate)
            record = file.data[start : file.end].tobytes()
            raise explain(status, file.name, number, record, where - start)

    def _place(self, mate: int, n_whole: int) -> tuple[InputBuffer, int]:
        """Return the file of a mate, and the 1-based number of its record there."""
        if self._layout == scan.TWO_FILES:
            return self._files[mate - 1], n_whole // 2 + 1
        return self._files[0], n_whole + mate

    def _record_start(self, mate: int) -> int:
        """Return the position of the first mate's record, or the second's, in its buffer."""
        if self._layout == scan.TWO_FILES or mate == 1:
            return self._files[mate - 1].at
        file = self._files[0]
        text = file.data[file.at : file.end]
        newlines = np.flatnonzero(text == ord("\n"))
        if self._is_fasta[0]:
            newlines = newlines[:-1] if newlines[-1] == len(text) - 1 else newlines
            return file.at + int(newlines[text[newlines + 1] == ord(">")][0]) + 1
        return file.at + int(newlines[3]) + 1

    def _finish(self, mate: int, n_whole: int) -> None:
        """End the input, as the file of `mate` has ended, unless a mate is missing."""
        self._finished = True
        if self._layout == scan.INTERLEAVED and mate == 2:
            raise InputFormatError(
                f"{self._files[0].name}: {n_whole + 1} reads, an odd number, in an interleaved "
                "file; the last has no mate (single-end reads, or a truncated file?)"
            )
        if self._layout == scan.TWO_FILES:
            ended, other = self._files[mate - 1], self._files[2 - mate]
            n_pairs = n_whole // 2
            if mate == 2 or not other.only_blank_lines_left(n_pairs + 1):
                raise InputFormatError(
                    f"{ended.name} ends after {n_pairs} reads, {other.name} goes on; give the two "
                    "complete files of one run"
                )

    def _mates_differ(self, n_whole: int) -> InputFormatError:
        first, number = self._place(1, n_whole)
        second, other_number = self._place(2, n_whole)
        names = [
            show(read_name(file.data[start : file.end].tobytes()))
            for file, start in ((first, first.at), (second, self._record_start(2)))
        ]
        return InputFormatError(
            f"mates out of step: record {number} of {first.name} is {names[0]}, record "
            f"{other_number} of {second.name} is {names[1]}; give files that hold the mates of the "
            "same pairs in the same order"
        )


def check_files(paths: Sequence[str], interleaved: bool) -> None:
    """Raise UsageError for a number of files, or the same twice, that cannot be meant."""
    if len(paths) not in (1, 2):
        raise UsageError(f"{len(paths)} read files; give one, or two files of mates")
    if len(paths) == 2 and interleaved:
        raise UsageError("two read files cannot be interleaved; give one, or drop the option")
    if len(paths) == 2 and same_file(*paths):
        raise UsageError(f"{paths[0]} given twice; give the two files of mates")
