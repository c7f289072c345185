"""Encode records as PAF (minimap2's pairwise mapping format, which has no unmapped reads)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mapper.batch import ReadBatch, RecordBatch
from mapper.cigar import ASCII_OF_OP, H, S, measure
from mapper.io.bam_writer import copy_bytes
from mapper.io.sam import flat_names
from mapper.io.tags import find_tag, integer_tag, put_int, tag_key
from mapper.jit.accelerate import core, driver
from mapper.jit.simd import get32
from mapper.sam_flags import FIRST, LAST, REVERSE, SECONDARY, UNMAPPED

_TAB, _NEWLINE, _PLUS, _MINUS, _SLASH, _ONE, _TWO = b"\t\n+-/12"
_NM, _AS = tag_key("NM"), tag_key("AS")
_NM_TEXT = np.frombuffer(b"\tNM:i:", np.uint8).copy()
_AS_TEXT = np.frombuffer(b"\tAS:i:", np.uint8).copy()
_CG_TEXT = np.frombuffer(b"\tcg:Z:", np.uint8).copy()
_TP_TEXT = np.frombuffer(b"\ttp:A:P\ttp:A:S", np.uint8).copy()  # primary; secondary
_CM, _DE, _CS, _DS = (tag_key(tag) for tag in ("cm", "de", "cs", "ds"))
_CM_TEXT = np.frombuffer(b"\tcm:i:", np.uint8).copy()
_DE_TEXT = np.frombuffer(b"\tde:f:", np.uint8).copy()
_FIXED = 256
"""Upper bound of the characters of a line's numbers, tabs and tags, without the values of cg, cs
and ds."""


def encode_paf(
    records: RecordBatch, reads: ReadBatch, contig_names: Sequence[str], lengths: np.ndarray
) -> np.ndarray:
    """Return the PAF lines of the mapped records of a batch: uint8, shape (n_bytes,).

    Twelve columns, then NM, AS, tp (P primary or supplementary, S secondary), cm and de where the
    record has them, cg, and cs and ds likewise. Names of mates get ``/1`` and ``/2``. Residue
    matches are aligned pairs of equal bases; the block length counts these, mismatches and gaps.

    Parameters
    ----------
    records, reads
        Records with tags NM and AS, and the reads that ``records.read`` refers to.
    contig_names, lengths
        Contigs in the order of their ``ref_id``; lengths int64.
    """
    contigs, contig_offsets = flat_names(contig_names)
    longest = int(np.diff(contig_offsets).max(initial=0))
    names = int(np.diff(reads.name_offsets)[records.read].sum())
    room = records.n_records * (_FIXED + longest) + names + 10 * len(records.cigar_ops)
    room += len(records.tags)  # cs and ds are copied character by character
    out = np.empty(room, np.uint8)
    return out[: _fill_paf(records, reads, contigs, contig_offsets, lengths, out)]


@driver
def _fill_paf(records, reads, contigs, contig_offsets, lengths, out):
    """Write all lines; return their length."""
    at = 0
    for r in range(len(records.flag)):
        flag = np.int64(records.flag[r])
        if flag & UNMAPPED:
            continue
        read = records.read[r]
        read_len = reads.base_offsets[read + 1] - reads.base_offsets[read]
        first_op, end_op = records.cigar_offsets[r], records.cigar_offsets[r + 1]
        left_clip, right_clip, on_query, on_ref, block = measure(
            records.cigar_ops, first_op, end_op
        )
        tag, end_tag = records.tag_offsets[r], records.tag_offsets[r + 1]
        edits = integer_tag(records.tags, tag, end_tag, _NM, 0)
        score = integer_tag(records.tags, tag, end_tag, _AS, 0)
        start = right_clip if flag & REVERSE else left_clip

        at = copy_bytes(
            out, at, reads.names, reads.name_offsets[read], reads.name_offsets[read + 1]
        )
        if flag & (FIRST | LAST):
            out[at] = _SLASH
            out[at + 1] = _ONE if flag & FIRST else _TWO
            at += 2
        for number in (read_len, start, start + on_query):
            out[at] = _TAB
            at = put_int(out, at + 1, number)
        out[at] = _TAB
        out[at + 1] = _MINUS if flag & REVERSE else _PLUS
        out[at + 2] = _TAB
        ref_id = records.ref_id[r]
        at = copy_bytes(out, at + 3, contigs, contig_offsets[ref_id], contig_offsets[ref_id + 1])
        for number in (
            lengths[ref_id], records.ref_pos[r], records.ref_pos[r] + on_ref,
            block - edits, block, np.int64(records.mapq[r]),
        ):  # fmt: skip
            out[at] = _TAB
            at = put_int(out, at + 1, number)
        at = put_int(out, copy_bytes(out, at, _NM_TEXT, 0, len(_NM_TEXT)), edits)
        at = put_int(out, copy_bytes(out, at, _AS_TEXT, 0, len(_AS_TEXT)), score)
        kind = 7 if flag & SECONDARY else 0
        at = copy_bytes(out, at, _TP_TEXT, kind, kind + 7)
        anchors = integer_tag(records.tags, tag, end_tag, _CM, -1)
        if anchors >= 0:
            at = put_int(out, copy_bytes(out, at, _CM_TEXT, 0, len(_CM_TEXT)), anchors)
        de = find_tag(records.tags, tag, end_tag, _DE)
        if de >= 0:
            at = _put_divergence(out, at, get32(records.tags, de + 3))
        at = copy_bytes(out, at, _CG_TEXT, 0, len(_CG_TEXT))
        for i in range(first_op, end_op):
            op = np.int64(records.cigar_ops[i])
            if op & 15 != S and op & 15 != H:
                at = put_int(out, at, op >> 4)
                out[at] = ASCII_OF_OP[op & 15]
                at += 1
        for key in (_CS, _DS):
            start = find_tag(records.tags, tag, end_tag, key)
            if start >= 0:
                at = _put_text_tag(out, at, records.tags, start)
        out[at] = _NEWLINE
        at += 1
    return at


@core
def _put_divergence(out, at, bits):
    """Write de, a share of so many ten-thousandths given as the bits of a float32."""
    at = copy_bytes(out, at, _DE_TEXT, 0, len(_DE_TEXT))
    units = np.int64(10_000 * np.float64(np.int32(bits).view(np.float32)) + 0.5)
    at = put_int(out, at, units // 10_000)
    if units % 10_000:
        out[at] = ord(".")
        for digit in range(1, 5):
            out[at + digit] = ord("0") + units // 10 ** (4 - digit) % 10
        at += 5
    return at


@core
def _put_text_tag(out, at, tags, start):
    """Write the tag of type Z at `start` as text."""
    out[at] = _TAB
    out[at + 1], out[at + 2] = tags[start], tags[start + 1]
    out[at + 3] = out[at + 5] = ord(":")
    out[at + 4] = ord("Z")
    at, start = at + 6, start + 3
    while tags[start]:
        out[at] = tags[start]
        at, start = at + 1, start + 1
    return at
