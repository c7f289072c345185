"""FASTA and lists of sequences to read columns.

A FASTA record is one name line and any number of sequence lines; a list has a sequence in each
line, which is its own name.
"""

from __future__ import annotations

import numpy as np

from mapper.batch import NO_QUALITY
from mapper.io.bam_writer import copy_bytes
from mapper.io.fastq_parser import (
    BAD_BASE,
    CUT_OFF,
    DONE,
    MORE,
    NO_AT,
    NO_NAME,
    OK,
    copy_bases,
    read_name,
    skip_line,
    skip_line_end,
)
from mapper.jit.accelerate import core

_LF, _CR, _SPACE = 10, 13, 32
_GREATER = ord(">")


@core
def _skip_blank_lines(text, at, end):
    while at < end and (text[at] == _LF or text[at] == _CR):
        at += 1
    return at


@core
def read_fasta_record(text, at, end, ended, guess, bases, quals, base_at, names, name_at):
    """Parse the record at `at`; returns as ``fastq_scan.read_record`` does.

    A record ends where the next begins or the file ends; empty lines are skipped. Without
    either in the buffer it is not known to be whole.
    """
    base_end = base_at
    name_end = name_at
    at = _skip_blank_lines(text, at, end)
    if at >= end:
        return (DONE if ended else MORE), at, base_end, name_end, at
    if text[at] != _GREATER:
        return NO_AT, at, base_end, name_end, at
    if at + 1 < end and text[at + 1] <= _SPACE:
        return NO_NAME, at, base_end, name_end, at
    status, at, name_end = read_name(text, at + 1, end, names, name_at)
    if status != OK:
        return status, at, base_end, name_end, at
    comment = at
    at = skip_line(text, at, end)
    if at < 0:
        return (CUT_OFF if ended else MORE), end, base_end, name_end, comment
    while at < end and text[at] != _GREATER:
        n_bases = copy_bases(text, at, end, bases, base_end, guess)
        guess = n_bases
        at += n_bases
        base_end += n_bases
        if at < end:
            line_end = skip_line_end(text, at, end)
            if line_end == -2:
                return BAD_BASE, at, base_end, name_end, comment
            at = end if line_end == -1 else line_end
    if at >= end and not ended:
        return MORE, at, base_end, name_end, comment
    quals[base_at:base_end] = np.uint8(NO_QUALITY)
    return OK, at, base_end, name_end, comment


@core
def read_list_line(text, at, end, ended, guess, bases, quals, base_at, names, name_at):
    """Parse the next line that is not empty; returns as ``fastq_scan.read_record`` does."""
    at = _skip_blank_lines(text, at, end)
    if at >= end:
        return (DONE if ended else MORE), at, base_at, name_at, at
    n_bases = copy_bases(text, at, end, bases, base_at, guess)
    base_end = base_at + n_bases
    line_end = skip_line_end(text, at + n_bases, end)
    if line_end == -1 and not ended:
        return MORE, at, base_end, name_at, at
    if line_end == -2:
        return BAD_BASE, at + n_bases, base_end, name_at, at
    name_end = copy_bytes(names, name_at, text, at, at + n_bases)
    quals[base_at:base_end] = np.uint8(NO_QUALITY)
    after = end if line_end == -1 else line_end
    return OK, after, base_end, name_end, after
