"""Write records to BAM, CRAM, SAM and PAF files.

Writing has two steps. ``encode`` is pure, takes most of the time and releases the GIL: any number
of threads may run it. ``append`` writes the encoded batches in input order, in one thread.
"""

from __future__ import annotations

import base64
import errno
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from mapper.batch import ReadBatch, RecordBatch
from mapper.errors import OutputError, UsageError, option
from mapper.io.bam_writer import encode_bam
from mapper.io.bgzf import BgzfWriter, Compressor, HostCompressor
from mapper.io.header import bam_header
from mapper.io.output_file import STDOUT, OutputFile, Partial, later_sync, output_error
from mapper.io.paf import encode_paf
from mapper.io.sam import encode_sam
from mapper.io.samtools import SamtoolsProcess, index_files

Encoded = TypeVar("Encoded")

FORMATS = ("bam", "cram", "sam", "paf")


class Checkpoint(Protocol):
    """What an output has taken up to a moment, to be brought to disk by another thread."""

    def save(self, stopped: Callable[[], bool]) -> dict[str, Any]:
        """Wait until it is on disk.

        Parameters
        ----------
        stopped
            Returns True if the result is of no use any more; an OutputError may be raised then.

        Returns
        -------
        How to go on from there, as values that JSON can hold. ``files`` are the bytes that each
        file must have by then.
        """

    def settle(self) -> None:
        """Remove what only earlier checkpoints need, when what :meth:`save` returned is kept."""


class PartialOutput(NamedTuple):
    """An output that another process can go on with."""

    directory: Path  # of temporary files, in the file system of the output
    runs: Path
    """Directory of the runs of a sort."""
    saved: dict[str, Any] | None = None
    """What a checkpoint of an earlier process returned; None to begin anew."""

    def file(self, name: str) -> Path:
        """Return a temporary file's path."""
        return self.directory / name


RECORDS, INDEX = "records", "index"
"""Names of the temporary files of an output."""


class RecordOutput(Protocol[Encoded]):
    """The interface of an output for records."""

    def encode(self, records: RecordBatch, reads: ReadBatch) -> Encoded:
        """Return a batch of records in the form that is written. Any thread may call this."""

    @property
    def encode_bam(self) -> Callable[[np.ndarray], Encoded] | None:
        """Returns BAM records (uint8) in that form; None if they cannot be. For any thread."""

    def append(self, encoded: Encoded) -> None:
        """Write the next batch: one thread at a time, in input order."""

    def prepare(self, encoded: Encoded) -> None:
        """Compile what the end of the run needs, with a made-up batch that is not written."""


class ResumableOutput(RecordOutput[Encoded], Protocol[Encoded]):
    """An output with which another process can go on, if it was opened as a PartialOutput."""

    def checkpoint(self) -> Checkpoint:
        """Describe the records appended so far; for the thread that appends."""


class _FileCheckpoint:
    """The bytes of a file that have been written, and the start of a block behind them."""

    def __init__(self, sink: OutputFile, rest: bytes = b"") -> None:
        self._name, self._n_bytes, self._rest = sink.name, sink.n_bytes, rest
        self._sync = later_sync(sink.fileno())

    def save(self, stopped: Callable[[], bool]) -> dict[str, Any]:
        try:
            self._sync()
        except OSError as error:
            raise output_error(self._name, error) from error
        rest = base64.b64encode(self._rest).decode()
        return {"files": {RECORDS: self._n_bytes}, "rest": rest}

    def settle(self) -> None:
        pass  # earlier checkpoints have no files of their own


class _UnsortedOutput:
    """An output that has nothing left to do at the end of a run."""

    encode_bam: Callable[[np.ndarray], np.ndarray] | None = None

    def __init__(self, sink: OutputFile) -> None:
        self._sink = sink

    def prepare(self, encoded: np.ndarray) -> None:
        """Nothing is to be compiled."""

    def checkpoint(self) -> Checkpoint:
        return _FileCheckpoint(self._sink)


def _as_it_is(data: np.ndarray) -> np.ndarray:
    return data


class _BamOutput(_UnsortedOutput):
    encode_bam = staticmethod(_as_it_is)

    def __init__(self, sink: OutputFile, writer: BgzfWriter) -> None:
        super().__init__(sink)
        self._writer = writer

    def encode(self, records: RecordBatch, reads: ReadBatch) -> np.ndarray:
        return encode_bam(records, reads)

    def append(self, encoded: np.ndarray) -> None:
        self._writer.append(encoded.data)

    def checkpoint(self) -> Checkpoint:
        rest = self._writer.flush()
        return _FileCheckpoint(self._sink, rest)


class _SamOutput(_UnsortedOutput):
    def __init__(self, sink: OutputFile, contig_names: Sequence[str]) -> None:
        super().__init__(sink)
        self._contig_names = contig_names

    def encode(self, records: RecordBatch, reads: ReadBatch) -> np.ndarray:
        return encode_sam(records, reads, self._contig_names)

    def append(self, encoded: np.ndarray) -> None:
        self._sink.write(encoded.data)


class _PafOutput(_UnsortedOutput):
    def __init__(
        self, sink: OutputFile, contig_names: Sequence[str], contig_lengths: Sequence[int]
    ) -> None:
        super().__init__(sink)
        self._contig_names = contig_names
        self._contig_lengths = np.array(contig_lengths, np.int64)

    def encode(self, records: RecordBatch, reads: ReadBatch) -> np.ndarray:
        return encode_paf(records, reads, self._contig_names, self._contig_lengths)

    def append(self, encoded: np.ndarray) -> None:
        self._sink.write(encoded.data)


class SamtoolsOutput(_UnsortedOutput):
    """Uncompressed BAM into a samtools process, which writes another format to a file's handle.

    Parameters
    ----------
    sink
        The file.
    arguments
        Of ``samtools view``, for the output.
    threads
        Threads of samtools.
    index
        Where it writes the index of the output; None for none.
    """

    encode_bam = staticmethod(_as_it_is)

    def __init__(
        self, sink: OutputFile, arguments: Sequence[str], threads: int, index: Path | None = None
    ) -> None:
        super().__init__(sink)
        self._name = sink.name
        into = ["-o", "-"] if index is None else ["--write-index", "-o", f"-##idx##{index}"]
        self._samtools = SamtoolsProcess(
            "view", "-@", str(threads - 1), "--no-PG", *arguments, *into, "-",
            stdin=subprocess.PIPE, stdout=sink.fileno(),
        )  # fmt: skip

    def encode(self, records: RecordBatch, reads: ReadBatch) -> np.ndarray:
        return encode_bam(records, reads)

    def append(self, encoded: np.ndarray) -> None:
        self.write(encoded.data)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`, a part of a BAM file."""
        view = memoryview(data)
        pipe = self._samtools.process.stdin
        assert pipe is not None
        try:
            while view:
                view = view[pipe.write(view) :]
        except BrokenPipeError:
            self.finish()
            raise OutputError(f"{self._name}: samtools view ended early") from None

    def finish(self) -> None:
        """Wait until samtools has written everything."""
        pipe = self._samtools.process.stdin
        assert pipe is not None
        pipe.close()
        reason = self._samtools.wait()
        if reason is not None and self._sink.has_no_reader():
            raise output_error(self._name, OSError(errno.EPIPE, os.strerror(errno.EPIPE)))
        if reason is not None:
            raise OutputError(f"{self._name}: samtools view failed: {reason}")

    def cancel(self) -> None:
        """Kill samtools, if it runs."""
        self._samtools.kill()


@contextmanager
def samtools_output(
    sink: OutputFile, start: bytes, arguments: Sequence[str], threads: int,
    index: Path | None = None,
) -> Iterator[SamtoolsOutput]:  # fmt: skip
    """Write the start of a BAM file, let the caller append, and wait for samtools to end."""
    output = SamtoolsOutput(sink, arguments, threads, index)
    try:
        output.write(start)
        yield output
        output.finish()
    finally:
        output.cancel()


def format_of(path: str) -> str:
    """Return the format of a file name; SAM for standard output.

    Raises
    ------
    UsageError
        If the name ends in none of FORMATS.
    """
    extension = Path(path).suffix.lower().removeprefix(".")
    if path == STDOUT:
        return "sam"
    if extension not in FORMATS:
        raise UsageError(
            f"output {path}: name it .bam, .cram, .sam or .paf, or give the format "
            f"({option('output_format')})"
        )
    return extension


def check_format(fmt: str, *, sort: bool, reference: str | None) -> None:
    """Raise UsageError for a combination of options that cannot be written."""
    if fmt not in FORMATS:
        raise UsageError(f"output format {fmt!r}; choose one of {', '.join(FORMATS)}")
    if fmt == "cram" and reference is None:
        raise UsageError(
            "CRAM holds what differs from the reference; name its FASTA file with "
            f"{option('reference')}"
        )
    if sort and fmt == "paf":
        raise UsageError("PAF is not sorted; write BAM, CRAM or SAM, or do not sort")


@contextmanager
def open_output(
    path: str,
    fmt: str,
    header: str,
    contig_names: Sequence[str],
    contig_lengths: Sequence[int],
    executor: Executor,
    *,
    level: int = 1,
    reference: str | None = None,
    threads: int = 1,
    compressor: Compressor | None = None,
    partial: PartialOutput | None = None,
) -> Iterator[ResumableOutput[np.ndarray]]:
    """Open a file or standard output for records in input order, as a context manager.

    The file appears under its name when the block ends, and indexes of an older file of that name
    go; neither happens if the block is left by an exception. Standard output then lacks BAM's
    end-of-file block.

    Parameters
    ----------
    path
        File name, or ``-`` for standard output.
    fmt
        One of FORMATS.
    header
        From :func:`mapper.io.header.header_text`.
    contig_names, contig_lengths
        Contigs in the order of their ``ref_id``.
    executor
        Its threads compress BAM; the calling thread must not be one of them.
    level
        Compression level, see :func:`mapper.io.bgzf.deflater`; samtools' for CRAM.
    reference
        FASTA file of the reference, which CRAM needs.
    threads
        Threads of samtools for CRAM.
    compressor
        Compresses BAM; None for the host, at `level`.
    partial
        Temporary file of a BAM, SAM or PAF file, which stays after an exception, and how to go on
        with it; None for one that goes.

    Raises
    ------
    UsageError
        See :func:`check_format`.
    OutputError
        If the output cannot be created, at once, or cannot be written in full.
    """
    check_format(fmt, sort=False, reference=reference)
    start = bam_header(header, contig_names, contig_lengths)
    stale = () if path == STDOUT else index_files(Path(path))
    saved = None if partial is None else partial.saved
    file = None
    if partial is not None:
        file = Partial(partial.file(RECORDS), saved["files"][RECORDS] if saved else 0)
    with OutputFile(path, stale=stale, partial=file) as sink:
        if fmt == "sam":
            if saved is None:
                sink.write(header.encode("utf-8", "surrogateescape"))
            yield _SamOutput(sink, contig_names)
        elif fmt == "paf":
            yield _PafOutput(sink, contig_names, contig_lengths)
        elif fmt == "cram":
            with samtools_output(sink, start, cram_options(reference, level), threads) as cram:
                yield cram
        else:
            rest = None if saved is None else base64.b64decode(saved["rest"])
            with bam_writer(sink, start, executor, level, compressor, rest=rest) as writer:
                yield _BamOutput(sink, writer)


def cram_options(reference: str | None, level: int) -> list[str]:
    """Return the options of ``samtools view`` for CRAM.

    Version 3.0, as many readers support no later one, and with NM, as htsjdk (GATK, Picard) does
    not recompute it.
    """
    assert reference is not None  # by check_format()
    return ["-T", reference, "-O", f"cram,version=3.0,store_nm=1,level={level}"]


@contextmanager
def bam_writer(
    sink: OutputFile, start: bytes, executor: Executor, level: int,
    compressor: Compressor | None = None, max_pending: int = 16, rest: bytes | None = None,
) -> Iterator[BgzfWriter]:  # fmt: skip
    """Write the start of a BAM file, let the caller append, and end it unless there is an error.

    Parameters
    ----------
    level
        See :func:`mapper.io.bgzf.deflater`; of no effect with a `compressor`.
    sink, executor, compressor, max_pending
        See BgzfWriter.
    rest
        Data behind the blocks that `sink` holds already, instead of the start.
    """
    compressor = compressor or HostCompressor(executor, level)
    writer = BgzfWriter(sink, executor, compressor, max_pending, in_background=sink.is_regular)
    try:
        if rest is None:
            writer.append(start)
            writer.end_block()
        else:
            writer.append(rest)
        yield writer
        writer.finish()
    finally:
        writer.cancel()
