"""FASTA text to read columns: records of one name line and any number of sequence lines."""

from __future__ import annotations

import numpy as np

from mapper.accelerate import driver
from mapper.batch import NO_QUALITY
from mapper.dna import CODE_OF_ASCII, NOT_A_BASE
from mapper.io.fastq_scan import (
    BAD_BASE,
    CUT_OFF,
    DONE,
    MORE,
    NO_AT,
    OK,
    read_name,
    skip_line,
    skip_line_end,
)

_GREATER = ord(">")


@driver
def read_fasta_record(text, at, end, ended, bases, quals, base_at, names, name_at):
    """Parse the record at `at`; returns as ``fastq_scan.read_record`` does.

    A record ends where the next begins or the file ends; empty lines are skipped. Without
    either in the buffer it is not known to be whole.
    """
    base_end = base_at
    name_end = name_at
    if at >= end:
        return (DONE if ended else MORE), at, base_end, name_end, at
    if text[at] != _GREATER:
        return NO_AT, at, base_end, name_end, at
    status, at, name_end = read_name(text, at + 1, end, names, name_at)
    if status != OK:
        return status, at, base_end, name_end, at
    comment = at
    at = skip_line(text, at, end)
    if at < 0:
        return (CUT_OFF if ended else MORE), end, base_end, name_end, comment
    while at < end and text[at] != _GREATER:
        source = text[at:end]
        target = bases[base_end:]
        n_bases = 0
        while n_bases < len(source):
            code = CODE_OF_ASCII[source[n_bases]]
            if code == NOT_A_BASE:
                break
            target[n_bases] = code
            n_bases += 1
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
