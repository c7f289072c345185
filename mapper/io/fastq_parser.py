"""Parse FASTQ, FASTA and lists of sequences into read columns (compiled).

Reads of one run mostly have one length. So a sequence line is first assumed to be as long as that
of the read before and to hold only A, C, G and T, which vectors encode without a search for its
end; otherwise the line ends at the first character that is no base. A quality line must have the
length of its sequence, so there is no search either.
"""

from __future__ import annotations

import numpy as np

from mapper.batch import NO_QUALITY
from mapper.dna import CODE_OF_ASCII, NOT_A_BASE
from mapper.io.bam_writer import MAX_NAME, copy_bytes
from mapper.io.comment_tags import put_comment
from mapper.io.record_ends import FASTA, FASTQ
from mapper.io.simd_text import (
    before_difference,
    before_line_end,
    copy_letters,
    copy_quality,
    copy_visible,
)
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import VECTOR

SINGLE = 0  # layouts of reads in files
TWO_FILES = 1
INTERLEAVED = 2

OK = 0  # status of a record
OTHER_NAME = 1  # whole, and the line that begins with "+" has another name
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
NO_NAME = 15
AT_NAME = 16  # begins as only header lines of SAM do
MARKS_DIFFER = 17  # the reads of a pair do not say that they are its first and its second

_TAB, _LF, _CR, _SPACE = 9, 10, 13, 32
_AT, _PLUS, _SLASH, _DOT, _UNDERSCORE, _COLON, _ONE, _TWO = (ord(c) for c in "@+/._:12")
_YES, _NO = ord("Y"), ord("N")
FIRST_PHRED = 33
"""Character of the quality 0."""
MAX_PHRED = 93


# --- FASTQ ---


@core
def skip_line_end(text, at, end):
    """Return the position after the LF or CRLF at `at`; -1 if cut off by `end`, -2 if absent."""
    if at < end and text[at] == _CR:
        at += 1
        if at < end and text[at] != _LF:
            return -2
    if at >= end:
        return -1
    return at + 1 if text[at] == _LF else -2


@core
def skip_line(text, at, end):
    """Return the position after the next LF, or -1 if there is none before `end`."""
    while at + VECTOR <= end:
        n_before = before_line_end(text, at)
        at += n_before
        if n_before < VECTOR:
            return at + 1
    while at < end:
        if text[at] == _LF:
            return at + 1
        at += 1
    return -1


@core
def whole_name(text, start, end):
    """Return the status of the name ``text[start:end]``, and its bytes without ``/1`` or ``/2``."""
    length = end - start
    if length >= 2 and text[end - 2] == _SLASH and (text[end - 1] == _ONE or text[end - 1] == _TWO):
        length -= 2
    if length > MAX_NAME:
        return LONG_NAME, length
    if length == 0:
        return NO_NAME, length
    return (AT_NAME if text[start] == _AT else OK), length


@core
def read_name(text, at, end, names, name_at):
    """Copy a name up to the first white space; return (status, position, end of the name)."""
    name_end = name_at
    n_good = np.int64(VECTOR)
    while n_good == VECTOR and name_end - name_at <= MAX_NAME - VECTOR and at + VECTOR <= end:
        if name_end + VECTOR > len(names):
            break
        n_good = copy_visible(text, at, names, name_end)
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
        return OK, at, name_end  # possibly incomplete; the caller will find no end of the line
    if text[at] not in (_SPACE, _TAB, _LF, _CR):
        return BAD_NAME, at, name_end
    if text[at] == _CR and at + 1 < end and text[at + 1] != _LF:
        return BAD_NAME, at, name_end
    status, length = whole_name(names, name_at, name_end)
    return status, at, name_at + length


@core
def mate_said(text, at):
    """Return the digit that a name, which ends at `at`, or its comment gives the read in its pair.

    It ends the name (``/1``), or begins the comment as Casava's do (``1:N:0:ACGT``).

    Returns
    -------
    The character, which may be any; 0 if there is none.
    """
    if text[at - 2] == _SLASH:
        return text[at - 1]
    if at + 4 < len(text) and text[at + 2] == _COLON and text[at + 4] == _COLON:
        filtered = text[at + 3]
        if text[at] == _SPACE and (filtered == _NO or filtered == _YES):
            return text[at + 1]
    return np.uint8(0)


@core
def marks_differ(first, second):
    """Return True if what :func:`mate_said` gives for two reads says they are no pair in order."""
    return first == _TWO or second == _ONE


@core
def repeats_name(text, at, name, name_end):
    """Return True if nothing follows the ``+`` at `at`, or the name ``text[name:name_end]``."""
    at += 1
    if text[at] == _CR or text[at] == _LF:
        return True
    i = name
    while i < name_end and text[at] == text[i]:
        at += 1
        i += 1
    return i == name_end and text[at] <= _SPACE


@core
def _copy_phred(text, at, quals, base_at, n):
    """Write `n` Phred values; return True if all characters are valid."""
    if n >= VECTOR:
        bad = np.int64(0)
        for vector in range(n // VECTOR + 1):
            first = min(vector * VECTOR, n - VECTOR)
            bad |= copy_quality(text, at + first, quals, base_at + first)
        return bad == 0
    worst = np.uint8(0)
    for i in range(n):
        # Characters below "!" wrap round to large values: one comparison finds both kinds.
        phred = np.uint8(text[at + i] - np.uint8(FIRST_PHRED))
        quals[base_at + i] = phred
        worst = max(worst, phred)
    return worst <= MAX_PHRED


@core
def _read_quality(text, at, end, ended, quals, base_at, n_bases):
    """Copy one Phred value per base; return (status, position after the line or of the error)."""
    if at + n_bases > end:
        if not ended:
            return MORE, at
        short = skip_line(text, at, end) >= 0
        return (QUALITY_LENGTH if short else CUT_OFF), at
    if not _copy_phred(text, at, quals, base_at, n_bases):
        i = 0
        while quals[base_at + i] <= MAX_PHRED:
            i += 1
        if text[at + i] == _LF or text[at + i] == _CR:
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
def _copy_acgt(text, at, bases, base_at, n):
    """Write the codes of `n` letters, VECTOR or more; return True if all are A, C, G or T."""
    others = np.int64(0)
    for vector in range(n // VECTOR + 1):
        first = min(
            vector * VECTOR, n - VECTOR
        )  # the last is what is left, and some of that before it
        others |= copy_letters(text, at + first, bases, base_at + first)
    return others == 0


@core
def copy_bases(text, at, end, bases, base_at, guess):
    """Write the codes of the bases at `at`; return their number.

    Parameters
    ----------
    guess
        Expected number; no effect on the result.
    """
    if (
        VECTOR <= guess < end - at
        and (text[at + guess] == _LF or text[at + guess] == _CR)
        and _copy_acgt(text, at, bases, base_at, guess)
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
    """Parse the FASTQ record at `at`, which probably has `guess` bases.

    Returns
    -------
    Status; position after the record, or of the error; end of its bases; end of its name;
    position after the name in `text`.
    """
    unfinished = CUT_OFF if ended else MORE
    name = at + 1
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
    # The line mostly ends here; testing that first is a branch that the processor predicts.
    plain = at + 1 < end and text[at + 1] == _LF
    plus = at
    at = at + 2 if plain else skip_line(text, at, end)
    if at < 0:
        return unfinished, end, base_end, name_end, comment
    status, at = _read_quality(text, at, end, ended, quals, base_at, n_bases)
    if not plain and status == OK and not repeats_name(text, plus, name, comment):
        status = OTHER_NAME
    return status, at, base_end, name_end, comment


# --- FASTA and lists ---

_GREATER = ord(">")


@core
def _skip_blank_lines(text, at, end):
    while at < end and (text[at] == _LF or text[at] == _CR):
        at += 1
    return at


@core
def read_fasta_record(text, at, end, ended, guess, bases, quals, base_at, names, name_at):
    """Parse the FASTA record at `at`; return as :func:`read_record` does.

    A record ends where the next begins or the file ends, and is incomplete where the buffer holds
    neither. Empty lines are skipped.
    """
    base_end = base_at
    name_end = name_at
    at = _skip_blank_lines(text, at, end)
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
    """Parse the next line that is not empty as a sequence; return as :func:`read_record` does."""
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


# --- batches ---


@core
def cut_of_mates(text, first, second, length):
    """Return the number of characters to cut from both names of a pair; -1 if they differ.

    The names, of `length` characters, begin at `first` and `second`. They are equal, or differ only
    by the endings ``.1`` and ``.2`` or ``_1`` and ``_2``.
    """
    ours = text[first : first + length]
    others = text[second : second + length]
    differ = np.uint8(0)
    for i in range(length):  # no early exit, so that the loop is vectorised
        differ = max(differ, np.uint8(ours[i] ^ others[i]))
    if differ == 0:
        return 0
    same = 0
    while ours[same] == others[same]:
        same += 1
    if same != length - 1 or length <= 2:  # nothing would be left of two
        return -1
    separator = ours[length - 2]
    numbered = ours[same] == _ONE and others[same] == _TWO
    if numbered and separator in (_DOT, _UNDERSCORE):
        return 2
    return -1


@core
def _match_mates(names, start, middle, end):
    """Return the number of characters to cut from both names of a pair; -1 if they differ.

    The names are ``names[start:middle]`` and ``names[middle:end]``: see :func:`cut_of_mates`.
    """
    length = middle - start
    if end - middle != length:
        return -1
    if (
        length <= VECTOR
        and middle + VECTOR <= len(names)
        and before_difference(names, start, names, middle) >= length
    ):
        return 0
    return cut_of_mates(names, start, middle, length)


@core
def _next_read(kind, text, at, ended, guess, keep_comments, bases, quals, base_at, names, name_at,
               tags, tag_at):  # fmt: skip
    """Parse one record.

    Returns
    -------
    Status; position after it, or of the error; ends of bases, name and tags; position after the
    name in `text`.
    """
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
    if status <= OTHER_NAME and keep_comments:
        tag_at, bad = put_comment(text, comment, end, tags, tag_at)
        if bad >= 0:
            return BAD_COMMENT, bad, base_end, name_end, tag_at, comment
    return status, after, base_end, name_end, tag_at, comment


@driver
def fill_batch(layout, kind1, text1, ended1, kind2, text2, ended2, keep_comments, bases, quals,
               base_offsets, names, name_offsets, tags, tag_offsets):  # fmt: skip
    """Parse texts into the columns of a batch, up to the end of one or the first error.

    Parameters
    ----------
    layout
        SINGLE, TWO_FILES or INTERLEAVED; the latter two take whole pairs only.
    kind1, text1, ended1
        Of the first file: FASTQ, FASTA or LIST; its text (uint8); True if a record, or the
        file, ends where the text does. The same with ``2`` for TWO_FILES.
    keep_comments
        Convert comments to tags.
    bases, quals, base_offsets, names, name_offsets, tags, tag_offsets
        Columns of the batch, to be written. `bases`, `quals` and `names` have room for as
        many bytes as there are in both texts, `tags` (if comments are kept) for twice that
        and 8 more, the offsets for every record.

    Returns
    -------
    Status; mate (1 or 2) that it concerns; position in `text1` and `text2` after the last
    whole pair; position of the error; number of reads; the first row whose record has another
    name behind ``+``, -1 for none.
    """
    return _fill(
        layout, kind1, text1, ended1, kind2, text2, ended2, keep_comments, bases, quals,
        base_offsets, names, name_offsets, tags, tag_offsets,
    )  # fmt: skip


@core
def _fill(layout, kind1, text1, ended1, kind2, text2, ended2, keep_comments, bases, quals,
          base_offsets, names, name_offsets, tags, tag_offsets):  # fmt: skip
    unit = 1 if layout == SINGLE else 2
    # Typed zeros: numba would compile the parsing of a record once more for literals.
    n_reads = at1 = at2 = here1 = here2 = np.int64(0)
    other_name = np.int64(-1)
    mate = 1
    said = np.uint8(0)  # by the first mate
    while True:
        row = n_reads + mate - 1
        like = max(row - unit, 0)  # the same mate of the pair before
        guess = base_offsets[like + 1] - base_offsets[like]
        in_second = mate == 2 and layout == TWO_FILES
        kind = kind2 if in_second else kind1
        text = text2 if in_second else text1
        ended = ended2 if in_second else ended1
        status, after, base_end, name_end, tag_end, comment = _next_read(
            kind, text, here2 if in_second else here1, ended, guess, keep_comments, bases, quals,
            base_offsets[row], names, name_offsets[row], tags, tag_offsets[row],
        )  # fmt: skip
        if status == OTHER_NAME:
            other_name = row if other_name < 0 else other_name
        elif status != OK:
            return status, mate, at1, at2, after, n_reads, other_name
        if in_second:
            here2 = after
        else:
            here1 = after
        base_offsets[row + 1] = base_end
        name_offsets[row + 1] = name_end
        tag_offsets[row + 1] = tag_end
        if mate < unit:
            said = mate_said(text, comment)
            mate = 2
            continue
        if unit == 2:
            cut = _match_mates(names, name_offsets[row - 1], name_offsets[row], name_end)
            if cut < 0:
                return MATES_DIFFER, 2, at1, at2, after, n_reads, other_name
            if marks_differ(said, mate_said(text, comment)):
                return MARKS_DIFFER, 2, at1, at2, after, n_reads, other_name
            if cut > 0:
                for i in range(name_offsets[row], name_end - cut):
                    names[i - cut] = names[i]
                name_offsets[row] -= cut
                name_offsets[row + 1] -= 2 * cut
            mate = 1
        n_reads = row + 1
        at1 = here1
        at2 = here2
