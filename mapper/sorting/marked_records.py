"""Mark the duplicates among records, and follow the names of duplicates.

``samtools markdup -S`` marks secondary, supplementary and unmapped records, too, if a primary
record of their name is a duplicate and says that there may be such records: by a tag SA or XA, or
by the flag of an unmapped mate. These names are known when all records have been decided: a first
pass collects them (:func:`find_names`, :func:`merge_names`), a second looks them up
(:func:`mark_others`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapper.io.bam_writer import FIXED_BYTES
from mapper.io.tags import tag_end, tag_key
from mapper.jit.accelerate import core, driver
from mapper.jit.hashing import hash_bytes, splitmix64
from mapper.jit.simd import copy, get16, get32, put16, put32
from mapper.parallel.buffers import RECYCLER
from mapper.sam_flags import DUPLICATE as DUPLICATE_FLAG
from mapper.sam_flags import MATE_UNMAPPED, NOT_PRIMARY, UNMAPPED
from mapper.sorting.duplicate_keys import is_examined, tags_at
from mapper.sorting.duplicates import DUPLICATE
from mapper.sorting.optical import OPTICAL
from mapper.sorting.options import MarkOptions
from mapper.sorting.ranges import Records
from mapper.sorting.record_order import prefetch_record

_DT, _DO, _SA, _XA = (tag_key(tag) for tag in ("dt", "do", "SA", "XA"))
_DT_BYTES = 6  # dtZSQ and NUL


# --- marks ---


@driver
def set_flags(data, starts, verdicts):
    """Set the flag of duplicates, in place.

    Parameters
    ----------
    data, starts
        BAM records (uint8) and their offsets (int64).
    verdicts
        Bits DUPLICATE and OPTICAL of each record (uint8).
    """
    for i in range(len(starts)):
        if verdicts[i] & DUPLICATE:
            put16(data, starts[i] + 18, get16(data, starts[i] + 18) | DUPLICATE_FLAG)


@core
def _put_type(out, at, is_optical):
    """Write the tag dt, the type of a duplicate: SQ from sequencing, LB from the library."""
    put16(out, at, _DT)
    out[at + 2] = ord("Z")
    put16(out, at + 3, (ord("S") | ord("Q") << 8) if is_optical else (ord("L") | ord("B") << 8))
    out[at + 5] = 0
    return at + _DT_BYTES


@core
def _copy_with_tags(data, at, out, to, is_cleared, is_typed, is_optical):
    """Copy a record without dt and do if it is cleared, and with a new dt if it is typed."""
    end = at + 4 + get32(data, at)
    tag = tags_at(data, at)
    copy(data, at, out, to, tag - at)
    written = to + tag - at
    has_type = False
    while tag < end:
        following = tag_end(data, tag, end)
        if following < 0:
            following = np.int64(end)  # malformed, which is not for this function to say
        key = get16(data, tag)
        if is_typed and not is_cleared and key == _DT:
            written = _put_type(out, written, is_optical)
            has_type = True
        elif not (is_cleared and (key == _DT or key == _DO)):
            copy(data, tag, out, written, following - tag)
            written += following - tag
        tag = following
    if is_typed and not has_type:
        written = _put_type(out, written, is_optical)
    put32(out, to, written - to - 4)
    return written


@driver
def _copy_marked(data, starts, verdicts, has_types, remove, clear, out, out_starts):
    to = np.int64(0)
    n = 0
    for i in range(len(starts)):
        prefetch_record(data, starts, i)
        at = starts[i]
        size = 4 + get32(data, at)
        flag = get16(data, at + 18)
        is_duplicate = (verdicts[i] & DUPLICATE) != 0
        is_cleared = clear and (flag & DUPLICATE_FLAG) != 0
        if is_cleared:
            flag &= ~DUPLICATE_FLAG
        if is_duplicate:
            flag |= DUPLICATE_FLAG
        if remove and flag & DUPLICATE_FLAG:
            continue
        out_starts[n] = to
        n += 1
        start = to
        if is_cleared or (is_duplicate and has_types):
            to = _copy_with_tags(
                data, at, out, to, is_cleared, is_duplicate and has_types,
                (verdicts[i] & OPTICAL) != 0,
            )  # fmt: skip
        else:
            copy(data, at, out, to, size)
            to += size
        put16(out, start + 18, flag)
    return to, n


def copy_marked(records: Records, verdicts: np.ndarray, options: MarkOptions) -> Records:
    """Copy records with the duplicates among them marked, where that changes sizes.

    Parameters
    ----------
    verdicts
        Bits DUPLICATE and OPTICAL of each record (uint8).

    Returns
    -------
    The records that stay.

    Notes
    -----
    A marked record has the flag 0x400 and, with an optical distance, the tag dt: SQ for optical
    duplicates, LB for others. With ``clear`` records that were marked before lose flag, dt and do.
    ``remove`` leaves all out that have the flag then.
    """
    data, starts = records
    has_types = options.optical_distance > 0
    room = _DT_BYTES * int(np.count_nonzero(verdicts)) if has_types else 0
    out = RECYCLER.empty(len(data) + room)
    out_starts = np.empty(len(starts), np.int64)
    size, n = _copy_marked(
        data, starts, verdicts, has_types, options.remove, options.clear, out, out_starts
    )
    return Records(out[:size], out_starts[:n])


# --- other records of a duplicate's name ---


class DuplicateNames(NamedTuple):
    """Hashes of duplicates' names and libraries, of 128 bits, sorted, each once."""

    high: np.ndarray  # uint64
    low: np.ndarray  # uint64
    optical: np.ndarray  # bool: any of its duplicates is optical


@core
def _name_hash(data, at, library, key):
    length = np.int64(data[at + 12]) - 1
    return splitmix64(hash_bytes(data, at + FIXED_BYTES, length, key) ^ np.uint64(library), key)


@driver
def _fill_names(data, starts, libraries, verdicts, names):
    n = 0
    for i in range(len(starts)):
        at = starts[i]
        flag = get16(data, at + 18)
        if not verdicts[i] & DUPLICATE or not is_examined(flag):
            continue
        is_followed = (flag & MATE_UNMAPPED) != 0
        tag, end = tags_at(data, at), at + 4 + get32(data, at)
        while not is_followed and tag < end:
            key = get16(data, tag)
            is_followed = key == _SA or key == _XA
            tag = tag_end(data, tag, end)
            if tag < 0:
                break
        if is_followed:
            names.high[n] = _name_hash(data, at, libraries[i], 1)
            names.low[n] = _name_hash(data, at, libraries[i], 2)
            names.optical[n] = (verdicts[i] & OPTICAL) != 0
            n += 1
    return n


def find_names(
    data: np.ndarray, starts: np.ndarray, libraries: np.ndarray, verdicts: np.ndarray
) -> DuplicateNames:
    """Return the names of a range's duplicates that may have other records.

    `libraries` are those of the records, int32.
    """
    room = int(np.count_nonzero(verdicts))
    names = DuplicateNames(
        np.empty(room, np.uint64), np.empty(room, np.uint64), np.empty(room, np.bool_)
    )
    n = _fill_names(data, starts, libraries, verdicts, names)
    return merge_names([DuplicateNames(*(column[:n] for column in names))])


def merge_names(parts: Sequence[DuplicateNames]) -> DuplicateNames:
    """Return the names of all parts, one or more."""
    high, low, optical = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((~optical, low, high))  # the first of equal ones is optical if any is
    high, low, optical = high[order], low[order], optical[order]
    is_new = np.ones(len(high), np.bool_)
    is_new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return DuplicateNames(high[is_new], low[is_new], optical[is_new])


@core
def _find(names, high, low):
    """Return the index of a name, or -1."""
    first, end = np.int64(0), np.int64(len(names.high))
    while first < end:
        middle = (first + end) >> 1
        if names.high[middle] < high or (names.high[middle] == high and names.low[middle] < low):
            first = middle + 1
        else:
            end = middle
    if first < len(names.high) and names.high[first] == high and names.low[first] == low:
        return first
    return np.int64(-1)


@driver
def _mark_others(data, starts, libraries, names, verdicts):
    for i in range(len(starts)):
        at = starts[i]
        if get16(data, at + 18) & (UNMAPPED | NOT_PRIMARY):
            high = _name_hash(data, at, libraries[i], 1)
            low = _name_hash(data, at, libraries[i], 2)
            found = _find(names, high, low)
            if found >= 0:
                verdicts[i] |= DUPLICATE
                if names.optical[found]:
                    verdicts[i] |= OPTICAL


def mark_others(
    data: np.ndarray, starts: np.ndarray, libraries: np.ndarray, names: DuplicateNames,
    verdicts: np.ndarray,
) -> None:  # fmt: skip
    """Mark the secondary, supplementary and unmapped records of a range with one of some names.

    Their verdicts are changed in place. They are optical if any duplicate of their name is.
    """
    if len(names.high):
        _mark_others(data, starts, libraries, names, verdicts)
