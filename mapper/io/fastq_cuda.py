"""CUDA kernels that parse FASTQ: from the text of batches to the columns of reads.

The text was cut between records on the host (:mod:`mapper.io.fastq`), so each line end is found
where the numbers of those before it are summed up, each record has four lines, and reads are
independent: a thread looks at the names and lengths of a pair or a single read, a warp copies a
read. The rules of names and mates are those of :mod:`mapper.io.fastq_parser`, the same text.

The host parses text that is not plain, and reports its errors: lines that end with CR, a name
behind ``+`` that differs, all that is malformed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import ReadBatch
from mapper.cuda.api import cuda, kernel
from mapper.cuda.launch import upload_in_place
from mapper.cuda.memory import Workspace
from mapper.cuda.warp import WARP, WarpLanes, sum_before
from mapper.cuda.worklist import columns, offsets_of
from mapper.dna import AMBIGUOUS, CODE_OF_ASCII, NOT_A_BASE, decode, n_words
from mapper.io.batch_reader import FastqText
from mapper.io.fastq_parser import (
    FIRST_PHRED,
    MAX_PHRED,
    OK,
    cut_of_mates,
    marks_differ,
    mate_said,
    repeats_name,
    whole_name,
)
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import popcount, trailing_zeros
from mapper.jit.lanes import lane_sum

_TAB, _LF, _SPACE, _LAST_VISIBLE = 9, 10, 32, 126
_AT, _PLUS = ord("@"), ord("+")

_LINE_ENDS = np.uint64(0x0A0A0A0A0A0A0A0A)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)  # of each byte
_HIGH_BITS = np.uint64(0x8080808080808080)

TILE = 256
"""Words of 8 bytes in which a warp looks for line ends."""


class ParsedColumns(NamedTuple):
    """Columns of a ReadBatch, on the device."""

    bases: Any  # uint8 codes
    quals: Any  # uint8 Phred
    base_offsets: Any  # int64 (n_reads + 1,)
    names: Any  # uint8
    name_offsets: Any  # int64 (n_reads + 1,)


class DeviceText(NamedTuple):
    """Reads that were parsed on a device."""

    columns: ParsedColumns
    word_offsets: Any  # int64 (n_reads + 1,), on the device: of PackedReads
    n_words: int
    longest: int
    """Bases of the longest read."""
    ends: np.ndarray  # int64 (n_batches + 1,): bases before each batch, and of all
    is_odd: np.ndarray
    """int64, of one item, which the next wait for the stream fills: not 0 if some letter is no base
    or no quality, and the host has to parse the text."""


class _Lines(NamedTuple):
    """The text of all batches, one behind another, and where its lines are."""

    text: Any  # uint8
    line_ends: Any  # int64 (4 * n_reads,): position of each
    first_templates: Any  # int64 (n_batches + 1,): pairs or single reads before each batch
    first_lines: Any  # int64 (n_batches, 2): of the first record of each mate
    n_lines: int  # from a record to the next one of the same mate


class _Measured(NamedTuple):
    """Where the parts of each read begin in the text, and how long they are."""

    bases: Any  # int64
    quals: Any
    name: Any
    n_bases: Any  # int32
    n_name: Any
    n_words: Any  # of PackedReads


# --- lines ---


@core
def _ends_in(words, i, n_bytes):
    """Return a word that has the highest bit of each byte of word i that is a line end."""
    n_left = n_bytes - 8 * i
    if n_left <= 0:
        return np.uint64(0)
    other = words[i] ^ _LINE_ENDS
    ends = ~(((other & _LOW_BITS) + _LOW_BITS) | other) & _HIGH_BITS
    if n_left < 8:  # the bytes behind the text may be any
        ends &= (np.uint64(1) << np.uint64(8 * n_left)) - np.uint64(1)
    return ends


@kernel(128)
def _count_line_ends(words, n_bytes, n_tiles, counts):
    """Count the line ends of a tile, one a warp."""
    thread = cuda.grid(1)
    tile, lane = thread // WARP, thread % WARP
    if tile >= n_tiles:
        return
    found = np.int64(0)
    for i in range(tile * TILE + lane, (tile + 1) * TILE, WARP):
        found += popcount(_ends_in(words, i, n_bytes))
    found = lane_sum(found, WarpLanes(lane, WARP))
    if lane == 0:
        counts[tile] = found


@kernel(128)
def _find_lines(words, n_bytes, n_tiles, before, line_ends):
    """Write the positions of the line ends of a tile, one a warp."""
    thread = cuda.grid(1)
    tile, lane = thread // WARP, thread % WARP
    if tile >= n_tiles:
        return
    at = before[tile]
    for first in range(tile * TILE, (tile + 1) * TILE, WARP):
        i = first + lane
        ends = _ends_in(words, i, n_bytes)
        n_before, n = sum_before(popcount(ends), lane)
        row = at + n_before
        while ends != 0:
            if row < len(line_ends):
                line_ends[row] = 8 * i + (np.int64(trailing_zeros(ends)) >> 3)
            row += 1
            ends &= ends - np.uint64(1)
        at += n


# --- records ---


@core
def _measure_record(text, line_ends, line, row, measured):
    """Note where the parts of the record are that begins with a line.

    Returns
    -------
    True if it is plain; where its name begins and ends, ``/1`` included, and its bytes without
    that.
    """
    n_bytes = len(text)
    start = np.int64(0)
    if line > 0:
        start = line_ends[line - 1] + 1
    end, bases_end = line_ends[line], line_ends[line + 1]
    plus_end, quals_end = line_ends[line + 2], line_ends[line + 3]
    measured.n_bases[row] = measured.n_name[row] = measured.n_words[row] = 0
    # Their number is only checked after this kernel: a line end that is missing has any value.
    if start < 0 or start >= n_bytes or quals_end >= n_bytes:
        return False, start, start, np.int64(0)
    name = start + 1
    in_order = name < end and end < bases_end and bases_end < plus_end and plus_end < quals_end
    if not in_order or plus_end - bases_end < 2:
        return False, name, name, np.int64(0)
    n_bases = bases_end - end - 1
    name_end = name
    while name_end < end and _SPACE < text[name_end] <= _LAST_VISIBLE:
        name_end += 1
    status, length = whole_name(text, name, name_end)
    behind = text[name_end]
    plus = bases_end + 1
    is_plain = (
        text[start] == _AT
        and status == OK
        and (behind == _LF or behind == _SPACE or behind == _TAB)
        and text[plus] == _PLUS
        and quals_end - plus_end - 1 == n_bases
        and repeats_name(text, plus, name, name_end)
    )
    measured.bases[row] = end + 1
    measured.quals[row] = plus_end + 1
    measured.name[row] = name
    if is_plain:
        measured.n_bases[row] = n_bases
        measured.n_name[row] = length
        measured.n_words[row] = 2 * n_words(n_bases)
    return is_plain, name, name_end, np.int64(length)


@kernel(128)
def _measure(n_templates, paired, lines, measured, state):
    """Measure the records of pairs or single reads, one a thread.

    `state`, of two items, gets a number above 0 if one of them is not plain, and is raised to the
    bases of the longest.
    """
    template = cuda.grid(1)
    if template >= n_templates:
        return
    text = lines.text
    low, high = 0, len(lines.first_templates) - 1
    while high - low > 1:  # the batch
        middle = (low + high) >> 1
        if lines.first_templates[middle] <= template:
            low = middle
        else:
            high = middle
    n_before = template - lines.first_templates[low]
    row = 2 * template if paired else template
    line = lines.first_lines[low, 0] + n_before * lines.n_lines
    is_plain, name, name_end, length = _measure_record(text, lines.line_ends, line, row, measured)
    longest = measured.n_bases[row]
    if paired:
        line = lines.first_lines[low, 1] + n_before * lines.n_lines
        other_plain, other, other_end, other_length = _measure_record(
            text, lines.line_ends, line, row + 1, measured
        )
        is_plain = is_plain and other_plain and length == other_length
        if is_plain:
            cut = cut_of_mates(text, name, other, length)
            is_plain = cut >= 0 and not marks_differ(
                mate_said(text, name_end), mate_said(text, other_end)
            )
            if is_plain:
                measured.n_name[row] = measured.n_name[row + 1] = length - cut
        longest = max(longest, measured.n_bases[row + 1])
    if not is_plain:
        state[0] = 1
    if longest > state[1]:
        cuda.atomic.max(state, 1, np.int64(longest))


@kernel(128)
def _copy_reads(n_reads, text, measured, read, is_odd):
    """Copy the bases, qualities and name of a read, one a warp; note characters that are none."""
    thread = cuda.grid(1)
    row, lane = thread // WARP, thread % WARP
    if row >= n_reads:
        return
    bases, quals, base_at = measured.bases[row], measured.quals[row], read.base_offsets[row]
    for i in range(lane, read.base_offsets[row + 1] - base_at, WARP):
        code = CODE_OF_ASCII[text[bases + i]]
        phred = np.int64(text[quals + i]) - FIRST_PHRED
        if code == NOT_A_BASE or phred < 0 or phred > MAX_PHRED:
            is_odd[0] = 1
            code, phred = AMBIGUOUS, 0  # valid ones, as the reads are seeded before that is known
        read.bases[base_at + i] = code
        read.quals[base_at + i] = phred
    name, name_at = measured.name[row], read.name_offsets[row]
    for i in range(lane, read.name_offsets[row + 1] - name_at, WARP):
        read.names[name_at + i] = text[name + i]


_SUMS = 5
"""Numbers before those of batches and texts: the names below."""
_N_LINES, _IS_ODD, _LONGEST, _N_NAMES, _N_WORDS = range(_SUMS)


@kernel(128)
def _sum_up(n_batches, n_texts, ends_of_rows, last_lines, n_lines, state, line_ends, base_offsets,
            name_offsets, word_offsets, sums):  # fmt: skip
    """Bring together what the host has to know, a number a thread."""
    i = cuda.grid(1)
    if i <= n_batches:
        sums[_SUMS + i] = base_offsets[ends_of_rows[i]]
    if i < n_texts:
        sums[_SUMS + n_batches + 1 + i] = line_ends[last_lines[i]]
    if i == 0:
        n_reads = ends_of_rows[n_batches]
        sums[_N_LINES] = n_lines[len(n_lines) - 1]
        sums[_IS_ODD] = state[0]
        sums[_LONGEST] = state[1]
        sums[_N_NAMES] = name_offsets[n_reads]
        sums[_N_WORDS] = word_offsets[n_reads]


def _find_line_ends(space: Workspace, texts: Sequence[np.ndarray], n: int) -> tuple[Any, Any, Any]:
    """Copy texts to the device and look for their first `n` line ends.

    Returns
    -------
    The text; the positions of its line ends; the numbers of these before each tile, and of all.
    """
    n_bytes = sum(len(text) for text in texts)
    text = upload_in_place(space, "fastq.text", texts)
    words = space.device("fastq.text", -(-n_bytes // 8), np.uint64)  # the same memory
    line_ends = space.device("fastq.line_ends", n, np.int64)
    n_tiles = -(-n_bytes // (8 * TILE))
    counts = space.device("fastq.counts", n_tiles, np.int32)
    _count_line_ends.launch(n_tiles * WARP, space.stream, words, n_bytes, n_tiles, counts)
    before = offsets_of(space, "fastq.lines", counts, n_tiles)
    _find_lines.launch(n_tiles * WARP, space.stream, words, n_bytes, n_tiles, before, line_ends)
    return text, line_ends, before


def parse_on_device(space: Workspace, batches: Sequence[FastqText]) -> DeviceText | None:
    """Copy the text of batches to the device and parse it there; waits for the stream.

    Parameters
    ----------
    batches
        All of pairs or all of single reads, of one layout in files.

    Returns
    -------
    The reads of all batches; None if something in the text is for the host to parse.
    """
    paired, n_files = batches[0].paired, len(batches[0].texts)
    texts = [text for batch in batches for text in batch.texts]
    n_records = np.repeat([batch.n_records for batch in batches], n_files)
    n_reads = int(n_records.sum())
    lines_before = np.append(0, 4 * np.cumsum(n_records))
    first_lines = np.repeat(lines_before[:-1].reshape(-1, n_files)[:, :1], 2, axis=1)
    first_lines[:, 1] = lines_before[1:-1:2] if n_files == 2 else first_lines[:, 0] + 4
    step = 2 if paired else 1
    ends_of_rows = np.append(0, np.cumsum([batch.n_reads for batch in batches]))

    text, line_ends, n_lines = _find_line_ends(space, texts, 4 * n_reads)
    lines = _Lines(
        text, line_ends, space.upload("fastq.first_templates", ends_of_rows // step),
        space.upload("fastq.first_lines", first_lines.reshape(-1)).reshape(len(batches), 2),
        8 if paired and n_files == 1 else 4,
    )  # fmt: skip
    measured = columns(
        space, "fastq.read", _Measured, ("i8", "i8", "i8", "i4", "i4", "i4"), n_reads
    )
    state = space.upload("fastq.state", np.zeros(2, np.int64))
    _measure.launch(n_reads // step, space.stream, n_reads // step, paired, lines, measured, state)
    base_offsets = offsets_of(space, "fastq.base_offsets", measured.n_bases, n_reads)
    name_offsets = offsets_of(space, "fastq.name_offsets", measured.n_name, n_reads)
    word_offsets = offsets_of(space, "fastq.word_offsets", measured.n_words, n_reads)
    sums = space.device("fastq.sums", _SUMS + len(batches) + 1 + len(texts), np.int64)
    _sum_up.launch(
        max(len(batches) + 1, len(texts)), space.stream, len(batches), len(texts),
        space.upload("fastq.ends_of_rows", ends_of_rows),
        space.upload("fastq.last_lines", lines_before[1:] - 1), n_lines, state, line_ends,
        base_offsets, name_offsets, word_offsets, sums,
    )  # fmt: skip
    found = space.download("fastq.sums", sums)
    space.synchronize()
    ends = found[_SUMS : _SUMS + len(batches) + 1].copy()
    last_ends = found[_SUMS + len(batches) + 1 :]
    text_ends = np.cumsum([len(text) for text in texts])
    if found[_IS_ODD] or found[_N_LINES] != 4 * n_reads or (last_ends != text_ends - 1).any():
        return None
    n_names, longest, n_words_of_all = (int(found[i]) for i in (_N_NAMES, _LONGEST, _N_WORDS))
    is_odd = space.upload("fastq.is_odd", np.zeros(1, np.int64))
    read = ParsedColumns(
        space.device("fastq.bases", int(ends[-1]), np.uint8),
        space.device("fastq.quals", int(ends[-1]), np.uint8),
        base_offsets,
        space.device("fastq.names", n_names, np.uint8),
        name_offsets,
    )
    _copy_reads.launch(n_reads * WARP, space.stream, n_reads, text, measured, read, is_odd)
    return DeviceText(
        read, word_offsets, n_words_of_all, longest, ends, space.download("fastq.is_odd", is_odd)
    )


def fastq_of(reads: ReadBatch) -> np.ndarray:
    """Return a few reads as FASTQ (uint8), mates one behind the other."""
    records = []
    for row in range(reads.n_reads):
        name = reads.names[slice(*reads.name_offsets[row : row + 2])].tobytes()
        part = slice(*reads.base_offsets[row : row + 2])
        quals = np.minimum(reads.quals[part], MAX_PHRED) + np.uint8(FIRST_PHRED)
        lines = b"@" + name, decode(reads.bases[part]).encode(), b"+", quals.tobytes(), b""
        records.append(b"\n".join(lines))
    return np.frombuffer(b"".join(records), np.uint8)
