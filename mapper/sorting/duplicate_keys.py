"""Make the keys of records by which duplicates are found, and bring equal ones together.

A mapped primary record that passed quality control is *examined*. Its *deciding coordinate* is the
unclipped position of its 5' end; a pair's key has both ends of the template. Equal keys lie at one
*place* of the genome: a range of records gives its rows (:func:`find_entries`), and those of
several ranges are joined by place (:func:`join_rows`), so that each part of the genome can be
decided by itself (:mod:`mapper.sorting.duplicates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapper.errors import InputFormatError
from mapper.io.bam_writer import FIXED_BYTES
from mapper.io.fastq_errors import show
from mapper.io.simd_text import phred_sum
from mapper.io.tags import RG, VALUE_SIZE, get_number, tag_end, tag_key
from mapper.jit.accelerate import core, driver
from mapper.jit.hashing import hash_bytes
from mapper.jit.simd import VECTOR, get16, get32
from mapper.parallel.buffers import RECYCLER, spanning
from mapper.sam_flags import (
    DUPLICATE,
    FIRST,
    MATE_REVERSE,
    MATE_UNMAPPED,
    NOT_PRIMARY,
    PAIRED,
    QC_FAIL,
    REVERSE,
    UNMAPPED,
)
from mapper.sorting.libraries import Libraries, library_of, library_of_group
from mapper.sorting.options import MarkOptions
from mapper.sorting.record_order import BEHIND_ALL, prefetch_record

_NO_REF = (1 << 30) - 1  # of records without a contig, which samtools sorts last


class Entries(NamedTuple):
    """Keys of examined records, in sorted order of the records.

    A record has one row; two if its pair and its own 5' end lie at different places: the reverse
    read on the left of two reverse ones, and the forward read on the right of two forward ones.
    The columns are views of a table whose rows are lines of a cache.
    """

    place: np.ndarray  # int64: ref << 32 | (max(coordinate, -1) + 1)
    record: np.ndarray  # int32: number of the record in its range
    coordinate: np.ndarray  # int64, 0-based, unclipped; may be negative
    other_ref: np.ndarray  # int32: the mate's end of the template; 0 without a mate
    other_coordinate: np.ndarray  # int64
    bits: np.ndarray  # uint8: see below
    library: np.ndarray  # int32
    barcode: np.ndarray  # uint64: hash of the barcode, 0 for none
    score: np.ndarray  # int64: sum of the qualities >= 15 of the read and its mate, if it has one
    name: np.ndarray  # int64: where the read name is in `names`
    name_length: np.ndarray  # uint8
    words: np.ndarray  # int64 (n, 8): the table
    names: np.ndarray  # uint8: the memory of the records, or some that spans it
    first_place: int
    last_place: int  # below the first if there is none
    reach: int  # largest number of bases by which a coordinate lies before its record's position
    has_marks: bool  # True if a record, examined or not, has the flag of duplicates already
    has_barcodes: bool  # True if an examined record has the tag of barcodes


_ROW = np.dtype([
    ("place", np.int64), ("coordinate", np.int64), ("other_coordinate", np.int64),
    ("score", np.int64), ("barcode", np.uint64), ("name", np.int64), ("other_ref", np.int32),
    ("library", np.int32), ("record", np.int32), ("name_length", np.uint8), ("bits", np.uint8),
    ("unused", np.uint16),
])  # fmt: skip
"""A row of the table: 64 bytes."""

_PLACE_WORD = 0
"""Of a row as words of 8 bytes."""

HAS_MATE = 1
IN_SINGLES = 2  # the row takes part in the comparison of single reads at its coordinate
IN_PAIRS = 4  # and in that of pairs
IS_REVERSE = 8
_IS_LEFTMOST, _ORIENTATION = 16, 32  # and 64: FR, RF, FF, RR
PAIR_KEY = _IS_LEFTMOST | 3 * _ORIENTATION
_FR, _RF, _FF, _RR = (kind * _ORIENTATION for kind in range(4))

_MC, _MS, _CG = (tag_key(tag) for tag in ("MC", "ms", "CG"))
_MIN_QUALITY = 15
_OK, _NO_MC, _NO_MS, _BAD_RECORD = range(4)


# --- keys of records ---


@core
def tags_at(data, at):
    """Return the position of the tags of the record at `at`."""
    n_bases = get32(data, at + 20)
    name = at + FIXED_BYTES + np.int64(data[at + 12])
    return name + 4 * get16(data, at + 16) + (n_bases + 1) // 2 + n_bases


@core
def is_examined(flag):
    """Return True for flags of records that are compared with others."""
    return (flag & (UNMAPPED | QC_FAIL | NOT_PRIMARY)) == 0


@core
def has_mate(data, at):
    """Return True if the mate of the record at `at` is mapped."""
    flag = get16(data, at + 18)
    is_nowhere = get32(data, at + 24) == -1 and get32(data, at + 28) == -1
    return (flag & (PAIRED | MATE_UNMAPPED)) == PAIRED and not is_nowhere


@core
def _unclipped_ends(data, cigar, n_ops, pos):
    """Return the first and last position of an alignment with its clipped bases, 0-based."""
    leading = trailing = span = np.int64(0)
    in_front = True
    for i in range(n_ops):
        packed = get32(data, cigar + 4 * i) & 0xFFFFFFFF
        length, op = packed >> 4, packed & 15
        if op == 4 or op == 5:  # S, H
            trailing += length
            if in_front:
                leading += length
        else:
            in_front = False
            trailing = np.int64(0)
            if 0x18D >> op & 1:  # M, D, N, = and X
                span += length
    return pos - leading, pos + max(span, np.int64(1)) + trailing - 1


@core
def _unclipped_mate_ends(data, at, pos):
    """Return the ends as :func:`_unclipped_ends`, of the CIGAR in letters at `at` (tag MC)."""
    leading = span = np.int64(0)
    in_front = True
    is_aligned = False
    while data[at] != 0 and data[at] != ord("*"):
        length = np.int64(1)
        if ord("0") <= data[at] <= ord("9"):
            length = np.int64(0)
            while ord("0") <= data[at] <= ord("9"):
                length = 10 * length + np.int64(data[at] - ord("0"))
                at += 1
        op = data[at]
        if op == 0:
            break
        if op == ord("S") or op == ord("H"):
            if in_front:
                leading += length
            if is_aligned:
                span += length
        else:
            in_front = False
            if (
                op == ord("M")
                or op == ord("D")
                or op == ord("N")
                or op == ord("=")
                or op == ord("X")
            ):
                span += length
                is_aligned = True
        at += 1
    return pos - leading, pos + span - 1


@core
def _pair_key(flag, ref, start, end, mate_ref, mate_start, mate_end):
    """Return the coordinate of a record's template, that at the mate's end, and bits of the key.

    Ends of the template are compared, not of reads: mates on one strand count from their outer
    ends, and the first read of the two says which strand of the molecule was read.
    """
    reverse, mate_reverse = (flag & REVERSE) != 0, (flag & MATE_REVERSE) != 0
    if ref != mate_ref:
        leftmost = ref < mate_ref
    elif reverse == mate_reverse:
        leftmost = end <= mate_end if reverse else start <= mate_start
    else:
        leftmost = end <= mate_start if reverse else start <= mate_end
    if reverse == mate_reverse:
        coordinate = start if leftmost else end
        other = mate_end if leftmost else mate_start
        is_first = (flag & FIRST) != 0
        kind = _FF if ((not reverse) == is_first) == leftmost else _RR
    else:
        coordinate = end if reverse else start
        other = mate_start if reverse else mate_end
        kind = _FR if leftmost == (not reverse) else _RF
    return coordinate, other, kind | (_IS_LEFTMOST if leftmost else 0)


@core
def _own_score(data, at, n):
    """Return the sum of those of ``data[at:at + n]`` that are no less than _MIN_QUALITY."""
    score = np.int64(0)
    end = at + n
    while at < end and at + VECTOR <= len(data):
        score += phred_sum(data, at, min(end - at, np.int64(VECTOR)), _MIN_QUALITY)
        at += VECTOR
    while at < end:
        score += data[at] if data[at] >= _MIN_QUALITY else np.uint8(0)
        at += 1
    return score


@core
def _place(ref, coordinate):
    return (ref if ref >= 0 else np.int64(_NO_REF)) << 32 | max(coordinate, np.int64(-1)) + 1


@driver
def _fill_entries(data, starts, groups, barcode_tag, rows, libraries):
    """Write the rows and libraries of records.

    Returns
    -------
    Status, record of an error, number of rows, first and last place, reach, if there are marks and
    barcodes.
    """
    n_rows = 0
    reach = np.int64(0)
    first, last = np.int64(BEHIND_ALL), np.int64(-1)
    has_marks = has_barcodes = False
    for record in range(len(starts)):
        prefetch_record(data, starts, record)
        at = starts[record]
        flag = get16(data, at + 18)
        has_marks |= (flag & DUPLICATE) != 0
        if not is_examined(flag):
            end = at + 4 + get32(data, at)
            libraries[record] = library_of(data, tags_at(data, at), end, groups)
            continue
        paired = has_mate(data, at)
        ref, pos = get32(data, at + 4), get32(data, at + 8)
        n_ops, n_bases = get16(data, at + 16), get32(data, at + 20)
        name_len = np.int64(data[at + 12]) - 1
        cigar = at + FIXED_BYTES + name_len + 1
        quals = cigar + 4 * n_ops + (n_bases + 1) // 2
        end = at + 4 + get32(data, at)
        if quals + n_bases > end or end > len(data):
            return _BAD_RECORD, record, n_rows, first, last, reach, has_marks, has_barcodes
        # A CIGAR of more than 65535 operations is in a tag, and a clip and a gap hold its place.
        is_long = n_ops == 2 and get32(data, cigar) == (n_bases << 4 | 4)
        is_long = is_long and (get32(data, cigar + 4) & 15) == 3

        mate_cigar = mate_score = np.int64(-1)
        library, barcode = np.int64(groups.unknown), np.uint64(0)
        tag = quals + n_bases
        while tag < end:
            following = tag_end(data, tag, end)
            if following < 0:
                return _BAD_RECORD, record, n_rows, first, last, reach, has_marks, has_barcodes
            key, kind = get16(data, tag), data[tag + 2]
            is_text = kind == ord("Z") or kind == ord("H")
            if key == _MC and is_text:
                mate_cigar = np.int64(tag + 3)
            elif key == _MS and VALUE_SIZE[kind] > 0 and kind != ord("A") and kind != ord("f"):
                mate_score = get_number(data, tag + 3, kind)
            elif key == RG and kind == ord("Z") and len(groups.slots) > 0:
                library = library_of_group(data, tag + 3, groups)
            elif key == _CG and is_long and kind == ord("B") and data[tag + 3] == ord("I"):
                cigar, n_ops = tag + 8, get32(data, tag + 4)
            if key == barcode_tag and is_text and following - tag > 4:
                barcode = hash_bytes(data, tag + 3, following - tag - 4, 2)
                has_barcodes = True
            tag = following

        libraries[record] = library
        start, end = _unclipped_ends(data, cigar, n_ops, pos)
        score = _own_score(data, quals, n_bases)
        own = end if flag & REVERSE else start
        coordinate, bits = own, np.int64(IN_SINGLES)
        other_ref = other = np.int64(0)
        if flag & REVERSE:
            bits |= IS_REVERSE
        if paired:
            if mate_cigar < 0:
                return _NO_MC, record, n_rows, first, last, reach, has_marks, has_barcodes
            if mate_score < 0:
                return _NO_MS, record, n_rows, first, last, reach, has_marks, has_barcodes
            other_ref = get32(data, at + 24)
            mate_start, mate_end = _unclipped_mate_ends(data, mate_cigar, get32(data, at + 28))
            coordinate, other, key_bits = _pair_key(
                flag, ref, start, end, other_ref, mate_start, mate_end
            )
            bits |= HAS_MATE | IN_PAIRS | key_bits
            score += mate_score
        parts = 1 if coordinate == own else 2
        for part in range(parts):
            if parts == 2:
                bits = bits & ~IN_SINGLES if part == 0 else (bits & ~IN_PAIRS) | IN_SINGLES
                coordinate = coordinate if part == 0 else own
            reach = max(reach, pos - coordinate)
            place = _place(ref, coordinate)
            first, last = min(first, place), max(last, place)
            rows.place[n_rows] = place
            rows.record[n_rows] = record
            rows.coordinate[n_rows] = coordinate
            rows.other_ref[n_rows] = other_ref
            rows.other_coordinate[n_rows] = other
            rows.bits[n_rows] = bits
            rows.library[n_rows] = library
            rows.barcode[n_rows] = barcode
            rows.score[n_rows] = score
            rows.name[n_rows] = at + FIXED_BYTES
            rows.name_length[n_rows] = name_len
            n_rows += 1
    return _OK, 0, n_rows, first, last, reach, has_marks, has_barcodes


def _table(n_rows: int) -> np.ndarray:
    """Return rows whose values are not set yet, in recycled memory."""
    memory = RECYCLER.empty((n_rows + 1) * _ROW.itemsize)
    to_line = -memory.ctypes.data % _ROW.itemsize
    return memory[to_line : to_line + n_rows * _ROW.itemsize].view(_ROW)


def _entries(
    table: np.ndarray, names: np.ndarray,
    bounds: tuple[int, int, int, bool, bool] = (0, -1, 0, False, False),
) -> Entries:  # fmt: skip
    """Return a table as columns."""
    columns = (table[column] for column in Entries._fields[:-7])
    return Entries._make([*columns, table.view(np.int64).reshape(-1, 8), names, *bounds])


def find_entries(
    data: np.ndarray, starts: np.ndarray, libraries: Libraries, options: MarkOptions
) -> tuple[Entries, np.ndarray]:
    """Return the keys of the examined records of a range, and the library of each record: int32.

    Parameters
    ----------
    data, starts
        BAM records (uint8), and their positions in sorted order (int64). The keys refer to `data`.

    Raises
    ------
    InputFormatError
        If a record with a mapped mate lacks the mate's CIGAR (MC) or score (ms), or its lengths or
        tags are malformed.
    """
    table = _table(2 * len(starts))  # memory that is not written to is not taken
    of_records = np.empty(len(starts), np.int32)
    barcode_tag = tag_key(options.barcode_tag) if options.barcode_tag else -1
    status, record, n_rows, *bounds = _fill_entries(
        data, starts, libraries.columns, barcode_tag, _entries(table, data), of_records
    )
    if status != _OK:
        raise _error(status, data, int(starts[record]))
    return _entries(table[:n_rows], data, tuple(bounds)), of_records


class UnmarkableError(InputFormatError):
    """A record lacks what duplicates are found by, or is malformed."""

    def __init__(self, message: str, read_name: bytes) -> None:
        super().__init__(message)
        self.read_name = read_name


def _error(status: int, data: np.ndarray, at: int) -> UnmarkableError:
    read_name = data[at + FIXED_BYTES : at + FIXED_BYTES + int(data[at + 12]) - 1].tobytes()
    return UnmarkableError(_problem(status, show(read_name)), read_name)


def _problem(status: int, name: str) -> str:
    if status == _BAD_RECORD:
        return f"record of read {name}: its lengths or tags are malformed; export it again"
    lacking = (
        "no tag MC, the CIGAR of the mate" if status == _NO_MC
        else "no tag ms, the score of the mate"
    )  # fmt: skip
    return (
        f"record of read {name}: its mate is mapped, and it has {lacking}, by which duplicates are "
        "found; add it with `samtools fixmate -m`, on records grouped by name, and sort again"
    )


# --- rows of one part of the genome ---


@core
def name_is_less(rows, a, b):
    """Return True if the name of row `a` comes before that of row `b`, compared by bytes."""
    at, other = rows.name[a], rows.name[b]
    end, other_end = at + rows.name_length[a], other + rows.name_length[b]
    while at < end and other < other_end and rows.names[at] == rows.names[other]:
        at += 1
        other += 1
    if at == end or other == other_end:
        return at == end and other < other_end
    return rows.names[at] < rows.names[other]


class Joined(NamedTuple):
    """Room for the rows of parts that lie at some places, and where to copy them from."""

    rows: Entries
    tables: np.ndarray  # int64 (n, 8): an array that spans the tables of all parts
    parts: np.ndarray  # int64 (n_parts, 3): first row in it, number of rows, place of the names
    ends: np.ndarray  # int64 (n_parts,): of each part's rows, once they are copied

    @classmethod
    def of(cls, parts: Sequence[Entries]) -> Joined:
        """Return room for all rows of parts, which the caller keeps."""
        table = _table(sum(len(part.place) for part in parts))
        names, of_names = spanning([part.names for part in parts])
        tables, of_tables = spanning([part.words.reshape(-1).view(np.uint8) for part in parts])
        sizes = [len(part.place) for part in parts]
        return cls(
            _entries(table, names), tables.view(np.int64).reshape(-1, 8),
            np.stack([of_tables // _ROW.itemsize, sizes, of_names], axis=1),
            np.zeros(len(parts), np.int64),
        )  # fmt: skip


@driver
def join_rows(joined, low, high):
    """Copy the rows with ``low <= place < high``, part after part; return their number."""
    n = np.int64(0)
    for part in range(len(joined.parts)):
        first, n_rows = joined.parts[part, 0], joined.parts[part, 1]
        for row in range(first, first + n_rows):
            if low <= joined.tables[row, _PLACE_WORD] < high:
                for word in range(joined.tables.shape[1]):
                    joined.rows.words[n, word] = joined.tables[row, word]
                joined.rows.name[n] += joined.parts[part, 2]
                n += 1
        joined.ends[part] = n
    return n
