"""Merge the parts of a sample to one finished file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from mapper.errors import InputFormatError, UsageError, option
from mapper.io.input_file import STDIN
from mapper.io.output_file import is_special
from mapper.io.reference_fasta import check_contigs
from mapper.io.samtools import check_fasta, file_with_read
from mapper.parallel.map import ordered_map
from mapper.parallel.pool import READ, WRITE, PriorityPool
from mapper.sorting.duplicate_keys import UnmarkableError
from mapper.sorting.options import MarkOptions, SortOptions
from mapper.sorting.output import SortedTarget, open_sorted_output, write_sorted
from mapper.sorting.parts import PartsReader
from mapper.sorting.ranges import RecordRange, range_bytes
from mapper.sorting.runs import run_of_bytes

log = logging.getLogger(__name__)

SPARE_BYTES = 192 << 20
"""Memory that larger ranges of sorted parts may take: enough for four threads."""


def merge_parts(
    paths: Sequence[str], target: SortedTarget, sort: SortOptions, threads: int, memory: int, *,
    progress: bool = False,
) -> dict[str, object] | None:  # fmt: skip
    """Merge BAM files by coordinate, mark duplicates among all of them, and index.

    If all are sorted they pass through memory, otherwise they are sorted.

    Parameters
    ----------
    paths
        The parts; ``-`` for standard input.
    target
        What to write; its header is made here, from those of the parts.
    threads
        Threads that read, sort and compress.
    memory
        Bytes for records, where they must be sorted.

    Returns
    -------
    The counts of duplicates as ``samtools markdup --json`` names them, or None if they are not
    marked.

    Raises
    ------
    MapperError
        If a part cannot be merged, or the output not be written.
    """
    pool = PriorityPool(threads)
    try:
        return _merge(paths, target, sort, threads, memory, progress, pool)
    except UnmarkableError as error:
        files = [path for path in paths if path != STDIN and not is_special(Path(path))]
        part = file_with_read(files, error.read_name)
        if part is None:
            raise
        raise InputFormatError(f"{part}: {error}") from error
    finally:
        pool.shutdown()


def _merge(
    paths: Sequence[str], target: SortedTarget, sort: SortOptions, threads: int, memory: int,
    progress: bool, pool: PriorityPool,
) -> dict[str, object] | None:  # fmt: skip
    target_bytes = range_bytes(threads, SPARE_BYTES)
    open_parts = partial(PartsReader, paths, pool.at(READ), target_bytes)
    with open_parts() as parts:
        target = target._replace(
            header=parts.header(target.command), contig_names=parts.contig_names,
            contig_lengths=parts.contig_lengths,
        )  # fmt: skip
        if target.output_format == "cram" and target.reference is not None:
            check_fasta(Path(target.reference))
            check_contigs(Path(target.reference), target.contig_names, target.contig_lengths, pool)
        if parts.all_sorted:
            _check_readable_twice(paths, sort.duplicates)
            opened = [parts]
            ranges = partial(_ranges, open_parts, iter([parts]), opened)
            return write_sorted(
                ranges, lambda: parts.n_records, target, sort.duplicates, pool.at(WRITE),
                threads, share_read=lambda: opened[-1].share_read, progress=progress,
            )  # fmt: skip
        log.info("parts that are not sorted: all of them are sorted")
        with open_sorted_output(
            target, sort, pool.at(WRITE), threads, memory=memory, progress=progress
        ) as output:
            for run in ordered_map(
                run_of_bytes, parts.unsorted_chunks(), threads, ahead=1, pool=pool.at(WRITE)
            ):
                output.append(run)
        return output.duplicates


def _ranges(
    open_parts: Callable[[], PartsReader], fresh: Iterator[PartsReader], opened: list[PartsReader]
) -> Iterator[RecordRange]:
    """Yield the ranges of the parts, of a fresh reader or of a new one, noted in `opened`."""
    reader = next(fresh, None) or open_parts()
    opened.append(reader)
    with closing(reader):
        yield from reader.ranges()


def _check_readable_twice(paths: Sequence[str], duplicates: MarkOptions | None) -> None:
    if duplicates is None or not duplicates.supplementary:
        return
    for path in paths:
        if path == STDIN or is_special(Path(path)):
            name = "standard input" if path == STDIN else path
            raise UsageError(
                f"{option('mark_supplementary')} reads sorted parts twice, and {name} can be read "
                "once; name a file"
            )
