"""The text of one batch, FASTQ, FASTA or a list, to its reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapper.batch import NO_OFFSETS, NO_TAGS, ReadBatch
from mapper.errors import InputFormatError
from mapper.io import fastq_parser as scan
from mapper.io.fastq_errors import explain, read_name, show
from mapper.io.fastq_fill import fill_batch
from mapper.io.input_file import BrokenStreamError
from mapper.io.record_ends import FASTA
from mapper.parallel.buffers import RECYCLER


class TextPart(NamedTuple):
    """What a batch takes from one file."""

    name: str
    kind: int  # FASTQ, FASTA or LIST
    text: np.ndarray  # uint8, begins with a record
    most_records: int
    """No fewer records than there are in the text."""
    broken: BrokenStreamError | None = None
    """Why the file cannot be read on behind the text, if so."""


class TextBatch(NamedTuple):
    """The text of a batch: of one file, or of two that hold mates."""

    parts: tuple[TextPart, ...]
    layout: int  # SINGLE, TWO_FILES or INTERLEAVED
    keep_comments: bool
    first_read: int  # reads that came before

    def parse(self) -> ReadBatch:
        """Return the reads.

        Raises
        ------
        InputFormatError
            For the first thing that is wrong with the text.
        """
        first, second = self.parts[0], self.parts[-1]
        columns = _make_columns(self.parts, self.keep_comments)
        status, mate, at1, at2, where, n_reads = fill_batch(
            self.layout,
            *(first.kind, first.text, first.broken is None),
            *(second.kind, second.text, second.broken is None),
            *(self.keep_comments, *columns),
        )
        ends = [at1] if len(self.parts) == 1 else [at1, at2]
        if error := self._error(status, mate, ends, where, self.first_read + n_reads):
            raise error
        paired = self.layout != scan.SINGLE
        return columns.batch(n_reads, self.first_read, paired, self.keep_comments)

    def _error(
        self, status: int, mate: int, ends: Sequence[int], where: int, n_whole: int
    ) -> InputFormatError | None:
        """Say what was wrong where the scan stopped; None if it is the end of all texts.

        Parameters
        ----------
        ends
            Position in each text after the last whole read or pair.
        n_whole
            Reads of the whole input before the read or pair at which it stopped.
        """
        part, number = self._place(mate, n_whole)
        if status == scan.MORE:
            assert part.broken is not None  # or else the text ends with a record
            return broken_stream(part.name, part.broken, number)
        if status == scan.MATES_DIFFER:
            return self._mates_differ(ends, n_whole)
        at_end = status == scan.DONE
        if status == scan.BLANK:
            at_end = not len(solid_bytes(part.text[where:]))
        if not at_end:
            start = self._record_start(mate, ends)
            return explain(status, part.name, number, part.text[start:].tobytes(), where - start)
        if self.layout == scan.INTERLEAVED and mate == 2:
            return InputFormatError(
                f"{part.name}: {n_whole + 1} reads, an odd number, in an interleaved file; the "
                "last has no mate (single-end reads, or a truncated file?)"
            )
        if self.layout == scan.TWO_FILES:
            # The first file has ended, or (mate 2) a read of it is left without a mate.
            other = self.parts[2 - mate]
            if mate == 2 or len(solid_bytes(other.text[ends[1] :])):
                return unequal_files(part.name, other.name, n_whole // 2)
        return None

    def _place(self, mate: int, n_whole: int) -> tuple[TextPart, int]:
        """Return the part of a mate, and the 1-based number of its record in the file."""
        if self.layout == scan.TWO_FILES:
            return self.parts[mate - 1], n_whole // 2 + 1
        return self.parts[0], n_whole + mate

    def _record_start(self, mate: int, ends: Sequence[int]) -> int:
        """Return the position of the first mate's record, or the second's, in its text."""
        if self.layout == scan.TWO_FILES or mate == 1:
            return ends[mate - 1]
        text = self.parts[0].text[ends[0] :]
        newlines = np.flatnonzero(text == ord("\n"))
        if self.parts[0].kind == FASTA:
            newlines = newlines[:-1] if newlines[-1] == len(text) - 1 else newlines
            return ends[0] + int(newlines[text[newlines + 1] == ord(">")][0]) + 1
        return ends[0] + int(newlines[3]) + 1

    def _mates_differ(self, ends: Sequence[int], n_whole: int) -> InputFormatError:
        first, number = self._place(1, n_whole)
        second, other_number = self._place(2, n_whole)
        starts = ends[0], self._record_start(2, ends)
        names = [
            show(read_name(part.text[start:].tobytes()))
            for part, start in zip((first, second), starts, strict=True)
        ]
        return InputFormatError(
            f"mates out of step: record {number} of {first.name} is {names[0]}, record "
            f"{other_number} of {second.name} is {names[1]}; give files that hold the mates of the "
            "same pairs in the same order"
        )


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
    """Make columns with all the room they may need."""
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
    """Return a column of offsets of which the first is written, and a second one that is read."""
    offsets = np.empty(n, np.int64)
    offsets[:2] = 0
    return offsets


def solid_bytes(text: np.ndarray) -> np.ndarray:
    """Return the positions of all bytes that are no line ends."""
    return np.flatnonzero((text != ord("\n")) & (text != ord("\r")))


def broken_stream(name: str, broken: BrokenStreamError, number: int) -> InputFormatError:
    """Return the error of a file that cannot be read on, at record `number` (1-based)."""
    return InputFormatError(f"{name}: {broken} (found after record {number - 1} or later)")


def unequal_files(ended: str, other: str, n_pairs: int) -> InputFormatError:
    """Return the error of two files of mates of which one goes on."""
    return InputFormatError(
        f"{ended} ends after {n_pairs} reads, {other} goes on; give the two complete files of one "
        "run"
    )
