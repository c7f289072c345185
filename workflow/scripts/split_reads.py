"""Cut the reads of a unit into consecutive chunks of equal numbers (Snakemake script).

Of FASTQ it writes, for each mate m, ``1_Rm.fq.gz`` … ``n_Rm.fq.gz``; of BAM, CRAM and SAM
``1.bam`` … ``n.bam``; and ``plan.json`` with the reads of each chunk. A FASTQ record is four
lines, as fmwave wants it. Only the count of the first file decides where to cut; what is wrong
with the files (mates out of step, a half record, one file longer) is left for fmwave map to find
and to name: the last chunk takes all that is left of each file.
"""

from rule_log import errors_in_one_line, named, start_log

start_log(globals().get("snakemake"))  # before imports that may fail

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from isal import igzip, igzip_lib

from mapper.errors import MapperError
from mapper.io.bam_split import count_reads as count_bam_reads
from mapper.io.bam_split import split_bam

BLOCK = 4 << 20
NEWLINE = ord("\n")
LINES = 4  # of a record
ALIGNMENT_FILES = (".bam", ".cram", ".sam")


def blocks(path: Path) -> Iterator[np.ndarray]:
    """Yield the text of a file, plain or gzip, as arrays of bytes (uint8)."""
    with named(path, igzip_lib.IsalError), path.open("rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream = igzip.IGzipFile(fileobj=raw, mode="rb") if is_gzip else raw
        while block := stream.read(BLOCK):
            yield np.frombuffer(block, np.uint8)


def count_reads(path: Path) -> int:
    """Return the number of reads: lines by four, the last with or without its line end."""
    lines, last, content = 0, NEWLINE, False
    for block in blocks(path):
        lines += int((block == NEWLINE).sum())
        last = int(block[-1])
        content = True
    return (lines + (content and last != NEWLINE)) // LINES


def cut(path: Path, ends: list[int], targets: list[Path]) -> None:
    """Write reads [0, ends[0]), [ends[0], ends[1]) … to the targets; the last takes the rest.

    Parameters
    ----------
    ends
        One for each target but the last, nondecreasing.
    """
    with Targets(targets) as out:
        seen = 0  # line ends
        for block in blocks(path):
            newlines = np.flatnonzero(block == NEWLINE)
            start = 0
            while out.at < len(ends) and ends[out.at] * LINES <= seen + len(newlines):
                into = ends[out.at] * LINES - seen  # this many line ends into the block
                stop = max(start, int(newlines[into - 1]) + 1 if into > 0 else 0)
                out.write(block[start:stop])
                start = stop
                out.next()
            out.write(block[start:])
            seen += len(newlines)


class Targets:
    """Files that are filled one after the other; each exists in the end, if empty."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self.at = 0
        self._file: BinaryIO = self._open()

    def _open(self) -> BinaryIO:
        return igzip.open(self._paths[self.at], "wb", compresslevel=1)

    def write(self, data: np.ndarray) -> None:
        """Add to the current file."""
        self._file.write(data.tobytes())

    def next(self) -> None:
        """Go on with the next file."""
        self._file.close()
        self.at += 1
        self._file = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()
        while exception[0] is None and self.at < len(self._paths) - 1:
            self.at += 1
            self._open().close()


def split(reads: list[Path], n_chunks: int, directory: Path) -> None:
    """Make the chunks of one file, or of two files of mates."""
    directory.mkdir(parents=True, exist_ok=True)
    is_bam = reads[0].suffix in ALIGNMENT_FILES
    total = count_bam_reads(str(reads[0])) if is_bam else count_reads(reads[0])
    ends = [total * chunk // n_chunks for chunk in range(1, n_chunks + 1)]
    if is_bam:
        targets = [directory / f"{chunk}.bam" for chunk in range(1, n_chunks + 1)]
        split_bam(str(reads[0]), ends, targets)
    else:
        for mate, path in enumerate(reads, start=1):
            targets = [directory / f"{chunk}_R{mate}.fq.gz" for chunk in range(1, n_chunks + 1)]
            cut(path, ends[:-1], targets)
    (directory / "plan.json").write_text(json.dumps({"reads_of_first_file": total, "ends": ends}))


if "snakemake" in globals():
    with errors_in_one_line(MapperError):
        split(
            [Path(path) for path in snakemake.input.reads],
            snakemake.params.n_chunks,
            Path(snakemake.output.chunks),
        )
