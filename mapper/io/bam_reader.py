"""BAM bytes to read columns: one pass of compiled code over a byte buffer.

Reads are taken as the instrument gave them: the record's sequence turned back where flag
0x10 says that it was reversed; secondary and supplementary records skipped, as they repeat
what a primary record holds. What other mappers found is not kept: tags that describe an
alignment (DROPPED_TAGS) are left out, all others go along.
"""

from __future__ import annotations

import numpy as np

from mapper.io.bam_bases import NOT_A_BASE, read_bases
from mapper.io.bam_writer import copy_bytes
from mapper.io.simd_text import copy_phred, copy_visible
from mapper.io.tags import tag_end, tag_key, turn_base_tag
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import RUN, get16, get32

OK = 0
MORE = 2  # the buffer ends inside a record or pair, the file does not
DONE = 3  # the file ends where a record would begin
CUT_OFF = 4  # the file ends inside a record
BAD_RECORD = 5  # its lengths contradict each other
BAD_NAME = 6
BAD_BASE = 7  # "=", which no reference is at hand for
BAD_QUALITY = 8
BAD_TAGS = 9
NO_SEQUENCE = 10  # an aligned record without one
UNKNOWN_READ_GROUP = 11
BAD_SEGMENT = 12  # a pair's read that is neither its first nor its last
NO_MATE = 13  # the next record is not the mate

PAIRED, REVERSE, FIRST, LAST, NOT_PRIMARY, QC_FAIL = 0x1, 0x10, 0x40, 0x80, 0x900, 0x200
_UNMAPPED = 0x4

DROPPED_TAGS = (
    # Those that fmwave writes itself, and the standard ones that describe an alignment.
    "NM", "MD", "AS", "XS", "SA", "XA", "MC", "MQ", "ms",
    "BQ", "CC", "CG", "CM", "CP", "H0", "H1", "H2", "HI", "IH", "NH", "PG", "TS", "UQ",
)  # fmt: skip


_DROPPED = np.array([tag_key(tag) for tag in DROPPED_TAGS], np.uint16)
_RG = tag_key("RG")

_FIXED = 36  # bytes of a record before its name, block_size included
_MAX_PHRED = 93
_NO_QUALITY = 255


@core
def find_record(data, at, end, ended):
    """Return the status of the record at `at`, and its end (or where the trouble is)."""
    if at >= end:
        return (DONE if ended else MORE), at
    unfinished = CUT_OFF if ended else MORE
    if at + 4 > end:
        return unfinished, at
    size = get32(data, at)
    if size < _FIXED - 4 + 2:
        return BAD_RECORD, at
    if at + _FIXED > end:
        return unfinished, at
    n_bases = get32(data, at + 20)
    if n_bases < 0:
        return BAD_RECORD, at
    name_len = np.int64(data[at + 12])
    used = _FIXED - 4 + name_len + 4 * get16(data, at + 16) + (n_bases + 1) // 2 + n_bases
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
    """Say whether the NUL-terminated text at `at` is one of the read groups."""
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
    """Copy the tags of a record that are kept; return (status, end of the copied)."""
    while at < end:
        following = tag_end(data, at, end)
        if following < 0:
            return BAD_TAGS, tag_at
        key = get16(data, at)
        dropped = False
        for other in _DROPPED:
            dropped |= key == other
        if key == _RG and (
            data[at + 2] != ord("Z") or not _known_read_group(data, at + 3, ids, id_offsets)
        ):
            return UNKNOWN_READ_GROUP, tag_at
        if not dropped:
            copied = tag_at
            tag_at = copy_bytes(tags, tag_at, data, at, following)
            if reverse and following - at - 4 == n_bases and data[at + 2] == ord("Z"):
                turn_base_tag(tags, copied, n_bases)
        at = following
    return OK, tag_at


@core
def _copy_name(data, at, length, names, name_at):
    """Write the name of `length` characters at `at`; say whether all are visible."""
    if length <= RUN and at + RUN <= len(data) and name_at + RUN <= len(names):
        return copy_visible(data, at, names, name_at) >= length  # and some bytes behind
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
    name = at + _FIXED
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
    given = data[start : start + n_bases]
    target = quals[base_offsets[row] : base_offsets[row] + n_bases]
    worst = np.uint8(0)
    if n_bases > 0 and given[0] == _NO_QUALITY:
        target[:] = _NO_QUALITY
    elif reverse:
        for i in range(n_bases):
            target[i] = given[n_bases - 1 - i]
            worst = max(worst, given[i])
    elif n_bases >= RUN:
        bad = np.int64(0)
        for run in range(n_bases // RUN + 1):
            first = min(run * RUN, n_bases - RUN)  # the last is what is left, and some again
            bad |= copy_phred(given, first, target, first)
        if bad:
            return BAD_QUALITY
    else:
        for i in range(n_bases):
            target[i] = given[i]
            worst = max(worst, given[i])
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
    """Say whether two records are the first and last read of one template, in any order."""
    flag_a, flag_b = get16(data, a + 18), get16(data, b + 18)
    if (flag_b & PAIRED) == 0 or ((flag_a ^ flag_b) & (FIRST | LAST)) != (FIRST | LAST):
        return False
    length = np.int64(data[a + 12])
    if data[b + 12] != length:
        return False
    name_a = data[a + _FIXED : a + _FIXED + length]
    name_b = data[b + _FIXED : b + _FIXED + length]
    differ = np.uint8(0)
    for i in range(length):
        differ = max(differ, np.uint8(name_a[i] ^ name_b[i]))
    return differ == 0


@driver
def whole_reads(data, all_left, most):
    """Find reads and pairs that lie in uncompressed BAM as a whole, by lengths and flags only.

    Parameters
    ----------
    data
        uint8; begins with a record.
    all_left
        Whether the file ends with it.
    most
        Reads that are enough.

    Returns
    -------
    Reads; pairs among them; records up to the last of them, skipped ones included; the position
    after them; what stopped the search: OK, MORE, DONE, or a record's trouble.
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
    """Turn records into the columns of a batch, until they end or something is wrong.

    Parameters
    ----------
    data, ended
        Uncompressed BAM (uint8), and whether records, or the file, end where that does.
    ids, id_offsets
        IDs of the header's read groups, flat (uint8, int64).
    bases, quals, base_offsets, names, name_offsets, flags, tags, tag_offsets
        Columns of a ReadBatch, to be written. Those of variable length have room for as many
        bytes as `data` has.

    Returns
    -------
    Status; position of the record that it is about; records before that one, skipped ones
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
