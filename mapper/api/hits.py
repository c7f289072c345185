"""Mapped reads as columns: what :meth:`mapper.Aligner.map` returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from mapper import batch_ops
from mapper.api.hit import Hit
from mapper.api.tag_values import tags_of
from mapper.batch import ReadBatch, RecordBatch
from mapper.cigar import ASCII_OF_OP, measure
from mapper.dna import ASCII_OF_CODE
from mapper.errors import UsageError
from mapper.io.bam_writer import encode_bam
from mapper.io.paf import encode_paf
from mapper.io.sam import encode_sam
from mapper.io.tags import integer_tag, put_int, tag_key
from mapper.jit.accelerate import driver
from mapper.pair.insert_size import InsertSizeModel
from mapper.sam_flags import LAST, PROPER, REVERSE, SECONDARY, UNMAPPED

if TYPE_CHECKING:
    import pysam

ROWS_AT_ONCE = 4096
"""Records whose columns become Python objects at a time."""

_NM, _AS = tag_key("NM"), tag_key("AS")
_OP_CHARACTERS = 10  # of a CIGAR operation as text, at most


class Target(NamedTuple):
    """The reference of some hits."""

    names: tuple[str, ...]
    lengths: np.ndarray  # int64 (n_contigs,)
    header: str  # SAM header


@driver
def _derive(records, end, query_start, query_end, block_len, nm, score):
    for r in range(len(records.flag)):
        tag, end_tag = records.tag_offsets[r], records.tag_offsets[r + 1]
        nm[r] = integer_tag(records.tags, tag, end_tag, _NM, -1)
        score[r] = integer_tag(records.tags, tag, end_tag, _AS, -1)
        left, right, on_query, on_ref, block = measure(
            records.cigar_ops, records.cigar_offsets[r], records.cigar_offsets[r + 1]
        )
        is_mapped = (records.flag[r] & UNMAPPED) == 0
        start = right if records.flag[r] & REVERSE else left
        end[r] = records.ref_pos[r] + on_ref if is_mapped else -1
        query_start[r] = start if is_mapped else 0
        query_end[r] = start + on_query if is_mapped else 0
        block_len[r] = block


@driver
def _integer_tags(records, key, missing, values):
    for r in range(len(records.flag)):
        values[r] = integer_tag(
            records.tags, records.tag_offsets[r], records.tag_offsets[r + 1], key, missing
        )


@driver
def _put_cigars(ops, offsets, text, text_offsets):
    at = np.int64(0)
    text_offsets[0] = 0
    for r in range(len(offsets) - 1):
        for i in range(offsets[r], offsets[r + 1]):
            at = put_int(text, at, ops[i] >> 4)
            text[at] = ASCII_OF_OP[ops[i] & 15]
            at += 1
        text_offsets[r + 1] = at


class _Derived(NamedTuple):
    """Columns that follow from CIGARs and tags."""

    end: np.ndarray  # int64
    query_start: np.ndarray  # int32
    query_end: np.ndarray  # int32
    block_len: np.ndarray  # int32
    nm: np.ndarray  # int32
    score: np.ndarray  # int32


class Hits:
    """The records of some reads, as columns: NumPy arrays of a row for each record.

    Records are those of ``fmwave map``: in the order of the reads, mates after one another, the
    primary record of a read (or its unmapped one) before its others. Iterating gives a
    :class:`mapper.Hit` for each; ``hits[i]`` gives one, ``hits[mask]``, ``hits[2:5]`` and
    ``hits[array_of_rows]`` give the hits of these rows. Columns are not copied when they are taken,
    must not be written to, and hold their memory while any of them is in use.

    Attributes
    ----------
    read : int64
        Number of the read in the input of the call, from 0; mates count as two reads.
    flag : uint16
        SAM flags.
    contig : int32
        Number of the contig in ``contig_names``; -1 for none. An unmapped read has the place of
        its mate.
    start, end : int64
        Bounds in the contig, 0-based and half-open. An unmapped read has no `end` (-1), and as
        `start` that of its mate, or -1.
    strand : int8
        1 forward, -1 reverse, 0 unmapped.
    mapq : uint8
        Mapping quality.
    score, nm : int32
        Alignment score (AS) and edit distance (NM); -1 for none.
    query_start, query_end : int32
        Bounds of the aligned part in the read as given; 0 for an unmapped read.
    block_len : int32
        Columns of the alignment: matches, mismatches and gaps.
    cigar_ops : uint32
        Operations ``length << 4 | code``, as in BAM, of all records; those of record i are
        ``cigar_ops[cigar_offsets[i]:cigar_offsets[i + 1]]``. Codes index ``"MIDNSHP=X"``.
    cigar_offsets : int64
        One more than records.
    tags : uint8
        BAM-encoded tags of all records, with `tag_offsets` as for CIGARs.
    tag_offsets : int64
        One more than records.
    next_contig, next_start, template_len : int32, int64, int64
        RNEXT, PNEXT (0-based) and TLEN.
    contig_names, contig_lengths
        The contigs: a tuple of str, and int64.
    insert_size
        The insert-size model of the call (:class:`mapper.pair.insert_size.InsertSizeModel`, with
        ``mean``, ``std``, ``low`` and ``high``), which a later call may be given; mean and std are
        0 if too few pairs gave no estimate. None for single reads.
    reads : mapper.ReadBatch
        The reads, by their rows; ``hits.read - hits.reads.first_read`` are rows.

    Examples
    --------
    >>> import numpy as np, mapper
    >>> aligner = mapper.Aligner("tests/data/phix174.fa", device="cpu", threads=1)
    >>> hits = aligner.map(["GAGTTTTATCGCTTCCATGACGCAGAAGTTAACACTTTC", "ACGTACGTACGTACGTACGT"])
    >>> len(hits), hits.start.tolist(), hits.mapq.tolist()
    (2, [0, -1], [60, 0])
    >>> [hit.cigar_str for hit in hits[hits.strand != 0]]
    ['39M']
    >>> aligner.close()
    """

    def __init__(
        self, reads: Sequence[ReadBatch], records: RecordBatch, target: Target,
        insert_size: InsertSizeModel | None = None,
    ) -> None:  # fmt: skip
        self._parts = reads
        self.insert_size = insert_size
        self._records = records
        self._target = target

    @property
    def reads(self) -> ReadBatch:
        """The reads that the records are of, in input order."""
        if len(self._parts) > 1:  # joined when they are wanted: many programs take columns only
            self._parts = [batch_ops.join_reads(self._parts)]
        return self._parts[0]

    # --- columns ---

    @property
    def contig_names(self) -> tuple[str, ...]:
        return self._target.names

    @property
    def contig_lengths(self) -> np.ndarray:
        return self._target.lengths

    @cached_property
    def read(self) -> np.ndarray:
        return self._records.read + np.int64(self._parts[0].first_read)

    @property
    def flag(self) -> np.ndarray:
        return self._records.flag

    @property
    def contig(self) -> np.ndarray:
        return self._records.ref_id

    @property
    def start(self) -> np.ndarray:
        return self._records.ref_pos

    @property
    def end(self) -> np.ndarray:
        return self._derived.end

    @cached_property
    def strand(self) -> np.ndarray:
        flag = self._records.flag
        strand = np.where(flag & REVERSE, np.int8(-1), np.int8(1))
        strand[(flag & UNMAPPED) != 0] = 0
        return strand

    @property
    def mapq(self) -> np.ndarray:
        return self._records.mapq

    @property
    def score(self) -> np.ndarray:
        return self._derived.score

    @property
    def nm(self) -> np.ndarray:
        return self._derived.nm

    @property
    def query_start(self) -> np.ndarray:
        return self._derived.query_start

    @property
    def query_end(self) -> np.ndarray:
        return self._derived.query_end

    @property
    def block_len(self) -> np.ndarray:
        return self._derived.block_len

    @property
    def cigar_ops(self) -> np.ndarray:
        return self._records.cigar_ops

    @property
    def cigar_offsets(self) -> np.ndarray:
        return self._records.cigar_offsets

    @property
    def tags(self) -> np.ndarray:
        return self._records.tags

    @property
    def tag_offsets(self) -> np.ndarray:
        return self._records.tag_offsets

    @property
    def next_contig(self) -> np.ndarray:
        return self._records.next_ref_id

    @property
    def next_start(self) -> np.ndarray:
        return self._records.next_pos

    @property
    def template_len(self) -> np.ndarray:
        return self._records.template_len

    @property
    def is_mapped(self) -> np.ndarray:
        """True for records with an alignment: bool."""
        return (self.flag & UNMAPPED) == 0

    @property
    def is_primary(self) -> np.ndarray:
        """True for alignments that are not secondary (0x100), as in mappy: bool."""
        return (self.flag & (UNMAPPED | SECONDARY)) == 0

    @property
    def is_proper(self) -> np.ndarray:
        """True for the alignments of proper pairs: bool."""
        return (self.flag & PROPER) != 0

    @property
    def read_num(self) -> np.ndarray:
        """Number of the read in its pair, 1 or 2; 1 for a single read: uint8."""
        return np.where(self.flag & LAST, np.uint8(2), np.uint8(1))

    def integer_tag(self, tag: str, missing: int = -1) -> np.ndarray:
        """Return the value of an integer tag, such as ``XS``, of each record: int64.

        `missing` stands for the value of records without it.
        """
        if len(tag) != 2 or not tag.isascii():
            raise UsageError(f"tag {tag!r}: two characters, as 'XS', are expected")
        values = np.empty(len(self), np.int64)
        _integer_tags(self._records, tag_key(tag), missing, values)
        return values

    @cached_property
    def _derived(self) -> _Derived:
        n = len(self)
        columns = _Derived(np.empty(n, np.int64), *(np.empty(n, np.int32) for _ in range(5)))
        _derive(self._records, *columns)
        return columns

    # --- rows ---

    def __len__(self) -> int:
        return self._records.n_records

    @overload
    def __getitem__(self, rows: int) -> Hit: ...

    @overload
    def __getitem__(self, rows: slice | np.ndarray | Sequence[int]) -> Hits: ...

    def __getitem__(self, rows: int | slice | np.ndarray | Sequence[int]) -> Hit | Hits:
        if isinstance(rows, int | np.integer):
            row = int(rows) + (len(self) if rows < 0 else 0)
            if not 0 <= row < len(self):
                raise IndexError(f"record {rows} of {len(self)}")
            return next(self._hits(row, row + 1))
        chosen = np.arange(len(self), dtype=np.int64)[rows]
        records = batch_ops.take_records(self._records, chosen)
        return Hits([self.reads], records, self._target, self.insert_size)

    def __iter__(self) -> Iterator[Hit]:
        for first in range(0, len(self), ROWS_AT_ONCE):
            yield from self._hits(first, min(first + ROWS_AT_ONCE, len(self)))

    def _hits(self, first: int, last: int) -> Iterator[Hit]:
        rows = slice(first, last)
        columns = (
            self.flag, self.contig, self.start, self.end, self.query_start, self.query_end,
            self.mapq, self.nm, self.score, self.block_len,
        )  # fmt: skip
        lists = [column[rows].tolist() for column in columns]
        for row, values in enumerate(zip(*lists, strict=True), first):
            yield Hit(self, row, *values)

    def of_read(self, read: int) -> Hits:
        """Return the records of a read, by its number in the input of the call."""
        first, last = np.searchsorted(self.read, [read, read + 1])
        return self[int(first) : int(last)]

    # --- parts of a record ---

    def name_of(self, row: int) -> str:
        """Return the name of the read of a record."""
        return self._text_of(row, self.reads.names, self.reads.name_offsets)

    def sequence_of(self, row: int) -> str:
        """Return the letters of the read of a record, as given."""
        read = self._records.read[row]
        start, end = self.reads.base_offsets[read : read + 2]
        return ASCII_OF_CODE[self.reads.bases[start:end]].tobytes().decode()

    def tags_of(self, row: int) -> dict[str, Any]:
        """Return the tags of a record by name: int, float or str, arrays as NumPy arrays."""
        start, end = self.tag_offsets[row : row + 2]
        return tags_of(self.tags[start:end].tobytes())

    def _text_of(self, row: int, column: np.ndarray, offsets: np.ndarray) -> str:
        read = self._records.read[row]
        return column[offsets[read] : offsets[read + 1]].tobytes().decode("latin-1")

    # --- other forms ---

    def to_numpy(self) -> dict[str, np.ndarray]:
        """Return the columns by name, without a copy; those of variable length with offsets."""
        names = (
            "read", "flag", "contig", "start", "end", "strand", "mapq", "score", "nm",
            "query_start", "query_end", "block_len", "next_contig", "next_start", "template_len",
            "cigar_ops", "cigar_offsets", "tags", "tag_offsets",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, np.ndarray]:
        """Return columns of one value for each record, as ``pandas.DataFrame`` takes them.

        ``name``, ``contig`` and ``cigar`` are text (object arrays; None for no contig, ``*`` for
        no CIGAR); the other columns are those of this class.
        """
        contigs = np.array([*self.contig_names, None], object)
        return {
            "name": self._names(),
            "read_num": self.read_num,
            "flag": self.flag,
            "contig": contigs[self.contig],
            "start": self.start,
            "end": self.end,
            "strand": self.strand,
            "mapq": self.mapq,
            "score": self.score,
            "nm": self.nm,
            "query_start": self.query_start,
            "query_end": self.query_end,
            "template_len": self.template_len,
            "cigar": self._cigars(),
        }

    def _names(self) -> np.ndarray:
        names = _texts(self.reads.names, self.reads.name_offsets)
        return names[self._records.read]

    def _cigars(self) -> np.ndarray:
        text = np.empty(_OP_CHARACTERS * len(self.cigar_ops), np.uint8)
        offsets = np.empty(len(self) + 1, np.int64)
        _put_cigars(self.cigar_ops, self.cigar_offsets, text, offsets)
        texts = _texts(text, offsets)
        texts[offsets[1:] == offsets[:-1]] = "*"
        return texts

    @property
    def header(self) -> str:
        """The SAM header of these records, as text."""
        return self._target.header

    def to_bam(self) -> bytes:
        """Return the records as BAM has them, uncompressed and without a header."""
        return encode_bam(self._records, self.reads).tobytes()

    def to_sam(self) -> str:
        """Return the records as lines of SAM, without a header."""
        return encode_sam(self._records, self.reads, self.contig_names).tobytes().decode("latin-1")

    def to_paf(self) -> str:
        """Return the mapped records as lines of PAF."""
        encoded = encode_paf(self._records, self.reads, self.contig_names, self.contig_lengths)
        return encoded.tobytes().decode("latin-1")

    def to_pysam(self, header: pysam.AlignmentHeader | None = None) -> list[pysam.AlignedSegment]:
        """Return the records as pysam's objects.

        Parameters
        ----------
        header
            Header of these contigs, as of the file that they will be written to; None: `header`.
        """
        import pysam

        if header is None:
            header = pysam.AlignmentHeader.from_text(self.header)
        if tuple(header.references) != self.contig_names:
            raise UsageError(
                f"the header has {len(header.references)} contigs, or others, where the reference "
                f"has {len(self.contig_names)}; use Hits.header"
            )
        lines = self.to_sam().splitlines()
        return [pysam.AlignedSegment.fromstring(line, header) for line in lines]

    def __repr__(self) -> str:
        mapped = int(self.is_mapped.sum())
        n_reads = sum(part.n_reads for part in self._parts)
        return f"<mapper.Hits: {len(self)} records of {n_reads} reads, {mapped} mapped>"


def _texts(flat: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the rows of a column of ASCII as an object array of str."""
    text = flat[: offsets[-1]].tobytes().decode("latin-1")
    bounds = offsets.tolist()
    found = np.empty(len(bounds) - 1, object)
    found[:] = [text[start:end] for start, end in pairwise(bounds)]
    return found


class Piece(NamedTuple):
    """The records of a batch, as a run hands them over."""

    reads: ReadBatch
    records: RecordBatch


def piece_of(records: RecordBatch, reads: ReadBatch) -> Piece:
    """Return records and reads in the order of the fields."""
    return Piece(reads, records)


def joined(pieces: Sequence[Piece], target: Target, insert_size: InsertSizeModel | None) -> Hits:
    """Return the hits of consecutive batches."""
    reads = [piece.reads for piece in pieces]
    counts = [batch.n_reads for batch in reads]
    records = batch_ops.join_records([piece.records for piece in pieces], counts)
    return Hits(reads, records, target, insert_size)
