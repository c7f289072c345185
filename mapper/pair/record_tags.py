"""Core: write SAM tags as BAM bytes into a flat buffer.

Every function takes the buffer and the next free position, and returns the position behind its
output; the caller has reserved room.
"""

from __future__ import annotations

import numpy as np

from mapper.cigar import ASCII_OF_OP, EQUAL, M, S, X, append_op, base_at
from mapper.cigar import D as DELETION
from mapper.cigar import I as INSERTION
from mapper.dna import ASCII_OF_CODE
from mapper.io.tags import put_int
from mapper.jit.accelerate import core
from mapper.jit.simd import put16, put32
from mapper.pair.contig_groups import is_alt
from mapper.pair.mapq import PRIMARY, SECONDARY, SUPPLEMENTARY


@core
def put_bytes(buffer, pos, source, start, end):
    """Copy ``source[start:end]``."""
    for i in range(start, end):
        buffer[pos] = source[i]
        pos += 1
    return pos


@core
def put_tag(buffer, pos, first, second, kind):
    """Write a tag's two letters and its type."""
    put16(buffer, pos, first | second << 8)
    buffer[pos + 2] = kind
    return pos + 3


@core
def put_int_tag(buffer, pos, first, second, value):
    """Write a tag of type i (int32, little-endian)."""
    pos = put_tag(buffer, pos, first, second, ord("i"))
    put32(buffer, pos, np.int64(value))
    return pos + 4


@core
def put_share_tag(buffer, pos, first, second, part, whole, units):
    """Write ``part / whole``, rounded to a multiple of ``1 / units``, as a tag of type f."""
    pos = put_tag(buffer, pos, first, second, ord("f"))
    rounded = (2 * units * np.int64(part) + whole) // (2 * np.int64(whole))
    put32(buffer, pos, np.int64(np.float32(rounded / units).view(np.int32)))
    return pos + 4


@core
def put_cigar_text(buffer, pos, ops, start, end):
    """Write packed operations as SAM text."""
    for i in range(start, end):
        pos = put_int(buffer, pos, np.int64(ops[i] >> 4))
        buffer[pos] = ASCII_OF_OP[ops[i] & 15]
        pos += 1
    return pos


@core
def put_md(buffer, pos, ops, start, end, ref_planes, text_pos):
    """Write an MD string for operations ``= X I D`` that begin at `text_pos`."""
    run = np.int64(0)
    for i in range(start, end):
        code = ops[i] & 15
        length = np.int64(ops[i] >> 4)
        if code == EQUAL:
            run += length
            text_pos += length
        elif code == X:
            for _ in range(length):
                pos = put_int(buffer, pos, run)
                run = np.int64(0)
                buffer[pos] = ASCII_OF_CODE[base_at(ref_planes, 0, text_pos)]
                pos += 1
                text_pos += 1
        elif code == DELETION:
            pos = put_int(buffer, pos, run)
            run = np.int64(0)
            buffer[pos] = ord("^")
            pos += 1
            for _ in range(length):
                buffer[pos] = ASCII_OF_CODE[base_at(ref_planes, 0, text_pos)]
                pos += 1
                text_pos += 1
    return put_int(buffer, pos, run)


@core
def output_cigar(ops, start, end, query_start, query_end, read_len, clip, extended, out):
    """Write an alignment's operations in the form of a record; return their number.

    Parameters
    ----------
    clip
        Operation for unaligned ends: S or H.
    extended
        Keep ``=`` and ``X``; otherwise both become M.
    """
    n = 0
    if query_start > 0:
        out[n] = np.uint32((np.int64(query_start) << 4) | clip)
        n += 1
    first = n
    for i in range(start, end):
        op = ops[i]
        code = op & 15
        if not extended and (code == EQUAL or code == X):
            op = np.uint32((op >> 4 << 4) | M)
            code = M
        if n > first and (out[n - 1] & 15) == code:
            out[n - 1] += np.uint32(op >> 4 << 4)
        else:
            out[n] = np.uint32(op)
            n += 1
    if query_end < read_len:
        out[n] = np.uint32((np.int64(read_len - query_end) << 4) | clip)
        n += 1
    return n


@core
def short_cigar_of(alignments, i, read_len, cigar):
    """Write row i as soft clips, one run of M and one gap of the bases that M lacks; return n."""
    on_query = np.int64(alignments.query_end[i]) - alignments.query_start[i]
    on_text = alignments.text_end[i] - alignments.text_start[i]
    n = append_op(cigar, 0, S, np.int64(alignments.query_start[i]))
    n = append_op(cigar, n, M, min(on_query, on_text))
    n = append_op(cigar, n, INSERTION, max(np.int64(0), on_query - on_text))
    n = append_op(cigar, n, DELETION, max(np.int64(0), on_text - on_query))
    return append_op(cigar, n, S, np.int64(read_len) - alignments.query_end[i])


@core
def put_place(buffer, pos, alignments, names, i, cigar, n_cigar, strand_first):
    """Write one alignment as in XA (``name,+pos,CIGAR,``) or SA (``name,pos,+,CIGAR,``)."""
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
        pos = put_int(buffer, pos + 1, ref_pos)
    else:
        pos = put_int(buffer, pos, ref_pos)
        buffer[pos] = ord(",")
        buffer[pos + 1] = sign
        pos += 2
    buffer[pos] = ord(",")
    pos = put_cigar_text(buffer, pos + 1, cigar, 0, n_cigar)
    buffer[pos] = ord(",")
    return pos + 1


@core
def cigar_of(alignments, i, read_len, clip, extended, cigar):
    """Write the operations of row i by :func:`output_cigar`."""
    return output_cigar(
        alignments.cigar_ops, alignments.cigar_offsets[i], alignments.cigar_offsets[i + 1],
        alignments.query_start[i], alignments.query_end[i], read_len, clip, extended, cigar,
    )  # fmt: skip


@core
def put_xa(buffer, pos, alignments, placements, names, first, end, head, read_len,
           params, cigar):  # fmt: skip
    """Write XA, the alternatives of a head, unless there are too many."""
    bar = params.xa_ratio * alignments.score[head]
    listed = n_rivals = 0
    has_alt = False
    for i in range(first, end):
        if placements.role[i] != SECONDARY or placements.head[i] != head:
            continue
        if alignments.score[i] < bar:
            continue
        listed += 1
        n_rivals += placements.rival[i] == head
        has_alt |= is_alt(names.groups, alignments.ref_id[i])
    if listed == 0 or listed > max(params.max_xa, params.max_xa_of_groups):
        return pos
    if n_rivals > params.max_xa and not has_alt:
        return pos
    pos = put_tag(buffer, pos, ord("X"), ord("A"), ord("Z"))
    for i in range(first, end):
        if placements.role[i] != SECONDARY or placements.head[i] != head:
            continue
        if alignments.score[i] < bar:
            continue
        n = cigar_of(alignments, i, read_len, S, params.extended_cigar, cigar)
        pos = put_place(buffer, pos, alignments, names, i, cigar, n, True)
        pos = put_int(buffer, pos, np.int64(alignments.edit_distance[i]))
        buffer[pos] = ord(";")
        pos += 1
    buffer[pos] = 0
    return pos + 1


@core
def put_sa(buffer, pos, alignments, placements, names, first, end, this, primary, read_len,
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
        if params.short_sa:
            n = np.int64(short_cigar_of(alignments, i, read_len, cigar))
        else:
            n = np.int64(cigar_of(alignments, i, read_len, S, params.extended_cigar, cigar))
        pos = put_place(buffer, pos, alignments, names, i, cigar, n, False)
        pos = put_int(buffer, pos, np.int64(placements.mapq[i]))
        buffer[pos] = ord(",")
        pos = put_int(buffer, pos + 1, np.int64(alignments.edit_distance[i]))
        buffer[pos] = ord(";")
        pos += 1
    buffer[pos] = 0
    return pos + 1
