"""Encode records as SAM text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mapper.batch import NO_QUALITY, ReadBatch, RecordBatch
from mapper.cigar import ASCII_OF_OP
from mapper.dna import ASCII_OF_CODE, COMPLEMENT
from mapper.io.bam_writer import base_bounds, check_names, copy_bytes
from mapper.io.tags import VALUE_SIZE, float_texts, get_number, put_int
from mapper.jit.accelerate import driver
from mapper.jit.simd import get32
from mapper.sam_flags import REVERSE

_TAB, _NEWLINE, _STAR, _EQUALS, _COLON = b"\t\n*=:"
_COMMA, _TYPE_A, _TYPE_B, _TYPE_F, _TYPE_H, _TYPE_I, _TYPE_Z = b",ABfHiZ"
_ASCII_OF_COMPLEMENT = ASCII_OF_CODE[COMPLEMENT]

_FIXED = 128
"""Upper bound of the characters of a line's numbers, tabs and one-character fields."""


def encode_sam(records: RecordBatch, reads: ReadBatch, contig_names: Sequence[str]) -> np.ndarray:
    """Return the SAM lines of a batch: uint8, shape (n_bytes,).

    Parameters
    ----------
    records, reads
        Records, and the reads that ``records.read`` refers to.
    contig_names
        Contigs in the order of their ``ref_id``.

    Raises
    ------
    OutputError
        If a name is longer than BAM can hold.
    """
    check_names(reads)
    contigs, contig_offsets = flat_names(contig_names)
    longest = int(np.diff(contig_offsets).max(initial=1))
    floats, float_offsets = float_texts(records.tags)
    out = np.empty(_upper_bound(records, reads, longest) + len(floats), np.uint8)
    n = _fill_sam(records, reads, contigs, contig_offsets, floats, float_offsets, out)
    return out[:n]


def flat_names(names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return names as flat bytes (uint8) and their offsets (int64)."""
    encoded = [name.encode("ascii") for name in names]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(name) for name in encoded], out=offsets[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


def _upper_bound(records: RecordBatch, reads: ReadBatch, longest_contig: int) -> int:
    """Return an upper bound of the size of the text.

    A CIGAR operation takes up to nine digits and a letter. A tag grows most if it is an array of
    one-byte integers, to 5 characters each. Floating-point numbers are added by the caller.
    """
    names = int(np.diff(reads.name_offsets)[records.read].sum())
    bases = int((records.query_end - records.query_start).sum(dtype=np.int64))
    fixed = records.n_records * (_FIXED + 2 * longest_contig)
    return fixed + names + 2 * bases + 10 * len(records.cigar_ops) + 5 * len(records.tags)


@driver
def _put_text(out, at, text, start, end):
    """Write ``text[start:end]``, or "*" if that is empty; return the position after it."""
    if start == end:
        out[at] = _STAR
        return at + 1
    return copy_bytes(out, at, text, start, end)


@driver
def _put_contig(out, at, ref_id, contigs, contig_offsets):
    if ref_id < 0:
        out[at] = _STAR
        return at + 1
    return _put_text(out, at, contigs, contig_offsets[ref_id], contig_offsets[ref_id + 1])


@driver
def _put_bases(out, at, bases, quals, start, end, reverse):
    """Write SEQ, a tab, and QUAL; return the position after them."""
    length = end - start
    target = out[at : at + length]
    part = bases[start:end]
    if reverse:
        for i in range(length):
            target[i] = _ASCII_OF_COMPLEMENT[part[length - 1 - i]]
    else:
        for i in range(length):
            target[i] = ASCII_OF_CODE[part[i]]
    if length == 0:
        out[at] = _STAR
        at += 1
    at += length
    out[at] = _TAB
    at += 1
    if length == 0 or quals[start] == NO_QUALITY:
        out[at] = _STAR
        return at + 1
    target = out[at : at + length]
    part = quals[start:end]
    if reverse:
        for i in range(length):
            target[i] = part[length - 1 - i] + np.uint8(33)
    else:
        for i in range(length):
            target[i] = part[i] + np.uint8(33)
    return at + length


@driver
def _put_float(out, at, floats, float_offsets, n_floats):
    return copy_bytes(out, at, floats, float_offsets[n_floats], float_offsets[n_floats + 1])


@driver
def _put_array(out, at, tags, i, floats, float_offsets, n_floats):
    """Write the array whose subtype is at `i`; return the positions after it, and n_floats."""
    kind = tags[i]
    out[at] = kind
    at += 1
    count = get32(tags, i + 1)
    i += 5
    for _ in range(count):
        out[at] = _COMMA
        if kind == _TYPE_F:
            at = _put_float(out, at + 1, floats, float_offsets, n_floats)
            n_floats += 1
        else:
            at = put_int(out, at + 1, get_number(tags, i, kind))
        i += VALUE_SIZE[kind]
    return at, i, n_floats


@driver
def _put_tags(out, at, tags, start, end, floats, float_offsets, n_floats):
    """Write BAM-encoded tags as text; return the position after them, and n_floats."""
    i = start
    while i < end:
        kind = tags[i + 2]
        is_text = kind == _TYPE_Z or kind == _TYPE_H
        is_number = not is_text and kind != _TYPE_A and kind != _TYPE_F and kind != _TYPE_B
        out[at] = _TAB
        out[at + 1] = tags[i]
        out[at + 2] = tags[i + 1]
        out[at + 3] = _COLON
        out[at + 4] = _TYPE_I if is_number else kind
        out[at + 5] = _COLON
        at += 6
        i += 3
        if is_text:
            while tags[i] != 0:
                out[at] = tags[i]
                at += 1
                i += 1
            i += 1
        elif kind == _TYPE_B:
            at, i, n_floats = _put_array(out, at, tags, i, floats, float_offsets, n_floats)
        elif kind == _TYPE_A:
            out[at] = tags[i]
            at += 1
            i += 1
        elif kind == _TYPE_F:
            at = _put_float(out, at, floats, float_offsets, n_floats)
            n_floats += 1
            i += 4
        else:
            at = put_int(out, at, get_number(tags, i, kind))
            i += VALUE_SIZE[kind]
    return at, n_floats


@driver
def _fill_sam(records, reads, contigs, contig_offsets, floats, float_offsets, out):
    """Write all lines; return their length."""
    at = 0
    n_floats = 0
    for r in range(len(records.flag)):
        read = records.read[r]
        flag = np.int64(records.flag[r])
        reverse = (flag & REVERSE) != 0
        start, end = base_bounds(
            reads.base_offsets, read, records.query_start[r], records.query_end[r], reverse
        )
        ref_id = records.ref_id[r]
        next_ref_id = records.next_ref_id[r]

        at = _put_text(out, at, reads.names, reads.name_offsets[read], reads.name_offsets[read + 1])
        out[at] = _TAB
        at = put_int(out, at + 1, flag)
        out[at] = _TAB
        at = _put_contig(out, at + 1, ref_id, contigs, contig_offsets)
        out[at] = _TAB
        at = put_int(out, at + 1, records.ref_pos[r] + 1)
        out[at] = _TAB
        at = put_int(out, at + 1, records.mapq[r])
        out[at] = _TAB
        at += 1
        if records.cigar_offsets[r] == records.cigar_offsets[r + 1]:
            out[at] = _STAR
            at += 1
        for i in range(records.cigar_offsets[r], records.cigar_offsets[r + 1]):
            op = np.int64(records.cigar_ops[i])
            at = put_int(out, at, op >> 4)
            out[at] = ASCII_OF_OP[op & 15]
            at += 1
        out[at] = _TAB
        at += 1
        if next_ref_id >= 0 and next_ref_id == ref_id:
            out[at] = _EQUALS
            at += 1
        else:
            at = _put_contig(out, at, next_ref_id, contigs, contig_offsets)
        out[at] = _TAB
        at = put_int(out, at + 1, records.next_pos[r] + 1)
        out[at] = _TAB
        at = put_int(out, at + 1, records.template_len[r])
        out[at] = _TAB
        at = _put_bases(out, at + 1, reads.bases, reads.quals, start, end, reverse)
        at, n_floats = _put_tags(
            out, at, records.tags, records.tag_offsets[r], records.tag_offsets[r + 1], floats,
            float_offsets, n_floats,
        )  # fmt: skip
        out[at] = _NEWLINE
        at += 1
    return at
