"""FASTQ files, FASTA files and lists of sequences to batches of reads."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from mapper.errors import InputFormatError, UsageError
from mapper.io import fastq_parser as scan
from mapper.io.batch_reader import BatchReader, RawBatch, bytes_ahead, giving
from mapper.io.fastq_errors import explain, foreign_format
from mapper.io.fastq_parse import TextBatch, TextPart, broken_stream, unequal_files
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import ByteSource, same_file
from mapper.io.record_ends import FASTA, FASTQ, LIST, before_lines, whole_records

log = logging.getLogger(__name__)

_START_BYTES = 64
_FEW = 16  # of so many records, one is few
DEFAULT_BATCH_BASES = 10_000_000
DEFAULT_CHUNK_BYTES = 4 << 20


class _Window(NamedTuple):
    """The bytes of one file that may go into the next batch."""

    text: np.ndarray  # begins where a record does
    n_records: int  # whole ones in it
    end: int  # the position after them
    is_rest: bool  # the file ends with it


class FastqReader(BatchReader):
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
        A batch takes as many whole reads or pairs as there are in ``2 * batch_bases`` bytes
        of text (half of that of each of two files; in ``batch_bases`` bytes of FASTA), but
        one at least, and no more than one for each ``fastq_scan.MIN_COST`` bases.
    chunk_bytes
        Bytes of text read at a time from each file; no effect on the batches.
    keep_comments
        Take what follows the name as SAM tags (``TAG:TYPE:VALUE``, separated by tabs). Those
        that describe an alignment (``bam_scan.DROPPED_TAGS``) are left out.
    executor
        Its threads read ahead.
    is_list
        The one file holds a sequence in each line, which is its own name.
    n_threads
        Of `executor`; no effect on the batches.

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
        executor: Executor | None = None,
        is_list: bool = False,
        n_threads: int = 1,
    ) -> None:
        super().__init__()
        check_files([p if isinstance(p, str) else p.path for p in paths], interleaved)
        if len(paths) == 2:
            self._layout = scan.TWO_FILES
        else:
            self._layout = scan.INTERLEAVED if interleaved else scan.SINGLE
        self._batch_bases = batch_bases
        self._most_records = max(batch_bases // scan.MIN_COST // len(paths), 1)
        self._unit = 2 if interleaved else 1  # records of a file that go together
        self._keep_comments = keep_comments
        self._kinds: list[int] = [LIST] if is_list else []
        self._finished = False
        self._files: list[InputBuffer] = []
        self._sources: list[ByteSource] = []
        ahead = bytes_ahead(n_threads, batch_bases, chunk_bytes)
        try:
            for path in paths:
                source = ByteSource(path, executor) if isinstance(path, str) else path
                self._sources.append(source)
                source.count_lines()
                self._files.append(InputBuffer(source, chunk_bytes, executor, ahead))
        except InputFormatError:
            self.close()
            raise

    @property
    def paired(self) -> bool:
        return self._layout != scan.SINGLE

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
            # That file ends before its mates do, which is an error, or some record is broken.
            return self._last_batch(windows, ends)
        if any(
            kind == FASTQ and _ends_with_blank_lines(window.text, end)
            for window, kind, end in zip(windows, self._kinds, ends, strict=True)
        ):
            return self._last_batch(windows, ends)
        batch = self._take(ends, [n_records] * len(windows))
        n_reads = n_records * len(windows)
        return RawBatch(n_reads, n_reads // 2 if self.paired else 0, batch.parse)

    def _window(self, file: InputBuffer, kind: int) -> _Window:
        """Return what may go into a batch: one unit at least, unless the file ends before."""
        size = self._batch_bases if kind == FASTA else 2 * self._batch_bases
        size = max(size // len(self._files), 1)
        most = max(self._most_records // self._unit, 1) * self._unit
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
        """Take the text of each file up to its position in `ends`."""
        parts = tuple(
            TextPart(file.name, kind, file.take(end), n, file.broken if is_rest else None)
            for file, kind, end, n, is_rest in zip(
                self._files, self._kinds, ends, most, are_rest, strict=False
            )
        )
        return TextBatch(parts, self._layout, self._keep_comments, self.n_reads)

    def _last_batch(self, windows: Sequence[_Window], ends: Sequence[int]) -> RawBatch | None:
        """Parse what must be the last batch, if the input is in order; raise if it is not."""
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
                raise explain(scan.BLANK, file.name, n_before + 1, b"", 0)
            if file.broken is not None:
                raise broken_stream(file.name, file.broken, n_before + 1)
        for source in self._sources:
            _warn_of_missing_end(source)
        return giving(batch) if batch.n_reads else None


def _end_of(window: _Window, kind: int, n_records: int) -> int:
    """Return the position after `n_records` records of a window, or after all if it has fewer."""
    n_behind = window.n_records - n_records
    if n_behind <= 0:
        return window.end
    # Mates of about one length: the end is near. Else lines are counted faster forwards.
    if kind == FASTQ and not window.is_rest and n_behind < n_records // _FEW:
        return int(before_lines(window.text, window.end, 4 * n_behind))
    return int(whole_records(kind, window.text, window.is_rest, n_records, -1)[1])


def _kind_of(file: InputBuffer) -> int:
    """Return FASTQ or FASTA, by the first bytes of a file; raise for anything else."""
    start = file.unread(_START_BYTES)[0][:_START_BYTES].tobytes()
    if error := foreign_format(file.name, start):
        raise error
    return FASTA if start.lstrip(b"\r\n").startswith(b">") else FASTQ


def _warn_of_missing_end(source: ByteSource) -> None:
    """Say that a file has been read to its end, which is not marked as one.

    No error, as for BAM: software of sequencers writes FASTQ as BGZF without a last, empty block.
    """
    if source.is_bgzf and not source.ends_with_eof_block:
        log.warning(
            "%s: ends without the empty block that ends BGZF; if the file was copied or its writer "
            "stopped, look whether it is whole", source.name,
        )  # fmt: skip


def _ends_with_blank_lines(text: np.ndarray, end: int) -> bool:
    """Say whether the last four lines before `end` begin with a blank one."""
    return text[before_lines(text, end, 4)] in b"\r\n"


def check_files(paths: Sequence[str], interleaved: bool) -> None:
    """Raise UsageError for a number of files, or the same twice, that cannot be meant."""
    if len(paths) not in (1, 2):
        raise UsageError(f"{len(paths)} read files; give one, or two files of mates")
    if len(paths) == 2 and interleaved:
        raise UsageError("two read files cannot be interleaved; give one, or drop the option")
    if len(paths) == 2 and same_file(*paths):
        raise UsageError(f"{paths[0]} given twice; give the two files of mates")
