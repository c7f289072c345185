"""Read sorted BAM files, the parts of a sample, in ranges of their merged order.

The bytes of each part are inflated ahead by the threads of a pool. One pass over them finds the
records, checks them and notes the key of a record every few kilobytes. Among these keys the end of
the next range is chosen; the range then is a slice of each part, found by bisection, and its bytes
are copied only by :attr:`RecordRange.load`. So ranges are cut by one thread at the rate at which
several others inflate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, wait
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TypeVar

import numpy as np

from mapper.errors import InputFormatError
from mapper.io.bam_header import read_bam_header
from mapper.io.bam_reader import alignment_format, explain, is_sorted, name_of
from mapper.io.bam_templates import DONE, MORE, OK, find_record
from mapper.io.fastq_errors import format_error, show
from mapper.io.header import header_field, header_lines, header_text
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import ByteSource
from mapper.jit.accelerate import brief, driver
from mapper.jit.simd import get32
from mapper.sorting.ranges import RANGE_BYTES, RecordRange, sort_pieces
from mapper.sorting.record_order import BEHIND_ALL, prefetch_ahead, record_key

CHUNK_BYTES = 8 << 20
"""Bytes of a chunk of unsorted records, at most, unless one record is larger."""

_AHEAD_BYTES = 16 << 20
"""Inflated bytes that all parts together may be read ahead, if two steps of each take less."""

_STEP_BYTES = 4 << 20
_LEAST_STEP_BYTES = 1 << 20
"""Inflated bytes that are read of a part at a time, at most and at least."""

_BYTES_OF_STEPS = 32 << 20
"""Of a step of each part, together, if there are so many parts that they do not take most."""

_LEAST_WINDOW = 1 << 19
_MOST_BETWEEN_POINTS = 1 << 16
_RANGES_AHEAD = 2

UNSORTED, BAD_PLACE = 32, 33
"""Statuses of a record beside those of :mod:`mapper.io.bam_templates`: it belongs before the
previous one; its contig or position cannot be."""

T = TypeVar("T")

_NO_BYTES = np.empty(0, np.uint8)


# --- finding records ---


@driver
def _scan(data, at, ended, n_contigs, checks_order, key, distance, points, keys):
    """Find whole records and check them.

    The *running key* of a record is its key, or that of the record before it if it has the same
    place and a smaller key, as in files of sorters that do not compare strands.

    Parameters
    ----------
    data, at
        Uncompressed BAM (uint8), and where to begin.
    ended
        True if the file ends with it.
    n_contigs
        Contigs of the header.
    checks_order
        True if the places of records must not decrease.
    key
        Running key of the record before.
    distance
        Bytes from one noted record to the next, at least.
    points, keys
        Positions and running keys of noted records, to be written (int64). The first record is
        noted.

    Returns
    -------
    Status of the record where the search ended, and its position; records before it; running key of
    the last of these; number of noted ones.
    """
    n = n_points = 0
    due = at
    while True:
        status, end = find_record(data, at, len(data), ended)
        if status != OK:
            return status, at, n, key, n_points
        prefetch_ahead(data, at, end)
        if not (-1 <= get32(data, at + 4) < n_contigs and get32(data, at + 8) >= -1):
            return BAD_PLACE, at, n, key, n_points
        own = record_key(data, at)
        if checks_order:
            if own >> 1 < key >> 1:
                return UNSORTED, at, n, key, n_points
            key = max(key, own)
        if at >= due:
            points[n_points], keys[n_points] = at, key
            n_points += 1
            due = at + distance
        n += 1
        at = end


@brief
def _first_not_before(data, at, end, key, cut):
    """Return position and running key of the first record in ``[at, end)`` that reaches `cut`.

    Parameters
    ----------
    data, at, end
        Whole records (uint8) and the bounds of the search.
    key
        A lower bound of the running key of the first one.
    cut
        The running key that is looked for.

    Returns
    -------
    `end` and the last running key if there is none.
    """
    while at < end:
        own = max(key, record_key(data, at))
        if own >= cut:
            return at, own
        key = own
        at += 4 + get32(data, at)
    return at, key


# --- one part ---


class _Part:
    """One file, and its records that have been found and not been taken yet: the *window*.

    Positions count the bytes of the file's records.
    """

    def __init__(self, path: str, executor: Executor | None, read_bytes: int) -> None:
        self._source = ByteSource(path, executor, read_bytes)
        self.name = self._source.name
        self._buffer: InputBuffer | None = None
        try:
            fmt = alignment_format(self._source)
            if fmt in ("cram", "sam"):
                raise InputFormatError(
                    f"{self.name}: a {fmt.upper()} file, and parts are merged from BAM; convert it "
                    "with `samtools view -b`"
                )
            self.header = read_bam_header(self._source)
        except BaseException:
            self.close()
            raise
        self.is_sorted = is_sorted(self.header.lines)
        self.n_records = 0  # found so far
        self.ended = False  # all have been found
        self.at = self.end = 0  # bounds of the window
        self.last_key = 0  # running key of the last record found
        self._points: list[int] = []  # positions of noted records of the window, its first included
        self._keys: list[int] = []  # their running keys

    def begin(
        self, executor: Executor | None, steps: int, ahead: int, window: int, distance: int,
        checks_order: bool,
    ) -> None:  # fmt: skip
        """Begin to read records, with sizes in bytes.

        Parameters
        ----------
        executor
            Its threads read ahead.
        steps, ahead
            Of a step of reading, and of those read ahead.
        window
            Of the records to find at a time.
        distance
            See :func:`_scan`.
        checks_order
            True for a file that must be sorted.
        """
        self._buffer = InputBuffer(self._source, steps, executor, ahead)
        self._window, self._distance, self._checks_order = window, distance, checks_order

    def close(self) -> None:
        if self._buffer is not None:
            self._buffer.close()
        else:
            self._source.stop()
            self._source.close()

    @property
    def n_bytes(self) -> int:
        """Bytes of the file; 0 if it is a pipe."""
        return self._source.n_bytes

    @property
    def n_read(self) -> int:
        """Bytes of the file that have been read."""
        return self._source.n_read

    @property
    def first_key(self) -> int:
        """Running key of the first record of the window; BEHIND_ALL if there is none."""
        return self._keys[0] if self._keys else BEHIND_ALL

    @property
    def known_before(self) -> int:
        """A running key: all records of smaller ones have been found."""
        return BEHIND_ALL if self.ended else self.last_key

    def steps(self) -> Iterator[tuple[int, int]]:
        """Yield the running key of each noted record, and the bytes from it to the next."""
        ends = [*self._points[1:], self.end]
        yield from zip(
            self._keys, (end - at for at, end in zip(self._points, ends, strict=True)), strict=True
        )

    def fill(self) -> None:
        """Find further records, unless half a window of them is there or the file ends.

        Raises
        ------
        InputFormatError
            If one of them is damaged or out of order, or the file is cut off.
        """
        if not self.ended and self.end - self.at <= self._window // 2:
            self._find_records()

    def take(self, end: int) -> np.ndarray:
        """Take the records before position `end` off the window, all of it."""
        assert self._buffer is not None
        taken = self._buffer.take(end - self.at)
        self.at = end
        if end == self.end:
            self._points, self._keys = [], []
        return taken

    def take_before(self, cut: int) -> np.ndarray:
        """Take the records with a running key below `cut` off the window."""
        i = bisect_left(self._keys, cut)
        if i == 0:
            return _NO_BYTES
        end = self._points[i] if i < len(self._points) else self.end
        at = self._points[i - 1] - self.at
        data = self._unread(end - self.at)[0]
        at, key = _first_not_before(data, at, end - self.at, self._keys[i - 1], cut)
        del self._points[:i], self._keys[:i]
        if (first := self.at + int(at)) < end:
            self._points.insert(0, first)
            self._keys.insert(0, int(key))
        return self.take(first)

    def _unread(self, size: int) -> tuple[np.ndarray, bool]:
        """Return the next bytes, at most `size`; True if the file ends with them, or is broken."""
        assert self._buffer is not None
        data, all_left = self._buffer.unread(size + 1)
        # Never more than asked for: how many there are depends on the time.
        return data[:size], all_left and len(data) <= size

    def _find_records(self) -> None:
        """Add a window of records to those found, at least one unless the file ends."""
        assert self._buffer is not None
        known = self.end - self.at
        size = known + self._window
        while True:
            data, is_rest = self._unread(size)
            points, keys = np.empty((2, (len(data) - known) // self._distance + 2), np.int64)
            status, end, n_records, key, n_points = _scan(
                data, known, is_rest and self._buffer.broken is None,
                len(self.header.contig_names), self._checks_order, self.last_key, self._distance,
                points, keys,
            )  # fmt: skip
            if status == DONE:
                self._check_end(n_records)
            elif status != MORE:
                raise self._error(status, self.n_records + n_records + 1, data[end:])
            elif is_rest:
                raise InputFormatError(
                    f"{self.name}: {self._buffer.broken} (found after record "
                    f"{self.n_records + n_records})"
                )
            elif n_records == 0:
                size = self._buffer.larger(size, self.n_records + 1)
                continue
            break
        self.ended = status == DONE
        self.n_records += n_records
        self.end, self.last_key = self.at + int(end), int(key)
        self._points += (self.at + points[:n_points]).tolist()
        self._keys += keys[:n_points].tolist()

    def _check_end(self, n_new: int) -> None:
        if self._source.is_bgzf and not self._source.ends_with_eof_block:
            raise InputFormatError(
                f"{self.name}: no end-of-file block after record {self.n_records + n_new}: the "
                "file is truncated; copy or make it again"
            )

    def _error(self, status: int, number: int, record: np.ndarray) -> InputFormatError:
        """Return the error for a record, whose bytes begin `record`."""
        start = record[: 1 << 10].tobytes()
        read = show(name_of(start))
        if status == UNSORTED:
            return format_error(
                self.name, number,
                f"{read} belongs before the record in front of it, and the header says that the "
                "file is sorted (SO:coordinate)", "sort it with `samtools sort`",
            )  # fmt: skip
        if status == BAD_PLACE:
            return format_error(
                self.name, number,
                f"{read}: its contig is not in the header, or its position is negative (damaged)",
                "make the file again",
            )  # fmt: skip
        return explain(status, self.name, number, start, self.header.lines)


# --- all parts ---


class PartsReader:
    """Reader of the parts of a sample: BAM files with the same contigs.

    A context manager. The order of the records, and where ranges end, depend on nothing but the
    files and `range_bytes`.

    Parameters
    ----------
    paths
        The parts, in the order that records of equal keys shall have; ``-`` is standard input.
    executor
        Its threads inflate and cut ahead; None: the calling thread does.
    range_bytes
        Bytes of a range, approximately: less where most records come from one part, up to twice
        as many where all have one key.

    Raises
    ------
    InputFormatError
        If a part is no BAM file, its header is damaged, or its contigs are not those of the first,
        by name, length and, where both have it, M5.
    """

    def __init__(
        self,
        paths: Sequence[str],
        executor: Executor | None = None,
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        self._executor, self._range_bytes = executor, range_bytes
        step_bytes = max(_BYTES_OF_STEPS // max(len(paths), 1), _LEAST_STEP_BYTES)
        self._step_bytes = min(step_bytes, _STEP_BYTES)
        self._parts: list[_Part] = []
        checksums: dict[str, tuple[str, str]] = {}
        try:
            for path in paths:
                self._parts.append(_Part(path, executor, self._step_bytes))
                _check_contigs(self._parts[0], self._parts[-1])
                _check_sequences(self._parts[-1], checksums)
        except BaseException:
            self.close()
            raise
        first = self._parts[0].header
        self.contig_names, self.contig_lengths = first.contig_names, first.contig_lengths

    @property
    def all_sorted(self) -> bool:
        """True if the headers of all parts say that they are sorted by coordinate."""
        return all(part.is_sorted for part in self._parts)

    @property
    def n_records(self) -> int:
        """Records found so far; all, once all ranges or chunks have been taken."""
        return sum(part.n_records for part in self._parts)

    @property
    def share_read(self) -> float | None:
        """Share of the parts' bytes that has been read; None if some part is no file."""
        sizes = [part.n_bytes for part in self._parts]
        return sum(part.n_read for part in self._parts) / sum(sizes) if all(sizes) else None

    def header(self, command_line: str) -> str:
        """Return the header of the merged file, which is sorted.

        @RG, @PG and @CO lines of all parts are kept (see :func:`mapper.io.header.header_text`), and
        further fields of an @SQ line, such as M5, if all parts agree.

        Raises
        ------
        UsageError
            If parts describe one read group in two ways, or BAM does not allow a contig.
        """
        headers = [part.header.lines for part in self._parts]
        text = header_text(
            self.contig_names, self.contig_lengths, command_line, sort=True, inputs=headers,
            input_names=[part.name for part in self._parts],
        )  # fmt: skip
        agreed = _agreed_contig_lines(headers)
        return "".join(f"{agreed.get(line, line)}\n" for line in header_lines(text))

    def ranges(self) -> Iterator[RecordRange]:
        """Yield the ranges of the merged order, and close the parts.

        Only for parts that are all sorted; one thread at a time, and not after the chunks. In a
        part of a sorter that does not compare strands (flag 0x10), records of one place have any
        order, and so they have in the merged file where a range ends among them.

        Raises
        ------
        InputFormatError
            For a damaged, truncated or unsorted part, not before the records in front of the error
            have been inflated.
        """
        n = len(self._parts)
        window = min(max(2 * self._range_bytes // n, _LEAST_WINDOW), self._range_bytes)
        distance = min(max(self._range_bytes // (4 * n), 1), _MOST_BETWEEN_POINTS)
        for part in self._parts:
            part.begin(
                self._executor, self._step_bytes, _AHEAD_BYTES // n, window, distance,
                checks_order=True,
            )  # fmt: skip
        yield from self._drawn_ahead(self._cut_ranges(), _RANGES_AHEAD)

    def unsorted_chunks(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[np.ndarray]:
        """Yield the records of all parts in their order, and close the parts.

        Instead of the ranges; for parts that are sorted or not.

        Returns
        -------
        Whole records, uint8, not to be written to.

        Raises
        ------
        InputFormatError
            See :meth:`ranges`.
        """
        yield from self._drawn_ahead(self._cut_chunks(chunk_bytes), 1)

    def close(self) -> None:
        """Close the files; threads that wait for bytes find them broken."""
        for part in self._parts:
            part.close()

    def __enter__(self) -> PartsReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _drawn_ahead(self, items: Iterator[T], n: int) -> Iterator[T]:
        """Yield items that tasks draw ahead, `n` at a time, then close the parts."""
        try:
            if self._executor is None:
                yield from items
                return
            task = self._executor.submit(_first_of, items, n)
            try:
                while drawn := task.result():
                    task = self._executor.submit(_first_of, items, n)
                    yield from drawn
            finally:
                self.close()  # ends a task that waits for a pipe
                if not task.cancel():
                    wait([task])
        finally:
            self.close()

    def _cut_ranges(self) -> Iterator[RecordRange]:
        left = self._parts
        while True:
            for part in left:
                part.fill()
            left = [part for part in left if part.first_key != BEHIND_ALL]
            if not left:
                return
            first = min(part.first_key for part in left)
            cut = self._next_cut(left)
            if cut > first:
                yield _range(first, [part.take_before(cut) for part in left])
            else:
                yield from self._cut_within_key(left, first)

    def _next_cut(self, parts: Sequence[_Part]) -> int:
        """Return the key that ends the next range: all records before it have been found."""
        known = min(part.known_before for part in parts)
        n_bytes = 0
        for key, following in sorted(step for part in parts for step in part.steps()):
            if n_bytes >= self._range_bytes:
                return min(key, known)
            n_bytes += following
        return known

    def _cut_within_key(self, parts: Sequence[_Part], key: int) -> Iterator[RecordRange]:
        """Yield the records of the smallest key, of one part after another.

        There are too many for the windows, or for a range.
        """
        pieces: list[np.ndarray] = []
        for part in parts:
            while part.first_key == key:
                pieces.append(part.take_before(key + 1))
                if 2 * sum(map(len, pieces)) >= self._range_bytes:
                    yield _range(key, pieces)
                    pieces = []
                part.fill()
        if pieces:
            yield _range(key, pieces)

    def _cut_chunks(self, chunk_bytes: int) -> Iterator[np.ndarray]:
        for part in self._parts:
            part.begin(
                self._executor, _STEP_BYTES, _AHEAD_BYTES, chunk_bytes, chunk_bytes,
                checks_order=False,
            )  # fmt: skip
            part.fill()
            while part.end > part.at:
                yield part.take(part.end)
                part.fill()
            part.close()


def _first_of(items: Iterator[T], n: int) -> list[T]:
    return list(islice(items, n))


def _range(first_key: int, pieces: Sequence[np.ndarray]) -> RecordRange:
    return RecordRange(first_key >> 1, partial(sort_pieces, [p for p in pieces if len(p)]))


def _check_contigs(first: _Part, other: _Part) -> None:
    """Raise an error with the first difference between the contigs of two parts."""
    ours, theirs = (
        list(zip(part.header.contig_names, part.header.contig_lengths, strict=True))
        for part in (first, other)
    )
    if ours == theirs:
        return
    number = next(
        (i for i, (our, their) in enumerate(zip(ours, theirs, strict=False)) if our != their),
        min(len(ours), len(theirs)),
    )
    texts = [
        f"{contigs[number][0]!r} of {contigs[number][1]} bases" if number < len(contigs) else "none"
        for contigs in (theirs, ours)
    ]
    raise InputFormatError(
        f"{other.name}: contig {number + 1} is {texts[0]}, and in {first.name} {texts[1]}; merge "
        "parts that were mapped to the same reference, with its contigs in the same order"
    )


def _check_sequences(part: _Part, known: dict[str, tuple[str, str]]) -> None:
    """Raise an error if a part gives another checksum (M5) for the bases of a contig.

    `known` has, by contig, the checksum of earlier parts and the first that gives it; it is added
    to.
    """
    for line in part.header.lines:
        if line.startswith("@SQ\t") and (checksum := header_field(line, "M5").lower()):
            name = header_field(line, "SN")
            expected, earlier = known.setdefault(name, (checksum, part.name))
            if checksum != expected:
                raise InputFormatError(
                    f"{part.name}: contig {name!r} has the bases of M5:{checksum}, and in "
                    f"{earlier} those of M5:{expected}; merge parts that were mapped to the same "
                    "reference"
                )


def _agreed_contig_lines(headers: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return the @SQ lines that all headers have, by name and length as a line of their own."""
    agreed = set(headers[0]).intersection(*headers[1:])
    return {
        f"@SQ\tSN:{header_field(line, 'SN')}\tLN:{header_field(line, 'LN')}": line
        for line in headers[0]
        if line.startswith("@SQ\t") and line in agreed
    }
