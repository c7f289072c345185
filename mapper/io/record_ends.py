"""Find where records of FASTQ, FASTA and lists end, to cut a text in batches.

Line ends are counted and records are not read, so this keeps up with any decompressor (10 GB/s).
Where a text breaks its format the count is wrong; the parser then finds the first such place.
"""

from __future__ import annotations

import numpy as np

from mapper.jit.accelerate import brief, driver

FASTQ = 0  # four lines a record
FASTA = 1  # one line that begins with ">", and any number of others
LIST = 2  # one sequence a line, which is its own name

_LF, _CR = 10, 13
_GREATER = ord(">")
_WIDTH = 128  # bytes whose line ends a uint8 can count, so that the loop is vectorised


def not_line_ends(text: np.ndarray) -> np.ndarray:
    """Return the positions of all bytes that are no line ends."""
    return np.flatnonzero((text != _LF) & (text != _CR))


@driver
def line_ends(text):
    """Return the number of line ends."""
    found = np.int64(0)
    n_parts = len(text) // _WIDTH
    for number in range(n_parts):
        part = text[number * _WIDTH : (number + 1) * _WIDTH]
        count = np.uint8(0)
        for i in range(_WIDTH):
            count = np.uint8(count + np.uint8(part[i] == _LF))
        found += count
    for i in range(n_parts * _WIDTH, len(text)):
        found += text[i] == _LF
    return found


@brief
def few_line_ends(text):
    """Return the number of line ends of a short text."""
    return line_ends(text)


@driver
def _after_lines(text, n_lines):
    """Return the position after the first `n_lines` lines; there must be as many."""
    at = 0
    while n_lines > _WIDTH and at + _WIDTH <= len(text):
        n_lines -= line_ends(text[at : at + _WIDTH])
        at += _WIDTH
    while n_lines > 0:
        n_lines -= text[at] == _LF
        at += 1
    return at


@brief
def before_lines(text, end, n_lines):
    """Return where the last `n_lines` lines before `end`, which follows a line end, begin."""
    at = end
    while at > 0:
        if text[at - 1] == _LF:
            if n_lines == 0:
                return at
            n_lines -= 1
        at -= 1
    return at


@driver
def _whole_fasta_records(text, all_left, most):
    n_records = 0
    begun = False
    for at in range(len(text)):
        if text[at] == _GREATER and (at == 0 or text[at - 1] == _LF):
            n_records += begun
            begun = True
            if n_records == most:
                return n_records, at
    if all_left:
        return n_records + begun, len(text)
    at = len(text)
    while at > 0 and not (text[at - 1] == _GREATER and (at == 1 or text[at - 2] == _LF)):
        at -= 1
    return n_records, max(at - 1, 0)


@driver
def _whole_list_lines(text, all_left, most):
    n_records = 0
    end = 0
    blank = True
    for at in range(len(text)):
        if text[at] == _LF:
            n_records += not blank
            blank = True
            end = at + 1
            if n_records == most:
                return n_records, end
        else:
            blank &= text[at] == _CR
    if all_left:
        return n_records + (not blank), len(text)
    return n_records, end


def whole_records(
    kind: int, text: np.ndarray, all_left: bool, most: int, n_lines: int
) -> tuple[int, int]:
    """Find the whole records at the start of a text.

    Parameters
    ----------
    kind
        FASTQ, FASTA or LIST.
    text
        uint8; begins where a record does.
    all_left
        True if the file ends with it.
    most
        Upper limit of the records to find.
    n_lines
        Line ends in `text`; -1 if not known. Needed for FASTQ only.

    Returns
    -------
    Number of records; the position after them.
    """
    if kind != FASTQ:
        find = _whole_fasta_records if kind == FASTA else _whole_list_lines
        n_records, end = find(text, all_left, most)
        return int(n_records), int(end)
    if n_lines < 0:
        n_lines = int(line_ends(text))
    n_records = min(n_lines // 4, most)
    if n_records == most:
        return n_records, int(_after_lines(text, 4 * n_records))
    end = int(before_lines(text, len(text), 0))
    return n_records, int(before_lines(text, end, n_lines - 4 * n_records))
