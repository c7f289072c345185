"""Pass the ranges of a sorted order through the pool: sort, mark duplicates, index.

Each range is sorted by itself. Duplicates are records that begin at one place (or end there, on the
reverse strand), and such a place may lie in a neighbouring range: so the genome is cut into
*partitions* where ranges begin, every record's entries go to the partitions of their places, and a
partition is decided as soon as no later record can reach back into it. A range is finished when
the partitions of all of its entries have been decided. All of that keeps a few ranges for each
thread in memory, and nothing for the whole sample.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from mapper.errors import InputFormatError, option
from mapper.io.fastq_errors import show
from mapper.jit.accelerate import brief, driver
from mapper.parallel.map import ordered_map
from mapper.sorting.bam_index import IndexPart, index_part
from mapper.sorting.duplicate_counts import COUNTS, count_records, report
from mapper.sorting.duplicate_keys import Entries, find_entries
from mapper.sorting.duplicates import VERDICT_BITS, decide
from mapper.sorting.libraries import Libraries
from mapper.sorting.marked_records import (
    DuplicateNames,
    copy_marked,
    find_names,
    mark_others,
    merge_names,
    set_flags,
)
from mapper.sorting.optical import has_coordinates
from mapper.sorting.options import MarkOptions
from mapper.sorting.ranges import RecordRange, Records, sort_pieces
from mapper.sorting.record_order import END_OF_ORDER, PLACE_BITS

log = logging.getLogger(__name__)

Result = TypeVar("Result")

SCANNED_AHEAD = 2
"""Ranges that are being scanned or wait to be taken, for each thread: with one, threads ran dry
while the oldest task was waited for."""

AHEAD = 1
"""Ranges in each later step, for each thread."""

LARGEST_CLIP = 10_000
"""Clipped bases before a record that are looked back over for duplicates of it, where nothing tells
how many there are: more than short reads have."""


class Finished(NamedTuple):
    """Records of a range, as they are to be written."""

    n_records: int  # of the range, before any was left out
    data: np.ndarray  # uint8: one behind another
    index_part: IndexPart
    counts: np.ndarray | None = None
    """Of duplicates, see :func:`mapper.sorting.duplicate_counts.count_records`."""


class Marking:
    """How duplicates are marked.

    Parameters
    ----------
    header
        Of the records, which tells the libraries.
    """

    def __init__(self, options: MarkOptions, header: str) -> None:
        self.options = options
        self.libraries = Libraries(header)
        self._counts = np.zeros((len(self.libraries.names), len(COUNTS)), np.int64)
        self._has_entries = self._has_barcodes = False
        self._unplaced_name = b""
        """The first name found without coordinates, where they are wanted."""

    def add(self, counts: np.ndarray) -> None:
        """Add the counts of a range."""
        self._counts += counts

    def look_at(self, entries: Entries) -> None:
        """Look for what the options need: barcodes, and coordinates in the first name of a range.

        One thread at a time may call this.
        """
        if not len(entries.place):
            return
        self._has_entries = True
        self._has_barcodes |= entries.has_barcodes
        wants_coordinates = self.options.optical_distance and not self._unplaced_name
        if wants_coordinates and not has_coordinates(entries, 0):
            start = entries.name[0]
            self._unplaced_name = entries.names[start : start + entries.name_length[0]].tobytes()

    def warn(self) -> None:
        """Warn of what the options needed and no range had; to be called once, after the last."""
        if self._unplaced_name:
            log.warning(
                "names such as %s do not say where a read lay on the flow cell: duplicates of such "
                "reads are not counted as optical", show(self._unplaced_name),
            )  # fmt: skip
        tag = self.options.barcode_tag
        if tag and self._has_entries and not self._has_barcodes:
            log.warning(
                "%s changes nothing: no mapped read has this tag (tags of FASTQ comments are taken "
                "where reads are mapped with %s)", option("barcode_tag", tag),
                option("keep_comments"),
            )  # fmt: skip

    def report(self, command: str) -> dict[str, object]:
        """Return the counts as ``samtools markdup --json`` names them."""
        # By the words after the command MultiQC finds the counts, and the distance.
        distance = self.options.optical_distance
        as_by = f"samtools markdup -d {distance}" if distance else "samtools markdup"
        return dict(report(self._counts, self.libraries, f"{command} (counts as by {as_by})"))


class _Scanned(NamedTuple):
    """A range, and how its records take part in marking."""

    records: Records
    libraries: np.ndarray  # int32: of each record
    entries: Entries
    next_place: int  # a lower bound of the places of later records


def finished_ranges(
    ranges: Callable[[], Iterable[RecordRange]], executor: Executor, n_threads: int,
    marking: Marking | None, longest_clip: int | None = None,
) -> Iterator[Finished]:  # fmt: skip
    """Yield the records of all ranges in order.

    Parameters
    ----------
    ranges
        Returns the ranges; it is called once more where supplementary records of duplicates are
        marked, which may come before the records that decide about them.
    executor
        Its threads do the work; the calling thread must not be one of them.
    n_threads
        Their number.
    longest_clip
        Most clipped bases before the alignment of a record, over which duplicates are looked for;
        None if that is not known.

    Raises
    ------
    MapperError
        If records lack what marking needs, or have more clipped bases than LARGEST_CLIP though
        that was not known.
    """
    if marking is None:
        yield from ordered_map(
            _finish_plain, ranges(), n_threads, ahead=SCANNED_AHEAD, pool=executor
        )
        return
    look_back = LARGEST_CLIP if longest_clip is None else longest_clip
    decided = partial(_decided, executor, n_threads, marking, look_back)
    names = None
    if marking.options.supplementary:
        parts = list(decided(_find_names, ranges()))
        names = merge_names(parts) if parts else None
    yield from decided(partial(_finish_marked, names), ranges())


def _finish_plain(part: RecordRange) -> Finished:
    data, starts = part.load()
    return Finished(len(starts), data, index_part(data, starts))


# --- duplicates ---


def _scan(
    marking: Marking, look_back: int, part_and_next: tuple[RecordRange, RecordRange]
) -> _Scanned:
    part, following = part_and_next
    records = part.load()
    entries, libraries = find_entries(*records, marking.libraries, marking.options)
    if entries.reach > look_back:
        raise InputFormatError(
            f"a record has {entries.reach} clipped bases before its alignment; of sorted parts "
            f"duplicates are marked with {look_back} at most: leave long reads unmarked"
        )
    return _Scanned(records, libraries, entries, following.place)


class _Waiting:
    """A range that has been scanned, and the partitions of its entries."""

    def __init__(self, scanned: _Scanned) -> None:
        self.scanned = scanned
        self.partitions: list[tuple[Future[list[np.ndarray]], int]] = []
        """The marks that each partition gives to its ranges, and which of them this range is."""


def _decided(
    executor: Executor, n_threads: int, marking: Marking, look_back: int,
    finish: Callable[[Marking, _Scanned, list[np.ndarray]], Result],
    ranges: Iterable[RecordRange],
) -> Iterator[Result]:  # fmt: skip
    """Call a function for each range, by the pool, when its duplicates are known."""
    limit = AHEAD * max(n_threads, 1)
    deciding: deque[_Waiting] = deque()
    finishing: deque[Future[Result]] = deque()

    def finish_oldest() -> None:
        waiting = deciding.popleft()
        marks = [future.result()[number] for future, number in waiting.partitions]
        finishing.append(executor.submit(finish, marking, waiting.scanned, marks))

    try:
        for waiting in _with_partitions(ranges, executor, n_threads, marking, look_back):
            deciding.append(waiting)
            if len(deciding) > limit:
                finish_oldest()
            if len(finishing) > limit:
                yield finishing.popleft().result()
        while deciding:
            finish_oldest()
            if len(finishing) > limit:
                yield finishing.popleft().result()
        while finishing:
            yield finishing.popleft().result()
    finally:
        for future in finishing:
            future.cancel()
        for waiting in deciding:
            for partition, _ in waiting.partitions:
                partition.cancel()


def _with_partitions(
    ranges: Iterable[RecordRange], executor: Executor, n_threads: int, marking: Marking,
    look_back: int,
) -> Iterator[_Waiting]:  # fmt: skip
    """Yield ranges, scanned, once all partitions of their entries are being decided."""
    behind_all = RecordRange(END_OF_ORDER, lambda: sort_pieces([]))
    with_next = pairwise(chain(ranges, [behind_all]))
    scans = ordered_map(
        partial(_scan, marking, look_back), with_next, n_threads, ahead=SCANNED_AHEAD, pool=executor
    )
    waiting: deque[_Waiting] = deque()
    bounds: deque[int] = deque()  # where the next partitions end
    low = 0
    for scanned in scans:
        marking.look_at(scanned.entries)
        waiting.append(_Waiting(scanned))
        bounds.append(scanned.next_place)
        while bounds and bounds[0] <= _reached_back(scanned.next_place, look_back):
            high = bounds.popleft()
            if high > low:
                _begin_partition(waiting, low, high, executor, marking)
            low = high
        while waiting and waiting[0].scanned.entries.last_place < low:
            yield waiting.popleft()


def _reached_back(place: int, look_back: int) -> int:
    """Return the first place at which records from `place` on may have an entry."""
    if place == END_OF_ORDER:
        return place
    contig, pos = divmod(place, 1 << PLACE_BITS)
    return contig << PLACE_BITS | max(pos - look_back, 0)


def _begin_partition(
    waiting: Iterable[_Waiting], low: int, high: int, executor: Executor, marking: Marking
) -> None:
    """Have the entries from place `low` to before `high` decided."""
    concerned = [
        one for one in waiting
        if one.scanned.entries.first_place < high and one.scanned.entries.last_place >= low
    ]  # fmt: skip
    entries = [one.scanned.entries for one in concerned]
    if concerned:
        future = executor.submit(decide, entries, low, high, marking.options)
        for number, one in enumerate(concerned):
            one.partitions.append((future, number))


@brief
def _combine(marks, verdicts):
    for mark in marks:
        verdicts[mark >> VERDICT_BITS] |= mark & ((1 << VERDICT_BITS) - 1)


def _verdicts(scanned: _Scanned, marks: list[np.ndarray]) -> np.ndarray:
    """Return the verdicts of the records of a range, in order: uint8."""
    verdicts = np.zeros(len(scanned.libraries), np.uint8)
    for some in marks:
        _combine(some, verdicts)
    return verdicts


def _find_names(marking: Marking, scanned: _Scanned, marks: list[np.ndarray]) -> DuplicateNames:
    verdicts = _verdicts(scanned, marks)
    return find_names(*scanned.records, scanned.libraries, verdicts)


@driver
def _count_and_flag(data, starts, libraries, verdicts, remove, clear, sets_flags, counts):
    """Count, and set flags: in one call, as a thread that returns to Python waits for the GIL."""
    count_records(data, starts, libraries, verdicts, remove, clear, counts)
    if sets_flags:
        set_flags(data, starts, verdicts)


def _finish_marked(
    names: DuplicateNames | None, marking: Marking, scanned: _Scanned, marks: list[np.ndarray]
) -> Finished:
    verdicts = _verdicts(scanned, marks)
    records, options = scanned.records, marking.options
    if names is not None:
        mark_others(*records, scanned.libraries, names, verdicts)
    counts = np.zeros((len(marking.libraries.names), len(COUNTS)), np.int64)
    in_place = options.keeps_sizes(scanned.entries.has_marks)
    _count_and_flag(
        *records, scanned.libraries, verdicts, options.remove, options.clear, in_place, counts
    )
    data, starts = records if in_place else copy_marked(records, verdicts, options)
    return Finished(len(verdicts), data, index_part(data, starts), counts)
