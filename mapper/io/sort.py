"""Coordinate sorting, duplicates and indexing, by the samtools that comes with pysam."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pysam

from mapper.errors import OutputError
from mapper.io import samtools
from mapper.io.output_file import (
    check_writable,
    output_error,
    remove_quietly,
    sync_and_rename,
    temporary_name,
)

MAX_BAI_LENGTH = 1 << 29
"""Contigs longer than this cannot be indexed by a .bai, only by a .csi."""

_MIN_MEMORY = 16 << 20
_INDEX_KINDS = (".bai", ".csi", ".crai")


@contextmanager
def scratch_directory(final: Path) -> Iterator[Path]:
    """Make a directory for temporary files, and remove it with all it holds.

    In TMPDIR if that is set, else beside `final`: there must be room for the data there,
    which cannot be said of /tmp.
    """
    parent = Path(os.environ.get("TMPDIR") or final.parent)
    prefix = f".{final.name}.fmwave-{os.getpid()}-"
    try:
        scratch = tempfile.TemporaryDirectory(prefix=prefix, dir=parent)
    except OSError as error:
        raise output_error(parent, error) from error
    with scratch as path:
        yield Path(path)


def sort_and_index(
    unsorted: Path,
    final: Path,
    threads: int,
    memory: int,
    *,
    level: int = 1,
    mark_duplicates: bool = False,
    reference: str | None = None,
) -> None:
    """Write a BAM or CRAM file in coordinate order, and its index.

    Parameters
    ----------
    unsorted
        BAM file to sort; it is left as it is.
    final
        The sorted file, which appears when complete, followed by the same name and ``.bai``
        (``.csi`` if a contig exceeds MAX_BAI_LENGTH; ``.crai`` for CRAM). An old file's index
        goes before it.
    threads
        Threads that sort and compress.
    memory
        Bytes for records, of all threads together; beyond that they go to temporary files.
    level
        zlib's compression level.
    mark_duplicates
        Set flag 0x400 on all but the best of the pairs (or single reads) that begin and end
        at the same places, as ``samtools markdup`` does. It uses the tags MC and ms.
    reference
        FASTA file; with it CRAM is written.

    Raises
    ------
    OutputError
        If `unsorted` is damaged, or samtools fails; with its message.
    """
    final = final.resolve()
    check_writable(final)
    kind = ".crai" if reference is not None else _index_kind(unsorted)
    sorted_file = temporary_name(final)
    final_index = final.with_name(final.name + kind)
    index = temporary_name(final_index)
    target = ["-O", f"bam,level={level}"]
    if reference is not None:
        target = ["-O", cram_format(level), "--reference", reference]
    try:
        with scratch_directory(final) as scratch:
            # Both work at once: sort merges what markdup reads.
            marking = max(threads // 2, 1) if mark_duplicates else 0
            sorting = max(threads - marking, 1)
            per_thread = max(memory // sorting, _MIN_MEMORY)
            sort = ["-@", str(sorting - 1), "-m", str(per_thread), "--no-PG"]
            sort += ["-T", str(scratch / "part"), str(unsorted)]
            if mark_duplicates:
                mark = ["-@", str(marking - 1), "--no-PG", "-T", str(scratch / "marked"), *target]
                _sort_and_mark(final, [*sort, "-u", "-o", "-"], [*mark, "-", str(sorted_file)])
            else:
                _samtools(final, "sort", *sort, *target, "-o", str(sorted_file))
        format_options = [] if kind == ".crai" else ["-c" if kind == ".csi" else "-b"]
        _samtools(
            final,
            "index",
            *(*format_options, "-@", str(threads - 1), "-o", str(index), str(sorted_file)),
        )
        # A new file must not stand beside the old one's index, whenever this is killed.
        for old_kind in _INDEX_KINDS:
            remove_quietly(final.with_name(final.name + old_kind))
        sync_and_rename(sorted_file, final)
        sync_and_rename(index, final_index)
    finally:
        remove_quietly(sorted_file)
        remove_quietly(index)


def cram_format(level: int) -> str:
    """Return samtools' word for CRAM output.

    Version 3.0, as many readers know no later one, and NM stored, as htsjdk (GATK, Picard) does
    not make it anew.
    """
    return f"cram,version=3.0,store_nm=1,level={level}"


def _index_kind(bam_path: Path) -> str:
    try:
        with pysam.AlignmentFile(str(bam_path), check_sq=False) as bam:
            return ".csi" if max(bam.lengths, default=0) > MAX_BAI_LENGTH else ".bai"
    except OSError as error:
        raise OutputError(f"{bam_path}: cannot be read back for sorting: {error}") from error


def _samtools(final: Path, command: str, *arguments: str) -> None:
    reason = samtools.run(command, *arguments)
    if reason is not None:
        raise OutputError(f"{final}: samtools {command} failed: {reason}")


def _sort_and_mark(final: Path, sort: list[str], mark: list[str]) -> None:
    """Run ``samtools sort`` and ``samtools markdup`` with a pipe between them."""
    sorting = samtools.SamtoolsProcess("sort", *sort, stdout=subprocess.PIPE)
    try:
        marking = samtools.SamtoolsProcess("markdup", *mark, stdin=sorting.process.stdout)
        try:
            assert sorting.process.stdout is not None
            sorting.process.stdout.close()  # sort gets a broken pipe if markdup ends
            marked = marking.wait()
            done = sorting.wait()
        finally:
            marking.kill()
    finally:
        sorting.kill()
    # What went wrong first: markdup fails of what sort did not write.
    for command, reason in (("sort", done), ("markdup", marked)):
        if reason is not None:
            raise OutputError(f"{final}: samtools {command} failed: {reason}")
