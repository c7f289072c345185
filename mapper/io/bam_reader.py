"""Read BAM, CRAM and SAM files in batches.

Reads are taken as the instrument gave them: a record's sequence is reversed back where flag 0x10 is
set, and secondary and supplementary records are skipped, as they repeat parts of a primary one.
Tags that describe an alignment (DROPPED_TAGS) are left out; all others are kept. Compiled code
parses the bytes of a batch in one pass; CRAM and SAM are converted to BAM by samtools first.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import MIN_COST, ReadBatch
from mapper.errors import InputFormatError
from mapper.io.bam_writer import FIXED_BYTES, NOT_A_BASE, REVERSE, copy_bytes, read_bases
from mapper.io.batch_reader import BatchReader, RawBatch, bytes_ahead, parsed_batch
from mapper.io.fastq_errors import format_error, show
from mapper.io.header import header_field
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import BrokenStreamError, ByteSource
from mapper.io.samtools import ConvertedSource
from mapper.io.simd_text import copy_phred, copy_visible
from mapper.io.tags import RG, is_dropped, reverse_base_tag, tag_end
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import VECTOR, get16, get32
from mapper.parallel.buffers import RECYCLER

# --- parsing records ---

OK = 0  # status of a record
MORE = 2  # the buffer ends inside a record or pair, the file does not
DONE = 3  # the file ends where a record would begin
CUT_OFF = 4  # the file ends inside a record
BAD_RECORD = 5  # its lengths contradict each other
BAD_NAME = 6
BAD_BASE = 7  # "=", which only a reference can resolve
BAD_QUALITY = 8
BAD_TAGS = 9
NO_SEQUENCE = 10  # an aligned record without one
UNKNOWN_READ_GROUP = 11
BAD_SEGMENT = 12  # a pair's read that is neither its first nor its last
NO_MATE = 13  # the next record is not the mate

PAIRED, FIRST, LAST, NOT_PRIMARY, QC_FAIL = 0x1, 0x40, 0x80, 0x900, 0x200
_UNMAPPED = 0x4

_MAX_PHRED = 93
_NO_QUALITY = 255


@core
def find_record(data, at, end, ended):
    """Return the status of the record at `at`, and its end or the position of the error."""
    if at >= end:
        return (DONE if ended else MORE), at
    unfinished = CUT_OFF if ended else MORE
    if at + 4 > end:
        return unfinished, at
    size = get32(data, at)
    if size < FIXED_BYTES - 4 + 2:
        return BAD_RECORD, at
    if at + FIXED_BYTES > end:
        return unfinished, at
    n_bases = get32(data, at + 20)
    if n_bases < 0:
        return BAD_RECORD, at
    name_len = np.int64(data[at + 12])
    used = FIXED_BYTES - 4 + name_len + 4 * get16(data, at + 16) + (n_bases + 1) // 2 + n_bases
    if name_len == 0 or used > size:
        return BAD_RECORD, at
    if at + 4 + size > end:
        return unfinished, at
    return OK, at + 4 + size


@core
def _next_primary(data, at, end, ended, n_records):
    """Skip to the next primary record; return (status, start, end, records passed)."""
    while True:
        status, record_end = find_record(data, at, end, ended)
        if status != OK or (get16(data, at + 18) & NOT_PRIMARY) == 0:
            return status, at, record_end, n_records
        n_records += 1
        at = record_end


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
def _copy_tags(data, at, end, reverse, n_bases, ids, id_offsets, tags, tag_at):
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
        if not is_dropped(key):
            copied = tag_at
            tag_at = copy_bytes(tags, tag_at, data, at, following)
            if reverse and following - at - 4 == n_bases and data[at + 2] == ord("Z"):
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
        data, start + n_bases, end, reverse, n_bases, ids, id_offsets, tags, tag_offsets[row]
    )
    return status


@core
def _are_mates(data, a, b):
    """Return True if two records are the first and last read of one template, in any order."""
    flag_a, flag_b = get16(data, a + 18), get16(data, b + 18)
    if (flag_b & PAIRED) == 0 or ((flag_a ^ flag_b) & (FIRST | LAST)) != (FIRST | LAST):
        return False
    length = np.int64(data[a + 12])
    if data[b + 12] != length:
        return False
    name_a = data[a + FIXED_BYTES : a + FIXED_BYTES + length]
    name_b = data[b + FIXED_BYTES : b + FIXED_BYTES + length]
    differ = np.uint8(0)
    for i in range(length):
        differ = max(differ, np.uint8(name_a[i] ^ name_b[i]))
    return differ == 0


@driver
def whole_reads(data, all_left, most):
    """Find the whole reads and pairs at the start of uncompressed BAM, by lengths and flags only.

    Parameters
    ----------
    data
        uint8; begins with a record.
    all_left
        True if the file ends with it.
    most
        Upper limit of the reads to find.

    Returns
    -------
    Reads; pairs among them; records up to the last of them, skipped ones included; the position
    after them; why the search ended: OK, MORE, DONE, or the status of a malformed record.
    """
    end = len(data)
    n_reads = n_pairs = n_records = at = 0
    while n_reads < most:
        status, first, following, passed = _next_primary(data, at, end, all_left, 0)
        paired = 0
        if status == OK and get16(data, first + 18) & PAIRED:
            paired = 1
            status, _, following, passed = _next_primary(data, following, end, all_left, passed + 1)
        if status != OK:
            return n_reads, n_pairs, n_records, at, status
        n_reads += 1 + paired
        n_pairs += paired
        n_records += passed + 1
        at = following
    return n_reads, n_pairs, n_records, at, OK


@driver
def fill_batch(data, ended, ids, id_offsets, bases, quals, base_offsets, names, name_offsets, flags,
               tags, tag_offsets):  # fmt: skip
    """Parse records into the columns of a batch, up to the end or the first error.

    Parameters
    ----------
    data, ended
        Uncompressed BAM (uint8); True if a record, or the file, ends where that does.
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
    while True:
        status, first, first_end, skipped = _next_primary(data, at, end, ended, n_passed)
        if status != OK:
            return status, first, skipped, n_reads
        rows = 1
        before = skipped
        flag = get16(data, first + 18)
        second, second_end = first, first_end
        if flag & PAIRED:
            if (flag & (FIRST | LAST)) in (0, FIRST | LAST):
                return BAD_SEGMENT, first, before, n_reads
            rows = 2
            status, second, second_end, skipped = _next_primary(
                data, first_end, end, ended, skipped + 1
            )
            if status == DONE:
                return NO_MATE, first, before, n_reads
            if status != OK:
                return status, second, skipped, n_reads
            if not _are_mates(data, first, second):
                return NO_MATE, first, before, n_reads
        at = second_end
        n_passed = skipped + 1
        if flag & LAST:
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
        n_reads += rows


# --- messages ---

_EXPORT = "export the file again"
_GROUP = "group mates with `samtools collate`, or take single reads out by `samtools view -F 1`"
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
        "flagged paired (0x1), and neither or both of first (0x40) and last (0x80)",
        "repair the flags; templates of more than two reads are not mapped",
    ),
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
    read = _name_of(record)
    if status == NO_MATE:
        following = _from_next_primary(record)
        what = f"the next read is {show(_name_of(following))}" if following else "the file ends"
        if any(line.startswith("@HD\t") and "SO:coordinate" in line for line in header):
            what += "; the file is sorted by coordinate"
        return format_error(
            name, number, f"{show(read)} is flagged paired, and its mate does not follow: {what}",
            _GROUP,
        )  # fmt: skip
    reason, remedy = _REASONS[status]
    if status not in (CUT_OFF, BAD_RECORD, BAD_NAME):
        reason = f"{show(read)}: {reason}"
    return format_error(name, number, reason, remedy)


def _name_of(record: bytes) -> bytes:
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

BAM_MAGIC = b"BAM\x01"
CRAM_MAGIC = b"CRAM"
_SAM_START = re.compile(rb"@(HD|SQ|RG|PG|CO)\t")
_MAX_HEADER_BYTES = 1 << 30


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
    ) -> None:
        super().__init__()
        self.name = source.name
        self._source: Any = source
        if fmt != "bam":
            self._source = ConvertedSource(source, reference, threads)
        self.limit_batches(batch_bases)
        self._chunk_bytes = chunk_bytes
        self._executor, self._n_threads = executor, n_threads
        self._file: InputBuffer | None = None
        self._n_records = 0
        self._finished = False
        try:
            self.header = self._read_header()
        except BrokenStreamError as error:
            self.close()
            raise InputFormatError(f"{self.name}: {error} (found in the header)") from error
        except InputFormatError:
            self.close()
            raise
        ids = [
            header_field(line, "ID").encode("utf-8", "surrogateescape") for line in self.read_groups
        ]
        group_offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum([len(text) for text in ids], out=group_offsets[1:])
        self._groups = np.frombuffer(bytearray(b"".join(ids)), np.uint8), group_offsets

    @property
    def read_groups(self) -> list[str]:
        """The header's @RG lines."""
        return [line for line in self.header if line.startswith("@RG\t")]

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
            self._file = InputBuffer(self._source, chunk, self._executor, ahead)
        size, most = self._window_bytes, self._most_reads
        while True:
            data, all_left = self._file.unread(size + 1)
            is_rest = all_left and len(data) <= size
            data = data[:size]
            n_reads, n_pairs, n_records, end, status = whole_reads(
                data, is_rest and self._file.broken is None, most
            )
            if status not in (OK, MORE) or (is_rest and status == MORE):
                return self._last_batch(len(data), n_reads, is_rest)
            if n_reads:
                break
            size, most = self._file.larger(size, self._n_records + 1), 1
        part = self._part(end, n_reads, True)
        self._n_records += n_records
        return RawBatch(n_reads, n_pairs, part.parse)

    def _part(self, n_bytes: int, n_reads: int, ended: bool) -> _BamPart:
        assert self._file is not None
        data = self._file.take(n_bytes)
        return _BamPart(
            self.name, data, ended, n_reads, self.n_reads, self._n_records, self.header,
            self._groups, self._file.broken,
        )  # fmt: skip

    def _last_batch(self, n_bytes: int, n_reads: int, is_rest: bool) -> RawBatch | None:
        """Parse the last batch; raise if the file does not end there, as it does if well formed."""
        self._finished = True
        assert self._file is not None
        ended = is_rest and self._file.broken is None
        part = self._part(n_bytes, n_reads + 2, ended)
        batch = part.parse()
        self._check_end(self._n_records + part.count_records())
        return parsed_batch(batch) if batch.n_reads else None

    def _check_end(self, n_records: int) -> None:
        """Raise if the file, of `n_records` records, lacks the end-of-file block."""
        if self._source.is_bgzf and not self._source.ends_with_eof_block:
            raise InputFormatError(
                f"{self.name}: no end-of-file block after record {n_records}: the file is "
                "truncated; copy or export it again"
            )

    def _read_header(self) -> list[str]:
        """Read up to the first record; return the header's lines."""
        if self._take(4) != BAM_MAGIC:
            raise InputFormatError(f"{self.name}: not a BAM file; check that it is the right file")
        text = self._take(self._take_size("text"))
        for _ in range(self._take_size("contigs")):
            self._take(self._take_size("name") + 4)
        lines = text.rstrip(b"\0").decode("utf-8", "surrogateescape").splitlines()
        for line in lines:
            if line.startswith("@RG\t") and not header_field(line, "ID"):
                raise InputFormatError(
                    f"{self.name}: header line {line!r} has no ID; repair it with "
                    "`samtools reheader`"
                )
        return lines

    def _take_size(self, what: str) -> int:
        (size,) = struct.unpack("<i", self._take(4))
        if not 0 <= size <= _MAX_HEADER_BYTES:
            raise InputFormatError(
                f"{self.name}: the header is damaged (size {size} of its {what}); copy or export "
                "the file again"
            )
        return int(size)

    def _take(self, n: int) -> bytes:
        data = bytearray()
        while len(data) < n:
            part = bytearray(min(n - len(data), 1 << 20))
            got = self._source.readinto(memoryview(part))
            if got == 0:
                raise InputFormatError(
                    f"{self.name}: the file ends inside the header (truncated); copy or export "
                    "it again"
                )
            data += part[:got]
        return bytes(data)


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
            self.data, self.ended, *self.groups, bases, quals, base_offsets, names, name_offsets,
            flags, tags, tag_offsets,
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
