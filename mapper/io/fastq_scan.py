"""FASTQ text to read columns: one pass of compiled code over a byte buffer.

Reads of one run mostly have one length, so a sequence line is first taken to be as long as that
of the read before and to hold nothing but A, C, G and T: a loop of fixed length, which the
compiler vectorises. Otherwise the line ends at the first character that is no base. The quality
line must have the same length, which again makes its loop a fixed-length one.
"""

from __future__ import annotations

import numpy as np

from mapper.accelerate import core
from mapper.dna import AMBIGUOUS, CODE_OF_ASCII, NOT_A_BASE

MAX_NAME = 254
"""Longest read name, without ``/1``: BAM has one byte for its length, NUL included."""

MIN_COST = 32
"""Bases that a read counts for at least, so that empty reads cannot fill the memory."""

SINGLE = 0
TWO_FILES = 1
INTERLEAVED = 2

OK = 0
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
NO_NAME = 15  # of a FASTA record

_TAB, _LF, _CR, _SPACE = 9, 10, 13, 32
_AT, _PLUS, _SLASH, _DOT, _UNDERSCORE, _ONE, _TWO = (ord(c) for c in "@+/._12")
_A, _C, _G, _T = b"ACGT"
_MAX_PHRED = 93
_RUN = 64  # characters looked at together: the compiler makes that a few instructions


@core
def skip_line_end(text, at, end):
    """Return the position after the LF or CRLF at `at`, -1 if `end` hides it, -2 if none."""
    if at < end and text[at] == _CR:
        at += 1
        if at < end and text[at] != _LF:
            return -2
    if at >= end:
        return -1
    return at + 1 if text[at] == _LF else -2


@core
def _name_run(source, target):
    """Copy _RUN characters of a name; return how many of them come before one that is none."""
    n_good = np.uint8(_RUN)
    for i in range(_RUN):
        c = source[i]
        target[i] = c
        # Characters of a name are 33 to 126; those below wrap round to large values.
        bad = np.uint8(c - np.uint8(33)) > 93
        n_good = min(n_good, np.uint8(i) if bad else np.uint8(_RUN))
    return np.int64(n_good)


@core
def _line_run(source):
    """Return how many of _RUN characters come before an LF."""
    n_before = np.uint8(_RUN)
    for i in range(_RUN):
        n_before = min(n_before, np.uint8(i) if source[i] == _LF else np.uint8(_RUN))
    return np.int64(n_before)


@core
def skip_line(text, at, end):
    """Return the position after the next LF, or -1 if there is none before `end`."""
    while at + _RUN <= end:
        n_before = _line_run(text[at : at + _RUN])
        at += n_before
        if n_before < _RUN:
            return at + 1
    while at < end:
        if text[at] == _LF:
            return at + 1
        at += 1
    return -1


@core
def read_name(text, at, end, names, name_at):
    """Copy a name up to the first white space; return (status, where, end of the name)."""
    name_end = name_at
    n_good = np.int64(_RUN)
    while n_good == _RUN and name_end - name_at <= MAX_NAME - _RUN and at + _RUN <= end:
        if name_end + _RUN > len(names):
            break
        n_good = _name_run(text[at : at + _RUN], names[name_end : name_end + _RUN])
        name_end += n_good
        at += n_good
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


@core
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


@core
def _copy_acgt_run(source, target):
    """Write the codes of _RUN letters; return the largest."""
    worst = np.uint8(0)
    for i in range(_RUN):
        code = code_of_acgt(source[i])
        target[i] = code
        worst = max(worst, code)
    return worst


@core
def code_of_acgt(c):
    """Return the code of A, C, G or T, NOT_A_BASE for all else; arithmetic, to be vectorised."""
    letter = np.uint8(c & np.uint8(0xDF))  # upper case
    code = np.uint8(NOT_A_BASE)
    code = np.uint8(0) if letter == _A else code
    code = np.uint8(1) if letter == _C else code
    code = np.uint8(2) if letter == _G else code
    return np.uint8(3) if letter == _T else code


@core
def _copy_acgt(source, target):
    """Write the codes of as many letters as `target` has; say whether all are A, C, G or T."""
    n = len(target)
    worst = np.uint8(0)
    if n < _RUN:
        for i in range(n):
            target[i] = code_of_acgt(source[i])
            worst = max(worst, target[i])
        return worst < AMBIGUOUS
    for run in range(n // _RUN):
        start = run * _RUN
        worst = max(
            worst, _copy_acgt_run(source[start : start + _RUN], target[start : start + _RUN])
        )
    # What is left, as a run that begins before it.
    worst = max(worst, _copy_acgt_run(source[n - _RUN : n], target[n - _RUN : n]))
    return worst < AMBIGUOUS


@core
def copy_bases(text, at, end, bases, base_at, guess):
    """Write the codes of the bases at `at`; return how many there are.

    Parameters
    ----------
    guess
        How many there may be; no effect on the result.
    """
    if (
        at + guess < end
        and (text[at + guess] == _LF or text[at + guess] == _CR)
        and _copy_acgt(text[at : at + guess], bases[base_at : base_at + guess])
    ):
        return guess
    source = text[at:end]
    target = bases[base_at:]
    n_bases = 0
    while n_bases < len(source):
        code = CODE_OF_ASCII[source[n_bases]]
        if code == NOT_A_BASE:
            break
        target[n_bases] = code
        n_bases += 1
    return n_bases


@core
def read_record(text, at, end, ended, guess, bases, quals, base_at, names, name_at):
    """Parse the record at `at`, which may have `guess` bases.

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

    n_bases = copy_bases(text, at, end, bases, base_at, guess)
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
