"""Look up the library of a record: LB of the @RG line that its tag RG names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.io.header import header_field, header_lines
from mapper.io.tags import RG, tag_end
from mapper.jit.accelerate import core, driver
from mapper.jit.hashing import hash_bytes
from mapper.jit.simd import get16

UNKNOWN = "unknown"
"""Library of the read groups without LB and of the records without a read group, as in Picard."""


class LibraryColumns(NamedTuple):
    """Read groups of a header, for compiled code; a hash table that is probed linearly.

    With one library, all arrays are empty and records are not looked at.
    """

    ids: np.ndarray  # uint8: IDs of the read groups, one behind another
    id_offsets: np.ndarray  # int64, shape (n_groups + 1,)
    numbers: np.ndarray  # int32: library of each read group
    slots: np.ndarray  # int32: a read group, or -1; a power of two, at least twice the groups
    unknown: int  # library of records without a known read group


class Libraries:
    """Libraries of a header.

    Parameters
    ----------
    header
        Its text.

    Attributes
    ----------
    names
        Of the libraries, by number, in the order of the header; UNKNOWN comes last unless a line
        names it.
    columns
        LibraryColumns.
    """

    def __init__(self, header: str) -> None:
        lines = [line for line in header_lines(header) if line.startswith("@RG\t")]
        ids = [header_field(line, "ID").encode("utf-8", "surrogateescape") for line in lines]
        libraries = [header_field(line, "LB") or UNKNOWN for line in lines]
        self.names = tuple(dict.fromkeys([*libraries, UNKNOWN]))
        if len(self.names) == 1:
            ids, libraries = [], []
        n_slots = 1 << (2 * len(ids)).bit_length() if ids else 0
        numbers = [self.names.index(library) for library in libraries]
        self.columns = LibraryColumns(
            np.frombuffer(bytearray(b"".join(ids)), np.uint8),
            np.cumsum([0, *(len(name) for name in ids)], dtype=np.int64),
            np.array(numbers, np.int32),
            np.full(n_slots, -1, np.int32),
            self.names.index(UNKNOWN),
        )
        if ids:
            _fill_slots(self.columns)


@driver
def _fill_slots(columns):
    offsets, slots = columns.id_offsets, columns.slots
    mask = np.uint64(len(slots) - 1)
    for group in range(len(columns.numbers)):
        length = offsets[group + 1] - offsets[group]
        slot = np.int64(hash_bytes(columns.ids, offsets[group], length, 1) & mask)
        while slots[slot] >= 0:
            slot = np.int64(np.uint64(slot + 1) & mask)
        slots[slot] = group


@core
def library_of_group(data, at, columns):
    """Return the library of the read group whose NUL-terminated ID is at `at`."""
    length = 0
    while data[at + length] != 0:
        length += 1
    mask = np.uint64(len(columns.slots) - 1)
    slot = np.int64(hash_bytes(data, at, length, 1) & mask)
    while columns.slots[slot] >= 0:
        group = columns.slots[slot]
        start = columns.id_offsets[group]
        if columns.id_offsets[group + 1] - start == length:
            i = 0
            while i < length and data[at + i] == columns.ids[start + i]:
                i += 1
            if i == length:
                return np.int64(columns.numbers[group])
        slot = np.int64(np.uint64(slot + 1) & mask)
    return np.int64(columns.unknown)


@core
def library_of(data, tags, end, columns):
    """Return the library of the record with tags ``data[tags:end]``."""
    if len(columns.slots) == 0:
        return np.int64(0)
    while tags < end:
        following = tag_end(data, tags, end)
        if following < 0:
            break
        if get16(data, tags) == RG and data[tags + 2] == ord("Z"):
            return library_of_group(data, tags + 3, columns)
        tags = following
    return np.int64(columns.unknown)
