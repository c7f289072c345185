"""FASTQ and FASTA text to batches: single reads, or mates from one file or two."""

from __future__ import annotations

import numpy as np

from mapper.accelerate import driver
from mapper.io.comment_scan import put_comment
from mapper.io.fasta_scan import read_fasta_record
from mapper.io.fastq_scan import (
    BAD_COMMENT,
    FULL,
    MATES_DIFFER,
    MIN_COST,
    OK,
    SINGLE,
    TWO_FILES,
    read_record,
)

_DOT, _UNDERSCORE, _ONE, _TWO = b"._12"


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
def _next_read(fasta, text, at, end, ended, keep_comments, bases, quals, base_at, names, name_at,
               tags, tag_at):  # fmt: skip
    """Parse one record; return status, position after it, ends of bases, name and tags."""
    if fasta:
        status, after, base_end, name_end, comment = read_fasta_record(
            text, at, end, ended, bases, quals, base_at, names, name_at
        )
    else:
        status, after, base_end, name_end, comment = read_record(
            text, at, end, ended, bases, quals, base_at, names, name_at
        )
    if status == OK and keep_comments:
        tag_at, bad = put_comment(text, comment, end, tags, tag_at)
        if bad >= 0:
            return BAD_COMMENT, bad, base_end, name_end, tag_at
    return status, after, base_end, name_end, tag_at


@driver
def fill_batch(layout, fasta1, text1, at1, end1, ended1, fasta2, text2, at2, end2, ended2, limit,
               cost, n_reads, keep_comments, bases, quals, base_offsets, names, name_offsets, tags,
               tag_offsets):  # fmt: skip
    """Append reads to a batch until it is full, a buffer runs out, or something is wrong.

    Parameters
    ----------
    layout
        SINGLE, TWO_FILES or INTERLEAVED (the latter two take whole pairs only).
    fasta1, text1, at1, end1, ended1
        Whether the first file is FASTA rather than FASTQ; its buffer (uint8), the bounds of
        the unread part, and whether the file ends where the buffer does. Likewise ``2`` for
        TWO_FILES.
    limit, cost
        The batch is full when `cost` reaches `limit`; a read costs its bases, at least
        its name's length, its tags' and MIN_COST.
    n_reads
        Reads that the columns hold already.
    keep_comments
        Turn comments into tags.
    bases, quals, base_offsets, names, name_offsets, tags, tag_offsets
        Columns of the batch, written to from row `n_reads` on. `bases` and `quals` have
        room for `limit` and both buffers, `names` for `limit` and two more names, `tags` (if
        comments are kept) for `limit` and twice both buffers.

    Returns
    -------
    Status; mate (1 or 2) that it concerns; position in `text1` and `text2` after the last
    whole pair; position of the trouble; `n_reads`; `cost`.
    """
    tag1 = np.int64(0)
    tag2 = np.int64(0)
    while cost < limit:
        base0 = base_offsets[n_reads]
        name0 = name_offsets[n_reads]
        tag0 = tag_offsets[n_reads]
        status, next1, base1, name1, tag1 = _next_read(
            fasta1, text1, at1, end1, ended1, keep_comments, bases, quals, base0, names, name0,
            tags, tag0,
        )  # fmt: skip
        if status != OK:
            return status, 1, at1, at2, next1, n_reads, cost
        next2 = at2
        if layout != SINGLE:
            if layout == TWO_FILES:
                status, next2, base2, name2, tag2 = _next_read(
                    fasta2, text2, at2, end2, ended2, keep_comments, bases, quals, base1, names,
                    name1, tags, tag1,
                )  # fmt: skip
                where = next2
            else:
                status, next1, base2, name2, tag2 = _next_read(
                    fasta1, text1, next1, end1, ended1, keep_comments, bases, quals, base1, names,
                    name1, tags, tag1,
                )  # fmt: skip
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
            tag_offsets[n_reads + 2] = tag2
            cost += max(base2 - base1, name2 - name1, tag2 - tag1, MIN_COST)
        base_offsets[n_reads + 1] = base1
        name_offsets[n_reads + 1] = name1
        tag_offsets[n_reads + 1] = tag1
        cost += max(base1 - base0, name1 - name0, tag1 - tag0, MIN_COST)
        n_reads += 1 if layout == SINGLE else 2
        at1 = next1
        at2 = next2
    return FULL, 1, at1, at2, at1, n_reads, cost
