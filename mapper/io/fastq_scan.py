"""FASTQ text to read columns: one pass of compiled code over a byte buffer.

The sequence loop finds the end of its line as the first character that is no base, so
the text is not scanned for newlines beforehand; the quality line must then have the
same length, which makes its loop a fixed-length one that the compiler vectorises.
"""

from __future__ import annotations

import numpy as np

from mapper.accelerate import driver
from mapper.dna import CODE_OF_ASCII, NOT_A_BASE

MAX_NAME = 254
"""Longest read name, without ``/1``: BAM has one byte for its length, NUL included."""

MIN_COST = 32
"""Bases that a read counts for at least, so that empty reads cannot fill the memory."""

SINGLE = 0
TWO_FILES = 1
INTERLEAVED = 2

OK = 0
FULL = 1  # the batch has reached its limit
MORE = 2  # the buffer ends inside a record, the file does not
DONE = 3  # the file ends where a record would begin
BLANK = 4  # an empty line where a record would begin
NO_AT = 5
BAD_NAME = 6
LONG_NAME = 7
BAD_BASE = 8
NO_PLUS = 9
BAD_QUALITY = 10
QUALITY_LENGTH = 11
CUT_OFF = 12  # the file ends inside a record
MATES_DIFFER = 13
BAD_COMMENT = 14  # a field of a comment that is no tag

_TAB, _LF, _CR, _SPACE = 9, 10, 13, 32
_AT, _PLUS, _SLASH, _DOT, _UNDERSCORE, _ONE, _TWO = (ord(c) for c in "@+/._12")
_MAX_PHRED = 93


@driver
def skip_line_end(text, at, end):
    """Return the position after the LF or CRLF at `at`, -1 if `end` hides it, -2 if none."""
    if at < end and text[at] == _CR:
        at += 1
        if at < end and text[at] != _LF:
            return -2
    if at >= end:
        return -1
    return at + 1 if text[at] == _LF else -2


@driver
def skip_line(text, at, end):
    """Return the position after the next LF, or -1 if there is none before `end`."""
    while at < end:
        if text[at] == _LF:
            return at + 1
        at += 1
    return -1


@driver
def read_name(text, at, end, names, name_at):
    """Copy a name up to the first white space; return (status, where, end of the name)."""
    name_end = name_at
    while at < end and text[at] > _SPACE:
        if text[at] > 126:
            return BAD_NAME, at, name_end
        if name_end - name_at >= MAX_NAME + 2:
            return LONG_NAME, at, name_end
        names[name_end] = text[at]
        name_end += 1
        at += 1
    if at >= end:
        return OK, at, name_end  # the name may go on; the caller will find no end of the line
    if text[at] not in (_SPACE, _TAB, _LF, _CR):
        return BAD_NAME, at, name_end
    if text[at] == _CR and at + 1 < end and text[at + 1] != _LF:
        return BAD_NAME, at, name_end
    if (
        name_end - name_at >= 2
        and names[name_end - 2] == _SLASH
        and (names[name_end - 1] == _ONE or names[name_end - 1] == _TWO)
    ):
        name_end -= 2
    if name_end - name_at > MAX_NAME:
        return LONG_NAME, at, name_end
    return OK, at, name_end


@driver
def _read_quality(text, at, end, ended, quals, base_at, n_bases):
    """Copy one Phred value per base; return (status, position after the line, or where)."""
    if at + n_bases > end:
        if not ended:
            return MORE, at
        short = skip_line(text, at, end) >= 0
        return (QUALITY_LENGTH if short else CUT_OFF), at
    source = text[at : at + n_bases]
    target = quals[base_at : base_at + n_bases]
    worst = np.uint8(0)
    for i in range(n_bases):
        # Characters below "!" wrap round to large values: one comparison finds both kinds.
        phred = np.uint8(source[i] - np.uint8(33))
        target[i] = phred
        worst = max(worst, phred)
    if worst > _MAX_PHRED:
        i = 0
        while target[i] <= _MAX_PHRED:
            i += 1
        if source[i] == _LF or source[i] == _CR:
            return QUALITY_LENGTH, at
        return BAD_QUALITY, at + i
    line_end = skip_line_end(text, at + n_bases, end)
    if line_end == -1:
        return (OK, end) if ended else (MORE, at)
    if line_end == -2:
        c = text[at + n_bases]
        if c <= _SPACE or c > 126:
            return BAD_QUALITY, at + n_bases
        return QUALITY_LENGTH, at
    return OK, line_end


@driver
def read_record(text, at, end, ended, bases, quals, base_at, names, name_at):
    """Parse the record at `at`.

    Returns
    -------
    Status; position after the record (or of the trouble); end of its bases; end of its
    name; position after the name in `text`.
    """
    unfinished = CUT_OFF if ended else MORE
    base_end = base_at
    name_end = name_at
    if at >= end:
        return (DONE if ended else MORE), at, base_end, name_end, at
    if text[at] != _AT:
        blank = text[at] == _LF or text[at] == _CR
        return (BLANK if blank else NO_AT), at, base_end, name_end, at
    status, at, name_end = read_name(text, at + 1, end, names, name_at)
    if status != OK:
        return status, at, base_end, name_end, at
    comment = at
    at = skip_line(text, at, end)
    if at < 0:
        return unfinished, end, base_end, name_end, comment

    source = text[at:end]
    target = bases[base_at:]
    n_bases = 0
    while n_bases < len(source):
        code = CODE_OF_ASCII[source[n_bases]]
        if code == NOT_A_BASE:
            break
        target[n_bases] = code
        n_bases += 1
    at += n_bases
    base_end = base_at + n_bases
    line_end = skip_line_end(text, at, end)
    if line_end == -1:
        return unfinished, end, base_end, name_end, comment
    if line_end == -2:
        return BAD_BASE, at, base_end, name_end, comment

    at = line_end
    if at >= end:
        return unfinished, end, base_end, name_end, comment
    if text[at] != _PLUS:
        return NO_PLUS, at, base_end, name_end, comment
    at = skip_line(text, at, end)
    if at < 0:
        return unfinished, end, base_end, name_end, comment
    status, at = _read_quality(text, at, end, ended, quals, base_at, n_bases)
    return status, at, base_end, name_end, comment
