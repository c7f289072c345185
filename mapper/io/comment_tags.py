"""Convert comments of FASTQ and FASTA (``TAG:TYPE:VALUE``, separated by tabs) to BAM tags."""

from __future__ import annotations

import numpy as np

from mapper.io.tags import RG, VALUE_SIZE, is_dropped
from mapper.jit.accelerate import driver

_TAB, _LF, _CR, _SPACE, _COLON, _COMMA, _DOT = b"\t\n\r :,."
_MINUS, _PLUS, _ZERO, _E, _SMALL_E = b"-+0Ee"
_A, _B, _F, _H, _I, _UNSIGNED_I, _Z = b"ABfHiIZ"
_MAX_DIGITS = 18
_MAX_FLOAT32 = float(np.finfo(np.float32).max)

_LOWEST = np.zeros(256, np.int64)
_HIGHEST = np.full(256, -1, np.int64)
for _kind, _low, _high in (("c", -128, 127), ("C", 0, 255), ("s", -(1 << 15), (1 << 15) - 1),
                           ("S", 0, (1 << 16) - 1), ("i", -(1 << 31), (1 << 31) - 1),
                           ("I", 0, (1 << 32) - 1)):  # fmt: skip
    _LOWEST[ord(_kind)], _HIGHEST[ord(_kind)] = _low, _high


@driver
def _is_letter(c):
    return (c >= 65 and c <= 90) or (c >= 97 and c <= 122)


@driver
def _is_digit(c):
    return c >= _ZERO and c <= _ZERO + 9


@driver
def _is_hex_digit(c):
    return _is_digit(c) or (c >= 65 and c <= 70) or (c >= 97 and c <= 102)


@driver
def _read_int(text, at, end):
    """Return (number, position after it); the position is -1 if there is no number."""
    negative = at < end and text[at] == _MINUS
    if at < end and (text[at] == _MINUS or text[at] == _PLUS):
        at += 1
    start = at
    value = np.int64(0)
    while at < end and _is_digit(text[at]) and at - start < _MAX_DIGITS:
        value = 10 * value + np.int64(text[at] - _ZERO)
        at += 1
    if at == start:
        return value, -1
    return -value if negative else value, at


@driver
def _read_float(text, at, end):
    """Return (number, position after it); the position is -1 if there is no number.

    Correct to the float32 that is stored unless there are more than 15 digits or the exponent
    exceeds 22: then the last bit may differ.
    """
    negative = at < end and text[at] == _MINUS
    if at < end and (text[at] == _MINUS or text[at] == _PLUS):
        at += 1
    digits = np.float64(0)
    n_digits = 0
    exponent = 0
    fraction = False
    while at < end and (_is_digit(text[at]) or (text[at] == _DOT and not fraction)):
        if text[at] == _DOT:
            fraction = True
        else:
            digits = 10 * digits + np.float64(text[at] - _ZERO)
            n_digits += 1
            exponent -= fraction
        at += 1
    if n_digits == 0:
        return digits, -1
    if at < end and (text[at] == _E or text[at] == _SMALL_E):
        power, at = _read_int(text, at + 1, end)
        if at < 0 or abs(power) > 400:
            return digits, -1
        exponent += power
    if exponent < 0:
        digits /= 10.0 ** np.float64(-exponent)
    else:
        digits *= 10.0 ** np.float64(exponent)
    return -digits if negative else digits, at


@driver
def _put_bits(tags, at, value, size):
    for i in range(size):
        tags[at + i] = (value >> (8 * i)) & 0xFF
    return at + size


@driver
def _put_value(text, at, end, kind, tags, tag_at):
    """Convert one number of BAM type `kind`; return the positions after it in text and tags."""
    if kind == _F:
        real, at = _read_float(text, at, end)
        if not abs(real) <= _MAX_FLOAT32:
            return -1, tag_at
        bits = np.int64(np.float32(real).view(np.int32))
        return at, _put_bits(tags, tag_at, bits, 4)
    value, at = _read_int(text, at, end)
    if value < _LOWEST[kind] or value > _HIGHEST[kind]:
        return -1, tag_at
    return at, _put_bits(tags, tag_at, value, VALUE_SIZE[kind])


@driver
def _put_field(text, at, end, tags, tag_at):
    """Convert the field ``text[at:end]`` to a tag; return its end, or -1 for a malformed field."""
    if end - at < 5 or text[at + 2] != _COLON or text[at + 4] != _COLON:
        return -1
    if not _is_letter(text[at]) or not (_is_letter(text[at + 1]) or _is_digit(text[at + 1])):
        return -1
    kind = text[at + 3]
    tags[tag_at] = text[at]
    tags[tag_at + 1] = text[at + 1]
    tags[tag_at + 2] = kind
    kind_at = tag_at + 2
    at += 5
    tag_at += 3
    if kind == _A:
        if end - at != 1 or text[at] <= _SPACE or text[at] > 126:
            return -1
        tags[tag_at] = text[at]
        return tag_at + 1
    if kind == _Z or kind == _H:
        if kind == _H and (end - at) & 1:
            return -1
        while at < end:
            if text[at] < _SPACE or text[at] > 126 or (kind == _H and not _is_hex_digit(text[at])):
                return -1
            tags[tag_at] = text[at]
            at += 1
            tag_at += 1
        tags[tag_at] = 0
        return tag_at + 1
    if kind == _F:
        at, tag_at = _put_value(text, at, end, kind, tags, tag_at)
        return tag_at if at == end else -1
    if kind == _I:
        value, at = _read_int(text, at, end)
        if at != end or value < _LOWEST[_I] or value > _HIGHEST[_UNSIGNED_I]:
            return -1
        if value > _HIGHEST[_I]:
            tags[kind_at] = _UNSIGNED_I
        return _put_bits(tags, tag_at, value, 4)
    if kind != _B or at >= end:
        return -1
    kind = text[at]
    if _HIGHEST[kind] < 0 and kind != _F:
        return -1
    tags[tag_at] = kind
    count_at = tag_at + 1
    tag_at += 5
    at += 1
    n_values = 0
    while at < end:
        if text[at] != _COMMA:
            return -1
        at, tag_at = _put_value(text, at + 1, end, kind, tags, tag_at)
        if at < 0:
            return -1
        n_values += 1
    _put_bits(tags, count_at, np.int64(n_values), 4)
    return tag_at


@driver
def _is_there(text, start, at):
    """Return True if a field between `start` and the one at `at` has the same tag as this."""
    while start < at:
        if text[start] == text[at] and text[start + 1] == text[at + 1]:
            return True
        while text[start] != _TAB:
            start += 1
        start += 1
    return False


@driver
def put_comment(text, at, end, tags, tag_at):
    """Write the tags of a comment, but those that describe an alignment.

    Parameters
    ----------
    text, at, end
        The comment begins, with the white space before it, at `at`; its line ends before `end`.
    tags, tag_at
        Buffer for BAM-encoded tags, with room for twice the text and 8 bytes, and position in it.

    Returns
    -------
    End of the tags; position of the first field that is malformed, is there already (or RG, which
    only an option may give), -1 if there is none.
    """
    if at < end and (text[at] == _SPACE or text[at] == _TAB):
        at += 1
    first = at
    while at < end and text[at] != _LF and text[at] != _CR:
        stop = at
        while stop < end and text[stop] != _TAB and text[stop] != _LF and text[stop] != _CR:
            stop += 1
        written = _put_field(text, at, stop, tags, tag_at)
        if written < 0 or _is_there(text, first, at):
            return tag_at, at
        key = np.int64(tags[tag_at]) | np.int64(tags[tag_at + 1]) << 8
        if key == RG:
            return tag_at, at
        if not is_dropped(key):
            tag_at = written
        at = stop
        if at < end and text[at] == _TAB:
            at += 1
    return tag_at, -1
