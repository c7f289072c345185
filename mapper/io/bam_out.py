"""Records to BAM and SAM files: the outputs that the pipeline writes to.

Writing has two halves. ``encode`` is pure, takes most of the time and releases the GIL:
any number of threads may run it. ``append`` takes what it returned, in input order,
from one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from mapper.batch import ReadBatch, RecordBatch
from mapper.errors import UsageError
from mapper.io.atomic import STDOUT, OutputFile, check_writable
from mapper.io.bgzf import BgzfWriter, Sink
from mapper.io.encode import encode_bam
from mapper.io.header import bam_header
from mapper.io.sam_text import encode_sam
from mapper.io.sort import scratch_directory, sort_and_index

FORMATS = ("bam", "sam")


class SortOptions(NamedTuple):
    """How to sort by coordinate."""

    threads: int
    memory: int  # bytes, of all threads together


class RecordOutput(Protocol):
    """Where records go."""

    def encode(self, records: RecordBatch, reads: ReadBatch) -> np.ndarray:
        """Return the bytes of a batch of records: uint8. Any thread may call this."""

    def append(self, encoded: np.ndarray) -> None:
        """Write the bytes of the next batch. One thread at a time, in input order."""


class _BamOutput:
    def __init__(self, writer: BgzfWriter) -> None:
        self._writer = writer

    def encode(self, records: RecordBatch, reads: ReadBatch) -> np.ndarray:
        return encode_bam(records, reads)

    def append(self, encoded: np.ndarray) -> None:
        self._writer.append(encoded.data)


class _SamOutput:
    def __init__(self, sink: Sink, contig_names: Sequence[str]) -> None:
        self._sink = sink
        self._contig_names = contig_names

    def encode(self, records: RecordBatch, reads: ReadBatch) -> np.ndarray:
        return encode_sam(records, reads, self._contig_names)

    def append(self, encoded: np.ndarray) -> None:
        self._sink.write(encoded.data)


def format_of(path: str) -> str:
    """Return the format that a file name asks for; SAM for standard output.

    Raises
    ------
    UsageError
        If the name ends in neither ``.bam`` nor ``.sam``.
    """
    extension = Path(path).suffix.lower().removeprefix(".")
    if path == STDOUT:
        return "sam"
    if extension not in FORMATS:
        raise UsageError(f"output {path}: name it .bam or .sam, or give the format by option")
    return extension


@contextmanager
def open_output(
    path: str,
    fmt: str,
    header: str,
    contig_names: Sequence[str],
    contig_lengths: Sequence[int],
    executor: Executor,
    *,
    sort: SortOptions | None = None,
    level: int = 1,
) -> Iterator[RecordOutput]:
    """Open a file or standard output for records, as a context manager.

    The file appears under its name when the block is left in order, and not at all if it
    is left by an exception. Standard output then lacks BAM's end-of-file block.

    Parameters
    ----------
    path
        File name, or ``-`` for standard output.
    fmt
        ``bam`` or ``sam``.
    header
        From :func:`mapper.io.header.header_text`, made with the same `sort`.
    contig_names, contig_lengths
        Contigs in the order of their ``ref_id``.
    executor
        Compresses BAM; must be another's than the calling thread.
    sort
        Sort by coordinate and index; for a BAM file only.
    level
        Compression level of BAM, see :func:`mapper.io.bgzf.deflater`.

    Raises
    ------
    UsageError
        For a combination that makes no sense.
    OutputError
        If the output cannot be made, at once, or cannot be written in full.
    """
    if fmt not in FORMATS:
        raise UsageError(f"output format {fmt!r}; choose one of {', '.join(FORMATS)}")
    if sort is None:
        with OutputFile(path) as sink:
            if fmt == "sam":
                sink.write(header.encode("utf-8", "surrogateescape"))
                yield _SamOutput(sink, contig_names)
            else:
                start = bam_header(header, contig_names, contig_lengths)
                with _bam_writer(sink, start, executor, level) as writer:
                    yield _BamOutput(writer)
        return
    if path == STDOUT or fmt != "bam":
        raise UsageError("sorted output must go to a BAM file; name one, or do not sort")
    final = Path(path).resolve()
    check_writable(final)
    with scratch_directory(final) as scratch:
        unsorted = scratch / "unsorted.bam"
        start = bam_header(header, contig_names, contig_lengths)
        with OutputFile(str(unsorted)) as sink, _bam_writer(sink, start, executor, level) as writer:
            yield _BamOutput(writer)
        sort_and_index(unsorted, final, sort.threads, sort.memory)


@contextmanager
def _bam_writer(sink: Sink, start: bytes, executor: Executor, level: int) -> Iterator[BgzfWriter]:
    """Write the start of a BAM file, let the caller append, and end it if all is well."""
    writer = BgzfWriter(sink, executor, level)
    try:
        writer.append(start)
        writer.end_block()
        yield writer
        writer.finish()
    finally:
        writer.cancel()
