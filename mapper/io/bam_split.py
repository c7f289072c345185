"""Cut a BAM, CRAM or SAM file of reads into consecutive BAM files, one for each job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import numpy as np

from mapper.errors import InputFormatError
from mapper.io.bam_reader import BamReader, alignment_format, explain
from mapper.io.bam_templates import DONE, MORE, OK
from mapper.io.bgzf import BgzfWriter
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import ByteSource
from mapper.parallel.pool import thread_pool

_CHUNK_BYTES = 4 << 20
_NO_LIMIT = int(np.iinfo(np.int64).max)


class RecordReader(BamReader):
    """Reader of the records of a file as bytes, unchanged.

    Only their lengths are checked, that mates are next to each other, and that the file is
    complete; the job that parses a record finds other errors in it.

    Parameters
    ----------
    path
        BAM, CRAM or SAM; htslib looks for the reference of a CRAM that needs one.
    executor
        Its threads decompress.

    Raises
    ------
    InputFormatError
        If the header cannot be read; from :meth:`take` if the file is cut off or damaged.
    """

    def __init__(self, path: str, executor: Executor | None = None) -> None:
        source = ByteSource(path, executor)
        # Any other file is read as BAM, whose missing header is the error then.
        fmt = alignment_format(source) or "bam"
        super().__init__(source, fmt, 0, _CHUNK_BYTES, executor=executor)
        self._records = InputBuffer(self._source, _CHUNK_BYTES, executor)
        self._file = self._records  # closed by `close`

    def take(self, until: int) -> Iterator[bytes]:
        """Yield the bytes of the next records, up to the read of ordinal `until` and its mate."""
        file, size = self._records, _CHUNK_BYTES
        while not self._finished:
            data, all_left = file.unread(size + 1)
            is_rest = all_left and len(data) <= size
            ended = is_rest and file.broken is None
            data = data[:size]
            found = self._find(data, ended, until - self.n_reads)
            number = self._n_records + found.n_before + 1
            at_end = found.status == DONE
            if end := len(data) if at_end else found.end:
                yield self._part(found._replace(end=end), 0, True).data.tobytes()
            self.n_reads += found.n_reads
            if found.status == OK:
                return
            if at_end:
                self._finished = True
                self._check_end(number - 1)
            elif found.status != MORE:
                record = data[found.bad :].tobytes()
                raise explain(found.status, self.name, number, record, self.header)
            elif is_rest:
                raise InputFormatError(f"{self.name}: {file.broken} (found at record {number})")
            elif found.end == 0:
                size = file.larger(size, number)


def count_reads(path: str) -> int:
    """Return the number of reads (primary records) of a file."""
    with RecordReader(path) as reader:
        for _ in reader.take(_NO_LIMIT):
            pass
        return reader.n_reads


def split_bam(path: str, ends: Sequence[int], targets: Sequence[Path], threads: int = 1) -> None:
    """Write consecutive reads of a file to BAM files with its header.

    Parameters
    ----------
    ends
        Reads [0, ends[0]), [ends[0], ends[1]) … go to the targets; nondecreasing. A pair is not
        split and goes where its first read goes. Reads after the last end are left out; for all
        reads, give a number no smaller than theirs.
    targets
        One for each end; each exists afterwards, possibly without a record. They are written
        under their final names: the caller removes them after an exception.

    Raises
    ------
    InputFormatError
        See :class:`RecordReader`.
    """
    with thread_pool(threads) as pool, RecordReader(path, pool) as reader:
        for end, target in zip(ends, targets, strict=True):
            with target.open("wb") as sink:
                writer = BgzfWriter(sink, pool)
                writer.append(reader.header_bytes)
                for records in reader.take(end):
                    writer.append(records)
                writer.finish()
