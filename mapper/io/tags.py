"""Parse BAM-encoded tags, reverse those that follow the orientation of SEQ, and print numbers."""

from __future__ import annotations

import numpy as np

from mapper.dna import COMPLEMENT, LETTERS
from mapper.io.simd_text import before_unprintable
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import VECTOR, get16, get32

DROPPED_TAGS = (
    "NM", "MD", "AS", "XS", "SA", "XA", "MC", "MQ", "ms",
    "tp", "cm", "de", "cs", "ds",
    "BQ", "CC", "CG", "CM", "CP", "H0", "H1", "H2", "HI", "IH", "NH", "PG", "TS", "UQ",
)  # fmt: skip
"""Tags that are not copied from the input: fmwave writes them itself, or they describe the input's
alignment."""

DUPLICATE_TAGS = ("dt", "do")
"""Tags by which ``samtools markdup`` describes a duplicate. They are dropped from reads with flag
0x400 only: elsewhere ``dt`` may be PacBio's DeletionTag."""


def tag_key(tag: str) -> int:
    """Return the two letters of a tag as one number."""
    return ord(tag[0]) | ord(tag[1]) << 8


RG = tag_key("RG")
_DROPPED = np.array([tag_key(tag) for tag in DROPPED_TAGS], np.uint16)
_DT, _DO = (tag_key(tag) for tag in DUPLICATE_TAGS)
_OQ, _U2, _E2 = (tag_key(tag) for tag in ("OQ", "U2", "E2"))

_COMPLEMENT_OF_ASCII = np.arange(256).astype(np.uint8)
for _a, _b in zip(LETTERS, COMPLEMENT, strict=True):
    _COMPLEMENT_OF_ASCII[_a] = LETTERS[_b]

VALUE_SIZE = np.zeros(256, np.int64)
"""Bytes of a tag's value by its type; 0 for types of variable length."""
for _kind, _size in (("A", 1), ("c", 1), ("C", 1), ("s", 2), ("S", 2), ("i", 4), ("I", 4),
                     ("f", 4)):  # fmt: skip
    VALUE_SIZE[ord(_kind)] = _size
_Z, _H, _B, _A, _F = b"ZHBAf"
_MINUS, _ZERO = b"-0"


@core
def tag_end(data, at, end):
    """Return the position after the tag at `at`, or -1 if it is malformed or exceeds `end`."""
    if at + 4 > end:
        return -1
    kind = data[at + 2]
    at += 3
    size = VALUE_SIZE[kind]
    if size > 0:
        return at + size if at + size <= end else -1
    if kind == _Z or kind == _H:
        n_before = np.int64(VECTOR)
        while n_before == VECTOR and at + VECTOR <= len(data):  # may look beyond `end`
            n_before = before_unprintable(data, at)
            at += n_before
        while at < end and data[at] != 0:
            if data[at] < 32 or data[at] > 126:
                return -1
            at += 1
        return at + 1 if at < end else -1
    if kind != _B or at + 5 > end:
        return -1
    size = VALUE_SIZE[data[at]]
    count = get32(data, at + 1)
    if size == 0 or data[at] == _A or count < 0 or count > (end - at - 5) // size:
        return -1
    return at + 5 + size * count


@driver
def are_tags_whole(tags, offsets):
    """Return True if each row of ``tags`` (flat, with offsets) holds whole BAM-encoded tags."""
    at = np.int64(offsets[0])
    if at != 0:
        return False
    for row in range(len(offsets) - 1):
        end = offsets[row + 1]
        if end < at or end > len(tags):
            return False
        while at < end:
            at = np.int64(tag_end(tags, at, end))
            if at < 0:
                return False
    return True


@core
def is_dropped(key):
    """Return True for the key of one of DROPPED_TAGS."""
    dropped = False
    for other in _DROPPED:
        dropped |= key == other
    return dropped


@core
def is_of_duplicate(key):
    """Return True for the key of one of DUPLICATE_TAGS."""
    return key == _DT or key == _DO


@core
def reverse_base_tag(tags, at, n_bases):
    """Reverse, in place, the tag at `at` if it has one character for each base of SEQ."""
    key = get16(tags, at)
    if key == _OQ or key == _U2 or key == _E2:
        start = at + 3
        for i in range((n_bases + 1) >> 1):
            j = n_bases - 1 - i
            a, b = tags[start + i], tags[start + j]
            if key == _E2:
                a, b = _COMPLEMENT_OF_ASCII[a], _COMPLEMENT_OF_ASCII[b]
            tags[start + i], tags[start + j] = b, a


@core
def get_number(data, at, kind):
    """Return the integer of BAM type `kind` (c C s S i I) at `at`."""
    size = VALUE_SIZE[kind]
    if size == 4:
        value = get32(data, at) & 0xFFFFFFFF
    elif size == 2:
        value = get16(data, at)
    else:
        value = np.int64(data[at])
    if kind >= 97:  # lower case: signed
        value -= (value >> (8 * size - 1)) << (8 * size)
    return value


@core
def find_tag(tags, start, end, wanted):
    """Return where the first tag of key `wanted` begins in ``tags[start:end]``, or -1."""
    at = np.int64(start)
    while at < end:
        if get16(tags, at) == wanted:
            return at
        at = np.int64(tag_end(tags, at, end))
    return np.int64(-1)


@core
def integer_tag(tags, start, end, wanted, missing):
    """Return the value of the integer tag of key `wanted` in ``tags[start:end]``, or `missing`."""
    at = start
    while at < end:
        kind = tags[at + 2]
        if get16(tags, at) == wanted and VALUE_SIZE[kind] > 0 and kind != _A and kind != _F:
            return get_number(tags, at + 3, kind)
        at = tag_end(tags, at, end)
    return np.int64(missing)


@core
def put_int(out, at, value):
    """Write an integer in decimal; return the position after it."""
    value = np.int64(value)
    if value < 0:
        out[at] = _MINUS
        at += 1
        value = -value
    rest, ten = np.uint64(value), np.uint64(10)  # unsigned division takes fewer instructions
    n_digits = 1
    limit = ten
    while rest >= limit:
        n_digits += 1
        limit *= ten
    for i in range(n_digits - 1, -1, -1):
        higher = rest // ten
        out[at + i] = np.uint64(_ZERO) + (rest - higher * ten)
        rest = higher
    return at + n_digits


@driver
def _count_floats(tags):
    n = 0
    at = 0
    while at < len(tags):
        kind = tags[at + 2]
        if kind == _F:
            n += 1
        elif kind == _B and tags[at + 3] == _F:
            n += get32(tags, at + 4)
        at = tag_end(tags, at, len(tags))
    return n


@driver
def _copy_floats(tags, raw):
    n = 0
    at = 0
    while at < len(tags):
        kind = tags[at + 2]
        count = 0
        start = at + 3
        if kind == _F:
            count = 1
        elif kind == _B and tags[at + 3] == _F:
            count = get32(tags, at + 4)
            start = at + 8
        for i in range(4 * count):
            raw[4 * n + i] = tags[start + i]
        n += count
        at = tag_end(tags, at, len(tags))


def float_texts(tags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return every floating-point number in BAM-encoded tags as SAM text.

    Returns
    -------
    The texts in the order of the numbers, flat (uint8), and their offsets (int64).
    """
    raw = np.empty(4 * _count_floats(tags), np.uint8)
    _copy_floats(tags, raw)
    values, which = np.unique(raw.view("<i4"), return_inverse=True)  # as bits: NaN differs from NaN
    texts = [f"{value:g}".encode() for value in values.view("<f4").tolist()]
    offsets = np.zeros(len(which) + 1, np.int64)
    np.cumsum(np.array([len(text) for text in texts], np.int64)[which], out=offsets[1:])
    flat = b"".join(texts[i] for i in which.tolist())
    return np.frombuffer(bytearray(flat), np.uint8), offsets
