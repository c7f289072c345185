"""Read FASTQ files, FASTA files and lists of sequences in batches.

:class:`FastqReader` cuts the text of a batch off its files; :class:`TextBatch` parses it, in any
thread. :func:`open_sequences` finds out the format.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import count
from typing import NamedTuple

import numpy as np

from mapper.batch import MIN_COST, NO_OFFSETS, NO_TAGS, ReadBatch
from mapper.errors import InputFormatError, UsageError, option
from mapper.io import fastq_parser as parser
from mapper.io.batch_reader import (
    BatchReader,
    FastqText,
    RawBatch,
    bytes_ahead,
    parsed_batch,
)
from mapper.io.bgzf_reader import MAX_PLAIN, SharedInflating
from mapper.io.fastq_errors import (
    ALIGNMENT_STARTS,
    explain,
    foreign_format,
    mate_said,
    read_name,
    show,
)
from mapper.io.fastq_parser import fill_batch
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import STDIN, BrokenStreamError, ByteSource, go_to_all, same_file
from mapper.io.position import ReaderPosition
from mapper.io.record_ends import (
    FASTA,
    FASTQ,
    LIST,
    before_lines,
    not_line_ends,
    whole_records,
)
from mapper.parallel.buffers import RECYCLER

log = logging.getLogger(__name__)

DEFAULT_BATCH_BASES = 10_000_000
DEFAULT_CHUNK_BYTES = 4 << 20

_MOST_MEMBER = 2
"""Plain bytes of a gzip member for each base of a batch, at most, that several threads decompress:
a batch of FASTQ has as much text. With little memory batches are small, and members have to be."""

FORMATS = ("fastq", "fasta", "list")

_START_BYTES = 64  # that tell FASTQ and FASTA from other formats
_HEAD_BYTES = 4  # that tell FASTQ, FASTA and lists apart
_FIRST_BYTES = 512  # of text for each read of a small first batch
_FEW = 16  # one record of so many is few


# --- parsing a batch ---


class TextPart(NamedTuple):
    """The text of one file in a batch."""

    name: str
    kind: int  # FASTQ, FASTA or LIST
    text: np.ndarray  # uint8, begins with a record
    most_records: int
    """Upper bound of the records in the text."""
    broken: BrokenStreamError | None = None
    """Why the file cannot be read beyond the text, if so."""


class TextBatch(NamedTuple):
    """The text of a batch, from one file or from two files of mates."""

    parts: tuple[TextPart, ...]
    layout: int  # SINGLE, TWO_FILES or INTERLEAVED
    keep_comments: bool
    first_read: int  # reads that came before
    warnings: Iterator[int]
    """Counts the warnings of all batches of the files: only the first is given."""

    def parse(self) -> ReadBatch:
        """Return the reads.

        Raises
        ------
        InputFormatError
            For the first error in the text.
        """
        first, second = self.parts[0], self.parts[-1]
        columns = _make_columns(self.parts, self.keep_comments)
        status, mate, at1, at2, where, n_reads, other_name = fill_batch(
            self.layout,
            *(first.kind, first.text, first.broken is None),
            *(second.kind, second.text, second.broken is None),
            *(self.keep_comments, *columns),
        )
        ends = [at1] if len(self.parts) == 1 else [at1, at2]
        if error := self._error(status, mate, ends, where, self.first_read + n_reads):
            raise error
        if other_name >= 0 and next(self.warnings) == 0:
            self._warn_of_other_name(int(other_name))
        paired = self.layout != parser.SINGLE
        return columns.batch(n_reads, self.first_read, paired, self.keep_comments)

    def _error(
        self, status: int, mate: int, ends: Sequence[int], where: int, n_whole: int
    ) -> InputFormatError | None:
        """Return the error at which the parser stopped; None if it is the end of all texts.

        Parameters
        ----------
        ends
            Position in each text after the last whole read or pair.
        n_whole
            Reads of the whole input before the read or pair at which it stopped.
        """
        part, number = self._part_of_mate(mate, n_whole)
        if status == parser.MORE:
            assert part.broken is not None  # or else the text ends with a record
            return broken_stream(part.name, part.broken, number)
        if status in (parser.MATES_DIFFER, parser.MARKS_DIFFER):
            return self._no_pair(status, ends, n_whole)
        at_end = status == parser.DONE
        if status == parser.BLANK:
            at_end = not len(not_line_ends(part.text[where:]))
        if not at_end:
            start = self._record_start(mate, ends)
            return explain(status, part.name, number, part.text[start:].tobytes(), where - start)
        if self.layout == parser.INTERLEAVED and mate == 2:
            return InputFormatError(
                f"{part.name}: {n_whole + 1} reads, an odd number, in an interleaved file; the "
                "last has no mate (single-end reads, or a truncated file?)"
            )
        if self.layout == parser.TWO_FILES:
            # The first file has ended, or (mate 2) its last read has no mate.
            other = self.parts[2 - mate]
            if mate == 2 or len(not_line_ends(other.text[ends[1] :])):
                return unequal_files(part.name, other.name, n_whole // 2)
        return None

    def _part_of_mate(self, mate: int, n_whole: int) -> tuple[TextPart, int]:
        """Return the file's part that holds a mate, and the 1-based number of its record there."""
        if self.layout == parser.TWO_FILES:
            return self.parts[mate - 1], n_whole // 2 + 1
        return self.parts[0], n_whole + mate

    def _record_start(self, mate: int, ends: Sequence[int]) -> int:
        """Return the position of the first mate's record, or the second's, in its text."""
        if self.layout == parser.TWO_FILES or mate == 1:
            return ends[mate - 1]
        text = self.parts[0].text[ends[0] :]
        newlines = np.flatnonzero(text == ord("\n"))
        if self.parts[0].kind == FASTA:
            newlines = newlines[:-1] if newlines[-1] == len(text) - 1 else newlines
            return ends[0] + int(newlines[text[newlines + 1] == ord(">")][0]) + 1
        return ends[0] + int(newlines[3]) + 1

    def _no_pair(self, status: int, ends: Sequence[int], n_whole: int) -> InputFormatError:
        """Return the error of two records that are not the first and second read of one pair."""
        first, number = self._part_of_mate(1, n_whole)
        second, other_number = self._part_of_mate(2, n_whole)
        starts = ends[0], self._record_start(2, ends)
        records = [
            part.text[start:].tobytes() for part, start in zip((first, second), starts, strict=True)
        ]
        names = [read_name(record) for record in records]
        said = [mate_said(record) for record in records]
        if status == parser.MATES_DIFFER:
            swapped = names[0][:-1] == names[1][:-1] and names[0].endswith((b".2", b"_2"))
            swapped = swapped and names[1].endswith(b"1")
            what = "mates out of step"
        else:
            swapped = said == [2, 1]
            what = "mates in the wrong order" if swapped else "no first and second read of a pair"
            names = [b" ".join(record.split(b"\n", 1)[0][1:].split()[:2]) for record in records]
        one_file = self.layout == parser.INTERLEAVED
        if swapped and one_file:
            remedy = "put the first read (1) of each pair before the second (2)"
        elif swapped:
            remedy = f"give {second.name} first, which holds the first reads (1)"
        else:
            remedy = "give files that hold the mates of the same pairs in the same order"
            if status == parser.MATES_DIFFER and not one_file:
                remedy += ", or files of single reads as lanes"
            if status == parser.MARKS_DIFFER:
                remedy += ", the first reads (1) before the second ones (2)"
        return InputFormatError(
            f"{what}: record {number} of {first.name} is {show(names[0])}, record {other_number} "
            f"of {second.name} is {show(names[1])}; {remedy}"
        )

    def _warn_of_other_name(self, row: int) -> None:
        n_before = self.first_read + row
        if self.layout == parser.SINGLE:
            part, number = self.parts[0], n_before + 1
        else:
            part, number = self._part_of_mate(row % 2 + 1, n_before - row % 2)
        log.warning(
            "%s: record %d: the name behind '+' is not that behind '@'; look whether records are "
            "mixed up (the line is ignored, and further ones are not reported)", part.name, number,
        )  # fmt: skip


class _Columns(NamedTuple):
    """The columns of a batch, in the order in which ``fill_batch`` takes them."""

    bases: np.ndarray
    quals: np.ndarray
    base_offsets: np.ndarray
    names: np.ndarray
    name_offsets: np.ndarray
    tags: np.ndarray
    tag_offsets: np.ndarray

    def batch(self, n_reads: int, first_read: int, paired: bool, has_tags: bool) -> ReadBatch:
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
            tags=self.tags[: self.tag_offsets[n_reads]] if has_tags else NO_TAGS,
            tag_offsets=self.tag_offsets[: n_reads + 1] if has_tags else NO_OFFSETS,
        )


def _make_columns(parts: Sequence[TextPart], has_tags: bool) -> _Columns:
    """Allocate columns large enough for any content of the parts."""
    n_bytes = sum(len(part.text) for part in parts)
    n_rows = sum(part.most_records for part in parts)
    return _Columns(
        bases=RECYCLER.empty(n_bytes),
        quals=RECYCLER.empty(n_bytes),
        base_offsets=_offsets(n_rows + 3),
        names=RECYCLER.empty(n_bytes),
        name_offsets=_offsets(n_rows + 3),
        tags=RECYCLER.empty(2 * n_bytes + 8 if has_tags else 0),
        tag_offsets=_offsets(n_rows + 3),
    )


def _offsets(n: int) -> np.ndarray:
    """Return a column of offsets, with zero in the first two: the parser reads both."""
    offsets = np.empty(n, np.int64)
    offsets[:2] = 0
    return offsets


def broken_stream(name: str, broken: BrokenStreamError, number: int) -> InputFormatError:
    """Return the error of a file that breaks off at record `number` (1-based)."""
    return InputFormatError(f"{name}: {broken} (found after record {number - 1} or later)")


def unequal_files(ended: str, other: str, n_pairs: int) -> InputFormatError:
    """Return the error of two files of mates that differ in length."""
    return InputFormatError(
        f"{ended} ends after {n_pairs} reads, {other} goes on; give the two complete files of one "
        "run"
    )


# --- cutting batches ---


class _Window(NamedTuple):
    """The bytes of one file that are available for the next batch."""

    text: np.ndarray  # begins where a record does
    n_records: int  # whole records in it
    end: int  # the position after them
    is_rest: bool  # the file ends with it


class FastqReader(BatchReader):
    """Reader of one or two FASTQ or FASTA files, or of one list, in batches.

    FASTQ has four lines a record; FASTA (recognised by the ``>``) any number, and gives reads
    without qualities. LF or CRLF; plain or gzip. What follows ``+`` is ignored, with one warning
    if it is another name. Names end at the first white space and lose one trailing ``/1`` or
    ``/2``; mates must then have equal names, or names that differ only by ``.1``/``.2`` or
    ``_1``/``_2``, which are removed as well. ``/1``, ``/2`` and Casava's comments (``1:N:0:ACGT``)
    must not say that the mates are in the wrong order, or both first or second reads.

    Parameters
    ----------
    paths
        One file, or two files of mates; ``-`` is standard input. Files that are open
        already are closed by this reader.
    interleaved
        The file holds the two mates of each pair one after the other.
    batch_bases
        Size of a batch: the whole reads or pairs in ``2 * batch_bases`` bytes of text (half of
        that from each of two files; ``batch_bases`` bytes of FASTA), at least one, and at most
        one for each ``MIN_COST`` bases.
    chunk_bytes
        Bytes of text read at a time from each file, more where gzip members have more; no effect
        on the batches.
    keep_comments
        Take what follows the name as SAM tags (``TAG:TYPE:VALUE``, separated by tabs), except
        ``tags.DROPPED_TAGS``, which describe an alignment.
    executor
        Its threads read ahead.
    is_list
        The file holds a sequence in each line, which is also its name.
    n_threads
        Of `executor`; no effect on the batches.
    inflating
        Decompresses BGZF; None for the threads of `executor`.
    memory
        Returns memory (uint8) of a number of bytes, for the text.
    most_first
        Reads of the first batch at most; 0 for no other limit than that of all batches.

    Raises
    ------
    UsageError
        If there are not one or two files, or the same file is given twice.
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
        executor: Executor | None = None,
        is_list: bool = False,
        n_threads: int = 1,
        inflating: SharedInflating | None = None,
        memory: Callable[[int], np.ndarray] = RECYCLER.empty,
        most_first: int = 0,
    ) -> None:
        super().__init__()
        check_files([p if isinstance(p, str) else p.path for p in paths], interleaved)
        if len(paths) == 2:
            self._layout = parser.TWO_FILES
        else:
            self._layout = parser.INTERLEAVED if interleaved else parser.SINGLE
        self._batch_bases = batch_bases
        self._most_records = max(batch_bases // MIN_COST // len(paths), 1)
        self._most_first = max(most_first // len(paths), 1) if most_first else self._most_records
        self._unit = 2 if interleaved else 1  # records of a file that go together
        self._keep_comments = keep_comments
        self._kinds: list[int] = [LIST] if is_list else []
        self._finished = False
        self._warnings = count()
        self._files: list[InputBuffer] = []
        self._sources: list[ByteSource] = []
        self._firsts: list[int] = []  # plain bytes of each before its buffer begins
        try:
            for path in paths:
                source = ByteSource(path, executor) if isinstance(path, str) else path
                self._sources.append(source)
                source.count_lines()
                self._firsts.append(source.n_plain)
                if source.member_bytes > _MOST_MEMBER * batch_bases:
                    source.read_serially()
                step = max(chunk_bytes, source.member_bytes)
                ahead = bytes_ahead(n_threads, batch_bases, step)
                least_step = max(MAX_PLAIN, source.member_bytes)
                self._files.append(
                    InputBuffer(source, step, executor, ahead, inflating, memory, least_step)
                )
        except InputFormatError:
            self.close()
            raise

    @property
    def paired(self) -> bool:
        return self._layout != parser.SINGLE

    def position(self) -> ReaderPosition:
        """Return the position after the last batch."""
        files = tuple(
            source.position(first + file.n_taken)
            for source, first, file in zip(self._sources, self._firsts, self._files, strict=True)
        )
        return ReaderPosition(self.n_reads, files, tuple(self._kinds))

    def go_to(self, position: ReaderPosition) -> None:
        """Move to a position in the same files; to be called before any batch is read."""
        go_to_all(self._sources, position.files)
        self._firsts = [source.n_plain for source in self._sources]
        self.n_reads, self._kinds = position.n_reads, list(position.kinds)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _cut(self) -> RawBatch | None:
        if self._finished:
            return None
        if not self._kinds:
            self._kinds = [_kind_of(file) for file in self._files]
        windows = [
            self._window(file, kind) for file, kind in zip(self._files, self._kinds, strict=True)
        ]
        if all(window.is_rest for window in windows):
            return self._last_batch(windows, [len(window.text) for window in windows])
        n_records = min(window.n_records for window in windows if not window.is_rest)
        ends = [
            _end_of(window, kind, n_records)
            for window, kind in zip(windows, self._kinds, strict=True)
        ]
        if any(window.n_records < n_records for window in windows):
            # One file ends before the other, or a record is malformed: an error either way.
            return self._last_batch(windows, ends)
        if any(
            kind == FASTQ and _ends_with_blank_lines(window.text, end)
            for window, kind, end in zip(windows, self._kinds, ends, strict=True)
        ):
            return self._last_batch(windows, ends)
        batch = self._take(ends, [n_records] * len(windows))
        n_reads = n_records * len(windows)
        for_device = None
        if all(kind == FASTQ for kind in self._kinds) and not self._keep_comments:
            texts = tuple(part.text for part in batch.parts)
            for_device = FastqText(texts, n_records, self.paired)
        return RawBatch(n_reads, n_reads // 2 if self.paired else 0, batch.parse, for_device)

    def _window(self, file: InputBuffer, kind: int) -> _Window:
        """Return the text available for a batch: at least one read or pair, or the file's rest."""
        size = self._batch_bases if kind == FASTA else 2 * self._batch_bases
        size = max(size // len(self._files), 1)
        most = self._most_records
        if self.n_reads == 0 and self._most_first < most:
            most = self._most_first
            size = min(size, most * _FIRST_BYTES)  # the rest need not be there for it
        most = max(most // self._unit, 1) * self._unit
        while True:
            text, all_left = file.unread(size + 1)
            is_rest = all_left and len(text) <= size
            text = text[:size]
            n_lines = file.line_ends(text) if kind == FASTQ else -1
            n_records, end = whole_records(kind, text, is_rest, most, n_lines)
            if is_rest:
                return _Window(text, n_records, end, end == len(text) or n_records < most)
            if n_records >= self._unit:
                window = _Window(text, n_records, end, False)
                n_records -= n_records % self._unit
                return _Window(text, n_records, _end_of(window, kind, n_records), False)
            size = file.larger(size, self.n_reads // len(self._files) + 1)
            most = self._unit

    def _take(
        self, ends: Sequence[int], most: Sequence[int], are_rest: Sequence[bool] = (False, False)
    ) -> TextBatch:
        """Take the text of each file up to its position in `ends` off the buffers."""
        parts = tuple(
            TextPart(file.name, kind, file.take(end), n, file.broken if is_rest else None)
            for file, kind, end, n, is_rest in zip(
                self._files, self._kinds, ends, most, are_rest, strict=False
            )
        )
        return TextBatch(parts, self._layout, self._keep_comments, self.n_reads, self._warnings)

    def _last_batch(self, windows: Sequence[_Window], ends: Sequence[int]) -> RawBatch | None:
        """Parse the last batch; raise if the files do not end there, as they do if well formed."""
        self._finished = True
        text = self._take(
            [len(w.text) if w.is_rest else end for w, end in zip(windows, ends, strict=True)],
            [w.n_records + 1 for w in windows],
            [w.is_rest for w in windows],
        )
        batch = text.parse()
        n_before = (text.first_read + batch.n_reads) // len(self._files)
        for i, file in enumerate(self._files):
            if not file.only_blank_lines_left():
                if len(self._files) == 2:
                    raise unequal_files(self._files[1 - i].name, file.name, n_before)
                raise explain(parser.BLANK, file.name, n_before + 1, b"", 0)
            if file.broken is not None:
                raise broken_stream(file.name, file.broken, n_before + 1)
        for source in self._sources:
            _warn_of_missing_end(source)
        return parsed_batch(batch) if batch.n_reads else None


def _end_of(window: _Window, kind: int, n_records: int) -> int:
    """Return the position after `n_records` records of a window, or after all if it has fewer."""
    n_after = window.n_records - n_records
    if n_after <= 0:
        return window.end
    # With mates of similar length the end is near; otherwise counting forwards is faster.
    if kind == FASTQ and not window.is_rest and n_after < n_records // _FEW:
        return int(before_lines(window.text, window.end, 4 * n_after))
    return int(whole_records(kind, window.text, window.is_rest, n_records, -1)[1])


def _kind_of(file: InputBuffer) -> int:
    """Return FASTQ or FASTA by the first bytes of a file; raise for other formats."""
    start = file.unread(_START_BYTES)[0][:_START_BYTES].tobytes()
    if error := foreign_format(file.name, start):
        raise error
    return FASTA if start.lstrip(b"\r\n").startswith(b">") else FASTQ


def _warn_of_missing_end(source: ByteSource) -> None:
    """Warn of a BGZF file without end-of-file block.

    It is no error, as it is for BAM: software of sequencers writes FASTQ as BGZF without the block.
    """
    if source.is_bgzf and not source.ends_with_eof_block:
        log.warning(
            "%s: ends without the empty block that ends BGZF; if the file was copied or its writer "
            "stopped, look whether it is whole", source.name,
        )  # fmt: skip


def _ends_with_blank_lines(text: np.ndarray, end: int) -> bool:
    """Return True if the first of the last four lines before `end` is blank."""
    return text[before_lines(text, end, 4)] in b"\r\n"


def check_files(paths: Sequence[str], interleaved: bool) -> None:
    """Raise UsageError unless there are one or two files, different ones and not interleaved."""
    if len(paths) not in (1, 2):
        raise UsageError(f"{len(paths)} read files; give one, or two files of mates")
    if len(paths) == 2 and interleaved:
        raise UsageError(
            f"two read files cannot be interleaved; give one, or leave out {option('interleaved')}"
        )
    if len(paths) == 2 and same_file(*paths):
        raise UsageError(f"{paths[0]} given twice; give the two files of mates")


# --- formats ---


def open_sequences(path: str, batch_bases: int, file_format: str | None = None) -> FastqReader:
    """Open a file of sequences.

    Parameters
    ----------
    path
        File name, or ``-`` for standard input, which is FASTQ by default.
    batch_bases
        See :class:`FastqReader`.
    file_format
        One of FORMATS; None to decide by the first character: ``@`` FASTQ, ``>`` FASTA,
        otherwise a list.

    Raises
    ------
    InputFormatError
        If the file cannot be opened.
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
    if not head or head.startswith(ALIGNMENT_STARTS):
        return "fastq"  # whose reader names the format in its error, and finds no reads in no text
    return {b"@": "fastq", b">": "fasta"}.get(head[:1], "list")
