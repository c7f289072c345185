"""The order of a sorted file: keys of records, a stable radix sort, and records in bytes.

Records are ordered by contig, position and strand; those without a contig come last. Records of
equal keys keep the order of the input. That is the order of ``samtools sort``.
"""

from __future__ import annotations

import numpy as np

from mapper.cigar import H, S
from mapper.io.bam_writer import FIXED_BYTES
from mapper.jit.accelerate import core, driver
from mapper.jit.intrinsics import prefetch
from mapper.jit.simd import copy, get16, get32
from mapper.sam_flags import REVERSE

NO_CONTIG = (1 << 30) - 1
"""Contig number, in keys and places, of records without a contig."""

PLACE_BITS = 32
"""Bits of a place below the contig number."""

BEHIND_ALL = (1 << 63) - 1
"""Larger than any key."""

END_OF_ORDER = NO_CONTIG + 1 << PLACE_BITS
"""A place behind those of all records."""

_AHEAD = 4  # records to prefetch
_LINES = 6  # of a cache, of a record of 150 bases
_LINE_BYTES = 64
_BYTES_AHEAD = 2048  # to prefetch where the next record is known by the size of this one

_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS


@core
def place_of(ref_id, pos):
    """Return a position as one number that is ordered like the sorted file.

    Parameters
    ----------
    ref_id, pos
        Contig number and 0-based position; -1 for none. A position before the contig counts as -1.
    """
    contig = np.int64(ref_id) if ref_id >= 0 else np.int64(NO_CONTIG)
    return contig << PLACE_BITS | (max(np.int64(pos), np.int64(-1)) + 1)


@core
def sort_key(ref_id, pos, flag):
    """Return the key of a record: its place, then its strand."""
    return place_of(ref_id, pos) << 1 | ((np.int64(flag) & REVERSE) != 0)


@driver
def keys_of_columns(ref_id, ref_pos, flag):
    """Return the keys of a batch of records: int64."""
    keys = np.empty(len(flag), np.int64)
    for i in range(len(flag)):
        keys[i] = sort_key(ref_id[i], ref_pos[i], flag[i])
    return keys


@core
def _longer_clip(packed, so_far, longest):
    """Add an operation in front of an alignment; return the clipped bases so far, and the most.

    The first is -1 behind the clips.
    """
    length, op = packed >> 4, packed & 15
    if so_far < 0 or (op != S and op != H):
        return np.int64(-1), longest
    return so_far + length, max(longest, so_far + length)


@driver
def longest_clip(cigar_offsets, cigar_ops):
    """Return the length of the longest clip before an alignment, of all records of a batch."""
    longest = np.int64(0)
    for i in range(len(cigar_offsets) - 1):
        op, so_far = cigar_offsets[i], np.int64(0)
        while op < cigar_offsets[i + 1] and so_far >= 0:
            so_far, longest = _longer_clip(np.int64(cigar_ops[op]), so_far, longest)
            op += 1
    return longest


@driver
def longest_clip_in(data, starts):
    """Return the same of BAM records (uint8) at these offsets (int64).

    Of a CIGAR in a tag, whose place a clip of the whole read holds, at least as much.
    """
    longest = np.int64(0)
    for i in range(len(starts)):
        at = starts[i]
        cigar = at + FIXED_BYTES + data[at + 12]
        end = cigar + 4 * get16(data, at + 16)
        so_far = np.int64(0)
        while cigar < end and so_far >= 0:
            packed = np.int64(get32(data, cigar)) & 0xFFFFFFFF
            so_far, longest = _longer_clip(packed, so_far, longest)
            cigar += 4
    return longest


@core
def record_size(data, at):
    """Return the bytes of the record at `at`, those of its size included."""
    return get32(data, at) + 4


@core
def record_key(data, at):
    """Return the key of the record at `at`."""
    return sort_key(get32(data, at + 4), get32(data, at + 8), get16(data, at + 18))


@core
def prefetch_record(data, starts, i):
    """Bring a record that a loop over records in sorted order will come to into the cache.

    They lie in any order in some megabytes: 44 ns a record without it, 24 with it (counting).
    """
    if i + _AHEAD < len(starts):
        for line in range(_LINES):
            prefetch(data, starts[i + _AHEAD] + _LINE_BYTES * line)


@core
def prefetch_ahead(data, at, end):
    """Bring bytes that a loop from record to record will come to into the cache.

    Called with the bounds of each record: one size tells where the next one is, and the processor
    would wait for each.
    """
    while at < end:
        prefetch(data, at + _BYTES_AHEAD)
        at += _LINE_BYTES


@core
def find_next(data, at, end, starts, keys, n):
    """Write offset and key of each record in ``data[at:end]``, from row `n` on; return the end row.

    `starts` and `keys` are int64.
    """
    while at + FIXED_BYTES <= end and n < len(starts):
        size = record_size(data, at)
        prefetch_ahead(data, at, at + size)
        starts[n] = at
        keys[n] = record_key(data, at)
        at += size
        n += 1
    return n


@driver
def _find(data, starts, keys):
    return find_next(data, np.int64(0), np.int64(len(data)), starts, keys, np.int64(0))


def find_records(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return offset and key of each record in an array of whole records: int64."""
    starts, keys = np.empty((2, len(data) // FIXED_BYTES), np.int64)
    n = int(_find(data, starts, keys))
    return starts[:n], keys[:n]


@driver
def stable_order(keys):
    """Return the rows of int64 keys in ascending order, equal ones as they come: int64.

    A radix sort from the lowest digit up, of those digits in which keys differ.
    """
    n = len(keys)
    order = np.arange(n)
    if n < 2:
        return order
    least = keys[0]
    largest = keys[0]
    is_sorted = True
    for i in range(1, n):
        is_sorted &= keys[i] >= keys[i - 1]
        least = min(least, keys[i])
        largest = max(largest, keys[i])
    if is_sorted:
        return order
    digits = np.empty(n, np.int64)
    next_digits = np.empty(n, np.int64)
    next_order = np.empty(n, np.int64)
    for i in range(n):
        digits[i] = keys[i] - least
    left = largest - least
    firsts = np.empty(_DIGITS, np.int64)
    while left > 0:
        firsts[:] = 0
        for i in range(n):
            firsts[digits[i] & (_DIGITS - 1)] += 1
        total = np.int64(0)
        for digit in range(_DIGITS):
            count = firsts[digit]
            firsts[digit] = total
            total += count
        for i in range(n):
            digit = digits[i] & (_DIGITS - 1)
            to = firsts[digit]
            firsts[digit] = to + 1
            next_digits[to] = digits[i] >> _DIGIT_BITS
            next_order[to] = order[i]
        digits, next_digits = next_digits, digits
        order, next_order = next_order, order
        left >>= _DIGIT_BITS
    return order


@driver
def copy_records(data, starts, out):
    """Copy records in the order of their offsets; return the new ones in `out`, and their end."""
    new = np.empty(len(starts) + 1, np.int64)
    at = np.int64(0)
    for i in range(len(starts)):
        prefetch_record(data, starts, i)
        size = record_size(data, starts[i])
        copy(data, starts[i], out, at, size)
        new[i] = at
        at += size
    new[len(starts)] = at
    return new
