"""Pass the ranges of a sorted order through the pool: sort, mark duplicates, gather.

Each range is sorted by itself. Duplicates are records that begin at one place (or end there, on the
reverse strand), and such a place may lie in a neighbouring range: so the genome is cut into
*partitions* where ranges begin, every record's entries go to the partitions of their places, and a
partition is decided as soon as no later record can reach back into it. A range is gathered when
the partitions of all of its entries have been decided. All of that keeps a few ranges for each
thread in memory, and nothing for the whole sample.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from mapper.errors import InputFormatError
from mapper.jit.accelerate import driver
from mapper.parallel.map import ordered_map
from mapper.sorting.bam_index import IndexPart, index_part
from mapper.sorting.duplicate_counts import COUNTS, count, report
from mapper.sorting.duplicate_keys import Entries, bring_together, find_entries
from mapper.sorting.duplicates import decide
from mapper.sorting.libraries import Libraries
from mapper.sorting.marked_records import (
    DuplicateNames,
    find_names,
    mark_others,
    merge_names,
    set_marks,
)
from mapper.sorting.options import MarkOptions
from mapper.sorting.ranges import RecordRange, Records, sort_pieces
from mapper.sorting.record_order import END_OF_ORDER, PLACE_BITS

Result = TypeVar("Result")

SCANNED_AHEAD = 2
"""Ranges that are being scanned or wait to be taken, for each thread: with one, threads ran dry
while the oldest task was waited for."""

AHEAD = 1
"""Ranges in each later step, for each thread."""

LARGEST_CLIP = 10_000
"""Clipped bases before a record that are looked back over for duplicates of it: more than short
reads have."""


class Gathered(NamedTuple):
    """Records of a range, as they are to be written."""

    n_records: int  # of the range, before any was left out
    data: np.ndarray  # uint8: one behind another
    index_part: IndexPart
    counts: np.ndarray | None = None
    """Of duplicates, see :func:`mapper.sorting.duplicate_counts.count`."""


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

    def add(self, counts: np.ndarray) -> None:
        """Add the counts of a range."""
        self._counts += counts

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
    first_place: int  # of the entries
    last_place: int
    next_place: int  # a lower bound of the places of later records


def gathered_ranges(
    ranges: Callable[[], Iterable[RecordRange]], executor: Executor, n_threads: int,
    marking: Marking | None,
) -> Iterator[Gathered]:  # fmt: skip
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

    Raises
    ------
    MapperError
        If records lack what marking needs.
    """
    if marking is None:
        yield from ordered_map(
            _gather_plain, ranges(), n_threads, ahead=SCANNED_AHEAD, pool=executor
        )
        return
    names = None
    if marking.options.supplementary:
        parts = list(_decided(ranges(), executor, n_threads, marking, _find_names))
        names = merge_names(parts) if parts else None
    yield from _decided(ranges(), executor, n_threads, marking, partial(_gather_marked, names))


def _gather_plain(part: RecordRange) -> Gathered:
    data, starts = part.load()
    return Gathered(len(starts), data, index_part(data, starts))


# --- duplicates ---


def _scan(marking: Marking, part_and_next: tuple[RecordRange, RecordRange]) -> _Scanned:
    part, following = part_and_next
    records = part.load()
    entries, libraries = find_entries(*records, marking.libraries, marking.options)
    if entries.reach > LARGEST_CLIP:
        raise InputFormatError(
            f"a record has {entries.reach} clipped bases before its alignment; duplicates are "
            f"marked among short reads, with {LARGEST_CLIP} at most: leave long reads unmarked"
        )
    places = entries.place
    first, last = (int(places.min()), int(places.max())) if len(places) else (0, -1)
    return _Scanned(records, libraries, entries, first, last, following.place)


class _Share(NamedTuple):
    """The verdicts of a partition for records of one range."""

    records: np.ndarray  # int32: numbers in the range; one may stand there twice
    verdicts: np.ndarray  # uint8


class _Waiting:
    """A range that has been scanned, and the partitions of its entries."""

    def __init__(self, scanned: _Scanned) -> None:
        self.scanned = scanned
        self.partitions: list[tuple[Future[list[_Share]], int]] = []
        """The shares of each partition, and which of them is this range's."""


def _decided(
    ranges: Iterable[RecordRange], executor: Executor, n_threads: int, marking: Marking,
    finish: Callable[[Marking, _Scanned, list[_Share]], Result],
) -> Iterator[Result]:  # fmt: skip
    """Call a function for each range, by the pool, when its duplicates are known."""
    limit = AHEAD * max(n_threads, 1)
    deciding: deque[_Waiting] = deque()
    finishing: deque[Future[Result]] = deque()

    def finish_oldest() -> None:
        waiting = deciding.popleft()
        shares = [future.result()[share] for future, share in waiting.partitions]
        finishing.append(executor.submit(finish, marking, waiting.scanned, shares))

    try:
        for waiting in _with_partitions(ranges, executor, n_threads, marking):
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
    ranges: Iterable[RecordRange], executor: Executor, n_threads: int, marking: Marking
) -> Iterator[_Waiting]:
    """Yield ranges, scanned, once all partitions of their entries are being decided."""
    behind_all = RecordRange(END_OF_ORDER, lambda: sort_pieces([]))
    with_next = pairwise(chain(ranges, [behind_all]))
    scans = ordered_map(
        partial(_scan, marking), with_next, n_threads, ahead=SCANNED_AHEAD, pool=executor
    )
    waiting: deque[_Waiting] = deque()
    bounds: deque[int] = deque()  # where the next partitions end
    low = 0
    for scanned in scans:
        waiting.append(_Waiting(scanned))
        bounds.append(scanned.next_place)
        while bounds and bounds[0] <= _reached_back(scanned.next_place):
            high = bounds.popleft()
            if high > low:
                _begin_partition(waiting, low, high, executor, marking)
            low = high
        while waiting and waiting[0].scanned.last_place < low:
            yield waiting.popleft()


def _reached_back(place: int) -> int:
    """Return the first place at which records from `place` on may have an entry."""
    if place == END_OF_ORDER:
        return place
    contig, pos = divmod(place, 1 << PLACE_BITS)
    return contig << PLACE_BITS | max(pos - LARGEST_CLIP, 0)


def _begin_partition(
    waiting: Iterable[_Waiting], low: int, high: int, executor: Executor, marking: Marking
) -> None:
    """Have the entries from place `low` to before `high` decided."""
    concerned = [
        one for one in waiting if one.scanned.first_place < high and one.scanned.last_place >= low
    ]
    entries = [one.scanned.entries for one in concerned]
    if concerned:
        future = executor.submit(_decide, marking, entries, low, high)
        for share, one in enumerate(concerned):
            one.partitions.append((future, share))


def _decide(marking: Marking, entries: list[Entries], low: int, high: int) -> list[_Share]:
    """Decide a partition; return the share of each range."""
    rows, ends = bring_together(entries, low, high)
    verdicts = decide(rows, marking.options)
    return [_Share(rows.record[a:b], verdicts[a:b]) for a, b in pairwise([0, *ends])]


@driver
def _combine(records, verdicts, of_records):
    for row in range(len(records)):
        of_records[records[row]] |= verdicts[row]


def _verdicts(scanned: _Scanned, shares: list[_Share]) -> np.ndarray:
    """Return the verdicts of the records of a range, in order: uint8."""
    of_records = np.zeros(len(scanned.libraries), np.uint8)
    for share in shares:
        _combine(share.records, share.verdicts, of_records)
    return of_records


def _find_names(marking: Marking, scanned: _Scanned, shares: list[_Share]) -> DuplicateNames:
    verdicts = _verdicts(scanned, shares)
    return find_names(*scanned.records, scanned.libraries, verdicts)


def _gather_marked(
    names: DuplicateNames | None, marking: Marking, scanned: _Scanned, shares: list[_Share]
) -> Gathered:
    verdicts = _verdicts(scanned, shares)
    if names is not None:
        mark_others(*scanned.records, scanned.libraries, names, verdicts)
    n_libraries = len(marking.libraries.names)
    counts = count(*scanned.records, scanned.libraries, n_libraries, verdicts, marking.options)
    data, starts = set_marks(scanned.records, verdicts, marking.options)
    return Gathered(len(verdicts), data, index_part(data, starts), counts)
