"""Find the records of templates in uncompressed BAM: single reads, pairs and orphans.

An *orphan* is a primary record that is flagged paired and has no mate in the file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.io.bam_writer import FIXED_BYTES
from mapper.io.simd_text import before_difference
from mapper.jit.accelerate import core, driver
from mapper.jit.hashing import splitmix64
from mapper.jit.simd import VECTOR, get16, get32
from mapper.sam_flags import FIRST, LAST, NOT_PRIMARY, PAIRED

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
REPEATED = 14  # a further record of a read
APART = 15  # an orphan whose mate is an orphan, too
AT_NAME = 16  # begins as only header lines of SAM do

MAP_ORPHANS, SKIP_ORPHANS, REFUSE_ORPHANS = range(3)
ORPHANS = {"map": MAP_ORPHANS, "skip": SKIP_ORPHANS, "refuse": REFUSE_ORPHANS}
"""What to do with a record that is flagged paired and stands without its mate."""

NAME_SLOTS = 1 << 21  # 16 MB, of which a file without orphans touches nothing
"""Slots of the table of orphans' names, half of which are used. The names of the first million
suffice: where mates are apart in the whole file, some mate of theirs soon comes."""

NO_RECORD = np.zeros(0, np.uint8)

SINGLE, PAIR, ORPHAN = range(3)
"""Kinds of templates."""


# --- records ---


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
def next_primary(data, at, end, ended, n_records):
    """Skip to the next primary record; return (status, start, end, records passed)."""
    while True:
        status, record_end = find_record(data, at, end, ended)
        if status != OK or (get16(data, at + 18) & NOT_PRIMARY) == 0:
            return status, at, record_end, n_records
        n_records += 1
        at = record_end


# --- templates ---


@core
def _same_name(data, a, other, b):
    """Return True if the records ``data[a:]`` and ``other[b:]`` have one name."""
    length = np.int64(data[a + 12])
    if other[b + 12] != length:
        return False
    a += FIXED_BYTES
    b += FIXED_BYTES
    if length <= VECTOR and a + VECTOR <= len(data) and b + VECTOR <= len(other):
        return before_difference(data, a, other, b) >= length
    differ = np.uint8(0)
    for i in range(length):
        differ |= np.uint8(data[a + i] ^ other[b + i])
    return differ == 0


@core
def next_template(data, at, end, ended, n_records, orphans, previous, earlier):
    """Find the record or records of the next single read, pair or orphan.

    Parameters
    ----------
    n_records
        Records before `at`.
    orphans
        MAP_ORPHANS, SKIP_ORPHANS or REFUSE_ORPHANS: only with the last an orphan is an error.
    previous
        Position of the last pair; -1 if there is none in `data`.
    earlier
        The last pair before `data`: a copy of its first record, empty if there is none.

    Returns
    -------
    Status; kind; start and end of the first record, and the records before it; the same of the
    second record of a pair (of others: of the only record). With an error, the first of them is the
    record that it concerns.
    """
    status, first, first_end, n_first = next_primary(data, at, end, ended, n_records)
    only = first, first_end, n_first, first, first_end, n_first
    if status != OK:
        return status, SINGLE, *only
    flag = get16(data, first + 18)
    if (flag & PAIRED) == 0:
        return OK, SINGLE, *only
    if (flag & (FIRST | LAST)) in (0, FIRST | LAST):
        return BAD_SEGMENT, ORPHAN, *only
    if previous >= 0:
        repeated = _same_name(data, first, data, previous)
    else:
        repeated = len(earlier) > 0 and _same_name(data, first, earlier, 0)
    if repeated:
        return REPEATED, ORPHAN, *only
    status, second, second_end, n_second = next_primary(data, first_end, end, ended, n_first + 1)
    alone = status == DONE
    if status == OK:
        other = get16(data, second + 18)
        alone = (other & PAIRED) == 0 or not _same_name(data, first, data, second)
        if not alone:
            if (other & (FIRST | LAST)) in (0, FIRST | LAST):
                status = BAD_SEGMENT
            elif ((flag ^ other) & FIRST) == 0:
                status = REPEATED
    if alone:
        return (NO_MATE if orphans == REFUSE_ORPHANS else OK), ORPHAN, *only
    if status != OK:
        return status, PAIR, second, second_end, n_second, second, second_end, n_second
    return OK, PAIR, first, first_end, n_first, second, second_end, n_second


@core
def _seen_before(data, at, seen, n_seen):
    """Look up a record's name in a table, and enter it while the table has room.

    Parameters
    ----------
    seen
        uint64: a hash of each name, in the first free slot from that which the hash gives; 0 in a
        free slot. The number of slots is a power of two.
    n_seen
        Names that have been looked up before.

    Returns
    -------
    True if it was there; but for one in 10^13 of other names, it then is the same name.
    """
    name = np.uint64(0)
    for i in range(at + FIXED_BYTES, at + FIXED_BYTES + np.int64(data[at + 12])):
        name = splitmix64(name, data[i])
    name |= np.uint64(1)
    mask = np.int64(len(seen) - 1)
    slot = np.int64(name >> np.uint64(1)) & mask
    while seen[slot] != 0:
        if seen[slot] == name:
            return True
        slot = (slot + 1) & mask
    if n_seen < len(seen) // 2:
        seen[slot] = name
    return False


@driver
def enter_names(names, seen):
    """Enter hashes of names (uint64) into an empty table; see :func:`_seen_before`."""
    mask = np.int64(len(seen) - 1)
    for i in range(len(names)):
        slot = np.int64(names[i] >> np.uint64(1)) & mask
        while seen[slot] != 0:
            slot = (slot + 1) & mask
        seen[slot] = names[i]


class Found(NamedTuple):
    """What :func:`whole_reads` found at the start of the bytes."""

    n_reads: int
    n_pairs: int
    n_orphans: int
    n_records: int  # up to the last record of these, skipped ones included
    end: int  # position after it
    status: int  # why the search ended: OK, MORE, DONE, or that of a bad record ...
    bad: int  # ... its position ...
    n_before: int  # ... and the records before it
    previous: int  # position of the last pair, -1 for none


@driver
def whole_reads(data, all_left, most, orphans, earlier, seen, n_seen):
    """Find the whole reads and pairs at the start of uncompressed BAM, by names and flags only.

    Parameters
    ----------
    data
        uint8; begins with a record.
    all_left
        True if the file ends with it.
    most
        Upper limit of the reads to find, which a pair may exceed by one.
    orphans, earlier
        As for :func:`next_template`. Orphans that are skipped are no reads.
    seen, n_seen
        Names of earlier orphans (:func:`_seen_before`), and their number; an orphan with the name
        of an earlier one is an error (APART).

    Returns
    -------
    The values of :class:`Found`.
    """
    end = len(data)
    n_reads = n_pairs = n_orphans = n_records = at = 0
    previous = np.int64(-1)
    while n_reads < most:
        status, kind, first, _, n_first, _, following, n_second = next_template(
            data, at, end, all_left, n_records, orphans, previous, earlier
        )
        if status == OK and kind == ORPHAN and _seen_before(data, first, seen, n_seen + n_orphans):
            status = APART
        if status != OK:
            return (
                n_reads, n_pairs, n_orphans, n_records, at, status, first, n_first, previous,
            )  # fmt: skip
        if kind == PAIR:
            n_reads += 2
            n_pairs += 1
        elif kind == ORPHAN:
            n_orphans += 1
            n_reads += orphans != SKIP_ORPHANS
        else:
            n_reads += 1
        if kind == PAIR:
            previous = np.int64(first)
        n_records = n_second + 1
        at = following
    return n_reads, n_pairs, n_orphans, n_records, at, OK, at, n_records, previous
