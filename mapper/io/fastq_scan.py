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

_TAB, _LF, _CR, _SPACE = 9, 10, 13, 32
_AT, _PLUS, _SLASH, _DOT, _UNDERSCORE, _ONE, _TWO = (ord(c) for c in "@+/._12")
_MAX_PHRED = 93


@driver
def _skip_line_end(text, at, end):
    """Return the position after the LF or CRLF at `at`, -1 if `end` hides it, -2 if none."""
    if at < end and text[at] == _CR:
        at += 1
        if at < end and text[at] != _LF:
            return -2
    if at >= end:
        return -1
    return at + 1 if text[at] == _LF else -2


@driver
def _skip_line(text, at, end):
    """Return the position after the next LF, or -1 if there is none before `end`."""
    while at < end:
        if text[at] == _LF:
            return at + 1
        at += 1
    return -1


@driver
def _read_name(text, at, end, names, name_at):
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
        short = _skip_line(text, at, end) >= 0
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
    line_end = _skip_line_end(text, at + n_bases, end)
    if line_end == -1:
        return (OK, end) if ended else (MORE, at)
    if line_end == -2:
        c = text[at + n_bases]
        if c <= _SPACE or c > 126:
            return BAD_QUALITY, at + n_bases
        return QUALITY_LENGTH, at
    return OK, line_end


@driver
def _read_record(text, at, end, ended, bases, quals, base_at, names, name_at):
    """Parse the record at `at`.

    Returns
    -------
    Status; position after the record (or of the trouble); end of its bases; end of its
    name.
    """
    unfinished = CUT_OFF if ended else MORE
    base_end = base_at
    name_end = name_at
    if at >= end:
        return (DONE if ended else MORE), at, base_end, name_end
    if text[at] != _AT:
        blank = text[at] == _LF or text[at] == _CR
        return (BLANK if blank else NO_AT), at, base_end, name_end
    status, at, name_end = _read_name(text, at + 1, end, names, name_at)
    if status != OK:
        return status, at, base_end, name_end
    at = _skip_line(text, at, end)
    if at < 0:
        return unfinished, end, base_end, name_end

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
    line_end = _skip_line_end(text, at, end)
    if line_end == -1:
        return unfinished, end, base_end, name_end
    if line_end == -2:
        return BAD_BASE, at, base_end, name_end

    at = line_end
    if at >= end:
        return unfinished, end, base_end, name_end
    if text[at] != _PLUS:
        return NO_PLUS, at, base_end, name_end
    at = _skip_line(text, at, end)
    if at < 0:
        return unfinished, end, base_end, name_end
    status, at = _read_quality(text, at, end, ended, quals, base_at, n_bases)
    return status, at, base_end, name_end


@driver
def _match_mates(names, start, middle, end):
    """Return how many characters to cut from the end of both names of a pair; -1: no pair.

    The names are ``names[start:middle]`` and ``names[middle:end]``. They are equal, or
    differ only by the endings ``.1`` and ``.2`` or ``_1`` and ``_2``.
    """
    length = middle - start
    if end - middle != length:
        return -1
    same = 0
    while same < length and names[start + same] == names[middle + same]:
        same += 1
    if same == length:
        return 0
    if same != length - 1 or length < 2:
        return -1
    separator = names[middle - 2]
    numbered = names[middle - 1] == _ONE and names[end - 1] == _TWO
    if numbered and separator in (_DOT, _UNDERSCORE):
        return 2
    return -1


@driver
def fill_batch(
    layout,
    text1,
    at1,
    end1,
    ended1,
    text2,
    at2,
    end2,
    ended2,
    limit,
    cost,
    n_reads,
    bases,
    quals,
    base_offsets,
    names,
    name_offsets,
):
    """Append reads to a batch until it is full, a buffer runs out, or something is wrong.

    Parameters
    ----------
    layout
        SINGLE, TWO_FILES or INTERLEAVED (the latter two take whole pairs only).
    text1, at1, end1, ended1
        Buffer (uint8) of the first file, the bounds of its unread part, and whether the
        file ends where the buffer does. Likewise ``2`` for TWO_FILES.
    limit, cost
        The batch is full when `cost` reaches `limit`; a read costs its bases, at least
        its name's length and MIN_COST.
    n_reads
        Reads that the columns hold already.
    bases, quals, base_offsets, names, name_offsets
        Columns of the batch, written to from row `n_reads` on. `bases` and `quals` have
        room for `limit` and both buffers, `names` for `limit` and two more names.

    Returns
    -------
    Status; mate (1 or 2) that it concerns; position in `text1` and `text2` after the last
    whole pair; position of the trouble; `n_reads`; `cost`.
    """
    while cost < limit:
        base0 = base_offsets[n_reads]
        name0 = name_offsets[n_reads]
        status, next1, base1, name1 = _read_record(
            text1, at1, end1, ended1, bases, quals, base0, names, name0
        )
        if status != OK:
            return status, 1, at1, at2, next1, n_reads, cost
        next2 = at2
        if layout != SINGLE:
            if layout == TWO_FILES:
                status, next2, base2, name2 = _read_record(
                    text2, at2, end2, ended2, bases, quals, base1, names, name1
                )
                where = next2
            else:
                status, next1, base2, name2 = _read_record(
                    text1, next1, end1, ended1, bases, quals, base1, names, name1
                )
                where = next1
            if status != OK:
                return status, 2, at1, at2, where, n_reads, cost
            cut = _match_mates(names, name0, name1, name2)
            if cut < 0:
                return MATES_DIFFER, 2, at1, at2, where, n_reads, cost
            if cut > 0:
                for i in range(name1, name2 - cut):
                    names[i - cut] = names[i]
                name1 -= cut
                name2 -= 2 * cut
            base_offsets[n_reads + 2] = base2
            name_offsets[n_reads + 2] = name2
            cost += max(base2 - base1, name2 - name1, MIN_COST)
        base_offsets[n_reads + 1] = base1
        name_offsets[n_reads + 1] = name1
        cost += max(base1 - base0, name1 - name0, MIN_COST)
        n_reads += 1 if layout == SINGLE else 2
        at1 = next1
        at2 = next2
    return FULL, 1, at1, at2, at1, n_reads, cost
