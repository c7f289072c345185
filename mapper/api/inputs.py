"""Reads as users have them, as the batches of a run.

Sequences and records become the text of a FASTQ or FASTA file, batch by batch, which the parser of
the command reads in a thread of the pool: names, letters and qualities are checked and taken as
there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain, count, islice
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import MIN_COST, NO_QUALITY, ReadBatch
from mapper.batch_ops import slice_reads
from mapper.dna import CODE_OF_ASCII, LETTERS, NOT_A_BASE
from mapper.errors import InputFormatError, UsageError
from mapper.io.batch_reader import BatchReader, RawBatch
from mapper.io.fastq import TextBatch, TextPart
from mapper.io.fastq_errors import FIX_FILE
from mapper.io.fastq_parser import INTERLEAVED, SINGLE, TWO_FILES
from mapper.io.reads import refuse_long_reads
from mapper.io.record_ends import FASTA, FASTQ, line_ends
from mapper.io.tags import are_tags_whole
from mapper.mapping.pipeline import LENGTH_LIMITS
from mapper.sam_flags import PAIRED

READS, MATES = "reads", "mates"
"""Names of the arguments, for messages."""

_AT_ONCE = 256
"""Items that are taken from an iterable at a time; some are tested for their kind."""

EXPECTED = (
    "str, bytes, (name, sequence, qualities), a pair of these, or an object with name, sequence "
    "and qualities, as dnaio and pysam have, is expected"
)


class _Records(NamedTuple):
    """Reads that are still Python's strings."""

    names: Sequence[object]  # str, or numbers
    sequences: Sequence[str]
    qualities: Sequence[str | None] | None  # None: no read has any


# --- one item, or many of a kind ---


def is_read(item: object) -> bool:
    """Return True for a single read, in any form but a file."""
    if isinstance(item, str | bytes):
        return True
    if isinstance(item, tuple) and len(item) == 3 and isinstance(item[1], str | bytes):
        return isinstance(item[0], str | bytes) and isinstance(item[2], str | bytes | None)
    return hasattr(item, "sequence") or hasattr(item, "query_sequence")


def is_pair(item: object) -> bool:
    """Return True for a tuple or list of two reads."""
    return isinstance(item, tuple | list) and len(item) == 2 and all(map(is_read, item))


def are_arrays(reads: object) -> bool:
    """Return True for a tuple of letters and offsets."""
    return (
        isinstance(reads, tuple) and len(reads) == 2
        and any(isinstance(part, np.ndarray) for part in reads)
    )  # fmt: skip


def refuse_unordered(reads: object, side: str) -> None:
    """Raise UsageError for a dict, whose keys would be mapped, or a set, which has no order."""
    if isinstance(reads, Mapping):
        raise UsageError(
            f"{side}: a dict is no list of reads; give [(name, sequence, None) for name, sequence "
            "in d.items()]"
        )
    if isinstance(reads, set | frozenset):
        raise UsageError(f"{side}: a set has no order; give a list")


def _decoded(texts: Iterable[Any]) -> list[str]:
    return [text.decode("latin-1") if isinstance(text, bytes) else text for text in texts]


def _records_of(items: Sequence[Any], side: str, first: int, per_name: int = 1) -> _Records:
    """Return the reads of some items.

    Parameters
    ----------
    side
        Name of the argument that holds them, for messages.
    first
        Number of the first item, from 0.
    per_name
        Consecutive reads without names that get one number together.
    """
    numbers = [number // per_name for number in range(first, first + len(items))]
    kinds = set(map(type, items))
    if kinds <= {str}:
        return _Records(numbers, items, None)
    if kinds <= {str, bytes}:
        return _Records(numbers, _decoded(items), None)
    if kinds == {tuple} and all(map(is_read, items)):
        columns = list(zip(*items, strict=True))
    else:
        parts = [_parts_of(item, side, number) for number, item in enumerate(items, first)]
        columns = list(zip(*parts, strict=True))
    names, sequences, qualities = columns
    if not _are_text(columns):
        wrong = next(i for i, parts in enumerate(zip(*columns, strict=True))
                     if not _are_text([[part] for part in parts]))  # fmt: skip
        raise _no_read(items[wrong], side, first + wrong)
    return _Records(
        [n if name is None else name for n, name in zip(numbers, _decoded(names), strict=True)],
        _decoded(sequences),
        None if all(quality is None for quality in qualities) else _decoded(qualities),
    )


def _are_text(columns: Sequence[Sequence[Any]]) -> bool:
    """Return True if names and qualities are text or None, and sequences text."""
    nothing = type(None)
    names, sequences, qualities = (set(map(type, column)) for column in columns)
    return (names | qualities) <= {str, bytes, nothing} and sequences <= {str, bytes}


def _no_read(item: object, side: str, number: int) -> UsageError:
    return UsageError(f"{side}: record {number + 1} is {item!r:.60}; {EXPECTED}")


def _parts_of(item: Any, side: str, number: int) -> tuple[Any, Any, Any]:
    """Return name, sequence and qualities of an item."""
    if isinstance(item, str | bytes):
        return None, item, None
    if isinstance(item, tuple) and is_read(item):
        return item
    if hasattr(item, "query_sequence"):  # pysam.AlignedSegment
        if item.is_secondary or item.is_supplementary:
            raise UsageError(
                f"{side}: record {number + 1}: {item.query_name!r} is a secondary or supplementary "
                "record, which is a part of a read; leave these out"
            )
        quals = item.get_forward_qualities()
        text = None if quals is None else "".join(chr(q + 33) for q in quals)
        return item.query_name, item.get_forward_sequence() or "", text
    if hasattr(item, "sequence"):  # dnaio, pysam.FastxRecord
        quality = item.qualities if hasattr(item, "qualities") else getattr(item, "quality", None)
        return item.name, item.sequence, quality
    raise _no_read(item, side, number)


# --- text ---


def _text_of(records: _Records) -> tuple[int, np.ndarray]:
    """Return the kind of file, and its text: uint8."""
    names, sequences, qualities = records
    if qualities is None:
        lines = [f">{n}\n{s}\n" for n, s in zip(names, sequences, strict=True)]
    else:
        lines = [
            f"@{n}\n{s}\n+\n{'!' * len(s) if q is None else q}\n"
            for n, s, q in zip(names, sequences, qualities, strict=True)
        ]
    text = "".join(lines).encode("latin-1", "replace")
    # As the parser's other texts: an array that may be written to.
    return FASTA if qualities is None else FASTQ, np.frombuffer(bytearray(text), np.uint8)


class _Text(NamedTuple):
    """A batch of reads of Python's strings, to be parsed by a thread of the pool."""

    sides: tuple[_Records, ...]  # reads, and mates
    layout: int
    first_read: int  # reads of the call before

    def parse(self) -> ReadBatch:
        """Return the reads; raise the InputFormatError of the first that cannot be used."""
        parts = [
            TextPart(name, *_text_of(records), len(records.sequences))
            for name, records in zip((READS, MATES), self.sides, strict=False)
        ]
        n_reads = sum(part.most_records for part in parts)
        batch = TextBatch(tuple(parts), self.layout, False, self.first_read, count(1))
        try:
            reads = batch.parse()
        except InputFormatError as error:
            raise InputFormatError(str(error).removesuffix(f"; {FIX_FILE}")) from None
        if reads.n_reads != n_reads or any(
            line_ends(part.text) != part.most_records * (2 if part.kind == FASTA else 4)
            for part in parts
        ):
            self._refuse_line_ends()
        refuse_long_reads(reads, LENGTH_LIMITS, [part.name for part in parts])
        self._clear_qualities(reads)
        return reads

    def _refuse_line_ends(self) -> None:
        for name, records in zip((READS, MATES), self.sides, strict=False):
            qualities = records.qualities or [""] * len(records.names)
            for i, values in enumerate(
                zip(records.names, records.sequences, qualities, strict=True)
            ):
                if "\n" in "".join(str(value) for value in values) or values[1][:1] == ">":
                    number = self.first_read // len(self.sides) + i + 1
                    raise InputFormatError(f"{name}: record {number} has a line end in it, or '>'")
        raise InputFormatError(f"{READS}: the text of some record is that of several")

    def _clear_qualities(self, reads: ReadBatch) -> None:
        """Mark reads without qualities, beside others with some, as such."""
        for side, records in enumerate(self.sides):
            for i, quality in enumerate(records.qualities or ()):
                if quality is None:
                    row = i * len(self.sides) + side
                    start, end = reads.base_offsets[row : row + 2]
                    reads.quals[start:end] = NO_QUALITY


# --- readers ---


class ItemReader(BatchReader):
    """Reader of Python's sequences and records.

    Parameters
    ----------
    reads, mates
        Iterables of reads; `mates` in step with `reads`, or None. Without mates, `reads` may hold
        pairs.
    interleaved
        Mates follow one another in `reads`.
    batch_bases
        Bases of a batch, about.
    """

    def __init__(
        self, reads: Iterable[Any], mates: Iterable[Any] | None, interleaved: bool,
        batch_bases: int,
    ) -> None:  # fmt: skip
        super().__init__()
        items = iter(reads)
        head = list(islice(items, 1))
        items = chain(head, items)
        if mates is not None and interleaved:
            raise UsageError("mates and interleaved: give one of them")
        has_pairs = bool(head) and is_pair(head[0])
        if has_pairs and (mates is not None or interleaved):
            raise UsageError(f"{READS}: holds pairs; give neither mates nor interleaved")
        if has_pairs:
            self._blocks = _pairs(items)
        elif mates is not None:
            self._blocks = _in_step(items, iter(mates))
        else:
            self._blocks = _alone(items, 2 if interleaved else 1)
        two = has_pairs or mates is not None
        self._layout = TWO_FILES if two else INTERLEAVED if interleaved else SINGLE
        self._batch_bases = batch_bases

    @property
    def may_hold_pairs(self) -> bool:
        """True if the reads are pairs."""
        return self._layout != SINGLE

    def _cut(self) -> RawBatch | None:
        taken: list[tuple[_Records, ...]] = []
        cost = 0
        while cost < self._batch_bases and (block := next(self._blocks, None)) is not None:
            taken.append(block)
            for side in block:
                cost += max(sum(map(len, side.sequences)), MIN_COST * len(side.sequences))
        if not taken:
            return None
        sides = tuple(_joined(parts) for parts in zip(*taken, strict=True))
        n_reads = sum(len(side.sequences) for side in sides)
        if self._layout == INTERLEAVED and n_reads % 2:
            raise InputFormatError(
                f"{READS}: {self.n_reads + n_reads} reads, an odd number, where mates alternate; "
                "the last has no mate"
            )
        text = _Text(sides, self._layout, self.n_reads)
        return RawBatch(n_reads, 0 if self._layout == SINGLE else n_reads // 2, text.parse)

    def close(self) -> None:
        """Do nothing: the iterables are the caller's."""


def _alone(items: Iterator[Any], per_name: int) -> Iterator[tuple[_Records, ...]]:
    """Yield the reads of some items at a time."""
    number = 0
    while block := list(islice(items, _AT_ONCE)):
        yield (_records_of(block, READS, number, per_name),)
        number += len(block)


def _pairs(items: Iterator[Any]) -> Iterator[tuple[_Records, ...]]:
    """Yield the first and the second reads of some pairs at a time."""
    number = 0
    while block := list(islice(items, _AT_ONCE)):
        for i, item in enumerate(block, number):
            if not is_pair(item):
                raise UsageError(f"{READS}: record {i + 1} is {item!r:.60}; a pair is expected")
        first, second = zip(*block, strict=True)
        yield _records_of(first, READS, number), _records_of(second, MATES, number)
        number += len(block)


def _in_step(reads: Iterator[Any], mates: Iterator[Any]) -> Iterator[tuple[_Records, ...]]:
    """Yield some reads at a time, and their mates."""
    number = 0
    while True:
        first, second = list(islice(reads, _AT_ONCE)), list(islice(mates, _AT_ONCE))
        n = min(len(first), len(second))
        if n:
            yield _records_of(first[:n], READS, number), _records_of(second[:n], MATES, number)
        number += n
        if len(first) != len(second):
            ended, other = (READS, MATES) if len(first) < len(second) else (MATES, READS)
            raise InputFormatError(
                f"{ended} end after {number}, {other} go on; each read needs its mate"
            )
        if not n:
            return


def _joined(parts: Sequence[_Records]) -> _Records:
    """Return the reads of consecutive parts as one."""
    if len(parts) == 1:
        return parts[0]
    qualities: list[str | None] | None = None
    if any(part.qualities is not None for part in parts):
        qualities = []
        for part in parts:
            qualities += part.qualities or [None] * len(part.names)
    return _Records(
        list(chain.from_iterable(part.names for part in parts)),
        list(chain.from_iterable(part.sequences for part in parts)),
        qualities,
    )


class PulledBatches:
    """The batches of a reader, cut by the thread that takes them: it owns the iterables.

    The interface is :class:`mapper.mapping.pipeline.Batches`.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self._kept: deque[RawBatch] = deque()
        self._all_cut = False

    @property
    def ended(self) -> bool:
        """True if all batches have been taken."""
        self._keep(1)
        return not self._kept

    def take(self) -> RawBatch | None:
        """Return the next batch; None at the end."""
        self._keep(1)
        return self._kept.popleft() if self._kept else None

    def wait_or(self, others: Iterable[Future[Any]]) -> bool:
        """Return True if there is a batch to take; nothing is waited for."""
        return not self.ended

    def _keep(self, n: int) -> None:
        while len(self._kept) < n and not self._all_cut:
            raw = self._reader.next_raw()
            if raw is None:
                self._all_cut = True
            else:
                self._kept.append(raw)


class BatchOfReads(BatchReader):
    """Reader of a ReadBatch, in parts.

    Raises
    ------
    UsageError
        If its columns cannot be those of a batch.
    """

    def __init__(self, reads: ReadBatch, batch_bases: int) -> None:
        super().__init__()
        check_reads(reads)
        self._reads = reads._replace(first_read=0)
        self._batch_bases = batch_bases
        self._at = 0

    @property
    def may_hold_pairs(self) -> bool:
        """True if some reads are pairs."""
        return self._reads.n_pairs > 0

    def _cut(self) -> RawBatch | None:
        reads, first = self._reads, self._at
        if first >= reads.n_reads:
            return None
        if len(reads.flags) or len(reads.tag_offsets):  # these are not cut
            last = reads.n_reads
        else:
            unit = 2 if reads.paired else 1
            end = int(reads.base_offsets[first]) + self._batch_bases
            last = int(np.searchsorted(reads.base_offsets, end, side="right")) - 1
            last = min(last, first + self._batch_bases // MIN_COST)
            last = max(first + (last - first) // unit * unit, first + unit)
        self._at = last
        part = reads if (first, last) == (0, reads.n_reads) else slice_reads(reads, first, last)
        return RawBatch(part.n_reads, part.n_pairs, lambda: part)

    def close(self) -> None:
        """Do nothing: there is no file."""


def check_reads(reads: ReadBatch) -> None:
    """Raise an error for a batch that compiled code cannot take.

    Raises
    ------
    UsageError
        If types or offsets are wrong, or the number of mates is odd.
    InputFormatError
        If a read is too long.
    """
    n = reads.n_reads
    types = (
        (reads.bases, np.uint8), (reads.quals, np.uint8), (reads.base_offsets, np.int64),
        (reads.names, np.uint8), (reads.name_offsets, np.int64),
    )  # fmt: skip
    for column, dtype in types:
        if column.dtype != dtype or column.ndim != 1 or not column.flags.c_contiguous:
            raise UsageError(f"{READS}: the columns of a ReadBatch are flat uint8, offsets int64")
    for flat, offsets in ((reads.bases, reads.base_offsets), (reads.names, reads.name_offsets)):
        if len(offsets) != n + 1 or offsets[0] != 0 or offsets[-1] > len(flat) or (
            (np.diff(offsets) < 0).any()
        ):  # fmt: skip
            raise UsageError(f"{READS}: offsets must begin with 0, not fall, and lie in the array")
    if len(reads.quals) < reads.base_offsets[-1]:
        raise UsageError(
            f"{READS}: {len(reads.quals)} qualities for {reads.base_offsets[-1]} bases"
        )
    if reads.bases[: reads.base_offsets[-1]].max(initial=0) >= len(LETTERS):
        raise UsageError(f"{READS}: bases are codes below {len(LETTERS)} (mapper.dna), not letters")
    if reads.paired and n % 2:
        raise UsageError(f"{READS}: {n} reads, an odd number, where mates alternate")
    _check_flags_and_tags(reads)
    refuse_long_reads(reads._replace(first_read=0), LENGTH_LIMITS, [READS])


def _check_flags_and_tags(reads: ReadBatch) -> None:
    n, flags, tags, offsets = reads.n_reads, reads.flags, reads.tags, reads.tag_offsets
    if flags.dtype != np.uint16 or flags.shape not in ((0,), (n,)):
        raise UsageError(f"{READS}: flags are uint16, one for each read, or none")
    if not reads.paired and np.count_nonzero(flags & PAIRED) % 2:
        raise UsageError(f"{READS}: an odd number of reads has the flag of pairs")
    if len(offsets) == 0:
        return
    if tags.dtype != np.uint8 or offsets.dtype != np.int64 or offsets.shape != (n + 1,) or (
        not are_tags_whole(np.ascontiguousarray(tags), offsets)
    ):  # fmt: skip
        raise UsageError(f"{READS}: tags are flat uint8, whole ones as BAM has them, offsets int64")


def batch_of_arrays(
    reads: tuple[np.ndarray, np.ndarray], mates: tuple[np.ndarray, np.ndarray] | None,
    interleaved: bool,
) -> ReadBatch:  # fmt: skip
    """Return the reads of flat letters (uint8) and their offsets (int64), named by number."""
    codes, offsets = _codes_of(reads, READS)
    n_reads = len(offsets) - 1
    paired = interleaved or mates is not None
    if mates is not None:
        if interleaved:
            raise UsageError("mates and interleaved: give one of them")
        mate_codes, mate_offsets = _codes_of(mates, MATES)
        if len(mate_offsets) != len(offsets):
            raise InputFormatError(
                f"{n_reads} reads and {len(mate_offsets) - 1} mates: each read needs its mate"
            )
        lengths = np.stack([np.diff(offsets), np.diff(mate_offsets)], axis=1).ravel()
        both = np.concatenate([codes, mate_codes])
        starts = np.stack([offsets[:-1], mate_offsets[:-1] + len(codes)], axis=1).ravel()
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        codes = both[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])]
        n_reads *= 2
    names = [b"%d" % (i >> 1 if paired else i) for i in range(n_reads)]
    name_offsets = np.zeros(n_reads + 1, np.int64)
    np.cumsum([len(name) for name in names], out=name_offsets[1:])
    return ReadBatch(
        codes, np.full(len(codes), NO_QUALITY, np.uint8), offsets,
        np.frombuffer(bytearray(b"".join(names)), np.uint8), name_offsets, 0, paired,
    )  # fmt: skip


def _codes_of(arrays: tuple[np.ndarray, np.ndarray], side: str) -> tuple[np.ndarray, np.ndarray]:
    if not are_arrays(arrays) or not isinstance(arrays[0], np.ndarray):
        raise UsageError(f"{side}: a flat uint8 array and its int64 offsets are expected")
    letters, offsets = arrays
    offsets = np.ascontiguousarray(offsets, np.int64)
    if letters.dtype != np.uint8 or letters.ndim != 1 or offsets.ndim != 1 or not len(offsets):
        raise UsageError(f"{side}: a flat uint8 array and its int64 offsets are expected")
    if offsets[0] != 0 or offsets[-1] > len(letters) or (np.diff(offsets) < 0).any():
        raise UsageError(f"{side}: offsets must begin with 0, not fall, and lie in the array")
    codes = CODE_OF_ASCII[letters[: offsets[-1]]]
    bad = np.flatnonzero(codes == NOT_A_BASE)
    if len(bad):
        read = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        raise InputFormatError(
            f"{side}: record {read + 1}: character {chr(letters[bad[0]])!r} in the sequence is no "
            "IUPAC nucleotide letter"
        )
    return codes, offsets
