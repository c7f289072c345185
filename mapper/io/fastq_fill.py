"""Text of FASTQ, FASTA and lists to columns: single reads, or mates from one file or two."""

from __future__ import annotations

import numpy as np

from mapper.io.comment_tags import put_comment
from mapper.io.fasta_scan import read_fasta_record, read_list_line
from mapper.io.fastq_parser import BAD_COMMENT, MATES_DIFFER, OK, SINGLE, TWO_FILES, read_record
from mapper.io.record_ends import FASTA, FASTQ
from mapper.io.simd_text import before_difference
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import RUN

_DOT, _UNDERSCORE, _ONE, _TWO = b"._12"


@core
def _match_mates(names, start, middle, end):
    """Return how many characters to cut from the end of both names of a pair; -1: no pair.

    The names are ``names[start:middle]`` and ``names[middle:end]``. They are equal, or
    differ only by the endings ``.1`` and ``.2`` or ``_1`` and ``_2``.
    """
    length = middle - start
    if end - middle != length:
        return -1
    if (
        length <= RUN
        and middle + RUN <= len(names)
        and before_difference(names, start, names, middle) >= length
    ):
        return 0
    first = names[start:middle]
    second = names[middle:end]
    differ = np.uint8(0)
    for i in range(length):  # to the end: so the loop is vectorised
        differ = max(differ, np.uint8(first[i] ^ second[i]))
    if differ == 0:
        return 0
    same = 0
    while first[same] == second[same]:
        same += 1
    if same != length - 1 or length < 2:
        return -1
    separator = names[middle - 2]
    numbered = names[middle - 1] == _ONE and names[end - 1] == _TWO
    if numbered and separator in (_DOT, _UNDERSCORE):
        return 2
    return -1


@core
def _next_read(kind, text, at, ended, guess, keep_comments, bases, quals, base_at, names, name_at,
               tags, tag_at):  # fmt: skip
    """Parse one record; return status, position after it, ends of bases, name and tags."""
    end = len(text)
    if kind == FASTQ:
        status, after, base_end, name_end, comment = read_record(
            text, at, end, ended, guess, bases, quals, base_at, names, name_at
        )
    elif kind == FASTA:
        status, after, base_end, name_end, comment = read_fasta_record(
            text, at, end, ended, guess, bases, quals, base_at, names, name_at
        )
    else:
        status, after, base_end, name_end, comment = read_list_line(
            text, at, end, ended, guess, bases, quals, base_at, names, name_at
        )
    if status == OK and keep_comments:
        tag_at, bad = put_comment(text, comment, end, tags, tag_at)
        if bad >= 0:
            return BAD_COMMENT, bad, base_end, name_end, tag_at
    return status, after, base_end, name_end, tag_at


@driver
def fill_batch(layout, kind1, text1, ended1, kind2, text2, ended2, keep_comments, bases, quals,
               base_offsets, names, name_offsets, tags, tag_offsets):  # fmt: skip
    """Parse texts into the columns of a batch, until one ends or something is wrong.

    Parameters
    ----------
    layout
        SINGLE, TWO_FILES or INTERLEAVED (the latter two take whole pairs only).
    kind1, text1, ended1
        Of the first file: FASTQ, FASTA or LIST; its text (uint8), and whether records, or the
        file, end where that does. Likewise ``2`` for TWO_FILES.
    keep_comments
        Turn comments into tags.
    bases, quals, base_offsets, names, name_offsets, tags, tag_offsets
        Columns of the batch, to be written. `bases`, `quals` and `names` have room for as
        many bytes as there are in both texts, `tags` (if comments are kept) for twice that
        and 8 more, the offsets for every record.

    Returns
    -------
    Status; mate (1 or 2) that it concerns; position in `text1` and `text2` after the last
    whole pair; position of the trouble; number of reads.
    """
    return _fill(
        layout, kind1, text1, ended1, kind2, text2, ended2, keep_comments, bases, quals,
        base_offsets, names, name_offsets, tags, tag_offsets,
    )  # fmt: skip


@core
def _fill(layout, kind1, text1, ended1, kind2, text2, ended2, keep_comments, bases, quals,
          base_offsets, names, name_offsets, tags, tag_offsets):  # fmt: skip
    unit = 1 if layout == SINGLE else 2
    # Not plain zeros: for a literal the reading of a record would be compiled once more.
    n_reads = at1 = at2 = here1 = here2 = np.int64(0)
    mate = 1
    while True:
        row = n_reads + mate - 1
        like = max(row - unit, 0)  # the same mate of the pair before
        guess = base_offsets[like + 1] - base_offsets[like]
        in_second = mate == 2 and layout == TWO_FILES
        kind = kind2 if in_second else kind1
        text = text2 if in_second else text1
        ended = ended2 if in_second else ended1
        status, after, base_end, name_end, tag_end = _next_read(
            kind, text, here2 if in_second else here1, ended, guess, keep_comments, bases, quals,
            base_offsets[row], names, name_offsets[row], tags, tag_offsets[row],
        )  # fmt: skip
        if status != OK:
            return status, mate, at1, at2, after, n_reads
        if in_second:
            here2 = after
        else:
            here1 = after
        base_offsets[row + 1] = base_end
        name_offsets[row + 1] = name_end
        tag_offsets[row + 1] = tag_end
        if mate < unit:
            mate = 2
            continue
        if unit == 2:
            cut = _match_mates(names, name_offsets[row - 1], name_offsets[row], name_end)
            if cut < 0:
                return MATES_DIFFER, 2, at1, at2, after, n_reads
            if cut > 0:
                for i in range(name_offsets[row], name_end - cut):
                    names[i - cut] = names[i]
                name_offsets[row] -= cut
                name_offsets[row + 1] -= 2 * cut
            mate = 1
        n_reads = row + 1
        at1 = here1
        at2 = here2
