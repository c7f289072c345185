"""FASTA files, and lists with one sequence a line, to batches of reads."""

from __future__ import annotations

import numpy as np

from mapper.accelerate import driver
from mapper.batch import NO_QUALITY, ReadBatch
from mapper.dna import CODE_OF_ASCII, NOT_A_BASE
from mapper.errors import InputFormatError
from mapper.io.buffer import MAX_RECORD_BYTES
from mapper.io.fastq import DEFAULT_CHUNK_BYTES
from mapper.io.fastq_errors import show
from mapper.io.read_ahead import ReadAhead
from mapper.io.source import BrokenStreamError, ByteSource

_DONE, _MORE, _FULL, _BAD_BASE, _NO_NAME, _NO_HEADER = range(6)
_LF, _CR, _SPACE, _GREATER = 10, 13, 32, ord(">")


@driver
def _scan(text, end, ended, fasta, limit, bases, base_offsets, names, name_offsets):
    """Take whole records from the start of ``text[:end]`` until `limit` bases are reached.

    Returns
    -------
    status, n_reads, at
        Why it stopped, how many records were taken, and where to go on or the trouble is.
    """
    n_reads = n_bases = n_names = at = 0
    while n_bases + n_names < limit and n_reads + 1 < len(base_offsets):
        while at < end and (text[at] == _LF or text[at] == _CR):
            at += 1
        if at == end:
            return (_DONE if ended else _MORE), n_reads, at
        here = at
        name_at = n_names
        if fasta:
            if text[at] != _GREATER:
                return _NO_HEADER, n_reads, at
            at += 1
            while at < end and text[at] > _SPACE:
                names[n_names] = text[at]
                n_names += 1
                at += 1
            named = n_names > name_at
            while at < end and text[at] != _LF:
                at += 1
            if at == end and not ended:
                return _MORE, n_reads, here
            if not named:
                return _NO_NAME, n_reads, here
        base_at = n_bases
        line_start = True
        while at < end:
            letter = text[at]
            if letter == _LF:
                line_start = True
                at += 1
                if not fasta:
                    break
                continue
            if letter == _GREATER and line_start and fasta:
                break
            line_start = False
            if letter != _CR:
                code = CODE_OF_ASCII[letter]
                if code == NOT_A_BASE:
                    return _BAD_BASE, n_reads, at
                bases[n_bases] = code
                n_bases += 1
                if not fasta:
                    names[n_names] = letter
                    n_names += 1
            at += 1
        # The last line of a list, and the last record of a FASTA, end where the file does.
        complete = at < end or ended or (not fasta and text[at - 1] == _LF)
        if not complete:
            n_bases = base_at
            n_names = name_at
            return _MORE, n_reads, here
        n_reads += 1
        base_offsets[n_reads] = n_bases
        name_offsets[n_reads] = n_names
    return _FULL, n_reads, at


class LineReader:
    """Reads of a FASTA file, or of a list: one sequence a line, which is its own name.

    LF or CRLF; plain or gzip; empty lines are skipped. Names of a FASTA end at the first
    white space, and sequences may go on over lines.

    Parameters
    ----------
    path
        File name, or ``-`` for standard input.
    fasta
        FASTA, else a list.
    batch_bases
        A batch ends with the record that brings it to so many bases.

    Raises
    ------
    InputFormatError
        If the file cannot be opened.
    """

    def __init__(
        self, path: str, *, fasta: bool, batch_bases: int, chunk_bytes: int = DEFAULT_CHUNK_BYTES
    ) -> None:
        self._source = ReadAhead(ByteSource(path), chunk_bytes)
        self.name = self._source.name
        self._fasta = fasta
        self._limit = batch_bases
        self._text = np.empty(chunk_bytes, np.uint8)
        self._end = 0
        self._ended = False
        self._finished = False
        self._broken: BrokenStreamError | None = None
        self.n_reads = 0

    def next_batch(self) -> ReadBatch | None:
        """Return the next reads, or None after the last.

        Raises
        ------
        InputFormatError
            For anything wrong with the input.
        """
        while not self._finished:
            n = self._end
            n_rows = min(n, self._limit) + 2
            columns = (
                np.empty(n, np.uint8), np.zeros(n_rows, np.int64), np.empty(n, np.uint8),
                np.zeros(n_rows, np.int64),
            )  # fmt: skip
            status, n_reads, at = _scan(
                self._text, n, self._ended, self._fasta, self._limit, *columns
            )
            if status not in (_DONE, _MORE, _FULL):
                raise self._error(status, self.n_reads + n_reads + 1, at)
            self._text[: n - at] = self._text[at:n].copy()
            self._end = n - at
            self._finished = status == _DONE
            if n_reads:
                return self._batch(n_reads, *columns)
            if status == _MORE:
                self._refill()
        return None

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def _batch(
        self, n_reads: int, bases: np.ndarray, base_offsets: np.ndarray, names: np.ndarray,
        name_offsets: np.ndarray,
    ) -> ReadBatch:  # fmt: skip
        first = self.n_reads
        self.n_reads += n_reads
        n_bases = base_offsets[n_reads]
        return ReadBatch(
            bases[:n_bases], np.full(n_bases, NO_QUALITY, np.uint8), base_offsets[: n_reads + 1],
            names[: name_offsets[n_reads]], name_offsets[: n_reads + 1], first, False,
        )  # fmt: skip

    def _refill(self) -> None:
        """Read on, to the brim; make room first if a record fills all there is."""
        if self._broken is not None:
            raise InputFormatError(
                f"{self.name}: {self._broken} (found after record {self.n_reads} or later)"
            ) from self._broken
        if self._end == len(self._text):
            if self._end >= MAX_RECORD_BYTES:
                raise InputFormatError(
                    f"{self.name}: record {self.n_reads + 1}: no end of the record within "
                    f"{MAX_RECORD_BYTES} bytes; split it"
                )
            self._text = np.concatenate([self._text, np.empty_like(self._text)])
        view = self._text.data
        try:
            while self._end < len(self._text) and not self._ended:
                n = self._source.readinto(view[self._end :])
                self._end += n
                self._ended = n == 0
        except BrokenStreamError as error:
            self._broken = error

    def _error(self, status: int, record: int, at: int) -> InputFormatError:
        found = show(self._text[at : at + 1].tobytes())
        where = f"{self.name}: record {record}"
        if status == _BAD_BASE:
            return InputFormatError(f"{where}: {found} is no base; repair the file")
        if status == _NO_NAME:
            return InputFormatError(f"{where} has no name; give it one")
        return InputFormatError(f"{where}: begins with {found} where '>' must be; repair the file")
