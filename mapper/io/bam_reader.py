"""Read BAM, CRAM and SAM files in batches.

Reads are taken as the instrument gave them: a record's sequence is reversed back where flag 0x10 is
set, and secondary and supplementary records are skipped, as they repeat parts of a primary one.
Tags that describe an alignment (DROPPED_TAGS) are left out; all others are kept. Compiled code
parses the bytes of a batch in one pass; CRAM and SAM are converted to BAM by samtools first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import MIN_COST, ReadBatch
from mapper.errors import InputFormatError, option
from mapper.io.bam_header import BAM_MAGIC, read_bam_header
from mapper.io.bam_templates import (
    APART,
    AT_NAME,
    BAD_BASE,
    BAD_NAME,
    BAD_QUALITY,
    BAD_RECORD,
    BAD_SEGMENT,
    BAD_TAGS,
    CUT_OFF,
    DONE,
    MORE,
    NAME_SLOTS,
    NO_MATE,
    NO_RECORD,
    NO_SEQUENCE,
    OK,
    ORPHAN,
    ORPHANS,
    PAIR,
    REFUSE_ORPHANS,
    REPEATED,
    SKIP_ORPHANS,
    UNKNOWN_READ_GROUP,
    Found,
    enter_names,
    next_template,
    whole_reads,
)
from mapper.io.bam_writer import FIXED_BYTES, MAX_NAME, NOT_A_BASE, copy_bytes, read_bases
from mapper.io.batch_reader import BatchReader, RawBatch, bytes_ahead, parsed_batch
from mapper.io.bgzf_reader import SharedInflating
from mapper.io.fastq_errors import format_error, show
from mapper.io.header import header_field
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import BrokenStreamError, ByteSource, go_to_all
from mapper.io.position import ReaderPosition, array_of
from mapper.io.samtools import ConvertedSource
from mapper.io.simd_text import copy_phred, copy_visible
from mapper.io.tags import RG, is_dropped, is_of_duplicate, reverse_base_tag, tag_end
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import VECTOR, get16, get32
from mapper.parallel.buffers import RECYCLER
from mapper.sam_flags import DUPLICATE, FIRST, LAST, NOT_PRIMARY, PAIRED, QC_FAIL, REVERSE

# --- parsing records ---

_UNMAPPED = 0x4
_MAX_PHRED = 93
_NO_QUALITY = 255


@core
def _known_read_group(data, at, ids, id_offsets):
    """Return True if the NUL-terminated text at `at` is one of the read groups."""
    for group in range(len(id_offsets) - 1):
        length = id_offsets[group + 1] - id_offsets[group]
        i = 0
        while i < length and data[at + i] == ids[id_offsets[group] + i]:
            i += 1
        if i == length and data[at + i] == 0:
            return True
    return False


@core
def _copy_tags(data, at, end, flag, n_bases, ids, id_offsets, tags, tag_at):
    """Copy the tags of a record but dropped ones; return (status, end of the copied ones)."""
    while at < end:
        following = tag_end(data, at, end)
        if following < 0:
            return BAD_TAGS, tag_at
        key = get16(data, at)
        if key == RG and (
            data[at + 2] != ord("Z") or not _known_read_group(data, at + 3, ids, id_offsets)
        ):
            return UNKNOWN_READ_GROUP, tag_at
        if not is_dropped(key) and not (flag & DUPLICATE and is_of_duplicate(key)):
            copied = tag_at
            tag_at = copy_bytes(tags, tag_at, data, at, following)
            if flag & REVERSE and following - at - 4 == n_bases and data[at + 2] == ord("Z"):
                reverse_base_tag(tags, copied, n_bases)
        at = following
    return OK, tag_at


@core
def _copy_name(data, at, length, names, name_at):
    """Write the name of `length` characters at `at`; return True if all are visible."""
    if length <= VECTOR and at + VECTOR <= len(data) and name_at + VECTOR <= len(names):
        return copy_visible(data, at, names, name_at) >= length  # copies bytes after the name, too
    letters = data[at : at + length]
    worst = np.uint8(0)
    for i in range(length):
        # 33 to 126; characters below wrap round to large values.
        worst = max(worst, np.uint8(letters[i] - np.uint8(33)))
    copy_bytes(names, name_at, data, at, at + length)
    return worst <= 126 - 33


@core
def _append_read(data, at, end, ids, id_offsets, row, bases, quals, base_offsets, names,
                 name_offsets, flags, tags, tag_offsets):  # fmt: skip
    """Write the record at ``[at, end)`` to row `row`; return its status."""
    flag = get16(data, at + 18)
    n_bases = get32(data, at + 20)
    n_cigar = get16(data, at + 16)
    if n_bases == 0 and n_cigar > 0 and (flag & _UNMAPPED) == 0:
        return NO_SEQUENCE
    reverse = (flag & REVERSE) != 0
    name_len = np.int64(data[at + 12]) - 1
    name = at + FIXED_BYTES
    if name_len == 0 or data[name + name_len] != 0:
        return BAD_NAME
    if not _copy_name(data, name, name_len, names, name_offsets[row]):
        return BAD_NAME
    if data[name] == ord("@"):
        return AT_NAME
    name_offsets[row + 1] = name_offsets[row] + name_len

    start = name + name_len + 1 + 4 * n_cigar
    sequence = data[start : start + (n_bases + 1) // 2]
    target = bases[base_offsets[row] : base_offsets[row] + n_bases]
    worst = read_bases(sequence, target, reverse)
    if worst == NOT_A_BASE:
        return BAD_BASE

    start += (n_bases + 1) // 2
    source = data[start : start + n_bases]
    target = quals[base_offsets[row] : base_offsets[row] + n_bases]
    worst = np.uint8(0)
    if n_bases > 0 and source[0] == _NO_QUALITY:
        target[:] = _NO_QUALITY
    elif reverse:
        for i in range(n_bases):
            target[i] = source[n_bases - 1 - i]
            worst = max(worst, source[i])
    elif n_bases >= VECTOR:
        bad = np.int64(0)
        for vector in range(n_bases // VECTOR + 1):
            first = min(vector * VECTOR, n_bases - VECTOR)  # the last one overlaps
            bad |= copy_phred(source, first, target, first)
        if bad:
            return BAD_QUALITY
    else:
        for i in range(n_bases):
            target[i] = source[i]
            worst = max(worst, source[i])
    if worst > _MAX_PHRED:
        return BAD_QUALITY
    base_offsets[row + 1] = base_offsets[row] + n_bases
    flags[row] = flag & (PAIRED | FIRST | LAST | QC_FAIL)
    status, tag_offsets[row + 1] = _copy_tags(
        data, start + n_bases, end, flag, n_bases, ids, id_offsets, tags, tag_offsets[row]
    )
    return status


@driver
def fill_batch(data, ended, orphans, earlier, ids, id_offsets, bases, quals, base_offsets, names,
               name_offsets, flags, tags, tag_offsets):  # fmt: skip
    """Parse records into the columns of a batch, up to the end or the first error.

    An orphan becomes a single read, or is left out with SKIP_ORPHANS.

    Parameters
    ----------
    data, ended
        Uncompressed BAM (uint8); True if a record, or the file, ends where that does.
    orphans, earlier
        As for :func:`next_template`.
    ids, id_offsets
        IDs of the header's read groups, flat (uint8, int64).
    bases, quals, base_offsets, names, name_offsets, flags, tags, tag_offsets
        Columns of a ReadBatch, to be written. Those of variable length have room for as many
        bytes as `data` has.

    Returns
    -------
    Status; position of the record that it concerns; records before that one, skipped ones
    included; reads.
    """
    end = len(data)
    n_reads = n_passed = at = 0
    previous = np.int64(-1)
    while True:
        status, kind, first, first_end, before, second, second_end, skipped = next_template(
            data, at, end, ended, n_passed, orphans, previous, earlier
        )
        if status != OK:
            return status, first, before, n_reads
        at = second_end
        n_passed = skipped + 1
        if kind == PAIR:
            previous = np.int64(first)
        if kind == ORPHAN and orphans == SKIP_ORPHANS:
            continue
        rows = 2 if kind == PAIR else 1
        if get16(data, first + 18) & LAST:
            first, second = second, first
            first_end, second_end = second_end, first_end
            before, skipped = skipped, before
        for row in range(n_reads, n_reads + rows):
            status = _append_read(
                data, first, first_end, ids, id_offsets, row, bases, quals, base_offsets, names,
                name_offsets, flags, tags, tag_offsets,
            )  # fmt: skip
            if status != OK:
                return status, first, before, n_reads
            first, first_end, before = second, second_end, skipped
        if kind == ORPHAN:
            flags[n_reads] &= QC_FAIL
        n_reads += rows


# --- messages ---

_EXPORT = "export the file again"
_GROUP = "group mates with `samtools collate`"
_REASONS = {
    CUT_OFF: ("the file ends inside the record (truncated)", "copy or export it again"),
    BAD_RECORD: ("its lengths contradict each other (damaged)", _EXPORT),
    BAD_NAME: ("the read name is empty, not closed, or has a control character", _EXPORT),
    BAD_BASE: (
        "a base is given as '=', equal to a reference that is not at hand",
        "restore the bases with `samtools calmd`, without -e",
    ),
    BAD_QUALITY: ("a base quality is above 93", _EXPORT),
    BAD_TAGS: ("its tags are malformed", _EXPORT),
    NO_SEQUENCE: (
        "it is aligned and has no sequence", "take a file that holds the reads' bases",
    ),
    UNKNOWN_READ_GROUP: (
        "its read group (RG) stands in no @RG line of the header",
        "add the line with `samtools reheader`",
    ),
    BAD_SEGMENT: (
        "flagged paired (0x1), and neither or both of first (0x40) and last (0x80), as a read of a "
        "template of three or more, which is not mapped",
        "leave such templates out, or repair the flags",
    ),
    REPEATED: (
        "a primary record of a read that has one already: the file repeats records, or has a "
        "template of three reads",
        "give a file with each read once",
    ),
    APART: ("flagged paired, and its mate is in the file, but not next to it", _GROUP),
    AT_NAME: ("the read name begins with '@', as only header lines of SAM do", "rename the reads"),
}  # fmt: skip


def explain(
    status: int, name: str, number: int, record: bytes, header: Sequence[str]
) -> InputFormatError:
    """Return the error for a status of :func:`fill_batch`.

    Parameters
    ----------
    status
        From :func:`fill_batch`.
    name, number
        File, and 1-based number of the record in it, skipped ones counted.
    record
        The file's bytes from the start of the record on, as far as they are in memory.
    header
        Lines of the file's header.
    """
    read = name_of(record)
    if status == NO_MATE:
        following = _from_next_primary(record)
        what = f"the next read is {show(name_of(following))}" if following else "the file ends"
        by_coordinate = is_sorted(header)
        if by_coordinate:
            what += "; the file is sorted by coordinate"
        return format_error(
            name, number, f"{show(read)} is flagged paired, and its mate does not follow: {what}",
            _GROUP if by_coordinate else f"{_GROUP}; if mates are not in the file at all, "
            f"{option('orphans')} map or skip goes on without",
        )  # fmt: skip
    reason, remedy = _REASONS[status]
    if status not in (CUT_OFF, BAD_RECORD, BAD_NAME):
        reason = f"{show(read)}: {reason}"
    return format_error(name, number, reason, remedy)


def is_sorted(header: Sequence[str]) -> bool:
    """Return True if a header says that the file is sorted by coordinate."""
    return any(line.startswith("@HD\t") and "SO:coordinate" in line for line in header)


def name_of(record: bytes) -> bytes:
    """Return the read name of a record; empty if its bytes are too few."""
    return record[36 : 36 + record[12]].split(b"\0")[0] if len(record) > 36 else b""


def _size(record: bytes) -> int:
    return 4 + int.from_bytes(record[:4], "little")


def _from_next_primary(record: bytes) -> bytes:
    """Return the bytes from the next primary record on; empty if none is in memory."""
    record = record[_size(record) :]
    while len(record) > 36 and int.from_bytes(record[18:20], "little") & NOT_PRIMARY:
        record = record[_size(record) :]
    return record


# --- files ---

CRAM_MAGIC = b"CRAM"
_SAM_START = re.compile(rb"@(HD|SQ|RG|PG|CO)\t")


def alignment_format(source: ByteSource) -> str | None:
    """Return ``bam``, ``cram`` or ``sam`` by the first bytes of a file; None for other formats."""
    if source.raw_head.startswith(CRAM_MAGIC):
        return "cram"
    start = source.peek(4)
    if start == BAM_MAGIC:
        return "bam"
    return "sam" if _SAM_START.match(start) else None


class BamReader(BatchReader):
    """Reader of one BAM, CRAM or SAM file in batches.

    Mates must be next to each other (unaligned files, name-grouped ones); secondary and
    supplementary records between them are skipped. Pairs and single reads may be mixed.
    See the module's docstring for the parts of a record that are kept.

    A record that is flagged paired and has no mate in the file is an *orphan*. Two orphans of one
    name are mates that are not next to each other, which is an error; so is any orphan in a file
    that is sorted by coordinate.

    Parameters
    ----------
    source
        The file, of the format that :func:`alignment_format` found.
    fmt
        That format.
    batch_bases
        Size of a batch: the whole reads or pairs in ``2 * batch_bases`` bytes of uncompressed
        BAM, at least one, and at most one for each ``MIN_COST`` bases (a pair may exceed that
        by one).
    chunk_bytes
        Bytes read at a time; no effect on the batches.
    reference, threads
        See :class:`ConvertedSource`.
    executor
        Its threads read ahead.
    n_threads
        Of `executor`; no effect on the batches.
    orphans
        One of ORPHANS.
    inflating
        Decompresses BAM; None for the threads of `executor`.

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
        orphans: str = "map",
        inflating: SharedInflating | None = None,
    ) -> None:
        super().__init__()
        self.name = source.name
        self._source: Any = source
        if fmt != "bam":
            self._source = ConvertedSource(source, reference, threads)
        self.limit_batches(batch_bases)
        self._chunk_bytes = chunk_bytes
        self._executor, self._n_threads = executor, n_threads
        self._inflating = inflating
        self._file: InputBuffer | None = None
        self._n_records = 0
        self._earlier = NO_RECORD  # of the last pair of earlier batches
        self._seen = np.zeros(NAME_SLOTS, np.uint64)
        self._seen_so_far = 0, b""  # orphans, and hashes of their names
        self._finished = False
        try:
            header = read_bam_header(self._source)
        except InputFormatError:
            self.close()
            raise
        self._first: int = self._source.n_plain  # where the buffer begins
        self.header, self.header_bytes = header.lines, header.raw
        ids = [
            header_field(line, "ID").encode("utf-8", "surrogateescape") for line in self.read_groups
        ]
        group_offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum([len(text) for text in ids], out=group_offsets[1:])
        self._groups = np.frombuffer(bytearray(b"".join(ids)), np.uint8), group_offsets
        self._orphans = REFUSE_ORPHANS if is_sorted(self.header) else ORPHANS[orphans]

    @property
    def read_groups(self) -> list[str]:
        """The header's @RG lines."""
        return [line for line in self.header if line.startswith("@RG\t")]

    def position(self) -> ReaderPosition:
        """Return the position after the last batch."""
        n_taken = 0 if self._file is None else self._file.n_taken
        if self._seen_so_far[0] != self.n_orphans:
            self._seen_so_far = self.n_orphans, self._seen[self._seen != 0].tobytes()
        file = self._source.position(self._first + n_taken)
        return ReaderPosition(
            self.n_reads, (file,), (), self._n_records, self._earlier.tobytes(),
            self._seen_so_far[1],
        )  # fmt: skip

    def go_to(self, position: ReaderPosition) -> None:
        """Move to a position in the same file; to be called before any batch is read."""
        go_to_all([self._source], position.files)
        self._first = self._source.n_plain
        self.n_reads, self._n_records = position.n_reads, position.n_records
        self._earlier = array_of(position.earlier, np.uint8)
        if position.orphans:
            enter_names(array_of(position.orphans, np.uint64), self._seen)

    def limit_batches(self, batch_bases: int) -> None:
        """Set the size of later batches."""
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
            self._file = InputBuffer(self._source, chunk, self._executor, ahead, self._inflating)
        size, most = self._window_bytes, self._most_reads
        while True:
            data, all_left = self._file.unread(size + 1)
            is_rest = all_left and len(data) <= size
            data = data[:size]
            found = self._find(data, is_rest and self._file.broken is None, most)
            if found.status not in (OK, MORE) or (is_rest and found.status == MORE):
                return self._last_batch(found._replace(end=len(data)), is_rest)
            if found.n_reads:
                part = self._part(found, found.n_reads, True)
                return RawBatch(found.n_reads, found.n_pairs, part.parse)
            if found.end:  # nothing but orphans that are left out
                self._part(found, 0, True)
                size, most = self._window_bytes, self._most_reads
            else:
                size, most = self._file.larger(size, self._n_records + 1), 1

    def _find(self, data: np.ndarray, all_left: bool, most: int) -> Found:
        """Find whole reads, and count the orphans among them; raise if mates are apart."""
        found = Found._make(
            whole_reads(
                data, all_left, most, self._orphans, self._earlier, self._seen, self.n_orphans
            )
        )
        if found.status == APART:
            number = self._n_records + found.n_before + 1
            record = data[found.bad :].tobytes()
            raise explain(APART, self.name, number, record, self.header)
        self.n_orphans += found.n_orphans
        return found

    def _part(self, found: Found, most_reads: int, ended: bool) -> _BamPart:
        """Take the bytes of a batch off the buffer."""
        assert self._file is not None
        data = self._file.take(found.end)
        part = _BamPart(
            self.name, data, ended, most_reads, self.n_reads, self._n_records, self.header,
            self._groups, self._orphans, self._earlier, self._file.broken,
        )  # fmt: skip
        self._n_records += found.n_records
        if found.previous >= 0:
            self._earlier = data[found.previous :][: FIXED_BYTES + MAX_NAME + 1].copy()
        return part

    def _last_batch(self, found: Found, is_rest: bool) -> RawBatch | None:
        """Parse the last batch; raise if the file does not end there, as it does if well formed."""
        self._finished = True
        assert self._file is not None
        ended = is_rest and self._file.broken is None
        part = self._part(found, found.n_reads + 2, ended)
        batch = part.parse()
        self._check_end(part.first_record + part.count_records())
        return parsed_batch(batch) if batch.n_reads else None

    def _check_end(self, n_records: int) -> None:
        """Raise if the file, of `n_records` records, lacks the end-of-file block."""
        if self._source.is_bgzf and not self._source.ends_with_eof_block:
            raise InputFormatError(
                f"{self.name}: no end-of-file block after record {n_records}: the file is "
                "truncated; copy or export it again"
            )


class _BamPart(NamedTuple):
    """The bytes of one batch."""

    name: str
    data: np.ndarray  # uint8, begins with a record
    ended: bool  # a record, or the file, ends where `data` does
    most_reads: int
    first_read: int  # reads that came before
    first_record: int  # records that came before, skipped ones included
    header: list[str]
    groups: tuple[np.ndarray, np.ndarray]  # IDs of the read groups, flat, and their offsets
    orphans: int  # MAP_ORPHANS, SKIP_ORPHANS or REFUSE_ORPHANS
    earlier: np.ndarray  # the last pair before `data`, see next_template
    broken: BrokenStreamError | None

    def parse(self) -> ReadBatch:
        """Return the reads.

        Raises
        ------
        InputFormatError
            For the first error in the records.
        """
        n_bytes, n_rows = len(self.data), self.most_reads + 1
        bases, quals, names, tags = (RECYCLER.empty(n_bytes) for _ in range(4))
        base_offsets, name_offsets, tag_offsets = offsets = np.empty((3, n_rows), np.int64)
        offsets[:, 0] = 0
        flags = np.empty(n_rows, np.uint16)
        status, where, n_passed, n = fill_batch(
            self.data, self.ended, self.orphans, self.earlier, *self.groups, bases, quals,
            base_offsets, names, name_offsets, flags, tags, tag_offsets,
        )  # fmt: skip
        if status == MORE:
            raise InputFormatError(
                f"{self.name}: {self.broken} (found after record {self.first_record + n_passed} or "
                "later)"
            )
        if status != DONE:
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
            paired=bool((flags[:n] & PAIRED).all()),
            flags=flags[:n],
            tags=tags[: tag_offsets[n]],
            tag_offsets=tag_offsets[: n + 1],
        )

    def count_records(self) -> int:
        """Return the number of records, skipped ones included; all must be whole."""
        n = at = 0
        while at < len(self.data):
            at += 4 + int.from_bytes(self.data[at : at + 4].tobytes(), "little")
            n += 1
        return n
