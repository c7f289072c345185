"""Define the batches that flow through the stages: structs of arrays, one row per item.

``reads → seeds → loci → alignments → records``. A batch is a NamedTuple of arrays and
passes unchanged to compiled code. A column of variable length is a flat array with
``*_offsets`` (int64, one more value than rows, first 0, nondecreasing): row i is
``column[offsets[i]:offsets[i + 1]]``. Stages never write to their input.

Coordinates are 0-based and half-open. ``text_pos`` is a position in the indexed text
(all contigs in order, each followed by one separator base that matches nothing).
``query_*`` are positions in the read *as it lies on the forward strand of the
reference*: for strand 1 they count on the reverse complement of the read as given.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NO_QUALITY = 255
"""Base quality in a read without qualities (as in BAM)."""

NO_FLAGS = np.zeros(0, np.uint16)
NO_TAGS = np.zeros(0, np.uint8)
NO_OFFSETS = np.zeros(0, np.int64)

MIN_COST = 32
"""A read counts at least this many bases in the size of a batch, so that empty reads cannot fill
the memory."""


class BatchSize(NamedTuple):
    """Counts of a batch that statistics need after its records have been made."""

    n_reads: int
    n_bases: int
    paired: bool


class ReadBatch(NamedTuple):
    """Reads in input order.

    For pairs, mates are rows 2 i and 2 i + 1. In a *mixed* batch (`flags` given, `paired`
    false, some rows with SAM flag 1) the mates of a pair are adjacent rows anywhere, the
    first before the last; stages take only its parts (:func:`mapper.batch_ops.split_mixed`).
    """

    bases: np.ndarray  # uint8 codes of mapper.dna, flat
    quals: np.ndarray  # uint8 Phred, flat like bases; all NO_QUALITY in a read without
    base_offsets: np.ndarray  # int64 (n + 1,)
    names: np.ndarray  # uint8 ASCII, flat; without "@", comment, or /1 /2
    name_offsets: np.ndarray  # int64 (n + 1,)
    first_read: int  # ordinal, in the whole input, of row 0
    paired: bool
    flags: np.ndarray = NO_FLAGS
    """uint16 (n,), or empty: the input's SAM flags 0x1, 0x40, 0x80 (pairing) and 0x200 (failed the
    instrument's quality checks)."""
    tags: np.ndarray = NO_TAGS  # uint8, flat: BAM-encoded tags to be copied to the records
    tag_offsets: np.ndarray = NO_OFFSETS  # int64 (n + 1,), or empty if no read has tags

    @property
    def n_reads(self) -> int:
        return len(self.base_offsets) - 1

    @property
    def size(self) -> BatchSize:
        return BatchSize(self.n_reads, int(self.base_offsets[-1]), self.paired)

    @property
    def n_pairs(self) -> int:
        """Number of pairs, in a mixed batch too."""
        if self.paired:
            return self.n_reads // 2
        return int((self.flags & 1).sum()) // 2


class PackedReads(NamedTuple):
    """Bit planes (mapper.dna) of both strands of each read.

    Read i has W = ceil(length / 64) rows for its forward strand at ``word_offsets[i]``,
    then W for its reverse complement. One row of padding follows the last.
    """

    planes: np.ndarray  # uint64 (n_words, 3)
    word_offsets: np.ndarray  # int64 (n + 1,)


class SeedBatch(NamedTuple):
    """Located exact seeds of each read, one for each strand and diagonal they lead to."""

    seed_offsets: np.ndarray  # int64 (n_reads + 1,)
    strand: np.ndarray  # uint8: 0 the read itself, 1 its reverse complement
    query_start: np.ndarray  # int32
    text_pos: np.ndarray  # int64
    seed_len: np.ndarray  # int32
    guarantee: np.ndarray
    """int32 (n_reads,): every place that differs from the read in fewer substitutions than this has
    been found."""
    thinned: np.ndarray  # bool (n_reads,): a seed was lengthened or left out


class SeedSummary(NamedTuple):
    """The columns of a SeedBatch that say which places of a read may have been missed."""

    guarantee: np.ndarray  # int32 (n_reads,)
    thinned: np.ndarray  # bool (n_reads,)


class AnchorBatch(NamedTuple):
    """Maximal exact matches of long reads, by strand, then end in the text, then end on the read.

    ``query_start`` and ``text_pos`` are their first bases, on the oriented read and in the text.
    """

    anchor_offsets: np.ndarray  # int64 (n_reads + 1,)
    strand: np.ndarray  # uint8
    query_start: np.ndarray  # int32
    text_pos: np.ndarray  # int64
    length: np.ndarray  # int32
    frequent: np.ndarray  # int32 (n_reads,): bases of windows left out as too frequent


class LinkBatch(NamedTuple):
    """The best chain that ends with each anchor of long reads (``chain/collinear.py``)."""

    score: np.ndarray  # int64, in units
    parent: np.ndarray  # int64: the anchor before it, counted from the read's first; -1 for none


class ChainBatch(NamedTuple):
    """Collinear chains of the anchors of long reads, best score first."""

    chain_offsets: np.ndarray  # int64 (n_reads + 1,)
    strand: np.ndarray  # uint8
    ref_id: np.ndarray  # int32
    score: np.ndarray  # int32, in matched bases
    anchor_offsets: np.ndarray  # int64 (n_chains + 1,)
    query_start: np.ndarray  # int32, and the next two: of the anchors of each chain, ascending
    text_pos: np.ndarray  # int64
    length: np.ndarray  # int32


class LocusBatch(NamedTuple):
    """Candidate loci of each read: one strand and diagonal each."""

    locus_offsets: np.ndarray  # int64 (n_reads + 1,)
    strand: np.ndarray  # uint8
    diagonal: np.ndarray  # int64: text_pos - query_start
    ref_id: np.ndarray  # int32: contig
    window_start: np.ndarray  # int64: text bounds of the alignment
    window_end: np.ndarray  # int64


class AlignmentBatch(NamedTuple):
    """Local alignments of each read, best score first."""

    alignment_offsets: np.ndarray  # int64 (n_reads + 1,)
    strand: np.ndarray  # uint8
    ref_id: np.ndarray  # int32
    text_start: np.ndarray  # int64
    text_end: np.ndarray  # int64
    query_start: np.ndarray  # int32
    query_end: np.ndarray  # int32
    score: np.ndarray  # int32: match bonus minus penalties, without end bonuses
    edit_distance: np.ndarray  # int32
    cigar_offsets: np.ndarray  # int64 (n_alignments + 1,)
    cigar_ops: np.ndarray  # uint32, length << 4 | op; operations = X I D


def no_alignments(n_reads: int) -> AlignmentBatch:
    """Return a batch without alignments for `n_reads` reads."""
    wide, narrow = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return AlignmentBatch(
        alignment_offsets=np.zeros(n_reads + 1, np.int64),
        strand=np.zeros(0, np.uint8),
        ref_id=narrow,
        text_start=wide,
        text_end=wide,
        query_start=narrow,
        query_end=narrow,
        score=narrow,
        edit_distance=narrow,
        cigar_offsets=np.zeros(1, np.int64),
        cigar_ops=np.zeros(0, np.uint32),
    )


class RecordBatch(NamedTuple):
    """SAM records in output order: mates in input order, supplementary after their primary."""

    read: np.ndarray  # int32: row of the ReadBatch
    flag: np.ndarray  # uint16
    ref_id: np.ndarray  # int32, -1 for none
    ref_pos: np.ndarray  # int64, 0-based, -1 for none
    mapq: np.ndarray  # uint8
    next_ref_id: np.ndarray  # int32
    next_pos: np.ndarray  # int64
    template_len: np.ndarray  # int64
    cigar_offsets: np.ndarray  # int64 (n_records + 1,)
    cigar_ops: np.ndarray  # uint32, as written: M I D S H, or = X
    query_start: np.ndarray  # int32: SEQ and QUAL hold bases query_start:query_end ...
    query_end: np.ndarray  # int32: ... of the read on the record's strand (flag 0x10)
    tag_offsets: np.ndarray  # int64 (n_records + 1,)
    tags: np.ndarray  # uint8: BAM-encoded tags, ready to append

    @property
    def n_records(self) -> int:
        return len(self.flag)


IS_MAPPED, IS_PROPER, IS_SURE, IS_RECORDED = 1, 2, 4, 8


class EncodedBatch(NamedTuple):
    """The BAM records of a batch of reads, which a device has placed."""

    data: np.ndarray  # uint8: records, one behind another
    state: np.ndarray
    """uint8 (n_reads,): bits IS_MAPPED; IS_PROPER, in a proper pair; IS_SURE, of the statistics;
    IS_RECORDED, one of its records is primary, and all have as much room as was planned."""
    n_records: int


def no_records() -> RecordBatch:
    """Return a batch without records."""
    return RecordBatch(
        read=np.zeros(0, np.int32), flag=np.zeros(0, np.uint16), ref_id=np.zeros(0, np.int32),
        ref_pos=np.zeros(0, np.int64), mapq=np.zeros(0, np.uint8),
        next_ref_id=np.zeros(0, np.int32), next_pos=np.zeros(0, np.int64),
        template_len=np.zeros(0, np.int64), cigar_offsets=np.zeros(1, np.int64),
        cigar_ops=np.zeros(0, np.uint32), query_start=np.zeros(0, np.int32),
        query_end=np.zeros(0, np.int32), tag_offsets=np.zeros(1, np.int64),
        tags=np.zeros(0, np.uint8),
    )  # fmt: skip


def no_reads(paired: bool = False) -> ReadBatch:
    """Return a batch without reads."""
    nothing, offsets = np.zeros(0, np.uint8), np.zeros(1, np.int64)
    return ReadBatch(nothing, nothing, offsets, nothing, offsets, 0, paired)


class KmerBatch(NamedTuple):
    """k-mers cut from reads, by read, then offset; none holds an ambiguous base."""

    low: np.ndarray  # uint64 (n,): bit i is the low bit of base i's code (k <= 64)
    high: np.ndarray  # uint64 (n,): its high bit
    read: np.ndarray  # int32 (n,): row of the ReadBatch
    offset: np.ndarray  # int32 (n,): of the k-mer's first base in the read as given

    @property
    def n_kmers(self) -> int:
        return len(self.low)


class KmerHits(NamedTuple):
    """Matches of k-mers: row 2 i is k-mer i itself, row 2 i + 1 its reverse complement."""

    hit_offsets: np.ndarray  # int64 (2 n + 1,)
    text_pos: np.ndarray  # uint32 or uint64: leftmost base of the match, ascending in a row
    mismatches: np.ndarray  # uint8
    skipped: np.ndarray  # bool (n,): more hits than the limit, on both strands together
