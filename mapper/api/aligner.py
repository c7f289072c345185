"""Mapping from Python: :class:`Aligner`."""

from __future__ import annotations

import difflib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from mapper.align.threads import thread_count
from mapper.api import inputs
from mapper.api.hits import Hits, Piece, Target, joined, piece_of
from mapper.batch import ReadBatch, RecordBatch, no_reads, no_records
from mapper.cuda.devices import CPU, DeviceChoice, hold_device
from mapper.errors import UsageError, check_memory_bound, refuse_file_name
from mapper.index.index import Index
from mapper.io.header import header_text
from mapper.io.reads import Lane, ReadOptions, ReadsReader
from mapper.mapping.job import MapJob
from mapper.mapping.options import (
    SWITCHES,
    WHOLE_NUMBERS,
    insert_size_model,
    map_params,
)
from mapper.mapping.pipeline import LENGTH_LIMITS, Batches, Encoder, Run, finished_batches
from mapper.mapping.prefetch import BatchPrefetcher
from mapper.mapping.session import Session
from mapper.mapping.stats import RunStats
from mapper.mapping.warm_up import compile_stages
from mapper.pair.insert_size import InsertSizeModel
from mapper.parallel.buffers import RECYCLER
from mapper.parallel.pool import READ, call_in_daemon
from mapper.parallel.signals import interruptible

if TYPE_CHECKING:
    from mapper.api.hit import Hit

InsertSize = float | tuple[float, ...] | InsertSizeModel
"""Mean; mean, deviation, largest and smallest size; or the model of another call."""

FEW_READS = 1000
"""So many reads in a list, at most, are mapped by the CPU though there is a device: it would take
longer to start its kernels."""

BATCHES_A_THREAD = 4
"""Of a list, at least: with fewer, threads would wait for the last."""

LEAST_READS = 256
"""Of a batch of a list that is cut so."""

_CALLED_ELSEWHERE = {
    "eqx": "extended_cigar", "all": "all_alignments", "soft_clip": "soft_clip_supplementary",
    "k": "seed_len", "seed_length": "seed_len", "n_threads": "threads", "t": "threads",
    "A": "match", "B": "mismatch", "scoring": "match, mismatch, gap_open and gap_extend",
    "best_n": "all_alignments", "fn_idx_in": "index",
}  # fmt: skip
"""Names that other mappers or the command give to options."""


class AlignmentOptions(TypedDict, total=False):
    """Options of :class:`Aligner` on scores, seeds and records; defaults as of the command."""

    match: int
    """Score of a match, 1; the defaults of the other scores are multiplied by it. These are the
    defaults of short reads. With `preset` hifi, ont or asm the scores are those of long reads,
    whose defaults are the preset's."""
    mismatch: int
    """Subtracted for a mismatch: 4."""
    gap_open: int | tuple[int, int]
    """A gap of n bases costs ``gap_open + n * gap_extend``: 6, and"""
    gap_extend: int | tuple[int, int]
    """1. Two numbers each, with such a preset: the lower of both sums."""
    end_bonus: int
    """Bonus of reaching an end of the read: 5."""
    min_score: int
    """Lowest score to report: 30."""
    unpaired_penalty: int
    """Score that a proper pair may lose against its mates' best: 17."""
    seed_len: int
    """Seed length; 0, the default: by reference size."""
    max_occ: int
    """Seeds more frequent are left out: 32."""
    extended_cigar: bool
    """``=`` and ``X`` in CIGARs instead of M (``--eqx``)."""
    all_alignments: bool
    """Secondary records instead of the XA tag (``--all``)."""
    soft_clip_supplementary: bool
    """Soft clips in supplementary records (``--soft-clip``)."""
    cs: str
    """``short`` or ``long``: the tag cs in that form (``--cs``)."""
    ds: bool
    """The tag ds (``--ds``)."""


class Aligner:
    r"""Map reads to a reference; the records are those of ``fmwave map``.

    An Aligner keeps the index, the threads, the memory of devices, and the compiled code, until it
    is closed: by :meth:`close`, at the end of a ``with`` block, or when nothing refers to it.

    Parameters
    ----------
    index
        A :class:`mapper.Index`; the directory of one; or a FASTA file, of which an index is built
        in memory.
    preset
        ``sr``: reads of more than 1 000 bases are mapped as long ones; or ``hifi``, ``ont`` or
        ``asm``: all single reads are.
    device
        ``auto``, ``cpu``, ``cuda`` (all visible devices), ``cuda:0,1`` or ``cuda:any``, as for the
        command; no effect on the records. ``auto`` holds a device until the Aligner is closed.
    threads
        Threads that map; None: all cores of the process. No effect on the records.
    read_group
        Read group line, as ``@RG\tID:1\tSM:sample``; records get its ID as their tag RG.
    batch_bases
        Bases mapped at a time by a thread; None as for the command. No effect on the records.
    **options
        See :class:`AlignmentOptions`.

    Raises
    ------
    UsageError
        For options that are unknown or out of range.
    IndexFormatError, InputFormatError
        If there is no index, or no FASTA file, of that name, or it is damaged.
    DeviceError, ResourceError
        If the device cannot be used, or memory does not suffice.

    Notes
    -----
    The first Aligner of a version of fmwave on a machine compiles for up to two minutes; the code
    is kept on disk. ``fmwave compile`` does it ahead.

    Threads of a program may call an Aligner at the same time; each call has its own reads, and the
    calls share the Aligner's threads. A process that is forked gets threads of its own at its first
    call; a device cannot be used there: make the Aligner in the new process.

    KeyboardInterrupt ends a call in the thread that is interrupted; the Aligner can be used again.
    While a call waits in the main thread, and Python's own handler of SIGINT is in place, another
    one is, which raises KeyboardInterrupt where no lock is left held.

    Examples
    --------
    >>> import mapper
    >>> with mapper.Aligner("tests/data/phix174.fa", device="cpu", threads=2) as aligner:
    ...     hits = aligner.map("GAGTTTTATCGCTTCCATGACGCAGAAGTTAACACTTTC")
    ...     for hit in hits:
    ...         print(hit.ctg, hit.r_st, hit.r_en, hit.strand, hit.mapq, hit.cigar_str)
    NC_001422.1 0 39 1 60 39M
    """

    def __init__(
        self,
        index: Index | str | Path,
        preset: str = "sr",
        *,
        device: str = "auto",
        threads: int | None = None,
        read_group: str | None = None,
        batch_bases: int | None = None,
        **options: Unpack[AlignmentOptions],
    ) -> None:
        self._closed = True
        _check_names(options)
        self._threads = thread_count(threads)
        if batch_bases is not None and not (isinstance(batch_bases, int) and batch_bases >= 1):
            raise UsageError(f"batch_bases={batch_bases!r}: a whole number from 1 on is expected")
        if read_group is not None and not isinstance(read_group, str):
            raise UsageError(f"read_group={read_group!r}: a line of text is expected")
        params = map_params({**options, "preset": preset})
        checks = None
        self._folder: Path | None = None
        """Directory of the index, if it was given."""
        if not isinstance(index, Index):
            if not isinstance(index, str | os.PathLike):
                raise UsageError(f"index={index!r}: the path of an index, or an Index, is expected")
            self._folder = Path(index).resolve() if Path(index).is_dir() else None
            index, checks = _open(index)
        self.index = index
        stack = ExitStack()
        try:
            choice = stack.enter_context(hold_device(device))
            self._job = MapJob(
                read_group=read_group, threads=self._threads, batch_bases=batch_bases,
                params=params, device=choice, command_line="mapper.Aligner.map",
            )  # fmt: skip
            groups = None if read_group is None else [read_group]
            contigs = index.contigs
            self._target = Target(
                contigs.names, contigs.lengths,
                header_text(
                    contigs.names, contigs.lengths.tolist(), self._job.command_line, groups,
                    alt_names=contigs.alt_names,
                ),
            )  # fmt: skip
            self._start(stack, checks)
            # In another thread: an interrupt in the middle of compiled code would be a crash.
            call_in_daemon(self._compile)
        except BaseException:
            stack.close()
            raise
        self._closed = False

    def _start(self, stack: ExitStack, checks: Iterator[None] | None = None) -> None:
        """Start the threads; what `stack` holds is given back when the Aligner is closed."""
        path = None if self._folder is None else str(self._folder)
        self._session = stack.enter_context(Session(self.index, checks, path))
        self._session.pool.resize(self._threads)
        self._check = self._session.check_index()
        self._pid = os.getpid()
        self._close = weakref.finalize(self, _close, stack, self._pid)

    def _compile(self) -> None:
        for choice in {self._job.device, DeviceChoice(CPU)}:
            run = Run(self._session, replace(self._job, device=choice), RunStats())
            compile_stages(self.index, run.params, run.names, _Compiled(self._target), run.backend)

    # --- life ---

    def __enter__(self) -> Aligner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads, and release memory and devices. Unfinished streams end with an error."""
        if not self._closed:
            self._closed = True
            self._close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this Aligner is closed; make another one, or do not close it yet")
        if self._pid != os.getpid():
            if self._job.device.backend != CPU:
                raise UsageError(
                    "this Aligner was made before the process was forked, and a device cannot be "
                    "used in both; make the Aligner in the new process"
                )
            self._start(ExitStack())

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._job.device.backend}, {self._threads} threads"
        return f"<mapper.Aligner of {self.index.meta.source_name}: {state}>"

    # --- mapping ---

    @overload
    def map(  # type: ignore[overload-overlap]
        self, reads: str | bytes | list[Any] | tuple[Any, ...] | ReadBatch, mates: Any = None, *,
        interleaved: bool = False, insert_size: InsertSize | None = None,
    ) -> Hits: ...  # fmt: skip

    @overload
    def map(
        self, reads: Path | Iterable[Any], mates: Any = None, *,
        interleaved: bool = False, insert_size: InsertSize | None = None,
    ) -> HitStream: ...  # fmt: skip

    def map(
        self, reads: Any, mates: Any = None, *, interleaved: bool = False,
        insert_size: InsertSize | None = None,
    ) -> Hits | HitStream:  # fmt: skip
        """Map reads.

        Parameters
        ----------
        reads
            One read: str, bytes, ``(name, sequence, qualities)``, or an object with ``name``,
            ``sequence`` and ``qualities`` (dnaio) or ``quality`` (pysam), or a
            ``pysam.AlignedSegment``, whose read is taken as the instrument gave it, without tags.
            Or a pair of reads as a tuple; a list of reads, or of pairs; a
            :class:`mapper.ReadBatch`; a tuple of a flat uint8 array of letters and its int64
            offsets. These give :class:`mapper.Hits`. A tuple of three str is one read.

            Or any other iterable of reads or pairs, or the :class:`pathlib.Path` of a file of reads
            (as for the command). These give a :class:`mapper.HitStream`, which maps while it is
            read.

            Qualities are text, Phred + 33, or None. A name ends at the first white space and loses
            ``/1`` or ``/2``. Reads without names are named by their number, from 0, mates alike.
        mates
            The second reads, in the form of `reads`; None for single reads.
        interleaved
            `reads` holds mates alternately.
        insert_size
            Mean; ``(mean, deviation, largest, smallest)``, of which the last ones may be left out;
            or ``insert_size`` of other hits. None: estimated from the first pairs of this call
            alone, as the command does for a file with them; fewer than 16 confident pairs give no
            estimate, and any size up to 1000 is proper. To map parts of a sample in several calls,
            give all the same.

        Returns
        -------
        At least one record for each read, in input order.

        Raises
        ------
        InputFormatError
            For letters that are no bases, qualities of another length, names that mates do not
            share, a mate without its read, or a read of more than 1000 bases.
        UsageError
            For arguments that are no reads, such as a dict or a set; if the Aligner is closed.

        Notes
        -----
        Hits take about 400 bytes for a read of 150 bases. A stream has some batches of 3 million
        bases in memory, whatever its length.
        """
        self._check_open()
        model = _model(insert_size)
        if isinstance(reads, os.PathLike):
            if mates is not None and not isinstance(mates, os.PathLike):
                raise UsageError("mates: the path of a file is expected, as reads is one")
            paths = [os.fspath(path) for path in (reads, mates) if path is not None]
            pieces = self._map_files(paths, interleaved, model)
            next(pieces)  # opens the files, or raises
            return HitStream(pieces, self._target)
        for name, given in ((inputs.READS, reads), (inputs.MATES, mates)):
            if isinstance(given, str) and not given.isalpha():
                refuse_file_name(name, given, "a read")
            inputs.refuse_unordered(given, name)
        are_arrays = inputs.are_arrays(reads)
        if inputs.is_read(reads) or (isinstance(reads, tuple) and inputs.is_pair(reads)):
            reads, mates = [reads], None if mates is None else [mates]
        elif inputs.is_read(mates):
            raise UsageError("mates: one read, where reads are several; give them all, in step")
        if isinstance(reads, ReadBatch | list) or are_arrays:
            return self._map_all(reads, mates, interleaved, model)
        if isinstance(reads, tuple):
            raise UsageError("reads: a tuple is one read or a pair of two; put reads into a list")
        if not isinstance(reads, Iterable):
            raise UsageError(f"reads: {reads!r:.60}: {inputs.EXPECTED}, or an iterable of these")
        run = self._run(model, self._job.device)
        reader = inputs.ItemReader(reads, mates, interleaved, run.member_bases)
        batches = inputs.PulledBatches(reader)
        return HitStream(self._map(run, batches, reader.may_hold_pairs), self._target)

    def _map_all(
        self, reads: Any, mates: Any, interleaved: bool, model: InsertSizeModel | None
    ) -> Hits:
        """Map reads that are all in memory."""
        if inputs.are_arrays(reads):
            reads, mates = inputs.batch_of_arrays(reads, mates, interleaved), None
            interleaved = False
        n = reads.n_reads if isinstance(reads, ReadBatch) else len(reads)
        choice = self._job.device if n > FEW_READS else DeviceChoice(CPU)
        run = self._run(model, choice)
        size = run.member_bases
        reader: inputs.ItemReader | inputs.BatchOfReads
        if isinstance(reads, ReadBatch):
            if mates is not None or interleaved:
                raise UsageError("reads: a ReadBatch says itself what are mates")
            size = self._size(size, n, int(reads.base_offsets[-1]) if n else 0)
            reader = inputs.BatchOfReads(reads, size)
        else:
            some = [len(read) for read in reads[:: max(1, n // 16)] if isinstance(read, str)]
            if some and mates is None:
                size = self._size(size, n, n * sum(some) // len(some))
            reader = inputs.ItemReader(reads, mates, interleaved, size)
        pieces: list[Piece] = []
        sizes: list[InsertSizeModel] = []
        with interruptible():
            for piece, used in self._map(run, inputs.PulledBatches(reader), reader.may_hold_pairs):
                pieces.append(piece)
                sizes += [] if used is None else [used]
        if not pieces:
            pieces.append(Piece(no_reads(reader.may_hold_pairs), no_records()))
        return joined(pieces, self._target, sizes[-1] if sizes else None)

    def _check_still_open(self) -> None:
        """Raise UsageError in a stream of an Aligner that has been closed."""
        if self._closed:
            raise _closed_meanwhile()

    def _size(self, largest: int, n_reads: int, n_bases: int) -> int:
        """Return the bases of a batch, so that all threads have some of `n_reads` reads."""
        n_batches = BATCHES_A_THREAD * self._threads
        least = LEAST_READS * n_bases // max(n_reads, 1)
        return min(largest, max(n_bases // n_batches, least, 1))

    def _run(self, model: InsertSizeModel | None, choice: DeviceChoice) -> Run:
        job = replace(self._job, insert_size=model, device=choice)
        return Run(self._session, job, RunStats())

    def _map(
        self, run: Run, batches: Batches, may_hold_pairs: bool
    ) -> Iterator[tuple[Piece, InsertSizeModel | None]]:
        """Map batches; yield the records of each, and the insert size, in input order."""
        self._check_still_open()
        run.backend.start(run.pool, self._threads, run.batch_bases // run.member_bases)
        try:
            for finished in finished_batches(run, batches, may_hold_pairs, Encoder(piece_of)):
                yield finished.encoded, run.insert_size
                self._check_still_open()
            self._check.result()  # raises if the index is damaged
        except CancelledError:
            raise _closed_meanwhile() from None
        finally:
            run.backend.close()

    def _map_files(
        self, paths: list[str], interleaved: bool, model: InsertSizeModel | None
    ) -> Iterator[tuple[Piece, InsertSizeModel | None]]:
        """Map the reads of a file, or of two files of mates; first yield nothing of them."""
        run = self._run(model, self._job.device)
        options = ReadOptions(
            interleaved=interleaved, executor=run.pool.at(READ), n_threads=self._threads,
            limits=LENGTH_LIMITS, batch_bases=run.member_bases,
        )  # fmt: skip
        with ReadsReader([Lane(tuple(paths))], options) as reader:
            yield Piece(no_reads(), no_records()), None
            self._check_still_open()
            batches = BatchPrefetcher(run.pool, partial(run.cut, reader), self._threads)
            yield from self._map(run, batches, reader.may_hold_pairs)

    # --- files ---

    def map_file(
        self,
        reads: str | Path,
        mates: str | Path | None = None,
        *,
        output: str | Path,
        output_format: str | None = None,
        interleaved: bool = False,
        orphans: str = "map",
        keep_comments: bool = False,
        reference: str | Path | None = None,
        input_reference: str | Path | None = None,
        sort: bool = False,
        markdup: bool = False,
        optical_distance: int = 0,
        barcode_tag: str = "",
        remove_duplicates: bool = False,
        mark_supplementary: bool = False,
        tmp_dir: str | Path | None = None,
        compression: int = 1,
        memory: int | None = None,
        insert_size: InsertSize | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:
        """Map a file of reads to a file of records, as ``fmwave map`` does.

        Parameters
        ----------
        reads, mates
            FASTQ or FASTA, plain or gzip: one file, or two of mates; or BAM, CRAM or SAM.
        output
            File of records, which appears under its name when it is complete, and replaces an
            older one.
        output_format
            ``bam``, ``cram``, ``sam`` or ``paf``; None: by the name.
        interleaved
            The one file holds mates alternately.
        orphans
            ``map``, ``skip`` or ``refuse`` reads of BAM, CRAM and SAM that have lost their mate.
        keep_comments
            Take comments of FASTQ and FASTA as SAM tags.
        reference, input_reference
            FASTA files, for CRAM output and CRAM input.
        sort, markdup
            Sort by coordinate and write an index; flag duplicates.
        optical_distance, barcode_tag, remove_duplicates, mark_supplementary
            On duplicates, see docs/input-and-output.md; they need `markdup`.
        tmp_dir
            Directory for temporary files of sorting.
        compression
            Level of BAM and CRAM, 0 to 9.
        memory
            Bytes that the process may take; None for no bound.
        insert_size
            As for :meth:`map`.
        progress
            Called now and then, in this thread, with the number of reads written so far. An
            exception that it raises ends the run.

        Returns
        -------
        Counts (``["counts"]["reads"]``, ``["mapped"]`` ...), insert size and times of the run: what
        ``--json-stats`` writes.

        Raises
        ------
        MapperError
            If input, options or output cannot be used. Then, and after KeyboardInterrupt, there is
            nothing under the name of the output, or the older file that was there.

        Examples
        --------
        >>> import mapper, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> with mapper.Aligner("tests/data/phix174.fa", device="cpu", threads=2) as aligner:
        ...     stats = aligner.map_file(
        ...         "tests/data/phix_R1.fq", "tests/data/phix_R2.fq",
        ...         output=f"{folder.name}/phix.bam", sort=True,
        ...     )
        >>> stats["counts"]["reads"], stats["counts"]["mapped"]
        (90, 85)
        >>> folder.cleanup()
        """
        self._check_open()
        from mapper.io.output import format_of
        from mapper.mapping.output_checks import check_cigars, check_outputs, check_tmp_dir
        from mapper.mapping.pipeline import map_reads
        from mapper.sorting.options import MarkOptions, SortOptions, check_marks

        paths = [_path("reads", reads)]
        if mates is not None:
            paths.append(_path("mates", mates))
        target = _path("output", output)
        if target == "-":
            raise UsageError("output='-': a file is expected; Aligner.map returns records")
        own_format = output_format or format_of(target)
        check_cigars(own_format, self._job.params.record.extended_cigar)
        marks = MarkOptions(optical_distance, barcode_tag, remove_duplicates, mark_supplementary)
        check_marks(marks)
        if not markdup and marks != MarkOptions():
            raise UsageError("options on duplicates need markdup=True, which finds them")
        if markdup and not sort:
            raise UsageError("markdup=True needs sort=True")
        if orphans not in ("map", "skip", "refuse"):
            raise UsageError(f"orphans={orphans!r}: 'map', 'skip' or 'refuse' is expected")
        if compression not in range(10):
            raise UsageError(f"compression={compression!r}: 0 to 9 is expected")
        check_memory_bound(memory)
        folder = None if tmp_dir is None else _path("tmp_dir", tmp_dir)
        check_tmp_dir(folder)
        references = [
            None if path is None else _path(name, path)
            for name, path in (("reference", reference), ("input_reference", input_reference))
        ]
        check_outputs(target, {}, paths, references)
        if self._folder is not None and self._folder in Path(target).resolve().parents:
            raise UsageError(f"{target} would lie in the index; name another output")
        job = replace(
            self._job, reads=paths, output=target, output_format=own_format,
            interleaved=interleaved, orphans=orphans, keep_comments=keep_comments,
            reference=references[0], input_reference=references[1],
            sort=SortOptions(folder, marks if markdup else None) if sort else None,
            compression=compression, memory=memory, insert_size=_model(insert_size),
            report=progress, command_line=f"mapper.Aligner.map_file {' '.join(paths)}",
        )  # fmt: skip
        with interruptible(), self._session.beside() as session:
            stats = map_reads(self.index, job, session)
        return stats.summary()


class HitStream:
    """The records of reads that are mapped while they are read.

    Iterating gives a :class:`mapper.Hit` for each record, in input order; :meth:`batches` gives the
    same records as :class:`mapper.Hits`, much faster. Some batches are in memory at a time,
    whatever the number of reads. A stream can be read once.

    A stream that is not read to its end is to be closed (:meth:`close`, or a ``with`` block), or
    dropped: batches in work are not waited for.

    Examples
    --------
    >>> import mapper
    >>> from pathlib import Path
    >>> with mapper.Aligner("tests/data/phix174.fa", device="cpu", threads=2) as aligner:
    ...     stream = aligner.map(Path("tests/data/phix_R1.fq"), Path("tests/data/phix_R2.fq"))
    ...     print(sum(int(hits.is_mapped.sum()) for hits in stream.batches()))
    93
    """

    def __init__(
        self, pieces: Iterator[tuple[Piece, InsertSizeModel | None]], target: Target
    ) -> None:
        self._pieces, self._target = pieces, target
        self.insert_size: InsertSizeModel | None = None
        """The insert-size model, once a batch has been taken; None for single reads."""

    def batches(self) -> Iterator[Hits]:
        """Yield the records of some reads at a time, in input order."""
        while True:
            with interruptible():
                found = next(self._pieces, None)
            if found is None:
                return
            piece, self.insert_size = found
            yield Hits([piece.reads], piece.records, self._target, self.insert_size)

    def __iter__(self) -> Iterator[Hit]:
        for hits in self.batches():
            yield from hits

    @property
    def header(self) -> str:
        """The SAM header of the records, as text."""
        return self._target.header

    def close(self) -> None:
        """Drop what has not been read."""
        self._pieces.close()  # type: ignore[attr-defined]

    def __enter__(self) -> HitStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


# --- steps ---


class _Compiled:
    """An output for :func:`compile_stages`: records that become hits."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def encode(self, records: RecordBatch, reads: ReadBatch) -> Piece:
        """Return the records as a run keeps them, once all of their columns are computed."""
        hits = joined([Piece(reads, records)], self._target, None)
        hits.to_dict()
        hits.integer_tag("XS")
        return piece_of(records, reads)

    def append(self, encoded: Piece) -> None:
        """Do nothing."""

    def prepare(self, encoded: Piece) -> None:
        """Do nothing."""


def _close(stack: ExitStack, pid: int) -> None:
    """Give back what an Aligner holds; nothing in a process that was forked from its own."""
    if pid == os.getpid():
        stack.close()
        RECYCLER.clear()


def _closed_meanwhile() -> UsageError:
    return UsageError("the Aligner was closed before all reads were mapped")


def _check_names(options: Iterable[str]) -> None:
    """Raise UsageError for an option that there is not; similar names are suggested."""
    known = [*WHOLE_NUMBERS, *SWITCHES, "cs"]
    every = [*known, "index", "preset", "device", "threads", "read_group", "batch_bases"]
    for name in options:
        if name in known:
            continue
        close = difflib.get_close_matches(name, every, 1)
        meant = _CALLED_ELSEWHERE.get(name) or (close[0] if close else None)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(every)}"
        raise UsageError(f"Aligner has no option {name!r}; {hint}")


def _open(path: str | Path) -> tuple[Index, Iterator[None] | None]:
    """Open an index, or build that of a FASTA file."""
    if Path(path).is_dir() or Path(path).suffix == ".fmw":
        return Index.open_checked(path)
    return Index.build(path), None


def _path(argument: str, given: object) -> str:
    """Return the path that is given; raise UsageError for anything else."""
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    raise UsageError(f"{argument}={given!r:.60}: the path of a file is expected, as str or Path")


def _model(given: InsertSize | None) -> InsertSizeModel | None:
    """Return a given insert size as a model."""
    if given is None or isinstance(given, InsertSizeModel):
        return given
    numbers: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(number, int | float) for number in numbers):
        raise UsageError(
            f"insert_size={given!r}: a mean, (mean, deviation, largest, smallest), or insert_size "
            "of other hits is expected"
        )
    return insert_size_model(numbers, given)
