"""Encode records as BAM bytes, and convert bases between codes and BAM's two in a byte."""

from __future__ import annotations

import numpy as np

from mapper.batch import ReadBatch, RecordBatch
from mapper.cigar import N, S
from mapper.dna import COMPLEMENT, LETTERS
from mapper.errors import OutputError
from mapper.io.simd_text import VECTOR, pack_vector, unpack_vector
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import copy, put16, put32
from mapper.parallel.buffers import RECYCLER
from mapper.sam_flags import REVERSE

# --- bases ---

NOT_A_BASE = 255
"""Code of "=", the base of the reference."""

_BAM_LETTERS = b"=ACMGRSVTWYHKDBN"
NIBBLE_OF_CODE = np.array([_BAM_LETTERS.index(letter) for letter in LETTERS], np.uint8)
_NIBBLE_OF_COMPLEMENT = NIBBLE_OF_CODE[COMPLEMENT]
_CODE_OF_NIBBLE = np.array(
    [LETTERS.index(c) if c in LETTERS else NOT_A_BASE for c in _BAM_LETTERS], np.uint8
)
_COMPLEMENT_OF_NIBBLE = np.array(
    [COMPLEMENT[code] if code != NOT_A_BASE else NOT_A_BASE for code in _CODE_OF_NIBBLE], np.uint8
)


@core
def _put_plain(target, part, reverse):
    """Write bases in vectors, without an odd last one; return True if all are A, C, G or T.

    Otherwise what is written has no meaning. There must be VECTOR bases or more; the last vector
    overlaps the one before.
    """
    length = len(part)
    half = VECTOR // 2
    others = np.int64(0)
    for vector in range(length // VECTOR + 1):
        pair = min(vector * half, (length >> 1) - half)
        start = length - 2 * pair - VECTOR if reverse else 2 * pair
        others |= pack_vector(part, start, target, pair, reverse)
    return others == 0


@core
def put_bases(out, at, bases, start, end, reverse):
    """Write ``bases[start:end]`` as a record stores them; return the position after them.

    Parameters
    ----------
    out, at
        Output (uint8) and position in it.
    bases, start, end
        uint8 codes.
    reverse
        Write the reverse complement.
    """
    length = end - start
    n_pairs = length >> 1
    target = out[at : at + ((length + 1) >> 1)]
    part = bases[start:end]
    nibbles = _NIBBLE_OF_COMPLEMENT if reverse else NIBBLE_OF_CODE
    last = length - 1
    if length < VECTOR or not _put_plain(target, part, reverse):
        for i in range(n_pairs):
            first, second = 2 * i, 2 * i + 1
            high = nibbles[part[last - first if reverse else first]]
            target[i] = (high << 4) | nibbles[part[last - second if reverse else second]]
    if length & 1:
        target[n_pairs] = nibbles[part[0 if reverse else last]] << 4
    return at + ((length + 1) >> 1)


@core
def _read_plain(sequence, target, reverse):
    """Read bases in vectors; return True if all are A, C, G or T, as :func:`_put_plain`."""
    length = len(target)
    half = VECTOR // 2
    others = np.int64(0)
    for vector in range(length // VECTOR + 1):
        pair = min(vector * half, (length >> 1) - half)
        start = length - 2 * pair - VECTOR if reverse else 2 * pair
        others |= unpack_vector(sequence, pair, target, start, reverse)
    return others == 0


@core
def read_bases(sequence, target, reverse):
    """Write the codes of the bases of a record, as the instrument read them.

    Parameters
    ----------
    sequence
        uint8: two bases a byte, the first in the high half.
    target
        uint8, one byte per base.
    reverse
        Write the reverse complement.

    Returns
    -------
    The largest code; NOT_A_BASE if there is a "=".
    """
    length = len(target)
    codes = _COMPLEMENT_OF_NIBBLE if reverse else _CODE_OF_NIBBLE
    worst = np.uint8(0)
    done = np.int64(0)
    if length >= VECTOR and _read_plain(sequence, target, reverse):
        done = length & ~1
    for i in range(done, length):
        nibble = (sequence[i >> 1] >> (0 if i & 1 else 4)) & 15
        code = codes[nibble]
        target[length - 1 - i if reverse else i] = code
        worst = max(worst, code)
    return worst


# --- records ---

MAX_NAME = 254
"""Longest read name: BAM has one byte for its length, NUL included."""

MAX_CIGAR_OPS = 65535
"""More operations go into the tag CG; the CIGAR field then holds ``<bases>S<span>N``."""

_CG_BYTES = 8  # of the tag without its values

_CG_START = np.frombuffer(b"CGBI", np.uint8).copy()
FIXED_BYTES = 36  # bytes of a record before its name, block_size included
_WIDTH = 64  # bytes reversed by one loop, which becomes a few instructions
CONSUMES_REF = np.array([op in "MDN=X" for op in "MIDNSHP=X"] + [False] * 7)


def encode_bam(records: RecordBatch, reads: ReadBatch) -> np.ndarray:
    """Return the BAM records of a batch, uncompressed, one after another.

    Parameters
    ----------
    records, reads
        Records, and the reads that ``records.read`` refers to.

    Returns
    -------
    uint8, shape (n_bytes,).

    Raises
    ------
    OutputError
        If a name is longer than BAM can hold.
    """
    return encode_records(records, reads)[0]


def encode_records(records: RecordBatch, reads: ReadBatch) -> tuple[np.ndarray, np.ndarray]:
    """Return BAM records as :func:`encode_bam`, and where they are.

    Returns
    -------
    The records; the offset of each in them, and their end: int64, shape (n_records + 1,).
    """
    offsets = np.empty(records.n_records + 1, np.int64)
    if _fill_offsets(records, reads, offsets) > MAX_NAME:
        check_names(reads)
    out = RECYCLER.empty(int(offsets[-1]))
    _fill_bam(records, reads, offsets, out)
    return out, offsets


def check_names(reads: ReadBatch) -> None:
    """Raise OutputError if a name of the batch is longer than BAM can hold."""
    name_lengths = np.diff(reads.name_offsets)
    if name_lengths.size and name_lengths.max() > MAX_NAME:
        worst = int(name_lengths.argmax())
        raise OutputError(
            f"name of read {reads.first_read + worst + 1} has {name_lengths[worst]} characters; "
            f"BAM takes {MAX_NAME}; shorten the names"
        )


@core
def record_bytes(name_length, n_bases, n_ops, n_tag_bytes):
    """Return the bytes of a record, that of its size included."""
    size = FIXED_BYTES + max(name_length, 1) + 1 + ((n_bases + 1) >> 1) + n_bases + 4 * n_ops
    if n_ops > MAX_CIGAR_OPS:
        size += _CG_BYTES + 4 * 2
    return size + n_tag_bytes


@core
def put_fixed(out, at, size, records, r, name_length, n_bases, n_ops, span):
    """Write the fields of fixed size of record `r` at `at`; return the position behind them.

    Parameters
    ----------
    size
        Bytes of the record.
    records
        The columns from ``flag`` to ``template_len`` of a RecordBatch.
    span
        Bases of the reference that it covers.
    """
    pos = records.ref_pos[r]
    put32(out, at, size - 4)
    put32(out, at + 4, np.int64(records.ref_id[r]))
    put32(out, at + 8, pos)
    out[at + 12] = max(name_length, 1) + 1
    out[at + 13] = records.mapq[r]
    # By the specification a record without alignment counts as one base long.
    put16(out, at + 14, reg2bin(pos, pos + max(span, 1)))
    put16(out, at + 16, n_ops if n_ops <= MAX_CIGAR_OPS else np.int64(2))
    put16(out, at + 18, np.int64(records.flag[r]))
    put32(out, at + 20, n_bases)
    put32(out, at + 24, np.int64(records.next_ref_id[r]))
    put32(out, at + 28, records.next_pos[r])
    put32(out, at + 32, np.int64(records.template_len[r]))
    return at + FIXED_BYTES


@driver
def _fill_offsets(records, reads, offsets):
    """Write the offsets of the records, and their end: int64, shape (n_records + 1,).

    Returns
    -------
    Bytes of the longest name, at least 1.
    """
    offsets[0] = 0
    longest = np.int64(1)
    for r in range(len(records.read)):
        read = records.read[r]
        name_length = reads.name_offsets[read + 1] - reads.name_offsets[read]
        longest = max(longest, name_length)
        offsets[r + 1] = offsets[r] + record_bytes(
            name_length, np.int64(records.query_end[r]) - records.query_start[r],
            records.cigar_offsets[r + 1] - records.cigar_offsets[r],
            records.tag_offsets[r + 1] - records.tag_offsets[r],
        )  # fmt: skip
    return longest


@core
def _put_ops(out, at, cigar_ops, start, end):
    for i in range(start, end):
        put32(out, at, np.int64(cigar_ops[i]))
        at += 4
    return at


@core
def copy_bytes(out, at, source, start, end):
    """Write ``source[start:end]``; return the position after it."""
    copy(source, start, out, at, end - start)
    return at + end - start


@core
def _reverse_some(source, target):
    for i in range(_WIDTH):
        target[i] = source[_WIDTH - 1 - i]


@core
def _copy_reversed(out, at, source, start, end):
    """Copy bytes in reverse order; return the position after them."""
    length = end - start
    target = out[at : at + length]
    part = source[start:end]
    if length < _WIDTH:
        for i in range(length):
            target[i] = part[length - 1 - i]
        return at + length
    for part_number in range(length // _WIDTH):
        i = part_number * _WIDTH
        _reverse_some(part[length - i - _WIDTH : length - i], target[i : i + _WIDTH])
    _reverse_some(part[:_WIDTH], target[length - _WIDTH :])  # overlaps the part before
    return at + length


@core
def reference_span(cigar_ops, start, end):
    """Return the reference bases that ``cigar_ops[start:end]`` cover."""
    span = np.int64(0)
    for i in range(start, end):
        op = np.int64(cigar_ops[i])
        if CONSUMES_REF[op & 15]:
            span += op >> 4
    return span


@core
def reg2bin(start, end):
    """Return the BAI bin of ``[start, end)``, as the SAM specification computes it.

    Only its lowest 16 bits: the number does not fit beyond 2**29 bases, where indexes are CSI and
    the field is not used.
    """
    end -= 1
    first_bin = 4681
    shift = 14
    while shift <= 26:
        if start >> shift == end >> shift:
            return (first_bin + (start >> shift)) & 0xFFFF
        first_bin = (first_bin - 1) >> 3
        shift += 3
    return 0


@core
def base_bounds(base_offsets, read, query_start, query_end, reverse):
    """Return the bounds of a record's bases in the batch's column of bases."""
    first = base_offsets[read]
    last = base_offsets[read + 1]
    if reverse:
        return last - query_end, last - query_start
    return first + query_start, first + query_end


@driver
def _fill_bam(records, reads, offsets, out):
    for r in range(len(records.read)):
        read = records.read[r]
        reverse = (records.flag[r] & REVERSE) != 0
        start, end = base_bounds(
            reads.base_offsets, read, records.query_start[r], records.query_end[r], reverse
        )
        name_start = reads.name_offsets[read]
        name_end = reads.name_offsets[read + 1]
        cigar_start = records.cigar_offsets[r]
        cigar_end = records.cigar_offsets[r + 1]
        span = reference_span(records.cigar_ops, cigar_start, cigar_end)
        n_ops = cigar_end - cigar_start
        at = put_fixed(
            out, offsets[r], offsets[r + 1] - offsets[r], records, r, name_end - name_start,
            end - start, n_ops, span,
        )  # fmt: skip
        at = copy_bytes(out, at, reads.names, name_start, name_end)
        if name_end == name_start:
            out[at] = 42  # "*"
            at += 1
        out[at] = 0
        at += 1
        if n_ops > MAX_CIGAR_OPS:
            put32(out, at, ((end - start) << 4) | S)
            put32(out, at + 4, (span << 4) | N)
            at += 8
        else:
            at = _put_ops(out, at, records.cigar_ops, cigar_start, cigar_end)
        at = put_bases(out, at, reads.bases, start, end, reverse)
        if reverse:
            at = _copy_reversed(out, at, reads.quals, start, end)
        else:
            at = copy_bytes(out, at, reads.quals, start, end)
        at = copy_bytes(out, at, records.tags, records.tag_offsets[r], records.tag_offsets[r + 1])
        if n_ops > MAX_CIGAR_OPS:
            at = copy_bytes(out, at, _CG_START, 0, len(_CG_START))
            put32(out, at, n_ops)
            _put_ops(out, at + 4, records.cigar_ops, cigar_start, cigar_end)
