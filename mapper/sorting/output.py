"""Write records in coordinate order: BAM, CRAM and SAM, with the index of a file.

While records come, they are sorted (:mod:`mapper.sorting.runs`). When all are there, the ranges of
their order pass through the pool once more (:mod:`mapper.sorting.engine`): duplicates are marked,
records compressed, and the index made of the same records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper.batch import ReadBatch, RecordBatch
from mapper.errors import OutputError
from mapper.io.bgzf import Compressor
from mapper.io.bgzf_reader import Inflater
from mapper.io.header import bam_header
from mapper.io.output import (
    INDEX,
    RECORDS,
    Checkpoint,
    PartialOutput,
    bam_writer,
    check_format,
    cram_options,
    samtools_output,
)
from mapper.io.output_file import (
    STDOUT,
    OutputFile,
    Partial,
    check_writable,
    is_special,
    remove_quietly,
    sync_and_rename,
    temporary_name,
)
from mapper.io.progress import progress_bar
from mapper.io.samtools import MAX_BAI_LENGTH, index_files
from mapper.sorting.bam_index import BamIndex
from mapper.sorting.engine import Finished, Marking, finished_ranges
from mapper.sorting.options import LARGE_RANGES_SHARE, MarkOptions, SortOptions
from mapper.sorting.ranges import RecordRange, range_bytes
from mapper.sorting.runs import RecordSorter, RecordStore, Run, SortedRuns, make_run, run_of_bytes
from mapper.sorting.saved_runs import SavedRuns
from mapper.sorting.spill_file import SpillFile, spill_directory

RELEASED_RANGES = 32
"""Ranges after which the room that they took in the temporary file is given back."""

MAX_SPILL_LEVEL = 3
"""The output's compressor does the temporary file up to this level; beyond, it is too slow."""


class SortedTarget(NamedTuple):
    """What sorted records are written to."""

    path: str
    """File name, or ``-`` for standard output. A regular file of BAM or CRAM gets an index."""
    output_format: str
    """bam, cram or sam."""
    command: str
    """The command line, which the counts of duplicates quote."""
    header: str = ""
    """From :func:`mapper.io.header.header_text`, of sorted records."""
    contig_names: Sequence[str] = ()
    contig_lengths: Sequence[int] = ()
    level: int = 1
    """Compression level, see :func:`mapper.io.bgzf.deflater`; samtools' for CRAM."""
    reference: str | None = None
    """FASTA file of the reference, which CRAM needs."""
    threads: int = 1
    """Threads of samtools, for CRAM and SAM."""
    compressor: Compressor | None = None
    """Compresses BAM; None for the host."""
    open_inflater: Callable[[], Inflater | None] | None = None
    """Opens a device's streams that help to decompress the temporary file; None for none."""
    open_store: Callable[[], AbstractContextManager[RecordStore | None]] | None = None
    """Opens room on a device for records that do not fit in memory; None for none."""
    takes_bam: bool = False
    """True if devices make records: what takes these is compiled ahead, too."""
    partial: PartialOutput | None = None
    """Temporary files that stay after an exception, so that another process goes on with the runs;
    None for files that go."""

    def partial_file(self, name: str) -> Partial | None:
        """Return a temporary file of the sorted output; None for one of its own."""
        return None if self.partial is None else Partial(self.partial.file(name))

    @property
    def file_path(self) -> Path | None:
        """The file, where its links lead; None for standard output, a pipe or a device."""
        if self.path == STDOUT or is_special(Path(self.path)):
            return None
        return Path(self.path).resolve()

    @property
    def index_path(self) -> Path | None:
        """The index's name, beside the name given, where readers look first; None for no index."""
        if self.file_path is None or self.output_format not in ("bam", "cram"):
            return None
        path = Path(self.path)
        is_long = max(self.contig_lengths, default=0) > MAX_BAI_LENGTH
        kind = ".crai" if self.output_format == "cram" else ".csi" if is_long else ".bai"
        return path.with_name(path.name + kind)

    def check(self) -> None:
        """Raise UsageError or OutputError if it cannot be written."""
        check_format(self.output_format, sort=True, reference=self.reference)
        for path in (self.file_path, self.index_path):
            if path is not None:
                check_writable(path)


class SortedOutput:
    """An output for the records of a run, which sorts them; see :func:`open_sorted_output`."""

    def __init__(
        self, sorter: RecordSorter, file: SpillFile, target: SortedTarget, executor: Executor,
        duplicates: MarkOptions | None, saved: SavedRuns | None,
    ) -> None:  # fmt: skip
        self._sorter, self._saved = sorter, saved
        self._file, self._target = file, target
        self._executor, self._duplicates = executor, duplicates
        self.duplicates: dict[str, object] | None = None
        """Counts of duplicates, when the output is complete, if they were marked."""

    def prepare(self, encoded: Run) -> None:
        """Compile what writes the records, with some that are not kept."""
        one = SortedRuns(self._file, [], [encoded])
        index = BamIndex(self._target.contig_names, self._target.contig_lengths)
        marking = None
        if self._duplicates is not None:
            marking = Marking(self._duplicates, self._target.header)
        for part in finished_ranges(one.ranges, self._executor, 1, marking):
            index.add(part.index_part)
        index.write(np.array([0, 1]))
        one.to_release(0)  # else compiled in the middle of a sort that has spilled
        if self._target.takes_bam:
            run_of_bytes(encoded.data)

    def encode(self, records: RecordBatch, reads: ReadBatch) -> Run:
        """Return a batch of records, sorted and encoded. Any thread may call this."""
        return make_run(records, reads)

    def encode_bam(self, data: np.ndarray) -> Run:
        """Return BAM records, sorted. Any thread may call this."""
        return run_of_bytes(data)

    def append(self, encoded: Run) -> None:
        """Add the next batch: one thread at a time, in input order."""
        self._sorter.add(encoded)

    def checkpoint(self) -> Checkpoint:
        """Describe the records appended so far."""
        assert self._saved is not None  # by the target
        return self._saved.checkpoint(self._sorter)


@contextmanager
def open_sorted_output(
    target: SortedTarget, sort: SortOptions, executor: Executor, n_threads: int, *,
    memory: int, freed: int = 0, spilling: Executor | None = None, progress: bool = False,
) -> Iterator[SortedOutput]:  # fmt: skip
    """Open a file or standard output for sorted records, as a context manager.

    Everything is written when the block ends, nothing if it is left by an exception. The file
    appears when it is complete, then its index; indexes of an older file of that name go before.

    Parameters
    ----------
    executor
        Its threads sort and compress; the calling thread must not be one of them.
    n_threads
        Their number.
    memory
        Bytes for records; further ones go to a temporary file.
    freed
        Bytes that are free when all records have come, and were not before.
    spilling
        Its threads sort what goes to the temporary file; None for those of `executor`.
    progress
        Show on standard error how much has been written.

    Raises
    ------
    UsageError, OutputError
        If the output cannot be created, at once, or cannot be written in full.
    """
    target.check()
    saved = None
    if target.partial is None:
        file = SpillFile(spill_directory(sort.tmp_dir, target.file_path))
    else:
        saved = SavedRuns(target.partial.runs, target.partial.saved)
        file = saved.spill_file
    compressor = target.compressor
    if compressor is not None and compressor.level > MAX_SPILL_LEVEL:
        compressor = None
    opened = ExitStack()
    open_store = None
    if target.open_store is not None and saved is None:  # a device's memory goes with the process
        at_device = target.open_store

        def open_store() -> RecordStore | None:
            return opened.enter_context(at_device())

    sorter = RecordSorter(file, spilling or executor, n_threads, memory, compressor, open_store)
    output = SortedOutput(sorter, file, target, executor, sort.duplicates, saved)
    try:
        if saved is not None:
            saved.restore(sorter)
        yield output
        runs = sorter.finish(target.open_inflater)
        n_records = sorter.n_records
        # Runs with a name may be needed again.
        keeps_file = saved is not None or runs.are_in_memory
        release = None if keeps_file else _Release(runs, file, executor)
        # A share was kept free for what goes to the temporary file.
        spare = memory // LARGE_RANGES_SHARE + freed
        target_bytes = range_bytes(n_threads, spare, runs.n_bytes)
        try:
            output.duplicates = write_sorted(
                partial(runs.ranges, target_bytes), lambda: n_records, target, sort.duplicates,
                executor, n_threads, longest_clip=sorter.longest_clip, total=n_records,
                on_finished=release, progress=progress,
            )  # fmt: skip
        finally:
            if release is not None:
                release.end()
    finally:
        sorter.cancel()
        file.close()
        opened.close()


class _Release:
    """Gives the room of the temporary file back while it is read, by an executor.

    So the file and the output need less room together, and the end of the file, which takes a
    quarter of a second for each GB, does not come after everything else.
    """

    def __init__(self, runs: SortedRuns, file: SpillFile, executor: Executor) -> None:
        self._runs, self._file, self._executor = runs, file, executor
        self._tasks: list[Future[None]] = []

    def __call__(self, n_ranges: int) -> None:
        """Take note of the number of ranges that are finished."""
        if n_ranges % RELEASED_RANGES == 0 and (parts := self._runs.to_release(n_ranges)):
            self._tasks.append(self._executor.submit(self._file.release, parts))

    def end(self) -> None:
        """Wait for tasks that run; drop the others."""
        wait([task for task in self._tasks if not task.cancel()])


def write_sorted(
    ranges: Callable[[], Iterable[RecordRange]], n_read: Callable[[], int], target: SortedTarget,
    duplicates: MarkOptions | None, executor: Executor, n_threads: int, *,
    longest_clip: int | None = None, total: int | None = None,
    share_read: Callable[[], float | None] | None = None,
    on_finished: Callable[[int], None] | None = None, progress: bool = False,
) -> dict[str, object] | None:  # fmt: skip
    """Write the records of ranges in order, mark duplicates and index.

    Parameters
    ----------
    ranges
        See :func:`mapper.sorting.engine.finished_ranges`.
    n_read
        Returns, at the end, the number of records that must have come out of the ranges.
    longest_clip
        See there.
    total
        The number of records, for the progress, if it is known at the start.
    share_read
        Returns the share of the input that has been read, from which the progress estimates it.
    on_finished
        Called with the number of ranges that are finished.

    Returns
    -------
    The counts of duplicates as ``samtools markdup --json`` names them, or None if they are not
    marked.

    Raises
    ------
    OutputError
        If the output cannot be written in full, or records are missing.
    """
    marking = None if duplicates is None else Marking(duplicates, target.header)
    start = bam_header(target.header, target.contig_names, target.contig_lengths)
    bar = progress_bar(progress, "records", "merging", total=total)

    def parts() -> Iterator[Finished]:
        n_finished = 0
        finished = finished_ranges(ranges, executor, n_threads, marking, longest_clip)
        for number, part in enumerate(finished, 1):
            if on_finished is not None:
                on_finished(number)
            if marking is not None and part.counts is not None:
                marking.add(part.counts)
            yield part
            n_finished += part.n_records
            if share_read is not None and (share := share_read()):
                bar.total = round(n_finished / share)
            bar.update(part.n_records)
        if n_finished != n_read():
            raise OutputError(
                f"{target.path}: {n_read()} records came in and {n_finished} would go out; this is "
                "a bug in fmwave, please report it"
            )

    with bar:
        if target.output_format == "bam":
            _write_bam(parts(), target, start, executor, n_threads)
        else:
            _write_by_samtools(parts(), target, start)
    if marking is None:
        return None
    marking.warn()
    return marking.report(target.command)


def _write_bam(
    parts: Iterator[Finished], target: SortedTarget, start: bytes, executor: Executor,
    n_threads: int,
) -> None:  # fmt: skip
    """Write BAM, and its index from the offsets of the blocks written."""
    with ExitStack() as stack:
        index_file = None
        if target.index_path is not None:
            index_file = stack.enter_context(
                OutputFile(str(target.index_path), partial=target.partial_file(INDEX))
            )
        index = BamIndex(target.contig_names, target.contig_lengths)
        sink = stack.enter_context(
            OutputFile(target.path, stale=_stale(target), partial=target.partial_file(RECORDS))
        )
        with bam_writer(
            sink, start, executor, target.level, target.compressor, 2 * n_threads
        ) as writer:
            n_before = writer.n_blocks  # of the header
            for part in parts:
                index.add(part.index_part)
                writer.append(part.data.data)
        if index_file is not None:
            index_file.write(index.write(writer.block_offsets[n_before:]))


def _write_by_samtools(parts: Iterator[Finished], target: SortedTarget, start: bytes) -> None:
    """Write CRAM, and its index, or SAM."""
    options = ["-h", "-O", "sam"]
    if target.output_format == "cram":
        options = cram_options(target.reference, target.level)
    index = None if target.index_path is None else temporary_name(target.index_path)
    if index is not None and target.partial is not None:
        index = target.partial.file(INDEX)
    # The first thread of samtools only hands records over to the others, which encode them.
    threads = target.threads + 1 if target.threads > 1 else 1
    try:
        with (
            OutputFile(
                target.path, stale=_stale(target), partial=target.partial_file(RECORDS)
            ) as sink,
            samtools_output(sink, start, options, threads, index) as output,
        ):
            for part in parts:
                output.append(part.data)
        if index is not None and target.index_path is not None:
            sync_and_rename(index, target.index_path)
    finally:
        if index is not None:
            remove_quietly(index)


def _stale(target: SortedTarget) -> list[Path]:
    """Return the indexes of an older file, but for links to what becomes the new one."""
    if target.file_path is None:
        return []
    new = None if target.index_path is None else os.path.realpath(target.index_path)
    return [
        path
        for path in index_files(Path(target.path))
        if not (path.is_symlink() and os.path.realpath(path) == new)
    ]
