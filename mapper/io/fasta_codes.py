"""Lines of a reference FASTA to base codes, and back to the letters that its MD5 is of.

A reference is read a block at a time, by several threads, so a block is all that a function here
knows of it. **Written codes** (uint8) are those of :mod:`mapper.dna` with one bit more,
``WRITTEN_OTHERWISE``, set for U and ``.``: they mean T and N, but the M5 of SAM's @SQ line is of
the upper-case letters as given.
"""

from __future__ import annotations

import numpy as np

from mapper.dna import AMBIGUOUS, ASCII_OF_CODE, CODE_OF_ASCII, LETTERS, NOT_A_BASE
from mapper.io.fastq_parser import skip_line
from mapper.jit.accelerate import core, driver

WRITTEN_OTHERWISE = 16
"""Bit of a written code."""

OK, FULL, BAD_BASE, BAD_LINE = range(4)
"""All is encoded; no room for another header; a character is no base; a line begins as in FASTQ."""

START, END, AT = range(3)
"""Columns of a table of headers: the line in the text, its ``>`` left out, and codes before it."""

_LF, _CR, _GREATER, _AT, _PLUS = (ord(c) for c in "\n\r>@+")
_A, _C, _G, _T = b"ACGT"
_RUN = 32  # letters that are encoded together: lines have 60 and more
_LETTERS_RUN = 64  # codes that become letters together: with 32 the compiler uses no vectors
_LONG_LINE = 4096  # of which so many letters are

_WRITTEN = CODE_OF_ASCII.copy()
for _c in b"Uu.":
    _WRITTEN[_c] |= WRITTEN_OTHERWISE
_LETTER = np.zeros(2 * WRITTEN_OTHERWISE, np.uint8)
_LETTER[: len(LETTERS)] = ASCII_OF_CODE
_LETTER[WRITTEN_OTHERWISE | CODE_OF_ASCII[ord("U")]] = ord("U")
_LETTER[WRITTEN_OTHERWISE | CODE_OF_ASCII[ord(".")]] = ord(".")


@core
def _line_end(text, at):
    """Return the position after the LF or CRLF at `at`, where a CR may end the text; -1 if none."""
    if text[at] == _CR:
        at += 1
        if at == len(text):
            return at
    return at + 1 if text[at] == _LF else -1


@core
def _code_of_acgt(c):
    """Return the code of A, C, G or T, NOT_A_BASE for all else; arithmetic, to be vectorised."""
    letter = np.uint8(c & np.uint8(0xDF))  # upper case
    code = np.uint8(NOT_A_BASE)
    code = np.uint8(0) if letter == _A else code
    code = np.uint8(1) if letter == _C else code
    code = np.uint8(2) if letter == _G else code
    return np.uint8(3) if letter == _T else code


@core
def _encode_run(source, target):
    """Write the codes of _RUN letters; return the largest."""
    worst = np.uint8(0)
    for i in range(_RUN):
        code = _code_of_acgt(source[i])
        target[i] = code
        worst = max(worst, code)
    return worst


@core
def _encode_acgt(source, target):
    """Write the codes of a line's letters, _RUN or more; say whether all are A, C, G or T."""
    worst = np.uint8(0)
    n = len(source)
    for run in range(n // _RUN):
        at = run * _RUN
        worst = max(worst, _encode_run(source[at : at + _RUN], target[at : at + _RUN]))
    # What is left, as a run that begins before it.
    worst = max(worst, _encode_run(source[n - _RUN : n], target[n - _RUN : n]))
    return worst < AMBIGUOUS


@core
def _encode_letters(text, at, codes, n):
    """Encode letters up to the first character that is none; return how many, and their bits.

    No more than _LONG_LINE.
    """
    source = text[at : at + _LONG_LINE]
    target = codes[n:]
    i = 0
    bits = np.uint8(0)
    while i < len(source):
        code = _WRITTEN[source[i]]
        if code == NOT_A_BASE:
            break
        target[i] = code
        bits |= code
        i += 1
    return i, bits


@driver
def encode_lines(text, in_line, codes, heads):
    """Encode a block of a FASTA file.

    Parameters
    ----------
    text
        uint8 (n,): whole lines; the first may have begun before, and the last may go on behind if
        they are of a sequence. No CR is parted from its LF.
    in_line
        Whether the text begins inside a line.
    codes
        Written codes, uint8 (n,), to be written.
    heads
        Table of headers, int64 (n_heads, 3), to be written.

    Returns
    -------
    status, at, n_codes, n_heads, otherwise
        Why it ended, and where in the text; what was written; whether WRITTEN_OTHERWISE is set
        in any code. Blank lines are skipped.
    """
    n, n_heads, at, guess = 0, 0, 0, 0
    bits = np.uint8(0)
    while at < len(text):
        if not in_line and text[at] == _GREATER:
            if n_heads == len(heads):
                return FULL, at, n, n_heads, False
            behind = skip_line(text, at, len(text))
            end = len(text) if behind < 0 else behind - 1
            heads[n_heads, START], heads[n_heads, END], heads[n_heads, AT] = at + 1, end, n
            n_heads += 1
            at = end if behind < 0 else behind
            continue
        # Lines are mostly as long as the one before, and of A, C, G and T.
        n_letters = min(guess, len(text) - at)
        if n_letters < _RUN or not _encode_acgt(
            text[at : at + n_letters], codes[n : n + n_letters]
        ):
            n_letters, some = _encode_letters(text, at, codes, n)
            bits |= some
            guess = n_letters
        at += n_letters
        n += n_letters
        in_line = in_line or n_letters > 0
        if at == len(text):
            break
        behind = _line_end(text, at)
        if behind >= 0:
            at = behind
            in_line = False
        elif n_letters == 0:
            fastq = not in_line and (text[at] == _AT or text[at] == _PLUS)
            return BAD_LINE if fastq else BAD_BASE, at, n, n_heads, False
    return OK, at, n, n_heads, bits >= WRITTEN_OTHERWISE


@core
def _letters_run(source, target):
    """Write the letters of _LETTERS_RUN codes below 4; return all their bits."""
    bits = np.uint8(0)
    for i in range(_LETTERS_RUN):
        code = source[i]
        letter = np.uint8(65)
        letter = np.uint8(67) if code == 1 else letter
        letter = np.uint8(71) if code == 2 else letter
        target[i] = np.uint8(84) if code == 3 else letter
        bits |= code
    return bits


@driver
def write_letters(codes, letters):
    """Write the upper-case letter of each written code, uint8 (n,) both."""
    for start in range(0, len(codes), _LETTERS_RUN):
        source = codes[start : start + _LETTERS_RUN]
        target = letters[start : start + _LETTERS_RUN]
        if len(source) == _LETTERS_RUN and _letters_run(source, target) < 4:
            continue
        for i in range(len(source)):
            target[i] = _LETTER[source[i]]
