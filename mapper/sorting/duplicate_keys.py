"""Make the keys of records by which duplicates are found, and bring equal ones together.

A mapped primary record that passed quality control is *examined*. Its *deciding coordinate* is the
unclipped position of its 5' end; a pair's key has both ends of the template. Equal keys lie at one
*place* of the genome: a range of records gives its rows (:func:`find_entries`), which are brought
together by place (:func:`bring_together`), so that each part of the genome can be
decided by itself (:mod:`mapper.sorting.duplicates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapper.errors import InputFormatError
from mapper.io.bam_writer import FIXED_BYTES
from mapper.io.fastq_errors import show
from mapper.io.tags import RG, VALUE_SIZE, get_number, tag_end, tag_key
from mapper.jit.accelerate import core, driver
from mapper.jit.hashing import hash_bytes
from mapper.jit.simd import copy, get16, get32
from mapper.parallel.buffers import RECYCLER
from mapper.sam_flags import (
    FIRST,
    MATE_REVERSE,
    MATE_UNMAPPED,
    NOT_PRIMARY,
    PAIRED,
    QC_FAIL,
    REVERSE,
    UNMAPPED,
)
from mapper.sorting.libraries import Libraries, library_of_group
from mapper.sorting.options import MarkOptions
from mapper.sorting.record_order import prefetch_record

_NO_REF = (1 << 30) - 1  # of records without a contig, which samtools sorts last


class Entries(NamedTuple):
    """Keys of examined records, in sorted order of the records.

    A record has one row; two if its pair and its own 5' end lie at different places: the reverse
    read on the left of two reverse ones, and the forward read on the right of two forward ones.
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
    names: np.ndarray  # uint8: read names, one behind another
    name_offsets: np.ndarray  # int64, shape (n + 1,)
    reach: int  # largest number of bases by which a coordinate lies before its record's position


_COLUMNS = (
    np.int64, np.int32, np.int64, np.int32, np.int64, np.uint8, np.int32, np.uint64, np.int64,
)  # fmt: skip
"""Types of the columns with one item for each row."""

HAS_MATE = 1
IN_SINGLES = 2  # the row takes part in the comparison of single reads at its coordinate
IN_PAIRS = 4  # and in that of pairs
IS_REVERSE = 8
_IS_LEFTMOST, _ORIENTATION = 16, 32  # and 64: FR, RF, FF, RR
PAIR_KEY = _IS_LEFTMOST | 3 * _ORIENTATION
_FR, _RF, _FF, _RR = (kind * _ORIENTATION for kind in range(4))

_MC, _MS, _CG = (tag_key(tag) for tag in ("MC", "ms", "CG"))
_MIN_QUALITY = np.uint8(15)
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
def _own_score(quals):
    score = np.uint32(0)  # up to 16 M bases
    for i in range(len(quals)):
        quality = quals[i]
        score = np.uint32(score + np.uint32(quality if quality >= _MIN_QUALITY else np.uint8(0)))
    return np.int64(score)


@core
def _place(ref, coordinate):
    return (ref if ref >= 0 else np.int64(_NO_REF)) << 32 | max(coordinate, np.int64(-1)) + 1


@driver
def _fill_entries(data, starts, groups, barcode_tag, rows):
    """Write the rows of records; return status, record of an error, rows, name bytes, reach."""
    n_rows = n_letters = 0
    reach = np.int64(0)
    rows.name_offsets[0] = 0
    for record in range(len(starts)):
        prefetch_record(data, starts, record)
        at = starts[record]
        flag = get16(data, at + 18)
        if not is_examined(flag):
            continue
        paired = has_mate(data, at)
        ref, pos = get32(data, at + 4), get32(data, at + 8)
        n_ops, n_bases = get16(data, at + 16), get32(data, at + 20)
        name_len = np.int64(data[at + 12]) - 1
        cigar = at + FIXED_BYTES + name_len + 1
        quals = cigar + 4 * n_ops + (n_bases + 1) // 2
        end = at + 4 + get32(data, at)
        if quals + n_bases > end or end > len(data):
            return _BAD_RECORD, record, n_rows, n_letters, reach
        # A CIGAR of more than 65535 operations is in a tag, and a clip and a gap hold its place.
        is_long = n_ops == 2 and get32(data, cigar) == (n_bases << 4 | 4)
        is_long = is_long and (get32(data, cigar + 4) & 15) == 3

        mate_cigar = mate_score = np.int64(-1)
        library, barcode = np.int64(groups.unknown), np.uint64(0)
        tag = quals + n_bases
        while tag < end:
            following = tag_end(data, tag, end)
            if following < 0:
                return _BAD_RECORD, record, n_rows, n_letters, reach
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
            tag = following

        start, last = _unclipped_ends(data, cigar, n_ops, pos)
        score = _own_score(data[quals : quals + n_bases])
        own = last if flag & REVERSE else start
        coordinate, bits = own, np.int64(IN_SINGLES)
        other_ref = other = np.int64(0)
        if flag & REVERSE:
            bits |= IS_REVERSE
        if paired:
            if mate_cigar < 0:
                return _NO_MC, record, n_rows, n_letters, reach
            if mate_score < 0:
                return _NO_MS, record, n_rows, n_letters, reach
            other_ref = get32(data, at + 24)
            mate_start, mate_last = _unclipped_mate_ends(data, mate_cigar, get32(data, at + 28))
            coordinate, other, key_bits = _pair_key(
                flag, ref, start, last, other_ref, mate_start, mate_last
            )
            bits |= HAS_MATE | IN_PAIRS | key_bits
            score += mate_score
        parts = 1 if coordinate == own else 2
        for part in range(parts):
            if parts == 2:
                bits = bits & ~IN_SINGLES if part == 0 else (bits & ~IN_PAIRS) | IN_SINGLES
                coordinate = coordinate if part == 0 else own
            reach = max(reach, pos - coordinate)
            rows.place[n_rows] = _place(ref, coordinate)
            rows.record[n_rows] = record
            rows.coordinate[n_rows] = coordinate
            rows.other_ref[n_rows] = other_ref
            rows.other_coordinate[n_rows] = other
            rows.bits[n_rows] = bits
            rows.library[n_rows] = library
            rows.barcode[n_rows] = barcode
            rows.score[n_rows] = score
            copy(data, at + FIXED_BYTES, rows.names, n_letters, name_len)
            n_letters += name_len
            n_rows += 1
            rows.name_offsets[n_rows] = n_letters
    return _OK, 0, n_rows, n_letters, reach


def _empty(n_rows: int, n_letters: int, reach: int = 0) -> Entries:
    """Return rows whose values are not set yet, in one block of recycled memory."""
    columns = [
        *((kind, n_rows) for kind in _COLUMNS),
        (np.uint8, n_letters),
        (np.int64, n_rows + 1),
    ]
    sizes = [-(-n * np.dtype(kind).itemsize // 8) * 8 for kind, n in columns]
    block = RECYCLER.empty(sum(sizes))
    ends = np.cumsum(sizes).tolist()
    arrays = [
        block[end - size : end].view(kind)[:n]
        for (kind, n), size, end in zip(columns, sizes, ends, strict=True)
    ]
    return Entries._make([*arrays, reach])


def _first_rows(rows: Entries, n_rows: int, n_letters: int, reach: int) -> Entries:
    """Return views of the rows that are filled."""
    columns = [column[:n_rows] for column in rows[:-3]]
    names, offsets = rows.names[:n_letters], rows.name_offsets[: n_rows + 1]
    return Entries._make([*columns, names, offsets, reach])


def find_entries(
    data: np.ndarray, starts: np.ndarray, libraries: Libraries, options: MarkOptions
) -> Entries:
    """Return the keys of the examined records of a range.

    Parameters
    ----------
    data, starts
        BAM records (uint8), and their positions in sorted order (int64).

    Raises
    ------
    InputFormatError
        If a record with a mapped mate lacks the mate's CIGAR (MC) or score (ms), or its lengths or
        tags are malformed.
    """
    rows = _empty(2 * len(starts), 2 * len(data))  # memory that is not written to is not taken
    barcode_tag = tag_key(options.barcode_tag) if options.barcode_tag else -1
    status, record, *sizes = _fill_entries(data, starts, libraries.columns, barcode_tag, rows)
    if status != _OK:
        raise _error(status, data, int(starts[record]))
    return _first_rows(rows, *sizes)


def _error(status: int, data: np.ndarray, at: int) -> InputFormatError:
    name = show(data[at + FIXED_BYTES : at + FIXED_BYTES + int(data[at + 12]) - 1].tobytes())
    if status == _BAD_RECORD:
        return InputFormatError(
            f"record of read {name}: its lengths or tags are malformed; export it again"
        )
    lacking = (
        "no tag MC, the CIGAR of the mate" if status == _NO_MC
        else "no tag ms, the score of the mate"
    )  # fmt: skip
    return InputFormatError(
        f"record of read {name}: its mate is mapped, and it has {lacking}, by which duplicates are "
        "found; add it with `samtools fixmate -m`, on records grouped by name, and sort again"
    )


# --- rows of one part of the genome ---


@core
def name_is_less(rows, a, b):
    """Return True if the name of row `a` comes before that of row `b`, compared by bytes."""
    at, end = rows.name_offsets[a], rows.name_offsets[a + 1]
    other, other_end = rows.name_offsets[b], rows.name_offsets[b + 1]
    while at < end and other < other_end and rows.names[at] == rows.names[other]:
        at += 1
        other += 1
    if at == end or other == other_end:
        return at == end and other < other_end
    return rows.names[at] < rows.names[other]


@driver
def _count_rows(rows, low, high):
    """Return the rows at places from `low` to before `high`, and the bytes of their names."""
    n = letters = np.int64(0)
    for i in range(len(rows.place)):
        if low <= rows.place[i] < high:
            n += 1
            letters += rows.name_offsets[i + 1] - rows.name_offsets[i]
    return n, letters


@driver
def _copy_rows(rows, low, high, joined, n, letters):
    """Copy those rows behind the `n` rows and `letters` bytes of names that are there."""
    for i in range(len(rows.place)):
        if low <= rows.place[i] < high:
            joined.place[n] = rows.place[i]
            joined.record[n] = rows.record[i]
            joined.coordinate[n] = rows.coordinate[i]
            joined.other_ref[n] = rows.other_ref[i]
            joined.other_coordinate[n] = rows.other_coordinate[i]
            joined.bits[n] = rows.bits[i]
            joined.library[n] = rows.library[i]
            joined.barcode[n] = rows.barcode[i]
            joined.score[n] = rows.score[i]
            start = rows.name_offsets[i]
            length = rows.name_offsets[i + 1] - start
            copy(rows.names, start, joined.names, letters, length)
            letters += length
            n += 1
            joined.name_offsets[n] = letters
    return n, letters


def bring_together(parts: Sequence[Entries], low: int, high: int) -> tuple[Entries, list[int]]:
    """Return a copy of the rows of parts with ``low <= place < high``, part after part.

    Returns
    -------
    The rows, and where those of each part end.
    """
    sizes = [_count_rows(part, low, high) for part in parts]
    joined = _empty(
        sum(int(n) for n, _ in sizes), sum(int(letters) for _, letters in sizes),
        max((part.reach for part in parts), default=0),
    )  # fmt: skip
    joined.name_offsets[0] = 0
    n = letters = 0
    ends = []
    for part in parts:
        n, letters = _copy_rows(part, low, high, joined, n, letters)
        ends.append(int(n))
    return joined, ends
