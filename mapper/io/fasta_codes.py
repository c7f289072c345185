"""Encode lines of a reference FASTA as base codes, and decode them for the MD5 of the contigs.

A reference is read in blocks by several threads, so each function sees one block. **Written
codes** (uint8) are those of :mod:`mapper.dna` with one more bit, ``WRITTEN_OTHERWISE``, set for U
and ``.``: they mean T and N, but the M5 of SAM's @SQ line is of the upper-case letters as written.
"""

from __future__ import annotations

import numpy as np

from mapper.dna import AMBIGUOUS, ASCII_OF_CODE, CODE_OF_ASCII, LETTERS, NOT_A_BASE
from mapper.io.fastq_parser import skip_line
from mapper.jit.accelerate import core, driver

WRITTEN_OTHERWISE = 16
"""Bit of a written code."""

OK, FULL, BAD_BASE, BAD_LINE = range(4)
"""Status: all is encoded; no room for another header; a character is no base; a line begins as in
FASTQ."""

START, END, AT = range(3)
"""Columns of a table of headers: bounds of the line without its ``>``, and codes before it."""

_LF, _CR, _GREATER, _AT, _PLUS = (ord(c) for c in "\n\r>@+")
_A, _C, _G, _T = b"ACGT"
_WIDTH = 32  # letters encoded by one vectorised loop: lines have 60 and more
_LETTERS_WIDTH = 64  # codes decoded by one loop: with 32 the compiler uses no vectors
_LONG_LINE = 4096  # letters of a line that are encoded by one call

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
    """Return the code of A, C, G or T, else NOT_A_BASE; without branches, to be vectorised."""
    letter = np.uint8(c & np.uint8(0xDF))  # upper case
    code = np.uint8(NOT_A_BASE)
    code = np.uint8(0) if letter == _A else code
    code = np.uint8(1) if letter == _C else code
    code = np.uint8(2) if letter == _G else code
    return np.uint8(3) if letter == _T else code


@core
def _encode_some(source, target):
    """Write the codes of _WIDTH letters; return the largest."""
    worst = np.uint8(0)
    for i in range(_WIDTH):
        code = _code_of_acgt(source[i])
        target[i] = code
        worst = max(worst, code)
    return worst


@core
def _encode_acgt(source, target):
    """Write the codes of _WIDTH or more letters; return True if all are A, C, G or T."""
    worst = np.uint8(0)
    n = len(source)
    for part in range(n // _WIDTH):
        at = part * _WIDTH
        worst = max(
            worst,
            _encode_some(source[at : at + _WIDTH], target[at : at + _WIDTH]),
        )
    # The rest is encoded with some letters before it again.
    worst = max(worst, _encode_some(source[n - _WIDTH : n], target[n - _WIDTH : n]))
    return worst < AMBIGUOUS


@core
def _encode_letters(text, at, codes, n):
    """Encode up to _LONG_LINE letters; return their number and the union of their codes' bits."""
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
        uint8 (n,): whole lines. A sequence line may begin before the block or end after it, but CR
        and LF are never separated.
    in_line
        True if the text begins inside a line.
    codes
        Written codes, uint8 (n,), to be written.
    heads
        Table of headers, int64 (n_heads, 3), to be written.

    Returns
    -------
    status, at, n_codes, n_heads, otherwise
        Status and its position in the text; numbers of codes and headers written; whether
        WRITTEN_OTHERWISE is set in any code. Blank lines are skipped.
    """
    n, n_heads, at, guess = 0, 0, 0, 0
    bits = np.uint8(0)
    while at < len(text):
        if not in_line and text[at] == _GREATER:
            if n_heads == len(heads):
                return FULL, at, n, n_heads, False
            next_line = skip_line(text, at, len(text))
            end = len(text) if next_line < 0 else next_line - 1
            heads[n_heads, START], heads[n_heads, END], heads[n_heads, AT] = at + 1, end, n
            n_heads += 1
            at = end if next_line < 0 else next_line
            continue
        # Lines are mostly as long as the one before, and of A, C, G and T.
        n_letters = min(guess, len(text) - at)
        if n_letters < _WIDTH or not _encode_acgt(
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
        next_line = _line_end(text, at)
        if next_line >= 0:
            at = next_line
            in_line = False
        elif n_letters == 0:
            fastq = not in_line and (text[at] == _AT or text[at] == _PLUS)
            return BAD_LINE if fastq else BAD_BASE, at, n, n_heads, False
    return OK, at, n, n_heads, bits >= WRITTEN_OTHERWISE


@core
def _decode_some(source, target):
    """Write the letters of _LETTERS_WIDTH codes below 4; return the union of the codes' bits."""
    bits = np.uint8(0)
    for i in range(_LETTERS_WIDTH):
        code = source[i]
        letter = np.uint8(65)
        letter = np.uint8(67) if code == 1 else letter
        letter = np.uint8(71) if code == 2 else letter
        target[i] = np.uint8(84) if code == 3 else letter
        bits |= code
    return bits


@driver
def write_letters(codes, letters):
    """Write the upper-case letter of each written code; both are uint8 (n,)."""
    for start in range(0, len(codes), _LETTERS_WIDTH):
        source = codes[start : start + _LETTERS_WIDTH]
        target = letters[start : start + _LETTERS_WIDTH]
        if len(source) == _LETTERS_WIDTH and _decode_some(source, target) < 4:
            continue
        for i in range(len(source)):
            target[i] = _LETTER[source[i]]
