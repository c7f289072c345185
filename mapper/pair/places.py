"""Core: the tags SA and XA, which quote other alignments of a read."""

from __future__ import annotations

import numpy as np

from mapper.cigar import S
from mapper.jit.accelerate import core
from mapper.pair.grade import PRIMARY, SECONDARY, SUPPLEMENTARY
from mapper.pair.tags import output_cigar, put_bytes, put_cigar_text, put_number, put_tag


@core
def put_place(buffer, pos, alignments, names, i, cigar, n_cigar, strand_first):
    """Write one alignment as XA (``name,+pos,CIGAR,``) or SA (``name,pos,+,CIGAR,``) has it."""
    ref_id = alignments.ref_id[i]
    pos = put_bytes(
        buffer, pos, names.contigs, names.contig_offsets[ref_id], names.contig_offsets[ref_id + 1]
    )
    buffer[pos] = ord(",")
    pos += 1
    sign = ord("-") if alignments.strand[i] else ord("+")
    ref_pos = alignments.text_start[i] - names.contig_starts[ref_id] + 1
    if strand_first:
        buffer[pos] = sign
        pos = put_number(buffer, pos + 1, ref_pos)
    else:
        pos = put_number(buffer, pos, ref_pos)
        buffer[pos] = ord(",")
        buffer[pos + 1] = sign
        pos += 2
    buffer[pos] = ord(",")
    pos = put_cigar_text(buffer, pos + 1, cigar, 0, n_cigar)
    buffer[pos] = ord(",")
    return pos + 1


@core
def cigar_of(alignments, i, read_len, clip, extended, cigar):
    """Write the operations of an alignment as :func:`mapper.pair.tags.output_cigar` does."""
    return output_cigar(
        alignments.cigar_ops, alignments.cigar_offsets[i], alignments.cigar_offsets[i + 1],
        alignments.query_start[i], alignments.query_end[i], read_len, clip, extended, cigar,
    )  # fmt: skip


@core
def put_alternatives(buffer, pos, alignments, placements, names, first, end, head, read_len,
                      params, cigar):  # fmt: skip
    """Write XA for a head if it has few enough alternatives."""
    bar = params.xa_ratio * alignments.score[head]
    listed = 0
    for i in range(first, end):
        if placements.role[i] == SECONDARY and placements.head[i] == head:
            listed += alignments.score[i] >= bar
    if listed == 0 or listed > params.max_xa:
        return pos
    pos = put_tag(buffer, pos, ord("X"), ord("A"), ord("Z"))
    for i in range(first, end):
        if placements.role[i] != SECONDARY or placements.head[i] != head:
            continue
        if alignments.score[i] < bar:
            continue
        n = cigar_of(alignments, i, read_len, S, params.extended_cigar, cigar)
        pos = put_place(buffer, pos, alignments, names, i, cigar, n, True)
        pos = put_number(buffer, pos, np.int64(alignments.edit_distance[i]))
        buffer[pos] = ord(";")
        pos += 1
    buffer[pos] = 0
    return pos + 1


@core
def put_split(buffer, pos, alignments, placements, names, first, end, this, primary, read_len,
               params, cigar):  # fmt: skip
    """Write SA: the other heads of a split read, the primary first."""
    n_heads = 0
    for i in range(first, end):
        n_heads += placements.role[i] == PRIMARY or placements.role[i] == SUPPLEMENTARY
    if n_heads < 2:
        return pos
    pos = put_tag(buffer, pos, ord("S"), ord("A"), ord("Z"))
    for turn in range(first - 1, end):
        i = primary if turn < first else turn
        if i == this or (turn >= first and placements.role[i] != SUPPLEMENTARY):
            continue
        n = cigar_of(alignments, i, read_len, S, params.extended_cigar, cigar)
        pos = put_place(buffer, pos, alignments, names, i, cigar, n, False)
        pos = put_number(buffer, pos, np.int64(placements.mapq[i]))
        buffer[pos] = ord(",")
        pos = put_number(buffer, pos + 1, np.int64(alignments.edit_distance[i]))
        buffer[pos] = ord(";")
        pos += 1
    buffer[pos] = 0
    return pos + 1
