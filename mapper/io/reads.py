"""Read all input files of a run as one stream of batches; formats are recognised by content."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import numpy as np

from mapper.batch import ReadBatch
from mapper.errors import InputFormatError, UsageError, option
from mapper.io.bam_reader import BamReader, alignment_format
from mapper.io.batch_reader import BatchReader, FastqText, RawBatch
from mapper.io.bgzf_reader import SharedInflating
from mapper.io.fastq import DEFAULT_BATCH_BASES, DEFAULT_CHUNK_BYTES, FastqReader, check_files
from mapper.io.header import parse_read_group
from mapper.io.input_file import STDIN, ByteSource, same_file
from mapper.io.input_tags import read_group_of, with_tag
from mapper.io.position import InputPosition
from mapper.parallel.buffers import RECYCLER
from mapper.sam_flags import PAIRED


class Lane(NamedTuple):
    """Read files of one sequencing lane, and their read group."""

    paths: tuple[str, ...]
    read_group: str | None = None  # as for header.parse_read_group; None: the input's own, if any


LARGE_GZIP = 1 << 26
"""Bytes of a gzip file whose decompression by one thread is worth a message."""


class ReadOptions(NamedTuple):
    """Options of :class:`ReadsReader`."""

    interleaved: bool = False
    """The FASTQ file of a lane holds the two mates of each pair one after the other."""
    keep_comments: bool = False
    """Take the comments of FASTQ and FASTA as SAM tags."""
    tag_groups: bool = False
    """Give each read the RG tag of its lane."""
    reference: str | None = None
    """FASTA file for CRAM input."""
    threads: int = 1
    """Threads of a samtools process that reads CRAM or SAM."""
    executor: Executor | None = None
    """Its threads read ahead and decompress; None: the calling thread does."""
    n_threads: int = 1
    """Of `executor`: with more threads, more is read ahead."""
    inflating: SharedInflating | None = None
    """Decompresses BGZF; None for the threads of `executor`."""
    input_memory: Callable[[int], np.ndarray] = RECYCLER.empty
    """Returns memory (uint8) of a number of bytes, for the text of FASTQ and FASTA."""
    most_first: int = 0
    """Reads of the first batch at most, of FASTQ and FASTA; 0 for no limit of its own."""
    orphans: str = "map"
    """What to do with records of BAM, CRAM and SAM that are flagged paired and have no mate:
    ``map`` them as single reads, ``skip`` or ``refuse`` them."""
    limits: LengthLimits | None = None
    """Longer reads are refused; None for no limits."""
    keeps_places: bool = False
    """Note where reading can begin, for positions after which another process goes on."""
    batch_bases: int = DEFAULT_BATCH_BASES
    chunk_bytes: int = DEFAULT_CHUNK_BYTES


class LengthLimits(NamedTuple):
    """The most bases of a read."""

    mate: int  # of a pair
    single: int


class _Waiting(NamedTuple):
    """Files that are to be read after the current ones."""

    start: Callable[[], FastqReader | BamReader]
    close: Callable[[], None]
    tag: bytes  # for each of their reads
    names: tuple[str, ...]  # for messages


class ReadsReader(BatchReader):
    """Reader of all reads of a run, lane after lane, in batches that do not cross lanes.

    Parameters
    ----------
    lanes
        Each holds one FASTQ or FASTA file, two of mates, or any number of BAM, CRAM and SAM
        files; ``-`` is standard input.
    options
        See :class:`ReadOptions`.

    Raises
    ------
    UsageError
        For files that cannot be combined.
    InputFormatError
        If a file cannot be opened, or a header cannot be read.
    """

    def __init__(self, lanes: Sequence[Lane], options: ReadOptions) -> None:
        super().__init__()
        self._options = options
        self._waiting: deque[_Waiting] = deque()
        self._current: FastqReader | BamReader | None = None
        self._n_started = 0  # of the files that were waiting
        self._tag = b""
        self._names: tuple[str, ...] = ()
        self._n_before = 0  # reads of earlier files
        self.may_hold_pairs = False
        """False if it is known that no reads are paired."""
        self.may_hold_singles = False
        """False if it is known that all reads are paired."""
        self.has_text = False
        """True if some files are FASTQ or FASTA."""
        self._bam_readers: list[BamReader] = []
        self.converts = False
        """True if a samtools process converts input (CRAM or SAM)."""
        self.headers: list[list[str]] = []
        """Lines of the header of each input file that has one."""
        self.header_names: list[str] = []
        """Names of these files."""
        self._sources: list[ByteSource] = []
        try:
            for lane in lanes:
                self._add(lane)
            _check_distinct([path for lane in lanes for path in lane.paths])
        except BaseException:
            self.close()
            raise

    @property
    def large_serial_gzip(self) -> str | None:
        """Name of a large file that one thread decompresses, if there is one."""
        for source in self._sources:
            if source.n_bytes >= LARGE_GZIP and source.is_serial_gzip:
                return source.name
        return None

    def limit_batches(self, batch_bases: int) -> None:
        """Set the size of later batches."""
        self._options = self._options._replace(batch_bases=batch_bases)
        for reader in self._bam_readers:
            reader.limit_batches(batch_bases)

    def position(self) -> InputPosition:
        """Return the position after the last batch."""
        n_orphans = tuple(reader.n_orphans for reader in self._bam_readers)
        if self._current is None:
            return InputPosition(self._n_started, self.n_reads, n_orphans, None)
        return InputPosition(
            self._n_started, self._n_before, n_orphans, self._current.position()
        )  # fmt: skip

    def go_to(self, position: InputPosition) -> None:
        """Move to a position in the same files; to be called before any batch is read.

        Raises
        ------
        InputFormatError
            If a file cannot be read up to there.
        """
        while self._n_started < position.n_started:
            self._start_next()
            if self._n_started < position.n_started or position.reader is None:
                self._end_current()
        for reader, n_orphans in zip(self._bam_readers, position.n_orphans, strict=True):
            reader.n_orphans = n_orphans
        self._n_before = self.n_reads = position.n_before
        if self._current is not None and position.reader is not None:
            self._current.go_to(position.reader)
            self.n_reads += position.reader.n_reads
        self.n_orphans = sum(position.n_orphans)

    @property
    def share_read(self) -> float | None:
        """Share of the files' bytes that has been read; None if some file is a pipe or a device."""
        sizes = [source.n_bytes for source in self._sources]
        if not sizes or not all(sizes):
            return None
        return sum(source.n_read for source in self._sources) / sum(sizes)

    def close(self) -> None:
        """Close all files."""
        if self._current is not None:
            self._current.close()
        for files in self._waiting:
            files.close()

    def _cut(self) -> RawBatch | None:
        raw = None
        while raw is None:
            if self._current is None:
                if not self._waiting:
                    return None
                self._start_next()
            assert self._current is not None
            raw = self._current.next_raw()
            self.n_orphans = sum(reader.n_orphans for reader in self._bam_readers)
            if raw is None:
                self._end_current()
        # Their present values: when the batch is parsed, another file may be current.
        position = _Position(self._names, self._n_before, self._tag, self.n_reads)
        return raw._replace(
            parse=partial(_parse, raw, position, self._options.limits),
            text=_for_device(raw, position),
        )

    def _start_next(self) -> None:
        """Begin the next of the files."""
        following = self._waiting.popleft()
        self._current, self._tag = following.start(), following.tag
        self._names, self._n_before = following.names, self.n_reads
        self._n_started += 1

    def _end_current(self) -> None:
        """Close the files that have been read."""
        assert self._current is not None
        self._current.close()
        self._current = None

    def _add(self, lane: Lane) -> None:
        """Open the files of a lane and recognise their formats."""
        tag = b""
        if lane.read_group is not None and self._options.tag_groups:
            tag = b"RGZ" + parse_read_group(lane.read_group)[1].encode() + b"\0"
        sources: list[ByteSource] = []
        with ExitStack() as stack:
            # With no more threads than files, these decompress a file each.
            finds_members = self._options.n_threads > len(lane.paths)
            for path in lane.paths:
                source = ByteSource(path, self._options.executor, finds_members=finds_members)
                sources.append(source)
                stack.callback(sources[-1].close)
                if self._options.keeps_places:
                    sources[-1].keep_places()
            formats = [alignment_format(source) for source in sources]
            if any(formats):
                self._add_alignments(lane, sources, formats, tag)
            else:
                self._add_fastq(lane, sources, tag)
            stack.pop_all()
        self._sources += sources

    def _add_fastq(self, lane: Lane, sources: list[ByteSource], tag: bytes) -> None:
        check_files(lane.paths, self._options.interleaved)
        self.has_text = True

        def start() -> FastqReader:
            options = self._options
            return FastqReader(
                sources, options.interleaved, options.batch_bases, options.chunk_bytes,
                options.keep_comments, options.executor, n_threads=options.n_threads,
                inflating=options.inflating, memory=options.input_memory,
                most_first=0 if self.n_reads else options.most_first,
            )  # fmt: skip

        def close() -> None:
            for source in sources:
                source.close()

        self._waiting.append(_Waiting(start, close, tag, tuple(source.name for source in sources)))
        self.may_hold_pairs |= len(sources) == 2 or self._options.interleaved
        self.may_hold_singles |= len(sources) == 1

    def _add_alignments(
        self, lane: Lane, sources: Sequence[ByteSource], formats: Sequence[str | None], tag: bytes
    ) -> None:
        options = self._options
        kinds = [
            f"{s.name} is {(f or 'fastq').upper()}" for s, f in zip(sources, formats, strict=True)
        ]
        if not all(formats):
            raise UsageError(
                f"{', '.join(kinds)}; give FASTQ files alone, or BAM, CRAM and SAM files alone"
            )
        if options.interleaved:
            raise UsageError(
                f"{kinds[0]}, which says itself what are mates; drop {option('interleaved')}"
            )
        if options.keep_comments:
            raise UsageError(
                f"{kinds[0]}, and its tags are kept anyway; drop {option('keep_comments')}"
            )
        for source, fmt in zip(sources, formats, strict=True):
            assert fmt is not None
            self.converts |= fmt != "bam"
            reader = BamReader(
                source, fmt, options.batch_bases, options.chunk_bytes, options.reference,
                options.threads, options.executor, options.n_threads, options.orphans,
                options.inflating,
            )  # fmt: skip
            self._bam_readers.append(reader)
            self._waiting.append(_Waiting(_giving(reader), reader.close, tag, (source.name,)))
            self.headers.append(reader.header)
            self.header_names.append(source.name)
            if lane.read_group is not None and reader.read_groups:
                raise UsageError(
                    f"{source.name} has read groups of its own; drop the one given, or put it in "
                    "their place with `samtools addreplacerg`"
                )
        self.may_hold_pairs = self.may_hold_singles = True


class _Position(NamedTuple):
    """The position of a batch in the input."""

    names: tuple[str, ...]  # of its files
    n_before: int  # reads of earlier files
    tag: bytes  # for each of its reads
    first_read: int


def _parse(raw: RawBatch, position: _Position, limits: LengthLimits | None) -> ReadBatch:
    """Parse a batch, number and tag its reads, and refuse reads that are too long."""
    reads = raw.parse()._replace(first_read=position.first_read)
    if limits is not None:
        refuse_long_reads(reads, limits, position.names, position.n_before)
    return with_tag(reads, position.tag) if position.tag else reads


def _for_device(raw: RawBatch, position: _Position) -> FastqText | None:
    """Return the text of a batch if a device may parse it, with the read group of its reads.

    The host parses the first batch of a run, as it warns about some.
    """
    group = read_group_of(position.tag)
    if raw.text is None or position.first_read == 0 or group is None:
        return None
    return raw.text._replace(read_group=group)


def refuse_long_reads(
    reads: ReadBatch, limits: LengthLimits, names: Sequence[str], n_before: int = 0
) -> None:
    """Raise InputFormatError if a read has more bases than its limit.

    `names` are those of the files that hold the reads, in turn; `n_before` reads are of others.
    """
    lengths = np.diff(reads.base_offsets)
    if lengths.max(initial=0) <= min(limits):
        return
    in_pair = np.full(reads.n_reads, reads.paired)
    if len(reads.flags):
        in_pair |= (reads.flags & PAIRED) != 0
    too_long = np.flatnonzero(lengths > np.where(in_pair, limits.mate, limits.single))
    if not len(too_long):
        return
    row = int(too_long[0])
    name = reads.names[slice(*reads.name_offsets[row : row + 2])].tobytes().decode("ascii")
    ordinal = reads.first_read + row - n_before
    mate, number = ordinal % len(names), ordinal // len(names) + 1
    limit = (
        f"mates of a pair may have {limits.mate}; longer reads are mapped as single reads"
        if in_pair[row]
        else f"a read may have {limits.single}; cut it"
    )
    raise InputFormatError(
        f"{names[mate]}: record {number}: read {name!r} has {lengths[row]} bases, and {limit}"
    )


def _giving(reader: BamReader) -> Callable[[], BamReader]:
    return lambda: reader


def _check_distinct(paths: Sequence[str]) -> None:
    for i, path in enumerate(paths):
        if any(same_file(path, other) for other in paths[:i]):
            name = "standard input" if path == STDIN else path
            raise UsageError(f"{name} given twice; name each file once")
