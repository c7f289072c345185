"""From placements to SAM records: flags, mate fields, CIGARs and tags.

As bwa writes them: an unmapped read has the position of its mate; RNEXT and PNEXT name the
mate's primary; supplementary records are hard-clipped unless asked otherwise or on ALT contigs; XA
lists the secondary alignments; pa is the score as a share of a better ALT hit's. Those of long
reads have tp, cm and de of minimap2. TLEN runs from the 5' end of the read's aligned bases to that
of its mate's, as ``samtools fixmate`` writes it. ``ms`` is samtools' mate score, the sum of the
mate's base qualities of 15 and more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.batch import NO_QUALITY, AlignmentBatch, ReadBatch, RecordBatch
from mapper.cigar import EQUAL, H, S
from mapper.index.reference import Contigs
from mapper.io.simd_text import VECTOR, phred_sum
from mapper.jit.accelerate import core, driver, grown
from mapper.jit.intrinsics import prefetch
from mapper.pair.contig_groups import is_alt
from mapper.pair.difference_tags import (
    AlignedBases,
    put_differences,
    put_divergence,
)
from mapper.pair.placement import SECONDARY, SUPPLEMENTARY, UNUSED, PlacementBatch
from mapper.pair.record_tags import (
    cigar_of,
    put_bytes,
    put_cigar_text,
    put_int_tag,
    put_md,
    put_sa,
    put_share_tag,
    put_tag,
    put_xa,
)
from mapper.parallel.buffers import RECYCLER
from mapper.params import LONG_CS, NO_CS, SHORT_CS, RecordParams
from mapper.sam_flags import (
    FIRST,
    LAST,
    MATE_REVERSE,
    MATE_UNMAPPED,
    PAIRED,
    PROPER,
    REVERSE,
    UNMAPPED,
)
from mapper.sam_flags import SECONDARY as SECONDARY_FLAG
from mapper.sam_flags import SUPPLEMENTARY as SUPPLEMENTARY_FLAG


class Names(NamedTuple):
    """Names of contigs and read group, as flat bytes for compiled code."""

    contigs: np.ndarray  # uint8
    contig_offsets: np.ndarray  # int64 (n_contigs + 1,)
    contig_starts: np.ndarray  # int64 (n_contigs,)
    groups: np.ndarray  # int32 (n_contigs,), or empty: of Contigs
    read_group: np.ndarray  # uint8; empty for none
    longest: int
    """Characters of the longest name of a contig."""


def make_names(contigs: Contigs, read_group: str) -> Names:
    """Flatten contig names and the read group's ID.

    Parameters
    ----------
    read_group
        ID without ``ID:``; empty for none.
    """
    encoded = [name.encode() for name in contigs.names]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(name) for name in encoded], out=offsets[1:])
    flat = np.frombuffer(b"".join(encoded), np.uint8)
    group_id = np.frombuffer(read_group.encode(), np.uint8)
    longest = int(np.diff(offsets).max(initial=0))
    return Names(flat, offsets, contigs.starts, contigs.groups, group_id, longest)


MATE_SCORE_QUALITY = 15
OP_ROOM = 16
"""Characters reserved for an operation: a length of up to ten digits, its letter, four brackets."""

FIXED_TAGS_ROOM = 256
"""Bytes reserved for the tags of fixed size of a record, and the names of the others."""

READS_AHEAD = 8
"""Distance of prefetching the reference, in reads: 3 µs, several times the latency of memory."""
NO_ANCHORS = np.zeros(0, np.int32)
CLIPS = 2
"""Operations that a record's CIGAR may have beside those of its alignment."""

CIGAR_EXTRA = 4
"""Room that :func:`mapper.pair.record_tags.cigar_of` and ``short_cigar_of`` need beside the
operations of an alignment: the latter writes up to five where there may be one."""


class Fields(NamedTuple):
    """The fixed-size columns of a RecordBatch, with spare rows."""

    read: np.ndarray
    flag: np.ndarray
    ref_id: np.ndarray
    ref_pos: np.ndarray
    mapq: np.ndarray
    next_ref_id: np.ndarray
    next_pos: np.ndarray
    template_len: np.ndarray
    query_start: np.ndarray
    query_end: np.ndarray
    cigar_offsets: np.ndarray
    tag_offsets: np.ndarray


FIELD_TYPES = ("i4", "u2", "i4", "i8", "u1", "i4", "i8", "i8", "i4", "i4", "i8", "i8")


def _new_fields(n_records: int) -> Fields:
    *columns, ops, tags = FIELD_TYPES
    return Fields(
        *(np.empty(n_records, np.dtype(kind)) for kind in columns),
        *(np.zeros(n_records + 1, np.dtype(kind)) for kind in (ops, tags)),
    )


@core
def mate_quality(quality):
    """Return a base quality if it counts in the mate score (tag ms), else 0."""
    return np.int64(quality) if MATE_SCORE_QUALITY <= quality != NO_QUALITY else np.int64(0)


@core
def _mate_score(quals, start, end):
    at, total = np.int64(start), np.int64(0)
    while at < end and at + VECTOR <= len(quals):  # of a vector, bases behind `end` are read too
        n = min(end - at, np.int64(VECTOR))
        total += phred_sum(quals, at, n, MATE_SCORE_QUALITY) - phred_sum(quals, at, n, NO_QUALITY)
        at += n
    for i in range(at, end):
        total += mate_quality(quals[i])
    return total


@core
def _aligned_five_prime(alignments, i):
    """Return the text position of the 5' end of an alignment, without clipped bases."""
    return alignments.text_end[i] if alignments.strand[i] else alignments.text_start[i]


@core
def _template_len(alignments, this, mate):
    """Return the signed distance from the 5' end of alignment `this` to that of its mate.

    As ``samtools fixmate`` has it, and bwa for mates on opposite strands that do not point away
    from each other; the specification leaves the ends of a template to the implementation.
    """
    if alignments.ref_id[this] != alignments.ref_id[mate]:
        return np.int64(0)
    return _aligned_five_prime(alignments, mate) - _aligned_five_prime(alignments, this)


@core
def _spelled_room(cigar_ops, start, end):
    """Return an upper bound of the bytes of MD, cs or ds of operations, but for bases that match.

    An operation takes its length, or that of the matches before it, a sign and four brackets; a
    base of a difference up to three characters.
    """
    room = np.int64(OP_ROOM)
    for i in range(start, end):
        room += OP_ROOM
        if cigar_ops[i] & 15 != EQUAL:
            room += 3 * np.int64(cigar_ops[i] >> 4)
    return room


@core
def _place_room(alignments, i, longest_name):
    """Return an upper bound of the bytes by which XA or SA name alignment `i`."""
    n_ops = alignments.cigar_offsets[i + 1] - alignments.cigar_offsets[i]
    # Beside its operations there are three numbers and as many signs.
    return longest_name + (OP_ROOM - 5) * (n_ops + CIGAR_EXTRA) + 4 * OP_ROOM


@core
def tag_room(base_offsets, alignments, role, read, this, mate_primary, n_group, longest_name,
             params):  # fmt: skip
    """Return an upper bound of the bytes of the tags of one of a read's records.

    Parameters
    ----------
    role
        Of alignments: a column of PlacementBatch.
    this, mate_primary
        Its alignment, and that of its mate; -1 for none.
    n_group, longest_name
        Characters of the read group and of a contig's name.
    """
    room = FIXED_TAGS_ROOM + np.int64(n_group)
    if mate_primary >= 0:
        room += _place_room(alignments, mate_primary, np.int64(0))
    if this < 0:
        return room
    if role[this] != SECONDARY:  # SA and XA; with records of their own no alternatives are listed
        for i in range(alignments.alignment_offsets[read], alignments.alignment_offsets[read + 1]):
            if role[i] != UNUSED and not (params.all_alignments and role[i] == SECONDARY):
                room += _place_room(alignments, i, longest_name)
    n_spelled = 1 + (params.cs != NO_CS) + params.ds  # MD, cs, ds
    room += n_spelled * _spelled_room(
        alignments.cigar_ops, alignments.cigar_offsets[this], alignments.cigar_offsets[this + 1]
    )
    if params.cs == LONG_CS:  # cs, and ds in its form, spell all bases
        room += (1 + params.ds) * (base_offsets[read + 1] - base_offsets[read])
    return room


@driver
def _measure(base_offsets, alignments, role, all_alignments):
    """Return the number of records, and the most operations of an alignment."""
    n_records, most_ops = len(base_offsets) - 1, np.int64(0)
    also = SECONDARY if all_alignments else SUPPLEMENTARY
    for i in range(len(role)):
        n_records += (role[i] == SUPPLEMENTARY) | (role[i] == also)
    for i in range(len(role)):
        most_ops = max(most_ops, alignments.cigar_offsets[i + 1] - alignments.cigar_offsets[i])
    return n_records, most_ops


@core
def _fetch_reference(alignments, primary, ref_planes):
    """Prefetch the text of a primary alignment, which MD will quote."""
    if primary >= 0:
        item = 3 * (alignments.text_start[primary] >> 6)  # three words for each 64 bases
        prefetch(ref_planes, item)
        prefetch(ref_planes, item + 8)  # 150 bases mostly take two cache lines


@core
def _put_spelled(tags, pos, bases, read_start, read_end, alignments, this, ref_planes, params):
    """Write cs and ds of an alignment, if asked for."""
    if params.cs == NO_CS and not params.ds:
        return pos
    given = AlignedBases(
        bases, read_start, read_end, np.int64(alignments.strand[this]),
        np.int64(alignments.query_start[this]), np.int64(alignments.query_end[this]), ref_planes,
        alignments.text_start[this], alignments.text_end[this],
    )  # fmt: skip
    first, end = alignments.cigar_offsets[this], alignments.cigar_offsets[this + 1]
    for bracketed in range(2):
        if params.ds if bracketed else params.cs != NO_CS:
            letter = ord("d") if bracketed else ord("c")
            form = max(params.cs, SHORT_CS)
            pos = put_differences(
                tags, pos, letter, alignments.cigar_ops, first, end, given, form, bracketed
            )
    return pos


@core
def next_turn(role, turn, end, all_alignments):
    """Return the first alignment behind `turn` that has a record of its own, or `end`.

    The primary's, with which the records of a read begin, is not looked for.
    """
    turn += 1
    while turn < end and not (
        role[turn] == SUPPLEMENTARY or (all_alignments and role[turn] == SECONDARY)
    ):
        turn += 1
    return turn


@core
def _flag_of_read(alignments, placements, read, paired, mate_primary):
    """Return the bits of the flag that all records of a read have."""
    if not paired:
        return 0
    flag = PAIRED | (LAST if read & 1 else FIRST)
    if placements.proper[read]:
        flag |= PROPER
    if mate_primary < 0:
        flag |= MATE_UNMAPPED
    elif alignments.strand[mate_primary]:
        flag |= MATE_REVERSE
    return flag


@core
def _ref_pos(alignments, names, i):
    """Return where alignment `i` begins on its contig; -1 for none."""
    if i < 0:
        return np.int64(-1)
    return alignments.text_start[i] - names.contig_starts[alignments.ref_id[i]]


@core
def put_fields(base_offsets, alignments, placements, names, paired, read, this, params, cigar,
                fields, record, cigar_ops, n_ops):  # fmt: skip
    """Fill a row of `fields`, but for its tags, and write its operations; return their end.

    `this` is its alignment; -1 for an unmapped read.
    """
    read_len = base_offsets[read + 1] - base_offsets[read]
    primary = placements.primary[read]
    mate_primary = placements.primary[read ^ 1] if paired else np.int64(-1)
    flag = _flag_of_read(alignments, placements, read, paired, mate_primary)
    query_start, query_end = np.int64(0), read_len
    place = this
    mapq = np.uint8(0)
    if this < 0:
        flag |= UNMAPPED
        place = mate_primary
    else:
        mapq = placements.mapq[this]
        clip = S
        if alignments.strand[this]:
            flag |= REVERSE
        if placements.role[this] == SECONDARY:
            flag |= SECONDARY_FLAG
            mapq = np.uint8(0)
            query_start = query_end = np.int64(0)
        elif placements.role[this] == SUPPLEMENTARY:
            flag |= SUPPLEMENTARY_FLAG
            if not params.soft_clip_supplementary and not is_alt(
                names.groups, alignments.ref_id[this]
            ):
                clip = H
                query_start = np.int64(alignments.query_start[this])
                query_end = np.int64(alignments.query_end[this])
        n = cigar_of(alignments, this, read_len, clip, params.extended_cigar, cigar)
        for i in range(n):
            cigar_ops[n_ops + i] = cigar[i]
        n_ops += n
    partner = mate_primary if mate_primary >= 0 else (primary if paired else mate_primary)
    fields.read[record] = read
    fields.flag[record] = flag
    fields.mapq[record] = mapq
    fields.query_start[record] = query_start
    fields.query_end[record] = query_end
    fields.cigar_offsets[record + 1] = n_ops
    fields.ref_id[record] = alignments.ref_id[place] if place >= 0 else -1
    fields.ref_pos[record] = _ref_pos(alignments, names, place)
    fields.next_ref_id[record] = alignments.ref_id[partner] if partner >= 0 else -1
    fields.next_pos[record] = _ref_pos(alignments, names, partner)
    fields.template_len[record] = (
        _template_len(alignments, this, mate_primary) if this >= 0 and mate_primary >= 0 else 0
    )
    return n_ops


@core
def put_tags(bases, base_offsets, alignments, placements, names, ref_planes, paired, n_anchors,
             mate_score, read, this, params, cigar, tags, pos):  # fmt: skip
    """Write the tags of a record; return the position behind them.

    `mate_score` is the value of ms, of pairs.
    """
    first, end = alignments.alignment_offsets[read], alignments.alignment_offsets[read + 1]
    read_len = base_offsets[read + 1] - base_offsets[read]
    mate = read ^ 1
    mate_primary = placements.primary[mate] if paired else np.int64(-1)
    if this >= 0:
        pos = put_int_tag(tags, pos, ord("N"), ord("M"), alignments.edit_distance[this])
        pos = put_tag(tags, pos, ord("M"), ord("D"), ord("Z"))
        pos = put_md(
            tags, pos, alignments.cigar_ops, alignments.cigar_offsets[this],
            alignments.cigar_offsets[this + 1], ref_planes, alignments.text_start[this],
        )  # fmt: skip
        tags[pos] = 0
        pos = put_int_tag(tags, pos + 1, ord("A"), ord("S"), alignments.score[this])
        if placements.role[this] != SECONDARY:
            pos = put_int_tag(tags, pos, ord("X"), ord("S"), placements.sub_score[this])
            pos = put_sa(
                tags, pos, alignments, placements, names, first, end, this,
                placements.primary[read], read_len, params, cigar,
            )  # fmt: skip
            if not params.all_alignments:
                pos = put_xa(
                    tags, pos, alignments, placements, names, first, end, this, read_len, params,
                    cigar,
                )  # fmt: skip
            better = placements.rival[this]
            if better >= 0 and better != this:
                pos = put_share_tag(
                    tags, pos, ord("p"), ord("a"), alignments.score[this],
                    alignments.score[better], 1000,
                )  # fmt: skip
        if len(n_anchors):
            pos = put_tag(tags, pos, ord("t"), ord("p"), ord("A"))
            tags[pos] = ord("S") if placements.role[this] == SECONDARY else ord("P")
            pos = put_int_tag(tags, pos + 1, ord("c"), ord("m"), n_anchors[this])
            pos = put_divergence(
                tags, pos, alignments.cigar_ops, alignments.cigar_offsets[this],
                alignments.cigar_offsets[this + 1],
            )  # fmt: skip
        pos = _put_spelled(
            tags, pos, bases, base_offsets[read], base_offsets[read + 1], alignments, this,
            ref_planes, params,
        )  # fmt: skip
    if mate_primary >= 0:
        pos = put_tag(tags, pos, ord("M"), ord("C"), ord("Z"))
        n = cigar_of(
            alignments, mate_primary, base_offsets[mate + 1] - base_offsets[mate], S,
            params.extended_cigar, cigar,
        )  # fmt: skip
        pos = put_cigar_text(tags, pos, cigar, 0, n)
        tags[pos] = 0
        pos = put_int_tag(tags, pos + 1, ord("M"), ord("Q"), placements.mapq[mate_primary])
    if paired:
        pos = put_int_tag(tags, pos, ord("m"), ord("s"), mate_score)
    if len(names.read_group):
        pos = put_tag(tags, pos, ord("R"), ord("G"), ord("Z"))
        pos = put_bytes(tags, pos, names.read_group, 0, len(names.read_group))
        tags[pos] = 0
        pos += 1
    return pos


@driver
def _make_records(bases, quals, base_offsets, alignments, placements, names, ref_planes, paired,
                  n_anchors, params, most_ops, fields, cigar_ops, tags):  # fmt: skip
    """Fill `fields`; return the number of records, and the arrays of operations and tags.

    These are `cigar_ops` and `tags`, or larger copies where they were too small. The number is -1
    if tags took more than was reserved.
    """
    n_reads = len(base_offsets) - 1
    # Arrays of tuples are taken out of them here, or used in cores: an access counts a reference.
    offsets, primaries, role = alignments.alignment_offsets, placements.primary, placements.role
    tag_offsets = fields.tag_offsets
    all_alignments = params.all_alignments
    cigar = np.empty(most_ops + CIGAR_EXTRA, np.uint32)
    n_group = len(names.read_group)
    n_records = np.int64(0)
    n_ops = np.int64(0)
    pos = np.int64(0)
    for read in range(n_reads):
        first, end = offsets[read], offsets[read + 1]
        if read + READS_AHEAD < n_reads:
            _fetch_reference(alignments, primaries[read + READS_AHEAD], ref_planes)
        mate_score, mate_primary = np.int64(0), np.int64(-1)
        if paired:
            mate = read ^ 1
            mate_score = _mate_score(quals, base_offsets[mate], base_offsets[mate + 1])
            mate_primary = primaries[mate]
        # Turn first - 1 is the primary (or the unmapped read); then come the others.
        turn = np.int64(first - 1)
        while turn < end:
            this = primaries[read] if turn < first else turn
            room = tag_room(
                base_offsets, alignments, role, read, this, mate_primary, n_group, names.longest,
                params,
            )  # fmt: skip
            if pos + room > len(tags):
                tags = grown(tags, 2 * (pos + room))
            if n_ops + most_ops + CLIPS > len(cigar_ops):
                cigar_ops = grown(cigar_ops, 2 * (n_ops + most_ops + CLIPS))
            n_ops = put_fields(
                base_offsets, alignments, placements, names, paired, read, this, params, cigar,
                fields, n_records, cigar_ops, n_ops,
            )  # fmt: skip
            reserved = pos + room
            pos = put_tags(
                bases, base_offsets, alignments, placements, names, ref_planes, paired, n_anchors,
                mate_score, read, this, params, cigar, tags, pos,
            )  # fmt: skip
            if pos > reserved:
                return np.int64(-1), cigar_ops, tags
            tag_offsets[n_records + 1] = pos
            n_records += 1
            turn = next_turn(role, turn, end, all_alignments)
    return n_records, cigar_ops, tags


def make_records(
    reads: ReadBatch,
    alignments: AlignmentBatch,
    placements: PlacementBatch,
    names: Names,
    ref_planes: np.ndarray,
    params: RecordParams,
    n_anchors: np.ndarray = NO_ANCHORS,
) -> RecordBatch:
    """Turn placements into SAM records, in input order.

    Parameters
    ----------
    ref_planes
        uint64 (n_words + 2, 3): bit planes of the indexed text, which MD quotes.
    n_anchors
        int32 (n_alignments,): of long reads, whose records get tp, cm and de; else empty.

    Returns
    -------
    Records of each read together, the primary (or the unmapped one) first.

    Raises
    ------
    RuntimeError
        If the number of records differs from the count made before: a bug.

    References
    ----------
    SAM format specification (hts-specs), sections 1.4 and 1.5, and SAMtags for MD, MC, SA;
    XA as of bwa's manual.
    """
    n_records, most_ops = _measure(
        reads.base_offsets, alignments, placements.role, params.all_alignments
    )
    fields = _new_fields(n_records)
    n, cigar_ops, tags = _make_records(
        reads.bases, reads.quals, reads.base_offsets, alignments, placements, names, ref_planes,
        reads.paired, n_anchors, params, most_ops, fields,
        RECYCLER.empty(4 * (4 * reads.n_reads + 1024)).view(np.uint32),
        RECYCLER.empty(160 * reads.n_reads + 65536),
    )  # fmt: skip
    if n != n_records:
        raise RuntimeError(f"{n} records where {n_records} were planned: a bug in fmwave")
    return RecordBatch(
        **fields._asdict(),
        cigar_ops=cigar_ops[: fields.cigar_offsets[n]],
        tags=tags[: fields.tag_offsets[n]],
    )
